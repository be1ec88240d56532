"""Write metadata as builtins, to be saved, and read it again."""

from __future__ import annotations

import dataclasses
import enum
import sys
from collections.abc import Sequence
from typing import Any

import torch

from subclass_utils._errors import CopyError

__all__ = ["decode", "encode"]

_TORCH_TYPES = (torch.dtype, torch.layout, torch.memory_format)


def encode(value: Any) -> Any:
    """Write a metadata value as None, bool, int, float, str, list and dict, so also as JSON.

    A finite float and an int come back as they are; so does everything else that may travel.
    """
    cls = type(value)
    if value is None or cls in (bool, int, str):
        return value
    if cls is float:
        return value if value - value == 0 else ["float", repr(value)]
    if cls is complex:
        return ["complex", repr(value)]
    if cls is bytes:
        return ["bytes", value.hex()]
    if cls in (list, tuple, set, frozenset, torch.Size):
        items = sorted(value, key=repr) if cls in (set, frozenset) else value
        return [cls.__name__, [encode(item) for item in items]]
    if cls is dict:
        return ["dict", [[encode(key), encode(item)] for key, item in value.items()]]
    if cls in (range, slice):
        return [cls.__name__, [value.start, value.stop, value.step]]
    if value is Ellipsis:
        return ["Ellipsis"]
    if isinstance(value, _TORCH_TYPES):
        return ["torch", str(value).removeprefix("torch.")]
    if isinstance(value, torch.device):
        return ["device", str(value)]
    if isinstance(value, enum.Enum):
        name = value.name
        known = name is not None and cls.__members__.get(name) is value
        return ["enum", cls.__module__, cls.__qualname__, name if known else [value.value]]
    if dataclasses.is_dataclass(cls):
        names = [field.name for field in dataclasses.fields(cls)]
        own = getattr(value, "__dict__", {})  # also what __post_init__ added
        names += [name for name, item in own.items() if name not in names and _encodes(item)]
        fields = [[name, encode(getattr(value, name))] for name in names]
        return ["dataclass", cls.__module__, cls.__qualname__, fields]
    raise CopyError(f"metadata of type {cls.__qualname__} cannot be saved", cls=cls)


def decode(value: Any) -> Any:
    """Read what `encode` wrote.

    Classes are looked for in modules that are imported already, and must be enums or frozen
    dataclasses: reading never imports and never calls anything else.
    """
    if not isinstance(value, list | tuple):
        return value
    kind, *rest = value
    if kind == "float":
        return float(rest[0])
    if kind == "complex":
        return complex(rest[0])
    if kind == "bytes":
        return bytes.fromhex(rest[0])
    if kind in _SEQUENCES:
        return _SEQUENCES[kind](decode(item) for item in rest[0])
    if kind == "dict":
        return {decode(key): decode(item) for key, item in rest[0]}
    if kind == "range":
        return range(*rest[0])
    if kind == "slice":
        return slice(*rest[0])
    if kind == "Ellipsis":
        return ...
    if kind == "torch":
        found = getattr(torch, rest[0], None)
        if isinstance(found, _TORCH_TYPES):
            return found
    if kind == "device":
        return torch.device(rest[0])
    if kind == "enum":
        found = _find(rest[0], rest[1])
        if isinstance(rest[2], str):
            return found[rest[2]]
        if issubclass(found, enum.Flag) and type(rest[2][0]) is int:  # flags together, or none
            return found(rest[2][0])
    if kind == "dataclass":
        return _made_dataclass(_find(rest[0], rest[1]), rest[2])
    raise CopyError(f"{value!r} is no metadata that was saved", cls=type(value))


def _encodes(value: Any) -> bool:
    try:
        encode(value)
    except CopyError:
        return False
    return True


def _made_dataclass(cls: type[Any], saved: Sequence[Any]) -> Any:
    """Make an object with the fields that it had; a field that the class got since by default."""
    made = object.__new__(cls)
    for field in dataclasses.fields(cls):
        if field.default is not dataclasses.MISSING:
            object.__setattr__(made, field.name, field.default)
        elif field.default_factory is not dataclasses.MISSING:
            object.__setattr__(made, field.name, field.default_factory())
    for name, item in saved:
        if not name.isidentifier() or name.startswith("__"):
            raise CopyError(f"{name!r} is no field of {cls.__qualname__}", cls=cls)
        object.__setattr__(made, name, decode(item))
    return made


_SEQUENCES: dict[str, Any] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "Size": lambda items: torch.Size(list(items)),
}


def _find(module: str, name: str) -> Any:
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if isinstance(found, type) and (
        issubclass(found, enum.Enum)
        or (dataclasses.is_dataclass(found) and found.__dataclass_params__.frozen)  # type: ignore[attr-defined]
    ):
        return found
    raise CopyError(
        f"the class {name} of module {module} is not there: import the module that declares it "
        "before loading",
        cls=type(found),
    )
