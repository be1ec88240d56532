"""Constants: values that a guard may compare by value, and exactly so.

``1``, ``True`` and ``1.0`` are equal in Python, and so are ``0.0`` and ``-0.0``, while nan differs
from itself. A trace that met one of them has not met the others, so constants compare here by
type and by what ``repr`` shows. Only types whose comparison is C code take part.
"""

from __future__ import annotations

import enum
import itertools
import types
import weakref
from collections.abc import Hashable
from typing import Any, cast

import torch

from guards._fetch import is_a, plain_type

__all__ = [
    "HeldWeakly",
    "constant_key",
    "holds_nan",
    "is_constant",
    "obstacle",
    "same_constant",
    "spell",
    "type_name",
]

_BY_VALUE = (
    int,
    str,
    bytes,
    bool,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
)
_SINGLE = (type(None), type(Ellipsis), type(NotImplemented))
_BY_REPR = (float, complex)
_PLAIN = frozenset((*_BY_VALUE, *_SINGLE, *_BY_REPR))
_SEQUENCES = frozenset((tuple, list, torch.Size))
_SETS = frozenset((set, frozenset))


def is_constant(value: object) -> bool:
    """Tell whether a value can be compared by value without running code of its class."""
    return plain_type(value) in _PLAIN or obstacle(value) is None


# Comparing constants takes as many calls within calls as they are deep.
_DEEPEST = 100
_MOST = 100_000  # parts that hold others, of one constant; each is counted where it is held


def obstacle(value: object) -> str | None:
    """Say what keeps a value from being a constant, or None where it is one."""
    return _obstacle(value, _DEEPEST, [_MOST])


def _obstacle(value: Any, depth: int, left: list[int]) -> str | None:
    cls = plain_type(value)
    if cls in _PLAIN or cls is range or is_a(value, (enum.Enum, type, types.CodeType)):
        return None
    if cls in _SEQUENCES or cls in _SETS:
        parts: Any = value
    elif cls is dict:
        parts = (part for entry in value.items() for part in entry)
    elif cls is slice:
        parts = (value.start, value.stop, value.step)
    elif is_a(value, HeldWeakly):
        return None
    else:
        return "comparing it would run code of its class"
    left[0] -= 1
    if depth == 0:
        return f"it holds itself, or is nested more than {_DEEPEST} deep"
    if left[0] < 0:
        return f"it holds more than {_MOST} containers"
    for part in parts:
        if plain_type(part) not in _PLAIN:
            found = _obstacle(part, depth - 1, left)
            if found is not None:
                return found
    return None


class HeldWeakly:
    """Stands in a constant for a class made at run time, or a member of an enum that was.

    A constant that held it would keep it alive.
    """

    __slots__ = ("_address", "_class", "_text")

    def __init__(self, value: object) -> None:
        self._class = weakref.ref(value if is_a(value, type) else type(value))
        self._address = id(value)
        self._text = _spell(value, 0)

    def get(self) -> Any:
        """Give the class or member; None once it is dead."""
        cls = self._class()
        if cls is None or id(cls) == self._address:
            return cls
        for table in ("_member_map_", "_value2member_map_"):  # the latter has sums of flags too
            for member in type.__dict__["__dict__"].__get__(cls).get(table, {}).values():
                if id(member) == self._address:
                    return member
        return None

    def is_it(self, value: object) -> bool:
        """Tell whether a value is the class or member."""
        return id(value) == self._address and self._class() is not None

    def key(self) -> Hashable:
        """Give the stand-in of ``constant_key``; one that equals no other once it is dead."""
        return (object, self._address if self._class() is not None else id(self))

    def __repr__(self) -> str:
        return self._text if self._class() is not None else f"{self._text}, which is dead"


def constant_key(value: Any) -> Hashable:
    """Give a hashable stand-in: two constants are the same exactly when theirs are equal.

    A value that is no constant stands for itself by identity, so keep it alive meanwhile.
    """
    cls = plain_type(value)
    if cls in _BY_REPR:
        return (cls, repr(value))
    if cls in _PLAIN:
        return (cls, value)
    if cls in _SEQUENCES:
        return (cls, *map(constant_key, value))
    if cls in _SETS:
        return (cls, frozenset(map(constant_key, value)))
    if cls is dict:
        return (cls, *((constant_key(k), constant_key(v)) for k, v in value.items()))
    if cls in (slice, range):
        return (cls, *map(constant_key, (value.start, value.stop, value.step)))
    if cls is types.CodeType:
        return (cls, value)
    if cls is HeldWeakly:
        return cast(Hashable, value.key())
    return (object, id(value))


