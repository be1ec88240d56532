"""One check: what a guard turns into once the guarded value is known.

A check knows its sources, what it expects of their values, the Python expression that tests it,
and how to say in words what was expected and what was found. Write one of your own by
subclassing :class:`Check`; give it to the builder with ``builder.add(guard, check)``.
"""

from __future__ import annotations

import enum
import operator
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from guards._class_names import find_class, importable_name, plain_name
from guards._constants import (
    HeldWeakly,
    is_constant,
    obstacle,
    same_constant,
    spell,
    type_name,
)
from guards._emit import Emitter, is_heap_type, is_kept_anyway
from guards._errors import UnsupportedGuardError
from guards._fetch import Absent, is_a, plain_type

if TYPE_CHECKING:
    from guards._value_sources import ValueSource

__all__ = [
    "Check",
    "EqualsCheck",
    "IdentityCheck",
    "OneSourceCheck",
    "TypeCheck",
]

SINGLETONS: dict[str, object] = {
    "None": None,
    "True": True,
    "False": False,
    "Ellipsis": Ellipsis,
    "NotImplemented": NotImplemented,
}


class Check:
    """What must hold of the values of some sources.

    Attributes:
        code: the reason code, the name of the create function that makes such checks.
        sources: where the values come from; ``condition`` gets one variable for each.
        saveable: why this check cannot be saved, or an empty text.
    """

    code: ClassVar[str] = ""
    sources: tuple[ValueSource, ...] = ()

    def condition(self, names: Sequence[str], emitter: Emitter) -> str:
        """Write a Python expression over the variables ``names`` that is true when it holds.

        It must run no code of the values' classes. It may raise an Exception instead of being
        false.
        """
        raise NotImplementedError

    def pattern(self) -> tuple[str, Any] | None:
        """Say whether this is a common test that can be made of many values in one step.

        ``("identity", value)``, ``("type", class)``, ``("constant", value)``,
        ``("immutable", value)``, ``("keys", keys)`` for a KeysCheck, ``("set", members)`` or
        ``("frozenset", members)`` for a SetCheck, ``("tensors", None)`` for a TensorCheck, and
        ``("nodes", class or None)`` for a NodeCheck, ``("contents", class)`` for one that looks
        into a container or an object's dict; None where it is not.
        """
        return None

    def expected(self) -> str:
        """Say in words what the check wants."""
        raise NotImplementedError

    def actual(self, values: Sequence[Any]) -> str:
        """Say in words what was found; a value that is not there is an ``Absent``."""
        return spell_found(values[0])

    def expression(self) -> str:
        """Write the check as a person would."""
        return f"{self.sources[0].name()} is {self.expected()}"

    def state(self) -> dict[str, Any]:
        """Give what is needed to make the check again elsewhere: a dict of constants.

        Raises:
            UnsupportedGuardError: the check means something in this process alone.
        """
        raise UnsupportedGuardError(f"{self.code} on {self.sources[0].name()} cannot be saved")

    @classmethod
    def from_state(cls, sources: Sequence[ValueSource], state: dict[str, Any]) -> Check:
        """Make the check that ``state`` described."""
        return cls(*sources, **state)


def spell_found(value: Any) -> str:
    """Write a value that was found, or say that it is absent."""
    if type(value) is Absent:
        return repr(value)
    if is_a(value, torch.Tensor):
        return f"a {type_name(type(value))}"
    return spell(value)


def wants(holds: bool, check: str, wanted: str, got: object) -> None:
    """Refuse what a check cannot be made from; saved guards come from anywhere.

    Raises:
        UnsupportedGuardError: ``holds`` is False.
    """
    if not holds:
        raise UnsupportedGuardError(f"{check} takes {wanted}, got {spell(got, 60)}")


class OneSourceCheck(Check):
    def __init__(self, source: ValueSource) -> None:
        self.sources = (source,)

    def state(self) -> dict[str, Any]:
        return {}


