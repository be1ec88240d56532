"""Which changes of a schema break its callers."""

from __future__ import annotations

import pytest
from opspec.diff_schemas import accepts, compare_schemas
from opspec.schema import parse_schema, parse_type

BREAK = "callers break"
UNAFFECTED = "callers unaffected"


def compared(old: str, new: str) -> list[tuple[str, str]]:
    findings = compare_schemas(parse_schema(old), parse_schema(new))
    return [(BREAK if finding.breaks else UNAFFECTED, finding.text) for finding in findings]


CASES: dict[str, tuple[str, str, list[tuple[str, str]]]] = {
    "nothing": ("f(Tensor a, int b=1) -> Tensor", "f(Tensor a, int b=1) -> Tensor", []),
    "removed": (
        "f(Tensor a, int b) -> Tensor",
        "f(Tensor a) -> Tensor",
        [(BREAK, "parameter 'b' is gone")],
    ),
    "renamed": (
        "f(Tensor a, int dim) -> Tensor",
        "f(Tensor a, int axis) -> Tensor",
        [(BREAK, "parameter 'dim' is called 'axis' now")],
    ),
    "keyword-only renamed": (
        "f(Tensor a, *, int dim=0) -> Tensor",
        "f(Tensor a, *, int axis=0) -> Tensor",
        [(BREAK, "parameter 'dim' is called 'axis' now")],
    ),
    "another in its place": (
        "f(Tensor a, int dim) -> Tensor",
        "f(Tensor a, str mode) -> Tensor",
        [
            (BREAK, "parameter 'dim' is gone"),
            (BREAK, "new parameter 'str mode', which every call must give"),
        ],
    ),
    "reordered": (
        "f(Tensor a, int b, int c) -> Tensor",
        "f(Tensor a, int c, int b) -> Tensor",
        [(BREAK, "positional parameters in another order: (a, b, c), now (a, c, b)")],
    ),
    "keyword-only reordered": (
        "f(Tensor a, *, int b=0, int c=0) -> Tensor",
        "f(Tensor a, *, int c=0, int b=0) -> Tensor",
        [(UNAFFECTED, "keyword-only parameters in another order: (b, c), now (c, b)")],
    ),
    "narrower": (
        "f(Tensor? a) -> Tensor",
        "f(Tensor a) -> Tensor",
        [(BREAK, "'a' is Tensor instead of Tensor?, which does not take all of those")],
    ),
    "wider": (
        "f(Tensor a, int b) -> Tensor",
        "f(Tensor? a, SymInt b) -> Tensor",
        [
            (UNAFFECTED, "'a' is Tensor? instead of Tensor, which takes those too"),
            (UNAFFECTED, "'b' is SymInt instead of int, which takes those too"),
        ],
    ),
    "a single value no longer stands for a list": (
        "f(Tensor a, int[2] b) -> Tensor",
        "f(Tensor a, SymInt[2] b) -> Tensor",
        [(BREAK, "'b' is SymInt[2] instead of int[2], which does not take all of those")],
    ),
    "default lost": (
        "f(Tensor a, int b=1) -> Tensor",
        "f(Tensor a, int b) -> Tensor",
        [(BREAK, "'b' has no default now: every call must give it")],
    ),
    "default gained": (
        "f(Tensor a, int b) -> Tensor",
        "f(Tensor a, int b=1) -> Tensor",
        [(UNAFFECTED, "'b' has a default now, and may be left out")],
    ),
    "default changed": (
        "f(Tensor a, float b=1e-5) -> Tensor",
        "f(Tensor a, float b=1e-6) -> Tensor",
        [(BREAK, "who leaves out 'b' gets 1e-06 instead of 1e-05")],
    ),
    "default of another kind": (
        "f(Tensor a, Scalar b=1) -> Tensor",
        "f(Tensor a, Scalar b=1.0) -> Tensor",
        [(BREAK, "who leaves out 'b' gets 1.0 instead of 1")],
    ),
    "positional becomes keyword-only": (
        "f(Tensor a, int b=1) -> Tensor",
        "f(Tensor a, *, int b=1) -> Tensor",
        [(BREAK, "'b' must be passed by keyword now")],
    ),
    "keyword-only becomes positional": (
        "f(Tensor a, *, int b=1) -> Tensor",
        "f(Tensor a, int b=1) -> Tensor",
        [(UNAFFECTED, "'b' may be passed by position now, and handlers receive it so")],
    ),
    "keyword-only becomes positional in the middle": (
        "f(Tensor a, int c=1, *, int b=1) -> Tensor",
        "f(Tensor a, int b=1, int c=1) -> Tensor",
        [
            (BREAK, "'b' stands before 'c', which moves to another position"),
            (UNAFFECTED, "'b' may be passed by position now, and handlers receive it so"),
        ],
    ),
    "new required": (
        "f(Tensor a) -> Tensor",
        "f(Tensor a, int b) -> Tensor",
        [(BREAK, "new parameter 'int b', which every call must give")],
    ),
    "new required keyword": (
        "f(Tensor a) -> Tensor",
        "f(Tensor a, *, int b) -> Tensor",
        [(BREAK, "new parameter 'int b', which every call must give")],
    ),
    "new optional at the end": (
        "f(Tensor a) -> Tensor",
        "f(Tensor a, int b=1, *, int c=2) -> Tensor",
        [
            (UNAFFECTED, "new parameter 'int b=1', which may be left out"),
            (UNAFFECTED, "new parameter 'int c=2', which may be left out"),
        ],
    ),
    "new optional in the middle": (
        "f(Tensor a, str c='x') -> Tensor",
        "f(Tensor a, int b=1, str c='x') -> Tensor",
        [
            (BREAK, "'b' stands before 'c', which moves to another position"),
            (UNAFFECTED, "new parameter 'int b=1', which may be left out"),
        ],
    ),
    "fewer results": (
        "f(Tensor a) -> (Tensor, Tensor)",
        "f(Tensor a) -> Tensor",
        [(BREAK, "one result instead of 2 results")],
    ),
    "no result": (
        "f(Tensor a) -> Tensor",
        "f(Tensor a) -> ()",
        [(BREAK, "no result instead of one result")],
    ),
    "result of another type": (
        "f(Tensor a) -> (Tensor, int)",
        "f(Tensor a) -> (Tensor, SymInt)",
        [(BREAK, "result 1 is SymInt instead of int")],
    ),
    "result renamed": (
        "f(Tensor a) -> (Tensor q, Tensor r)",
        "f(Tensor a) -> (Tensor Q, Tensor)",
        [
            (UNAFFECTED, "result 0 is called Q instead of q; torch.ops has no names"),
            (UNAFFECTED, "result 1 is called without a name instead of r; torch.ops has no names"),
        ],
    ),
    "written now": (
        "f(Tensor a) -> Tensor",
        "f(Tensor(a!) a) -> Tensor",
        [(BREAK, "'a' is written now")],
    ),
    "not written any more": (
        "f(Tensor(a!) a) -> Tensor(a!)",
        "f(Tensor a) -> Tensor",
        [
            (BREAK, "'a' is not written any more"),
            (BREAK, "the result has memory of its own instead of that of 'a'"),
        ],
    ),
    "a view now": (
        "f(Tensor a) -> Tensor",
        "f(Tensor(a) a) -> Tensor(a)",
        [(BREAK, "the result shares the memory of 'a' instead of memory of its own")],
    ),
    "shares with another": (
        "f(Tensor(a) a, Tensor b) -> Tensor(a)",
        "f(Tensor a, Tensor(a) b) -> Tensor(a)",
        [(BREAK, "the result shares the memory of 'b' instead of that of 'a'")],
    ),
    "written and renamed": (
        "f(Tensor(a!) self) -> Tensor(a!)",
        "f(Tensor(a!) input) -> Tensor(a!)",
        [(BREAK, "parameter 'self' is called 'input' now")],
    ),
    "other letters": (
        "f(Tensor(a!) x, Tensor(b!) y) -> (Tensor(a!), Tensor(b!))",
        "f(Tensor(c!) x, Tensor(a!) y) -> (Tensor(c!), Tensor(a!))",
        [],
    ),
    "vararg": (
        "f(Tensor a) -> Tensor",
        "f(Tensor a, ...) -> Tensor",
        [(BREAK, "`...` stands in one of the two only")],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_change(case: str) -> None:
    old, new, expected = CASES[case]
    assert compared(old, new) == expected


@pytest.mark.parametrize("case", CASES)
def test_a_schema_does_not_differ_from_itself(case: str) -> None:
    old, new, _ = CASES[case]
    assert compared(old, old) == []
    assert compared(new, new) == []


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ("int", "bool"),
        ("SymInt", "int"),
        ("float", "int"),
        ("Scalar", "float"),
        ("Scalar", "SymInt"),
        ("Any", "Dict(str, Tensor)"),
        ("int?", "int"),
        ("float?", "int?"),
        ("SymInt[]", "int[]"),
        ("int[2]", "int[]"),
        ("int[3]", "int[2]"),
        ("Tensor?[]", "Tensor[]"),
        ("SymInt[]?", "int[]"),
    ],
)
def test_a_wider_type_accepts(new: str, old: str) -> None:
    assert accepts(parse_type(new), parse_type(old))
    assert not accepts(parse_type(old), parse_type(new)) or "[" in new


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ("int", "float"),
        ("int", "SymInt"),
        ("Tensor", "Tensor?"),
        ("Tensor", "Scalar"),
        ("int[]", "int[2]"),
        ("SymInt[2]", "int[2]"),
        ("int[]", "SymInt[]"),
        ("Tensor[]", "Tensor"),
        ("str", "int"),
        ("Dict(str, int)", "Dict(str, float)"),
    ],
)
def test_another_type_does_not_accept(new: str, old: str) -> None:
    assert not accepts(parse_type(new), parse_type(old))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schema", "argument", "taken"),
    [
        ("int[2] b", 1, True),
        ("SymInt[2] b", 1, False),
        ("int[] b", 1, False),
        ("int b", True, True),
        ("int b", 1.5, False),
        ("float b", 1, True),
        ("Tensor? b", None, True),
        ("Scalar b", 2.5, True),
        ("bool b", "x", False),
    ],
)
def test_torch_takes_what_accepts_supposes(schema: str, argument: object, taken: bool) -> None:
    import torch

    with torch.library._scoped_library("opspec_diff_test", "FRAGMENT") as library:
        library.define(f"takes({schema}) -> ()")
        library.impl("takes", lambda b: None, "CompositeExplicitAutograd")
        if taken:
            torch.ops.opspec_diff_test.takes.default(argument)
        else:
            with pytest.raises((RuntimeError, TypeError)):
                torch.ops.opspec_diff_test.takes.default(argument)
