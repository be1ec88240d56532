"""Names for objects of which a compilation keeps the address alone."""

from __future__ import annotations

import gc
import re
import types
from collections.abc import Iterable
from typing import Any

from guards._constants import spell, type_name

__all__ = ["named_identities"]

_IDENTITY = re.compile(
    r"___check_obj_id\(.*?, (?P<address>\d+)\)(?:, type=<class '(?P<type>.+?)'>)?"
)


def named_identities(texts: Iterable[str]) -> dict[str, str]:
    """Find the objects whose identities these texts of torch test, and say what each one is.

    An object that is gone, or is of another class than torch saw, has no name.
    """
    wanted: dict[int, list[tuple[str, str]]] = {}
    for text in texts:
        found = _IDENTITY.search(text)
        if found is not None:
            wanted.setdefault(int(found["address"]), []).append((text, found["type"] or ""))
    if not wanted:
        return {}
    names: dict[str, str] = {}
    for value in _living(wanted.keys()):
        kind = type_name(type(value)).removeprefix("builtins.")
        for text, seen in wanted[id(value)]:
            # Of a class torch says the name of the class itself.
            if seen in (kind, _own_name(value)):
                names[text] = spell(value)
    return names


def _own_name(value: Any) -> str | None:
    return type_name(value) if issubclass(type(value), type) else None


def _living(addresses: Iterable[int]) -> Iterable[Any]:
    """Give what lives at these addresses, as far as the garbage collector knows of it."""
    objects = gc.get_objects()
    codes = {id(f.__code__): f.__code__ for f in objects if type(f) is types.FunctionType}
    by_address = dict(zip(map(id, objects), objects, strict=True)) | codes
    for address in addresses:
        if address in by_address:
            yield by_address[address]
