"""Values beside tensors that one of torch's trees checks: the tree checks a few of them too."""

from __future__ import annotations

import collections
import gc
import importlib
import sys
import types
import weakref
from typing import Any

import pytest
import torch
from guards import CheckFunction, Guard, GuardBuilder, LocalSource, compile_guards

pytestmark = pytest.mark.slow  # loads torch._dynamo

CALLS: list[str] = []


class Thing:
    """An object that may be held weakly."""


class Hostile:
    """An object whose special methods are written down, and lie."""

    def __eq__(self, other: object) -> bool:
        CALLS.append("__eq__")
        return True

    def __hash__(self) -> int:
        CALLS.append("__hash__")
        return 0

    def __bool__(self) -> bool:
        CALLS.append("__bool__")
        return True


class HostileInt(int):
    __eq__ = Hostile.__eq__
    __hash__ = Hostile.__hash__


class HostileText(str):
    __eq__ = Hostile.__eq__
    __hash__ = Hostile.__hash__


class ChildDict(dict[str, Any]):
    pass


THING = Thing()
KINDS: dict[str, tuple[str, Any]] = {
    "type": ("TYPE_MATCH", THING),
    "type of C": ("TYPE_MATCH", 1.5),
    "object": ("ID_MATCH", THING),
    "class": ("ID_MATCH", Thing),
    "builtin class": ("ID_MATCH", int),
    "Ellipsis": ("ID_MATCH", Ellipsis),
    "int": ("EQUALS_MATCH", 1),
    "long int": ("EQUALS_MATCH", 2**70),
    "text": ("EQUALS_MATCH", "abc"),
    "bytes": ("EQUALS_MATCH", b"abc"),
    "float": ("EQUALS_MATCH", 1.5),
    "zero": ("EQUALS_MATCH", 0.0),
    "nan": ("EQUALS_MATCH", float("nan")),
    "dtype": ("EQUALS_MATCH", torch.float32),
    "device": ("EQUALS_MATCH", torch.device("cpu")),
    "tuple": ("EQUALS_MATCH", (1, "x")),
    "none": ("NONE_MATCH", None),
    "true": ("BOOL_MATCH", True),
    "false": ("BOOL_MATCH", False),
}
OTHERS: list[Any] = [
    *(value for _, value in KINDS.values()),
    *(True, 1.0, 2, -0.0, "ABC", "1", (True, "x"), Thing(), Hostile(), Hostile, HostileInt(1)),
    *(HostileText("abc"), torch.float64, torch.device("meta"), torch.zeros(2), [], object()),
]
# Equal to what the guards were made from, and not the same objects.
EQUAL: list[Any] = [int("1" + "0" * 30), 2**35 * 2**35, "".join(["a", "bc"]), bytes([97, 98, 99])]
EQUAL += [3.0 / 2, float("nan"), float("0"), torch.device("cpu"), (1, "".join("x"))]


@pytest.fixture(autouse=True)
def with_trees() -> Any:
    importlib.import_module("torch._dynamo.guards")
    CALLS.clear()
    yield
    assert not CALLS


def guarded(scope: dict[str, Any], **kinds: str) -> CheckFunction:
    return compile_guards(
        [Guard(LocalSource(key), getattr(GuardBuilder, kind)) for key, kind in kinds.items()],
        scope,
    )


def with_two_tensors(scope: dict[str, Any], **kinds: str) -> CheckFunction:
    return guarded(scope, **kinds, a="TENSOR_MATCH", b="TENSOR_MATCH")


def tensors() -> dict[str, Any]:
    return {"a": torch.zeros(2), "b": torch.zeros(3)}


def agreed(check: CheckFunction, scope: Any) -> bool:
    """Give the verdict, which must be that of ``explain`` too."""
    found = check(scope)
    assert type(found) is bool
    assert found is (check.explain(scope) is None)
    return found


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_gives_the_verdict_that_it_gives_alone(name: str) -> None:
    kind, value = KINDS[name]
    scope = {**tensors(), "x": value}
    check, alone = with_two_tensors(scope, x=kind), guarded(scope, x=kind)
    assert agreed(check, scope)
    verdicts = set()
    for other in [*OTHERS, *EQUAL]:
        for way in (dict, ChildDict, collections.UserDict, types.MappingProxyType):
            found = agreed(check, way({**scope, "x": other}))
            assert found is agreed(alone, {"x": other}), (other, way)
        verdicts.add(found)
    assert verdicts == {True, False}
    assert not agreed(check, tensors())
    assert not agreed(check, {**scope, "b": torch.zeros(4)})


