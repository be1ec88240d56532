"""Saved guards accept and refuse the same in another process, and reading them runs no code."""

from __future__ import annotations

import copy
import functools
import json
import pickle
import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from guards import (
    AttrSource,
    CheckFunction,
    GetItemSource,
    Guard,
    GuardBuilder,
    LocalSource,
    SavedGuardsError,
    TypeSource,
    UnsupportedGuardError,
    compile_guards,
    dumps,
    loads,
    saveable,
    verify,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.guards.kinds import STATES, Case, Point, X, cases, state_guard

REFUSED_KINDS = {"ID_MATCH"}
NAN = float("nan")


def compiled(case: Case) -> CheckFunction:
    return compile_guards([case.guard()], case.scope(case.value))


def can_be_saved(case: Case) -> bool:
    try:
        dumps(compiled(case))
    except UnsupportedGuardError:
        return False
    return True


SAVED = [case for case in cases() if can_be_saved(case)]
each_saved = pytest.mark.parametrize("case", SAVED, ids=str)


def test_nearly_every_kind_can_be_saved() -> None:
    kinds = {case.kind for case in cases()}
    assert kinds - {case.kind for case in SAVED} == set()
    assert len(SAVED) > 80


@each_saved
def test_round_trip_gives_the_same_verdicts(case: Case) -> None:
    check = compiled(case)
    text = dumps(check)
    json.loads(text)
    again = compile_guards(loads(text), case.scope(case.value))
    for value in [case.value, *case.refused, *case.taken]:
        assert again(case.scope(value)) is check(case.scope(value)), value
    assert dumps(again) == text
    assert verify(text, case.scope(case.value)) == []


def test_guards_expect_what_was_saved_and_not_what_is_there() -> None:
    text = dumps(compile_guards([Guard(X, GuardBuilder.EQUALS_MATCH)], {"x": 1}))
    check = compile_guards(loads(text), {"x": 2})
    assert check({"x": 1})
    assert not check({"x": 2})
    assert verify(text, {"x": 2}) == ["L['x'] == 1: expected 1, found 2"]


@pytest.mark.parametrize(("kind", "change"), STATES, ids=[kind for kind, _ in STATES])
def test_state_guards_can_be_saved(kind: str, change: Any) -> None:
    again = compile_guards(loads(dumps(compile_guards([state_guard(kind)], {}))), {})
    assert again({})
    with change():
        assert not again({})


def test_users_line_is_kept() -> None:
    from guards import GuardsSet, TracingContext, tracing

    guard = Guard(X, GuardBuilder.EQUALS_MATCH)
    with tracing(TracingContext(None)):
        TracingContext.set_current_loc("model.py", 7, "forward")
        GuardsSet().add(guard)
    again = compile_guards(loads(dumps(compile_guards([guard], {"x": 1}))), {"x": 1})
    explained = again.explain({"x": 2})
    assert explained is not None
    assert str(explained.user_location).startswith("model.py:7 in forward")


def test_identity_is_refused_by_name_and_only_when_saved() -> None:
    point = Point()
    guards = [
        Guard(X, GuardBuilder.ID_MATCH),
        Guard(AttrSource(X, "a"), GuardBuilder.EQUALS_MATCH),
        Guard(LocalSource("d"), GuardBuilder.DICT_KEYS_MATCH),
    ]
    check = compile_guards(guards, {"x": point, "d": {point: 1}})
    with pytest.raises(UnsupportedGuardError) as raised:
        dumps(check)
    second, first = str(raised.value).splitlines()
    assert first.startswith("ID_MATCH on L['x'] cannot be saved: an identity")
    assert second.startswith("DICT_KEYS_MATCH on L['d'] cannot be saved")
    assert set(raised.value.guards) == {guards[0], guards[2]}
    kept = [guard for guard in check.guards if guard not in raised.value.guards]
    assert [guard.name for guard in loads(dumps(kept))] == ["L['x'].a"]


@pytest.mark.parametrize("key", [NAN, complex(0, NAN), (1, NAN), frozenset({NAN})])
def test_nan_as_a_key_is_refused_by_name(key: Any) -> None:
    scope = {"d": {key: 7}, "e": {}}
    guards = [
        Guard(GetItemSource(LocalSource("d"), key), GuardBuilder.EQUALS_MATCH),
        Guard(LocalSource("e"), functools.partial(GuardBuilder.NOT_PRESENT, key=key)),
    ]
    check = compile_guards(guards, scope)
    assert check(scope)
    with pytest.raises(UnsupportedGuardError) as raised:
        dumps(check)
    assert set(raised.value.guards) == set(guards)
    first = str(raised.value).splitlines()[0]
    assert "cannot be saved: a dict finds nan by its identity" in first


@pytest.mark.parametrize("kind", ["DICT_KEYS_MATCH", "EQUALS_MATCH"])
def test_dict_with_nan_as_a_key_is_saved_as_a_whole(kind: str) -> None:
    scope = {"d": {NAN: 7}}
    check = compile_guards([Guard(LocalSource("d"), getattr(GuardBuilder, kind))], scope)
    again = compile_guards(loads(dumps(check)), scope)
    for value, holds in ((float("nan"), True), (1.0, False)):
        assert check({"d": {value: 7}}) is again({"d": {value: 7}}) is holds


def test_text_with_nan_as_a_key_is_refused() -> None:
    source = GetItemSource(LocalSource("d"), 1.5)
    text = dumps(compile_guards([Guard(source, GuardBuilder.EQUALS_MATCH)], {"d": {1.5: 7}}))
    with pytest.raises(SavedGuardsError, match="a dict finds nan by its identity"):
        loads(text.replace((1.5).hex(), "nan"))


def test_guard_that_was_never_compiled_is_refused() -> None:
    with pytest.raises(UnsupportedGuardError, match="compile it with compile_guards first"):
        dumps([Guard(X, GuardBuilder.EQUALS_MATCH)])


def test_check_function_is_no_pickle() -> None:
    with pytest.raises((pickle.PicklingError, AttributeError), match=r"check\(L\) of 1 guards"):
        pickle.dumps(compiled(cases()[0]))


def test_class_that_is_not_at_the_top_of_a_module() -> None:
    class Local:
        pass

    check = compile_guards([Guard(X, GuardBuilder.EQUALS_MATCH)], {"x": Local})
    with pytest.raises(UnsupportedGuardError, match="move the class to the top of a module"):
        dumps(check)


@pytest.mark.parametrize("value", [None, len, str.join, ..., compile, [].append])
def test_class_that_only_the_interpreter_knows(value: Any) -> None:
    for kind in (GuardBuilder.EQUALS_MATCH, GuardBuilder.CONSTANT_MATCH):
        check = compile_guards([Guard(TypeSource(X), kind)], {"x": value})
        again = compile_guards(loads(dumps(check)), {})
        assert again({"x": value})
        assert not again({"x": 1})


class Mine(LocalSource):
    """A source of a front end's own, of which nobody has told the package."""


def test_source_of_ones_own_must_be_registered() -> None:
    check = compile_guards([Guard(Mine("x"), GuardBuilder.EQUALS_MATCH)], {"x": 1})
    with pytest.raises(UnsupportedGuardError, match=r"register it with guards\.saveable"):
        dumps(check)
    with pytest.raises(UnsupportedGuardError, match="another class is already saved"):
        saveable(type("LocalSource", (LocalSource,), {}))


# ── another process ──────────────────────────────────────────────────────────────────────────────

IN_ANOTHER_PROCESS = """
import json, pickle, sys
from guards import compile_guards, loads
texts, seeds = json.load(open(sys.argv[1]))
from tests.guards.kinds import cases
from tests.guards.test_saving import SAVED, mutated
verdicts = []
for case, text in zip(SAVED, texts, strict=True):
    check = compile_guards(loads(text), case.scope(case.value))
    verdicts.append([check(case.scope(mutated(case, seed))) for seed in seeds])
print(json.dumps(verdicts))
"""


def mutated(case: Case, seed: int) -> Any:
    """Change a case's value at random, the same way in every process."""
    rng = random.Random(seed)
    pool = [case.value, *case.refused, *case.taken]
    value = pool[rng.randrange(len(pool))]
    how = rng.randrange(4)
    if isinstance(value, torch.Tensor) and how == 1 and value.layout is torch.strided:
        shape = [rng.randint(0, 4) for _ in range(rng.randint(0, 3))]
        return torch.zeros(shape, dtype=rng.choice([torch.float32, torch.int64]))
    if isinstance(value, dict) and how == 1 and type(value) is dict:
        return dict(list(value.items())[: rng.randint(0, 3)])
    if isinstance(value, list) and how == 1:
        return value[: rng.randint(0, 3)]
    if how == 2 and isinstance(value, int | float | str | tuple | list):
        return copy.copy(value) * 2
    if how == 3:
        return rng.choice([None, 0, 1, True, 1.0, "a", (), [], {}, (1, 2)])
    return value


@pytest.mark.slow
def test_another_process_gives_the_same_verdict_on_a_hundred_inputs(tmp_path: Any) -> None:
    checks = [compiled(case) for case in SAVED]
    seeds = list(range(100))
    path = tmp_path / "guards.json"
    path.write_text(json.dumps([[dumps(check) for check in checks], seeds]))
    done = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS, str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    theirs = json.loads(done.stdout.splitlines()[-1])
    ours = [
        [check(case.scope(mutated(case, seed))) for seed in seeds]
        for case, check in zip(SAVED, checks, strict=True)
    ]
    for case, mine, other in zip(SAVED, ours, theirs, strict=True):
        assert mine == other, str(case)
    assert {True, False} <= {v for verdicts in ours for v in verdicts}


# ── texts that are damaged, newer or hostile ─────────────────────────────────────────────────────

TEXT = dumps(
    compile_guards(
        [
            Guard(GetItemSource(AttrSource(X, "a"), "k"), GuardBuilder.TENSOR_MATCH),
            Guard(LocalSource("y"), GuardBuilder.EQUALS_MATCH),
            Guard(LocalSource("y"), GuardBuilder.TYPE_MATCH),
        ],
        {"x": Point({"k": torch.zeros(2)}), "y": (1, 2.5, {"a": None})},  # type: ignore[arg-type]
    )
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no JSON text"),
        ("{", "no JSON text"),
        ("[" * 100_000, "no JSON text"),
        ("[]", "no set of saved guards"),
        ("{}", "no set of saved guards"),
        ("NaN", "no set of saved guards"),
        ('{"format": "guards", "version": 3, "guards": []}', "update guards to read it"),
        (
            '{"format": "guards", "version": 1, "guards": []}',
            "version 1; this package reads version 2: write them anew, with dumps",
        ),
        ('{"format": "guards", "version": "1", "guards": []}', "saved guards of version '1'"),
        ('{"format": "guards", "version": true, "guards": []}', "saved guards of version True"),
        ('{"format": "guards", "version": 2}', '"guards" must be a list'),
        ('{"format": "guards", "version": 2, "guards": [3]}', "guard 0 must be an object"),
    ],
    ids=range(12),
)
def test_what_is_no_saved_set(text: str, message: str) -> None:
    with pytest.raises(SavedGuardsError, match=message):
        loads(text)


