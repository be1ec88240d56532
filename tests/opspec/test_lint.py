"""Rules: the short way past them, and where they are notes."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from opspec import lint
from opspec.lint import RESERVED_WORDS, TORCH_TYPES, lint_namespaces, lint_schema
from opspec.model import Location
from opspec.schema import parse_schema
from opspec.schema_text import SchemaText
from opspec.source import Source


def linted(text: str, *, imported: bool = False) -> list[tuple[str, str]]:
    source = Source("f", text)
    found = lint_schema(
        parse_schema(text, namespace="mylib"),
        SchemaText(text, Location("f", 1, 1), None, source),
        imported=imported,
    )
    return [(fault.severity, fault.message) for fault in found]


@cache
def registry() -> tuple[str, ...]:
    return tuple(sorted({str(schema) for schema in torch._C._jit_get_all_schemas()}))


@pytest.mark.slow
@pytest.mark.parametrize("imported", [True, False])
def test_short_way_agrees_with_the_rules(imported: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is waved through at a glance has no fault by the rules either."""
    glanced = [text for text in registry() if lint._is_plain(parse_schema(text))]
    assert len(glanced) > len(registry()) // 2
    monkeypatch.setattr(lint, "_is_plain", lambda schema: False)
    faulty = [text for text in glanced if linted(text.partition("::")[2], imported=imported)]
    assert faulty == []


def test_rule_that_torch_breaks_is_a_note_where_imported() -> None:
    message = "f_ has the name of an in-place operator, but writes to no argument"
    assert linted("f_(Tensor self) -> Tensor") == [("error", message)]
    assert linted("f_(Tensor self) -> Tensor", imported=True) == [("note", message)]


@pytest.mark.parametrize(
    "text",
    [
        "f(Tensr self) -> Tensor",
        "f(int x=0, int y) -> ()",
        "f.default(Tensor self) -> ()",
        "f.__x__(Tensor self) -> ()",
        "f(Tensor if) -> ()",
    ],
)
def test_what_torch_refuses_is_an_error_everywhere(text: str) -> None:
    assert [severity for severity, _ in linted(text, imported=True)] == ["error"]


@pytest.mark.parametrize("word", sorted(RESERVED_WORDS))
def test_reserved_words_are_those_of_torch(word: str) -> None:
    with pytest.raises(RuntimeError):
        torch._C.parse_schema(f"f(Tensor {word}) -> ()")


@pytest.mark.parametrize("name", sorted(TORCH_TYPES - {"Dimname"}))
def test_types_are_those_that_torch_reads(name: str) -> None:
    """Dimname stands in native_functions.yaml only."""
    torch._C.parse_schema(f"f({name} x) -> ()")


@pytest.mark.parametrize("default", ["inf", "nan", "[1, 1]"])
def test_default_that_torch_cannot_read_is_an_error(default: str) -> None:
    type_ = "int[]" if default.startswith("[") else "float"
    ((severity, message),) = linted(f"f({type_} x={default}) -> ()")
    assert severity == "error"
    assert "torch" in message
    text = parse_schema(f"f({type_} x={default}) -> ()").torch_text()
    with pytest.raises(RuntimeError):
        torch._C.parse_schema(text)


@pytest.mark.parametrize(
    "text",
    [
        "f(Tensor(a!) self) -> Tensor(a!)",
        "f_(Tensor(a!) self) -> Tensor(a!)",
        "f_(Tensor(a!)[] self) -> ()",
        "f.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)",
        "f.x_out(Tensor self, *, Tensor(a!) grad) -> Tensor(a!)",
        "f(Tensor(a) self, Tensor(b) other) -> Tensor(a|b)",
        "f(Tensor(a -> *) self) -> Tensor(a)[]",
        'f(int[2] x=0, int[2] y=[0, 1], float z=1e-05, Scalar w=1, str v="a") -> ()',
        "f(Tensor self, *, int x) -> (Tensor values, Tensor indices)",
        "f(__torch__.torch.classes.c10d.Work x) -> ()",
    ],
)
def test_what_keeps_the_rules_is_accepted(text: str) -> None:
    assert linted(text) == []
    torch._C.parse_schema(parse_schema(text).torch_text())


def test_namespaces_are_names_of_modules() -> None:
    assert lint_namespaces(["mylib", "_private", "torchvision", "x1"]) == {}
    wrong = ["a-b", "1a", "é", "class", "None", "__init__", "_index", "prim"]
    assert list(lint_namespaces(wrong)) == wrong
