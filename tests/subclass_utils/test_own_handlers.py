"""What is seen to around a class's own handlers, by the shorter ways as by the general one."""

from __future__ import annotations

from typing import Any

import torch
from dispatch_core import ops
from subclass_utils import WrapperTensor

aten = ops.aten
is_alias_of: Any = torch._C._is_alias_of  # type: ignore[attr-defined]


class Inside(WrapperTensor):
    elem: torch.Tensor


@Inside.table.implements(aten.t.default)
def _turned(self: Any) -> Any:
    return Inside(self.elem.t())


class Scaled(WrapperTensor):
    inner_tensors = ("numbers", "scale")
    numbers: torch.Tensor
    scale: torch.Tensor
    kept: Any = None

    @staticmethod
    def __new__(cls: Any, numbers: torch.Tensor, scale: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, numbers.size(), dtype=scale.dtype)

    def to_plain(self) -> torch.Tensor:
        return self.numbers * self.scale

    @classmethod
    def from_plain(cls, plain: torch.Tensor, like: Any = None) -> Any:
        return cls(plain.to(torch.int8), torch.ones(()))


@Scaled.table.implements(aten.t.default)
def _turned_numbers(self: Any) -> Any:
    return Scaled(self.numbers.t(), self.scale)


@Scaled.table.implements(aten.copy_.default)
def _taken_over(self: Any, src: Any, non_blocking: bool = False) -> Any:
    self.numbers.copy_(src.numbers)
    self.scale = src.scale
    return self


@Scaled.table.implements(aten.mul_.Tensor)
def _multiplied(self: Any, other: Any) -> Any:
    self.scale.mul_(other)
    return self


@Scaled.table.implements(aten.neg_.default)
def _negated(self: Any) -> Any:
    Scaled.kept = self.detach()
    self.scale = -self.scale
    return self


def made() -> Any:
    return Scaled(torch.ones(2, 3, dtype=torch.int8), torch.tensor(2.0))


def test_view_by_a_handler_has_the_storage_of_the_whole() -> None:
    for whole in (Inside(torch.ones(2, 3)), made()):
        view = whole.t()
        assert view._base is whole
        assert is_alias_of(view, whole)


def test_inner_tensor_that_a_write_took_over_is_written_for_one_alone() -> None:
    one, other = made(), made()
    one.copy_(other)
    assert one.scale is other.scale
    one.mul_(2.0)
    assert one.to_plain().tolist() == [[4.0] * 3] * 2
    assert other.to_plain().tolist() == [[2.0] * 3] * 2


def test_what_shares_the_data_since_the_handler_ran_follows_what_it_wrote() -> None:
    one = made()
    one.neg_()
    assert Scaled.kept.to_plain().tolist() == one.to_plain().tolist() == [[-2.0] * 3] * 2
