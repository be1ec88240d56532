"""Checks that are made together in one step give the verdicts that they give one by one."""

from __future__ import annotations

import collections
import functools
import gc
import types
from collections.abc import Callable
from typing import Any

import pytest
from guards import (
    CheckFunction,
    Guard,
    GuardBuilder,
    LocalSource,
    compile_guards,
)

from tests.guards.hostile import CALLS, Hostile, HostileDict, first_failure, guarded
from tests.guards.kinds import NAN, Point

pytestmark = pytest.mark.usefixtures("no_foreign_code_is_run")


class HostileText(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        CALLS.append("__eq__")
        return True

    __hash__ = str.__hash__


# ── identities and constants, all of which are compared by address first ─────────────────────────


SAME = {
    "i": GuardBuilder.ID_MATCH,
    "b": GuardBuilder.BOOL_MATCH,
    "n": GuardBuilder.NONE_MATCH,
    "c": GuardBuilder.EQUALS_MATCH,
}


def same_scope() -> dict[str, Any]:
    scope: dict[str, Any] = {}
    for number in range(12):
        scope |= {f"i{number}": Point(number), f"b{number}": number % 2 == 0, f"n{number}": None}
        scope |= {f"c{number}_int": 1000 + number, f"c{number}_text": f"text {number}"}
        scope |= {f"c{number}_tuple": (number, "x", (0.0, NAN)), f"c{number}_float": NAN}
    return scope


def test_same_takes_constants_that_are_equal_but_not_the_same() -> None:
    scope = same_scope()
    check = guarded(scope, **SAME)
    assert "values[" in check.source, "these are checked together"
    fresh = {
        key: int(str(value))
        if type(value) is int
        else "".join(list(value))
        if type(value) is str
        else (value[0], "x", (0.0, float("nan")))
        if type(value) is tuple
        else float("nan")
        if type(value) is float
        else value
        for key, value in scope.items()
    }
    assert fresh["c3_int"] is not scope["c3_int"]
    assert check(fresh)
    assert check.explain(fresh) is None


@pytest.mark.parametrize("fresh", [False, True], ids=["the same", "equal"])
def test_same_refuses_each_one_that_differs(fresh: bool) -> None:
    scope = same_scope()
    check = guarded(scope, **SAME)
    now = {**scope, "c5_int": int("1005")} if fresh else scope
    for key, value in scope.items():
        others: list[Any] = [Hostile(), Hostile, HostileText("text 3"), HostileDict(), 1, True, 0.5]
        others += [None, False, float(value) if type(value) is int else ..., (value,)]
        for other in others:
            if other is value or (type(other) is type(value) and other == value):
                continue
            changed = {**now, key: other}
            assert check(changed) is False, (key, other)
        assert first_failure(check, {**now, key: Hostile()}).startswith(f"L['{key}']")
        missing = {k: v for k, v in now.items() if k != key}
        assert check(missing) is False


@pytest.mark.slow  # collects garbage
def test_same_never_holds_again_once_one_object_is_dead() -> None:
    scope = same_scope()
    check = guarded(scope, **SAME)
    assert check(scope)
    del scope["i7"]
    gc.collect()
    assert check.death.happened
    for other in [None, *(Point(7) for _ in range(200))]:
        assert not check({**scope, "i7": other})


@pytest.mark.slow  # collects garbage
def test_one_identity_never_holds_again_once_the_object_is_dead() -> None:
    scope = {"i": Point()}
    check = guarded(scope, **SAME)
    assert check(scope)
    scope.clear()
    gc.collect()
    assert not check({"i": None})
    assert not check({"i": Point()})


# ── types ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow  # collects garbage
@pytest.mark.parametrize("count", [3, 40, 300])
@pytest.mark.parametrize("made_now", [False, True], ids=["of a module", "made at run time"])
def test_types_of_many_values(count: int, made_now: bool) -> None:
    class Meta(type):
        def __eq__(cls, other: object) -> bool:
            CALLS.append("__eq__")
            return True

        __hash__ = type.__hash__

    def make() -> type:
        class Local(metaclass=Meta):
            pass

        return Local if made_now else Point

    cls = make()
    scope = {f"t{i}": cls() for i in range(count)}
    check = guarded(scope, t=GuardBuilder.TYPE_MATCH)
    assert check({k: cls() for k in scope})
    other = type("Other", (cls,), {})()
    for place in ("t0", f"t{count // 2}", f"t{count - 1}"):
        for value in (other, Hostile(), cls, None):
            assert check({**scope, place: value}) is False
        assert first_failure(check, {**scope, place: other}).startswith(f"L['{place}']")
    if made_now:
        del cls, scope, other, value
        gc.collect()
        assert check.death.happened


# ── keys of dicts ────────────────────────────────────────────────────────────────────────────────


def with_keys(count: int, keys: int) -> dict[str, Any]:
    return {f"d{i}": {f"k{n}": n for n in range(keys)} for i in range(count)}


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("keys", [1, 2, 9, 20])
@pytest.mark.parametrize("count", [1, 60])
def test_keys_of_many_dicts(count: int, keys: int, ordered: bool) -> None:
    scope = with_keys(count, keys)
    kind = functools.partial(GuardBuilder.DICT_KEYS_MATCH, ordered=ordered)
    check = guarded(scope, d=kind)
    assert check(scope)
    assert check(with_keys(count, keys)), "keys that are equal, but other objects"
    values = {key: {k: Hostile() for k in value} for key, value in scope.items()}
    assert check(values)
    names = [f"k{n}" for n in range(keys)]
    for place in {"d0", f"d{count // 2}", f"d{count - 1}"}:
        refused: list[Any] = [
            dict.fromkeys(names[1:]),
            dict.fromkeys([*names, "more"]),
            dict.fromkeys([*names[1:], "other"]),
            dict.fromkeys([*names[1:], HostileText(names[0])]),
            {**dict.fromkeys(names[1:]), 1: 0},
            HostileDict(dict.fromkeys(names)),
            collections.OrderedDict.fromkeys(names),
            names,
            Hostile(),
            None,
            {},
        ]
        CALLS.clear()  # of making them
        for value in refused:
            assert check({**scope, place: value}) is False, value
            assert first_failure(check, {**scope, place: value}).startswith(f"L['{place}']")
        turned = {**scope, place: dict.fromkeys(reversed(names))}
        assert check(turned) is (keys == 1 or not ordered)
        del turned[place]
        assert check(turned) is False


def test_keys_with_the_hash_of_a_key() -> None:
    scope = with_keys(60, 3)
    check = guarded(scope, d=GuardBuilder.DICT_KEYS_MATCH)
    hostile = {"k0": 0, Hostile(): 1, "k2": 2}
    CALLS.clear()
    assert check({**scope, "d30": hostile}) is False
    assert check.explain({**scope, "d30": hostile}) is not None


def test_keys_that_moved_from_one_dict_to_the_next() -> None:
    scope = with_keys(60, 2)
    check = guarded(scope, d=GuardBuilder.DICT_KEYS_MATCH)
    moved = {**scope, "d7": {"k0": 0}, "d8": {"k1": 1, "k0": 0, "k2": 1}}
    assert check(moved) is False


def test_keys_of_several_kinds() -> None:
    keys = [1, "a", None, (1, 2), 2.5, int]
    scope = {f"d{i}": dict.fromkeys(keys[: 1 + i % 6]) for i in range(120)}
    check = guarded(scope, d=GuardBuilder.DICT_KEYS_MATCH)
    assert check(scope)
    assert check({**scope, "d2": {1: 0, "a": 0, None: 0}})
    assert not check({**scope, "d2": {True: 0, "a": 0, None: 0}})
    assert not check({**scope, "d4": dict.fromkeys([1, "a", None, (1, True), 2.5])})


# ── sets ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("cls", [set, frozenset])
@pytest.mark.parametrize("count", [0, 1, 5, 40])
def test_members_in_any_order(cls: Callable[..., Any], count: int) -> None:
    names = [f"k{n}" for n in range(count)]
    scope = {f"s{i}": cls(names) for i in range(3)}
    check = guarded(scope, s=GuardBuilder.SET_MATCH)
    assert check(scope)
    assert check({k: cls(["".join(list(n)) for n in reversed(names)]) for k in scope})
    grown = set(map(str, range(1000)))  # of another size within
    grown.clear()
    grown |= set(names)
    assert check({**scope, "s1": cls(grown) if cls is frozenset else grown})
    other = frozenset if cls is set else set
    hostile = {*names[1:], Hostile()}
    CALLS.clear()
    for value in (other(names), cls([*names, "more"]), cls(hostile), names, Hostile(), None):
        CALLS.clear()  # of copying the set
        assert check({**scope, "s1": value}) is False
        assert CALLS == []


# ── the function itself ──────────────────────────────────────────────────────────────────────────


def test_check_is_a_plain_function() -> None:
    check = guarded({"c": 1}, **SAME)
    assert isinstance(check, types.FunctionType)
    assert isinstance(check, CheckFunction)
    assert not isinstance(lambda L: True, CheckFunction)
    assert repr(check).startswith("<function check(L) of 1 guards")


def test_names_of_locals_are_none_of_the_names_in_the_code() -> None:
    names = ["type", "len", "v", "v0", "values", "the_type", "if", "L", "G", "check", "types"]
    scope: dict[str, Any] = {name: 1000 + i for i, name in enumerate(names)}
    kinds = (GuardBuilder.TYPE_MATCH, GuardBuilder.EQUALS_MATCH)
    check = compile_guards([Guard(LocalSource(n), kind) for n in scope for kind in kinds], scope)
    assert check(scope)
    for name in names:
        assert check({**scope, name: 1}) is False
    texts = {name: name for name in names}
    check = compile_guards([Guard(LocalSource(n), GuardBuilder.EQUALS_MATCH) for n in texts], texts)
    assert check(texts)
    for name in names:
        assert check({**texts, name: "v"}) is (name == "v")


def test_scope_that_is_no_dict() -> None:
    scope = same_scope()
    check = guarded(scope, **SAME)
    assert check(types.MappingProxyType(scope))
    assert check(collections.UserDict(scope))
    assert not check(collections.UserDict({**scope, "n3": 0}))


@pytest.mark.parametrize("count", [1, 5, 40])
def test_mapping_that_gives_less_from_one_look_to_the_next(count: int) -> None:
    class Fading(collections.UserDict[str, Any]):
        left = count - 1

        def __getitem__(self, key: str) -> Any:
            self.left -= 1
            if self.left < 0:
                raise RuntimeError("gone")
            return super().__getitem__(key)

    scope = {f"c{i}": i for i in range(count)}
    check = guarded(scope, **SAME)
    assert check(Fading(scope)) is False
