"""A saved guard whose parts do not go together is refused when it is read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from guards import (
    Guard,
    GuardBuilder,
    LocalSource,
    SavedGuardsError,
    UnsupportedGuardError,
    _saving,
    compile_guards,
    dumps,
    loads,
    verify,
)
from guards._checks import TypeCheck

from tests.guards.kinds import X, cases, state_guard
from tests.guards.test_saving import SAVED, compiled

OTHER = [["LocalSource", {"local_name": "other"}]]
OF_SEVERAL = ("STORAGE_OVERLAP", "SHAPE_RELATION")
ONE_OF_EACH = [*{case.kind: case for case in SAVED}.values()]


def saved(guard: Guard, L: Any) -> Any:
    return json.loads(dumps(compile_guards([guard], L)))


def refusal(document: Any) -> str:
    text = json.dumps(document)
    for read in (loads, lambda text: verify(text, {"x": 1})):
        with pytest.raises(SavedGuardsError) as caught:
            read(text)
    return str(caught.value)


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=lambda case: case.kind)
def test_check_of_another_source_is_refused(case: Any) -> None:
    document = json.loads(dumps(compiled(case)))
    (guard,) = document["guards"]
    if case.kind in OF_SEVERAL:
        guard["source"] = OTHER  # such a guard may sit anywhere
        assert [g.name for g in loads(json.dumps(document))] == ["L['other']"]
        return
    name = loads(json.dumps(document))[0].name
    guard["source"] = OTHER
    text = refusal(document)
    assert text.startswith(
        f"guard 0: {case.kind} on L['other'] contradicts itself: its check is about "
    )
    assert name in text


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=lambda case: case.kind)
def test_check_of_another_kind_is_refused(case: Any) -> None:
    document = json.loads(dumps(compiled(case)))
    other = "NONE_MATCH" if case.kind != "NONE_MATCH" else "BOOL_MATCH"
    document["guards"][0]["kind"] = other
    text = refusal(document)
    assert f"{other} on " in text
    assert "contradicts itself: its check is a " in text


@pytest.mark.parametrize("kind", _saving._STATES)
def test_check_of_another_part_of_the_state_is_refused(kind: str) -> None:
    document = saved(state_guard(kind), {})
    other = next(name for name in _saving._STATES if name != kind)
    document["guards"][0]["kind"] = other
    assert refusal(document) == (
        f"guard 0: {other} on torch contradicts itself: its check is one of {kind}"
    )


def test_two_checks_of_one_guard_are_refused() -> None:
    document = saved(Guard(X, GuardBuilder.EQUALS_MATCH), {"x": 1})
    document["guards"][0]["checks"] *= 2
    assert refusal(document) == (
        "guard 0: EQUALS_MATCH on L['x'] contradicts itself: it has 2 checks, not one"
    )


def test_kind_of_ones_own_may_do_what_it_likes() -> None:
    def TWO_TYPES(builder: GuardBuilder, guard: Guard) -> None:
        for source in (X, LocalSource("y")):
            builder.add(guard, TypeCheck(source, int))

    text = dumps(compile_guards([Guard(X, TWO_TYPES)], {"x": 1, "y": 2}))
    assert verify(text, {"x": 1, "y": 2}) == []


def test_kind_of_ones_own_by_a_name_of_another_is_not_saved() -> None:
    def TYPE_MATCH(builder: GuardBuilder, guard: Guard) -> None:
        builder.add(guard, TypeCheck(LocalSource("y"), int))

    check = compile_guards([Guard(X, TYPE_MATCH)], {"x": 1, "y": 2})
    with pytest.raises(UnsupportedGuardError) as caught:
        dumps(check)
    assert str(caught.value) == (
        "TYPE_MATCH on L['x'] cannot be saved: its check is about L['y'] is of type int, as no "
        "TYPE_MATCH of GuardBuilder's; give a create function of your own another name"
    )


def test_what_holds_is_verified_with_one_check(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def counting(*arguments: Any) -> Any:
        made.append(arguments)
        return compile_guards(*arguments)

    guards = [Guard(LocalSource(f"v{n}"), GuardBuilder.EQUALS_MATCH) for n in range(20)]
    L = {f"v{n}": n for n in range(20)}
    text = dumps(compile_guards(guards, L))
    monkeypatch.setattr(_saving, "compile_guards", counting)
    assert verify(text, L) == []
    assert len(made) == 1
    assert verify(text, {**L, "v3": 4}) == ["L['v3'] == 3: expected 3, found 4"]


def test_every_kind_is_known() -> None:
    kinds = {case.kind for case in cases()} | {*_saving._STATES}
    assert kinds == {*_saving._CHECKS_OF_KINDS}
