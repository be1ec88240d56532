"""Checks of containers: how many entries, which keys, which members."""

from __future__ import annotations

import collections
import gc
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from guards import _fetch
from guards._checks import (
    NodeCheck,
    OneSourceCheck,
    snapshot,
    spell_found,
    thawed,
    wants,
    weakly,
)
from guards._constants import HeldWeakly, constant_key, is_constant, same_constant, spell
from guards._emit import Emitter
from guards._errors import UnsupportedGuardError
from guards._fetch import Absent, plain_type

if TYPE_CHECKING:
    from guards._value_sources import ValueSource

__all__ = ["KeysCheck", "LengthCheck", "SetCheck"]


# Classes of C, whose length is told by C alone.
_COUNTED = (
    *(list, tuple, dict, set, frozenset, str, bytes),
    *(collections.OrderedDict, collections.defaultdict, collections.deque),
)


class LengthCheck(OneSourceCheck, NodeCheck):
    """A builtin container, or a subclass that counts as its base does, has so many entries."""

    code = "SEQUENCE_LENGTH"

    def __init__(self, source: ValueSource, length: int, cls: type | None = None) -> None:
        super().__init__(source)
        wants(type(length) is int and 0 <= length < 2**63, self.code, "a length", length)
        self.length = length
        self._cls = cls if type(cls) is type and cls in _COUNTED else None

    def condition(self, names: Sequence[str], emitter: Emitter) -> str:
        name = names[0]
        slow = f"{emitter.careful(_fetch.length, 'length')}({name}) == {self.length}"
        if self._cls is None:
            return slow
        counted = f"len({name}) == {self.length}" if self.length else f"not {name}"
        return f"{emitter.is_type(name, self._cls)} and {counted} or {slow}"

    def pattern(self) -> tuple[str, Any] | None:
        return None if self._cls is None else ("contents", self._cls)

    def add_to(self, node: Any, kind: Any, value: Any) -> object:
        node.add_type_match_guard(id(self._cls), ["class"], None)
        of_dict = self._cls is not None and issubclass(self._cls, dict)
        add = node.add_dict_length_check_guard if of_dict else node.add_length_check_guard
        add(self.length, ["length"], None)
        return None

    def holds(self, value: object) -> bool:
        return bool(_fetch.length(value) == self.length)

    def expected(self) -> str:
        return f"of length {self.length}"

    def actual(self, values: Sequence[Any]) -> str:
        found = values[0] if type(values[0]) is Absent else _fetch.length(values[0])
        return f"of length {found}" if type(found) is int else spell_found(values[0])

    def expression(self) -> str:
        return f"len({self.sources[0].name()}) == {self.length}"

    def state(self) -> dict[str, Any]:
        return {"length": self.length}


class KeysCheck(OneSourceCheck, NodeCheck):
    """A dict has exactly these keys, in this order unless ``ordered`` is False.

    With ``plain`` it must be a dict itself and no subclass. Keys that are no constants are
    compared by identity, and held weakly.
    """

    code = "DICT_KEYS_MATCH"

    def __init__(
        self, source: ValueSource, keys: Sequence[Any], ordered: bool = True, plain: bool = True
    ) -> None:
        super().__init__(source)
        wants(type(keys) is list, self.code, "a list of keys", keys)
        wants(type(ordered) is bool and type(plain) is bool, self.code, "flags", (ordered, plain))
        self.ordered, self.plain = ordered, plain
        self.keys: list[Any] = [snapshot(k) if is_constant(k) else weakly(source, k) for k in keys]
        self._constant = [is_constant(k) for k in keys]
        self._described = ["" if is_constant(k) else spell(k) for k in keys]
        self._texts = all(type(key) is str for key in keys)

    def condition(self, names: Sequence[str], emitter: Emitter) -> str:
        slow = f"{emitter.constant(self.holds, 'same_keys')}({names[0]})"
        if not (self.plain and all(self._constant)):
            return slow
        return same_members(names[0], dict, self.keys, slow, emitter)

    def pattern(self) -> tuple[str, Any] | None:
        common = self.plain and all(self._constant) and 0 < len(self.keys) <= 16
        return ("keys", tuple(self.keys)) if common else None

    def dict_of_node(self) -> dict[Any, Any] | None:
        return dict.fromkeys(self.keys)

    def add_to(self, node: Any, kind: Any, value: Any) -> object:
        # A node made for a dict checks the class and the length.
        for place, key in enumerate(self.keys):
            at = node.get_key_manager(place, "key", None, kind)
            at.add_id_match_guard(id(key), ["key"], None)
        return None

    def holds(self, value: object) -> bool:
        """Tell whether one value has these keys."""
        if self.plain and type(value) is not dict:
            return False
        found = dict_keys(value)
        if found is None or len(found) != len(self.keys):
            return False
        if self.ordered and self._texts and {id(type(key)) for key in found} == {id(str)}:
            return found == self.keys
        wanted = self._wanted()
        if wanted is None:
            return False
        keys = [constant_key(key) for key in found]
        return keys == wanted if self.ordered else set(keys) == set(wanted)

    def _wanted(self) -> list[Any] | None:
        keys = [
            key if constant else key()
            for key, constant in zip(self.keys, self._constant, strict=True)
        ]
        dead = any(
            key is None and not constant for key, constant in zip(keys, self._constant, strict=True)
        )
        return None if dead else [constant_key(key) for key in keys]

    def _spelled(self) -> list[str]:
        return [
            spell(key) if constant else f"{described}{', which is dead' * (key() is None)}"
            for key, constant, described in zip(
                self.keys, self._constant, self._described, strict=True
            )
        ]

    def expected(self) -> str:
        order = "" if self.ordered else " in any order"
        return f"a dict with keys [{', '.join(self._spelled())}]{order}"

    def actual(self, values: Sequence[Any]) -> str:
        found = None if type(values[0]) is Absent else dict_keys(values[0])
        if found is None:
            return spell_found(values[0])
        return f"a dict with keys [{', '.join(map(spell, found))}]"

    def state(self) -> dict[str, Any]:
        if not all(self._constant):
            raise UnsupportedGuardError(
                f"{self.code} on {self.sources[0].name()} cannot be saved: "
                "a key is an object, compared by identity"
            )
        return {"keys": thawed(self.keys), "ordered": self.ordered, "plain": self.plain}


