"""Finding what is passed on of one call, against a loop over torch's schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import torch
from dispatch_core import handle_of

from tools.bench.calls import CALLS
from tools.bench.row import Row, faster
from tools.bench.timing import Statement, alternate


def is_default(argument: torch.Argument, value: object) -> bool:
    """Say whether torch would drop a value: it equals the default once it has the schema's type."""
    default = argument.default_value
    if isinstance(default, list):
        return (
            isinstance(value, (list, tuple))
            and len(value) == len(default)
            and all(type(x) is type(y) and x == y for x, y in zip(value, default, strict=True))
        )
    if type(default) is float and type(value) in (int, bool) and argument.type.kind() != "AnyType":
        value = float(cast("int", value))
    return type(value) is type(default) and value == default


def elide_by_schema(
    schema: torch.FunctionSchema, values: Mapping[str, object]
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Do what `Handle.elide` does, as one would write it for any schema."""
    positional: list[object] = []
    kept = 0
    keywords: dict[str, object] = {}
    for argument in schema.arguments:
        value = values[argument.name]
        dropped = argument.has_default_value() and is_default(argument, value)
        if argument.kwarg_only:
            if not dropped:
                keywords[argument.name] = value
        else:
            positional.append(value)
            if not dropped:
                kept = len(positional)
    return tuple(positional[:kept]), keywords


def rows() -> Iterator[Row]:
    """Compare `Handle.elide` with a loop over the arguments of the schema."""
    for name, (args, kwargs) in CALLS.items():
        handle = handle_of(name)
        values = handle.bind(args, kwargs)
        schema = handle.torch_op._schema
        positional, keywords = elide_by_schema(schema, values)
        found = handle.elide(values)
        if len(found[0]) != len(positional) or found[1].keys() != keywords.keys():
            raise RuntimeError(f"elide and the loop disagree on {name}: {found}")
        names: dict[str, object] = {
            "elide": handle.elide,
            "values": values,
            "schema": schema,
            "loop": elide_by_schema,
        }
        ours, theirs = alternate(
            Statement("elide(values)", names), Statement("loop(schema, values)", names)
        )
        yield Row(f"elide {name}", "a loop over the schema", ours, theirs, faster(6))
