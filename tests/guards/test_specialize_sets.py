"""Sets that a call makes have an order of their own, which depends on addresses."""

from __future__ import annotations

import operator
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


def keeps_keys(x: torch.Tensor, objects: Any) -> Any:
    keys = dict.fromkeys(objects).keys()
    return follow(x, keys & keys)


def takes_keys_into_its_own(x: torch.Tensor, objects: Any) -> Any:
    keys: Any = dict.fromkeys(objects).keys()
    keys &= keys
    return follow(x, keys)


def takes_apart_keys(x: torch.Tensor, objects: Any) -> Any:
    keys = dict.fromkeys(objects).keys()
    first, *others = keys ^ []
    return follow(x, [first, *others])


def keeps_items(x: torch.Tensor, objects: Any) -> Any:
    items = dict.fromkeys(objects).items()
    return follow(x, [one for one, _ in items - set()])


def joins_numbers_and_keys(x: torch.Tensor, objects: Any) -> Any:
    keys = dict.fromkeys(objects).keys()
    return follow(x, [one for one in {1, 2} | keys if one not in (1, 2)])


def keys_of(objects: Any) -> Any:
    return dict.fromkeys(objects).keys()


def is_given_keys(x: torch.Tensor, objects: Any) -> Any:
    keys = keys_of(objects)
    return follow(x, keys | [objects[0]])


def both(one: Any, other: Any) -> Any:
    return one & other


def hands_keys_on(x: torch.Tensor, objects: Any) -> Any:
    found = dict.fromkeys(objects)
    return follow(x, both(found.keys(), found.keys()))


def names_an_operator(x: torch.Tensor, objects: Any) -> Any:
    return follow(x, keys_of(objects).__and__(objects))


def names_an_operator_at_once(x: torch.Tensor, objects: Any) -> Any:
    return follow(x, dict.fromkeys(objects).keys().__or__([]))


def keeps_an_operator(x: torch.Tensor, objects: Any) -> Any:
    join = dict.fromkeys(objects).keys().__or__
    return follow(x, join([]))


def calls_an_operator(x: torch.Tensor, objects: Any) -> Any:
    keys = keys_of(objects)
    return follow(x, operator.and_(keys, keys))


def asks_for_keys_by_name(x: torch.Tensor, objects: Any) -> Any:
    keys = getattr(dict.fromkeys(objects), "keys")()  # noqa: B009  # what is tested
    return follow(x, keys - [])


def fills_after_asking_for_keys(x: torch.Tensor, objects: Any) -> Any:
    found: dict[Any, None] = {}
    keys: Any = found.keys()
    for one in objects:
        found[one] = None
    joined = keys | keys
    found.clear()
    return follow(x, joined)


def takes_the_class_of_a_set(x: torch.Tensor, objects: Any) -> Any:
    return follow(x, ({1, 2}.__class__)(objects))


def keeps_the_class_of_a_set(x: torch.Tensor, objects: Any) -> Any:
    made = type({1, 2})
    return follow(x, made(objects))


def takes_the_class_of_a_frozen_set(x: torch.Tensor, objects: Any) -> Any:
    return follow(x, type(frozenset())(objects))


FEW = [{1, 2}]


def keeps_a_method(x: torch.Tensor, objects: Any) -> Any:
    union = FEW[0].union
    return follow(x, [one for one in union(objects) if one not in (1, 2)])


def takes_the_class_of_what_it_reads(x: torch.Tensor, objects: Any) -> Any:
    return follow(x, type(FEW[0])(objects))


def grow(found: Any, one: Any) -> None:
    found |= {one}


def goes_through_what_others_join(x: torch.Tensor, objects: Any) -> Any:
    found: Any = {1}
    for one in objects:
        grow(found, one)
    return follow(x, [one for one in found if one != 1])


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
        keeps_keys,
        takes_keys_into_its_own,
        takes_apart_keys,
        keeps_items,
        joins_numbers_and_keys,
        is_given_keys,
        hands_keys_on,
        names_an_operator,
        names_an_operator_at_once,
        keeps_an_operator,
        calls_an_operator,
        asks_for_keys_by_name,
        fills_after_asking_for_keys,
        takes_the_class_of_a_set,
        keeps_the_class_of_a_set,
        takes_the_class_of_a_frozen_set,
        keeps_a_method,
        takes_the_class_of_what_it_reads,
        goes_through_what_others_join,
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


def uses_operators_of_tensors(x: torch.Tensor, objects: Any) -> Any:
    found = dict.fromkeys(objects, x)
    for one, gain in found.items():
        x = x - gain * one.gain
    for _, gain in {"a": x}.items():
        x = x - gain + len(found.keys())
    return ((x > 0) & (x < 9) | (x == 3) ^ (x > 1)) * len(joined({"b": x}, x))


def joined(named: dict[str, torch.Tensor], x: torch.Tensor) -> Any:
    names = named.keys()
    return sorted(names | {str((x - x).dim())})


@pytest.mark.parametrize(
    "function",
    [
        asks_for_members,
        compares,
        asks_for_numbers,
        asks_for_classes,
        finds_another_order,
        uses_operators_of_tensors,
    ],
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
