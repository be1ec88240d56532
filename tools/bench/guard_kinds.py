"""Kinds of guards, each with a value it is made from and what torch's own tree has for it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from guards import GuardBuilder as Builder

__all__ = ["KINDS", "MIXED", "Kind", "add_tensor", "plain"]


@dataclass(frozen=True, slots=True)
class Kind:
    """How to make our guard, a value for it, and the same guard in torch's tree."""

    create: Any
    value: Callable[[int], Any]
    add: Callable[[Any, Any], None]


class Thing:
    """An object of a user's class."""


class Named:
    """An object with an attribute."""

    def __init__(self) -> None:
        self.a = 1


def plain() -> Any:
    """Give torch's own name for a node without shortcuts."""
    from torch._dynamo.guards import GuardManagerType

    return GuardManagerType.GUARD_MANAGER


def own_dict(node: Any, value: Any) -> Any:
    """Give the node of a value's own dict, which torch reaches without code of its class."""
    return node.get_generic_dict_manager("…", value.__dict__, plain())


def add_tensor(node: Any, value: torch.Tensor) -> None:
    """Add torch's own check of a tensor."""
    keys = torch._C._dispatch_keys(value)
    size, stride = list(value.size()), list(value.stride())
    node.add_tensor_match_guard(value, size, stride, "x", ["x"], None, type(value), keys)


def add_type(node: Any, value: object) -> None:
    """Add torch's own check of the class."""
    node.add_type_match_guard(id(type(value)), ["x"], None)


def add_equals(node: Any, value: object) -> None:
    """Add torch's own comparison with a constant."""
    node.add_equals_match_guard(value, ["x"], None)


def add_ordered_keys(node: Any, value: dict[str, int]) -> None:
    """Add torch's own check of a dict's keys in their order, the fastest that it has."""
    add_type(node, value)
    node.add_mapping_keys_guard(value, ["x"], None)


def add_keys(node: Any, value: dict[str, int]) -> None:
    """Add torch's own check of the number of keys, and of each key."""
    add_type(node, value)
    node.add_dict_length_check_guard(len(value), ["x"], None)
    for key in value:
        node.add_dict_contains_guard(True, key, ["x"], None)


def add_members(node: Any, value: set[str]) -> None:
    """Add torch's own check of the number of members, and of each member."""
    add_type(node, value)
    node.add_length_check_guard(len(value), ["x"], None)
    for member in value:
        node.add_set_contains_guard(True, member, ["x"], None)


def add_training(node: Any, value: torch.nn.Module) -> None:
    """Add torch's own check of a module's training flag."""
    flag = own_dict(node, value).dict_getitem_manager("training", "…", value.training, plain())
    flag.add_true_match_guard(["x"], None)


def add_code(node: Any, value: Any) -> None:
    """Add torch's own check of the identity of a function's code."""
    code = node.code_manager("…", value.__code__, plain())
    code.add_id_match_guard(id(value.__code__), ["x"], None)


KINDS: dict[str, Kind] = {
    "tensors": Kind(Builder.TENSOR_MATCH, lambda i: torch.zeros(3, 4), add_tensor),
    "types": Kind(Builder.TYPE_MATCH, lambda i: Thing(), add_type),
    "identities": Kind(
        Builder.ID_MATCH,
        lambda i: Thing(),
        lambda node, value: node.add_id_match_guard(id(value), ["x"], None),
    ),
    "ints": Kind(Builder.EQUALS_MATCH, lambda i: 1000 + i, add_equals),
    "strings": Kind(Builder.EQUALS_MATCH, lambda i: f"text {i}", add_equals),
    "tuples": Kind(Builder.EQUALS_MATCH, lambda i: (1, i, "x"), add_equals),
    "bools": Kind(
        Builder.BOOL_MATCH,
        lambda i: True,
        lambda node, value: node.add_true_match_guard(["x"], None),
    ),
    "lengths": Kind(
        Builder.SEQUENCE_LENGTH,
        lambda i: [0] * 5,
        lambda node, value: node.add_length_check_guard(5, ["x"], None),
    ),
    "dict keys": Kind(
        Builder.DICT_KEYS_MATCH, lambda i: {f"k{n}": n for n in range(5)}, add_ordered_keys
    ),
    "dict keys in any order": Kind(
        functools.partial(Builder.DICT_KEYS_MATCH, ordered=False),
        lambda i: {f"k{n}": n for n in range(5)},
        add_keys,
    ),
    "sets": Kind(Builder.SET_MATCH, lambda i: {f"k{n}" for n in range(5)}, add_members),
    "attributes there": Kind(
        functools.partial(Builder.HASATTR, attr="a"),
        lambda i: Named(),
        lambda node, value: own_dict(node, value).add_dict_contains_guard(True, "a", ["x"], None),
    ),
    "attributes not there": Kind(
        functools.partial(Builder.NOT_PRESENT, attr="b"),
        lambda i: Named(),
        lambda node, value: own_dict(node, value).add_dict_contains_guard(False, "b", ["x"], None),
    ),
    "keys not there": Kind(
        functools.partial(Builder.NOT_PRESENT, key="b"),
        lambda i: {"a": 1},
        lambda node, value: node.add_dict_contains_guard(False, "b", ["x"], None),
    ),
    "ranges": Kind(
        functools.partial(Builder.RANGE_MATCH, low=1, high=5000),
        lambda i: 1000 + i,
        lambda node, value: node.add_lambda_guard(
            lambda x: type(x) is int and 1 <= x <= 5000, ["x"], None
        ),
    ),
    "training flags": Kind(Builder.MODULE_TRAINING, lambda i: torch.nn.Linear(2, 2), add_training),
    "functions": Kind(Builder.FUNCTION_MATCH, lambda i: eval("lambda x: x"), add_code),
}
MIXED = ("tensors", "types", "ints", "bools", "strings", "identities")
