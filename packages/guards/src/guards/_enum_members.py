"""Enums and their members: constants by their identity, whose names and values may be changed."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any

from guards import _fetch
from guards._builder import GuardBuilder
from guards._constants import is_constant, spell
from guards._evaluation import ValueSource
from guards._fetch import is_a
from guards._patchable import Patchable
from guards._reached_constants import is_constant_like
from guards._understood import words
from guards._value_sources import AttrSource, GetItemSource
from guards._walk import Walk

__all__ = ["TABLES", "EnumMembers"]

# What classes of members say of these.
TABLES = ("_member_names_", "_member_map_", "_value2member_map_")
_OWN = words("_value_ _name_ __objclass__ _sort_order_ _inverted_")


class EnumMembers:
    """Hold fast what code may ask of enums and of their members."""

    def __init__(self, walk: Walk, patchable: Patchable) -> None:
        self._walk = walk
        self._patchable = patchable

    def visit_member(self, source: ValueSource, member: enum.Enum) -> None:
        """Follow the name and the value of a member that code reaches by itself."""
        own = _fetch.instance_dict(member) or {}
        extra = [name for name in own if name not in _OWN]
        if extra:
            self._walk.refuse(source, f"has attributes of its own: {', '.join(extra)}")
        self._walk.remember(member)
        self._patchable.note_whole(member)
        for name in ("_name_", "_value_"):
            if name in own:
                place = GetItemSource(AttrSource(source, "__dict__"), name)
                self._walk.todo.append((place, own[name]))

    def visit_class(self, source: ValueSource, cls: type[enum.Enum]) -> None:
        """Follow what the class itself tells of its members, in each of the ways to ask it."""
        for table in TABLES:
            place, found = AttrSource(source, table), getattr(cls, table)
            constant = is_constant(found)  # values that are objects may be keys
            self._walk.guard(
                place, GuardBuilder.EQUALS_MATCH if constant else GuardBuilder.SEQUENCE_LENGTH
            )
        for name, member in cls._member_map_.items():
            if _tells_a_constant(member):
                self.note(source, [member])
            else:
                place = AttrSource(source, "_member_map_")
                self._walk.todo.append((GetItemSource(place, name), member))

    def note(self, source: ValueSource, constants: Iterable[Any]) -> None:
        """Hold fast the names and values of the members among constants."""
        for member in constants:
            if is_a(member, enum.Enum):
                if not _tells_a_constant(member):
                    self._walk.refuse(source, f"holds {spell(member)}, whose value may change")
                self._patchable.note(member, ("_value_", "_name_"))
                self._patchable.note_whole(member)


def _tells_a_constant(member: enum.Enum) -> bool:
    told = member.__dict__.get("_value_")
    return is_constant_like(told) or (type(told) is tuple and all(map(is_constant_like, told)))
