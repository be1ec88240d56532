"""Relations between sizes, as a person writes them and as sympy prints them."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import sympy  # type: ignore[import-untyped]  # torch brings it
import torch
from guards import (
    CheckFunction,
    GlobalStateSource,
    Guard,
    GuardBuilder,
    LocalSource,
    TensorPropertySource,
    UnsupportedGuardError,
    compile_guards,
)

X = LocalSource("x")
SYMBOLS = {name: TensorPropertySource(X, "size", dim) for dim, name in enumerate("abc")}


def related(relation: Any, *sizes: int) -> CheckFunction:
    create = partial(GuardBuilder.SHAPE_RELATION, relation=relation, symbols=SYMBOLS)
    return compile_guards([Guard(GlobalStateSource(), create)], {"x": torch.empty(sizes)})


def holds(check: CheckFunction, *sizes: int) -> bool:
    scope = {"x": torch.empty(sizes)}
    verdict = check(scope)
    assert verdict is (check.explain(scope) is None)
    return verdict


@pytest.mark.parametrize(
    ("relation", "sizes", "others"),
    [
        ("a == b", (2, 2, 1), (2, 3, 1)),
        ("a == 2 * b", (4, 2, 1), (4, 3, 1)),
        ("a**2 == b", (3, 9, 1), (3, 6, 1)),
        ("a < b < c", (1, 2, 3), (1, 2, 2)),
        ("Max(a, b, c) == 3", (1, 3, 2), (1, 4, 2)),
        ("Mod(a, b) == 1", (5, 2, 1), (4, 2, 1)),
        ("FloorDiv(a, b) == 2", (5, 2, 1), (7, 2, 1)),
        ("a // b == 2 or a % b == 0", (6, 2, 1), (7, 2, 1)),
        ("Eq(a, b) & Ne(b, c)", (2, 2, 3), (2, 2, 2)),
        ("~Eq(a, b)", (2, 3, 1), (2, 2, 1)),
        ("~(Eq(a, b) & Eq(b, c))", (2, 2, 3), (2, 2, 2)),
        ("not (a == b and b == c)", (2, 2, 3), (2, 2, 2)),
    ],
)
def test_relation(relation: str, sizes: tuple[int, ...], others: tuple[int, ...]) -> None:
    check = related(relation, *sizes)
    assert holds(check, *sizes)
    assert not holds(check, *others)
    assert not holds(check, sizes[0])
    with pytest.raises(UnsupportedGuardError, match="does not hold now"):
        related(relation, *others)


@pytest.mark.parametrize(
    "make",
    [
        lambda a, b, c: sympy.Eq(a * b, c**2),
        lambda a, b, c: sympy.And(sympy.Eq(a, b), sympy.Ne(b, c)),
        lambda a, b, c: sympy.Not(sympy.And(sympy.Eq(a, b), sympy.Eq(b, c))),
        lambda a, b, c: sympy.Or(a > b, sympy.Le(2 * b, c - 1)),
        lambda a, b, c: sympy.Max(a, b, c) <= a + 1,
        lambda a, b, c: sympy.Eq(sympy.Mod(a, 2), 0),
    ],
)
def test_relation_that_sympy_prints(make: Any) -> None:
    a, b, c = sympy.symbols("a b c", integer=True, positive=True)
    expression = make(a, b, c)
    verdicts = set()
    kept = None
    for sizes in [(x, y, z) for x in range(1, 5) for y in range(1, 5) for z in range(1, 5)]:
        wanted = bool(expression.subs(dict(zip((a, b, c), sizes, strict=True))))
        if wanted and kept is None:
            kept = related(expression, *sizes)
    assert kept is not None
    for sizes in [(x, y, z) for x in range(1, 5) for y in range(1, 5) for z in range(1, 5)]:
        wanted = bool(expression.subs(dict(zip((a, b, c), sizes, strict=True))))
        assert holds(kept, *sizes) is wanted, sizes
        verdicts.add(wanted)
    assert verdicts == {True, False}


@pytest.mark.parametrize(
    "relation",
    [
        "a ** b == 1", "a ** 9 == 1", "2 ** a == 4", "(a ** 8) ** 8 == 1", "a ** -1 == 1",
        "a ** 2.0 == 1", "9 ** 8 == a", "a << 9 == 1", "Max(*a) == 1", "Max(a) == 1",
        "Mod(a, b, c) == 1", "Max(a, b=1) == 1", "a.real == 1", "[a] == 1", "a == 'x'", "d == 1",
        "lambda: a", "(a := 1) == 1", "a if b else c", "a in b", "f'{a}'", "a[0] == 1",
    ],
)  # fmt: skip
def test_what_is_no_relation_of_sizes_is_refused(relation: str) -> None:
    with pytest.raises(UnsupportedGuardError, match="write comparisons of whole numbers"):
        related(relation, 1, 1, 1)
