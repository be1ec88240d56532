"""Constants: values that a guard may compare by value, and exactly so.

``1``, ``True`` and ``1.0`` are equal in Python, and so are ``0.0`` and ``-0.0``, while nan differs
from itself. A trace that met one of them has not met the others, so constants compare here by
type and by what ``repr`` shows. Only types whose comparison is C code take part.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Hashable
from typing import Any

import torch

from guards._fetch import is_a, plain_type

__all__ = ["constant_key", "is_constant", "is_constant_type", "same_constant", "spell", "type_name"]

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


def is_constant_type(cls: type) -> bool:
    """Tell whether every value of exactly this class is a constant."""
    return cls in _PLAIN


def is_constant(value: object) -> bool:
    """Tell whether a value can be compared by value without running code of its class."""
    cls = plain_type(value)
    if cls in _PLAIN or is_a(value, (enum.Enum, type)):
        return True
    if cls in _SEQUENCES or cls in _SETS:
        return all(map(is_constant, value))  # type: ignore[call-overload]
    if cls is dict:
        return all(
            is_constant(k) and is_constant(v)
            for k, v in value.items()  # type: ignore[attr-defined]
        )
    if cls is slice:
        return all(map(is_constant, (value.start, value.stop, value.step)))  # type: ignore[attr-defined]
    return cls is range or is_a(value, types.CodeType)


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
    return (object, id(value))


def same_constant(a: object, b: object) -> bool:
    """Tell whether two values are of one type and equal to the last bit that ``repr`` shows."""
    if type(a) is not type(b):
        return False
    if a is b:
        return True
    try:
        return constant_key(a) == constant_key(b)
    except RecursionError:  # a container that holds itself
        return False


def spell(value: object, limit: int = 120) -> str:
    """Write a value as a user would: no addresses, no code of foreign classes, no novel."""
    text = _spell(value, 3)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


_OPEN_CLOSE: dict[Any, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    set: ("{", "}"),
}


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
        entries = (f"{_spell(k, depth - 1)}: {_spell(v, depth - 1)}" for k, v in value.items())
        return "{" + ", ".join(entries) + "}"
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
        parts = [_spell(v, depth - 1) for v in value]
    comma = "," if type(value) is tuple and len(parts) == 1 else ""
    return f"{first}{', '.join(parts)}{comma}{last}"


def _spell_object(value: Any) -> str:
    if is_a(value, types.FunctionType):
        return f"function {value.__module__}.{value.__qualname__}"
    if is_a(value, types.CodeType):
        return f"code of {value.co_name}"
    if is_a(value, types.BuiltinFunctionType):
        return f"function {value.__qualname__}"
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
