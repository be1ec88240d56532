"""What a check says about the guard that does not hold: golden texts, one for each kind."""

# ruff: noqa: E501  # a text that is compared stays in one piece

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from guards import (
    AttrSource,
    GetItemSource,
    GlobalStateSource,
    Guard,
    GuardBuilder,
    LengthSource,
    LocalSource,
    compile_guards,
)

from tests.guards.kinds import BASE, T34, Case, Color, Point, X, Y, double, tensor, triple


@pytest.mark.parametrize(
    ("case", "value", "text"),
    [
        (
            Case("TYPE_MATCH", 1, []),
            True,
            "L['x'] is of type int: expected of type int, found of type bool",
        ),
        (Case("ID_MATCH", None, []), 0, "L['x'] is None: expected None, found 0"),
        (Case("EQUALS_MATCH", 1, []), 1.0, "L['x'] == 1: expected 1, found 1.0"),
        (Case("EQUALS_MATCH", -0.0, []), 0.0, "L['x'] == -0.0: expected -0.0, found 0.0"),
        (
            Case("EQUALS_MATCH", Color.RED, []),
            "RED",
            "L['x'] == Color.RED: expected Color.RED, found 'RED'",
        ),
        (Case("CONSTANT_MATCH", "a", []), b"a", "L['x'] == 'a': expected 'a', found b'a'"),
        (Case("NONE_MATCH", None, []), (), "L['x'] is None: expected None, found ()"),
        (Case("BOOL_MATCH", True, []), 1, "L['x'] is True: expected True, found 1"),
        (
            Case("SEQUENCE_LENGTH", [1, 2], []),
            [1],
            "len(L['x']) == 2: expected of length 2, found of length 1",
        ),
        (
            Case("DICT_KEYS_MATCH", {"a": 1}, []),
            {"a": 1, "b": 2},
            "L['x'] is a dict with keys ['a']: expected a dict with keys ['a'], "
            "found a dict with keys ['a', 'b']",
        ),
        (
            Case("SET_MATCH", {1, 2}, []),
            {1, 3},
            "L['x'] is {1, 2}: expected {1, 2}, found {1, 3}, without 2 and with 3",
        ),
        (
            Case("NOT_PRESENT", {}, [], options={"key": "k"}),
            {"k": 1},
            "L['x'] is without key 'k': expected without key 'k', found with it",
        ),
        (
            Case("RANGE_MATCH", 5, [], options={"low": 1, "high": 8}),
            9,
            "L['x'] is an int from 1 up to 8: expected an int from 1 up to 8, found 9",
        ),
        (
            Case("FUNCTION_MATCH", double, []),
            triple,
            "L['x'] is function tests.guards.kinds.double with the same code: expected function "
            "tests.guards.kinds.double with the same code, found function tests.guards.kinds.triple",
        ),
        (
            Case("TENSOR_MATCH", T34, []),
            tensor(3, 5),
            "L['x'] is a tensor like the one that was traced: expected size [3, 4], stride [4, 1], "
            "found size [3, 5], stride [5, 1]",
        ),
        (
            Case("TENSOR_MATCH", T34, [], options={"dynamic_sizes": [0]}),
            tensor(7, 4, dtype=torch.float64),
            "L['x'] is a tensor like the one that was traced: expected dtype float32, found dtype float64",
        ),
        (
            Case("DUPLICATE_INPUT", T34, [], options={"source_b": Y}, more={"y": T34}),
            tensor(3, 4),
            "L['x'] is L['y']: expected the same object, found two objects",
        ),
        (
            Case(
                "STORAGE_OVERLAP",
                BASE[:4],
                [],
                options={"overlapping": [], "non_overlapping": [X, Y]},
                more={"y": BASE[5:]},
            ),
            BASE[:6],
            "memory of L['x'], L['y'] is its own: expected no memory shared with the others, "
            "found memory shared by L['x'], L['y']",
        ),
        (
            Case(
                "SHAPE_RELATION",
                [1, 2],
                [],
                options={"relation": "a >= 2", "symbols": {"a": LengthSource(X)}},
            ),
            [1],
            "len(L['x']) >= 2: expected len(L['x']) >= 2, found len(L['x']) is 1",
        ),
        (
            Case("EQUALS_MATCH", {"k": 1}, [], source=GetItemSource(X, "k")),
            {},
            "L['x']['k'] == 1: expected 1, found L['x']['k'] missing",
        ),
        (
            Case("EQUALS_MATCH", Point(), [], source=AttrSource(X, "a")),
            3,
            "L['x'].a == 1: expected 1, found L['x'].a missing",
        ),
    ],
    ids=lambda value: getattr(value, "__name__", None) or str(value),
)
def test_one_line_a_person_understands(case: Case, value: Any, text: str) -> None:
    check = compile_guards([case.guard()], case.scope(case.value))
    explained = check.explain(case.scope(value))
    assert str(explained) == text
    assert explained is not None
    assert json.loads(explained.to_json()) == {
        "code": explained.code,
        "expression": explained.expression,
        "expected": explained.expected,
        "actual": explained.actual,
        "user_location": None,
    }


def test_state_of_torch_is_named_where_it_is_the_cause() -> None:
    scope = {"x": torch.zeros(2)}
    check = compile_guards([Guard(X, GuardBuilder.TENSOR_MATCH)], scope)
    with torch.inference_mode():
        assert str(check.explain(scope)).endswith(
            ": expected inference_mode is off, found inference_mode is on"
        )
    with torch.autocast("cpu"):
        assert str(check.explain(scope)).endswith(
            ": expected autocast is off for cpu, found autocast is on for cpu"
        )


def test_grad_mode_in_one_line() -> None:
    check = compile_guards([Guard(GlobalStateSource(), GuardBuilder.GRAD_MODE)], {})
    with torch.no_grad():
        assert str(check.explain({})) == "grad mode: expected on, found off"


def test_lazy_conjugate_in_english() -> None:
    plain = torch.zeros(2, dtype=torch.cfloat)
    check = compile_guards([Guard(X, GuardBuilder.TENSOR_MATCH)], {"x": plain})
    assert str(check.explain({"x": plain.conj()})).endswith(
        "expected not a lazy conjugate, found a lazy conjugate"
    )


def test_failures_are_in_one_order() -> None:
    guards = [Guard(LocalSource(name), GuardBuilder.EQUALS_MATCH) for name in ("long", "b", "a")]
    check = compile_guards(guards, {"a": 1, "b": 1, "long": 1})
    explained = check.explain({"a": 2, "b": 2, "long": 2}, all=True)
    assert explained is not None
    assert [f.expression for f in explained.failures] == [
        "L['a'] == 1",
        "L['b'] == 1",
        "L['long'] == 1",
    ]
