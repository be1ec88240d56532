"""Every kind of guard: a value it is made from, values it must refuse, and values it must take."""

from __future__ import annotations

import collections
import enum
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from guards import (
    CellContentsSource,
    DefaultsSource,
    GetItemSource,
    GlobalStateSource,
    Guard,
    GuardBuilder,
    LocalSource,
    Source,
    TensorPropertySource,
)

X = LocalSource("x")
Y = LocalSource("y")
NAN = float("nan")


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Point:
    def __init__(self, a: int = 1) -> None:
        self.a = a

    def method(self) -> int:
        return self.a


class Other(Point):
    pass


@dataclass
class Case:
    """One kind of guard on ``L['x']``, with what it must take and refuse instead of ``value``."""

    kind: str
    value: Any
    refused: list[Any]
    taken: list[Any] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    source: Source = X
    more: Mapping[str, Any] = field(default_factory=dict)

    def guard(self) -> Guard:
        create: Callable[..., Any] = getattr(GuardBuilder, self.kind)
        return Guard(
            self.source, functools.partial(create, **self.options) if self.options else create
        )

    def scope(self, value: Any) -> dict[str, Any]:
        return {"x": value, **self.more}

    def __str__(self) -> str:
        shown = type(self.value).__name__
        return f"{self.kind}-{shown}-{'-'.join(map(str, self.options))}".rstrip("-")


def double(n: int) -> int:
    return n * 2


def triple(n: int) -> int:
    return n * 3


def closing_over(n: Any) -> Callable[[], Any]:
    return lambda: n


def with_default(n: Any, key: Any) -> Callable[..., Any]:
    def function(a: Any = n, *, k: Any = key) -> tuple[Any, Any]:
        return a, k

    return function


def tensor(*shape: int, **options: Any) -> torch.Tensor:
    return torch.zeros(shape, **options)


T34 = tensor(3, 4)
BASE = torch.zeros(10)
POINT = Point()
WITH_B = Point()
WITH_B.b = 1  # type: ignore[attr-defined]
CONJ = torch.zeros(2, dtype=torch.cfloat).conj()
TRAINING = torch.nn.Linear(2, 2)

TENSOR_REFUSED = [
    None,
    3,
    [1.0],
    tensor(3, 5),
    tensor(3, 4, 1),
    tensor(4, 3).t().contiguous().t(),
    tensor(3, 4, dtype=torch.float64),
    tensor(3, 4, device="meta"),
    tensor(3, 4, requires_grad=True),
    torch.nn.Parameter(tensor(3, 4)),
    tensor(3, 4).to_sparse(),
    tensor(),
]

CONSTANTS: list[tuple[Any, list[Any]]] = [
    (1, [True, 1.0, 2, "1", None, 1 + 0j]),
    (True, [1, False, 1.0, None]),
    (1.0, [1, True, 2.0, NAN]),
    (0.0, [-0.0, 0, False, NAN]),
    (-0.0, [0.0, 0]),
    (NAN, [0.0, None, "nan"]),
    (2**80, [2**80 + 1, float(2**80), 0]),
    (-5, [5, -5.0]),
    (complex(0.0, -0.0), [0j, 0.0, 0]),
    ("a", [b"a", "b", "", None, ("a",)]),
    ('it\'s "quoted"\n\\', ["it's"]),
    (b"a", ["a", bytearray(b"a")]),
    (None, [0, False, "", ()]),
    (..., [None, NotImplemented]),
    (NotImplemented, [...]),
    ((1, 2), [[1, 2], (1, 2.0), (True, 2), (1, 2, 3), (), torch.Size((1, 2))]),
    ([1, [2, "x"]], [(1, [2, "x"]), [1, [2, "y"]], [1, (2, "x")], [1]]),
    ((0.0, NAN), [(-0.0, NAN), (0.0, 0.0), (0, NAN)]),
    (frozenset({1, 2}), [{1, 2}, frozenset({True, 2}), frozenset({1})]),
    ({"a": 1, "b": [2]}, [{"b": [2], "a": 1}, {"a": True, "b": [2]}, {"a": 1}, {"a": 1, "b": [3]}]),
    (torch.float32, [torch.float64, "float32", None]),
    (torch.device("cpu"), [torch.device("cpu", 0), "cpu", torch.device("meta")]),
    (torch.Size((1, 2)), [(1, 2), torch.Size((1, 3))]),
    (torch.strided, [torch.sparse_coo]),
    (torch.contiguous_format, [torch.channels_last]),
    (slice(1, 2), [slice(1, 3), slice(1, 2, 1), slice(True, 2)]),
    (range(3), [range(4), [0, 1, 2], range(0, 3, 2)]),
    (Color.RED, [Color.BLUE, 1, "RED"]),
    (int, [bool, float, 1]),
    (Point, [Other, Point()]),
]


