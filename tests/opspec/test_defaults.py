"""Defaults: which literal fits which type, and what Python value it is."""

from __future__ import annotations

import math

import pytest
from opspec.defaults import Literal_, Mismatch, Symbol, convert
from opspec.enums import EnumDefault
from opspec.model import Default
from opspec.schema import parse_type

LONG = EnumDefault("ScalarType", "long", 4, "int64")

RIGHT: list[tuple[str, Literal_, Default]] = [
    ("int", 1, 1),
    ("int", -(2**63), -(2**63)),
    ("int", 2**63 - 1, 2**63 - 1),
    ("int", Symbol("Mean"), 1),
    ("SymInt", 0, 0),
    ("float", 1, 1.0),
    ("float", -0.0, 0.0),
    ("float", Symbol("-inf"), -math.inf),
    ("float?", 1, 1),
    ("float?", 1.0, 1.0),
    ("bool", True, True),
    ("str", "a", "a"),
    ("Scalar", 1, 1),
    ("Scalar", 1.0, 1.0),
    ("Scalar", True, True),
    ("Scalar", 2j, 2j),
    ("complex", 1j, 1j),
    ("ScalarType", Symbol("int64"), LONG),
    ("ScalarType?", 4, LONG),
    ("Device", Symbol("cpu"), "cpu"),
    ("Device?", "cuda:1", "cuda:1"),
    ("Tensor?", None, None),
    ("int[2]", 3, (3, 3)),
    ("int[2]", [3], (3,)),
    ("SymInt[]", [], ()),
    ("float[2]", [1, 2.5], (1.0, 2.5)),
    ("ScalarType[]", [Symbol("long")], (LONG,)),
    ("int[2]?", None, None),
]


@pytest.mark.parametrize(("type_", "literal", "value"), RIGHT)
def test_default_of_the_right_type(type_: str, literal: Literal_, value: Default) -> None:
    found = convert(parse_type(type_), literal)
    assert found == value
    assert type(found) is type(value)
    assert repr(found) == repr(value)  # the sign of zero too


_SOME: list[Literal_] = [None, True, 1, 1.5, 1j, "text", Symbol("name"), [1], [], [[1]]]
_FITTING: dict[str, list[Literal_]] = {
    "int": [1],
    "SymInt": [1],
    "float": [1, 1.5],
    "bool": [True],
    "str": ["text"],
    "Scalar": [True, 1, 1.5, 1j],
    "complex": [1j],
    "Device": [],
    "ScalarType": [1],
    "Layout": [1],
    "MemoryFormat": [1],
    "Tensor": [],
    "Generator": [],
    "Storage": [],
    "t": [],
    "__torch__.torch.classes.c10d.Work": [],
    "Tensor?": [None],
    "int?": [None, 1],
    "float?": [None, 1, 1.5],
    "bool?": [None, True],
    "str?": [None, "text"],
    "Scalar?": [None, True, 1, 1.5, 1j],
    "Generator?": [None],
    "int[]": [[1], []],
    "int[2]": [1, [1], []],
    "bool[2]": [True, []],
    "str[]": [[]],
    "Tensor[]": [[]],
    "int[]?": [None],
    "int[2]?": [None],
    "int[][]": [[], [[1]]],
}


@pytest.mark.parametrize("type_", _FITTING)
def test_every_type_takes_what_fits_and_refuses_the_rest(type_: str) -> None:
    fitting = list(map(repr, _FITTING[type_]))
    for literal in _SOME:
        if repr(literal) in fitting:
            convert(parse_type(type_), literal)
            continue
        with pytest.raises(Mismatch) as caught:
            convert(parse_type(type_), literal)
        assert caught.value.message
        assert caught.value.remedy or type_ in ("Layout", "MemoryFormat")
