"""A set of guards checked by one generated function, against torch's own tree of guards."""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from guards import AttrSource, GetItemSource, Guard, GuardBuilder, LocalSource, Source
from guards import compile_guards as compile_them

from tools.bench.row import Row, at_most
from tools.bench.timing import Statement, alternate

SIZES = (1, 10, 100, 1000)
TREE = "RootGuardManager"


class Thing:
    """An object of a user's class."""


def add_tensor(node: Any, value: torch.Tensor) -> None:
    """Add torch's own check of a tensor."""
    keys = torch._C._dispatch_keys(value)
    size, stride = list(value.size()), list(value.stride())
    node.add_tensor_match_guard(value, size, stride, "x", ["x"], None, type(value), keys)


def add_equals(node: Any, value: object) -> None:
    """Add torch's own comparison with a constant."""
    node.add_equals_match_guard(value, ["x"], None)


def add_keys(node: Any, value: dict[str, int]) -> None:
    """Add torch's own check of the number of keys, and of each key."""
    node.add_dict_length_check_guard(len(value), ["x"], None)
    for key in value:
        node.add_dict_contains_guard(True, key, ["x"], None)


Kind = tuple[str, Callable[[int], Any], Callable[[Any, Any], None]]
KINDS: dict[str, Kind] = {
    "tensors": ("TENSOR_MATCH", lambda i: torch.zeros(3, 4), add_tensor),
    "types": (
        "TYPE_MATCH",
        lambda i: Thing(),
        lambda node, value: node.add_type_match_guard(id(type(value)), ["x"], None),
    ),
    "identities": (
        "ID_MATCH",
        lambda i: Thing(),
        lambda node, value: node.add_id_match_guard(id(value), ["x"], None),
    ),
    "ints": ("EQUALS_MATCH", lambda i: 1000 + i, add_equals),
    "strings": ("EQUALS_MATCH", lambda i: f"text {i}", add_equals),
    "tuples": ("EQUALS_MATCH", lambda i: (1, i, "x"), add_equals),
    "bools": (
        "BOOL_MATCH",
        lambda i: True,
        lambda node, value: node.add_true_match_guard(["x"], None),
    ),
    "lengths": (
        "SEQUENCE_LENGTH",
        lambda i: [0] * 5,
        lambda node, value: node.add_length_check_guard(5, ["x"], None),
    ),
    "dict keys": ("DICT_KEYS_MATCH", lambda i: {f"k{n}": n for n in range(5)}, add_keys),
}
MIXED = ("tensors", "types", "ints", "bools", "strings", "identities")


def plain() -> Any:
    """Give torch's own name for a node without shortcuts."""
    from torch._dynamo.guards import GuardManagerType

    return GuardManagerType.GUARD_MANAGER


def root() -> Any:
    """Make an empty tree."""
    from torch._C._dynamo.guards import RootGuardManager

    return RootGuardManager()


def set_of(kinds: tuple[str, ...], count: int) -> tuple[Any, Any, dict[str, Any]]:
    """Give our check, torch's tree, and the values they hold of; ``kinds`` take turns."""
    scope: dict[str, Any] = {}
    guards, tree = [], root()
    for number in range(count):
        name, make, add = KINDS[kinds[number % len(kinds)]]
        key = f"x{number}"
        value = scope[key] = make(number)
        guards.append(Guard(LocalSource(key), getattr(GuardBuilder, name)))
        add(tree.dict_getitem_manager(key, f"L['{key}']", value, plain()), value)
    return compile_them(guards, scope), tree, scope


def parameters_of(layers: int) -> tuple[Any, Any, dict[str, Any]]:
    """Do the same for all parameters of a Sequential of so many layers."""
    model = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(layers)))
    scope: dict[str, Any] = {"m": model}
    modules: Source = AttrSource(LocalSource("m"), "_modules")
    guards, tree = [], root()
    node = tree.dict_getitem_manager("m", "L['m']", model, plain())
    node = node.get_generic_dict_manager("L['m'].__dict__", model.__dict__, plain())
    node = node.dict_getitem_manager("_modules", "…", model._modules, plain())
    for name, layer in model._modules.items():
        below = node.dict_getitem_manager(name, "…", layer, plain())
        below = below.get_generic_dict_manager("…", layer.__dict__, plain())
        below = below.dict_getitem_manager("_parameters", "…", layer._parameters, plain())
        for key, value in layer.named_parameters():
            add_tensor(below.dict_getitem_manager(key, "…", value, plain()), value)
            source = AttrSource(GetItemSource(modules, name), key)
            guards.append(Guard(source, GuardBuilder.TENSOR_MATCH))
    return compile_them(guards, scope), tree, scope


def building(count: int) -> float:
    """Give the processor time of making a check of so many guards of several kinds."""
    scope = {f"x{i}": KINDS[MIXED[i % len(MIXED)]][1](i) for i in range(count)}
    best = float("inf")
    for _ in range(5):
        guards = [
            Guard(LocalSource(f"x{i}"), getattr(GuardBuilder, KINDS[MIXED[i % len(MIXED)]][0]))
            for i in range(count)
        ]
        gc.collect()
        start = time.thread_time()
        compile_them(guards, scope)
        best = min(best, time.thread_time() - start)
    return best


def compared(work: str, made: tuple[Any, Any, dict[str, Any]], limit: float) -> Row:
    """Measure a check and a tree on the same values."""
    ours, theirs, scope = made
    if not (ours(scope) and theirs.check(scope)):
        raise RuntimeError(f"{work}: both must hold of what they were made from")
    here, there = alternate(
        Statement("check(L)", {"check": ours, "L": scope}),
        Statement("check(L)", {"check": theirs.check, "L": scope}),
        rounds=25,
    )
    return Row(work, TREE, here, there, at_most(limit))


def rows() -> Iterator[Row]:
    """Compare every kind at every size, mixed sets, parameters of modules, and building."""
    for kind in KINDS:
        for count in SIZES:
            strict = kind == "tensors" or count <= 10
            made = set_of((kind,), count)
            yield compared(f"check {count:,} {kind}", made, 1.0 if strict else 1.3)
    for count in SIZES[1:]:
        yield compared(f"check {count:,} mixed", set_of(MIXED, count), 1.0)
    for name, make in {
        "check parameters, 1 layer": functools.partial(parameters_of, 1),
        "check parameters, 100 layers": functools.partial(parameters_of, 100),
    }.items():
        yield compared(name, make(), 1.0)
    large = building(1000)
    yield Row("build 1,000 guards", "60 ms", large, 60e-3, at_most(1))
    yield Row("build 1,000 guards", "ten times 100", large, 10 * building(100), at_most(1.5))