def cases() -> list[Case]:
    """Make all cases; anew each time, since some hold objects that tests change."""
    found = [
        Case("TYPE_MATCH", 1, [True, 1.0, None, "1"], [2]),
        Case("TYPE_MATCH", POINT, [Other(), 1, Point], [Point(5)]),
        Case("TYPE_MATCH", T34, [torch.nn.Parameter(tensor(3, 4)), 1], [tensor(1)]),
        Case("ID_MATCH", POINT, [Point(), None, Point]),
        Case("ID_MATCH", None, [0, False, ...]),
        Case("ID_MATCH", double, [triple, None]),
        Case("ID_MATCH", Point, [Other, Point()]),
        Case("ID_MATCH", torch, [torch.nn, None]),
        Case("ID_MATCH", int, [bool, float]),
        *(Case("EQUALS_MATCH", value, refused) for value, refused in CONSTANTS),
        *(Case("CONSTANT_MATCH", value, refused) for value, refused in CONSTANTS),
        Case("NONE_MATCH", None, [0, False, ""]),
        Case("BOOL_MATCH", True, [False, 1, 1.0, None]),
        Case("BOOL_MATCH", False, [True, 0, 0.0, None]),
        Case("SEQUENCE_LENGTH", [1, 2], [[1], [], (1,), None, 2], [[3, 4], (1, 2), "ab", {1, 2}]),
        Case("SEQUENCE_LENGTH", {"a": 1}, [{}, {"a": 1, "b": 2}], [{"z": 0}]),
        Case(
            "DICT_KEYS_MATCH", {"a": 1, "b": 2}, [{"b": 2, "a": 1}, {"a": 1}, ["a", "b"], None, {}]
        ),
        Case("DICT_KEYS_MATCH", {1: 1}, [{True: 1}, {1.0: 1}, {2: 1}], [{1: 5}]),
        Case("DICT_KEYS_MATCH", {}, [{"a": 1}, [], None], [{}]),
        Case("DICT_KEYS_MATCH", {POINT: 1}, [{Point(): 1}, {1: 1}], [{POINT: 2}]),
        Case("DICT_KEYS_MATCH", {i: i for i in range(20)}, [{i: i for i in range(19)}]),
        Case(
            "DICT_KEYS_MATCH",
            {"a": 1, "b": 2},
            [{"a": 1}, {"a": 1, "c": 2}],
            [{"b": 2, "a": 1}],
            {"ordered": False},
        ),
        Case(
            "DICT_KEYS_MATCH",
            collections.OrderedDict(a=1, b=2),
            [collections.OrderedDict(b=2, a=1)],
            [collections.OrderedDict(a=3, b=4)],
        ),
        Case("SET_MATCH", {1, "a"}, [{1}, {True, "a"}, frozenset({1, "a"}), [1, "a"], set(), None]),
        Case("HASATTR", POINT, [1, None, torch], [Point(9)], {"attr": "a"}),
        Case("NOT_PRESENT", POINT, [WITH_B], [Point(7), 3, None], {"attr": "b"}),
        Case("NOT_PRESENT", {"a": 1}, [{"k": 1}], [{}, {"b": 1}], {"key": "k"}),
        Case("NOT_PRESENT", {}, [{"k": 1}], [{"a": 1}], source=GetItemSource(X, "k")),
        Case("RANGE_MATCH", 5, [0, 9, True, 5.0, None], [1, 8], {"low": 1, "high": 8}),
        Case("RANGE_MATCH", 0.5, [NAN, 2.0, -0.1, 1], [0.0, 1.0, -0.0], {"low": 0, "high": 1}),
        Case("RANGE_MATCH", 0.5, [NAN, 1], [-1e300, float("inf")]),
        Case("FUNCTION_MATCH", double, [triple, None, 1, Point]),
        Case("FUNCTION_MATCH", len, [abs, double]),
        Case("FUNCTION_MATCH", POINT.method, [double]),
        Case("MODULE_TRAINING", TRAINING, [torch.nn.Linear(2, 2).eval(), POINT, None]),
        Case("TENSOR_MATCH", T34, TENSOR_REFUSED, [torch.ones(3, 4), T34.clone()]),
        Case(
            "TENSOR_MATCH",
            T34,
            [tensor(3, 5), tensor(7, 5), tensor(3, 4, 1)],
            [tensor(7, 4), tensor(1, 4)],
            {"dynamic_sizes": [0]},
        ),
        Case(
            "TENSOR_MATCH",
            T34,
            [tensor(3), tensor(2, 2, dtype=torch.int64)],
            [tensor(7, 5), tensor(5, 7).t()],
            {"dynamic_sizes": True, "dynamic_strides": True},
        ),
        Case("TENSOR_MATCH", CONJ, [CONJ.resolve_conj(), tensor(2, dtype=torch.cfloat)]),
        Case("TENSOR_MATCH", torch.eye(3).to_sparse(), [torch.eye(3)], [torch.eye(3).to_sparse()]),
        Case(
            "TENSOR_MATCH",
            torch.nn.Parameter(tensor(2)),
            [tensor(2), tensor(2, requires_grad=True)],
        ),
        Case("DUPLICATE_INPUT", T34, [T34.clone(), None], [], {"source_b": Y}, more={"y": T34}),
        Case(
            "STORAGE_OVERLAP",
            BASE[:4],
            [BASE[4:8], BASE[5:9], None, 3],
            [BASE[:2], torch.zeros(4)],
            {"overlapping": [], "non_overlapping": [X, Y]},
            more={"y": BASE[5:]},
        ),
        Case(
            "SHAPE_RELATION",
            tensor(6, 4),
            [tensor(5, 4), tensor(8, 4), None, 3],
            [tensor(6, 9), tensor(6)],
            {
                "relation": "a == 2 * b",
                "symbols": {
                    "a": TensorPropertySource(X, "size", 0),
                    "b": TensorPropertySource(Y, "size", 0),
                },
            },
            more={"y": tensor(3)},
        ),
    ]
    return [
        *found,
        Case(
            "EQUALS_MATCH",
            closing_over(3),
            [closing_over(4), closing_over(3.0), double, 3],
            [closing_over(3)],
            source=CellContentsSource(X, "n"),
        ),
        Case(
            "EQUALS_MATCH",
            with_default(3, 4),
            [with_default(5, 4), double, None],
            [with_default(3, 9)],
            source=DefaultsSource(X, 0),
        ),
        Case(
            "EQUALS_MATCH",
            with_default(3, 4),
            [with_default(3, 5), double, None],
            [with_default(9, 4)],
            source=DefaultsSource(X, "k"),
        ),
    ]


STATES: list[tuple[str, Callable[[], Any]]] = [
    ("GRAD_MODE", torch.no_grad),
    ("AUTOCAST_STATE", lambda: torch.autocast("cpu", dtype=torch.bfloat16)),
    ("DEFAULT_DEVICE", lambda: torch.device("meta")),
]


def state_guard(kind: str) -> Guard:
    """Make a guard on torch's own state."""
    return Guard(GlobalStateSource(), getattr(GuardBuilder, kind))
