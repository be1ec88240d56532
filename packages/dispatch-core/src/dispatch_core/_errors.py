"""The errors of dispatch_core; DispatchError is the base of them all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = [
    "BindError",
    "DefinitionError",
    "DispatchError",
    "HandlerError",
    "HandlerResultError",
    "HandlerSignatureError",
    "MemorylessError",
    "ModeClassError",
    "ModeStateError",
    "NoHandlerError",
    "NotAnOperatorError",
    "NotRegisteredError",
    "SchemaDriftError",
    "TableError",
    "UnknownOperatorError",
]


class DispatchError(Exception):
    """The base of every error that dispatch_core raises on purpose."""

    # The fields are keyword-only, which BaseException's own way to pickle does not know.
    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(
    kind: type[DispatchError], args: tuple[Any, ...], fields: dict[str, Any]
) -> DispatchError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


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


class NotAnOperatorError(DispatchError, TypeError):
    """Something that is neither an operator of torch nor the name of one. Field: `value`."""

    def __init__(self, message: str, *, value: Any) -> None:
        super().__init__(message)
        self.value = value


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


class DefinitionError(DispatchError, ValueError):
    """A namespace or schema that `define` cannot define in torch. Field: `namespace`."""

    def __init__(self, message: str, *, namespace: str) -> None:
        super().__init__(message)
        self.namespace = namespace


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


class HandlerSignatureError(DispatchError, TypeError):
    """A function that was registered for an operator whose arguments it cannot take.

    Fields: `qualified_name`; `handler`; `differences`, one sentence each.
    """

    def __init__(
        self, message: str, *, qualified_name: str, handler: Any, differences: tuple[str, ...]
    ) -> None:
        super().__init__(message)
        self.qualified_name = qualified_name
        self.handler = handler
        self.differences = differences


class HandlerError(DispatchError, RuntimeError):
    """A handler raised a TypeError, which torch or Python's operators would have hidden.

    Fields: `overload`; `handler`, what raised. `__cause__` is the error itself.
    """

    def __init__(self, message: str, *, overload: Any, handler: Any) -> None:
        super().__init__(message)
        self.overload = overload
        self.handler = handler


class HandlerResultError(HandlerError):
    """A handler answered with something that its operator cannot give.

    Fields: `overload`; `handler`; `expected`, the schema's result types as text; `result_type`.
    """

    def __init__(
        self, message: str, *, overload: Any, handler: Any, expected: str, result_type: type
    ) -> None:
        super().__init__(message, overload=overload, handler=handler)
        self.expected = expected
        self.result_type = result_type


class NoHandlerError(DispatchError, RuntimeError):
    """Nobody took a call.

    Fields: `overload`; `declined`, the classes that were asked, in the order in which they were.
    """

    def __init__(self, message: str, *, overload: Any, declined: tuple[type, ...]) -> None:
        super().__init__(message)
        self.overload = overload
        self.declined = declined


class ModeClassError(DispatchError, ValueError):
    """`enable_python_mode` was given something that cannot answer operators. Field: `cls`."""

    def __init__(self, message: str, *, cls: Any) -> None:
        super().__init__(message)
        self.cls = cls


class ModeStateError(DispatchError, RuntimeError):
    """A mode was entered or left where it cannot be."""


class TableError(DispatchError, ValueError):
    """A table was given something that makes no sense: no operator, an unknown tag or policy."""


class MemorylessError(DispatchError, RuntimeError):
    """An operator met, with its handler turned off, a wrapper that has no memory to compute on.

    Fields: `overload`; `argument`, the name of the parameter; `cls`, the wrapper's class.
    """

    def __init__(self, message: str, *, overload: Any, argument: str, cls: type) -> None:
        super().__init__(message)
        self.overload = overload
        self.argument = argument
        self.cls = cls


def near_matches(name: str, known: Iterable[str], *, most: int = 3) -> tuple[str, ...]:
    """List the known names closest to a misspelt one, best first; also those of another case."""
    import difflib  # only a misspelt name needs it

    names = sorted(set(known))
    same = [other for other in names if other.lower() == name.lower()]
    close = difflib.get_close_matches(name, names, n=most, cutoff=0.7)
    return tuple(dict.fromkeys([*same, *close]))[:most]
