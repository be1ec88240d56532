"""Leave out of a call what torch leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dispatch_core._schema import Schema


class Elision:
    """The precomputed part of eliding for one overload."""

    def __init__(self, schema: Schema) -> None:
        self.positional = [a for a in schema.arguments if not a.kwarg_only]
        self.keyword = [a for a in schema.arguments if a.kwarg_only]

    def elide(self, values: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Give args and kwargs."""
        args = [values[a.name] for a in self.positional]
        while args:
            a = self.positional[len(args) - 1]
            v = args[-1]
            if not a.has_default or not (
                v is a.default or (type(v) is type(a.default) and v == a.default)
            ):
                break
            args.pop()
        kwargs = {}
        for a in self.keyword:
            v = values[a.name]
            if not a.has_default or not (
                v is a.default or (type(v) is type(a.default) and v == a.default)
            ):
                kwargs[a.name] = v
        return tuple(args), kwargs
