"""Let the result of a view operator that was kept whole be a view to autograd, too.

Torch makes views of a composite operator's results where its parts run, which is after the place
where a kept operator is answered. Without that, writing through such a result would go unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dispatch_core import _torch_private as private
from dispatch_core._mode_stack import QuietMode
from dispatch_core._no_dispatch import is_memoryless

__all__ = ["as_views", "gives_views", "viewed_argument"]

Tensor = torch.Tensor


def gives_views(op: Any) -> bool:
    """Say whether a result of the operator may share the memory of an argument."""
    return any(value.alias_info and not value.alias_info.is_write for value in op._schema.returns)


def viewed_argument(op: Any, args: Sequence[Any]) -> Tensor | None:
    """Give the tensor that results may be views of."""
    for argument, value in zip(op._schema.arguments, args, strict=False):
        alias = argument.alias_info
        if alias is not None and not alias.is_write and isinstance(value, Tensor):
            return value
    return None


def as_views(result: Any, base: Tensor, shadow: Callable[[], Sequence[bool]]) -> Any:
    """Make the tensors of a result views of `base` where they share its memory.

    `shadow` runs the operator on tensors without data, for wrappers, whose memory is elsewhere.
    """
    if isinstance(result, Tensor):
        return _as_view(result, base, lambda: shadow()[0])
    if isinstance(result, list | tuple):
        views = []
        for index, item in enumerate(result):

            def shares(at: int = index) -> bool:
                return shadow()[at]

            views.append(_as_view(item, base, shares) if isinstance(item, Tensor) else item)
        return type(result)(views)
    return result


def _as_view(result: Tensor, base: Tensor, shares_in_shadow: Callable[[], bool]) -> Tensor:
    if result is base or result.requires_grad or result._is_view():
        return result
    if not private.is_alias_of(result, base) and not (
        private.has_python_key(base) and is_memoryless(base) and shares_in_shadow()
    ):
        return result
    with _Answer(result):
        # Any view operator would do: the mode answers it with the result that is there already.
        view: Tensor = torch.ops.aten.alias.default(base)
    return view


class _Answer(QuietMode):
    def __init__(self, result: Tensor) -> None:
        self._result = result

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._result


private.skip_in_dynamo(_Answer.__torch_dispatch__)
