"""Wrappers that share data and are copied together share that of the copy, as tensors do."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from subclass_utils import CopyError, WrapperTensor, flatten_state_dict, unflatten_state_dict

from tests.subclass_utils.wrappers import (
    Halves,
    Measured,
    Requantised,
    RequantisedInParts,
    Scaled,
    Unit,
    Versioned,
)

aten = torch.ops.aten


class VersionedRows(Versioned):
    """Its row has numbers of its own, and a negative the scale."""


@VersionedRows.table.implements(aten.select.int)
def _copied_row(self: Any, dim: Any, index: Any) -> Any:
    row = VersionedRows(self.numbers.select(dim, index).clone(), self.scale)
    row.writes = self.writes
    return row


@VersionedRows.table.implements(aten.neg.default)
def _with_the_same_scale(self: Any) -> Any:
    return VersionedRows(-self.numbers, self.scale)


def made(cls: Any) -> Any:
    plain = torch.arange(12.0).view(4, 3) - 2
    return Measured(plain, Unit.METRE) if cls is Measured else cls.from_plain(plain)


def numbers_of(tensor: Any) -> torch.Tensor:
    plain: torch.Tensor = tensor.to_plain() if isinstance(tensor, WrapperTensor) else tensor
    return plain.detach().clone()


def by_torch(saved: Any) -> Any:
    file = io.BytesIO()
    torch.save(saved, file)
    file.seek(0)
    return torch.load(file)


WAYS: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda saved: pickle.loads(pickle.dumps(saved)),
    "torch.save": by_torch,
}
PARTS: dict[str, Callable[[Any], Any]] = {
    "row": lambda x: x[1],
    "slice": lambda x: x[1:, 1:],
    "transposed": lambda x: x.t(),
    "row of a transposed one": lambda x: x.t()[1],
    "one of several": lambda x: x.split(2)[1],
    "detached": lambda x: x.detach(),
    "detached row": lambda x: x.detach()[2],
    "data": lambda x: x.data,
}
CLASSES = (Measured, Halves, Requantised, RequantisedInParts, VersionedRows)
# Pickle copies the memory of each tensor, so those that have nothing else share nothing.
CASES = [(c, way) for c in CLASSES for way in WAYS if (c, way) != (Measured, "pickle")]


@pytest.mark.parametrize("first", ["whole", "part"])
@pytest.mark.parametrize(("cls", "way"), CASES)
@pytest.mark.parametrize("part", PARTS)
def test_whole_and_part_share_what_the_copies_are_written(
    cls: Any, part: str, way: str, first: str
) -> None:
    x = made(cls)
    y = PARTS[part](x)
    if first == "whole":
        x2, y2 = WAYS[way]([x, y])
    else:
        y2, x2 = WAYS[way]([y, x])
    assert (type(x2), type(y2)) == (type(x), type(y))
    for one, other in ((x, x2), (y, y2)):
        assert (other.size(), other.dtype) == (one.size(), one.dtype)
        assert (other.stride(), other.storage_offset()) == (one.stride(), one.storage_offset())
        assert torch.equal(numbers_of(other), numbers_of(one))
        assert [getattr(other, name) for name in type(one).metadata] == [
            getattr(one, name) for name in type(one).metadata
        ]
    before = numbers_of(x), numbers_of(y)
    tolerance = 0.0 if cls in (Measured, Halves) else 0.02
    plain = before[0].clone()
    of_plain = PARTS[part](plain)
    for written, reference in ((x2, plain), (y2, of_plain)):
        written.mul_(3)
        reference.mul_(3)
        assert torch.allclose(numbers_of(x2), plain, atol=tolerance)
        assert torch.allclose(numbers_of(y2), of_plain, atol=tolerance)
    assert torch.equal(numbers_of(x), before[0])
    assert torch.equal(numbers_of(y), before[1])


@pytest.mark.parametrize(("cls", "way"), CASES)
def test_parts_that_are_copied_without_the_whole_share_their_data(cls: Any, way: str) -> None:
    x = made(cls)
    one, other = WAYS[way]([x[:3], x[1:]])
    one.fill_(7)
    assert torch.allclose(numbers_of(other)[:2], torch.full((2, 3), 7.0), atol=0.01)
    assert torch.equal(numbers_of(x), numbers_of(made(cls)))


@pytest.mark.parametrize("way", WAYS)
def test_part_of_a_computed_tensor_is_copied(way: str) -> None:
    x = made(RequantisedInParts).requires_grad_().clone()
    part, again = WAYS[way]([x.detach()[1:], x.detach()])
    assert type(part) is RequantisedInParts
    part.fill_(7)
    assert torch.allclose(numbers_of(again)[1:], torch.full((3, 3), 7.0), atol=0.01)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("cls", [Halves, RequantisedInParts])
def test_part_whose_shape_was_changed_is_copied_alone(cls: Any, way: str) -> None:
    x = made(cls)
    part = x.t()
    part.unsqueeze_(0)
    x2, part2 = WAYS[way]([x, part])
    assert part2.size() == (1, 3, 4)
    assert torch.equal(numbers_of(part2), numbers_of(part))
    x2.mul_(3)
    assert torch.equal(numbers_of(part2), numbers_of(part))


@pytest.mark.parametrize("cls", [Measured, Requantised, VersionedRows])
def test_deep_copied_parameter_shares_its_data_with_nobody(cls: Any) -> None:
    for make in (torch.clone, lambda plain: cls.from_plain(plain)):
        parameter = torch.nn.Parameter(make(torch.ones(2)))
        for order in (1, -1):
            copies = copy.deepcopy([parameter, parameter.detach()][::order])[::order]
            with torch.no_grad():
                copies[0].mul_(5)
            assert torch.allclose(numbers_of(copies[1]), torch.ones(2), atol=0.01)
            assert torch.allclose(numbers_of(copies[0]), torch.full((2,), 5.0), atol=0.01)


def test_deep_copied_parameters_share_an_inner_tensor_that_is_one_object() -> None:
    scale = torch.tensor(0.5)
    numbers = torch.ones(2, dtype=torch.int8)
    parameters: list[Any] = [torch.nn.Parameter(Scaled(numbers.clone(), scale)) for _ in range(2)]
    parameters[1].scale = parameters[0].scale
    first, second = copy.deepcopy(parameters)
    assert first.scale is second.scale is not parameters[0].scale


@pytest.mark.parametrize("way", ["pickle", "torch.save"])
def test_entries_of_a_saved_state_dict_share_what_tied_parameters_do(way: str) -> None:
    module = torch.nn.Module()
    module.one = module.other = torch.nn.Parameter(made(VersionedRows))
    state = WAYS[way](module.state_dict())
    state["one"].mul_(3)
    assert torch.equal(numbers_of(state["other"]), numbers_of(state["one"]))
    assert state["other"].writes == state["one"].writes == 1


def by_flat_state_dict(wrappers: Any) -> Any:
    tensors, text = flatten_state_dict({str(key): each for key, each in enumerate(wrappers)})
    return [*unflatten_state_dict(tensors, text).values()]


@pytest.mark.parametrize("way", [*WAYS, "flatten_state_dict"])
@pytest.mark.parametrize("written", [0, 1])
def test_copies_keep_apart_what_a_handler_handed_on(way: str, written: int) -> None:
    x = made(VersionedRows)
    copies = {**WAYS, "flatten_state_dict": by_flat_state_dict}[way]([x, -x])
    before = numbers_of(copies[1 - written])
    copies[written].add_(100)
    assert torch.equal(numbers_of(copies[1 - written]), before)


def test_step_that_makes_no_view_is_not_loaded() -> None:
    x = made(RequantisedInParts)
    rebuild, (cls, state) = x[1:].__reduce_ex__(2)
    state["family"].append(x.clone())
    for name, said in (("aten::add_.Tensor", "makes no view"), ("aten::no.such", "aten::no.such")):
        state["steps"][0][0] = name
        with pytest.raises(CopyError, match=said):
            rebuild(cls, state)
    state["family"].clear()
