"""Guards go by whole values and by nothing else: not by names that are cut, nor by foreign code."""

from __future__ import annotations

import enum
import gc
import weakref
from functools import partial
from typing import Any

import pytest
from guards import (
    AttrSource,
    ConstantSource,
    GetItemSource,
    Guard,
    GuardBuilder,
    GuardedCache,
    UnsupportedGuardError,
    compile_guards,
    dumps,
)

from tests.guards.kinds import X


def member(name: str) -> Any:
    made: Any = enum.Enum("Shade", [name])  # type: ignore[misc]
    return made[name]


def deep(value: Any, levels: int) -> Any:
    for _ in range(levels):
        value = (value,)
    return value


# ── names that print alike ───────────────────────────────────────────────────────────────────────

ALIKE = {
    "long texts": ("a" * 2000 + "x", "a" * 2000 + "y"),
    "long bytes": (b"a" * 2000 + b"x", b"a" * 2000 + b"y"),
    "large ints": (2**600, 2**600 + 1),
    "ints too large to write": (10**5000, 10**5000 + 1),
    "deep tuples": (deep(4, 5), deep(5, 5)),
    "long tuples": ((*range(500), 1), (*range(500), 2)),
    "members of enums of one name": (member("DARK"), member("DARK")),
    "classes of one name": (type("C", (), {}), type("C", (), {})),
    "code of one name": (compile("1", "f", "eval"), compile("2", "f", "eval")),
}


@pytest.mark.parametrize("kind", ALIKE)
def test_guards_on_keys_that_print_alike_are_two(kind: str) -> None:
    first, second = ALIKE[kind]
    guards = [Guard(GetItemSource(X, key), GuardBuilder.EQUALS_MATCH) for key in (first, second)]
    assert guards[0] != guards[1]
    again = Guard(GetItemSource(X, second), GuardBuilder.EQUALS_MATCH)
    assert again == guards[1]
    assert hash(again) == hash(guards[1])
    check = compile_guards(guards, {"x": {first: 1, second: 2}})
    assert len(check.guards) == 2
    assert check({"x": {first: 1, second: 2}})
    assert not check({"x": {first: 1, second: 3}})
    assert not check({"x": {first: 0, second: 2}})


def test_guards_that_may_run_code_and_that_may_not_are_two() -> None:
    kind = GuardBuilder.EQUALS_MATCH
    assert Guard(AttrSource(X, "a"), kind) != Guard(AttrSource(X, "a", allow_call=True), kind)


def test_name_of_a_deep_key_is_the_whole_expression() -> None:
    key = (1, (2, (3, (4, ("five",)))))
    assert eval(GetItemSource(X, key).name(), {"L": {"x": {key: "here"}}}) == "here"
    assert eval(ConstantSource(key).name()) == key


# ── odd names ────────────────────────────────────────────────────────────────────────────────────

ODD = [
    "x²",
    "ﬁ",
    "ª",
    "\N{MATHEMATICAL BOLD SMALL X}",
    "class",
    "None",
    "a b",
    "9",
    "",
    "é",
    "type",
    "check",
    "values",
    "L",
]


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("kind", ["DICT_KEYS_MATCH", "TYPE_MATCH", "ID_MATCH", "EQUALS_MATCH"])
def test_odd_name(name: str, kind: str) -> None:
    made: Any = {
        "DICT_KEYS_MATCH": {name: 1},
        "EQUALS_MATCH": type(name or "_", (), {}),
    }.get(kind) or type(name or "_", (), {})()
    check = compile_guards([Guard(X, getattr(GuardBuilder, kind))], {"x": made})
    assert check({"x": made}), check.source
    assert not check({"x": {"other": 1}})


class Holder:
    pass


@pytest.mark.parametrize("name", ODD)
def test_attribute_of_an_odd_name(name: str) -> None:
    def holder(value: int, plain: int) -> Holder:
        made = Holder()
        made.fi = plain  # type: ignore[attr-defined]  # what Python makes of a name with the letter ﬁ
        setattr(made, name, value)
        return made

    source = AttrSource(X, name)
    check = compile_guards([Guard(source, GuardBuilder.EQUALS_MATCH)], {"x": holder(1, 5)})
    assert check({"x": holder(1, 7)})
    assert not check({"x": holder(5, 1)})
    assert eval(source.name(), {"L": {"x": holder(3, 4)}}) == 3


# ── constants without an end ─────────────────────────────────────────────────────────────────────