@pytest.mark.parametrize("value", [None, 3, b"\xff\xfe", object()])
def test_what_is_no_text(value: Any) -> None:
    with pytest.raises(SavedGuardsError):
        loads(value)


@pytest.mark.parametrize("name", ["version", "kind", "value"])
def test_name_that_is_said_twice(name: str) -> None:
    check = compile_guards([Guard(X, GuardBuilder.EQUALS_MATCH)], {"x": 4})
    text = dumps(check)
    assert f'"{name}": ' in text
    with pytest.raises(SavedGuardsError, match=f"an object says '{name}' twice"):
        loads(text.replace(f'"{name}": ', f'"{name}": 0, "{name}": ', 1))


def test_truncated_text() -> None:
    for end in range(0, len(TEXT), 7):
        with pytest.raises(SavedGuardsError):
            loads(TEXT[:end])


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    if isinstance(node, dict):
        found += [p for key, part in node.items() for p in places(part, (*path, key))]
    elif isinstance(node, list):
        found += [p for key, part in enumerate(node) for p in places(part, (*path, key))]
    return found


junk = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(),
        st.text(max_size=5),
        st.sampled_from(
            ["os:system", "builtins:eval", "__import__('os').system('x')", "LocalSource",
             "AttrSource", "TensorCheck", "EqualsCheck", "TypeCheck", "float32", "cuda:0",
             "0x1p-3", "torch:Tensor"]
        ),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["int", "float", "tuple", "dict", "class", "enum", "device", "dtype",
                             "singleton", "range", "slice", "check", "sources", "state", "x"]),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=6,
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_changed_text_is_read_or_refused_and_runs_nothing(data: st.DataObject) -> None:
    document = json.loads(TEXT)
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(places(document)[1:]))
        *way, last = path
        node: Any = document
        for key in way:
            node = node[key]
        how = data.draw(st.sampled_from(["replace", "drop", "double"]))
        if how == "replace":
            node[last] = data.draw(junk)
        elif how == "drop":
            del node[last]
        elif isinstance(node, list):
            node.append(node[last])
    modules = set(sys.modules)
    try:
        guards = loads(json.dumps(document))
        check = compile_guards(guards, {})
    except (SavedGuardsError, UnsupportedGuardError):
        return
    finally:
        assert set(sys.modules) == modules
    for scope in ({}, {"x": Point(), "y": 1}, {"x": 3, "y": (1, 2.5, {"a": None})}):
        assert check(scope) is (check.explain(scope) is None)


