"""Build a saved wrapper again: the one thing that has to be there before any class is used.

`torch.load` with weights_only takes what is registered as safe and imports nothing. So this is
registered with the package itself, and finds the package's own classes by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from torch.serialization import add_safe_globals

__all__ = ["name_or_class", "own_class", "rebuild_wrapper"]

_MODULES = {
    "LoggingTensor": "subclass_utils._logging_tensor",
    "PlainView": "subclass_utils._plain_view",
    "WrapperTensor": "subclass_utils._wrapper",
}


def own_class(module: str, name: str) -> Any:
    """Give the class of this name where it is one of this package's; None for any other."""
    return getattr(import_module(module), name) if _MODULES.get(name) == module else None


def name_or_class(cls: type[Any]) -> type[Any] | str:
    """Say in a saved wrapper which class it is of: one of this package's by its name."""
    return cls.__qualname__ if _MODULES.get(cls.__qualname__) == cls.__module__ else cls


def rebuild_wrapper(cls: Any, state: Mapping[str, Any]) -> Any:
    """Build a wrapper from what `reduce_wrapper` said."""
    if isinstance(cls, str) and cls in _MODULES:
        cls = own_class(_MODULES[cls], cls)
    return import_module("subclass_utils._copying").build_wrapper(cls, state)


add_safe_globals([rebuild_wrapper])
