"""Laws of schemas: what is printed reads back, and no text is too much."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, example, given, settings
from opspec.diagnostics import Diagnostic, SchemaError
from opspec.model import ListOf, Named, Schema, Type
from opspec.schema import _careful, _fast, parse_schema, parse_type

from tests.property.strategies import (
    LAWS,
    broken_schema_texts,
    schema_texts,
    schemas,
    torch_schemas,
    types,
)

pytestmark = pytest.mark.slow


@LAWS
@given(types)
def test_type_reads_back(type_: Type) -> None:
    assert parse_type(str(type_)) == type_


@LAWS
@given(schemas())
def test_schema_reads_back(schema: Schema) -> None:
    assert parse_schema(str(schema)) == schema


@LAWS
@given(schemas())
def test_schema_prints_the_same_again(schema: Schema) -> None:
    assert str(parse_schema(str(schema))) == str(schema)


@LAWS
@given(schemas())
def test_schema_without_its_namespace_reads_back(schema: Schema) -> None:
    assert parse_schema(schema.func_text(), namespace=schema.namespace) == schema


def _is_shortened(schema: Schema) -> bool:
    """Say whether torch prints a list as one number although its length is another."""
    return any(
        isinstance(parameter.type, ListOf)
        and parameter.type.element == Named("int")
        and isinstance(parameter.default, tuple)
        and len(parameter.default) != parameter.type.size
        for parameter in schema.parameters
    )


@LAWS
@given(schemas())
def test_torch_form_reads_back(schema: Schema) -> None:
    assume(not _is_shortened(schema))
    assert parse_schema(schema.torch_text()) == schema


@LAWS
@given(torch_schemas())
def test_torch_prints_what_we_print(schema: Schema) -> None:
    """torch is the judge: it reads our text and prints it to the letter."""
    text = schema.torch_text()
    assume(not _is_shortened(schema))
    assert str(torch._C.parse_schema(text)) == text


@LAWS
@given(schema_texts)
def test_fast_way_reads_what_is_right(text: str) -> None:
    fast, careful = _fast(text, None, "", None), _careful(text, None, "", None)
    assert fast is None or fast == careful


@LAWS
@given(broken_schema_texts)
@example("f(int x=" + "9" * 100 + ") -> ()")
@example("f(" + "(" * 1000)
@example("f(Tensor" + "[]" * 1000 + " x) -> ()")
@example("f(Tensor" + "?[]" * 1000 + " x) -> ()")
@example("f(int x=" + "[" * 1000 + ") -> ()")
@example("f(" + "Tensor x, " * 1000)
@example('f(str x="' + "\\" * 999)
@example('f(str x="\\x\\u12\\UFFFFFFFF") -> ()')
def test_both_ways_agree_on_any_text(text: str) -> None:
    """What the fast way takes, the careful one takes alike, down to the places."""
    fast = _fast(text, None, "", None)
    if fast is None:
        return
    careful = _careful(text, None, "", None)
    assert fast == careful
    assert [p.location for p in fast.parameters] == [p.location for p in careful.parameters]


@settings(LAWS, max_examples=300)
@given(broken_schema_texts)
@example("")
@example("\x00")
@example("f(int x=1.5, Tensor, int y=, Tensr z) -> ")
@example("f(Tensor(a! x, Tensor y) -> Tensor")
def test_any_text_is_read_or_every_fault_lies_inside_it(text: str) -> None:
    faults: tuple[Diagnostic, ...] = ()
    try:
        schema: Schema | None = parse_schema(text)
    except SchemaError as error:
        faults = error.diagnostics
        schema = None
    assert (schema is None) == bool(faults)
    assert schema is None or parse_schema(str(schema)) == schema
    for fault in faults:
        assert fault.location.line == 1
        assert 1 <= fault.location.column <= len(text) + 1
        assert fault.span_length >= 1
        assert fault.message
        assert fault.remedy


@LAWS
@given(schemas())
def test_equal_schemas_hash_alike(schema: Schema) -> None:
    assert hash(parse_schema(str(schema))) == hash(schema)
