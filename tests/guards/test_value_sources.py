"""Sources that can be evaluated: what they are called, what they lead to, and at what cost."""

from __future__ import annotations

import collections
import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from guards import (
    AttrSource,
    CellContentsSource,
    ChainedValueSource,
    ConstantSource,
    ConstDictKeySource,
    DefaultsSource,
    GetItemSource,
    GlobalSource,
    GlobalStateSource,
    Guard,
    GuardBuilder,
    GuardSource,
    LengthSource,
    LocalSource,
    MissingValueError,
    ParamBufferSource,
    TensorPropertySource,
    TypeSource,
    UnsupportedGuardError,
    ValueSource,
    compile_guards,
)
from torch import nn

from tests.guards.kinds import Color

X = LocalSource("x")


class Slotted:
    __slots__ = ("a",)

    def __init__(self) -> None:
        self.a = 5


class Plain:
    in_class = (1, 2)

    def __init__(self) -> None:
        self.a = {"b": [7, 8]}


def closing_over(a: Any, b: Any) -> Any:
    def inner() -> Any:
        return a, b

    return inner


def nested() -> Any:
    deep = [1]

    def middle() -> Any:
        def inner() -> Any:
            return deep

        return inner

    return middle()


def defaults(a: Any = 3, b: Any = "x", *, key: Any = (1,)) -> Any:
    return a, b, key


KEY = object()
NET = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.BatchNorm1d(3)))
SCOPE: dict[str, Any] = {
    "x": Plain(),
    "s": Slotted(),
    "d": {"k": 1, 2: "two", KEY: 3, (1, "t"): 4, Color.RED: 5, None: 6},
    "o": collections.OrderedDict(z=1, y=2),
    "l": [10, [20]],
    "t": torch.zeros(3, 4),
    "f": closing_over([1], 2),
    "g": nested(),
    "h": defaults,
    "n": NET,
    "odd name": SimpleNamespace(**{"class": 1}),
}
GLOBALS = {"x": 100, "m": torch}

D, N, T = LocalSource("d"), LocalSource("n"), LocalSource("t")
EXPRESSIONS: list[tuple[ValueSource, str]] = [
    (X, "L['x']"),
    (GlobalSource("x"), "G['x']"),
    (LocalSource("odd name"), "L['odd name']"),
    (AttrSource(LocalSource("odd name"), "class"), "getattr(L['odd name'], 'class')"),
    (AttrSource(X, "a"), "L['x'].a"),
    (AttrSource(X, "in_class"), "L['x'].in_class"),
    (AttrSource(LocalSource("s"), "a"), "L['s'].a"),
    (AttrSource(GlobalSource("m"), "float32"), "G['m'].float32"),
    (AttrSource(N, "0"), "getattr(L['n'], '0')"),
    (GetItemSource(GetItemSource(AttrSource(X, "a"), "b"), -1), "L['x'].a['b'][-1]"),
    (GetItemSource(D, "k"), "L['d']['k']"),
    (GetItemSource(D, 2), "L['d'][2]"),
    (GetItemSource(D, (1, "t")), "L['d'][(1, 't')]"),
    (GetItemSource(D, None), "L['d'][None]"),
    (GetItemSource(LocalSource("l"), slice(0, 1)), "L['l'][0:1]"),
    (GetItemSource(LocalSource("o"), "y"), "L['o']['y']"),
    (GetItemSource(N, 1), "L['n'][1]"),
    (GetItemSource(N, -1), "L['n'][-1]"),
    (ConstDictKeySource(D, 2), "list(L['d'])[2]"),
    (ConstDictKeySource(LocalSource("o"), 0), "list(L['o'])[0]"),
    (LengthSource(D), "len(L['d'])"),
    (LengthSource(N), "len(L['n'])"),
    (TypeSource(X), "type(L['x'])"),
    (AttrSource(TypeSource(X), "in_class"), "type(L['x']).in_class"),
    (DefaultsSource(LocalSource("h"), 0), "L['h'].__defaults__[0]"),
    (DefaultsSource(LocalSource("h"), "key"), "L['h'].__kwdefaults__['key']"),
    (ParamBufferSource(N, "0.weight"), "getattr(L['n'], '0').weight"),
    (ParamBufferSource(N, "1.0.running_mean"), "getattr(getattr(L['n'], '1'), '0').running_mean"),
    (TensorPropertySource(T, "size", 1), "L['t'].size(1)"),
    (TensorPropertySource(T, "stride", 0), "L['t'].stride(0)"),
    (TensorPropertySource(T, "storage_offset"), "L['t'].storage_offset()"),
    (ConstantSource(1.5), "1.5"),
    (CellContentsSource(LocalSource("f"), "b"),
     "L['f'].__closure__[L['f'].__code__.co_freevars.index('b')].cell_contents"),
    (CellContentsSource(LocalSource("g"), "deep"),
     "L['g'].__closure__[L['g'].__code__.co_freevars.index('deep')].cell_contents"),
]  # fmt: skip
each_source = pytest.mark.parametrize(
    ("source", "expression"), EXPRESSIONS, ids=[e for _, e in EXPRESSIONS]
)


@each_source
def test_name_is_the_expression_of_the_value(source: ValueSource, expression: str) -> None:
    assert source.name() == str(source) == expression
    value = source.get(SCOPE, GLOBALS)
    assert eval(expression, {"L": SCOPE, "G": GLOBALS}) is value or (
        eval(expression, {"L": SCOPE, "G": GLOBALS}) == value
    )


