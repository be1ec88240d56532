"""Metadata that can be changed is each tensor's own, and what cannot is the same object."""

from __future__ import annotations

import copy
import dataclasses
import enum
from collections.abc import Callable
from typing import Any

import pytest
import torch
from subclass_utils import WrapperTensor

from tests.subclass_utils.wrappers import Origin, Unit

aten = torch.ops.aten


class Tagged(WrapperTensor):
    """Transparent."""

    metadata = ("tags",)
    elem: torch.Tensor
    tags: Any = ()


class TaggedHalf(WrapperTensor):
    """Goes by its plain value; a view's handler hands nothing on, a writing one adds a tag."""

    inner_tensors = ("halves",)
    metadata = ("tags",)
    without_handler = "to_plain"
    halves: torch.Tensor
    tags: Any = ()

    @staticmethod
    def __new__(cls: Any, halves: torch.Tensor, tags: Any = ()) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, halves.size(), dtype=halves.dtype)

    def to_plain(self) -> torch.Tensor:
        return self.halves * 2

    @classmethod
    def from_plain(cls, plain: torch.Tensor, like: Any = None) -> Any:
        return cls(plain / 2, () if like is None else like.tags)


@TaggedHalf.table.implements(aten.mul_.Tensor)
def _mul_(self: Any, other: Any) -> Any:
    self.halves.mul_(other)
    self.tags.append("multiplied")
    return self


@dataclasses.dataclass(frozen=True)
class Holding:
    values: Any
    name: str = "x"


@dataclasses.dataclass(frozen=True, slots=True)
class HoldingInSlots:
    values: Any


class Kind(enum.Enum):
    ONE = (1, [2])


MUTABLE: dict[str, Callable[[], Any]] = {
    "list": lambda: [1, 2],
    "list of lists": lambda: [[1], [2]],
    "set": lambda: {1, 2},
    "dict": lambda: {"a": [1]},
    "tuple": lambda: (1, [2]),
    "dataclass": lambda: Holding([1]),
    "dataclass in slots": lambda: HoldingInSlots(({"a": 1},)),
}
SAME: tuple[Any, ...] = (
    None,
    1,
    "text",
    (1, (2, "x")),
    frozenset({1}),
    torch.float32,
    torch.Size([2]),
    Unit.METRE,
    Kind.ONE,
    Origin("here", (1, 2)),
    Holding((1,)),
)
CARRYING: dict[str, Callable[[Any], Any]] = {
    "add": lambda x: x + x,
    "add number": lambda x: x + 1,
    "view": lambda x: x.view(-1),
    "split": lambda x: x.split(1)[0],
    "foreach": lambda x: torch._foreach_neg([x])[0],
    "several": lambda x: x.sort()[0],
    "stack": lambda x: torch.stack([x, x]),
    "clone": lambda x: x.clone(),
    "contiguous clone": lambda x: x.clone(memory_format=torch.contiguous_format),
    "detach": lambda x: x.detach(),
    "to": lambda x: x.to("cpu", copy=True),
    "data": lambda x: x.data,
    "Parameter": lambda x: torch.nn.Parameter(x),
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
}
OF_ANY_CLASS = (
    "clone",
    "contiguous clone",
    "detach",
    "to",
    "data",
    "Parameter",
    "deepcopy",
    "copy",
)
WAYS = [
    *((Tagged, way) for way in CARRYING),
    *((TaggedHalf, way) for way in OF_ANY_CLASS),
]


def parts_of(value: Any) -> list[Any]:
    """List the parts of a value, and itself, that can be changed."""
    if dataclasses.is_dataclass(value):
        return parts_of([getattr(value, each.name) for each in dataclasses.fields(value)])[1:]
    if isinstance(value, dict):
        return [value, *(part for item in value.values() for part in parts_of(item))]
    if isinstance(value, list | tuple):
        found = [part for item in value for part in parts_of(item)]
        return [value, *found] if isinstance(value, list) else found
    return [value] if isinstance(value, set) else []


@pytest.mark.parametrize(("cls", "way"), WAYS)
def test_mutable_metadata_is_each_tensors_own(cls: Any, way: str) -> None:
    for make in MUTABLE.values():
        x = cls(torch.ones(2, 3), make())
        result = CARRYING[way](x)
        assert type(result.tags) is type(x.tags)
        assert result.tags == x.tags == make()
        own = {id(part) for part in parts_of(x.tags)}
        assert own
        assert not own & {id(part) for part in parts_of(result.tags)}


@pytest.mark.parametrize("way", [way for way in CARRYING if "copy" not in way])
def test_metadata_that_cannot_be_changed_is_the_same_object(way: str) -> None:
    for value in SAME:
        x = Tagged(torch.ones(2, 3), value)
        for _ in range(2):
            assert CARRYING[way](x).tags is value


def test_default_of_a_class_is_not_changed_by_a_result() -> None:
    class Listed(WrapperTensor):
        metadata = ("tags",)
        tags: Any = []  # noqa: RUF012 - what is tested

    result: Any = Listed(torch.ones(2)) + 1
    result.tags.append(1)
    assert Listed.tags == []


def test_data_of_another_tensor_takes_a_copy_of_its_metadata() -> None:
    for cls in (Tagged, TaggedHalf):
        x, other = cls(torch.ones(2), [1]), cls(torch.zeros(2), [2])
        x.data = other
        x.tags.append(3)
        assert (x.tags, other.tags) == ([2, 3], [2])


def test_many_values_are_carried_as_they_are() -> None:
    for number in range(100):
        value = (number, "x")
        x: Any = Tagged(torch.ones(2), value)
        assert (x + 1).tags is (x * 2).tags is value


def test_metadata_that_a_handler_changes_is_seen_by_what_shares_the_data() -> None:
    x: Any = TaggedHalf(torch.full((2,), 0.5), [])
    detached = x.detach()
    x.mul_(2)
    assert x.tags == detached.tags == ["multiplied"]
    assert x.tags is not detached.tags
    assert torch.equal(detached.to_plain(), torch.full((2,), 2.0))


@pytest.mark.slow
def test_results_of_a_compiled_function_have_metadata_of_their_own() -> None:
    compiled = torch.compile(lambda x: (x + 1, x * 2), backend="aot_eager")
    x = Tagged(torch.ones(2), [1])
    results = [*compiled(x), *compiled(x)]
    for result in results:
        result.tags.append(2)
    assert [x.tags, *(result.tags for result in results)] == [[1], *[[1, 2]] * 4]
