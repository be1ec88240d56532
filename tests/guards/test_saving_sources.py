"""Guards on every kind of source give the same verdicts in another process."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from guards import (
    AttrSource,
    CellContentsSource,
    ChainedValueSource,
    CheckFunction,
    ConstantSource,
    ConstDictKeySource,
    DefaultsSource,
    GetItemSource,
    GlobalSource,
    GlobalStateSource,
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
    dumps,
    loads,
    verify,
)
from torch import nn

from tests.guards.kinds import Color, Point

Scopes = tuple[dict[str, Any], dict[str, Any]]


class Slots:
    __slots__ = ("a",)

    def __init__(self) -> None:
        self.a = 2.5

    @property
    def twice(self) -> float:
        return self.a * 2


class Sized:
    def __len__(self) -> int:
        return 3

    def __getitem__(self, key: Any) -> Any:
        return key


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(2, 2))
        self.register_buffer("count", torch.zeros(()))


def function(n: Any, default: Any = 3, key: Any = "k") -> Callable[..., Any]:
    def inner(a: Any = default, *, k: Any = key) -> Any:
        return n, a, k

    return inner


def world() -> Scopes:
    """Make what the sources reach, anew."""
    L = {
        "n": 3,
        "text": "abc",
        "items": [1, (2.0, None), {"k": 4}],
        "table": {Color.RED: 1, "b": {2, "c"}},
        "point": Point(5),
        "slots": Slots(),
        "sized": Sized(),
        "net": Net(),
        "function": function([7]),
        "x": torch.zeros(3, 4),
        "y": torch.zeros(12).as_strided((3, 2), (4, 2), 1),
        "flag": True,
        "nothing": None,
    }
    return L, {"SCALE": 2, "point": Point(1), "x": torch.ones(2)}


def local(name: str) -> LocalSource:
    return LocalSource(name)


SOURCES: list[ValueSource] = [
    *(local(name) for name in world()[0]),
    *(GlobalSource(name) for name in world()[1]),
    local("absent"),
    GlobalSource("absent"),
    AttrSource(local("point"), "a"),
    AttrSource(local("point"), "absent"),
    AttrSource(GlobalSource("point"), "a"),
    AttrSource(local("point"), "method"),
    AttrSource(local("slots"), "a"),
    AttrSource(local("slots"), "twice", allow_call=True),
    AttrSource(local("net"), "training"),
    GetItemSource(local("items"), 0),
    GetItemSource(local("items"), -1),
    GetItemSource(local("items"), 9),
    GetItemSource(GetItemSource(local("items"), 1), 0),
    GetItemSource(GetItemSource(local("items"), 2), "k"),
    GetItemSource(local("items"), slice(0, 2)),
    GetItemSource(local("table"), Color.RED),
    GetItemSource(local("table"), "b"),
    GetItemSource(local("sized"), "any", allow_call=True),
    ConstDictKeySource(local("table"), 0),
    ConstDictKeySource(local("table"), 5),
    LengthSource(local("items")),
    LengthSource(local("sized"), allow_call=True),
    TypeSource(local("n")),
    TypeSource(local("point")),
    CellContentsSource(local("function"), "n"),
    GetItemSource(CellContentsSource(local("function"), "n"), 0),
    DefaultsSource(local("function"), 0),
    DefaultsSource(local("function"), "k"),
    ParamBufferSource(local("net"), "count"),
    ParamBufferSource(local("net"), "layer.0.weight"),
    TensorPropertySource(local("x"), "size", 0),
    TensorPropertySource(local("y"), "stride", -1),
    TensorPropertySource(local("y"), "storage_offset"),
    GetItemSource(ConstantSource((1, 2)), 0),
    GlobalStateSource(),
]
STATES = ("GRAD_MODE", "AUTOCAST_STATE", "DEFAULT_DTYPE", "DEFAULT_DEVICE",
          "DETERMINISTIC_ALGORITHMS")  # fmt: skip
KINDS: list[Any] = [
    *(getattr(GuardBuilder, name) for name in (
        "TYPE_MATCH", "ID_MATCH", "EQUALS_MATCH", "CONSTANT_MATCH", "NONE_MATCH", "BOOL_MATCH",
        "SEQUENCE_LENGTH", "DICT_KEYS_MATCH", "SET_MATCH", "HASATTR", "NOT_PRESENT", "RANGE_MATCH",
        "TENSOR_MATCH", "MODULE_TRAINING", "FUNCTION_MATCH",
    )),
    functools.partial(GuardBuilder.DICT_KEYS_MATCH, ordered=False),
    functools.partial(GuardBuilder.HASATTR, attr="a"),
    functools.partial(GuardBuilder.NOT_PRESENT, attr="late"),
    functools.partial(GuardBuilder.NOT_PRESENT, key="late"),
    functools.partial(GuardBuilder.RANGE_MATCH, low=1, high=10),
    functools.partial(GuardBuilder.TENSOR_MATCH, dynamic_sizes=[0], dynamic_strides=True),
    functools.partial(GuardBuilder.DUPLICATE_INPUT, source_b=local("x")),
    functools.partial(
        GuardBuilder.STORAGE_OVERLAP, overlapping=[], non_overlapping=[local("x"), local("y")]
    ),
    functools.partial(
        GuardBuilder.SHAPE_RELATION,
        relation="a == b + 1",
        symbols={
            "a": TensorPropertySource(local("x"), "size", 1),
            "b": TensorPropertySource(local("y"), "size", 0),
        },
    ),
]  # fmt: skip


GLOBALS: dict[str, Any] = {}


@functools.cache
def checks() -> list[CheckFunction]:
    """Compile every kind on every source that takes it, as far as it can be saved."""
    found = []
    L, G = world()
    GLOBALS.update(G)
    about_state = [getattr(GuardBuilder, name) for name in STATES]
    for source in SOURCES:
        kinds = about_state if isinstance(source, GlobalStateSource) else KINDS
        for kind in kinds:
            with contextlib.suppress(GuardError):
                check = compile_guards([Guard(source, kind)], L, GLOBALS)
                dumps(check)
                found.append(check)
    return found


# ── changes ──────────────────────────────────────────────────────────────────────────────────────

Change = Callable[[dict[str, Any], dict[str, Any]], Any]


def put(name: str, value: Callable[[], Any]) -> Change:
    return lambda L, G: L.__setitem__(name, value())


CHANGES: list[Change] = [
    put("n", lambda: 4), put("n", lambda: True), put("n", lambda: 3.0), put("n", lambda: None),
    put("n", lambda: 10**30), put("text", lambda: "abd"), put("items", list),
    put("items", lambda: [1, (2.0, 0), {"k": 5}]), put("items", lambda: (1, (2.0, None), {"k": 4})),
    put("items", lambda: [1, (float("nan"), None), {"late": 4}]), put("absent", lambda: 1),
    put("table", lambda: {"b": {2, "c"}, Color.RED: 1}), put("table", lambda: {Color.BLUE: 1}),
    put("table", lambda: {Color.RED: True, "b": {2}, 1: 1, 2: 2, 3: 3, 4: 4}),
    put("point", lambda: Point(6)), put("point", dict), put("point", lambda: Color.RED),
    put("slots", lambda: Slots.__new__(Slots)), put("sized", list),
    put("net", lambda: nn.Linear(2, 2)), put("net", lambda: nn.Sequential(nn.Linear(2, 3))),
    put("function", lambda: function([8])), put("function", lambda: function([7], 4)),
    put("function", lambda: function([7], 3, "j")), put("function", lambda: len),
    put("x", lambda: torch.zeros(4, 4)), put("x", lambda: torch.zeros(3, 4, requires_grad=True)),
    put("x", lambda: torch.zeros(3, 4).double()), put("x", lambda: torch.zeros(4, 3).t()),
    put("x", lambda: nn.Parameter(torch.zeros(3, 4))), put("x", lambda: torch.zeros(3, 4, 1)),
    put("y", lambda: torch.zeros(4, 2)), put("y", lambda: torch.zeros(3, 2)),
    put("flag", lambda: 1), put("flag", lambda: False), put("nothing", lambda: 0),
    lambda L, G: L.update(y=L["x"]),
    lambda L, G: L.update(x=L["y"]),
    lambda L, G: L.clear(),
    lambda L, G: G.clear(),
    lambda L, G: G.update(SCALE=3, absent=1, point=Point(2), x=torch.ones(3)),
    lambda L, G: G.update(SCALE=2.0, x=None, point=None),
    lambda L, G: setattr(L["point"], "late", 1),
    lambda L, G: delattr(L["point"], "a"),
    lambda L, G: setattr(L["point"], "absent", 1),
    lambda L, G: setattr(L["slots"], "a", 3),
    lambda L, G: L["net"].eval(),
    lambda L, G: L["net"].layer.__setitem__(0, nn.Linear(2, 3)),
    lambda L, G: setattr(L["net"], "count", None),
    lambda L, G: L["net"].double(),
    lambda L, G: L["function"].__closure__[0].cell_contents.append(1),
    lambda L, G: setattr(L["function"].__closure__[0], "cell_contents", (7,)),
]  # fmt: skip


@contextlib.contextmanager
def default_dtype() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def deterministic() -> Iterator[None]:
    # The public function loads torch's compiler.
    torch._C._set_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch._C._set_deterministic_algorithms(False)


SURROUNDINGS: list[Callable[[], Any]] = [
    *[contextlib.nullcontext] * 5,
    torch.no_grad,
    torch.inference_mode,
    lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    lambda: torch.device("meta"),
    default_dtype,
    deterministic,
]


def read_again(texts: list[str]) -> list[CheckFunction]:
    L, G = world()
    GLOBALS.update(G)
    return [compile_guards(loads(text), L, GLOBALS) for text in texts]


def verdicts(checks: list[CheckFunction], count: int) -> list[list[bool]]:
    """Check in as many changed worlds, the same ones in every process; a row for each check."""
    found: list[list[bool]] = [[] for _ in checks]
    for seed in range(count):
        rng = random.Random(seed)
        L, G = world()
        GLOBALS.clear()
        GLOBALS.update(G)
        # The first ones change one thing, each of them; the others change several.
        some = rng.sample(CHANGES, rng.randrange(4))
        for change in CHANGES[seed : seed + 1] or some:
            with contextlib.suppress(Exception):
                change(L, GLOBALS)
        with rng.choice(SURROUNDINGS)():
            for row, check in zip(found, checks, strict=True):
                row.append(check(L))
    return found


# ── tests ────────────────────────────────────────────────────────────────────────────────────────


def kind_of(check: CheckFunction) -> str:
    return f"{check.guards[0].create_fn_name()} on {check.guards[0].name}"


def test_every_kind_and_every_source_takes_part() -> None:
    kinds = {check.guards[0].create_fn_name() for check in checks()}
    wanted = {name for name in vars(GuardBuilder) if name.isupper()}
    assert wanted - kinds == set()
    links: set[type] = set()
    for check in checks():
        source: Any = check.guards[0].originating_source
        while isinstance(source, ChainedValueSource):
            links.add(type(source))
            source = source.base
        links.add(type(source))
    assert links == {type(source) for source in SOURCES} | {ConstantSource}
    assert len(checks()) > 120


def test_reading_is_exact() -> None:
    for check in checks():
        text = dumps(check)
        assert dumps(loads(text)) == text
        assert verify(text, *world()) == [], kind_of(check)


CHILD = """
import json, sys
from tests.guards.test_saving_sources import read_again, verdicts
texts, count = json.load(open(sys.argv[1]))
print(json.dumps(verdicts(read_again(texts), count)))
"""


@pytest.mark.slow
def test_another_process_gives_the_same_verdict(tmp_path: Any) -> None:
    count = 100
    path = tmp_path / "guards.json"
    path.write_text(json.dumps([[dumps(check) for check in checks()], count]))
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    theirs = json.loads(done.stdout.splitlines()[-1])
    ours = verdicts(checks(), count)
    for check, mine, other in zip(checks(), ours, theirs, strict=True):
        assert mine == other, kind_of(check)
        assert mine != [True] * count or "(1, 2)" in kind_of(check), kind_of(check)
    total = list(itertools.chain.from_iterable(ours))
    assert 0.2 < sum(total) / len(total) < 0.95
