"""Saved guards of every kind and source, changed at random: refused when read, or they work."""

from __future__ import annotations

import builtins
import copy
import functools
import json
import os
import random
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from guards import (
    AttrSource,
    ConstantSource,
    ConstDictKeySource,
    DefaultsSource,
    GetItemSource,
    GlobalSource,
    Guard,
    GuardBuilder,
    LengthSource,
    LocalSource,
    ParamBufferSource,
    SavedGuardsError,
    TensorPropertySource,
    TypeSource,
    compile_guards,
    dumps,
    loads,
    verify,
)

from tests.guards.kinds import STATES, X, state_guard
from tests.guards.test_saving import SAVED, compiled


def with_default(a: int = 3) -> int:
    return a


SCOPE: dict[str, Any] = {
    "x": torch.ones(2, 3),
    "d": {"a": 1, 2: [5]},
    "m": torch.nn.Sequential(torch.nn.Linear(2, 2)),
    "f": with_default,
    "o": SimpleNamespace(a=1),
}
SOURCES = [
    GlobalSource("g"),
    AttrSource(LocalSource("o"), "a"),
    GetItemSource(GetItemSource(LocalSource("d"), 2), 0),
    ConstDictKeySource(LocalSource("d"), 1),
    LengthSource(LocalSource("d")),
    TypeSource(LocalSource("d")),
    DefaultsSource(LocalSource("f"), 0),
    TensorPropertySource(X, "stride", 1),
    GetItemSource(ConstantSource((1, 2)), 1),
]


def texts() -> list[str]:
    found = [dumps(compiled(case)) for case in SAVED]
    found += [dumps(compile_guards([state_guard(kind)], {})) for kind, _ in STATES]
    guards = [Guard(source, GuardBuilder.EQUALS_MATCH) for source in SOURCES]
    weight = ParamBufferSource(LocalSource("m"), "0.weight")
    guards.append(Guard(weight, functools.partial(GuardBuilder.TENSOR_MATCH, dynamic_sizes=[0])))
    return [*found, dumps(compile_guards(guards, SCOPE, {"g": 4}))]


TEXTS = texts()
EVIL = "0) if __import__('builtins').canary() is None else v0.size(0"
JUNK: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3.5, 1e308, 2**63, 2**64, 10**400, -(2**70), "", "x", "a'b",
    'a"b', "a\nb", "\\", "\x00", "\ud800", "ﬁ", "class", "None", EVIL, f"x'] or {EVIL} or ['",
    "{0}",
    "os:system", "builtins:eval", "builtins:int", "canary_module:Thing", "float32", "load",
    "cuda:0",
    "cpu:7", "meta", "hpu", "xla:1", "s0 == s0", "s0 < 9 or canary()", "(s0**8)*(s0**8) < 1",
    "A" * 70_000, "a.b." * 3000, [], {}, [[]], [1, 2], [None], ["x", "x"],
    {"int": "0x" + "f" * 5000}, {"float": "nan"}, {"float": "0x1p-3"},
    {"tuple": [1, {"tuple": []}]},
    {"set": [1, [2]]}, {"dict": [[[1], 2]]}, {"class": "builtins:int"}, {"class": "os:_wrap_close"},
    {"enum": ["builtins:eval", "x"]}, {"flags": ["re:RegexFlag", 10]},
    {"flags": ["re:RegexFlag", -1]},
    {"singleton": "Ellipsis"}, {"dtype": "float64"}, {"dtype": "load"}, {"device": "cuda"},
    {"device": "hpu"}, {"slice": [1, {"tuple": []}, "x"]}, {"range": [0, 5, 0]}, {"Size": ["x"]},
    {"Size": [{"int": "0x" + "f" * 50}]}, {"bytes": "zz"}, {"layout": "strided"},
    {"complex": [1, 2]},
    {"memory_format": "channels_last"}, {"set": [{"float": "nan"}, {"float": "nan"}]},
]  # fmt: skip
NAMES = [
    "LocalSource", "GlobalSource", "AttrSource", "GetItemSource", "ConstDictKeySource",
    "LengthSource", "TypeSource", "CellContentsSource", "DefaultsSource", "ParamBufferSource",
    "TensorPropertySource", "ConstantSource", "GlobalStateSource", "TensorCheck", "EqualsCheck",
    "TypeCheck", "IdentityCheck", "KeysCheck", "SetCheck", "RelationCheck", "OverlapCheck",
    "StateCheck", "CodeCheck", "RangeCheck", "AbsentCheck", "PresentCheck", "LengthCheck",
    "NoneCheck", "BoolCheck", "TrainingCheck", "SameObjectCheck", "ImpossibleCheck",
    "local_name", "member", "index", "allow_call", "idx", "prop", "value", "cls", "attr", "key",
    "low", "kind", "sizes", "relation", "names", "free", "ordered", "base", "source", "example",
]  # fmt: skip


