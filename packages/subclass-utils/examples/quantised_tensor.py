"""A quantised tensor: int8 numbers with one scale and one zero point, trained through.

The outside looks like the float tensor that it stands for. Matrix products multiply what the
numbers stand for; views, copies and moves work on the numbers themselves.
"""

from __future__ import annotations

from typing import Any

import torch
from dispatch_core import ops
from subclass_utils import WrapperTensor

aten = ops.aten


class QuantisedTensor(WrapperTensor):
    """`(data - zero_point) * scale`, with `data` in int8."""

    inner_tensors = ("int_data", "scale", "zero_point")
    without_handler = "to_plain"
    int_data: torch.Tensor
    scale: torch.Tensor
    zero_point: torch.Tensor

    @staticmethod
    def __new__(
        cls: Any,
        int_data: torch.Tensor,
        scale: torch.Tensor,
        zero_point: torch.Tensor,
        *,
        requires_grad: bool = False,
    ) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            cls,
            int_data.size(),
            strides=int_data.stride(),
            storage_offset=int_data.storage_offset(),
            dtype=scale.dtype,
            device=int_data.device,
            requires_grad=requires_grad,
        )

    def to_plain(self) -> torch.Tensor:
        """Give the floats that the numbers stand for."""
        return (self.int_data.to(self.scale.dtype) - self.zero_point) * self.scale

    @classmethod
    def from_plain(cls, plain: torch.Tensor, like: Any = None) -> QuantisedTensor:
        """Quantise by the range of the values."""
        if plain.numel() == 0:
            low, high = plain.new_zeros(()), plain.new_ones(())
        else:
            low, high = plain.amin().clamp(max=0), plain.amax().clamp(min=0)
        scale = ((high - low) / 255).clamp(min=1e-8)
        zero_point = (-128 - low / scale).round()
        int_data = (plain / scale + zero_point).round().clamp(-128, 127).to(torch.int8)
        return cls(int_data, scale, zero_point)


def _plain(value: Any) -> Any:
    return value.to_plain() if isinstance(value, QuantisedTensor) else value


def _same(like: QuantisedTensor, int_data: torch.Tensor) -> QuantisedTensor:
    return QuantisedTensor(int_data, like.scale, like.zero_point)


# Products take plain activations and quantised weights, in either place.


@QuantisedTensor.table.implements(aten.mm.default)
def mm(self: Any, mat2: Any) -> Any:
    return _plain(self) @ _plain(mat2)


@QuantisedTensor.table.implements(aten.addmm.default)
def addmm(self: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return beta * _plain(self) + alpha * (_plain(mat1) @ _plain(mat2))


# Views keep scale and zero point, and change the numbers' shape only. What is written to one
# becomes a new value of the whole, whose scale and zero point all views then have.


@QuantisedTensor.table.implements(aten.t.default)
def t(self: Any) -> Any:
    return _same(self, self.int_data.t())


@QuantisedTensor.table.implements(aten.transpose.int)
def transpose(self: Any, dim0: Any, dim1: Any) -> Any:
    return _same(self, self.int_data.transpose(dim0, dim1))


@QuantisedTensor.table.implements(aten.view.default)
def view(self: Any, size: Any) -> Any:
    return _same(self, self.int_data.view(size))


@QuantisedTensor.table.implements(aten.slice.Tensor)
def slice_(self: Any, dim: Any = 0, start: Any = None, end: Any = None, step: Any = 1) -> Any:
    return _same(self, aten.slice.Tensor(self.int_data, dim, start, end, step))
