"""Checks of all values that a function reaches, taken together, and what weak references hold."""

from __future__ import annotations

import gc
import operator
import types
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from guards import _fetch
from guards._builder import GuardBuilder
from guards._checks import Check
from guards._emit import Emitter, is_kept_anyway
from guards._evaluation import ChainedValueSource, ValueSource
from guards._fetch import MISSING
from guards._guard import Guard
from guards._namespaces import VERSION_OF_DICT, dict_behind

__all__ = [
    "ItemsSource",
    "ProxiedSource",
    "ReferentSource",
    "bare_tensors",
    "distinct_objects",
    "whole_classes",
]


@dataclass(frozen=True, eq=False)
class ReferentSource(ChainedValueSource):
    """What a weak reference refers to; None where it is dead."""

    def _spell(self, base: str) -> str:
        return f"{base}()"

    def read(self, base: Any) -> Any:
        return base() if type(base) is weakref.ref else MISSING


@dataclass(frozen=True, eq=False)
class ProxiedSource(ChainedValueSource):
    """The dict that a read-only view of one shows."""

    def _spell(self, base: str) -> str:
        return f"gc.get_referents({base})[0]"

    def read(self, base: Any) -> Any:
        return gc.get_referents(base)[0] if type(base) is types.MappingProxyType else MISSING


@dataclass(frozen=True, eq=False)
class ItemsSource(ChainedValueSource):
    """The keys that an itemgetter was made with."""

    def _spell(self, base: str) -> str:
        return f"{base}.__reduce__()[1]"

    def read(self, base: Any) -> Any:
        return base.__reduce__()[1] if type(base) is operator.itemgetter else MISSING


class DistinctCheck(Check):
    """No two of these sources hold the same object."""

    code = "DISTINCT"

    def __init__(self, sources: Sequence[ValueSource]) -> None:
        self.sources = tuple(sources)

    def condition(self, names: Sequence[str], emitter: Emitter) -> str:
        return f"len({{{', '.join(f'id({name})' for name in names)}}}) == {len(names)}"

    def expected(self) -> str:
        return "each an object of its own"

    def actual(self, values: Sequence[Any]) -> str:
        first: dict[int, ValueSource] = {}
        for source, value in zip(self.sources, values, strict=True):
            other = first.setdefault(id(value), source)
            if other is not source:
                return f"{source.name()} and {other.name()} the same object"
        return "each an object of its own"

    def expression(self) -> str:
        return "the values that are reached"


def distinct_objects(builder: GuardBuilder, guard: Guard, sources: list[ValueSource]) -> None:
    """Guard on the values of these sources being different objects."""
    if sources:
        builder.add(guard, DistinctCheck(sources))


class BareCheck(Check):
    """None of these tensors has attributes of its own, which code could read or set."""

    code = "BARE"

    def __init__(self, sources: Sequence[ValueSource]) -> None:
        self.sources = tuple(sources)

    def condition(self, names: Sequence[str], emitter: Emitter) -> str:
        plain = emitter.constant((torch.Tensor, torch.nn.Parameter), "plain_tensors")
        return " and ".join(f"type({name}) in {plain} and not {name}.__dict__" for name in names)

    def expected(self) -> str:
        return "no attributes of its own"

    def actual(self, values: Sequence[Any]) -> str:
        for source, value in zip(self.sources, values, strict=True):
            own = _fetch.instance_dict(value)
            if own:
                return f"{source.name()} has {', '.join(own)}"
        return "no attributes of its own"

    def expression(self) -> str:
        return "each tensor"


def bare_tensors(builder: GuardBuilder, guard: Guard, sources: list[ValueSource]) -> None:
    """Guard on the tensors of these sources having no attributes of their own."""
    if sources:
        builder.add(guard, BareCheck(sources))


def names_of(cls: Any) -> dict[int, tuple[str, ...]]:
    """Give the names of the attributes of a class and of its bases, by their addresses."""
    return {id(base): tuple(base.__dict__) for base in cls.__mro__}


class ClassesCheck(Check):
    """These classes have their bases, and no further attributes, such as later special methods."""

    code = "CLASSES"

    def __init__(self, sources: Sequence[ValueSource], classes: Sequence[Any]) -> None:
        self.sources = tuple(sources)
        # Bases live while their classes have them: no other one can have their addresses.
        self.names = tuple(map(names_of, classes))
        self._wanted = (
            [tuple(names) for names in self.names],
            {base: names for found in self.names for base, names in found.items()},
        )
        # Where all live anyhow: their dicts, and which versions of these were looked at.
        bases = {id(base): base for cls in classes for base in cls.__mro__}.values()
        kept = VERSION_OF_DICT is not None and all(map(is_kept_anyway, bases))
        self._dicts = [dict_behind(base.__dict__) for base in bases] if kept else []
        self._seen: tuple[list[int], list[Any]] = ([], [])

    def hold(self, *classes: Any) -> bool:
        """Tell whether classes have the bases and attributes that they had."""
        version = VERSION_OF_DICT
        if version is None or not self._dicts:
            return self._look(classes)
        now = [*map(version, self._dicts)], [cls.__mro__ for cls in classes]
        versions, mros = self._seen
        if now[0] == versions and all(map(operator.is_, now[1], mros)):
            return True
        holds = self._look(classes)
        if holds:
            self._seen = now
        return holds

    def _look(self, classes: Sequence[Any]) -> bool:
        orders, names = self._wanted
        seen: set[int] = set()
        for cls, order in zip(classes, orders, strict=True):
            mro = cls.__mro__
            if tuple(map(id, mro)) != order:
                return False
            for base, address in zip(mro, order, strict=True):
                if address not in seen:
                    seen.add(address)
                    if tuple(base.__dict__) != names[address]:
                        return False
        return True

    def condition(self, names: Sequence[str], emitter: Emitter) -> str:
        return f"{emitter.constant(self.hold, 'whole_classes')}({', '.join(names)})"

    def expected(self) -> str:
        return "the attributes that they had"

    def actual(self, values: Sequence[Any]) -> str:
        for source, cls, wanted in zip(self.sources, values, self.names, strict=True):
            found = names_of(cls) if _fetch.is_a(cls, type) else {}
            before = {name for names in wanted.values() for name in names}
            now = {name for names in found.values() for name in names}
            if before ^ now:
                return f"{source.name()} has other ones: {', '.join(sorted(before ^ now))}"
            if [*found] != [*wanted]:
                return f"{source.name()} has other bases"
            if found != wanted:
                return f"{source.name()} has them in other places"
        return "the attributes that they had"

    def expression(self) -> str:
        return "each class"


def whole_classes(builder: GuardBuilder, guard: Guard, sources: list[ValueSource]) -> None:
    """Guard on the classes of these sources getting and losing no attributes."""
    if sources:
        builder.add(guard, ClassesCheck(sources, [builder.lookup(s) for s in sources]))
