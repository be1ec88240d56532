"""Operators of a library, with defaults and values that torch reads in ways of its own."""

from __future__ import annotations

import collections
import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from dispatch_core import handle_of

from tests.dispatch_core.test_elide_against_torch import record, same

LIBRARY = torch.library.Library("dc_odd", "DEF")
_count = itertools.count()


@pytest.fixture(autouse=True, scope="module")
def take_back() -> Iterator[None]:
    """Leave nothing registered: what is, is the subject of other tests."""
    yield
    LIBRARY._destroy()


class Int(int):
    """Says something else than it stores."""

    def __int__(self) -> int:
        return 7

    def __index__(self) -> int:
        return 8


class Float(float):
    def __float__(self) -> float:
        return 7.0


class Complex(complex):
    def __complex__(self) -> complex:
        return 9j


def defined(argument: str, *, behind: str = ", int last=0") -> Any:
    name = f"f{next(_count)}"
    LIBRARY.define(f"{name}(Tensor t, {argument}{behind}) -> Tensor")
    return getattr(torch.ops.dc_odd, name).default


NUMBERS: list[Any] = [
    np.complex128(1j),
    np.complex128(2 + 1j),
    np.complex128(1),
    np.complex64(2 + 1j),
    Complex(2),
    1 + 0j,
    Int(1),
    Int(0),
    Float(1.0),
    Float(0.5),
    np.float64(1.0),
    True,
    b"mean",
    b"\xff",
    [b"mean"],
    {"a": (b"mean", Int(1))},
    [np.complex128(1j)],
    [Int(1), Int(1)],
    [Float(1.0), 1],
    np.array([1j]),
    np.array([1.0]),
]
TYPES = (
    "int=1 int?=None SymInt=1 float=1.0 float?=None Scalar=1 complex bool=True ScalarType=long "
    'Layout=strided MemoryFormat? Any str="mean" int[]=[1] int[1]=1 SymInt[]=[1] float[]=[1.0] '
    "float[2]=1.0 complex[] bool[]=[True]"
)


@pytest.mark.parametrize("declared", TYPES.split())
def test_number_of_a_subclass_arrives_as_torch_takes_it(declared: str) -> None:
    type_, equals, default = declared.partition("=")
    op = defined(f"{type_} x{equals}{default}", behind="")
    accepted = 0
    for value in NUMBERS:
        if declared == "Any" and isinstance(value, complex) and type(value) is not complex:
            continue  # torch hands over memory that nobody has set
        with warnings.catch_warnings():  # NumPy's, for the imaginary part that is dropped
            warnings.simplefilter("ignore")
            wanted = record(op, (torch.ones(1), value), {})
        if wanted is None:
            continue
        accepted += 1
        handle = handle_of(op)
        found = handle.elide(handle.bind((wanted[0][0], value)))
        assert same(found, wanted), f"{value!r}: got {found}, but should be {wanted}"
    assert accepted


TENSOR = torch.ones(2)
CONTAINED: list[Any] = [
    *(1, 2.5, True, 1j, "s", b"s", None, TENSOR, torch.float32, torch.strided, "cpu"),
    *(np.int64(2), Int(1), Float(1.0), (1, 2), [1, 2.0], [], (), {"b": 1}, [("b", 1)]),
]
CONTAINERS: list[Any] = [
    *([], (), {}, "", set(), range(0), np.array([]), torch.Size([]), [{}], [[]], [{"a": 1}]),
    *([("a", 1)], (("a", 1),), [["a", 1]], {("a", 1)}, [[1, 2]], [(1, 2.0)], None),
    *(collections.OrderedDict(b=1, a=2), {"b": 1, "a": 2}, {1: 2}, {True: 1}, {2.5: 1}),
    *((1, 2), (1, "s"), [1, "s"], (TENSOR, 1), [TENSOR, 1], (torch.float32, 1), ((1, 2), "s")),
    *([(torch.float32, torch.strided)], {b"a": 1}, {Int(1): Float(1.0)}),
    *({"a": value} for value in CONTAINED),
]
CONTAINER_TYPES = [
    *(f"Dict(str, {item})" for item in ("int", "Tensor", "str", "Scalar", "SymInt", "bool")),
    *(f"Dict(str, {item})" for item in ("Any", "Device", "ScalarType", "Tensor?", "float[]?")),
    *("Dict(int, float)", "Dict(bool, int)", "Dict(float, int)", "Dict(int, int[])"),
    *("Dict(str, int)?", "Dict(str, int)[]", "Dict(str, Dict(str, int))"),
    *("Dict(str, (int, float))", "Dict(str, ScalarType[])", "Dict(str, ScalarType)?"),
    *("(int, str)", "(int, str)?", "(int, float)[]", "(Tensor, int)", "(ScalarType, int)"),
    *("(ScalarType, Layout)[]", "(int[], str)", "(int?, float?)"),
]


