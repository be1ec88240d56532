"""Handlers in place may exchange inner tensors and metadata: all that shares the data follows."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from dispatch_core import ops
from subclass_utils import ViewError, WrapperTensor
from torch import nn

from tests.subclass_utils.wrappers import Requantised

aten = ops.aten


class Scaled(Requantised):
    """Numbers with a scale that hangs on the values."""

    @classmethod
    def from_plain(cls, plain: torch.Tensor, like: Any = None) -> Any:
        largest = plain.abs().amax() if plain.numel() else torch.ones(())
        scale = torch.exp2(largest.clamp(min=1).log2().floor())
        return cls(plain / scale, scale)


@Scaled.table.implements(aten.add_.Tensor)
def _add_(self: Any, other: Any, *, alpha: Any = 1) -> Any:
    made = type(self).from_plain(self.to_plain() + alpha * other)
    self.numbers, self.scale = made.numbers, made.scale
    return self


@Scaled.table.implements(aten._foreach_add_.Scalar)
def _foreach_add_(self: Any, scalar: Any) -> None:
    for each in self:
        _add_(each, scalar) if isinstance(each, Scaled) else each.add_(scalar)


@Scaled.table.implements(aten.slice.Tensor)
def _slice(self: Any, dim: Any = 0, start: Any = None, end: Any = None, step: Any = 1) -> Any:
    return type(self)(aten.slice.Tensor(self.numbers, dim, start, end, step), self.scale)


class InSlots(Scaled):
    __slots__ = ("numbers", "scale")


class Halves(WrapperTensor):
    """Two halves of one memory, whose handler exchanges them."""

    low: torch.Tensor
    high: torch.Tensor

    inner_tensors = ("low", "high")
    without_handler = "to_plain"

    @staticmethod
    def __new__(cls: type[Any], low: torch.Tensor, high: torch.Tensor) -> Any:
        size = (low.size(0) + high.size(0),)
        return torch.Tensor._make_wrapper_subclass(cls, size, dtype=low.dtype)

    def to_plain(self) -> torch.Tensor:
        return torch.cat([self.low, self.high])

    @classmethod
    def from_plain(cls, plain: torch.Tensor, like: Any = None) -> Any:
        return cls(*plain.clone().chunk(2))


@Halves.table.implements(aten.neg_.default)
def _neg_(self: Any) -> Any:
    self.low, self.high = self.high, self.low
    return self


def real() -> torch.Tensor:
    return torch.tensor([1.0, 2.0, 4.0])


def state_entry(x: Any) -> Any:
    layer: Any = nn.Module()
    layer.weight = nn.Parameter(x, requires_grad=False)
    return layer.state_dict()["weight"]


ALIASES: dict[str, Callable[[Any], Any]] = {
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "view_as": lambda x: x.view_as(x),
    "Parameter": lambda x: nn.Parameter(x, requires_grad=False),
    "state_dict": state_entry,
    "detach of detach": lambda x: x.detach().detach(),
}


def values(*tensors: Any) -> list[list[float]]:
    return [
        (x.to_plain() if isinstance(x, WrapperTensor) else x).flatten().tolist() for x in tensors
    ]


@pytest.mark.parametrize("cls", [Scaled, InSlots])
@pytest.mark.parametrize("name", ALIASES)
def test_exchange_ends_no_sharing(name: str, cls: Any) -> None:
    for first, second in ("da", "db", "dd", "ad", "aa", "ba"):
        outcomes = []
        for make in (cls.from_plain, torch.clone):
            x = make(real())
            tensors = {"a": x, "d": ALIASES[name](x), "b": x.detach()}
            tensors[first].add_(1.0)
            tensors[second].mul_(10.0)
            tensors[first].add_(2.0)
            outcomes.append(values(*tensors.values()))
        assert outcomes[0] == outcomes[1]


def test_exchange_in_a_copy_ends_no_sharing() -> None:
    x = Scaled.from_plain(real())
    ways: list[Callable[[Any], Any]] = [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
    for copied in ways:
        one, other = copied([x, x.detach()])
        other.add_(1.0)
        one.mul_(10.0)
        other.mul_(2.0)
        assert values(one, other) == [[40.0, 60.0, 100.0]] * 2


def test_inner_tensors_exchanged_for_each_other() -> None:
    for written in (0, 1):
        x = Halves.from_plain(real())
        tensors = [x, x.detach()]
        tensors[written].neg_()
        assert values(*tensors) == [[4.0, 1.0, 2.0]] * 2
        tensors[1 - written].add_(1.0)
        assert values(*tensors) == [[5.0, 2.0, 3.0]] * 2


def test_exchange_in_parts_that_are_apart() -> None:
    x, plain = Scaled.from_plain(real()), real()
    for whole in (x, plain):
        torch._foreach_add_([whole[:1], whole[1:]], 10.0)
    assert values(x) == values(plain)


@pytest.mark.parametrize("part", [lambda x: x.detach(), lambda x: x[:2], lambda x: x])
def test_exchange_in_several_that_share_is_an_error(part: Callable[[Any], Any]) -> None:
    x = Scaled.from_plain(real())
    tensors = [part(x), x.detach()]
    before = values(x, *tensors)
    with pytest.raises(ViewError, match="Write into the inner tensors in the handler"):
        torch._foreach_add_(tensors, 1.0)
    assert values(x, *tensors) == before
    x.mul_(2.0)
    assert values(*tensors)[1] == values(x)[0] == [2.0, 4.0, 8.0]


def test_exchange_beside_a_view_that_is_written_is_an_error() -> None:
    x = Scaled.from_plain(real())
    with pytest.raises(ViewError, match="Write into the inner tensors in the handler"):
        torch._foreach_add_([x[:2], x.as_strided((2,), (1,))], 1.0)


def test_exchange_where_somebody_cannot_follow_is_taken_back() -> None:
    x = Scaled.from_plain(real())
    d: Any = x.detach()
    d.unsqueeze_(0)
    with pytest.raises(ViewError, match="cannot reach every tensor"):
        x.add_(1.0)
    with pytest.raises(ViewError, match="cannot reach every tensor"):
        d.add_(1.0)
    assert values(x, d) == [[1.0, 2.0, 4.0]] * 2
    del d
    x.add_(1.0)
    assert values(x) == [[2.0, 3.0, 5.0]]


def test_two_made_of_one_tensor_are_not_written_at_once() -> None:
    scale = torch.ones(())
    memory = torch.zeros(4)
    one, same, other = (Scaled(memory[n : n + 2], scale.clone()) for n in (0, 1, 2))
    torch._foreach_mul_([one, other], 2.0)
    with pytest.raises(ViewError, match="one after the other"):
        torch._foreach_mul_([one, same], 2.0)
