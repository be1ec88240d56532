"""Guards on the members of many sets are checked in one step, with the verdicts of each alone."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
from guards import CheckFunction, Guard, GuardBuilder, LocalSource, compile_guards

COUNT = 60  # so many are checked together
CALLS: list[str] = []


class Hostile(str):
    """A text whose special methods are written down, and lie."""

    def __eq__(self, other: object) -> bool:
        CALLS.append("__eq__")
        return True

    def __hash__(self) -> int:
        CALLS.append("__hash__")
        return str.__hash__(self)


class ChildSet(set[Any]):
    def __iter__(self) -> Any:
        CALLS.append("__iter__")
        return super().__iter__()


def scope_of(cls: Callable[..., Any], members: int) -> dict[str, Any]:
    return {f"s{i}": cls(f"k{i}.{n}" for n in range(members)) for i in range(COUNT)}


def guarded(scope: dict[str, Any]) -> CheckFunction:
    return compile_guards([Guard(LocalSource(k), GuardBuilder.SET_MATCH) for k in scope], scope)


def holds(check: CheckFunction, scope: Any) -> bool:
    """Give the verdict, which must be that of ``explain`` too, and run no code of members."""
    CALLS.clear()
    found = check(scope)
    assert found is (check.explain(scope) is None)
    assert not CALLS
    return found


@pytest.mark.parametrize("cls", [set, frozenset])
@pytest.mark.parametrize("members", [1, 5, 16, 17])
def test_each_set_counts(cls: Callable[..., Any], members: int) -> None:
    scope = scope_of(cls, members)
    check = guarded(scope)
    assert ("zip(" in check.source) is (members <= 16)
    assert holds(check, scope)
    assert holds(check, collections.UserDict(scope))
    assert holds(check, scope_of(cls, members)), "equal members, not the same"
    for key in ("s0", f"s{COUNT - 1}"):
        own = sorted(scope[key])
        assert holds(check, {**scope, key: cls(reversed(own))}), "in another order, maybe"
        others: list[Any] = [cls(own[1:]), cls([*own, "more"]), cls([*own[1:], "another"]), cls()]
        others += [None, own, tuple(own), dict.fromkeys(own), ChildSet(own), cls([*own[1:], 1])]
        others += [frozenset(own) if cls is set else set(own), cls([*own[1:], Hostile(own[0])])]
        for other in others:
            assert not holds(check, {**scope, key: other})
        assert not holds(check, {k: v for k, v in scope.items() if k != key})


def test_members_that_moved_from_one_set_to_the_next() -> None:
    scope: dict[str, Any] = scope_of(set, 2)
    check = guarded(scope)
    first, second = scope["s0"], scope["s1"]
    assert not holds(check, {**scope, "s0": second, "s1": first})
    assert not holds(check, {**scope, "s0": first | second, "s1": set()})


def test_sets_of_both_classes_and_several_sizes() -> None:
    scope: dict[str, Any] = scope_of(set, 2)
    scope |= {f"f{k}": frozenset(v) for k, v in scope.items()}
    scope |= {f"d{k}": set(v) | {"more"} for k, v in scope_of(set, 2).items()}
    check = guarded(scope)
    assert check.source.count("zip(") == 3
    assert holds(check, scope)
    for key in ("s3", "fs3", "ds3"):
        assert not holds(check, {**scope, key: type(scope[key])()})
        assert not holds(check, {**scope, key: scope["s4"]})


def test_members_equal_in_value_and_not_in_type() -> None:
    scope: dict[str, Any] = {f"s{i}": {i, 2.5, None} for i in range(1, COUNT)}
    check = guarded(scope)
    assert holds(check, scope)
    assert holds(check, {k: {*v} for k, v in scope.items()})
    for other in ({True, 2.5, None}, {1.0, 2.5, None}, {1, 2.5, 0}):
        assert not holds(check, {**scope, "s1": other})
