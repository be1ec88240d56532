"""Copy, pickle and save wrappers: their inner tensors, their metadata, and how they look."""

from __future__ import annotations

import copy
import dataclasses
import enum
import sys
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import torch

from subclass_utils._errors import CopyError
from subclass_utils._outside import new_outside, outside_like
from subclass_utils._rebuild import name_or_class, rebuild_wrapper
from subclass_utils._torch_private import inference_mode, set_conj, set_neg

__all__ = [
    "CLASSES",
    "as_view_of",
    "build_wrapper",
    "decode",
    "deepcopy_wrapper",
    "describe_outside",
    "encode",
    "make_described",
    "reduce_wrapper",
    "state_of",
]

CLASSES: WeakValueDictionary[tuple[str, str], type[Any]] = WeakValueDictionary()
"""The wrapper classes of this process by module and name, also those of no module's namespace."""

# ── the outside ─────────────────────────────────────────────────────────────────────────────────


def describe_outside(wrapper: Any) -> dict[str, Any]:
    """Say what an outside that differs from the inner tensors looks like."""
    strided = wrapper.layout is torch.strided
    return {
        "size": tuple(wrapper.size()),
        "stride": tuple(wrapper.stride()) if strided else None,
        "offset": wrapper.storage_offset() if strided else None,
        "dtype": wrapper.dtype,
        "layout": wrapper.layout,
        "device": wrapper.device,
        "conj": wrapper.is_conj(),
        "neg": wrapper.is_neg(),
    }


def make_described(
    cls: type[Any],
    outside: Mapping[str, Any],
    inner: Sequence[torch.Tensor],
    requires_grad: bool = False,
) -> Any:
    """Make a wrapper around inner tensors, without calling the class's own `__new__`.

    It is an inference tensor where they are.
    """
    inference = inner[0].is_inference()
    if torch.is_inference_mode_enabled() is not inference:
        with inference_mode(inference):
            return make_described(cls, outside, inner, requires_grad)
    if cls._transparent:
        made = outside_like(cls, inner[0], requires_grad)
    else:
        made = new_outside(
            cls,
            outside["size"],
            outside["stride"],
            outside["offset"],
            outside["dtype"],
            outside["layout"],
            outside["device"],
            requires_grad,
        )
        if outside["conj"]:
            set_conj(made, True)
        if outside["neg"]:
            set_neg(made, True)
    for name, tensor in zip(cls.inner_tensors, inner, strict=True):
        setattr(made, name, tensor)
    return made


def as_view_of(value: Any, source: Any) -> Any:
    """Give a view that is no inference tensor, where what it views is none.

    Under inference mode a handler makes inference tensors; torch takes none for a view of a tensor
    from outside.
    """
    if not isinstance(value, torch.Tensor) or not isinstance(source, torch.Tensor):
        return value
    if value is source or not value.is_inference() or source.is_inference():
        return value
    with inference_mode(False):
        if not hasattr(type(value), "inner_tensors"):
            return value.clone()
        cls: Any = type(value)
        inner = [as_view_of(getattr(value, name), source) for name in cls.inner_tensors]
        made = make_described(cls, describe_outside(value), inner)
    made.__dict__.update({k: v for k, v in value.__dict__.items() if k not in cls.inner_tensors})
    return made


_OF_THIS_OBJECT = {"_argument", "_family", "_family_seen", "_from_data", "_lent"}
"""Attributes that say with whom an object shares its data: a copy shares it with nobody.

`_argument` is one of a compiled function, while torch.compile finds out what is written there.
"""


# ── copy ────────────────────────────────────────────────────────────────────────────────────────


def _extras(wrapper: Any) -> dict[str, Any]:
    """Give the attributes that nobody declared: a Parameter's mark, a user's own."""
    declared = {*type(wrapper).inner_tensors, *type(wrapper).metadata}
    return {
        name: value
        for name, value in wrapper.__dict__.items()
        if name not in declared and name not in _OF_THIS_OBJECT
    }