@pytest.mark.parametrize("type_", CONTAINER_TYPES)
def test_dict_and_tuple_arrive_as_torch_makes_them(type_: str) -> None:
    op = defined(f"{type_} x")
    handle = handle_of(op)
    accepted = 0
    for value in CONTAINERS:
        with warnings.catch_warnings():  # NumPy's and torch's, for what is made a number
            warnings.simplefilter("ignore")
            wanted = record(op, (TENSOR, value), {})
        if wanted is None:
            continue
        accepted += 1
        found = handle.elide(handle.bind((TENSOR, value)))
        assert same(found, wanted), f"{value!r}: got {found}, but should be {wanted}"
    assert accepted


def test_dict_from_an_iterator_of_pairs_arrives_as_torch_makes_it() -> None:
    op = defined("Dict(str, int) x")
    wanted = record(op, (TENSOR, iter([("a", True)])), {})
    assert wanted is not None
    found = handle_of(op).elide({"t": TENSOR, "x": iter([("a", True)]), "last": 0})
    assert same(found, wanted)


DEFAULTS: list[tuple[str, list[Any]]] = [
    ("int[] x=[1, 1]", [[1, 1], (1, 1), [1], [1, 1, 1]]),
    ("int[] x=[0, 0, 0]", [[0, 0, 0], [0]]),
    ("SymInt[] x=[1, 1]", [[1, 1], [1]]),
    ("bool[] x=[True, True]", [[True, True], [True]]),
    ("int[1]? x=1", [[1], 1, (1,), None, [2]]),
    ("int[2]? x=1", [[1, 1], [1], 1, 2, None]),
    ("float[2]? x=1.0", [[1.0, 1.0], 1.0, None]),
    ("float[]? x=1.0", [[1.0], None]),
    ("ScalarType[] x=[]", [[], (), [torch.int64]]),
    ("ScalarType[] x=[long]", [[torch.int64], [4], []]),
    ("ScalarType[]? x=None", [[torch.int64], [4], [], None]),
    ("Layout[] x=[]", [[], [torch.strided]]),
    ("MemoryFormat[] x=[contiguous_format]", [[torch.contiguous_format]]),
]


@pytest.mark.parametrize(("argument", "values"), DEFAULTS, ids=[text for text, _ in DEFAULTS])
@pytest.mark.parametrize("behind", ["", ", int last=0"], ids=["last", "inside"])
def test_default_of_a_list_is_the_one_that_torch_holds(
    argument: str, values: list[Any], behind: str
) -> None:
    op = defined(argument, behind=behind)
    handle = handle_of(op)
    tensor = torch.ones(1)
    more = {"last": 1} if behind else {}
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [((tensor,), {}), ((tensor,), more)]
    calls += [((tensor, value), {}) for value in values]
    calls += [((tensor,), {"x": value, **more}) for value in values]
    for args, kwargs in calls:
        wanted = record(op, args, kwargs)
        assert wanted is not None
        found = handle.elide(handle.bind(args, kwargs))
        assert same(found, wanted), f"{args}, {kwargs}: got {found}, but should be {wanted}"


def test_list_default_is_whole_in_binding_and_parameters() -> None:
    handle = handle_of(defined("int[] x=[1, 1]"))
    assert handle.bind((0,))["x"] == [1, 1]
    assert handle.params[1].default == [1, 1]


def test_default_that_was_given_away_is_nobodys_to_change() -> None:
    op = defined("int[2] x=0, int[] from=[]")
    handle = handle_of(op)
    for default in (handle.params[1].default, handle.params[2].default):
        assert isinstance(default, list)
        default.append(1)
    handle.bind((0,))["from"].append(1)
    assert [param.default for param in handle.params[1:3]] == [[0, 0], []]
    assert handle.bind((0,)) == {"t": 0, "x": [0, 0], "from": [], "last": 0}
    assert handle.elide({"t": 0, "x": [0, 0], "from": [], "last": 0}) == ((0,), {})


def test_argument_that_python_takes_for_no_name_binds_by_its_own() -> None:
    handle = handle_of(defined("int __debug__=1"))
    assert handle.bind((0,), {"__debug__": 3}) == {"t": 0, "__debug__": 3, "last": 0}
    assert handle.elide(handle.bind((0,))) == ((0,), {})
