"""Schemas are read and printed: torch's whole registry, and torch itself as the judge."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch
from opspec.diagnostics import SchemaError
from opspec.enums import ENUMS, REDUCTIONS, enum_by_name
from opspec.grammar import Parser
from opspec.model import Alias, EnumDefault, ListOf, Named, Optional_, Parameter, Schema
from opspec.schema import _careful, parse_schema, parse_type

NATIVE = Path(torch.__file__).parents[1] / "torchgen/packaged/ATen/native/native_functions.yaml"


@cache
def registry() -> tuple[str, ...]:
    """Give torch's own text of all schemas that `import torch` registers."""
    return tuple(sorted({str(schema) for schema in torch._C._jit_get_all_schemas()}))


def test_registry_is_the_whole_one() -> None:
    assert len(registry()) >= 4374


@pytest.mark.slow
def test_registry_prints_back_to_the_letter() -> None:
    wrong = [text for text in registry() if parse_schema(text).torch_text() != text]
    assert wrong == []


@pytest.mark.slow
def test_registry_reads_back_from_the_house_form() -> None:
    for text in registry():
        schema = parse_schema(text)
        assert parse_schema(str(schema)) == schema


@pytest.mark.slow
def test_registry_is_read_alike_by_both_ways() -> None:
    """The fast way and the careful one give the same schema with the same places."""
    for text in registry():
        fast, careful = parse_schema(text), _careful(text, None, "", None)
        assert fast == careful
        assert [p.location for p in fast.parameters] == [p.location for p in careful.parameters]


