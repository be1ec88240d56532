"""Results of specialized functions: made again, or what was there before itself."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from guards import specialize
from torch import nn

ONE = torch.ones(2)


class Pair(NamedTuple):
    first: torch.Tensor
    second: Any


Point = collections.namedtuple("Point", "x y")  # both kinds are to be had


class Grown(Pair):
    def __new__(cls, *parts: Any) -> Grown:
        return super().__new__(cls, *(part * 2 for part in parts))


@dataclasses.dataclass
class Output:
    loss: torch.Tensor
    count: int = 3

    def __post_init__(self) -> None:
        self.extra = [self.loss]


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    loss: torch.Tensor
    name: str


class Mapping(collections.OrderedDict):  # type: ignore[type-arg]
    """Answers with lies, as long as it is asked by Python."""

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key) if key == "real" else 7

    def __iter__(self) -> Any:
        return iter(["lie"])


class Half:
    __slots__ = ("missing", "there")


def pair(x: torch.Tensor) -> Any:
    return Pair(x + 1, [x * 2, 3])


def grown(x: torch.Tensor) -> Any:
    return Grown(x, 2)


def point(x: torch.Tensor) -> Any:
    return Point(Point(x + 1, 1), "y")


def output(x: torch.Tensor) -> Any:
    return Output(x.sum())


def slotted(x: torch.Tensor) -> Any:
    return [Slotted(x * 2, "a"), Slotted(x * 3, "b")]


def ordered(x: torch.Tensor) -> Any:
    result = collections.OrderedDict(b=x + 1)
    result["a"] = x * 2
    result.move_to_end("b")
    return result


def mapping(x: torch.Tensor) -> Any:
    result: Any = Mapping(real=x + 1)
    result.mark = 4
    return result


def by_default(x: torch.Tensor) -> Any:
    return collections.defaultdict(list, {"a": [x + 1]})


def half(x: torch.Tensor) -> Any:
    result: Any = Half()
    result.there = x * 2
    return result


def numbers(x: torch.Tensor) -> Any:
    return {1, 2}, {"kind": torch.float32, "cls": Pair, "of": int}


RESULTS = [
    pair, grown, point, output, slotted, ordered, mapping, by_default, half, numbers
]  # fmt: skip


def looked_into(value: Any) -> Any:
    """Give all that an object holds, without asking it."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if value is None or isinstance(value, int | str | type | torch.dtype):
        return value
    found: list[Any] = [type(value)]
    for root in (collections.OrderedDict, dict):
        if isinstance(value, root):
            keys = list(root.__iter__(value))
            found += [(key, looked_into(dict.__getitem__(value, key))) for key in keys]
            break
    if isinstance(value, collections.defaultdict):
        found.append(value.default_factory)
    if isinstance(value, list | tuple | set):
        found += map(looked_into, value)
    for name in getattr(type(value), "__slots__", ()):
        found.append(looked_into(getattr(value, name, None)))
    own = getattr(value, "__dict__", {})
    return [*found, {name: looked_into(part) for name, part in own.items()}]


@pytest.mark.parametrize("function", RESULTS, ids=lambda f: f.__name__)
def test_result_is_made_again(function: Callable[..., Any]) -> None:
    special = specialize(function)
    results = []
    for number in range(1, 4):
        x = ONE * number
        results.append(special(x))
        assert looked_into(results[-1]) == looked_into(function(x))
    assert special.refusals == []
    assert special.stats.hits == 2
    assert len({id(result) for result in results}) == 3


class Kept:
    def __init__(self) -> None:
        self.values = [1]


KEPT = Kept()


def test_object_that_was_there_before_is_given_itself() -> None:
    def function(x: torch.Tensor, given: dict[str, Any]) -> Any:
        return KEPT, [given, KEPT.values, helper], x

    special = specialize(function)
    for _ in range(3):
        given = {"a": torch.ones(1)}
        first, (second, third, fourth), x = special(ONE, given)
        assert first is KEPT
        assert second is given
        assert third is KEPT.values
        assert fourth is helper
        assert x is ONE
    assert (special.stats.hits, special.refusals) == (2, [])


def helper(x: torch.Tensor) -> torch.Tensor:
    return x * 5


def test_class_that_is_made_within_is_another_each_time() -> None:
    def function(x: torch.Tensor) -> Any:
        class Local(tuple):  # type: ignore[type-arg]
            __slots__ = ()

        return Local((x,))

    special = specialize(function)
    assert type(special(ONE)) is not type(special(ONE))
    assert special.stats.hits == 0
    assert special.refusals[0].startswith("it gives an object of type ")


def test_module_that_is_made_within_is_no_record() -> None:
    def function(x: torch.Tensor) -> Any:
        return nn.ReLU(), x

    special = specialize(function)
    assert special(ONE)[0] is not special(ONE)[0]
    assert special.stats.hits == 0


def test_object_that_is_there_twice_in_a_result() -> None:
    def function(x: torch.Tensor) -> Any:
        made = Pair(x, 1)
        return made, made

    special = specialize(function)
    for _ in range(2):
        first, second = special(ONE)
        assert first is second


@pytest.mark.parametrize(
    "given",
    [{"sizes": [1]}, [[1], 2], ([1], 2), {"a": {"b": {1}}}, ({"a": [1]},)],
    ids=["dict", "list", "tuple", "set in dicts", "in a dict in a tuple"],
)
def test_container_within_another_one_is_given_itself(given: Any) -> None:
    def part(x: torch.Tensor, given: Any) -> Any:
        return x * 2, next(iter(given.values() if isinstance(given, dict) else given))

    special, x = specialize(part), torch.ones(1)
    for _ in range(3):
        _, wanted = part(x, given)
        _, got = special(x, given)
        assert got is wanted
    assert "within another container" in special.refusals[0]