def holding_itself() -> Any:
    made: list[Any] = [1, 2]
    made += [made, made, {"again": made}]
    return made


def wide() -> Any:
    made: Any = (1,)
    for _ in range(60):
        made = (made, made)
    return made


@pytest.mark.parametrize("kind", ["EQUALS_MATCH", "CONSTANT_MATCH", "ID_MATCH"])
@pytest.mark.parametrize("make", [holding_itself, wide, lambda: deep(1, 3000)])
def test_constant_without_an_end_is_refused(kind: str, make: Any) -> None:
    value = make()
    with pytest.raises(UnsupportedGuardError, match="_MATCH on L") as raised:
        compile_guards([Guard(X, getattr(GuardBuilder, kind))], {"x": value})
    if kind != "ID_MATCH":
        assert "it holds" in str(raised.value)
    assert len(str(raised.value)) < 400
    with pytest.raises(UnsupportedGuardError, match="it holds"):
        GetItemSource(X, value)


def test_value_without_an_end_is_not_the_constant() -> None:
    for constant in ([1, 2, [1, 2]], [1, 2, [1, 2, []], [], {}], ((1,), (1,))):
        check = compile_guards([Guard(X, GuardBuilder.EQUALS_MATCH)], {"x": constant})
        for value in (holding_itself(), wide(), deep(1, 3000)):
            assert not check({"x": value})
            assert check.explain({"x": value}) is not None


def test_bound_too_large_to_write() -> None:
    wanted = partial(GuardBuilder.RANGE_MATCH, low=10**5000)
    check = compile_guards([Guard(X, wanted)], {"x": 10**5001})
    assert str(check.explain({"x": 1})) == (
        "L['x'] is an int from int of 16610 bits: expected an int from int of 16610 bits, found 1"
    )
    with pytest.raises(UnsupportedGuardError, match="int of 16610 bits"):
        compile_guards([Guard(X, wanted)], {"x": 1})


def test_key_too_large_to_write() -> None:
    scope: Any = {"x": {10**5000: 1}}
    for guard in (
        Guard(X, GuardBuilder.DICT_KEYS_MATCH),
        Guard(GetItemSource(X, 10**5000), GuardBuilder.EQUALS_MATCH),
    ):
        check = compile_guards([guard], scope)
        assert check(scope)
        assert not check({"x": {10**5000 + 1: 1}})


def test_range_of_nan_is_refused() -> None:
    with pytest.raises(UnsupportedGuardError, match="nan lies in no range"):
        compile_guards([Guard(X, GuardBuilder.RANGE_MATCH)], {"x": float("nan")})


