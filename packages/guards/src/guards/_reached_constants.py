"""Constants that a function reaches: which are, and checks of their order and their identity."""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from guards._builder import GuardBuilder
from guards._checks import Check, OneSourceCheck
from guards._constants import is_constant
from guards._emit import Emitter, is_heap_type
from guards._evaluation import ValueSource
from guards._fetch import MISSING, is_a
from guards._guard import Guard

__all__ = [
    "any_of",
    "holds_only_constants",
    "holds_sets",
    "is_constant_like",
    "leaves",
    "same_identities",
    "same_order",
]


def is_constant_like(value: Any) -> bool:
    """Tell whether a value is an immutable constant, or a class of C without attributes."""
    if is_a(value, type):
        return not is_heap_type(value)
    return type(value) in (frozenset, torch.Size, slice, range) or (
        is_constant(value) and type(value) not in (list, dict, set, tuple, types.CodeType)
    )


def holds_only_constants(value: Any) -> bool:
    if type(value) in (list, tuple, set):
        return all(is_constant_like(part) or holds_only_constants(part) for part in value)
    if type(value) is dict:
        return holds_only_constants(list(value)) and holds_only_constants(list(value.values()))
    return False


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


def holds_parts(value: Any) -> bool:
    """Tell whether a constant is a container."""
    return type(value) in (list, tuple, dict, set, frozenset)


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
        # Those that hold nothing stand at the front; of these the addresses say all.
        told = values[: len(constants)]
        self._alone = next((n for n, v in enumerate(told) if holds_parts(v)), len(told))
        self._fixed = tuple(fixed)
        self._first: dict[int, int] = {}
        for value in fixed:
            self._first.setdefault(id(value), len(self._first))
        self._last = self._addresses_of(values)  # which do not tell whether these still live
        self._pattern = self._pattern_of(self._last)

    def _addresses_of(self, values: Sequence[Any]) -> list[int]:
        alone = self._alone
        found = list(map(id, values[:alone]))
        for walk, value in zip(self._walks[alone:], values[alone:], strict=True):
            found += map(id, walk(value))
        return found

    def _pattern_of(self, addresses: list[int]) -> list[int]:
        seen = dict(self._first)
        return [seen.setdefault(address, len(seen)) for address in addresses]

    def hold(self, *values: Any) -> bool:
        """Tell whether the same constants are one and the same."""
        addresses = self._addresses_of(values)
        if addresses == self._last:
            return True
        holds = self._pattern_of(addresses) == self._pattern
        if holds:
            self._last = addresses
        return holds

    def condition(self, names: Sequence[str], emitter: Emitter) -> str:
        return f"{emitter.constant(self.hold, 'same_constants')}({', '.join(names)})"

    def expected(self) -> str:
        return "the same ones to be one object, and others not"

    def actual(self, values: Sequence[Any]) -> str:
        seen, start = dict(self._first), 0
        for number, (source, value) in enumerate(zip(self.sources, values, strict=True)):
            parts = [value] if number < self._alone else self._walks[number](value)
            numbers = [seen.setdefault(id(part), len(seen)) for part in parts]
            if numbers != self._pattern[start : start + len(numbers)]:
                return f"{source.name()} is, or holds, another one than it was"
            start += len(numbers)
        return self.expected()

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
        constants.sort(key=lambda source: holds_parts(builder.lookup(source)))
        values = [builder.lookup(source) for source in (*constants, *keyed)]
        known = [leaf for value in fixed for leaf in leaves(value)]
        builder.add(guard, IdentitiesCheck(constants, keyed, values, known))


def any_of(leaves: Iterator[Any]) -> bool:
    """Tell whether there are any."""
    return next(leaves, MISSING) is not MISSING
