"""How a source is evaluated: from its root, link by link, to a value.

``get(L, G)`` runs no ``eval`` and no code of the values' classes, unless a source says
``allow_call``. Equal sources are the same dict key.

Write a source of your own by subclassing :class:`ValueSource` for a root, or
:class:`ChainedValueSource` for a link: ``_spell`` gives the expression, ``start`` or ``read`` the
value.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, cast

from guards._arguments import need_scope
from guards._constants import constant_key
from guards._emit import Emitter
from guards._errors import MissingValueError, UnsupportedGuardError
from guards._fetch import REFUSED, Absent
from guards._source import ChainedSource, GuardSource, Source, guard_source_of, name_of

__all__ = ["ChainedValueSource", "ValueSource"]

Scope = Mapping[str, Any]
_EMPTY: Scope = {}
_UNKNOWN = object()


@dataclass(frozen=True, eq=False)
class ValueSource(Source):
    """A source that can be evaluated. Equal ones have equal fields, link by link."""

    remedy: ClassVar[str] = ""
    known_by_value: ClassVar[bool] = True

    def name(self) -> str:
        """Give the expression that stands for the value."""
        known: str | None = self.__dict__.get("_name")
        if known is not None:
            return known
        links = _links_without(self, "_name")
        text = name_of(links[-1].base) if isinstance(links[-1], ChainedValueSource) else ""
        for link in reversed(links):
            text = link._spell(text)
            link.__dict__["_name"] = text
        return text

    def _spell(self, base: str) -> str:
        raise NotImplementedError(f"{type(self).__name__} must say how it is written")

    def start(self, L: Scope, G: Scope) -> Any:
        """Give the value of a root from the two scopes, or an absence."""
        raise NotImplementedError(f"{type(self).__name__} must say how its value is found")

    def lookup(
        self, L: Scope, G: Scope | None = None, known: dict[Source, Any] | None = None
    ) -> Any:
        """Evaluate the source; an absence (MISSING, REFUSED) where the value is not to be had.

        ``known`` holds what was evaluated before over the same scopes, and takes what is new.
        """
        known = {} if known is None else known
        links: list[ChainedValueSource] = []
        link: Source = self
        while (value := known.get(link, _UNKNOWN)) is _UNKNOWN:
            if not isinstance(link, ChainedValueSource):
                break
            links.append(link)
            link = link.base
        if value is _UNKNOWN:
            if not isinstance(link, ValueSource):
                raise UnsupportedGuardError(
                    f"{type(link).__name__}, at the root of {self.name()}, cannot be evaluated: "
                    "derive it from guards.ValueSource and give it start()"
                )
            value = known[link] = link.start(L, _EMPTY if G is None else G)
        for chained in reversed(links):
            value = known[chained] = value if type(value) is Absent else chained.read(value)
        return value

    def first_absent(self, L: Scope, G: Scope | None = None) -> ValueSource:
        """Give the first link that is not there, of a source whose value is absent."""
        known: dict[Source, Any] = {}
        link: ValueSource = self
        while isinstance(link, ChainedValueSource) and isinstance(link.base, ValueSource):
            if type(link.base.lookup(L, G, known)) is not Absent:
                break
            link = link.base
        return link

    def get(self, L: Scope, G: Scope | None = None) -> Any:
        """Evaluate the source over locals and globals.

        Raises:
            MissingValueError: some link is not there, or only code of a class could tell.
        """
        need_scope(f"{type(self).__name__}.get", "L", L)
        if G is not None:
            need_scope(f"{type(self).__name__}.get", "G", G)
        value = self.lookup(L, G)
        if type(value) is Absent:
            raise MissingValueError(self._why_absent(L, G, value), self.name())
        return value

    def _why_absent(self, L: Scope, G: Scope | None, value: Absent) -> str:
        link = self.first_absent(L, G)
        text = f"{link.name()} is {value!r}"
        return f"{text}: {link.remedy}" if value is REFUSED and link.remedy else text

    def table(self, example: Any) -> tuple[str, Any] | None:
        """Say in which table, and under which key, the value lies; None where in no table.

        ``example`` is what the base held when the guards were made. The tables: ``"L"``,
        ``"G"``; ``"items"`` of a dict, list or tuple; ``"_parameters"``, ``"_buffers"``,
        ``"_modules"`` and ``"children"``, by position, of a module. Values of one table are
        fetched together.
        """
        return None

    def emit(self, base: str, emitter: Emitter, example: Any) -> str:
        """Give Python that fetches the value from the variable ``base``.

        ``example`` is what ``base`` held when the guards were made. The code may raise an
        Exception where the value is absent; it must never evaluate to an absence.
        """
        return emitter.fetch(self, base)

    def __hash__(self) -> int:
        with_hash = self.__dict__
        if "_hash" in with_hash:
            return with_hash["_hash"]  # type: ignore[no-any-return]
        links = _links_without(self, "_hash")
        value = hash(links[-1].base) if isinstance(links[-1], ChainedValueSource) else 0
        for link in reversed(links):
            value = hash((type(link), link._own(), value))
            link.__dict__["_hash"] = value
        return value

    def __eq__(self, other: object) -> bool:
        mine: Source = self
        if type(other) is not type(self) or hash(self) != hash(other):
            return False
        while mine is not other:
            if not isinstance(mine, ValueSource):
                return mine == other
            if type(mine) is not type(other) or mine._own() != other._own():
                return False
            if not isinstance(mine, ChainedValueSource):
                return True
            mine, other = mine.base, other.base  # type: ignore[attr-defined]
        return True

    def _own(self) -> tuple[object, ...]:
        known: tuple[object, ...] | None = self.__dict__.get("_key")
        if known is None:
            own = _own_fields(cast(Any, type(self)))
            known = tuple([constant_key(getattr(self, name)) for name in own])
            self.__dict__["_key"] = known
        return known

    def __str__(self) -> str:
        return self.name()

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(frozen=True, eq=False)
class ChainedValueSource(ValueSource, ChainedSource):
    """A link: a source that is reached through ``base``."""

    def read(self, base: Any) -> Any:
        """Give the value from the base's value, or an absence; must not raise."""
        raise NotImplementedError(f"{type(self).__name__} must say how its value is found")

    def guard_source(self) -> GuardSource:
        return cast(GuardSource, guard_source_of(self.get_base()))

    def get_base(self) -> Source:
        root = self.__dict__.get("_root")
        if root is None:
            base = self.base
            root = base.__dict__.get("_root") if isinstance(base, ChainedValueSource) else base
            root = super().get_base() if root is None else root
            self.__dict__["_root"] = root
        return cast(Source, root)

    def is_dict_key(self) -> bool:
        return self.get_base().is_dict_key()

    def is_ephemeral(self) -> bool:
        return self.get_base().is_ephemeral()


@functools.lru_cache(maxsize=256)
def _own_fields(cls: type[Any]) -> tuple[str, ...]:
    return tuple(f.name for f in fields(cls) if f.name != "base")


def _links_without(source: ValueSource, cached: str) -> list[Any]:
    links: list[Any] = [source]
    while isinstance(source, ChainedValueSource):
        base = source.base
        if not isinstance(base, ValueSource) or cached in base.__dict__:
            break
        links.append(base)
        source = base
    return links
