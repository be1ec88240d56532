"""A wrapper that writes down which operators reach it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from subclass_utils._capture import ACTIVE
from subclass_utils._torch_private import is_fake, skip_in_dynamo
from subclass_utils._wrapper import WrapperTensor

__all__ = ["LoggingTensor"]


class LoggingTensor(WrapperTensor):
    """Wrap a tensor, and write each operator to the captures that `capture_logs` opened.

    `elem` is the inner tensor. The wrapper requires grad only if asked to; then `elem` is
    detached.
    """

    elem: Tensor

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's stub forgets func
        cls,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run the operator on the inner tensors and write its line."""
        if kwargs is None:
            kwargs = {}
        captures = ACTIVE.get()
        looks = [capture.looks(func, (args, kwargs)) for capture in captures] if captures else ()
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if captures and not cls._runs_in_parts(func) and not _is_traced(args):
            for capture, before in zip(captures, looks, strict=True):
                capture.add_call(func, args, kwargs, result, before)
        return result


def _is_traced(args: Sequence[Any]) -> bool:
    """Say whether torch.compile is tracing: the same operator comes several times then."""
    for value in args:
        for item in value if isinstance(value, list | tuple) else (value,):
            if isinstance(item, LoggingTensor):
                inner = item.elem
                return type(inner) is not Tensor and is_fake(inner)
    return False


skip_in_dynamo(LoggingTensor.__torch_dispatch__.__func__.__code__)  # type: ignore[attr-defined]
