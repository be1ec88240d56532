"""Read a schema: `parse_schema`.

What is right is read by a few regular expressions with caches (a registry repeats `Tensor self`
thousands of times); what they cannot read goes to `opspec.grammar`, which finds every fault.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from opspec.diagnostics import Diagnostic, SchemaError
from opspec.grammar import ParsedSchema, Parser
from opspec.model import NOWHERE, Default, Location, Parameter, Return, Schema, Type
from opspec.tokens import STRING

__all__ = ["parse_schema", "parse_type"]

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_HEADER = re.compile(rf"\s*(?:({_NAME})\s*::\s*)?({_NAME})(?:\s*\.\s*({_NAME}))?\s*\(\s*")
# One argument up to its `,` or `)`, with at most one level of brackets in it.
_PLAIN = r"[^,()\[\]\"']*"
_ARGUMENT = re.compile(
    rf"({_PLAIN}(?:(?:\([^()\"']*\)|\[[^\[\]\"']*\]|{STRING}){_PLAIN})*)([,)])\s*"
)
_ARROW = re.compile(r"\s*->\s*")

_Facts = tuple[str, Type, Default, bool]


@lru_cache(maxsize=16384)
def _parameter(text: str) -> _Facts | None:
    """Read `Tensor self`; None if there is a fault in it."""
    found = Parser(text).lone_parameter()
    if found is None:
        return None
    return (found.name, found.type, found.default, found.has_default)


@lru_cache(maxsize=4096)
def _results(text: str) -> tuple[tuple[Return, ...], bool] | None:
    """Read `(Tensor values, Tensor indices)`; None if there is a fault in it."""
    parsed = Parser(f"f() -> {text}")
    found = parsed.schema()
    return None if found is None or parsed.faults else (found.returns, found.varret)


def parse_schema(
    text: str,
    *,
    location: Location | None = None,
    namespace: str = "",
    locate: Callable[[int], Location] | None = None,
) -> Schema:
    """Read one schema.

    `location` is where the text starts in its file; `locate` gives the place of an offset in the
    text where that is not simply so many columns further (a quoted or folded YAML string).
    `namespace` is the one to use where the text names none.

    Raises:
        SchemaError: the text is no schema; it has a diagnostic for every fault found, with its
            column. Rules that a schema may break and still be read are those of `opspec.lint`.

    >>> str(parse_schema("aten::mm(Tensor self, Tensor mat2) -> Tensor"))
    'aten::mm(Tensor self, Tensor mat2) -> Tensor'
    """
    return _fast(text, location, namespace, locate) or _careful(text, location, namespace, locate)


def _fast(
    text: str,
    location: Location | None,
    namespace: str,
    locate: Callable[[int], Location] | None,
) -> Schema | None:
    header = _HEADER.match(text)
    if header is None:
        return None
    if location is None:
        location = NOWHERE
    file, line, column = location
    parameters: list[Parameter] = []
    kwarg_only = vararg = False
    at = header.end()
    if text.startswith(")", at):
        at += 1
    else:
        while True:
            found = _ARGUMENT.match(text, at)
            if found is None:
                return None
            written, end = found.groups()
            if written == "*":
                if kwarg_only or end == ")":
                    return None
                kwarg_only = True
            elif written == "...":
                if end != ")":
                    return None
                vararg = True
            else:
                facts = _parameter(written)
                if facts is None:
                    return None
                name, type_, default, has_default = facts
                place = Location(file, line, column + at) if locate is None else locate(at)
                parameters.append(Parameter(name, type_, default, has_default, kwarg_only, place))
            at = found.end()
            if end == ")":
                break
    arrow = _ARROW.match(text, at)
    if arrow is None:
        return None
    results = _results(text[arrow.end() :])
    if results is None:
        return None
    written_namespace, name, overload = header.groups("")
    place = location if locate is None else locate(0)
    return Schema(
        written_namespace or namespace,
        name,
        overload,
        tuple(parameters),
        results[0],
        vararg,
        results[1],
        place,
    )


def _careful(
    text: str,
    location: Location | None,
    namespace: str,
    locate: Callable[[int], Location] | None,
) -> Schema:
    start = NOWHERE if location is None else location

    def place(offset: int) -> Location:
        if locate is not None:
            return locate(offset)
        return Location(start.file, start.line, start.column + offset)

    parser = Parser(text)
    found = parser.schema()
    schema = None if found is None else _as_schema(found, namespace, place)
    if schema is None or parser.faults:
        raise SchemaError(
            (
                Diagnostic(
                    place(fault.start),
                    "error",
                    fault.message,
                    fault.remedy,
                    fault.end - fault.start,
                    text if location is None and locate is None and "\n" not in text else None,
                )
                for fault in sorted(parser.faults, key=lambda fault: fault.start)
            ),
            schema,
        )
    return schema


def _as_schema(found: ParsedSchema, namespace: str, place: Callable[[int], Location]) -> Schema:
    parameters = tuple(
        Parameter(
            parameter.name,
            parameter.type,
            parameter.default,
            parameter.has_default,
            parameter.kwarg_only,
            place(parameter.start),
        )
        for parameter in found.parameters
    )
    return Schema(
        found.namespace or namespace,
        found.name,
        found.overload,
        parameters,
        found.returns,
        found.vararg,
        found.varret,
        place(0),
    )


def parse_type(text: str) -> Type:
    """Read one type.

    Raises:
        SchemaError: the text is no type.

    >>> str(parse_type("Tensor(a!)[]?"))
    'Tensor(a!)[]?'
    """
    facts = _parameter(f"{text} x")
    if facts is None or facts[0] != "x" or facts[3]:
        remedy = "a type looks like Tensor, int[2], Scalar? or Tensor(a!)[]"
        raise SchemaError([Diagnostic(NOWHERE, "error", f"'{text}' is no type", remedy)])
    return facts[1]
