"""Carry metadata from one wrapper to another, so that each has its own where it can be changed."""

from __future__ import annotations

import copy
import enum
from collections.abc import Sequence
from typing import Any

from subclass_utils._declaration import PLAIN_TYPES

__all__ = ["Carrier", "carrying_lines"]

_MISSING = object()
_KEPT = 32  # values of a class, so that a program that makes ever new ones keeps no more


class Carrier:
    """What one wrapper class knows of its metadata: which values need no copy."""

    __slots__ = ("_known", "as_is")

    def __init__(self) -> None:
        self.as_is: set[type[Any]] = {*PLAIN_TYPES}
        """Types whose values cannot be changed. Who carries one of these does it without a call."""
        self._known: dict[int, Any] = {}  # tuples and dataclasses that hold nothing but such

    def carried(self, value: Any) -> Any:
        """Give a value as another wrapper is to have it: lists, sets and dicts copied.

        Also those in tuples and frozen dataclasses.
        """
        cls = value.__class__
        if cls in self.as_is or self._known.get(id(value), _MISSING) is value:
            return value
        made = _copied(value)
        if made is value:
            if cls is tuple or _fields(cls):
                if len(self._known) >= _KEPT:
                    self._known.clear()
                self._known[id(value)] = value
            elif cls is not tuple:
                self.as_is.add(cls)
        return made

    def carried_all(self, wrapper: Any, names: Sequence[str]) -> list[Any]:
        """Give a wrapper's metadata, with lists, sets and dicts copied."""
        return [self.carried(getattr(wrapper, name)) for name in names]


def carrying_lines(names: Sequence[str], source: str) -> str:
    """Write, for functions that are made for a class, what carries its metadata to `wrapper`.

    They know `as_is` and `carried` of its `Carrier`.
    """
    return "; ".join(
        f"m = {source}.{name}; wrapper.{name} = m if m.__class__ in as_is else carried(m)"
        for name in names
    )


def _fields(cls: type[Any]) -> Sequence[str]:
    if issubclass(cls, enum.Enum):
        return ()
    return [*getattr(cls, "__dataclass_fields__", ())]


def _copied(value: Any) -> Any:
    """Copy what can be changed, and what holds that; give anything else as it is."""
    cls = value.__class__
    if cls is list:
        return [*map(_copied, value)]
    if cls is dict:
        return {key: _copied(item) for key, item in value.items()}
    if cls is set:
        return {*value}
    if cls is tuple:
        items = [*map(_copied, value)]
        same = all(own is item for own, item in zip(value, items, strict=True))
        return value if same else tuple(items)
    changed = []
    for name in _fields(cls):
        own = getattr(value, name, None)
        made = _copied(own)
        if made is not own:
            changed.append((name, made))
    if changed:
        value = copy.copy(value)
        for name, made in changed:
            object.__setattr__(value, name, made)
    return value