HOSTILE: list[Callable[[], dict[str, Any]]] = [
    lambda: {"class": "os:system"},
    lambda: {"class": "posix:system"},
    lambda: {"class": "not_imported_anywhere:Thing"},
    lambda: {"enum": ["builtins:eval", "x"]},
    lambda: {"singleton": "__import__"},
    lambda: {"dtype": "load"},
    lambda: {"int": "0x" + "f" * 10**6},
    lambda: {"range": [0, {"int": hex(10**30)}, 0]},
    lambda: {"tuple": [{"tuple": []}] * 3 + [{"pickle": "gASV"}]},
]


@pytest.mark.parametrize("make", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_constant(make: Callable[[], dict[str, Any]]) -> None:
    document = json.loads(TEXT)
    for guard in document["guards"]:
        for check in guard["checks"]:
            if check["check"] == "EqualsCheck":
                check["state"]["value"] = make()
    before = set(sys.modules)
    try:
        check_function = compile_guards(loads(json.dumps(document)), {})
    except SavedGuardsError:
        pass
    else:
        assert not check_function({"y": 1})
    assert set(sys.modules) == before


def test_deeply_nested_constant_is_refused() -> None:
    value: Any = 1
    for _ in range(200):
        value = {"tuple": [value]}
    document = json.loads(TEXT)
    document["guards"][0]["checks"][0]["state"] = {"value": value}
    with pytest.raises(SavedGuardsError):
        loads(json.dumps(document))
