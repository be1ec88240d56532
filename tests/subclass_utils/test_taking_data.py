"""What `.data =` and `set_` take over is shared from then on, as with plain tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from dispatch_core import keep_composite
from subclass_utils import ResizeError, ViewError, WrapperTensor
from torch import nn

from tests.subclass_utils.test_shared_data import NonZero, Numbers, NumbersInParts, same
from tests.subclass_utils.wrappers import ScaledOnPlain, Strict, metre

CLASSES = [Numbers, NumbersInParts, NonZero]


def assign(x: Any, y: Any) -> None:
    x.data = y


TAKERS: dict[str, Callable[[Any, Any], Any]] = {
    "data": assign,
    "set_": lambda x, y: x.set_(y),
    "set_ of a place": lambda x, y: x.set_(y, 0, y.size(), y.stride()),
}
SOURCES: dict[str, Callable[[Any], Any]] = {
    "whole": lambda y: y,
    "detach": lambda y: y.detach(),
    "data": lambda y: y.data,
    "t": lambda y: y.t(),
    "flat": lambda y: y.view(-1),
    "column": lambda y: y[:, 1],
    "rows": lambda y: y[1:],
}


def real() -> torch.Tensor:
    return torch.tensor([[1.0, 0.0, -2.0], [3.0, 0.5, 0.0]])


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("take", TAKERS)
@pytest.mark.parametrize("cls", CLASSES)
def test_both_see_every_write(cls: Any, take: str, source: str) -> None:
    if take == "set_ of a place" and source in ("t", "column"):
        for y in (cls.from_plain(real()), real()):
            with pytest.raises(RuntimeError, match="must be contiguous"):
                y.detach().set_(SOURCES[source](y), 0, (2,), (1,))
        return
    outcomes = []
    for make in (cls.from_plain, torch.clone):
        x, y = make(torch.ones(2, 2)), make(real())
        before = x.detach()
        given = SOURCES[source](y)
        TAKERS[take](x, given)
        tensors = [x, y, given, x.detach(), before]
        for written in (0, 1, 2, 3):
            tensors[written].add_(100 * written + 10)
            tensors.append(tensors[written].clone())
        before.mul_(3)
        y.sub_(2)
        outcomes.append(tensors)
    for got, wanted in zip(*outcomes, strict=True):
        assert same(got, wanted)
        assert got.size() == wanted.size()


@pytest.mark.parametrize("cls", CLASSES)
def test_one_call_writes_both(cls: Any) -> None:
    x, y = cls.from_plain(real()), cls.from_plain(real())
    x.data = y
    torch._foreach_add_([x, y], 1.0)
    assert same(x, real() + 2)
    assert same(y, real() + 2)


@pytest.mark.parametrize("take", TAKERS)
@pytest.mark.parametrize("cls", CLASSES)
def test_those_left_behind_go_on_sharing(cls: Any, take: str) -> None:
    x = cls.from_plain(real())
    one, other, t = x.detach(), x.data, x.t()
    TAKERS[take](x, cls.from_plain(torch.ones(4)))
    one.add_(10)
    other.mul_(100)
    assert same(x, torch.ones(4))
    assert same(one, (real() + 10) * 100)
    assert same(other, (real() + 10) * 100)
    if isinstance(t, cls):
        t.sub_(7)
        assert same(one, (real() + 10) * 100 - 7)


@pytest.mark.parametrize("cls", CLASSES)
def test_own_data_taken_again_changes_nothing(cls: Any) -> None:
    x = nn.Parameter(cls.from_plain(real()))
    entry: Any = x.detach()
    for data in (lambda: x, lambda: x.data, lambda: x.detach(), lambda: entry):
        x.data = data()
    x.data.add_(10)
    assert same(entry, real() + 10)
    x.data = x.data.t()
    x.data.mul_(3)
    entry.add_(1)
    assert same(x, (real() + 10).t() * 3 + 1)
    assert same(entry, (real() + 10) * 3 + 1)


def test_chain_of_takers() -> None:
    x, y, z = (Numbers.from_plain(torch.full((2,), n)) for n in (1.0, 2.0, 3.0))
    y.data = z
    x.data = y
    for n, each in enumerate((x, y, z)):
        each.add_(100 * n + 1)
    assert all(same(each, torch.full((2,), 306.0)) for each in (x, y, z))
    y.data = Numbers.from_plain(torch.zeros(3))
    z.mul_(2)
    assert same(x, torch.full((2,), 612.0))
    assert same(y, torch.zeros(3))


def test_what_is_lent_is_not_written_by_the_taker() -> None:
    class Negatable(NumbersInParts):
        pass

    @Negatable.table.implements(torch.ops.aten.neg.default)
    def neg(self: Any) -> Any:
        return Negatable(self.numbers, -self.scale)

    x, y = Negatable.from_plain(real()), Negatable.from_plain(real())
    minus = -y
    x.data = y
    x.add_(10)
    assert same(y, real() + 10)
    assert same(minus, -real())


def test_what_came_from_data_is_not_set() -> None:
    x, y = Numbers.from_plain(real()), Numbers.from_plain(real())
    with pytest.raises(ResizeError, match=r"came from `.data`"):
        x.data.set_(y)


def test_view_that_cannot_be_followed_is_an_error() -> None:
    x, y = Numbers.from_plain(torch.ones(2)), Numbers.from_plain(real())
    with pytest.raises(ViewError, match=r"Give it a clone\(\)"):
        x.data = y.view(torch.int32)
    assert same(x, torch.ones(2))


def test_plain_tensor_does_not_take_what_would_die() -> None:
    y = Numbers.from_plain(real())
    for source in (y, y.view(-1)):
        with pytest.raises(ViewError, match="cannot share the data of"):
            torch.ones(2).set_(source)
        with pytest.raises(ViewError, match="cannot share the data of"):
            torch.ones(2).set_(source, 0, (2,), (1,))


def test_set_to_a_place_reads_no_memory_that_is_not_there() -> None:
    """It was a crash."""

    class Other(WrapperTensor):
        elem: torch.Tensor

    x, y = Other(torch.ones(1)), Other(torch.arange(6.0))
    takers: list[Any] = [torch.zeros(1), x]
    for tensor in takers:
        tensor.set_(y, 1, (2, 2), (2, 1))
        tensor.add_(10)
    assert takers[0].tolist() == x.elem.tolist() == [[21.0, 22.0], [23.0, 24.0]]
    assert y.elem.tolist() == [0.0, 21.0, 22.0, 23.0, 24.0, 5.0]
    takers[1].set_(y, 4, (2,))
    assert x.elem.tolist() == [24.0, 5.0]


@pytest.mark.parametrize("cls", CLASSES)
def test_place_in_a_wrapper_whose_operator_was_kept(cls: Any) -> None:
    op = torch.ops.aten.set_.source_Tensor_storage_offset
    cls.from_plain(torch.ones(1))
    for _ in range(2):
        x, y = cls.from_plain(torch.ones(2)), cls.from_plain(torch.tensor([1.0, 2.0, 3.0]))
        x.set_(y, 1, (2,), (1,))
        assert torch.allclose(x.to_plain(), torch.tensor([2.0, 3.0]), atol=0.05)
        with keep_composite(op):  # torch goes on calling its kernel when it is gone
            pass


@pytest.mark.parametrize(
    "take", [lambda x: x.set_(), lambda x: x.set_(metre(3)), lambda x: x.set_(metre(2))]
)
def test_set_lets_go_of_the_memory_that_was_shared(take: Any) -> None:
    x = metre(4)
    view = x[1:]
    assert torch._C._is_alias_of(x, view)  # type: ignore[attr-defined]
    take(view)
    assert not torch._C._is_alias_of(x, view)  # type: ignore[attr-defined]
    assert not torch._C._is_alias_of(x.elem, view.elem)  # type: ignore[attr-defined]


@pytest.mark.parametrize("x", [metre(3), ScaledOnPlain.from_plain(torch.ones(3))])
@pytest.mark.parametrize("data", [3, None, "data"])
def test_data_that_is_no_tensor_is_refused_as_torch_does(x: Any, data: Any) -> None:
    with pytest.raises(TypeError, match="Variable data has to be a tensor"):
        x.data = data
    with pytest.raises(TypeError, match="Variable data has to be a tensor"):
        torch.ones(3).data = data


@pytest.mark.parametrize("inner", [metre(4), Numbers.from_plain(torch.ones(4))])
@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.resize_(2),
        lambda x: x.unsqueeze_(0),
        lambda x: x.set_(Strict(x.elem.detach().clone())),
    ],
)
def test_wrapper_of_a_wrapper_changes_its_shape_after_it_took_data(inner: Any, change: Any) -> None:
    x: Any = Strict(inner.clone())
    y: Any = Strict(inner.clone())
    x.data = y
    y.add_(1)
    assert x.elem.to_plain().tolist() == y.elem.to_plain().tolist() == [2.0] * 4
    del y
    change(x)
    assert x.size() == x.elem.size() == x.elem.to_plain().size()
    with pytest.raises(ResizeError):
        x.data.resize_(1)