class NodeCheck(Check):
    """A check that a node of one of torch's trees of guards can make, with many others.

    Attributes:
        reads: an attribute that it reads from an object's own dict, which its class must lack.
    """

    reads: ClassVar[str | None] = None

    def dict_of_node(self) -> dict[Any, Any] | None:
        """Give a dict like those that a node must be made for, to be able to check their keys."""
        return None

    def add_to(self, node: Any, kind: Any, value: Any) -> object:
        """Let a node check what this does; its failure need not mean that this check fails.

        ``kind`` is what torch wants to be told of the nodes below. Gives an object that torch
        knows by its address alone, and which may die, or None.
        """
        raise NotImplementedError

    def holds(self, value: object) -> bool:
        """Tell whether the check holds of one value, or of an ``Absent``."""
        raise NotImplementedError


class TypeCheck(OneSourceCheck, NodeCheck):
    """The value's class is exactly this one; the class is held weakly.

    ``cls`` may be the name of a class, ``module:qualified.name``, for a check that was saved.
    """

    code = "TYPE_MATCH"

    def __init__(self, source: ValueSource, cls: type | str) -> None:
        super().__init__(source)
        named = type(cls) is str
        wants(named or is_a(cls, type), self.code, "a class or its name", cls)
        self.saved = named
        known: type | None = None
        if type(cls) is str:
            well = len(cls.split(":")) == 2 and "<" not in cls
            wants(well, self.code, "a class by module:qualified.name", cls)
            self.name = cls
            known = find_class(self.name)
        elif is_a(cls, type):
            self.name, known = importable_name(cls), cls
        self._static = known if known is not None and not is_heap_type(known) else None
        self._weak = weak_class(known)

    def cls(self) -> type | None:
        """Give the class, or None where it is dead or not imported."""
        return self._static or (self._weak and self._weak())

    def condition(self, names: Sequence[str], emitter: Emitter) -> str:
        cls = self.cls()
        if cls is not None:
            return emitter.is_type(names[0], cls, vital=True)
        if not self.saved:
            return "False"
        return f"{emitter.constant(_is_called, 'is_called')}(type({names[0]}), {self.name!r})"

    def pattern(self) -> tuple[str, Any] | None:
        cls = self.cls()
        return None if cls is None else ("type", cls)

    def add_to(self, node: Any, kind: Any, value: Any) -> object:
        node.add_type_match_guard(id(self.cls()), ["class"], None)
        return None if self._static else self.cls()

    def holds(self, value: object) -> bool:
        return type(value) is self.cls()

    def expected(self) -> str:
        return f"of type {self.name.removeprefix('builtins:').replace(':', '.')}"

    def actual(self, values: Sequence[Any]) -> str:
        value = values[0]
        if type(value) is Absent:
            return repr(value)
        name = f"of type {type_name(type(value))}"
        if importable_name(type(value)) == self.name and self.cls() is not type(value):
            return f"{name}, another class of that name"
        return name

    def state(self) -> dict[str, Any]:
        if not self.saved and find_class(self.name) is not self.cls():
            raise UnsupportedGuardError(
                f"{self.code} on {self.sources[0].name()} cannot be saved: "
                f"{self.name.replace(':', '.')} is not found by its name; "
                "move the class to the top of a module"
            )
        return {"cls": self.name}


def _is_called(cls: type, name: str) -> bool:
    """Tell whether a class is the one that stands under a name, not another that claims it."""
    return importable_name(cls) == name and find_class(name) is cls


def weak_class(cls: type | None) -> Any:
    """Refer to a class weakly where it may die; None for one that cannot, and for None."""
    return weakref.ref(cls) if cls is not None and is_heap_type(cls) else None


