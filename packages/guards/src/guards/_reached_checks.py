"""Checks of all values that a function reaches, taken together, and what weak references hold."""

from __future__ import annotations

import gc
import operator
import types
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from guards import _fetch
from guards._builder import GuardBuilder
from guards._checks import Check, OneSourceCheck
from guards._emit import Emitter
from guards._evaluation import ChainedValueSource, ValueSource
from guards._fetch import MISSING
from guards._guard import Guard

__all__ = [
    "ItemsSource",
    "ProxiedSource",
    "ReferentSource",
    "bare_tensors",
    "distinct_objects",
    "holds_sets",
    "leaves",
    "same_identities",
    "same_order",
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

    def hold(self, *classes: Any) -> bool:
        """Tell whether classes have the bases and attributes that they had."""
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


def _parts(value: Any) -> tuple[Any, ...]:
    if type(value) is dict:
        return (*value, *value.values())
    return tuple(value) if type(value) in (list, tuple, set, frozenset) else ()


def holds_sets(value: Any) -> bool:
    """Tell whether a constant is a set, or a container of constants that holds one."""
    return type(value) in (set, frozenset) or any(map(holds_sets, _parts(value)))


def order_of(value: Any) -> Any:
    """Give the members of the sets in a constant, in the order in which they come."""
    within = tuple([order_of(part) for part in _parts(value) if holds_sets(part)])
    return (tuple(value), within) if type(value) in (set, frozenset) else within


class OrderCheck(OneSourceCheck):
    """Sets, or those within a container, give their members in the order that they had."""

    code = "SET_ORDER"

    def __init__(self, source: ValueSource, value: Any) -> None:
        super().__init__(source)
        self.order = order_of(value)
        self._cls = type(value) if type(value) in (set, frozenset) and not value else None

    def condition(self, names: Sequence[str], emitter: Emitter) -> str:
        give = emitter.careful(order_of, "order_of")
        same = f"{give}({names[0]}) == {emitter.constant(self.order, 'order')}"
        empty = self._cls and f"type({names[0]}) is {self._cls.__name__} and not {names[0]}"
        return f"({empty} or {same})" if empty else same

    def expected(self) -> str:
        return "its members in the order that they had"

    def actual(self, values: Sequence[Any]) -> str:
        return "the same order" if order_of(values[0]) == self.order else "another order"


def same_order(builder: GuardBuilder, guard: Guard) -> None:
    """Guard on the order of the sets in a constant, which equal ones need not have in common."""
    builder.add(guard, OrderCheck(builder.source(guard), builder.value(guard)))


def leaves(value: Any) -> Iterator[Any]:
    """Give a constant, and those within it, as far as there may be several equal ones."""
    if type(value) is int:
        if not -5 <= value <= 256:  # the interpreter has one object for each of these
            yield value
    elif value is not None and type(value) not in _ONE_OF_EACH:
        yield value
        for part in _parts(value):
            yield from leaves(part)


_ONE_OF_EACH = (bool, type, torch.dtype, torch.layout, torch.memory_format)


def _key_leaves(value: Any) -> Iterator[Any]:
    for key in value:
        yield from leaves(key)


def _holds_nan(leaves: Iterator[Any]) -> bool:
    return any(type(leaf) in (float, complex) and leaf != leaf for leaf in leaves)


class IdentitiesCheck(Check):
    """Which of these constants are one and the same object is as it was."""

    code = "SAME_CONSTANTS"

    def __init__(
        self,
        constants: Sequence[ValueSource],
        keyed: Sequence[ValueSource],
        values: Sequence[Any],
        fixed: Sequence[Any],
    ) -> None:
        self.sources = (*constants, *keyed)
        self._walks = (leaves,) * len(constants) + (_key_leaves,) * len(keyed)
        self._fixed = tuple(fixed)
        self._first: dict[int, int] = {}
        for value in fixed:
            self._first.setdefault(id(value), len(self._first))
        self._pattern = self._pattern_of(values)

    def _pattern_of(self, values: Sequence[Any]) -> list[int]:
        seen = dict(self._first)
        return [
            seen.setdefault(id(leaf), len(seen))
            for walk, value in zip(self._walks, values, strict=True)
            for leaf in walk(value)
        ]

    def hold(self, *values: Any) -> bool:
        """Tell whether the same constants are one and the same."""
        return self._pattern_of(values) == self._pattern

    def condition(self, names: Sequence[str], emitter: Emitter) -> str:
        return f"{emitter.constant(self.hold, 'same_constants')}({', '.join(names)})"

    def expected(self) -> str:
        return "the same ones to be one object, and others not"

    def actual(self, values: Sequence[Any]) -> str:
        holds = self.hold(*values)
        return self.expected() if holds else "others"

    def expression(self) -> str:
        return "the constants that are reached"


def same_identities(
    builder: GuardBuilder,
    guard: Guard,
    constants: list[ValueSource],
    keyed: list[ValueSource],
    fixed: list[Any],
    only_nan: bool,
) -> None:
    """Guard on which constants are the same object: those of sources, keys, and fixed ones.

    Where nothing else is asked, only nan is told by its identity, in containers that hold it.
    """
    matters = _holds_nan if only_nan else any_of
    constants = [s for s in constants if matters(leaves(builder.lookup(s)))]
    keyed = [s for s in keyed if matters(_key_leaves(builder.lookup(s)))]
    if constants or keyed:
        values = [builder.lookup(source) for source in (*constants, *keyed)]
        known = [leaf for value in fixed for leaf in leaves(value)]
        builder.add(guard, IdentitiesCheck(constants, keyed, values, known))


def any_of(leaves: Iterator[Any]) -> bool:
    """Tell whether there are any."""
    return next(leaves, MISSING) is not MISSING
