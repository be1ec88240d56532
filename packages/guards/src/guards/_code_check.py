"""The check of a function's code."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import sys
import types
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from guards._checks import NodeCheck, OneSourceCheck, spell_found, wants
from guards._constants import spell
from guards._emit import Emitter

if TYPE_CHECKING:
    from guards._value_sources import ValueSource

__all__ = ["CodeCheck", "code_digest", "plain_function"]


class CodeCheck(OneSourceCheck, NodeCheck):
    """A Python function runs this code: the very same code object, or one equal to it.

    The code is known by its digest, so the check keeps nothing alive and can be saved.
    """

    code = "FUNCTION_MATCH"

    def __init__(self, source: ValueSource, described: str, digest: str) -> None:
        super().__init__(source)
        wants(type(described) is str, self.code, "a name", described)
        wants(type(digest) is str, self.code, "a digest", digest)
        self.described, self.digest = described, digest
        self._example: Any = None
        self._bound = False

    @classmethod
    def of(
        cls, source: ValueSource, function: types.FunctionType, *, bound: bool = False
    ) -> CodeCheck:
        """Make the check for what a function, or the one behind a bound method, runs now."""
        check = cls(source, spell(function), code_digest(function.__code__))
        check._example = weakref.ref(function.__code__)
        check._bound = bound
        return check

    def condition(self, names: Sequence[str], emitter: Emitter) -> str:
        slow = f"{emitter.constant(self.holds, 'same_code')}({names[0]})"
        code = self._example and self._example()
        if code is None:
            return slow
        kind = emitter.constant(types.FunctionType, "function")
        known = emitter.weakly(code, code.co_name)
        return f"(type({names[0]}) is {kind} and {names[0]}.__code__ is {known} or {slow})"

    def pattern(self) -> tuple[str, Any] | None:
        alive = self._example is not None and self._example() is not None
        return ("nodes", None) if alive and not self._bound else None

    def add_to(self, node: Any, kind: Any, value: Any) -> object:
        code = self._example()
        # torch takes the code of functions, bound methods, and methods that C code made, as
        # ``plain_function`` does, and fails for anything else.
        below = node.code_manager("__code__", None, kind)
        below.add_id_match_guard(id(code), ["code"], None)
        return code

    def holds(self, value: object) -> bool:
        """Tell whether one value is a function that runs this code."""
        function = plain_function(value)
        if function is None:
            return False
        same = self._example is not None and function.__code__ is self._example()
        return same or code_digest(function.__code__) == self.digest

    def expected(self) -> str:
        return f"{self.described} with the same code"

    def actual(self, values: Sequence[Any]) -> str:
        found = spell_found(values[0])
        return f"{found} with other code" if found == self.described else found

    def state(self) -> dict[str, Any]:
        return {"described": self.described, "digest": self.digest}


def plain_function(value: object) -> types.FunctionType | None:
    """Give the Python function behind a function or a bound method."""
    if type(value) is types.MethodType or type(value) is _method_of_c():
        value = value.__func__  # type: ignore[attr-defined]
    return value if type(value) is types.FunctionType else None


@functools.lru_cache(maxsize=1)
def _method_of_c() -> type:
    """Give the class of what C code makes of a function that is to be a method."""
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)
    return type(make(("PyInstanceMethod_New", ctypes.pythonapi))(plain_function))


def code_digest(code: types.CodeType) -> str:
    """Give a text that differs where two code objects do something else.

    Line numbers and file names take no part.
    """

    def parts(code: types.CodeType) -> Any:
        constants = [
            parts(c) if isinstance(c, types.CodeType) else spell_exactly(c) for c in code.co_consts
        ]
        return (
            code.co_code.hex(),
            constants,
            code.co_names,
            code.co_varnames,
            code.co_freevars,
            code.co_cellvars,
            code.co_argcount,
            code.co_kwonlyargcount,
            code.co_posonlyargcount,
            code.co_flags,
            getattr(code, "co_exceptiontable", b"").hex(),
        )

    text = repr((sys.version_info[:2], parts(code)))
    return hashlib.sha256(text.encode()).hexdigest()


def spell_exactly(value: object) -> str:
    """Write a constant of code so that two that differ are written differently."""
    if type(value) is frozenset:
        return f"frozenset({sorted(map(spell_exactly, value))})"
    if type(value) is tuple:
        return f"({', '.join(map(spell_exactly, value))})"
    return f"{type(value).__name__}:{value!r}"
