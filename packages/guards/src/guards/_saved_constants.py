"""Constants as JSON and back, exactly: types, nan, signs of zero and all.

None, bools, strings, small ints and lists stand for themselves; everything else is an object with
one key that names its type. Reading looks names up among what is imported already; it imports
nothing and runs nothing.
"""

from __future__ import annotations

import enum
import sys
import types
from collections.abc import Callable
from typing import Any, cast

import torch

from guards._checks import SINGLETONS
from guards._class_names import find_class, importable_name
from guards._constants import spell
from guards._errors import SavedGuardsError, UnsupportedGuardError
from guards._fetch import is_a

__all__ = ["read_constant", "write_constant"]

_MAX_DEPTH = 64
_EXACT_INT = 2**53  # JSON readers elsewhere keep whole numbers exactly up to here
_NAMED = (torch.dtype, torch.layout, torch.memory_format)


def write_constant(value: Any, depth: int = 0) -> Any:
    """Give the JSON form of a constant.

    Raises:
        UnsupportedGuardError: it cannot be named in another process.
    """
    cls = type(value)
    if depth > _MAX_DEPTH:
        raise UnsupportedGuardError("a constant nested more than 64 levels deep cannot be saved")
    if value is None or cls in (bool, str):
        return value
    if cls is int:
        return value if abs(value) <= _EXACT_INT else {"int": hex(value)}
    writer = _WRITERS.get(cls)
    if writer is not None:
        return writer(value, depth + 1)
    if is_a(value, enum.Enum):
        return _write_enum(value)
    if is_a(value, type):
        return {"class": _class_name(value)}
    if cls in _NAMED:
        return {cls.__name__: str(value).removeprefix("torch.")}
    for name, single in SINGLETONS.items():
        if value is single:
            return {"singleton": name}
    raise UnsupportedGuardError(f"{spell(value)} cannot be saved")


def _class_name(cls: type) -> str:
    name = importable_name(cls)
    if find_class(name) is not cls:
        raise UnsupportedGuardError(
            f"{name.replace(':', '.')} cannot be saved: it is not found by its name; "
            "move the class to the top of a module"
        )
    return name


def _write_enum(value: enum.Enum) -> Any:
    cls = type(value)
    name = object.__getattribute__(value, "_name_")
    if type(name) is str and _members(cls).get(name) is value:
        return {"enum": [_class_name(cls), name]}
    number = object.__getattribute__(value, "_value_")
    if _sum_of_flags(cls, number) is not value:
        raise UnsupportedGuardError(f"{spell(value)} cannot be saved: it has no name of its own")
    return {"flags": [_class_name(cls), write_constant(number)]}


def _members(cls: type) -> dict[str, Any]:
    members: dict[str, Any] = type.__dict__["__dict__"].__get__(cls).get("_member_map_", {})
    return members


def _sum_of_flags(cls: type, number: object) -> Any:
    """Give what a flag class has for a number, some or none of its members; None for nothing.

    Nothing too for a class that has a say in how it is made: none of its code may run.
    """
    if not issubclass(cls, enum.Flag) or type(cls) is not enum.EnumMeta or type(number) is not int:
        return None
    for base in type.__dict__["__mro__"].__get__(cls):
        own = type.__dict__["__dict__"].__get__(base)
        if base in (object, int) or own.get("__module__") == "enum":
            continue
        for name, value in own.items():
            code = getattr(value, "__func__", value) if type(value) in _METHODS else value
            foreign = is_a(code, types.FunctionType) and code.__globals__ is not vars(enum)
            if foreign and (name.startswith("_") or hasattr(enum.Flag, name)):
                return None
    try:
        return cls(number)
    except ValueError:  # a bit that no member has
        return None


_METHODS = (staticmethod, classmethod)


def _write_dict(value: dict[Any, Any], depth: int) -> Any:
    return {
        "dict": [[write_constant(k, depth), write_constant(v, depth)] for k, v in value.items()]
    }


def _writer_of_many(name: str, order: bool) -> Callable[[Any, int], Any]:
    def write(value: Any, depth: int) -> Any:
        parts = [write_constant(part, depth) for part in value]
        return {name: parts if order else sorted(parts, key=repr)}

    return write


_WRITERS: dict[type, Callable[[Any, int], Any]] = {
    float: lambda value, _: {"float": "nan" if value != value else value.hex()},
    complex: lambda value, depth: {
        "complex": [write_constant(value.real, depth), write_constant(value.imag, depth)]
    },
    bytes: lambda value, _: {"bytes": value.hex()},
    list: lambda value, depth: [write_constant(part, depth) for part in value],
    tuple: _writer_of_many("tuple", True),
    torch.Size: _writer_of_many("Size", True),
    set: _writer_of_many("set", False),
    frozenset: _writer_of_many("frozenset", False),
    dict: _write_dict,
    torch.device: lambda value, _: {"device": str(value)},
    slice: lambda value, depth: {
        "slice": [write_constant(part, depth) for part in (value.start, value.stop, value.step)]
    },
    range: lambda value, depth: {
        "range": [write_constant(part, depth) for part in (value.start, value.stop, value.step)]
    },
}