def test_few_are_checked_by_the_tree_alone() -> None:
    kinds = {f"x{i}": kind for i, (kind, _) in enumerate(KINDS.values())}
    scope = {f"x{i}": value for i, (_, value) in enumerate(KINDS.values())} | tensors()
    check = with_two_tensors(scope, **kinds)
    assert check.source.count("return False") <= 5  # the last, and those of nan, zero and a tuple
    assert agreed(check, scope)
    for key in kinds:
        other = object()
        assert not agreed(check, {**scope, key: other}), key


@pytest.mark.parametrize("count", [1, 9, 30, 47, 48, 80])
def test_any_number_of_them(count: int) -> None:
    scope = tensors() | {f"x{i}": i for i in range(1000, 1000 + count)}
    check = with_two_tensors(scope, **{key: "EQUALS_MATCH" for key in scope if len(key) > 1})
    assert agreed(check, scope)
    assert agreed(check, {key: v + 0 for key, v in scope.items()})
    for i in range(1000, 1000 + count):
        assert not agreed(check, {**scope, f"x{i}": -1})
        assert not agreed(check, {**scope, f"x{i}": float(i)})


def test_two_guards_on_one_value() -> None:
    scope = {**tensors(), "x": 7}
    x = LocalSource("x")
    check = compile_guards(
        [
            Guard(x, GuardBuilder.TYPE_MATCH),
            Guard(x, GuardBuilder.EQUALS_MATCH),
            *(Guard(LocalSource(key), GuardBuilder.TENSOR_MATCH) for key in "ab"),
        ],
        scope,
    )
    assert agreed(check, scope)
    for other in (8, 7.0, True, None):
        assert not agreed(check, {**scope, "x": other})


@pytest.mark.parametrize("kind", ["ID_MATCH", "TYPE_MATCH"])
def test_nothing_is_kept_alive_nor_taken_for_what_comes_in_its_place(kind: str) -> None:
    def make() -> type:
        return type("Local", (), {"__slots__": ("__weakref__",)})

    cls = make()
    scope: dict[str, Any] = {**tensors(), "x": cls()}
    check = with_two_tensors(scope, x=kind)
    assert agreed(check, scope)
    ref = weakref.ref(scope["x"])
    own_class = weakref.ref(cls)
    del scope["x"], cls
    gc.collect()
    assert ref() is None
    assert own_class() is None
    assert check.death.happened
    for _ in range(50):  # some of them lie where the first one did
        assert not agreed(check, {**scope, "x": make()()})


def test_an_object_that_dies_ends_the_check_once_and_for_all() -> None:
    scope: dict[str, Any] = {**tensors(), "x": Thing(), "n": 3}
    check = with_two_tensors(scope, x="ID_MATCH", n="EQUALS_MATCH")
    assert agreed(check, scope)
    assert not check.death.happened
    kept = scope.pop("x")
    assert agreed(check, {**scope, "x": kept})
    del kept
    gc.collect()
    assert check.death.happened
    for _ in range(50):
        assert not agreed(check, {**scope, "x": Thing()})


@pytest.mark.parametrize("kind", ["TYPE_MATCH", "MODULE_TRAINING"])
def test_a_class_of_a_module_may_be_replaced(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("replaced")
    monkeypatch.setitem(sys.modules, "replaced", module)

    def make(base: type) -> Any:
        made = type("Own", (base,), {"__module__": "replaced"})
        module.__dict__["Own"] = made
        return made

    base = torch.nn.Module
    cls = make(base)
    few = 2 if kind == "TYPE_MATCH" else 8  # so many training flags are checked in a tree
    scope: dict[str, Any] = {**tensors(), **{f"x{i}": cls() for i in range(few)}}
    check = with_two_tensors(scope, **{f"x{i}": kind for i in range(few)})
    assert "tree_of" in check.source
    assert agreed(check, scope)
    freed = weakref.ref(cls)
    del cls, module.__dict__["Own"]
    scope = tensors()
    gc.collect()
    for other in (object, base):
        for _ in range(30):  # some of them may lie where the first one did
            value = make(other)()
            value.training = 1
            new = {**scope, **{f"x{i}": value for i in range(few)}}
            assert not agreed(check, new)
    if freed() is None and kind == "TYPE_MATCH":
        assert check.death.happened
