"""The base class of tensors that wrap tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch

from subclass_utils._outside import outside_like
from subclass_utils._torch_private import (
    decompose,
    is_composite_implicit,
    no_torch_function,
    outside_of_handlers,
    restore_caller_state,
    skip_in_dynamo,
)
from subclass_utils._transparent import Plan, transparent_plan

__all__ = ["WrapperTensor"]


class WrapperTensor(torch.Tensor):
    """A tensor that holds inner tensors and answers every operator with them."""

    inner_tensors: ClassVar[tuple[str, ...]] = ("elem",)
    metadata: ClassVar[tuple[str, ...]] = ()
    mixing: ClassVar[Literal["error", "wrap", "unwrap"]] = "wrap"

    _plans: ClassVar[dict[Any, Plan]] = {}

    __torch_function__ = no_torch_function

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._plans = {}

    @staticmethod
    def __new__(
        cls: type[Any], elem: torch.Tensor, *args: Any, requires_grad: bool = False, **kwargs: Any
    ) -> Any:
        return outside_like(cls, elem, requires_grad)

    def __init__(self, elem: torch.Tensor, *, requires_grad: bool = False) -> None:
        self.elem = elem.detach() if requires_grad else elem

    @classmethod
    def _carry_metadata(cls, wrapper: Any, like: Any) -> None:
        for name in cls.metadata:
            setattr(wrapper, name, getattr(like, name))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's stub forgets func
        cls,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        try:
            plan = cls._plans[func]
        except KeyError:
            plan = cls._plans[func] = cls._make_plan(func)
        return plan(args, kwargs or {})

    @classmethod
    def _make_plan(cls, func: Any) -> Plan:
        if cls._runs_in_parts(func):
            return _parts_plan(func)
        return transparent_plan(cls, func)

    @classmethod
    def _runs_in_parts(cls, func: Any) -> bool:
        return is_composite_implicit(func)

    def __repr__(self) -> str:  # type: ignore[override]  # no tensor_contents
        requires_grad = ", requires_grad=True" if self.requires_grad else ""
        with torch._C._DisableTorchDispatch():
            return f"{type(self).__name__}({self.elem!r}{requires_grad})"


def _parts_plan(func: Any) -> Plan:
    parts = decompose(func)

    def run(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if outside_of_handlers():
            return parts(*args, **kwargs)
        with restore_caller_state():
            return parts(*args, **kwargs)

    return run


skip_in_dynamo(WrapperTensor.__torch_dispatch__.__func__.__code__)  # type: ignore[attr-defined]