def same_constant(a: object, b: object) -> bool:
    """Tell whether two values are of one type and equal to the last bit that ``repr`` shows.

    ``b`` is a constant; ``a`` may be anything.
    """
    if type(b) is HeldWeakly:
        return b.is_it(a)
    if type(a) is not type(b):
        return False
    if a is b:
        return True
    cls = plain_type(b)
    # Step by step, so that what ``a`` holds beyond what ``b`` does is not looked at.
    if cls in _SEQUENCES:
        return len(a) == len(b) and all(map(same_constant, a, b))  # type: ignore[arg-type,call-overload]
    if cls is dict:
        return len(a) == len(b) and all(  # type: ignore[arg-type]
            same_constant(key, wanted_key) and same_constant(part, wanted)
            for (key, part), (wanted_key, wanted) in zip(a.items(), b.items(), strict=True)  # type: ignore[attr-defined]
        )
    if cls in _SETS and len(a) != len(b):  # type: ignore[arg-type]
        return False
    return constant_key(a) == constant_key(b)


def holds_nan(value: Any) -> bool:
    """Tell whether a constant that can be the key of a dict is nan, or holds it."""
    if type(value) in (tuple, frozenset):
        return any(map(holds_nan, value))
    return type(value) in _BY_REPR and value != value


def spell(value: object, limit: int = 120, depth: int = 3) -> str:
    """Write a value as a user would: no addresses, no code of foreign classes, no novel."""
    text = _spell(value, depth)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


_OPEN_CLOSE: dict[Any, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    set: ("{", "}"),
}


_WIDEST = 100  # entries that are written; a list may hold itself many times


def _spell(value: Any, depth: int) -> str:
    cls = plain_type(value)
    if cls in _PLAIN:
        return _spell_plain(value)
    if is_a(value, enum.Enum):
        return f"{type(value).__qualname__}.{object.__getattribute__(value, '_name_')}"
    if is_a(value, type):
        return type_name(value)
    if cls is slice or cls is range:
        parts = (value.start, value.stop, value.step)
        return f"{cls.__name__}({', '.join(_spell(p, depth) for p in parts)})"
    if cls in (list, tuple, set, frozenset, dict, torch.Size) and depth == 0:
        return f"{cls.__name__} of {len(value)}"
    if cls in _OPEN_CLOSE:
        return _spell_container(value, depth)
    if cls in (frozenset, torch.Size):
        inner = _spell(set(value) if cls is frozenset else list(value), depth)
        return f"{'torch.Size' if cls is torch.Size else 'frozenset'}({inner})"
    if cls is dict:
        entries = [
            f"{_spell(k, depth - 1)}: {_spell(v, depth - 1)}"
            for k, v in itertools.islice(value.items(), _WIDEST)
        ]
        return "{" + ", ".join(entries + ["…"] * (len(value) > _WIDEST)) + "}"
    if cls is HeldWeakly:
        return repr(value)
    return _spell_object(value)


def _spell_plain(value: Any) -> str:
    if type(value) is int and value.bit_length() > 512:
        return f"int of {value.bit_length()} bits"  # str() refuses very long ones
    if type(value) in (str, bytes) and len(value) > 1000:
        return f"{value[:1000]!r}…"
    if type(value) is torch.device:
        return f"torch.device({str(value)!r})"
    return repr(value)


def _spell_container(value: Any, depth: int) -> str:
    first, last = _OPEN_CLOSE[type(value)]
    if type(value) is set:
        if not value:
            return "set()"
        parts = sorted(_spell(v, depth - 1) for v in value)
    else:
        parts = [_spell(v, depth - 1) for v in value[:_WIDEST]]
        parts += ["…"] * (len(value) > _WIDEST)
    comma = "," if type(value) is tuple and len(parts) == 1 else ""
    return f"{first}{', '.join(parts)}{comma}{last}"


def _spell_object(value: Any) -> str:
    if is_a(value, types.FunctionType):
        module = value.__module__  # whatever its globals call themselves
        return f"function {f'{module}.' if is_a(module, str) else ''}{value.__qualname__}"
    if is_a(value, types.CodeType):
        return f"code of {value.co_name}"
    if is_a(value, types.BuiltinFunctionType):
        name = value.__qualname__
        return f"function {name.replace('_VariableFunctionsClass.', 'torch.')}"
    if is_a(value, types.ModuleType):
        name = types.ModuleType.__getattribute__(value, "__dict__").get("__name__")
        return f"module {name}"
    if is_a(value, types.MethodType):
        return f"method {_spell_object(value.__func__).removeprefix('function ')}"
    return f"an object of type {type_name(type(value))}"


def type_name(cls: type) -> str:
    """Give a class's name, with its module unless that is builtins."""
    module = type.__dict__["__dict__"].__get__(cls).get("__module__")
    module = module if is_a(module, str) else cls.__module__
    name = type.__dict__["__qualname__"].__get__(cls)
    return name if module in ("builtins", None) else f"{module}.{name}"
