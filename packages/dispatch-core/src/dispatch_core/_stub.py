"""Collect the generated dispatch stubs: one Python function for each overload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["OVERLOADS", "STUBS", "StubRecord", "stub"]

F = TypeVar("F", bound=Callable[..., dict[str, Any]])


class StubRecord:
    """What a spec says of one overload: its schema, its stub, and facts beyond the schema."""

    __slots__ = (
        "also_writes",
        "composite",
        "family",
        "function",
        "output_shape",
        "random",
        "reads_data",
        "schema",
        "tags",
    )

    def __init__(
        self,
        schema: str,
        function: Callable[..., dict[str, Any]],
        family: str,
        tags: str,
        composite: str,
        random: bool,
        reads_data: str,
        output_shape: str,
        also_writes: str,
    ) -> None:
        self.schema = schema
        self.function = function
        self.family = family
        self.tags = tags
        self.composite = composite
        self.random = random
        self.reads_data = reads_data
        self.output_shape = output_shape
        self.also_writes = also_writes


STUBS: dict[str, StubRecord] = {}
"""The stubs of all family modules that were imported so far, by qualified name."""

OVERLOADS: dict[str, list[str]] = {}
"""The overload names ('' for the default one) of the same stubs, by a name like 'aten::addmv'."""


def stub(
    schema: str,
    *,
    tags: str = "",
    composite: str = "no",
    random: bool = False,
    reads_data: str = "no",
    output_shape: str = "static",
    also_writes: str = "",
) -> Callable[[F], F]:
    """Register the decorated function as the dispatch stub of the overload with this schema.

    `schema` is torch's own text. The function comes back unchanged, with the schema for docstring.
    """

    def register(function: F) -> F:
        family = function.__module__.rpartition(".")[2]
        function.__doc__ = schema
        qualified_name = schema[: schema.index("(")]
        base, _, overload = qualified_name.partition(".")
        if qualified_name not in STUBS:
            OVERLOADS.setdefault(base, []).append(overload)
        STUBS[qualified_name] = StubRecord(
            schema,
            function,
            family,
            tags,
            composite,
            random,
            reads_data,
            output_shape,
            also_writes,
        )
        return function

    return register