def places(node: Any) -> Iterator[tuple[Any, Any]]:
    parts = node.items() if isinstance(node, dict) else enumerate(node)
    for key, part in [*parts]:
        yield node, key
        if isinstance(part, dict | list):
            yield from places(part)


def changed(document: Any, other: Any, rng: random.Random) -> None:
    """Change one thing in a document, at random."""
    found = [*places(document)]
    node, key = rng.choice(found)
    how = rng.randrange(10)
    if how == 0:
        del node[key]
    elif how == 1 and isinstance(node, list):
        node.insert(key, copy.deepcopy(rng.choice(node)))
    elif how == 1:
        node[rng.choice([*NAMES, "extra"])] = copy.deepcopy(node[key])
    elif how == 2:
        node[key] = rng.choice(NAMES)
    elif how == 3:  # something of its own or of another text stands there
        there, place = rng.choice([*places(other)] if rng.random() < 0.5 else found)
        node[key] = copy.deepcopy(there[place])
    elif how == 4:
        deep: Any = node[key]
        for _ in range(rng.choice([1, 3, 70, 120])):
            deep = rng.choice([[deep], {"tuple": [deep]}])
        node[key] = copy.deepcopy(deep)
    elif how in (5, 6):  # another of the same type is the likeliest to be taken
        alike = [value for value in JUNK if type(value) is type(node[key])]
        node[key] = copy.deepcopy(rng.choice(alike or JUNK))
    else:
        node[key] = copy.deepcopy(rng.choice(JUNK))


def works_or_is_refused(text: str, scopes: list[dict[str, Any]]) -> bool:
    """Use a text in every way; False where it is refused, which only reading it may do."""
    try:
        guards = loads(text)
    except SavedGuardsError:
        return False
    for there in ({}, SCOPE):
        check = compile_guards(guards, there, {"g": 4})
        for L in scopes:
            assert check(L) is (check.explain(L) is None)
            check.explain(L, all=True)
    verify(text, SCOPE, {"g": 4})
    dumps(guards)
    return True


def fuzz(seeds: range) -> tuple[int, int]:
    scopes = [{}, SCOPE, {"x": 1}, *(case.scope(case.value) for case in SAVED[::9])]
    taken = 0
    for seed in seeds:
        rng = random.Random(seed)
        document = json.loads(rng.choice(TEXTS))
        other = json.loads(rng.choice(TEXTS))
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            changed(document, other, rng)
        try:
            taken += works_or_is_refused(json.dumps(document), scopes)
        except BaseException as error:
            error.args = (f"seed {seed}: {error}",)
            raise
    return taken, len(seeds)


@pytest.fixture
def canary(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[None]:
    """Fail where anything foreign runs or is imported."""
    ran: list[str] = []
    monkeypatch.setattr(builtins, "canary", lambda: ran.append("canary"), raising=False)
    (tmp_path / "canary_module.py").write_text("import builtins; builtins.canary()")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("system", "popen"):
        monkeypatch.setattr(os, name, lambda *_: ran.append("os"))
    fuzz(range(-50, 0))  # what torch and the standard library load on first use
    modules = set(sys.modules)
    yield
    assert not ran
    assert set(sys.modules) - modules == set()


@pytest.mark.slow
@pytest.mark.usefixtures("canary")
def test_changed_texts_are_refused_when_read_or_work() -> None:
    taken, tried = fuzz(range(400))
    assert tried / 40 < taken < tried


@pytest.mark.long
@pytest.mark.usefixtures("canary")
def test_twenty_thousand_changed_texts_are_refused_when_read_or_work() -> None:
    taken, tried = fuzz(range(1000, 21_000))
    assert tried / 40 < taken < tried