def read_constant(saved: Any, depth: int = 0) -> Any:
    """Give the constant that a JSON form stands for.

    Raises:
        SavedGuardsError: it stands for none, or names something that is not imported here.
    """
    if depth > _MAX_DEPTH:
        raise SavedGuardsError("a constant is nested more than 64 levels deep")
    if saved is None or type(saved) in (bool, int, str):
        return saved
    if type(saved) is list:
        return [read_constant(part, depth + 1) for part in saved]
    if type(saved) is not dict or len(saved) != 1:
        raise SavedGuardsError(f"no constant is written {_short(saved)}")
    ((name, body),) = saved.items()
    reader = _READERS.get(name)
    if reader is None:
        raise SavedGuardsError(f"no constant is written {_short(saved)}")
    try:
        return reader(body, depth + 1)
    except SavedGuardsError:
        raise
    except Exception as error:
        raise SavedGuardsError(f"no constant is written {_short(saved)} ({error})") from None


def _short(saved: Any) -> str:
    return spell(saved, 80)


def _text(body: Any) -> str:
    if type(body) is not str:
        raise SavedGuardsError(f"expected a string, got {_short(body)}")
    return body


def _parts(body: Any, depth: int) -> list[Any]:
    if type(body) is not list:
        raise SavedGuardsError(f"expected a list, got {_short(body)}")
    return [read_constant(part, depth) for part in body]


def _read_dict(body: Any, depth: int) -> dict[Any, Any]:
    if type(body) is not list or any(type(e) is not list or len(e) != 2 for e in body):
        raise SavedGuardsError(f"expected a list of pairs, got {_short(body)}")
    return {read_constant(k, depth): read_constant(v, depth) for k, v in body}


def _read_complex(body: Any, depth: int) -> complex:
    real, imag = _parts(body, depth)
    if type(real) is not float or type(imag) is not float:
        raise SavedGuardsError(f"expected two floats, got {_short(body)}")
    return complex(real, imag)


def _reader_of_named(cls: type) -> Callable[[Any, int], Any]:
    def read(body: Any, depth: int) -> Any:
        value = torch.__dict__.get(_text(body))
        if type(value) is not cls:
            raise SavedGuardsError(f"torch has no {cls.__name__} {body!r}")
        return value

    return read


def _read_class(body: Any, depth: int) -> type:
    cls = find_class(_text(body))
    if cls is None:
        module = body.partition(":")[0]
        known = "has no such class" if module in sys.modules else "is not imported"
        raise SavedGuardsError(
            f"{body.replace(':', '.')} is not known here: {module} {known}; import it first"
        )
    return cls


def _read_enum(body: Any, depth: int) -> enum.Enum:
    name, member = body
    cls = _read_class(name, depth)
    if not issubclass(cls, enum.Enum) or _text(member) not in _members(cls):
        raise SavedGuardsError(f"{name} has no member {_short(member)}")
    found: enum.Enum = _members(cls)[member]
    return found


def _read_flags(body: Any, depth: int) -> enum.Enum:
    name, saved = body
    number = read_constant(saved, depth)
    found = _sum_of_flags(_read_class(name, depth), number)
    if found is None:
        raise SavedGuardsError(f"{name} has no flags {_short(number)}")
    return cast(enum.Enum, found)


_READERS: dict[str, Callable[[Any, int], Any]] = {
    "int": lambda body, _: int(_text(body), 16),
    "float": lambda body, _: float.fromhex(_text(body)),
    "complex": _read_complex,
    "bytes": lambda body, _: bytes.fromhex(_text(body)),
    "tuple": lambda body, depth: tuple(_parts(body, depth)),
    "Size": lambda body, depth: torch.Size(_parts(body, depth)),
    "set": lambda body, depth: set(_parts(body, depth)),
    "frozenset": lambda body, depth: frozenset(_parts(body, depth)),
    "dict": _read_dict,
    "device": lambda body, _: torch.device(_text(body)),
    "slice": lambda body, depth: slice(*_parts(body, depth)),
    "range": lambda body, depth: range(*_parts(body, depth)),
    "enum": _read_enum,
    "flags": _read_flags,
    "class": _read_class,
    "singleton": lambda body, _: SINGLETONS[_text(body)],
    **{cls.__name__: _reader_of_named(cls) for cls in _NAMED},
}