class IdentityCheck(OneSourceCheck, NodeCheck):
    """The value is this very object; it is held weakly, and when it dies the check fails.

    Raises:
        UnsupportedGuardError: the object takes no weak reference, so that its ``id`` could come
            to mean another object.
    """

    code = "ID_MATCH"

    def __init__(self, source: ValueSource, value: object) -> None:
        super().__init__(source)
        self.described = spell(value)
        self._singleton = any(value is single for single in SINGLETONS.values())
        self._static = is_a(value, type) and not is_heap_type(value)
        self._value: Any = value if self._singleton or self._static else weakly(source, value)

    def condition(self, names: Sequence[str], emitter: Emitter) -> str:
        if self._singleton:
            return f"{names[0]} is {self._value!r}"
        if self._static:
            return f"{names[0]} is {emitter.constant(self._value, plain_name(self._value))}"
        value = self._value()
        if value is None:
            return "False"
        known = emitter.weakly(value, plain_name(type(value)), vital=True)
        return f"{names[0]} is {known} is not None"

    def pattern(self) -> tuple[str, Any] | None:
        if self._singleton or self._static:
            return "identity", self._value
        value = self._value()
        return None if value is None else ("identity", value)

    def add_to(self, node: Any, kind: Any, value: Any) -> object:
        node.add_id_match_guard(id(value), ["object"], None)
        return None if self._singleton or self._static else value

    def holds(self, value: object) -> bool:
        if self._singleton or self._static:
            return value is self._value
        return value is not None and value is self._value()

    def expected(self) -> str:
        if not self._singleton and not self._static and self._value() is None:
            return f"the same object: {self.described}, which is dead"
        return self.described if self._singleton else f"the same object: {self.described}"

    def actual(self, values: Sequence[Any]) -> str:
        found = spell_found(values[0])
        return f"another object: {found}" if found == self.described else found

    def state(self) -> dict[str, Any]:
        if self._singleton:
            return {"value": self._value}
        raise UnsupportedGuardError(
            f"{self.code} on {self.sources[0].name()} cannot be saved: an identity "
            f"({self.described}) means nothing in another process; guard on its type or value"
        )


def weakly(source: ValueSource, value: object) -> Any:
    try:
        return weakref.ref(value)
    except TypeError:
        remedy = "EQUALS_MATCH" if is_constant(value) else "TYPE_MATCH and guards on its parts"
        raise UnsupportedGuardError(
            f"ID_MATCH on {source.name()}: {type_name(type(value))} takes no weak reference, so "
            f"its identity could pass to another object; use {remedy}"
        ) from None


class EqualsCheck(OneSourceCheck, NodeCheck):
    """The value is a constant of the same type, and equal to the last bit.

    Raises:
        UnsupportedGuardError: the value is no constant; comparing it would run foreign code.
    """

    code = "EQUALS_MATCH"

    def __init__(self, source: ValueSource, value: object) -> None:
        super().__init__(source)
        why_not = obstacle(value)
        if why_not is not None:
            raise UnsupportedGuardError(
                f"EQUALS_MATCH on {source.name()}: {spell(value)} is no constant: {why_not}; "
                "use ID_MATCH, or guards on its parts"
            )
        self.value = snapshot(value)

    def condition(self, names: Sequence[str], emitter: Emitter) -> str:
        name, value = names[0], self.value
        cls = type(value)
        if is_named_by_identity(value):
            return f"{name} is {emitter.constant(value, spell(value))}"
        if type(value) is HeldWeakly:
            return _is_held(name, value, emitter)
        if is_plain_scalar(value):
            same = f"type({name}) is {emitter.constant(cls, cls.__name__)} and {name} == "
            if cls is int and abs(value) <= 256:
                return f"{same}{value!r}"
            known = emitter.constant(value, f"{cls.__name__}_{len(names)}")
            return f"({name} is {known} or {same}{known})"
        if cls in _CONTAINERS and not value:
            return f"type({name}) is {emitter.constant(cls, cls.__name__)} and not {name}"
        known = emitter.constant(value, "expected")
        same = f"{emitter.constant(same_constant, 'same_constant')}({name}, {known})"
        if cls is list and len(value) <= _SHORT and all(map(is_plain_scalar, value)):
            return _is_short_list(name, value, emitter)
        # An immutable one is most often the very same object.
        return f"({name} is {known} or {same})" if plain_type(value) in _IMMUTABLE else same

    def pattern(self) -> tuple[str, Any] | None:
        if is_named_by_identity(self.value):
            return "identity", self.value
        if is_plain_scalar(self.value):
            return "constant", self.value
        return ("immutable", self.value) if plain_type(self.value) in _IMMUTABLE else None

    def add_to(self, node: Any, kind: Any, value: Any) -> object:
        if is_named_by_identity(self.value):
            node.add_id_match_guard(id(self.value), ["value"], None)
        else:
            node.add_equals_match_guard(self.value, ["value"], None)  # a plain scalar
        return None

    def holds(self, value: object) -> bool:
        return same_constant(value, self.value)

    def expected(self) -> str:
        return spell(self.value)

    def actual(self, values: Sequence[Any]) -> str:
        found = spell_found(values[0])
        return f"{found} ({type_name(type(values[0]))})" if found == self.expected() else found

    def expression(self) -> str:
        return f"{self.sources[0].name()} == {self.expected()}"

    def state(self) -> dict[str, Any]:
        return {"value": thawed(self.value)}


