"""Checks of what an object holds in its own dict: presence and absence, the training flag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from guards import _fetch
from guards._checks import Check, NodeCheck, OneSourceCheck, spell_found, wants, weak_class
from guards._constants import spell
from guards._emit import Emitter, is_heap_type
from guards._fetch import MISSING, Absent, is_a

if TYPE_CHECKING:
    from guards._value_sources import ValueSource

__all__ = ["AbsentCheck", "PresentCheck", "TrainingCheck"]


class _InOwnDict(OneSourceCheck, NodeCheck):
    """A check that is fast on values of the class it was made from, ``cls``, held weakly."""

    def __init__(self, source: ValueSource, cls: type | None) -> None:
        super().__init__(source)
        plain = cls is not None and is_heap_type(cls) and _fetch.has_plain_dict(cls)
        self._weak_cls = weak_class(cls if plain else None)

    def or_else(self, name: str, fast: str, slow: str, emitter: Emitter, *unless: str) -> str:
        """Write ``fast`` for a value of that class, and ``slow`` where that does not hold."""
        cls = self.cls()
        if cls is None:
            return slow
        test = emitter.is_plain(name, cls, *unless)
        return f"{test} and {fast} or {slow}" if test else f"{fast} or {slow}"

    def cls(self) -> type | None:
        """Give the class, if its instances have a dict to look into."""
        return self._weak_cls and self._weak_cls()  # type: ignore[no-any-return]

    def add_presence(self, node: Any, kind: Any, value: Any, attr: str, there: bool) -> object:
        """Let a node check that an attribute is, or is not, in the dict of an object."""
        node.add_type_match_guard(id(type(value)), ["class"], None)
        own = node.get_generic_dict_manager("__dict__", None, kind)
        own.add_dict_contains_guard(there, attr, ["attribute"], None)
        return type(value)


class TrainingCheck(_InOwnDict):
    """A module's training flag is this bool."""

    code = "MODULE_TRAINING"
    reads = "training"

    def __init__(self, source: ValueSource, value: bool, cls: type | None = None) -> None:
        wants(type(value) is bool, self.code, "a bool", value)
        hidden = cls is not None and _fetch.class_attribute(cls, "training") is not MISSING
        super().__init__(source, None if hidden else cls)
        self.value = value

    def condition(self, names: Sequence[str], emitter: Emitter) -> str:
        slow = f"{emitter.careful(_training, 'training')}({names[0]}) is {self.value}"
        fast = f"{names[0]}.training is {self.value}"
        return self.or_else(names[0], fast, slow, emitter, "training")

    def pattern(self) -> tuple[str, Any] | None:
        cls = self.cls()
        return None if cls is None else ("nodes", cls)

    def add_to(self, node: Any, kind: Any, value: Any) -> object:
        node.add_type_match_guard(id(type(value)), ["class"], None)
        # Given examples, torch remembers the version of the dict, and looks no further if it can.
        below = node.get_generic_dict_manager("__dict__", _fetch.instance_dict(value), kind)
        flag = below.dict_getitem_manager("training", "training", self.value, kind)
        add = flag.add_true_match_guard if self.value else flag.add_false_match_guard
        add(["training"], None)
        return type(value)

    def holds(self, value: object) -> bool:
        return _training(value) is self.value

    def expected(self) -> str:
        return f"in {_mode(self.value)} mode"

    def actual(self, values: Sequence[Any]) -> str:
        if not is_a(values[0], torch.nn.Module):
            return spell_found(values[0])
        flag = _training(values[0])
        return (
            f"in {_mode(flag)} mode" if type(flag) is bool else f"training is {spell_found(flag)}"
        )

    def state(self) -> dict[str, Any]:
        return {"value": self.value}


def _training(module: object) -> Any:
    return _fetch.attribute(module, "training") if is_a(module, torch.nn.Module) else MISSING


def _mode(training: bool) -> str:
    return "training" if training else "evaluation"


