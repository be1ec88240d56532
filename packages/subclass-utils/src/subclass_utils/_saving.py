"""Take a state dict with wrappers apart into plain tensors and JSON, and put it together again."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import torch

from subclass_utils._copying import CLASSES
from subclass_utils._description import describe_outside, make_described
from subclass_utils._encoding import decode, encode
from subclass_utils._errors import CopyError
from subclass_utils._rebuild import own_class
from subclass_utils._shared_data import root_of

__all__ = ["flatten_state_dict", "unflatten_state_dict"]

_FORMAT = 1


def flatten_state_dict(
    state: Mapping[str, torch.Tensor],
) -> tuple[dict[str, torch.Tensor], str]:
    """Take wrappers apart: give plain tensors by name, and JSON that says how they belong.

    For formats that hold nothing but plain tensors and text, such as safetensors, whose metadata
    takes the JSON. An inner tensor of `weight` is called `weight.elem`. Tensors that are shared,
    one object under several names, stay shared: they are stored once.

    Raises: CopyError for a value that is no tensor, or names that would clash.
    """
    tensors: dict[str, torch.Tensor] = {}
    seen: dict[int, str] = {}

    def take(name: str, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            raise CopyError(
                f"{name!r} is a {type(value).__qualname__}: a state dict to flatten holds tensors",
                cls=type(value),
            )
        if id(value) in seen:
            return {"same": seen[id(value)]}
        seen[id(value)] = name
        cls: Any = type(value)
        if not hasattr(cls, "inner_tensors"):
            if name in tensors:
                raise CopyError(f"two tensors would be called {name!r}", cls=cls)
            tensors[name] = value.detach()
            return {"requires_grad": value.requires_grad, "parameter": _is_parameter(value)}
        return {
            "class": [cls.__module__, cls.__qualname__],
            "outside": {key: encode(item) for key, item in describe_outside(value).items()},
            "inner": {
                inner: take(f"{name}.{inner}", getattr(value, inner)) for inner in cls.inner_tensors
            },
            "metadata": {inner: encode(getattr(value, inner)) for inner in cls.metadata},
            "lent": sorted(root_of(value).__dict__.get("_lent", ())),
            "requires_grad": value.requires_grad,
            "parameter": _is_parameter(value),
        }

    entries = {name: take(name, value) for name, value in state.items()}
    return tensors, json.dumps({"format": _FORMAT, "tensors": entries})


def _is_parameter(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, torch.nn.Parameter)


def unflatten_state_dict(
    tensors: Mapping[str, torch.Tensor], description: str
) -> dict[str, torch.Tensor]:
    """Put together what `flatten_state_dict` took apart; the inner tensors are those given.

    Raises: CopyError for a tensor that is missing, a class that nobody has imported, and text
    that did not come from `flatten_state_dict`.
    """
    try:
        read = json.loads(description)
        entries = read["tensors"]
        known = read["format"] == _FORMAT
    except (ValueError, KeyError, TypeError):
        known = False
    if not known:
        raise CopyError("the description is none that flatten_state_dict gave", cls=str)
    made: dict[str, Any] = {}

    def build(name: str, entry: Mapping[str, Any]) -> Any:
        if "same" in entry:
            return made[entry["same"]]
        if "class" not in entry:
            if name not in tensors:
                raise CopyError(f"the tensor {name!r} is missing", cls=dict)
            value: Any = tensors[name]
            if entry["parameter"]:
                value = torch.nn.Parameter(value, requires_grad=entry["requires_grad"])
            elif entry["requires_grad"]:
                value = value.detach().requires_grad_()
        else:
            value = _build_wrapper(name, entry, build)
        made[name] = value
        return value

    return {name: build(name, entry) for name, entry in entries.items()}


def _build_wrapper(name: str, entry: Mapping[str, Any], build: Any) -> Any:
    cls = _find_class(*entry["class"])
    inner = [build(f"{name}.{inner}", part) for inner, part in entry["inner"].items()]
    if tuple(entry["inner"]) != cls.inner_tensors:
        raise CopyError(
            f"{name!r} has the inner tensors {', '.join(entry['inner'])}, but "
            f"{cls.__qualname__} declares {', '.join(cls.inner_tensors)}",
            cls=cls,
        )
    outside = {key: decode(value) for key, value in entry["outside"].items()}
    outside["device"] = inner[0].device
    value = make_described(cls, outside, inner)
    for attribute, metadata in entry["metadata"].items():
        setattr(value, attribute, decode(metadata))
    if entry.get("lent"):
        value.__dict__["_lent"] = {*entry["lent"]} & {*cls.inner_tensors}
    if entry["parameter"]:
        return torch.nn.Parameter(value, requires_grad=entry["requires_grad"])
    return value.requires_grad_(entry["requires_grad"])


def _find_class(module: str, name: str) -> Any:
    known = CLASSES.get((module, name)) or own_class(module, name)
    if known is not None:
        return known
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if isinstance(found, type) and hasattr(found, "inner_tensors"):
        return found
    raise CopyError(
        f"the wrapper class {name} of module {module} is not there: import the module that "
        "declares it before unflattening",
        cls=type(found),
    )