@each_source
def test_source_is_missing_where_nothing_is(source: ValueSource, expression: str) -> None:
    if isinstance(source, ConstantSource):
        assert source.get({}) == 1.5
        return
    for scope in (
        {},
        {"x": 3, "d": 3, "n": None, "t": 3, "f": 3, "g": len, "h": 3, "o": 3, "l": 3},
    ):
        if scope and isinstance(source, LocalSource | TypeSource):
            continue
        with pytest.raises(MissingValueError) as raised:
            source.get(scope, {})
        assert raised.value.source_name == expression


@each_source
def test_equal_sources_are_one_key(source: ValueSource, expression: str) -> None:
    again = dict(EXPRESSIONS)  # made of the same fields, anew
    assert again[source] == expression
    others = [other for other, _ in EXPRESSIONS if other is not source]
    assert source not in others
    assert source.guard_source() in (GuardSource.LOCAL, GuardSource.GLOBAL, GuardSource.CONSTANT)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (GetItemSource(X, 1), GetItemSource(X, True)),
        (GetItemSource(X, 1), GetItemSource(X, 1.0)),
        (GetItemSource(X, 0.0), GetItemSource(X, -0.0)),
        (ConstantSource(1), ConstantSource(True)),
        (AttrSource(X, "a"), AttrSource(X, "a", allow_call=True)),
        (AttrSource(X, "a"), ParamBufferSource(X, "a")),
        (LocalSource("x"), GlobalSource("x")),
    ],
    ids=str,
)
def test_sources_that_differ_are_two_keys(a: ValueSource, b: ValueSource) -> None:
    assert a != b
    assert len({a, b}) == 2


def test_nan_is_one_key() -> None:
    assert GetItemSource(X, float("nan")) == GetItemSource(X, float("nan"))


def test_dict_keys_are_known_as_such() -> None:
    key = ConstDictKeySource(D, 0)
    assert key.is_dict_key()
    assert not D.is_dict_key()
    assert ConstDictKeySource(D, 2).get(SCOPE) is KEY


@pytest.mark.parametrize(
    "make",
    [
        lambda: GetItemSource(X, object()),
        lambda: TensorPropertySource(X, "grad"),
        lambda: TensorPropertySource(X, "size"),
        lambda: TensorPropertySource(X, "storage_offset", 1),
    ],
)
def test_source_that_makes_no_sense_is_refused(make: Any) -> None:
    with pytest.raises(UnsupportedGuardError):
        make()


def test_missing_key_runs_no_missing() -> None:
    scope: dict[str, Any] = {"x": collections.defaultdict(list)}
    with pytest.raises(MissingValueError):
        GetItemSource(X, "k").get(scope)
    assert scope["x"] == {}


def test_root_that_cannot_be_evaluated_is_named() -> None:
    from tests.guards.conftest import MethodLocal

    with pytest.raises(UnsupportedGuardError, match="MethodLocal, at the root of"):
        AttrSource(MethodLocal("x"), "a").get({"x": 1})


class Doubled(ChainedValueSource):
    """A link of a front end's own."""

    def _spell(self, base: str) -> str:
        return f"double({base})"

    def read(self, base: Any) -> Any:
        return base * 2


def test_link_of_ones_own_takes_part() -> None:
    source = Doubled(X)
    assert source == Doubled(LocalSource("x"))
    check = compile_guards([Guard(source, GuardBuilder.EQUALS_MATCH)], {"x": 4})
    assert check({"x": 4})
    assert str(check.explain({"x": 5})) == "double(L['x']) == 8: expected 8, found 10"


# ── long chains ──────────────────────────────────────────────────────────────────────────────────


def chain(depth: int) -> ValueSource:
    source: ValueSource = X
    for _ in range(depth):
        source = GetItemSource(source, 0)
    return source


def nest(depth: int, value: Any) -> Any:
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.slow
def test_chain_of_ten_thousand_links() -> None:
    depth = 10_000
    source = chain(depth)
    assert source.name() == f"L['x']{'[0]' * depth}"
    assert hash(source) == hash(chain(depth))
    assert source == chain(depth)
    assert source.get_base() == X  # type: ignore[attr-defined]
    assert source.guard_source() is GuardSource.LOCAL
    scope = {"x": nest(depth, "end")}
    check = compile_guards([Guard(source, GuardBuilder.EQUALS_MATCH)], scope)
    assert check(scope)
    assert check({"x": nest(depth, "end")})
    wrong = {"x": nest(depth, "other")}
    assert not check(wrong)
    explained = check.explain(wrong)
    assert explained is not None
    assert explained.actual == "'other'"
    short = check.explain({"x": nest(depth // 2, 3)})
    assert short is not None
    assert short.actual.endswith("missing")


def test_cost_of_a_chain_is_linear() -> None:
    def seconds(depth: int) -> float:
        scope = {"x": nest(depth, 1)}
        best = float("inf")
        for _ in range(3):
            start = time.thread_time()
            links = [chain(depth)]
            while isinstance(links[-1], ChainedValueSource):
                links.append(links[-1].base)  # type: ignore[arg-type]
            guards = [Guard(link, GuardBuilder.TYPE_MATCH) for link in links]
            compile_guards(guards, scope).explain({})
            best = min(best, time.thread_time() - start)
        return best

    # A quadratic cost would be 64 times as much; names alone are, but as text that is copied fast.
    assert seconds(400) < 24 * seconds(50)


def test_state_source_has_a_name() -> None:
    assert GlobalStateSource().name() == "torch"