def same_members(name: str, cls: type, members: Sequence[Any], slow: str, emitter: Emitter) -> str:
    """Write the test that a container of exactly this class holds these objects, in this order.

    The very same objects are the common case, and need no comparison; ``slow`` is for the others.
    Statements may refuse a container of another class or length, so put them first.
    """
    kind = emitter.constant(cls, f"type_{cls.__name__}")
    if not members:
        return f"type({name}) is {kind} and not {name}"
    if len(members) > 8:
        emitter.statement(f"found = (*{name},) if type({name}) is {kind} else ()")
        same = emitter.same_objects(tuple(members), "members", "found")
        return f"len(found) == {len(members)} and ({same} or {slow})"
    parts = [f"part_{number}" for number in range(len(members))]
    same = " and ".join(
        f"{part} is {emitter.constant(member, f'member_{spell(member, 20)}')}"
        for part, member in zip(parts, members, strict=True)
    )
    emitter.statement(f"{', '.join(parts)}, = {name} if type({name}) is {kind} else ()")
    return f"({same} or {slow})"


def dict_keys(value: object) -> list[Any] | None:
    """Give the keys of a dict, or of a subclass that iterates as its base does."""
    if type(value) is types.MappingProxyType:
        return dict_keys(gc.get_referents(value)[0])
    walk: Any = _fetch.class_attribute(type(value), "__iter__")
    return list(walk(value)) if walk in _fetch.PLAIN_DICT_ITER else None


class SetCheck(OneSourceCheck):
    """A set or frozenset of exactly this class has exactly these members, all constants."""

    code = "SET_MATCH"

    def __init__(self, source: ValueSource, value: set[Any] | frozenset[Any]) -> None:
        super().__init__(source)
        if plain_type(value) not in (set, frozenset) or not is_constant(value):
            raise UnsupportedGuardError(
                f"SET_MATCH on {source.name()}: got {spell(value)}; "
                "it takes a set or frozenset of constants"
            )
        self.value = snapshot(value)
        self._in_order = tuple(map(snapshot, value))  # a copy may be in another order

    def condition(self, names: Sequence[str], emitter: Emitter) -> str:
        same = emitter.careful(same_constant, "same_constant")
        slow = f"{same}({names[0]}, {emitter.constant(self.value, 'expected')})"
        return same_members(names[0], type(self.value), self._in_order, slow, emitter)

    def pattern(self) -> tuple[str, Any] | None:
        kept = not any(type(member) is HeldWeakly for member in self._in_order)
        common = kept and 0 < len(self._in_order) <= 16
        return (type(self.value).__name__, self._in_order) if common else None

    def holds(self, value: object) -> bool:
        """Tell whether one value has these members."""
        return same_constant(value, self.value)

    def expected(self) -> str:
        return spell(self.value)

    def actual(self, values: Sequence[Any]) -> str:
        found = values[0]
        if type(found) is not type(self.value) or not is_constant(found):
            return spell_found(found)
        # A dead member stands for itself, as nothing that can be found equals it.
        alive = {m: m.get() if type(m) is HeldWeakly else m for m in self._in_order}
        wanted = {m if type(m) is HeldWeakly and at is None else at for m, at in alive.items()}
        lacks, has_more = wanted - found, found - wanted
        parts = [f"without {', '.join(sorted(map(spell, lacks)))}"] if lacks else []
        parts += [f"with {', '.join(sorted(map(spell, has_more)))}"] if has_more else []
        return f"{spell(found)}, {' and '.join(parts)}" if parts else spell(found)

    def state(self) -> dict[str, Any]:
        return {"value": thawed(self.value)}
