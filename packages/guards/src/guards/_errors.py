"""What can go wrong, one class for each kind of mistake."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = [
    "CacheLimitError",
    "CompileIdError",
    "DuplicateSourceError",
    "ExportInfoError",
    "FakeModeMismatchError",
    "GuardError",
    "MissingValueError",
    "NoContextError",
    "NotCompiledError",
    "SavedGuardsError",
    "SnapshotError",
    "UnknownAttributeError",
    "UnknownOperatorError",
    "UnsupportedGuardError",
    "WrongArgumentError",
]


class GuardError(Exception):
    """Base of every error that this package raises on its own account."""


class WrongArgumentError(GuardError, TypeError, ValueError):
    """A function or a class was given something that it cannot take.

    Attributes:
        function: what was called.
        argument: which of its arguments it was; empty where there is no telling.
        got: what was given.
    """

    def __init__(self, message: str, *, function: str, argument: str, got: object) -> None:
        super().__init__(message)
        self.function = function
        self.argument = argument
        self.got = got


class CompileIdError(GuardError, ValueError):
    """A text or a set of numbers that names no compilation."""


class DuplicateSourceError(GuardError, ValueError):
    """Two sources that must differ are one and the same.

    Attributes:
        source: the source that was given twice.
    """

    def __init__(self, message: str, source: object) -> None:
        super().__init__(message)
        self.source = source


class ExportInfoError(GuardError, ValueError):
    """A guard was told about a second class or a second living object.

    Attributes:
        field: which of the two facts disagrees, as the guard names it.
        known: what the guard had recorded.
        got: what it was told now.
    """

    def __init__(self, message: str, *, field: str, known: object, got: object) -> None:
        super().__init__(message)
        self.field = field
        self.known = known
        self.got = got


class NoContextError(GuardError, RuntimeError):
    """Something asked for the current trace or compilation and there is none in this thread."""


class SnapshotError(GuardError, ValueError):
    """A snapshot that cannot be restored; nothing has been changed.

    Attributes:
        missing: names that the snapshot lacks.
        unknown: names in the snapshot that the context does not know.
    """

    def __init__(
        self, message: str, *, missing: Iterable[str] = (), unknown: Iterable[str] = ()
    ) -> None:
        super().__init__(message)
        self.missing = tuple(missing)
        self.unknown = tuple(unknown)


class UnknownAttributeError(GuardError, AttributeError):
    """An attribute that the tracing context does not have; nothing has been set.

    Attributes:
        names: the attributes that were asked for in vain.
    """

    def __init__(self, message: str, names: Iterable[str]) -> None:
        super().__init__(message)
        self.names = tuple(names)


class FakeModeMismatchError(GuardError, RuntimeError):
    """Two different fake modes are in force at once.

    Attributes:
        places: where the two were found, in the order of precedence.
        modes: the two modes, in the same order.
    """

    def __init__(
        self, message: str, *, places: tuple[str, str], modes: tuple[object, object]
    ) -> None:
        super().__init__(message)
        self.places = places
        self.modes = modes


class MissingValueError(GuardError, LookupError):
    """A source whose value is not there.

    Attributes:
        source_name: the expression that was to be evaluated.
    """

    def __init__(self, message: str, source_name: str) -> None:
        super().__init__(message)
        self.source_name = source_name


class UnsupportedGuardError(GuardError, ValueError):
    """A guard that cannot be made, or cannot be saved.

    Attributes:
        guards: the guards that cannot be saved, where somebody saved; else none.
    """

    def __init__(self, message: str, guards: Iterable[object] = ()) -> None:
        super().__init__(message)
        self.guards = tuple(guards)


class CacheLimitError(GuardError, RuntimeError):
    """A guarded cache is full and was told to say so.

    Attributes:
        limit: the number of entries it takes.
    """

    def __init__(self, message: str, limit: int) -> None:
        super().__init__(message)
        self.limit = limit


class SavedGuardsError(GuardError, ValueError):
    """A text that is no set of saved guards, or one that this version cannot read."""


class UnknownOperatorError(GuardError, LookupError):
    """No operator of that name, or a name that several overloads share."""


class NotCompiledError(GuardError, ValueError):
    """Something that was not given to ``torch.compile`` and has no compilations to look at."""
