"""Compare many objects by identity in one step, and hold none of them.

A tuple is an array of addresses. Reading that array as bytes and comparing it with bytes kept
from before tells, for all objects at once, whether each is the very same one. An object that died
must not be taken for one that was put in its place: whoever keeps such bytes watches the objects
by weak references, and forgets the bytes when one dies.

The layout of a tuple is CPython's; where a test at import finds another one, ``id`` is used.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["address_reader", "addresses_by_id"]

_WORD = ctypes.sizeof(ctypes.c_void_p)
_START = tuple.__basicsize__


class _ById:
    """What reads addresses where a tuple's layout is not known."""

    def __init__(self, values: tuple[object, ...]) -> None:
        self.raw = addresses_by_id(values)


def addresses_by_id(values: tuple[object, ...]) -> bytes:
    """Give the addresses of the values, packed; the slow and portable way."""
    return b"".join(id(value).to_bytes(_WORD, "little") for value in values)


def address_reader(count: int, known_layout: bool | None = None) -> tuple[Callable[..., Any], str]:
    """Give what reads the packed addresses of a tuple of ``count`` values.

    Returns a function and how to call it on the variable ``values``; ``raw`` of the result are
    the bytes.
    """
    if _KNOWN if known_layout is None else known_layout:
        return (ctypes.c_char * (count * _WORD)).from_address, f"id(values) + {_START}"
    return _ById, "values"


def _is_known_layout() -> bool:
    if sys.implementation.name != "cpython" or sys.byteorder != "little" or _WORD != 8:
        return False
    if tuple.__itemsize__ != _WORD:
        return False
    values = (object(), None, 3, "x", object(), (1, 2))
    read, _ = address_reader(len(values), known_layout=True)
    return bool(read(id(values) + _START).raw == addresses_by_id(values))


_KNOWN = _is_known_layout()