@pytest.mark.slow
def test_registry_with_dynamo_prints_back_to_the_letter() -> None:
    """More operators are registered when torch._dynamo is imported: in a process of its own."""
    program = (
        "import torch, torch._dynamo\n"
        "from opspec.schema import parse_schema\n"
        "texts = [str(schema) for schema in torch._C._jit_get_all_schemas()]\n"
        "wrong = [text for text in texts if parse_schema(text).torch_text() != text]\n"
        "print(len(texts) > 4374, wrong)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True []\n"


def test_alias_set_keeps_its_order_and_compares_without_it() -> None:
    one = parse_schema("f(Tensor(a) x, Tensor(b) y) -> Tensor(b|a)")
    other = parse_schema("f(Tensor(a) x, Tensor(b) y) -> Tensor(a|b)")
    assert one.torch_text() == "f(Tensor(a) x, Tensor(b) y) -> Tensor(b|a)"
    assert other.torch_text() == "f(Tensor(a) x, Tensor(b) y) -> Tensor(a|b)"
    assert one == other
    assert hash(one) == hash(other)


def test_native_functions_equal_the_registry() -> None:
    """Every entry of native_functions.yaml is in the registry, to the letter of torch's text."""
    known = set(registry())
    for line in NATIVE.read_text().splitlines():
        if line.startswith("- func: "):
            text = line.removeprefix("- func: ")
            assert parse_schema(text, namespace="aten").torch_text() in known


def test_numbers_of_enums_are_those_of_torch() -> None:
    """torch prints a default of an enum as its number; Layout and MemoryFormat it cannot read."""
    for name, (number, attribute) in ENUMS["ScalarType"].items():
        default = str(torch._C.parse_schema(f"f(ScalarType x={name}) -> ()"))
        assert default == f"f(ScalarType x={number}) -> ()"
        assert isinstance(getattr(torch, attribute), torch.dtype)
        assert getattr(torch, attribute) is getattr(torch, name, getattr(torch, attribute))
    for _, attribute in ENUMS["Layout"].values():
        assert isinstance(getattr(torch, attribute), torch.layout)
    for _, attribute in ENUMS["MemoryFormat"].values():
        assert isinstance(getattr(torch, attribute), torch.memory_format)
    assert (
        str(torch._C.parse_schema("f(int x=Mean) -> ()")) == f"f(int x={REDUCTIONS['Mean']}) -> ()"
    )


def test_names_of_one_enum_value_are_one_default() -> None:
    assert enum_by_name("ScalarType", "int64") == EnumDefault("ScalarType", "long", 4, "int64")
    assert enum_by_name("ScalarType", "long") == enum_by_name("ScalarType", "int64")
    assert enum_by_name("ScalarType", "longer") is None


def test_defaults_are_python_values() -> None:
    schema = parse_schema(
        "f(int[2] a=0, SymInt[] b=[], float c=1, Scalar d=1, bool e=True, str f='x', "
        "Tensor? g=None, ScalarType h=long, Device i=cpu, int[]? j=None) -> ()"
    )
    values = [parameter.default for parameter in schema.parameters]
    long = EnumDefault("ScalarType", "long", 4, "int64")
    assert values == [(0, 0), (), 1.0, 1, True, "x", None, long, "cpu", None]
    assert list(map(type, values[2:5])) == [float, int, bool]


def test_parameters_differ_where_torch_tells_them_apart() -> None:
    def scalar(default: float) -> Parameter:
        return Parameter("alpha", Named("Scalar"), default, True)

    assert scalar(1) != scalar(1.0)
    assert scalar(1) != scalar(True)
    assert scalar(0.0) == scalar(0.0)
    assert scalar(float("nan")) == scalar(float("nan"))
    assert len({scalar(1), scalar(1.0), scalar(True)}) == 3


def test_parts_of_a_schema() -> None:
    schema = parse_schema("add.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", namespace="aten")
    assert (schema.namespace, schema.name, schema.overload) == ("aten", "add", "out")
    assert schema.base == "aten::add"
    assert schema.qualified_name == "aten::add.out"
    assert schema.func_text() == "add.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)"
    assert [p.kwarg_only for p in schema.parameters] == [False, True]
    assert schema.returns[0].type == Named("Tensor", Alias(("a",), None, True))
    assert parse_schema("x::f() -> ()", namespace="aten").namespace == "x"


def test_locations_of_arguments_are_columns_of_the_text() -> None:
    text = "f(Tensor self, *, int x=0) -> ()"
    columns = [parameter.location.column for parameter in parse_schema(text).parameters]
    assert [text[column - 1 :].split()[0] for column in columns] == ["Tensor", "int"]


def test_types_read_and_print() -> None:
    assert parse_type("Tensor(a!)[]?") == Optional_(
        ListOf(Named("Tensor", Alias(("a",), None, True)))
    )
    for text in (
        "int[2]",
        "Tensor?[]",
        "Dict(str, Tensor)",
        "(int, str)",
        "Future(t)",
        "t(a)[](b)",
    ):
        assert str(parse_type(text)) == text
    for text in ("", "Tensor x", "Tensor x=1", "Tensor,", "1"):
        with pytest.raises(SchemaError, match="is no type"):
            parse_type(text)


def test_schema_error_stands_alone() -> None:
    """Outside of a file an error shows the text itself."""
    with pytest.raises(SchemaError) as caught:
        parse_schema("f(Tensor) -> ()")
    assert str(caught.value) == (
        "<schema>:1:9: error: expected the argument's name after Tensor, but found ')'\n"
        "  f(Tensor) -> ()\n"
        "          ^\n"
        "  an argument is a type and a name: Tensor self"
    )
    assert isinstance(caught.value.partial, Schema)


def test_parser_knows_the_spans_of_all_parts() -> None:
    text = "x::f.y(Tensor self, int[2] n=[1, 2]) -> (Tensor a, int)"
    found = Parser(text).schema()
    assert found is not None

    def cut(span: tuple[int, int]) -> str:
        return text[slice(*span)]

    assert [cut(span) for span in found.name_spans] == ["x", "f", "y"]
    assert [cut(span) for span in found.return_spans] == ["Tensor a", "int"]
    second = found.parameters[1]
    assert cut(second.type_span) == "int[2]"
    assert cut(second.name_span) == "n"
    assert cut(second.default_span) == "[1, 2]"
