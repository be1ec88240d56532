"""Operators on a transparent wrapper, against handlers written by hand and with tree_map."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from subclass_utils import WrapperTensor
from torch.utils._pytree import tree_map

from tools.bench.row import Row, Target, at_most, faster
from tools.bench.timing import Statement, alternate

aten = torch.ops.aten


class ByHand(torch.Tensor):
    """What a careful author writes: full metadata, a branch for each shape of operator."""

    elem: torch.Tensor
    __torch_function__: Any = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, elem: torch.Tensor) -> Any:
        made: Any = torch.Tensor._make_wrapper_subclass(
            cls,
            elem.size(),
            strides=elem.stride(),
            storage_offset=elem.storage_offset(),
            dtype=elem.dtype,
            layout=elem.layout,
            device=elem.device,
            requires_grad=elem.requires_grad,
        )
        made.elem = elem
        return made

    def __init__(self, elem: torch.Tensor) -> None:
        pass

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's stub forgets func
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is aten.mul.Tensor:
            a, b = args
            return cls(func(a.elem, b.elem))
        if func is aten.add_.Tensor:
            a, b = args
            func(a.elem, b.elem)
            return a
        return cls(func(args[0].elem, *args[1:]))


class WithTreeMap(ByHand):
    """The same with pytree's tree_map over arguments and results."""

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's stub forgets func
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        def unwrap(value: Any) -> Any:
            return value.elem if isinstance(value, cls) else value

        def wrap(value: Any) -> Any:
            return cls(value) if isinstance(value, torch.Tensor) else value

        return tree_map(wrap, func(*tree_map(unwrap, args), **tree_map(unwrap, kwargs or {})))


class Ours(WrapperTensor):
    """A transparent wrapper."""


COMPARED: list[tuple[str, str, type[Any], str, Target | None]] = [
    ("two tensors", "a * b", ByHand, "a handler by hand", at_most(1.25)),
    ("two tensors", "a * b", WithTreeMap, "tree_map", faster(2.5)),
    ("one tensor", "a.neg()", ByHand, "a handler by hand", at_most(1.25)),
    ("a view", "a.view(-1)", ByHand, "a handler by hand", None),
    ("in place", "a.add_(b)", ByHand, "a handler by hand", None),
]


def rows() -> Iterator[Row]:
    """Compare operators on wrappers of three numbers."""
    for cls in (Ours, ByHand, WithTreeMap):
        cls(torch.ones(3)) * cls(torch.ones(3))  # torch imports more on the first operator
    for work, code, other, against, target in COMPARED:
        ours, theirs = alternate(
            *(
                Statement(code, {"a": cls(torch.ones(3)), "b": cls(torch.ones(3))})
                for cls in (Ours, other)
            )
        )
        yield Row(f"wrapper: {work}", against, ours, theirs, target)
