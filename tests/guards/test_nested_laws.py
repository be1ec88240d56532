"""Laws of guards on the parts of nested values, over random changes somewhere inside."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from guards import (
    AttrSource,
    GetItemSource,
    Guard,
    GuardBuilder,
    GuardError,
    LengthSource,
    LocalSource,
    TypeSource,
    ValueSource,
    compile_guards,
    dumps,
    loads,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.guards.kinds import Other, Point

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.sampled_from([0.0, -0.0, 1.0, float("nan"), "a", "b", b"a", torch.float32]),
    st.lists(st.integers(0, 2), max_size=2).map(torch.zeros),
)
nested = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=2).map(tuple),
        st.dictionaries(st.sampled_from(["a", "b", 1]), inner, max_size=3),
        st.builds(Point, inner),
        st.builds(Other, inner),
    ),
    max_leaves=8,
)
KINDS = [
    GuardBuilder.TYPE_MATCH,
    GuardBuilder.EQUALS_MATCH,
    GuardBuilder.CONSTANT_MATCH,
    GuardBuilder.SEQUENCE_LENGTH,
    GuardBuilder.DICT_KEYS_MATCH,
    GuardBuilder.TENSOR_MATCH,
    GuardBuilder.HASATTR,
    GuardBuilder.RANGE_MATCH,
]


def parts(source: ValueSource, value: Any) -> Iterator[tuple[ValueSource, Any]]:
    """Give every place inside a value, parents first."""
    yield source, value
    yield TypeSource(source), type(value)
    if isinstance(value, list | tuple | dict):
        yield LengthSource(source), len(value)
    if isinstance(value, list | tuple):
        for index, part in enumerate(value):
            yield from parts(GetItemSource(source, index), part)
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from parts(GetItemSource(source, key), part)
    elif isinstance(value, Point):
        yield from parts(AttrSource(source, "a"), value.a)


def changed(data: st.DataObject, value: Any) -> Any:
    """Give a copy of a value in which one part, somewhere, is another one or gone."""
    inner = [*value] if isinstance(value, list | tuple | dict) else []
    if not data.draw(st.booleans()) or not (inner or isinstance(value, Point)):
        return data.draw(nested)
    if isinstance(value, Point):
        value.a = changed(data, value.a)
        return value
    if isinstance(value, dict):
        key = data.draw(st.sampled_from(inner))
        if data.draw(st.booleans()):
            value[key] = changed(data, value[key])
        else:
            del value[key]
        return value
    index = data.draw(st.integers(0, len(inner) - 1))
    inner[index : index + 1] = [changed(data, inner[index])] if data.draw(st.booleans()) else []
    return type(value)(inner)


def drawn_guards(data: st.DataObject, scope: dict[str, Any]) -> list[Guard]:
    places = [place for name, value in scope.items() for place in parts(LocalSource(name), value)]
    guards = []
    for source, _ in data.draw(st.lists(st.sampled_from(places), min_size=1, max_size=8)):
        guard = Guard(source, data.draw(st.sampled_from(KINDS)))
        try:
            compile_guards([guard], scope)
        except GuardError:
            continue  # the kind does not fit what is there
        guards.append(guard)
    return guards


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_guards_on_parts(data: st.DataObject) -> None:
    scope: dict[str, Any] = {"x": data.draw(nested), "y": data.draw(nested)}
    for source, value in (p for name in scope for p in parts(LocalSource(name), scope[name])):
        assert source.get(scope) is value or source.get(scope) == value
    guards = drawn_guards(data, scope)
    check = compile_guards(guards, scope)
    assert check(scope)
    assert check.explain(scope) is None
    other = copy.deepcopy(scope)
    name = data.draw(st.sampled_from(["x", "y"]))
    other[name] = changed(data, other[name])
    explained = check.explain(other, all=True)
    alone = {}
    for guard in check.guards:
        single = compile_guards([guard], scope)
        alone[guard] = single.explain(other)
        assert single(other) is (alone[guard] is None)
    # False where a guard fails, and then for just those: none is left out, none that holds named.
    failing = [str(found) for found in alone.values() if found is not None]
    assert check(other) is (not failing)
    assert ([str(f) for f in explained.failures] if explained is not None else []) == failing
    again = compile_guards(loads(dumps(check)), other)
    for values in (scope, other):
        assert again(values) is check(values)
        mine, theirs = check.explain(values, all=True), again.explain(values, all=True)
        assert (mine is None) is (theirs is None)
        if mine is not None and theirs is not None:
            assert len(theirs.failures) == len(mine.failures)
            json.loads(theirs.to_json())
