"""A set of guards checked by one generated function, against torch's own tree of guards."""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from guards import (
    AttrSource,
    GetItemSource,
    GlobalStateSource,
    Guard,
    GuardBuilder,
    LocalSource,
    ParamBufferSource,
    Source,
    TensorPropertySource,
)
from guards import compile_guards as compile_them

from tools.bench.guard_kinds import KINDS, MIXED, add_tensor, plain
from tools.bench.row import Row, at_most
from tools.bench.timing import Statement, alternate

SIZES = (1, 10, 100, 1000)
STATES = (
    "GRAD_MODE",
    "AUTOCAST_STATE",
    "DEFAULT_DTYPE",
    "DETERMINISTIC_ALGORITHMS",
    "DEFAULT_DEVICE",
)
TREE = "RootGuardManager"


def root() -> Any:
    """Make an empty tree."""
    from torch._C._dynamo.guards import RootGuardManager

    return RootGuardManager()


def set_of(kinds: tuple[str, ...], count: int) -> tuple[Any, Any, dict[str, Any]]:
    """Give our check, torch's tree, and the values they hold of; ``kinds`` take turns."""
    scope: dict[str, Any] = {}
    guards, tree = [], root()
    for number in range(count):
        kind = KINDS[kinds[number % len(kinds)]]
        key = f"x{number}"
        value = scope[key] = kind.value(number)
        guards.append(Guard(LocalSource(key), kind.create))
        kind.add(tree.dict_getitem_manager(key, f"L['{key}']", value, plain()), value)
    return compile_them(guards, scope), tree, scope


def new_tensors(scope: dict[str, Any]) -> dict[str, Any]:
    """Give the same values with other tensors in place of those that guards were made from."""
    return {
        key: torch.zeros_like(value) if isinstance(value, torch.Tensor) else value
        for key, value in scope.items()
    }


def parameters_of(layers: int, *, as_attributes: bool = False) -> tuple[Any, Any, dict[str, Any]]:
    """Do the same for all parameters of a Sequential of so many layers.

    Both look into the tables of the modules. As attributes the parameters may be hidden by an
    entry of a module's own dict, which both rule out then.
    """
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
        for key in layer._parameters if as_attributes else ():
            below.add_dict_contains_guard(False, key, ["…"], None)
        below = below.dict_getitem_manager("_parameters", "…", layer._parameters, plain())
        for key, value in layer.named_parameters():
            add_tensor(below.dict_getitem_manager(key, "…", value, plain()), value)
            kind = AttrSource if as_attributes else ParamBufferSource
            source = kind(GetItemSource(modules, name), key)
            guards.append(Guard(source, GuardBuilder.TENSOR_MATCH))
    return compile_them(guards, scope), tree, scope


def pairs_of(count: int) -> tuple[Any, Any, dict[str, Any]]:
    """Do the same for so many pairs of locals that are one and the same object."""
    from torch._C._dynamo.guards import install_object_aliasing_guard

    scope: dict[str, Any] = {}
    guards, tree = [], root()
    for number in range(count):
        keys = f"x{number}", f"y{number}"
        scope.update(dict.fromkeys(keys, torch.zeros(2)))
        same = functools.partial(GuardBuilder.DUPLICATE_INPUT, source_b=LocalSource(keys[1]))
        guards.append(Guard(LocalSource(keys[0]), same))
        nodes = [tree.dict_getitem_manager(key, "…", scope[key], plain()) for key in keys]
        install_object_aliasing_guard(nodes[0], nodes[1], ["x is y"], None)
    return compile_them(guards, scope), tree, scope


def relations_of(count: int) -> tuple[Any, Any, dict[str, Any]]:
    """Do the same for relations between sizes, which torch's tree leaves to one Python function."""
    scope: dict[str, Any] = {}
    guards, tests = [], []
    for number in range(count):
        x, y = f"x{number}", f"y{number}"
        scope[x], scope[y] = torch.zeros(6, 2), torch.zeros(3)
        symbols = {key: TensorPropertySource(LocalSource(key), "size", 0) for key in (x, y)}
        relation = functools.partial(
            GuardBuilder.SHAPE_RELATION, relation=f"{x} == 2 * {y}", symbols=symbols
        )
        guards.append(Guard(LocalSource(x), relation))
        tests.append(f"L['{x}'].size()[0] == 2 * L['{y}'].size()[0]")
    tree = root()
    tree.add_lambda_guard(eval(f"lambda L: {' and '.join(tests)}"), ["relations"], None)
    return compile_them(guards, scope), tree, scope