_IMMUTABLE = (tuple, float, complex)
_CONTAINERS = (list, tuple, dict, set, frozenset)
_SHORT = 8


def _is_short_list(name: str, value: Sequence[Any], emitter: Emitter) -> str:
    parts = [f"part_{number}" for number in range(len(value))]
    emitter.statement(f"{', '.join(parts)}, = {name} if type({name}) is list else ()")
    tests = []
    for part, expected in zip(parts, value, strict=True):
        cls = type(expected)
        known = emitter.constant(expected, f"{cls.__name__}_expected")
        same = f"type({part}) is {emitter.constant(cls, cls.__name__)} and {part} == {known}"
        tests.append(f"({part} is {known} or {same})")
    return " and ".join(tests)


def _is_held(name: str, held: HeldWeakly, emitter: Emitter) -> str:
    value = held.get()
    if value is None:
        return "False"
    if is_a(value, type):
        return f"{name} is {emitter.weakly(value, plain_name(value), vital=True)} is not None"
    is_it = emitter.constant(held.is_it, "is_member")
    return f"{emitter.is_type(name, type(value), vital=True)} and {is_it}({name})"


def is_named_by_identity(value: Any) -> bool:
    """Tell whether there is only one object of this value, which lives as long as the process."""
    return value is None or plain_type(value) in _ONE_OF_EACH


def is_plain_scalar(value: Any) -> bool:
    """Tell whether ``==`` among values of exactly this class tells the same from the other.

    Not so for nan and for zeros, of which there are two.
    """
    cls = plain_type(value)
    if cls is float:
        return bool(value == value and value != 0.0)
    return cls in (int, str, bytes, torch.device)


_ONE_OF_EACH = (
    bool,
    type(Ellipsis),
    type(NotImplemented),
    torch.dtype,
    torch.layout,
    torch.memory_format,
)


def snapshot(value: Any) -> Any:
    """Copy the containers of a constant, so that a later change does not change the guard.

    Classes that may die, and their members, are held weakly in it.
    """
    cls = plain_type(value)
    if cls in (list, tuple, set, frozenset):
        copies = [snapshot(part) for part in value]
        if cls is tuple and all(map(operator.is_, copies, value)):
            return value
        return cls(copies)
    if cls is dict:
        return {snapshot(k): snapshot(v) for k, v in value.items()}
    if is_a(value, (type, enum.Enum)) and not is_kept_anyway(
        value if is_a(value, type) else type(value)
    ):
        return HeldWeakly(value)
    return value


def thawed(value: Any) -> Any:
    """Give the constant that ``snapshot`` copied.

    Raises:
        UnsupportedGuardError: a class in it is dead.
    """
    cls = plain_type(value)
    if cls in (list, tuple, set, frozenset):
        return cls(map(thawed, value))
    if cls is dict:
        return {thawed(k): thawed(v) for k, v in value.items()}
    if cls is HeldWeakly:
        found = value.get()
        if found is None:
            raise UnsupportedGuardError(f"{value!r}, cannot be saved")
        return found
    return value
