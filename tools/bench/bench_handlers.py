"""Operators on a wrapper whose outside differs, against the same handlers on a plain subclass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from subclass_utils import WrapperTensor

from tools.bench.row import Row
from tools.bench.timing import Statement, alternate

aten = torch.ops.aten


def _outside(cls: Any, numbers: torch.Tensor, scale: torch.Tensor) -> Any:
    return torch.Tensor._make_wrapper_subclass(
        cls,
        numbers.size(),
        strides=numbers.stride(),
        storage_offset=numbers.storage_offset(),
        dtype=scale.dtype,
        device=numbers.device,
    )


class ByHand(torch.Tensor):
    """Whole numbers and a scale. A write into a view reaches the inner tensors only."""

    numbers: torch.Tensor
    scale: torch.Tensor
    __torch_function__: Any = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, numbers: torch.Tensor, scale: torch.Tensor) -> Any:
        return _outside(cls, numbers, scale)

    def __init__(self, numbers: torch.Tensor, scale: torch.Tensor) -> None:
        self.numbers = numbers
        self.scale = scale

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's stub forgets func
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return HANDLERS[func](*args, **(kwargs or {}))


class Ours(WrapperTensor):
    """The same with a table: handlers are checked, and views follow new scales."""

    inner_tensors = ("numbers", "scale")
    numbers: torch.Tensor
    scale: torch.Tensor

    @staticmethod
    def __new__(cls: Any, numbers: torch.Tensor, scale: torch.Tensor) -> Any:
        return _outside(cls, numbers, scale)

    def to_plain(self) -> torch.Tensor:
        """Give the floats that the numbers stand for."""
        return self.numbers * self.scale

    @classmethod
    def from_plain(cls, plain: torch.Tensor, like: Any = None) -> Any:
        """Keep the whole numbers."""
        return cls(plain.to(torch.int8), torch.ones((), dtype=plain.dtype))


def _plain(value: Any) -> Any:
    return value.numbers * value.scale if isinstance(value, ByHand | Ours) else value


def _mm(self: Any, mat2: Any) -> Any:
    return _plain(self) @ _plain(mat2)


def _mul(self: Any, other: Any) -> Any:
    return _plain(self) * _plain(other)


def _t(self: Any) -> Any:
    return type(self)(self.numbers.t(), self.scale)


def _view(self: Any, size: Any) -> Any:
    return type(self)(self.numbers.view(size), self.scale)


def _slice(self: Any, dim: Any = 0, start: Any = None, end: Any = None, step: Any = 1) -> Any:
    return type(self)(aten.slice.Tensor(self.numbers, dim, start, end, step), self.scale)


HANDLERS: dict[Any, Any] = {
    aten.mm.default: _mm,
    aten.mul.Tensor: _mul,
    aten.t.default: _t,
    aten.view.default: _view,
    aten.slice.Tensor: _slice,
}
for _op, _handler in HANDLERS.items():
    _register: Any = Ours.table.implements(_op)
    _register(_handler)

CODE = {"mm": "x @ q", "mul": "q * x", "t": "q.t()", "view": "q.view(-1)", "slice": "q[1:]"}


def rows() -> Iterator[Row]:
    """Compare handlers on nine numbers; nothing is promised of these."""
    numbers, scale = torch.ones(3, 3, dtype=torch.int8), torch.ones(())
    for work, code in CODE.items():
        ours, by_hand = alternate(
            *(
                Statement(code, {"q": cls(numbers, scale), "x": torch.zeros(3, 3)})
                for cls in (Ours, ByHand)
            ),
            rounds=31,
        )
        yield Row(f"own handlers: {work}", "a plain subclass", ours, by_hand)