def apart(count: int) -> tuple[Any, Any, dict[str, Any]]:
    """Do the same for so many tensors of one storage that do not overlap."""
    from torch._C._dynamo.guards import install_storage_overlapping_guard

    whole, tree = torch.zeros(8 * count), root()
    scope = {f"x{i}": whole[8 * i : 8 * i + 8] for i in range(count)}
    sources = [LocalSource(key) for key in scope]
    kind = functools.partial(GuardBuilder.STORAGE_OVERLAP, overlapping=[], non_overlapping=sources)
    nodes = [tree.dict_getitem_manager(key, "…", scope[key], plain()) for key in scope]
    install_storage_overlapping_guard([], nodes, ["apart"], None)
    return compile_them([Guard(sources[0], kind)], scope), tree, scope


def state(*kinds: str) -> tuple[Any, Any, dict[str, Any]]:
    """Do the same for torch's own state; its tree looks at all of it in one guard."""
    from torch._C._dynamo.guards import GlobalStateGuard

    tree = root()
    if kinds == ("DEFAULT_DEVICE",):
        tree.add_default_device_guard(["device"], None)
    else:
        tree.add_global_state_guard(GlobalStateGuard(), ["state"], None)
    guards = [Guard(GlobalStateSource(), getattr(GuardBuilder, kind)) for kind in kinds]
    return compile_them(guards, {}), tree, {}


def building(count: int, several: tuple[str, ...] = MIXED) -> float:
    """Give the processor time of making a check of so many guards; the kinds take turns."""
    kinds = [KINDS[several[i % len(several)]] for i in range(count)]
    scope = {f"x{i}": kind.value(i) for i, kind in enumerate(kinds)}
    best = float("inf")
    for _ in range(5):
        guards = [Guard(LocalSource(f"x{i}"), kind.create) for i, kind in enumerate(kinds)]
        gc.collect()
        start = time.thread_time()
        compile_them(guards, scope)
        best = min(best, time.thread_time() - start)
    return best


def compared(
    work: str,
    made: tuple[Any, Any, dict[str, Any]],
    limit: float,
    change: Callable[[dict[str, Any]], dict[str, Any]] = dict,
) -> Row:
    """Measure a check and a tree on the same values."""
    ours, theirs, scope = made
    scope = change(scope)
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
            if kind == "tensors":
                yield compared(f"check {count:,} new tensors", made, 1.0, new_tensors)
    for name, several in {"same object": pairs_of, "relations of sizes": relations_of}.items():
        for count in SIZES:
            yield compared(f"check {count:,} {name}", several(count), 1.0 if count <= 10 else 1.3)
    for count in (2, 10):
        yield compared(f"check {count} tensors lie apart", apart(count), 1.0)
    for code in STATES:
        yield compared(f"check {code}", state(code), 1.0)
    yield compared("check all four of GLOBAL_STATE", state(*STATES[:4]), 1.0)
    for count in SIZES[1:]:
        made = set_of(MIXED, count)
        yield compared(f"check {count:,} mixed", made, 1.0)
        yield compared(f"check {count:,} mixed, new tensors", made, 1.0, new_tensors)
    for name, layers in {"1 layer": 1, "100 layers": 100}.items():
        yield compared(f"check parameters, {name}", parameters_of(layers), 1.0)
        made = parameters_of(layers, as_attributes=True)
        yield compared(f"check attributes that are parameters, {name}", made, 1.0)
    large = building(1000)
    yield Row("build 1,000 guards", "60 ms", large, 60e-3, at_most(1))
    tensors = building(1000, ("tensors",))
    yield Row("build 1,000 guards on tensors", "60 ms", tensors, 60e-3, at_most(1))
    yield Row("build 1,000 guards", "ten times 100", large, 10 * building(100), at_most(1.5))
