"""Classes by name: how one is called, and which one a name stands for."""

from __future__ import annotations

import sys
import types
from typing import Any

from guards import _fetch
from guards._fetch import MISSING, Absent, is_a

__all__ = ["find_class", "importable_name", "module_name", "plain_name"]


def importable_name(cls: type) -> str:
    """Give ``module:qualified.name`` of a class."""
    return f"{module_name(cls)}:{type.__dict__['__qualname__'].__get__(cls)}"


def module_name(cls: type) -> str:
    """Give the name of a class's module; a class of C has it in no dict, but in its own name."""
    try:
        module = type.__dict__["__module__"].__get__(cls)
    except AttributeError:
        module = None
    # A metaclass or a property may stand in the way; what a class says of itself is any text.
    return str.__str__(module) if is_a(module, str) else "builtins"


def plain_name(cls: type) -> str:
    """Give a class's own name, whatever its metaclass makes of ``__name__``."""
    name: str = type.__dict__["__name__"].__get__(cls)
    return name


# Classes of the interpreter's own that their module has under no name, such as that of None.
_NAMELESS = {
    importable_name(cls): cls
    for cls in vars(types).values()
    if type(cls) is type and cls.__module__ == "builtins"
}


def find_class(name: str) -> type | None:
    """Find a class by its importable name, among what is imported already; imports nothing."""
    if name in _NAMELESS:
        return _NAMELESS[name]
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module, MISSING)
    for part in path.split("."):
        if type(found) is Absent:
            return None
        found = _fetch.attribute(found, part)
    if is_a(found, type) and importable_name(found) == name:
        return found
    return None
