"""Handlers that hand an inner tensor on to a result which is no view."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from subclass_utils import ViewError, WrapperTensor

aten = torch.ops.aten


class Shifted(WrapperTensor):
    """Numbers times a scale and plus a shift; handlers hand on what they do not change."""

    inner_tensors: ClassVar[tuple[str, ...]] = ("numbers", "scale", "shift")
    without_handler = "to_plain"
    numbers: torch.Tensor
    scale: torch.Tensor
    shift: torch.Tensor

    @staticmethod
    def __new__(cls: Any, numbers: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            cls, numbers.size(), strides=numbers.stride(), dtype=numbers.dtype
        )

    def to_plain(self) -> torch.Tensor:
        return self.numbers * self.scale + self.shift

    @classmethod
    def from_plain(cls, plain: torch.Tensor, like: Any = None) -> Any:
        shift = plain.new_zeros(()) if like is None else like.shift
        largest = plain.abs().amax().clamp(min=1)
        return cls((plain - shift) / largest, largest, shift)


@Shifted.table.implements(aten.neg.default)
def _neg(self: Any) -> Any:
    return Shifted(-self.numbers, self.scale, -self.shift)


@Shifted.table.implements(aten.add.Tensor)
def _add(self: Any, other: Any, *, alpha: Any = 1) -> Any:
    return Shifted(self.numbers, self.scale, self.shift + alpha * other)


@Shifted.table.implements(aten.slice.Tensor)
def _slice(self: Any, dim: Any = 0, start: Any = None, end: Any = None, step: Any = 1) -> Any:
    part = aten.slice.Tensor(self.numbers, dim, start, end, step)
    return Shifted(part, self.scale, self.shift)


@Shifted.table.implements(aten.div_.Tensor)
def _div_(self: Any, other: Any) -> Any:
    self.scale.div_(other)
    self.shift.div_(other)
    return self


@Shifted.table.implements(aten.unbind.int)
def _unbind(self: Any, dim: Any = 0) -> Any:
    return [Shifted(row, self.scale, self.shift) for row in self.numbers.unbind(dim)]


def _made() -> Any:
    return Shifted.from_plain(torch.arange(4.0))


WRITES: dict[str, Callable[[Any], Any]] = {
    "fill_": lambda tensor: tensor.fill_(9.0),
    "mul_": lambda tensor: tensor.mul_(3.0),
    "copy_": lambda tensor: tensor.copy_(torch.arange(4.0) * 7),
    "copy_ of its class": lambda tensor: tensor.copy_(Shifted.from_plain(torch.arange(4.0) * 7)),
    "own handler": lambda tensor: tensor.div_(2.0),
    "view": lambda tensor: tensor[1:].fill_(9.0),
    "one of several views": lambda tensor: tensor.unbind()[2].fill_(9.0),
    "data": lambda tensor: tensor.data.fill_(9.0),
    "data of a view": lambda tensor: tensor[1:].data.fill_(9.0),
    "detached": lambda tensor: tensor.detach().fill_(9.0),
    "list": lambda tensor: torch._foreach_mul_([tensor], 3.0),
    "out": lambda tensor: torch.mul(torch.arange(4.0), 5.0, out=tensor),
}

MAKES: dict[str, Callable[[Any], Any]] = {
    "neg": lambda tensor: -tensor,
    "add": lambda tensor: tensor + 1.0,
    "twice": lambda tensor: -(tensor + 1.0),
    "of a view": lambda tensor: -tensor[:],
    "to another dtype and back": lambda tensor: tensor.double().float(),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("written", ["source", "result"])
def test_write_stays_in_what_is_written(written: str, make: str, write: str) -> None:
    source, result = (one := _made()), MAKES[make](one)
    target, other = (source, result) if written == "source" else (result, source)
    plain = target.to_plain().clone()
    before = other.to_plain().clone()
    part = target[2:]
    WRITES[write](target)
    if write == "copy_ of its class":
        plain.copy_(torch.arange(4.0) * 7)
    else:
        WRITES[write](plain)
    assert torch.equal(other.to_plain(), before)
    torch.testing.assert_close(target.to_plain(), plain)
    torch.testing.assert_close(part.to_plain(), plain[2:])


def test_next_write_stays_there_too() -> None:
    one = _made()
    results = [-one, one + 1.0]
    for value in (5.0, 6.0):
        one.fill_(value)
    results[0].fill_(2.0)
    assert one.to_plain().tolist() == [6.0] * 4
    assert results[0].to_plain().tolist() == [2.0] * 4
    assert results[1].to_plain().tolist() == [1.0, 2.0, 3.0, 4.0]


def test_nothing_is_copied_before_somebody_writes() -> None:
    one = _made()
    assert (-one).scale is one.scale
    assert (one + 1.0).numbers is one.numbers


def test_write_without_a_result_goes_into_the_inner_tensors() -> None:
    one = _made()
    numbers, scale = one.numbers, one.scale
    one.fill_(9.0)
    assert one.numbers is numbers
    assert one.scale is scale
    assert scale.item() == 9.0


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copies_own_what_they_have(copied: Callable[[Any], Any]) -> None:
    one = _made()
    result = -one
    other = copied(result)
    assert other.scale is not one.scale
    other.fill_(4.0)
    assert one.to_plain().tolist() == [0.0, 1.0, 2.0, 3.0]
    assert result.to_plain().tolist() == [0.0, -1.0, -2.0, -3.0]


@pytest.mark.parametrize("inside", [False, True])
def test_written_under_inference_mode(inside: bool) -> None:
    with torch.inference_mode(inside):
        one = _made()
    result = -one
    with torch.inference_mode():
        one.fill_(9.0)
    if not inside:
        one.fill_(8.0)  # what it holds is no inference tensor
    assert one.to_plain().tolist() == [9.0 if inside else 8.0] * 4
    assert result.to_plain().tolist() == [0.0, -1.0, -2.0, -3.0]


def test_compiled_result_keeps_its_own() -> None:
    @torch.compile(backend="aot_eager", fullgraph=True)
    def negated(tensor: Any) -> Any:
        return -tensor

    one = _made()
    result = negated(one)
    one.fill_(9.0)
    assert result.to_plain().tolist() == [0.0, -1.0, -2.0, -3.0]


def test_new_data_is_shared_with_where_it_came_from() -> None:
    one, other = _made(), _made()
    result = -one
    one.data = other
    one.fill_(9.0)
    assert other.to_plain().tolist() == [9.0] * 4
    assert result.to_plain().tolist() == [0.0, -1.0, -2.0, -3.0]


class More(Shifted):
    """Holds one more inner tensor, which this class's operators know nothing of."""

    inner_tensors = ("numbers", "scale", "shift", "mask")
    mask: torch.Tensor

    @staticmethod
    def __new__(cls: Any, numbers: Any, scale: Any, shift: Any, mask: Any) -> Any:
        return Shifted.__new__(cls, numbers, scale, shift)


def test_result_of_another_class_with_fewer_inner_tensors() -> None:
    parts = _made()
    one: Any = More(parts.numbers, parts.scale, parts.shift, torch.ones(4))
    result = -one
    result.zero_()
    assert one.to_plain().tolist() == [0.0, 1.0, 2.0, 3.0]


def test_view_that_cannot_follow_is_named() -> None:
    one = _made()
    part = one[1:]
    part.unsqueeze_(0)
    result = -one
    with pytest.raises(ViewError, match="Shifted: this value cannot reach every tensor"):
        one.div_(2.0)
    assert one.to_plain().tolist() == [0.0, 1.0, 2.0, 3.0]
    assert result.to_plain().tolist() == [0.0, -1.0, -2.0, -3.0]