def deepcopy_wrapper(wrapper: Any, memo: dict[int, Any]) -> Any:
    """Copy a wrapper and everything it holds; what is shared inside the copy stays shared.

    But for the views that a class's own handlers made: their copies have data of their own.

    Raises: RuntimeError for a tensor that autograd computed, as torch does; CopyError if the
    class's own clone gives another class.
    """
    if id(wrapper) in memo:
        return memo[id(wrapper)]
    if not wrapper.is_leaf:
        raise CopyError(
            "only tensors that were created explicitly by the user (graph leaves) support the "
            f"deepcopy protocol; this {type(wrapper).__qualname__} was computed: use "
            ".detach() or .clone() first",
            cls=type(wrapper),
        )
    _check_clone(wrapper)
    cls = type(wrapper)
    with torch.no_grad():
        kept = {} if _is_part_of_another(wrapper) else memo
        inner = [copy.deepcopy(getattr(wrapper, name), kept) for name in cls.inner_tensors]
        made = make_described(cls, describe_outside(wrapper), inner)
    memo[id(wrapper)] = made
    made.requires_grad_(wrapper.requires_grad)
    for name in cls.metadata:
        setattr(made, name, copy.deepcopy(getattr(wrapper, name), memo))
    if wrapper.grad is not None:
        made.grad = copy.deepcopy(wrapper.grad, memo)
    made.__dict__.update(copy.deepcopy(_extras(wrapper), memo))
    return made


def _check_clone(wrapper: Any) -> None:
    """Refuse where the class's own clone shows that it is not made to be copied."""
    cls = type(wrapper)
    if not cls._has_own_handler(torch.ops.aten.clone.default):
        return
    with torch.no_grad():
        clone = wrapper.clone()
    if type(clone) is not cls:
        raise CopyError(
            f"deepcopy of {cls.__qualname__}: cloning must return the same subclass, but its "
            f"handler of aten::clone gave a {type(clone).__qualname__}",
            cls=cls,
        )


# ── pickle ──────────────────────────────────────────────────────────────────────────────────────


def _is_part_of_another(wrapper: Any) -> bool:
    """Say whether a view's handler made this, so that its inner tensors are partly another's.

    A copy shares none of them: what is written to it could not be written to the whole.
    """
    return bool(getattr(wrapper.__dict__, "steps", ()))


def reduce_wrapper(wrapper: Any) -> tuple[Any, ...]:
    """Say how to build a wrapper again; everything in it may be loaded with weights_only."""
    return rebuild_wrapper, (name_or_class(type(wrapper)), state_of(wrapper))


def state_of(wrapper: Any, *, shares: bool = False) -> dict[str, Any]:
    """Say everything that a wrapper is; with its own inner tensors if it `shares` their data."""
    cls = type(wrapper)
    extras = _extras(wrapper)
    inner = [getattr(wrapper, name) for name in cls.inner_tensors]
    if wrapper.requires_grad:
        inner = [tensor.detach() for tensor in inner]
    if _is_part_of_another(wrapper) and not shares:
        inner = [tensor.detach().clone() for tensor in inner]
    return {
        "outside": {key: encode(value) for key, value in describe_outside(wrapper).items()},
        "inner": inner,
        "metadata": {name: encode(getattr(wrapper, name)) for name in cls.metadata},
        "requires_grad": wrapper.requires_grad,
        "parameter": extras.pop("_is_param", False),
        "grad": wrapper.grad if wrapper.is_leaf else None,
        "extras": extras,
    }


def build_wrapper(cls: type[Any], state: Mapping[str, Any]) -> Any:
    """Build a wrapper from what `reduce_wrapper` said."""
    if not (isinstance(cls, type) and hasattr(cls, "inner_tensors")):
        raise CopyError(f"{cls!r} is no wrapper class", cls=type(cls))
    outside = {key: decode(value) for key, value in state["outside"].items()}
    inner = list(state["inner"])
    if inner and not cls._transparent:
        outside["device"] = inner[0].device if outside["device"].type != "meta" else "meta"
    made = make_described(cls, outside, inner, state["requires_grad"])
    for name, value in state["metadata"].items():
        setattr(made, name, decode(value))
    made.__dict__.update(state["extras"])
    if state["parameter"]:
        made._is_param = True
    if state["grad"] is not None:
        made.grad = state["grad"]
    return made


# ── metadata as builtins ────────────────────────────────────────────────────────────────────────

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