class PresentCheck(_InOwnDict):
    """The value, or an attribute of it, is there; no code of its class is asked.

    ``own`` says that the object's own dict held the attribute.
    """

    code = "HASATTR"

    def __init__(
        self,
        source: ValueSource,
        attr: str | None = None,
        cls: type | None = None,
        *,
        own: bool = False,
    ) -> None:
        super().__init__(source, cls)
        wants(attr is None or type(attr) is str, self.code, "the name of an attribute", attr)
        self.attr = attr
        self._own = own

    def condition(self, names: Sequence[str], emitter: Emitter) -> str:
        if self.attr is None:
            return "True"  # fetching it was the check
        slow = f"{emitter.careful(_has_attribute, 'has_attribute')}({names[0]}, {self.attr!r})"
        return self.or_else(names[0], f"{self.attr!r} in {names[0]}.__dict__", slow, emitter)

    def pattern(self) -> tuple[str, Any] | None:
        cls = self.cls()
        return ("contents", cls) if cls is not None and self._own else None

    def add_to(self, node: Any, kind: Any, value: Any) -> object:
        return self.add_presence(node, kind, value, str(self.attr), True)

    def holds(self, value: object) -> bool:
        return type(value) is not Absent and (self.attr is None or _has_attribute(value, self.attr))

    def expected(self) -> str:
        return "there" if self.attr is None else f"with attribute {self.attr!r}"

    def actual(self, values: Sequence[Any]) -> str:
        if self.attr is None or type(values[0]) is Absent:
            return spell_found(values[0])
        return f"{spell_found(values[0])} without it"

    def expression(self) -> str:
        name = self.sources[0].name()
        return f"{name} exists" if self.attr is None else f"hasattr({name}, {self.attr!r})"

    def state(self) -> dict[str, Any]:
        return {"attr": self.attr}


def _has_attribute(value: object, name: str) -> bool:
    # A property is there, whatever reading it would give.
    return _fetch.attribute(value, name) is not MISSING


class AbsentCheck(_InOwnDict):
    """A key or an attribute is not there.

    ``attr`` names one that the value's own dict must lack, ``key`` one that a dict must lack;
    without either the source itself must lead nowhere, though its base must be there.
    """

    code = "NOT_PRESENT"

    def __init__(
        self, source: ValueSource, attr: str | None = None, *, cls: type | None = None, **key: Any
    ) -> None:
        from guards._value_sources import ChainedValueSource

        super().__init__(source, cls)
        wants(attr is None or type(attr) is str, self.code, "the name of an attribute", attr)
        wants(not set(key) - {"key"}, self.code, "attr or key", sorted(key))
        self._itself = attr is None and not key
        base = source.base if self._itself and isinstance(source, ChainedValueSource) else source
        self._rooted = self._itself and base is source
        self.sources = () if self._rooted else (base,)  # type: ignore[assignment]
        self.guarded = source
        self.attr, self.key = attr, key

    def condition(self, names: Sequence[str], emitter: Emitter) -> str:
        missing = emitter.constant(MISSING, "MISSING")
        if self._rooted:
            return f"{emitter.constant(self.guarded.start, 'start')}(L, G) is {missing}"
        name = names[0]
        if self.attr is not None:
            own = emitter.careful(_own_attribute, "own")
            slow = f"{own}({name}, {self.attr!r}) is {missing}"
            return self.or_else(name, f"{self.attr!r} not in {name}.__dict__", slow, emitter)
        if self.key:
            key = emitter.constant(self.key["key"], "key")
            slow = f"{emitter.careful(_fetch.item, 'item')}({name}, {key}) is {missing}"
            return f"{emitter.is_type(name, dict)} and {key} not in {name} or {slow}"
        read = emitter.constant(self.guarded.read, "read")  # type: ignore[attr-defined]
        return f"{read}({name}) is {missing}"

    def pattern(self) -> tuple[str, Any] | None:
        cls = self.cls()
        return ("contents", cls) if cls is not None and self.attr is not None else None

    def add_to(self, node: Any, kind: Any, value: Any) -> object:
        return self.add_presence(node, kind, value, str(self.attr), False)

    def holds(self, value: object) -> bool:
        absent = type(value) is Absent
        return not absent and _own_attribute(value, str(self.attr)) is MISSING

    def expected(self) -> str:
        if self.attr is not None:
            return f"without own attribute {self.attr!r}"
        return f"without key {spell(self.key['key'])}" if self.key else "absent"

    def actual(self, values: Sequence[Any]) -> str:
        if values and type(values[0]) is Absent:
            return f"{self.sources[0].name()} is {values[0]!r}"
        return "with it" if self.attr is not None or self.key else "present"

    def expression(self) -> str:
        return f"{self.guarded.name()} is {self.expected()}"

    def state(self) -> dict[str, Any]:
        return {"attr": self.attr, **self.key}

    @classmethod
    def from_state(cls, sources: Sequence[ValueSource], state: dict[str, Any]) -> Check:
        return cls(sources[0], **state)


def _own_attribute(value: object, name: str) -> Any:
    own = _fetch.instance_dict(value)
    return MISSING if own is None else own.get(name, MISSING)
