"""Sets that a call makes have an order of their own, which depends on addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from guards import specialize

ONE = torch.ones(2)


def test_sets_of_tensors_that_the_call_makes() -> None:
    special = specialize(lambda *tensors: [*set(tensors)])
    special(ONE, ONE + 1)
    assert special.refusals == [
        "<lambda> goes through a set that it makes, whose order may depend on addresses: sort it, "
        "or take dict.fromkeys(…) for it",
    ]


class Factor:
    def __init__(self, gain: int) -> None:
        self.gain = gain

    def get_gain(self) -> int:
        return self.gain


class Ordered(Factor):
    def __lt__(self, other: Any) -> bool:
        return False


def members(objects: Any) -> Any:
    return set(objects)


def follow(x: torch.Tensor, objects: Any) -> torch.Tensor:
    for one in objects:
        x = x * 2 + one.gain
    return x


def goes_through(x: torch.Tensor, objects: Any) -> Any:
    return follow(x, set(objects))


def goes_through_what_it_is_given(x: torch.Tensor, objects: Any) -> Any:
    return follow(x, members(objects))


def goes_through_a_comprehension(x: torch.Tensor, objects: Any) -> Any:
    return follow(x, [*{one for one in objects}])  # noqa: C416  # what is tested


def goes_through_what_it_adds(x: torch.Tensor, objects: Any) -> Any:
    found = {1}
    found.clear()
    for one in objects:
        found.add(one)
    return follow(x, found)


def goes_through_what_others_add(x: torch.Tensor, objects: Any) -> Any:
    found: Any = set()
    for one in objects:
        add(found, one)
    return follow(x, found)


def add(found: Any, one: Any) -> None:
    found.add(one)


def goes_through_keys(x: torch.Tensor, objects: Any) -> Any:
    return follow(x, dict.fromkeys(objects).keys() | dict.fromkeys(objects[:1]).keys())


def takes_one(x: torch.Tensor, objects: Any) -> Any:
    return follow(x, [{*objects}.pop()])


def sorts(x: torch.Tensor, objects: Any) -> Any:
    return follow(x, sorted(set(objects)))


def maps(x: torch.Tensor, objects: Any) -> Any:
    return follow(x, next(map(set, [objects])))


@pytest.mark.parametrize(
    "function",
    [
        goes_through,
        goes_through_what_it_is_given,
        goes_through_a_comprehension,
        goes_through_what_it_adds,
        goes_through_what_others_add,
        goes_through_keys,
        takes_one,
        sorts,
        maps,
    ],
)
def test_order_of_a_set_of_objects_that_the_call_makes(function: Callable[..., Any]) -> None:
    special = specialize(function)
    kept = []  # so that each list has addresses of its own
    for count in (3, 3, 5):
        objects = [Ordered(n) for n in range(9)][:: (-1) ** count]
        kept.append(objects)
        assert torch.equal(special(ONE, objects), function(ONE, objects))
    assert "a set that it makes, whose order may depend on addresses" in special.refusals[0]


def asks_for_members(x: torch.Tensor, objects: Any) -> Any:
    seen: set[Any] = set()
    for one in objects:
        if one not in seen:
            seen.add(one)
            x = x + one.gain
    return x * len(seen)


def compares(x: torch.Tensor, objects: Any) -> Any:
    extra = set(objects) - {objects[0]}
    if extra:
        x = x * 2
    return x * len(extra | {objects[0]}) if objects[1] in extra else x


def asks_for_numbers(x: torch.Tensor, objects: Any) -> Any:
    for number in {8, 0, 3}:
        x = x * 2 + number
    return x * sum(sorted(set(map(Factor.get_gain, objects))))  # what is tested


def asks_for_classes(x: torch.Tensor, objects: Any) -> Any:
    return x * (2 if isinstance(objects, set | frozenset) or isinstance(x, (set, list)) else 3)


def finds_another_order(x: torch.Tensor, objects: Any) -> Any:
    return follow(x, dict.fromkeys(objects))


@pytest.mark.parametrize(
    "function",
    [asks_for_members, compares, asks_for_numbers, asks_for_classes, finds_another_order],
)
def test_set_that_is_only_asked_for_its_members(function: Callable[..., Any]) -> None:
    special = specialize(function)
    for _ in range(3):
        objects = [Factor(n) for n in range(4)]
        objects.append(objects[0])
        assert torch.equal(special(ONE, objects), function(ONE, objects))
    assert (special.stats.hits, special.refusals) == (2, [])


def test_set_of_constants_that_a_function_gives() -> None:
    special = specialize(lambda x, names: (x, members(names)))
    for _ in range(2):
        assert special(ONE, ["a", "b"])[1] == {"a", "b"}
    assert (special.stats.hits, special.refusals) == (1, [])


def test_class_of_sets_by_another_name_is_refused() -> None:
    special = specialize(lambda x, objects, kind=set: follow(x, kind(objects)))
    special(ONE, [Factor(1)])
    assert special.refusals[0].endswith(
        "is the class set: the order of a set may depend on addresses"
    )


def test_order_of_objects_by_texts_that_say_addresses() -> None:
    def function(x: torch.Tensor, objects: Any) -> Any:
        return follow(x, sorted(objects, key=repr))

    special = specialize(function)
    kept = []  # so that each list has addresses of its own
    for step in (1, -1, 1, -1):
        objects = [Factor(n) for n in range(9)][::step]
        kept.append(objects)
        assert torch.equal(special(ONE, objects), function(ONE, objects))
    assert special.refusals[0] == (
        "function hands repr on, whose texts may say the addresses of objects"
    )
