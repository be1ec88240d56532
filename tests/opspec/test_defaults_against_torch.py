"""What `check` accepts in a namespace of one's own, torch defines: over types × defaults."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from typing import Any

import pytest
import torch
from dispatch_core._ops import OpNamespace, OpPacket
from opspec.diagnostics import SchemaError
from opspec.lint import TORCH_TYPES, lint_schema
from opspec.model import Location
from opspec.render.naming import is_refused
from opspec.schema import parse_schema
from opspec.schema_text import SchemaText
from opspec.source import Source

NUMBERS = "1 -1 0 4 1.0 -0.5 1e5 1e-400 1e999 1j 1.5j -1j 0.+1.j 1. 01 +1 1_000 0x10 1e ٣ inf nan"
WORDS = "None True Mean long float int64 strided contiguous_format cpu cuda:0 foo"
TEXTS = r""" "a" "" 'a' "\\" "\"" "\n" "\q" "\x41" "\101" "\400" "\u0041" "é" "cpu" "cuda:0" """
LISTS = '[] [1] [1,1] [1,2] [1.0] [True] [1j] [None] [long] [strided] ["a"] [[1]] [1,]'
DEFAULTS = ["", *f"{NUMBERS} {WORDS} {TEXTS} {LISTS}".split()]
FORMS = ("{}", "{}?", "{}[]", "{}[2]", "{}[]?", "{}?[]")

# What torch reads for a default of these types, where it reads what is written.
READS: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "SymInt": (int,),
    "float": (float,),
    "bool": (bool,),
    "str": (str,),
    "Scalar": (bool, int, float),
}


def accepted(text: str) -> str | None:
    """Give torch's own text for a schema that has no error, None for one that has."""
    source = SchemaText(text, Location("f", 1, 1), None, Source("f", text))
    try:
        schema = parse_schema(text, namespace="mylib")
    except SchemaError:
        return None
    if any(fault.severity == "error" for fault in lint_schema(schema, source, imported=False)):
        return None
    return schema.torch_text().partition("::")[2]


def defined(text: str) -> Any:
    """Give the argument that torch makes of a schema, None if it refuses it.

    The operator is taken back at once: what is registered is the subject of other tests.
    """
    library = torch.library.Library("opspec_defaults", "FRAGMENT")
    try:
        library.define(text)
        live: Any = torch._C._get_schema("opspec_defaults::f", "")
        return live.arguments[0]
    except (RuntimeError, ValueError, IndexError):
        return None
    finally:
        library._destroy()


@pytest.mark.slow
@pytest.mark.parametrize("type_", sorted(TORCH_TYPES))
def test_check_and_torch_agree_on_defaults(type_: str) -> None:
    count = Counter[str]()
    for form, default in itertools.product(FORMS, DEFAULTS):
        text = f"f({form.format(type_)} x{'=' * bool(default)}{default}) -> ()"
        printed = accepted(text)
        if printed is not None:
            count["accepted"] += 1
            assert defined(printed) is not None, f"torch refuses {printed}, which check accepts"
        elif form == "{}" and type_ in READS and (argument := defined(text)) is not None:
            value = argument.default_value
            if not default.isascii():
                continue  # torch prints its bytes, and cannot read those back
            sensible = type(value) in READS[type_] and str(value) == default.strip("\"'")
            assert not sensible, f"torch reads {value!r} in {text}, which check refuses"
            count["nonsense"] += 1
    assert count["accepted"] or type_ in ("number", "Dimname")


@pytest.mark.parametrize("name", ["__debug__", "from", "x", "print", "None", "match", "__x__"])
def test_names_that_are_refused_are_those_that_python_refuses(name: str) -> None:
    try:
        compile(f"def f({name}): pass", "f", "exec")
    except SyntaxError:
        assert is_refused(name)
        assert accepted(f"f(Tensor {name}) -> ()") is None
    else:
        assert not is_refused(name)
        assert accepted(f"f(Tensor {name}) -> ()") is not None


def test_no_overload_or_operator_hides_behind_an_attribute() -> None:
    packet, namespace = OpPacket("mylib", "f"), OpNamespace("mylib")
    named = [name for name in {*object.__dir__(packet)} if re.fullmatch(r"_?[a-z]\w*", name)]
    assert "overloads" in named
    for name in named:
        assert accepted(f"f.{name}(Tensor x) -> ()") is None, name
    for name in object.__dir__(namespace):
        assert name.startswith("__") or accepted(f"{name}(Tensor x) -> ()") is None, name
