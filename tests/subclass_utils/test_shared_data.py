"""What shares the data of a wrapper follows when a write changes its metadata or its sizes."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from subclass_utils import ViewError, WrapperTensor
from torch import nn
from torch.optim.swa_utils import AveragedModel

from tests.subclass_utils.wrappers import ComplexPair

aten = torch.ops.aten


class Numbers(WrapperTensor):
    """Whole numbers with a scale that is a number: a write may change the metadata."""

    numbers: torch.Tensor
    scale: float

    inner_tensors = ("numbers",)
    metadata = ("scale",)
    without_handler = "to_plain"

    @staticmethod
    def __new__(cls: type[Any], numbers: torch.Tensor, scale: float) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            cls,
            numbers.size(),
            strides=numbers.stride(),
            storage_offset=numbers.storage_offset(),
            dtype=torch.float32,
        )

    def to_plain(self) -> torch.Tensor:
        return self.numbers * self.scale

    @classmethod
    def from_plain(cls, plain: torch.Tensor, like: Any = None) -> Any:
        scale = float(plain.abs().amax()) / 2**14 if plain.numel() else 0.0
        return cls((plain / (scale or 1.0)).round().to(torch.int16), scale or 1.0)


class NumbersInParts(Numbers):
    """The same, with a handler for a view that shares memory, and for one that does not."""


@NumbersInParts.table.implements(aten.t.default)
def _t(self: Any) -> Any:
    return NumbersInParts(self.numbers.t(), self.scale)


@NumbersInParts.table.implements(aten.slice.Tensor)
def _slice(self: Any, dim: Any = 0, start: Any = None, end: Any = None, step: Any = 1) -> Any:
    part = aten.slice.Tensor(self.numbers, dim, start, end, step)
    return NumbersInParts(-part, -self.scale)


class NonZero(WrapperTensor):
    """The values that are not zero, and where they are: a write may change the sizes."""

    values_: torch.Tensor
    places: torch.Tensor
    shape_: tuple[int, ...]

    inner_tensors = ("values_", "places")
    metadata = ("shape_",)
    without_handler = "to_plain"

    @staticmethod
    def __new__(
        cls: type[Any], values: torch.Tensor, places: torch.Tensor, shape: tuple[int, ...]
    ) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=values.dtype)

    def to_plain(self) -> torch.Tensor:
        flat = self.values_.new_zeros(self.numel()).index_put_((self.places,), self.values_)
        return flat.view(self.shape_)

    @classmethod
    def from_plain(cls, plain: torch.Tensor, like: Any = None) -> Any:
        flat = plain.reshape(-1)
        places = flat.nonzero().flatten()
        return cls(flat[places], places, tuple(plain.size()))


CLASSES = [Numbers, NumbersInParts, NonZero]


def real() -> torch.Tensor:
    return torch.tensor([[1.0, 0.0, -2.0], [3.0, 0.5, 0.0]])


def value_of(x: Any) -> torch.Tensor:
    plain: torch.Tensor = x.to_plain() if isinstance(x, WrapperTensor) else x
    return plain.detach()


def same(got: Any, wanted: Any) -> bool:
    return torch.allclose(value_of(got), value_of(wanted), rtol=1e-3, atol=0.1)


ALIASES: dict[str, Callable[[Any], Any]] = {
    "detach": lambda x: x.detach(),
    "detach of detach": lambda x: x.detach().detach(),
    "data": lambda x: x.data,
    "data of detach": lambda x: x.detach().data,
    "Parameter": lambda x: nn.Parameter(x),
    "data of Parameter": lambda x: nn.Parameter(x).data,
    "alias": lambda x: aten.alias.default(x),
    "t": lambda x: x.t(),
    "t of detach": lambda x: x.detach().t(),
    "slice": lambda x: x[1:],
    "slice of t": lambda x: x.t()[1:],
    "t of slice": lambda x: x[:1].t(),
    "row": lambda x: x[1],
}


@pytest.mark.parametrize("name", ALIASES)
@pytest.mark.parametrize("cls", CLASSES)
def test_write_reaches_every_alias(cls: Any, name: str) -> None:
    for writer in ("whole", "alias", "other"):
        tensors = cls.from_plain(real()), real()
        for x in tensors:
            everything = [x, ALIASES[name](x), x.detach(), x.t(), x[:, 1:], x.data]
            with torch.no_grad():
                written = {"whole": x, "alias": everything[1], "other": everything[3]}[writer]
                written.add_(100)
                everything[2][0] *= 5
            x.__dict__["everything"] = everything
        assert all(map(same, *(x.__dict__["everything"] for x in tensors)))
        versions = [[each._version for each in x.__dict__["everything"][:3]] for x in tensors]
        assert versions[0] == versions[1]


@pytest.mark.parametrize("cls", CLASSES)
def test_state_dict_is_written_and_follows(cls: Any) -> None:
    layer: Any = nn.Linear(3, 2, bias=False)
    layer.weight = nn.Parameter(cls.from_plain(real()))
    state = layer.state_dict()
    state["weight"].copy_(real() * 50)
    assert same(layer.weight, real() * 50)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    layer.weight.grad = torch.full((2, 3), -100.0)
    optimizer.step()
    assert same(layer.weight, real() * 50 + 100)
    assert same(state["weight"], real() * 50 + 100)
    layer.load_state_dict({"weight": real()})
    assert same(state["weight"], real())
    nn.utils.vector_to_parameters(torch.arange(6.0) * 7, layer.parameters())
    assert same(layer.weight, torch.arange(6.0).view(2, 3) * 7)


@pytest.mark.parametrize("cls", CLASSES)
def test_averaged_model(cls: Any) -> None:
    averages = []
    for make in (cls.from_plain, lambda plain: plain):
        layer: Any = nn.Linear(3, 2, bias=False)
        layer.weight = nn.Parameter(make(real()))
        averaged = AveragedModel(layer)
        for factor in (10, -300):
            with torch.no_grad():
                layer.weight.mul_(factor)
            averaged.update_parameters(layer)
        averages.append(next(averaged.parameters()))
    assert same(*averages)


@pytest.mark.parametrize("cls", CLASSES)
def test_module_with_aliases_is_converted(cls: Any) -> None:
    layer: Any = nn.Linear(3, 2, bias=False)
    layer.weight = nn.Parameter(cls.from_plain(real()))
    state = layer.state_dict()
    moved = copy.deepcopy(layer).to("cpu").requires_grad_(False)
    layer.weight.data.mul_(10)
    assert same(state["weight"], real() * 10)
    assert same(moved.weight, real())
    other = nn.Parameter(cls.from_plain(real()))
    torch.utils.swap_tensors(moved.weight, other)
    assert same(moved.weight, real())


def test_nobody_is_kept_alive_by_what_shares_its_data() -> None:
    x = Numbers.from_plain(real())
    detached = x.detach()
    watched = weakref.ref(detached.numbers)
    del detached
    assert watched() is None
    watched = weakref.ref(x.numbers)
    gc.disable()
    try:
        view = x.t()
        del x, view
        assert watched() is None
    finally:
        gc.enable()


def test_attributes_that_cannot_be_exchanged_are_an_error() -> None:
    class InSlots(Numbers):
        __slots__ = ("numbers",)

    x = InSlots.from_plain(real())
    x.detach().copy_(x)
    x.mul_(10)
    detached = x.detach()
    with pytest.raises(ViewError, match="keeps its attributes where they cannot be exchanged"):
        x.mul_(10)
    assert same(detached, real() * 10)
    assert same(x, real() * 10)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        (torch.optim.AdamW, {}),
        (torch.optim.AdamW, {"foreach": True, "amsgrad": True}),
        (torch.optim.AdamW, {"foreach": False}),
        (torch.optim.SGD, {"momentum": 0.9}),
        (torch.optim.RMSprop, {"centered": True}),
        (torch.optim.Adadelta, {}),
    ],
)
def test_complex_parameter_is_stepped_through_its_real_view(optimizer: Any, options: Any) -> None:
    results = []
    for make in (ComplexPair.from_plain, lambda plain: plain):
        parameter = nn.Parameter(make(torch.tensor([1 + 2j, -3 + 1j])))
        stepper = optimizer([parameter], lr=0.1, **options)
        for _ in range(3):
            stepper.zero_grad()
            ((parameter * parameter.conj()).real.sum() + parameter.real.sum()).backward()
            stepper.step()
        results.append(value_of(parameter))
    torch.testing.assert_close(*results)
