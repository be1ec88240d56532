"""Wrappers among the arguments of a compiled function that share data, or are written there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from subclass_utils import WrapperTensor

from tests.subclass_utils.wrappers import (
    Halves,
    Measured,
    Requantised,
    RequantisedInParts,
    ScaledOnPlain,
    Unit,
    Versioned,
)

aten = torch.ops.aten
pytestmark = pytest.mark.slow  # compiling takes its time


class Counting(WrapperTensor):
    """Transparent; a handler that writes counts, another puts a new tensor in the place."""

    metadata = ("writes",)
    writes: int = 0
    elem: torch.Tensor


@Counting.table.implements(aten.add_.Tensor)
def _add_and_count(self: Any, other: Any, *, alpha: Any = 1) -> Any:
    self.elem.add_(other, alpha=alpha)
    self.writes += 1
    return self


@Counting.table.implements(aten.mul_.Tensor)
def _exchange_elem(self: Any, other: Any) -> Any:
    self.elem = self.elem * other
    return self


class Rescaled(Requantised):
    """Its handlers exchange the scale, or hand it on to what is no view."""


@Rescaled.table.implements(aten.mul_.Tensor)
def _exchange_scale(self: Any, other: Any) -> Any:
    self.scale = self.scale * other
    return self


@Rescaled.table.implements(aten.neg.default)
def _negate_numbers(self: Any) -> Any:
    return Rescaled(-self.numbers, self.scale)


def made(cls: Any) -> Any:
    plain = torch.arange(9.0).view(3, 3) - 2
    if cls in (Measured, Counting):
        return Measured(plain, Unit.METRE) if cls is Measured else Counting(plain)
    return cls.from_plain(plain)


def numbers_of(tensor: Any) -> torch.Tensor:
    plain: torch.Tensor = tensor.to_plain() if isinstance(tensor, WrapperTensor) else tensor
    return plain.detach().clone()


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    torch.compiler.reset()
    return torch.compile(function, backend="aot_eager")


PAIRS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "detached first": lambda x: (x.detach(), x),
    "detached second": lambda x: (x, x.detach()),
    "data": lambda x: (x.data, x),
    "Parameter": lambda x: (torch.nn.Parameter(x), x),
    "two detached": lambda x: (x.detach(), x.detach()),
    "a row": lambda x: (x[1], x),
    "two rows": lambda x: (x[1], x[0]),
    "a row detached": lambda x: (x[1].detach(), x),
    "transposed": lambda x: (x.t(), x),
    "detached, transposed": lambda x: (x.detach().t(), x),
    "overlapping": lambda x: (x.view(-1)[1:6], x.view(-1)[2:7]),
}
TELLING = ("detached first", "two rows", "a row detached")
CLASSES = (Measured, Requantised, RequantisedInParts, Halves, ScaledOnPlain)
CASES = [
    pytest.param(cls, name, marks=[] if name in TELLING else pytest.mark.long)
    for cls in CLASSES
    for name in PAIRS
]


@pytest.mark.parametrize(("cls", "name"), CASES)
def test_arguments_that_share_data_are_read(cls: Any, name: str) -> None:
    def read(one: Any, other: Any) -> Any:
        return one * 2 + other.sum()

    want = read(*PAIRS[name](made(cls)))
    got = compiled(read)(*PAIRS[name](made(cls)))
    assert type(got) is type(want)
    assert torch.allclose(numbers_of(got), numbers_of(want))


@pytest.mark.parametrize(("cls", "name"), CASES)
def test_write_into_one_of_them_is_right_or_an_error(cls: Any, name: str) -> None:
    def write(one: Any, other: Any) -> Any:
        one.add_(10)
        return other * 2

    x, y = made(cls), made(cls)
    with torch.no_grad():
        want = write(*PAIRS[name](x))
        try:
            got = compiled(write)(*PAIRS[name](y))
        except Exception as error:  # torch's own text, or ours
            said = str(error)
            assert "aliased inputs" in said.lower() or "into its argument" in said
            assert torch.equal(numbers_of(y), numbers_of(made(cls)))
            return
    assert torch.allclose(numbers_of(got), numbers_of(want))
    assert torch.allclose(numbers_of(y), numbers_of(x))


def scaled(numbers: torch.Tensor, scale: torch.Tensor) -> Any:
    return Requantised(numbers.to(torch.int16), scale)


# Two wrappers that were made of one tensor, and whether a write into the first reaches the other.
MADE_OF_ONE: dict[str, tuple[Callable[[torch.Tensor], tuple[Any, Any]], bool]] = {
    "the whole": (lambda a: (Measured(a, Unit.METRE), Measured(a, Unit.METRE)), True),
    "a part": (lambda a: (Measured(a, Unit.METRE), Measured(a[:2], Unit.METRE)), True),
    "apart": (lambda a: (Measured(a[:2], Unit.METRE), Measured(a[2:], Unit.METRE)), False),
    "nested": (lambda a: (Counting(Counting(a, 0), 0), Counting(Counting(a[:2], 0), 0)), True),
    "a scale": (lambda a: (scaled(a[:2], a[2]), scaled(a[:2], a[2])), True),
    "nothing": (lambda a: (scaled(a[:2], a[2]), scaled(a[:2], a[3])), False),
}


@pytest.mark.parametrize("name", MADE_OF_ONE)
def test_write_into_one_of_two_made_of_one_tensor_is_right_or_an_error(name: str) -> None:
    make, share = MADE_OF_ONE[name]

    def write(one: Any, other: Any) -> Any:
        one.zero_()
        return other * 2

    def read(one: Any, other: Any) -> Any:
        return one.sum() + other * 2

    tensor = torch.tensor([4.0, 3.0, 2.0, 1.0])
    assert torch.equal(
        numbers_of(compiled(read)(*make(tensor))), numbers_of(read(*make(tensor.clone())))
    )
    if share:
        with pytest.raises(Exception, match="aliased inputs"):
            compiled(write)(*make(tensor))
        assert tensor.tolist() == [4, 3, 2, 1]
    else:
        want = write(*make(tensor.clone()))
        assert torch.equal(numbers_of(compiled(write)(*make(tensor))), numbers_of(want))


def test_write_into_a_view_that_is_an_argument_says_what_to_do() -> None:
    x = made(Requantised)
    with pytest.raises(Exception, match="Give the function the wrapper and take the view inside"):
        compiled(lambda row: row.add_(1))(x[0])
    assert torch.equal(numbers_of(x), numbers_of(made(Requantised)))


def test_write_into_two_views_of_one_wrapper_loses_none_of_them() -> None:
    def write(one: Any, other: Any) -> None:
        one.add_(10)
        other.add_(20)

    x = made(Requantised)
    with pytest.raises(Exception, match="a view of a Requantised's plain value"):
        compiled(write)(x[0], x[1])


CHANGES: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "metadata by from_plain": (Versioned, lambda x: x.copy_(torch.ones(3, 3))),
    "metadata through a view": (Versioned, lambda x: x[0].fill_(3)),
    "metadata through detach": (Versioned, lambda x: x.detach().add_(1)),
    "metadata by a handler": (Counting, lambda x: x.add_(1)),
    "shape after a write": (Requantised, lambda x: x.add_(1).t_()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_change_of_an_argument_that_torch_would_lose_is_an_error(change: str) -> None:
    cls, function = CHANGES[change]
    with pytest.raises(
        Exception, match=r"gives its argument, a \w+, another shape, other metadata"
    ):
        compiled(function)(made(cls))


@pytest.mark.parametrize("cls", [Measured, Requantised])
def test_data_that_an_argument_is_given_is_right_or_an_error(cls: Any) -> None:
    def double(x: Any) -> Any:
        x.data = x.clone() * 2
        return x + 1

    x, y = made(cls), made(cls)
    want = double(x)
    try:
        got = compiled(double)(y)
    except Exception as error:  # torch 2.14 can do it
        said = str(error)
        assert "gives its argument" in said or "Metadata mutations" in said
        assert torch.equal(numbers_of(y), numbers_of(made(cls)))
        return
    assert torch.allclose(numbers_of(got), numbers_of(want))
    assert torch.allclose(numbers_of(y), numbers_of(x))


@pytest.mark.parametrize("change", ["metadata by from_plain", "metadata by a handler"])
def test_change_of_what_is_no_argument_is_right(change: str) -> None:
    cls, function = CHANGES[change]
    want = function(made(cls).clone())
    got = compiled(lambda x: function(x.clone()))(made(cls))
    assert [getattr(got, name) for name in cls.metadata] == [1]
    assert torch.equal(numbers_of(got), numbers_of(want))


@pytest.mark.parametrize(
    ("cls", "on"), [(Counting, "itself"), (Rescaled, "itself"), (Rescaled, "detach")]
)
def test_inner_tensor_that_a_handler_exchanges_is_written(cls: Any, on: str) -> None:
    x, y = made(cls), made(cls)
    detached = y.detach()
    function = compiled(lambda x: (x.detach() if on == "detach" else x).mul_(3) + 1)
    want = numbers_of(x.mul_(3) + 1)
    assert torch.allclose(numbers_of(function(y)), want)
    assert torch.allclose(numbers_of(y), numbers_of(x))
    if cls is Rescaled:
        assert torch.allclose(numbers_of(detached), numbers_of(x))


@pytest.mark.parametrize("on", ["result", "source", "Parameter of the result"])
def test_inner_tensor_that_another_wrapper_has_too_is_not_written(on: str) -> None:
    function = compiled(lambda x: x.add_(100))
    for _ in range(2):  # compiled in the first call
        source = made(Rescaled)
        result = -source
        before = {each: numbers_of(each) for each in (source, result)}
        written, other = (source, result) if on == "source" else (result, source)
        if on.startswith("Parameter"):
            function(torch.nn.Parameter(written.detach(), requires_grad=False))
        else:
            function(written)
        assert torch.equal(numbers_of(other), before[other])
        assert torch.allclose(numbers_of(written), before[written] + 100, atol=0.02)
