"""What a wrapper knows of the views that its class's handlers made, and what they cost it."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest
import torch
from subclass_utils import WrapperTensor

aten = torch.ops.aten


class Scaled(WrapperTensor):
    """Numbers and a scale, of any dtype, with a view that shares both."""

    inner_tensors = ("numbers", "scale_")
    without_handler = "to_plain"
    numbers: torch.Tensor
    scale_: torch.Tensor

    @staticmethod
    def __new__(cls: Any, numbers: torch.Tensor, scale_: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            cls, numbers.size(), strides=numbers.stride(), dtype=scale_.dtype
        )

    def to_plain(self) -> torch.Tensor:
        return (self.numbers * self.scale_).to(self.scale_.dtype)

    @classmethod
    def from_plain(cls, plain: torch.Tensor, like: Any = None) -> Any:
        largest = plain.abs().amax().clamp(min=1)
        return cls((plain / largest * 100).round().to(torch.int8), (largest / 100).to(plain.dtype))


@Scaled.table.implements(aten.t.default)
def _t(self: Any) -> Any:
    return Scaled(self.numbers.t(), self.scale_)


@Scaled.table.implements(aten.split.Tensor)
def _split(self: Any, split_size: Any, dim: Any = 0) -> Any:
    return [Scaled(part, self.scale_) for part in self.numbers.split(split_size, dim)]


@Scaled.table.implements(aten.neg.default)
def _neg(self: Any) -> Any:
    return Scaled(-self.numbers, self.scale_.clone())


class InSlots(WrapperTensor):
    """The same with its inner tensors where no `__dict__` shows them."""

    __slots__ = ("numbers", "scale_")
    inner_tensors = ("numbers", "scale_")
    without_handler = "to_plain"
    numbers: torch.Tensor
    scale_: torch.Tensor

    @staticmethod
    def __new__(cls: Any, numbers: torch.Tensor, scale_: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            cls, numbers.size(), strides=numbers.stride(), dtype=scale_.dtype
        )

    def to_plain(self) -> torch.Tensor:
        return self.numbers * self.scale_

    @classmethod
    def from_plain(cls, plain: torch.Tensor, like: Any = None) -> Any:
        return cls(plain.round().to(torch.int8), torch.ones((), dtype=plain.dtype))


@InSlots.table.implements(aten.t.default)
def _t_in_slots(self: Any) -> Any:
    return InSlots(self.numbers.t(), self.scale_)


def scaled(cls: Any = Scaled) -> Any:
    return cls(torch.tensor([[1, 2], [3, 4]], dtype=torch.int8), torch.ones(()))


def links_of(wrapper: Any) -> int:
    family = wrapper.__dict__.get("_family")
    return 0 if family is None else len(family.links)


def test_wrapper_forgets_views_at_once_when_they_die() -> None:
    whole = scaled()
    gc.disable()
    try:
        kept = [whole.t(), *whole.split(1), whole.detach().t()]
        assert links_of(whole) == 5  # what detach gave is the base of the view
        kept.clear()
        assert links_of(whole) == 0
    finally:
        gc.enable()


def test_wrapper_knows_the_views_that_many_threads_made() -> None:
    whole, kept = scaled(), list[Any]()
    threads = [
        threading.Thread(target=lambda: kept.extend([whole.t() for _ in range(50)]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert links_of(whole) == 200
    with torch.no_grad():
        whole.mul_(50)
    assert all(torch.equal(view.to_plain(), whole.to_plain().t()) for view in kept)


@pytest.mark.parametrize("write_to", ["whole", "part", "part of a part"])
def test_new_scale_reaches_everybody(write_to: str) -> None:
    whole = scaled()
    part = whole.split(1)[1]
    of_part = part.t()
    target = {"whole": whole, "part": part, "part of a part": of_part}[write_to]
    with torch.no_grad():
        target.fill_(1000.0)
    assert torch.equal(part.to_plain(), torch.full((1, 2), 1000.0))
    assert torch.equal(of_part.to_plain(), torch.full((2, 1), 1000.0))
    first = 1000.0 if write_to == "whole" else 1.0
    assert whole.to_plain()[0, 0].sub(first).abs() <= 10
    assert whole.to_plain()[1].eq(1000.0).all()


def test_fresh_result_is_no_part() -> None:
    whole = scaled()
    other = -whole
    assert links_of(whole) == 0
    with torch.no_grad():
        whole.fill_(9.0)
    assert torch.equal(other.to_plain(), torch.tensor([[-1.0, -2.0], [-3.0, -4.0]]))


def test_inner_tensors_in_slots_are_seen_through_their_memory() -> None:
    whole = scaled(InSlots)
    part = whole.t()
    with torch.no_grad():
        part.fill_(7.0)
    assert torch.equal(whole.to_plain(), torch.full((2, 2), 7.0))
    with torch.no_grad():
        whole.fill_(5.0)
    assert torch.equal(part.to_plain(), torch.full((2, 2), 5.0))


def test_new_data_ends_what_was_shared() -> None:
    whole = scaled()
    part = whole.t()
    part.data = scaled().t() * 1
    with torch.no_grad():
        whole.fill_(9.0)
    assert torch.equal(part.to_plain(), torch.tensor([[1.0, 3.0], [2.0, 4.0]]))


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_indices_in_a_wrapper_are_read_by_operators(dtype: torch.dtype) -> None:
    indices = Scaled(torch.tensor([1, 3], dtype=torch.int8), torch.ones((), dtype=dtype))
    if dtype is torch.int64:
        parts = torch.tensor_split(torch.arange(5), indices)
        assert [part.tolist() for part in parts] == [[0], [1, 2], [3, 4]]
    else:
        with pytest.raises(RuntimeError, match=r"int64|long"):
            torch.tensor_split(torch.arange(5), indices)


def test_constructor_takes_what_it_declares_by_name_or_place() -> None:
    numbers, scale = torch.ones(2, dtype=torch.int8), torch.ones(())
    for made in (Scaled(numbers, scale), Scaled(numbers, scale_=scale)):
        assert made.numbers is numbers
        assert made.scale_ is scale
