"""Codegen and the stubs made at run time give a parameter the same name in Python."""

from __future__ import annotations

import inspect

import pytest
import torch
from dispatch_core import HandlerTable, handle_of
from dispatch_core._runtime_stub import make_stub, parameter_names
from dispatch_core._schema import read_schema
from opspec.model import Operator
from opspec.render import naming
from opspec.render.stubs import render_stubs
from opspec.schema import parse_schema

SCHEMAS = [
    "aten::f(Tensor self, float a=0, float b=1) -> Tensor",
    "aten::f(Tensor self, float from=0, float to=1) -> Tensor",
    "aten::f(Tensor self, float from=0, float from_=1) -> Tensor",
    "aten::f(Tensor self, float from_=0, float from=1) -> Tensor",
    "aten::f(float from__, float from, float from_) -> Tensor",
    "aten::f(Tensor in, *, float lambda=0, float lambda_=1, float is=2) -> Tensor",
]


@pytest.mark.parametrize("text", SCHEMAS)
def test_both_stubs_have_one_signature(text: str) -> None:
    schema = parse_schema(text)
    names = [parameter.name for parameter in schema.parameters]
    assert parameter_names(names) == naming.parameter_names(schema)
    rendered = render_stubs([Operator(schema, "family")], "specs")
    written = next(line for line in rendered.splitlines() if line.startswith("def "))
    made = inspect.signature(make_stub(read_schema(schema.torch_text())))
    plain = [
        p.replace(kind=p.POSITIONAL_OR_KEYWORD) for p in made.parameters.values() if p.kind < 3
    ]
    plain += [p for p in made.parameters.values() if p.kind == p.KEYWORD_ONLY]
    assert written == f"def f{made.replace(parameters=plain)}:"


def test_argument_beside_one_with_the_underscore_binds_and_has_a_handler() -> None:
    with torch.library._scoped_library("names_here", "DEF") as library:
        library.define("f(Tensor self, float from=0, float from_=1) -> Tensor")
        handle = handle_of("names_here::f")
        x = torch.ones(1)
        assert handle.bind((x, 2.0)) == {"self": x, "from": 2.0, "from_": 1.0}
        assert handle.bind((x,), {"from": 2.0, "from_": 3.0})["from"] == 2.0
        assert str(inspect.signature(handle)) == "(self, from__=0.0, /, from_=1.0)"
        table = HandlerTable()

        @table.implements(handle)
        def handler(self: torch.Tensor, from__: float = 0.0, from_: float = 1.0) -> torch.Tensor:
            return self * from__

        assert table.lookup(handle) is handler
