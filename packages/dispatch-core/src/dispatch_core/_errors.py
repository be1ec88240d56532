"""The errors of dispatch_core; DispatchError is the base of them all."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "BindError",
    "DispatchError",
    "NotRegisteredError",
    "SchemaDriftError",
    "UnknownOperatorError",
]


class DispatchError(Exception):
    """The base of every error that dispatch_core raises on purpose."""


class UnknownOperatorError(DispatchError, AttributeError):
    """A namespace, operator or overload that neither the specs nor torch has.

    Fields: `qualified_name` is what was asked for, `suggestions` the near matches.
    """

    def __init__(
        self, message: str, *, qualified_name: str, suggestions: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.qualified_name = qualified_name
        self.suggestions = suggestions


class SchemaDriftError(DispatchError, RuntimeError):
    """An operator that the installed torch lacks, or has with another schema than the specs.

    Fields: `qualified_name`; `spec_schema`; `live_schema`, None where the operator is gone.
    """

    def __init__(
        self,
        message: str,
        *,
        qualified_name: str,
        spec_schema: str,
        live_schema: str | None,
    ) -> None:
        super().__init__(message)
        self.qualified_name = qualified_name
        self.spec_schema = spec_schema
        self.live_schema = live_schema


class NotRegisteredError(DispatchError, RuntimeError):
    """An operator of the specs that nobody has defined in torch yet.

    Field: `qualified_name`.
    """

    def __init__(self, message: str, *, qualified_name: str) -> None:
        super().__init__(message)
        self.qualified_name = qualified_name


class BindError(DispatchError, TypeError):
    """Arguments that an operator's schema does not allow.

    Fields: `qualified_name`; `argument`, the one at fault, None where it has no name; `problem`:
    'missing', 'unknown', 'duplicate', 'surplus', or 'unsupported' for a schema that has no names
    to bind to.
    """

    def __init__(
        self, message: str, *, qualified_name: str, argument: str | None, problem: str
    ) -> None:
        super().__init__(message)
        self.qualified_name = qualified_name
        self.argument = argument
        self.problem = problem


def near_matches(name: str, known: Iterable[str], *, most: int = 3) -> tuple[str, ...]:
    """List the known names closest to a misspelt one, best first; also those of another case."""
    names = sorted(set(known))
    same = [other for other in names if other.lower() == name.lower()]
    close = difflib.get_close_matches(name, names, n=most, cutoff=0.7)
    return tuple(dict.fromkeys([*same, *close]))[:most]