# ── foreign code ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["__getattr__", "__getattribute__", "a"])
@pytest.mark.parametrize("at_base", [False, True])
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("attr", [None, "a"])
def test_look_up_code_that_comes_later_is_not_run(
    name: str, at_base: bool, kept: bool, attr: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = type("Base", (), {"__module__": __name__})
    cls = type("Derived", (base,), {"__module__": __name__})
    if kept:
        monkeypatch.setitem(globals(), "Base", base)
        monkeypatch.setitem(globals(), "Derived", cls)
    made, without = cls(), cls()
    made.a = 1
    if attr is None:
        guard = Guard(AttrSource(X, "a"), GuardBuilder.EQUALS_MATCH)
    else:
        guard = Guard(X, partial(GuardBuilder.HASATTR, attr=attr))
    check = compile_guards([guard], {"x": made})
    assert check({"x": made})
    assert not check({"x": without})
    asked = []

    def answer(self: object, *wanted: str) -> int:
        asked.append(wanted)
        return 1

    setattr(base if at_base else cls, name, property(answer) if name == "a" else answer)
    check({"x": made})
    taken = check({"x": without})
    assert taken is (name == "a" and attr is not None)  # a property is there
    assert asked == []


class Formatting(enum.Enum):
    A = 1

    def __format__(self, spec: str) -> str:
        raise RuntimeError("foreign code ran")

    __str__ = __repr__ = __hash__ = __format__  # type: ignore[assignment]


def test_enum_is_not_asked_to_write_itself() -> None:
    check = compile_guards([Guard(X, GuardBuilder.EQUALS_MATCH)], {"x": Formatting.A})
    assert check({"x": Formatting.A})
    assert check.explain({"x": 3}) is not None


class Comparing(enum.EnumMeta):
    def __eq__(cls, other: object) -> bool:
        raise RuntimeError("foreign code ran")

    __hash__ = __eq__  # type: ignore[assignment]


def test_metaclass_of_a_constant_is_not_asked() -> None:
    cls = Comparing("Chosen", (enum.Enum,), enum.EnumMeta.__prepare__("Chosen", (enum.Enum,)))
    for value in (cls, [cls, 1], (cls,)):
        check = compile_guards([Guard(X, GuardBuilder.EQUALS_MATCH)], {"x": value})
        assert check({"x": value})
        assert not check({"x": int})
        assert check.explain({"x": 3}) is not None


# ── what dies ────────────────────────────────────────────────────────────────────────────────────

HOLDING: dict[str, tuple[str, Any]] = {
    "a class": ("EQUALS_MATCH", lambda cls, a: cls),
    "a member": ("EQUALS_MATCH", lambda cls, a: a),
    "a constant class": ("CONSTANT_MATCH", lambda cls, a: cls),
    "a list of both": ("EQUALS_MATCH", lambda cls, a: [cls, 1, a]),
    "a tuple of both": ("EQUALS_MATCH", lambda cls, a: (cls, (a,))),
    "a dict": ("EQUALS_MATCH", lambda cls, a: {cls: a, a: [cls]}),
    "a set": ("SET_MATCH", lambda cls, a: {cls, a, 1}),
    "keys": ("DICT_KEYS_MATCH", lambda cls, a: {cls: 1, a: 2, "c": 3}),
}


@pytest.mark.slow  # collects garbage
@pytest.mark.parametrize("kind", HOLDING)
@pytest.mark.parametrize("flavor", [enum.Enum, enum.IntEnum, enum.Flag])
def test_class_in_a_constant_is_not_kept_alive(kind: str, flavor: Any) -> None:
    create, make = HOLDING[kind]

    def fresh() -> Any:
        cls = flavor("Local", ["A", "B"])
        return make(cls, cls.A)

    value = fresh()
    check = compile_guards([Guard(X, getattr(GuardBuilder, create))], {"x": value})
    assert check({"x": value})
    assert check.explain({"x": value}) is None
    assert not check({"x": fresh()})
    assert check.explain({"x": fresh()}) is not None
    with pytest.raises(UnsupportedGuardError):
        dumps(check)
    cls = flavor("Other", ["A"])
    dead = weakref.ref(_class_in(value))
    del value
    gc.collect()
    assert dead() is None
    assert not check({"x": make(cls, cls.A)})
    explained = check.explain({"x": make(cls, cls.A)})
    assert explained is not None
    assert "dead" in explained.expected


def _class_in(value: Any) -> type:
    if isinstance(value, list | tuple | set | dict):
        return next(_class_in(part) for part in value if not isinstance(part, int | str))
    return value if isinstance(value, type) else type(value)


@pytest.mark.slow  # collects garbage
def test_key_that_died_is_named_as_dead() -> None:
    scope: Any = {"x": {Holder(): 1}}
    check = compile_guards([Guard(X, GuardBuilder.DICT_KEYS_MATCH)], scope)
    scope.clear()
    gc.collect()
    explained = check.explain({"x": {1: 1}})
    assert explained is not None
    kind = f"{Holder.__module__}.{Holder.__qualname__}"
    assert explained.expected == f"a dict with keys [an object of type {kind}, which is dead]"


@pytest.mark.slow  # collects garbage
def test_member_that_died_is_named_as_dead() -> None:
    scope: Any = {"x": {enum.Enum("Size", "SMALL").SMALL, 1}}  # type: ignore[attr-defined]
    check = compile_guards([Guard(X, GuardBuilder.SET_MATCH)], scope)
    scope.clear()
    gc.collect()
    explained = check.explain({"x": {1}})
    assert explained is not None
    assert explained.actual == "{1}, without Size.SMALL, which is dead"


@pytest.mark.slow  # collects garbage
def test_cache_is_not_kept_alive_by_its_checks() -> None:
    check = compile_guards([Guard(X, GuardBuilder.EQUALS_MATCH)], {"x": 5})
    caches = [GuardedCache[int]() for _ in range(3)]
    for cache in caches:
        cache.insert(check, 1)
        cache.insert(check, 2)
    dead = [weakref.ref(cache) for cache in caches]
    del cache, caches
    gc.collect()
    assert [reference() for reference in dead] == [None] * 3
    assert check.death._listeners == []
