"""The errors of subclass_utils; SubclassError is the base of them all."""

from __future__ import annotations

__all__ = [
    "CopyError",
    "DeclarationError",
    "LayoutError",
    "MemorylessError",
    "MixingError",
    "ResizeError",
    "SubclassError",
    "ViewError",
]


class SubclassError(Exception):
    """The base of every error that subclass_utils raises on purpose."""


class DeclarationError(SubclassError, RuntimeError):
    """A wrapper class whose declaration does not say enough, or contradicts itself.

    Fields: `cls`, the class.
    """

    def __init__(self, message: str, *, cls: type) -> None:
        super().__init__(message)
        self.cls = cls


class LayoutError(SubclassError, RuntimeError):
    """A tensor whose layout no outside can have, such as a nested one. Fields: `cls`."""

    def __init__(self, message: str, *, cls: type) -> None:
        super().__init__(message)
        self.cls = cls


class MixingError(SubclassError, RuntimeError):
    """A plain tensor met a wrapper whose class does not mix with plain tensors.

    Fields: `qualified_name` of the operator, `argument` that holds the plain tensor, `cls`.
    """

    def __init__(self, message: str, *, qualified_name: str, argument: str, cls: type) -> None:
        super().__init__(message)
        self.qualified_name = qualified_name
        self.argument = argument
        self.cls = cls


class MemorylessError(SubclassError, RuntimeError):
    """Something asked a wrapper for the memory that only its inner tensors have.

    Fields: `method`, the name of what was called; `cls`.
    """

    def __init__(self, message: str, *, method: str, cls: type) -> None:
        super().__init__(message)
        self.method = method
        self.cls = cls


class ResizeError(SubclassError, RuntimeError):
    """A tensor that came from `.data` was resized, which its source could not follow."""


class ViewError(SubclassError, RuntimeError):
    """A write, or a change of shape, cannot reach everything that shares the data."""


class CopyError(SubclassError, RuntimeError):
    """A wrapper could not be copied or saved. Fields: `cls`."""

    def __init__(self, message: str, *, cls: type) -> None:
        super().__init__(message)
        self.cls = cls
