"""Values whose every special method raises: no source and no kind of guard runs one of them."""

from __future__ import annotations

import functools
import json
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from guards import (
    AttrSource,
    CellContentsSource,
    ConstDictKeySource,
    DefaultsSource,
    GetItemSource,
    Guard,
    GuardBuilder,
    GuardError,
    LengthSource,
    LocalSource,
    ParamBufferSource,
    TensorPropertySource,
    TypeSource,
    ValueSource,
    compile_guards,
)

from tests.guards.kinds import Case, X, cases

CALLS: list[str] = []
NAMES = (
    "__eq__ __ne__ __len__ __getattr__ __getattribute__ __getitem__ __iter__ __bool__ __repr__ "
    "__str__ __contains__ __hash__ __call__ __index__ __float__ __int__ __lt__ __le__ __gt__ "
    "__ge__ __format__ __reversed__ __add__ __radd__ __mod__ keys items values"
)


def raising(name: str) -> Callable[..., Any]:
    def method(*args: Any, **options: Any) -> Any:
        CALLS.append(name)
        raise RuntimeError(f"{name} was run")

    return method


def subclass_of(base: type) -> type:
    return type(f"Hostile{base.__name__}", (base,), {name: raising(name) for name in NAMES.split()})


class HostileMeta(type):
    """A metaclass that raises for whatever its classes are asked."""

    __getattribute__ = raising("getattribute of the metaclass")
    __eq__ = raising("eq of the metaclass")
    __hash__ = raising("hash of the metaclass")
    __instancecheck__ = raising("instancecheck of the metaclass")
    __subclasscheck__ = raising("subclasscheck of the metaclass")


class OfHostileMeta(metaclass=HostileMeta):
    pass


def hostile_values() -> list[Any]:
    bases = (object, dict, list, tuple, str, int, float, set, frozenset, bytes, Exception)
    values: list[Any] = [base.__new__(subclass_of(base)) for base in bases]
    values.append(torch.ones(2).as_subclass(subclass_of(torch.Tensor)))
    module = subclass_of(torch.nn.Module)
    values.append(object.__new__(module))
    values.append(object.__new__(OfHostileMeta))
    values.append(OfHostileMeta)
    return values


WRAPPED: list[Callable[[Any], Any]] = [
    lambda value: value,
    lambda value: [value],
    lambda value: {"a": value},
    lambda value: (value, 1),
]
SOURCES: list[ValueSource] = [
    AttrSource(X, "a"), AttrSource(X, "__dict__"), AttrSource(X, "__class__"),
    GetItemSource(X, 0), GetItemSource(X, "a"), GetItemSource(X, slice(0, 1)),
    ConstDictKeySource(X, 0), LengthSource(X), TypeSource(X), CellContentsSource(X, "c"),
    DefaultsSource(X, 0), DefaultsSource(X, "k"), ParamBufferSource(X, "w"),
    ParamBufferSource(X, "a.w"), TensorPropertySource(X, "size", 0),
    TensorPropertySource(X, "stride", 0), TensorPropertySource(X, "storage_offset"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_is_run() -> Any:
    CALLS.clear()
    yield
    assert CALLS == []


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_source_runs_nothing(source: ValueSource) -> None:
    for value in hostile_values():
        CALLS.clear()  # making one may ask it something
        source.lookup({"x": value}, {})
        assert CALLS == []


@pytest.mark.parametrize("case", cases(), ids=str)
def test_kind_runs_nothing(case: Case) -> None:
    check = compile_guards([case.guard()], case.scope(case.value))
    values = hostile_values()
    CALLS.clear()
    for value in values:
        for wrap in WRAPPED:
            scope = case.scope(wrap(value))
            explained = check.explain(scope, all=True)
            assert check(scope) is (explained is None)
            if explained is not None:
                json.loads(explained.to_json())


@pytest.mark.parametrize("case", cases(), ids=str)
def test_guard_is_made_of_it_or_refused(case: Case) -> None:
    values = hostile_values()
    CALLS.clear()
    for value in values:
        try:
            check = compile_guards([case.guard()], case.scope(value))
        except GuardError:
            continue
        assert check(case.scope(value))


class Loud(dict[str, int]):
    """A dict that must not be asked."""

    def __getitem__(self, key: str) -> int:
        raise SystemExit(3)

    def __len__(self) -> int:
        raise SystemExit(4)

    def __iter__(self) -> Any:
        raise SystemExit(5)


@pytest.mark.parametrize("count", [1, 12])
@pytest.mark.parametrize(
    ("source", "create"),
    [
        (lambda base: GetItemSource(base, "a"), GuardBuilder.EQUALS_MATCH),
        (lambda base: base, GuardBuilder.SEQUENCE_LENGTH),
        (lambda base: base, functools.partial(GuardBuilder.DICT_KEYS_MATCH, ordered=False)),
    ],
)
def test_mapping_behind_a_proxy_is_not_asked(source: Any, create: Any, count: int) -> None:
    scope: dict[str, Any] = {f"v{number}": {"a": 1} for number in range(count)}
    check = compile_guards([Guard(source(LocalSource(name)), create) for name in scope], scope)
    hostile = {**scope, "v0": types.MappingProxyType(Loud(a=1))}
    assert check(hostile) is False
    assert check.explain(hostile) is not None


def test_dict_of_an_object_that_is_of_a_subclass() -> None:
    class Plain:
        def __init__(self) -> None:
            self.a = 1

    check = compile_guards(
        [Guard(AttrSource(LocalSource("v"), "a"), GuardBuilder.EQUALS_MATCH)], {"v": Plain()}
    )
    value = Plain()
    for number in (1, 2):
        value.__dict__ = Loud(a=number)
        assert check({"v": value}) is (check.explain({"v": value}) is None) is (number == 1)
