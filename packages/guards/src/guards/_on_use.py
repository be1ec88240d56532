"""What is loaded when it is first asked for: a program that only traces should not wait for it."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["load"]

_NAMES = {
    "_builder": "GuardBuilder",
    "_cache": "CacheStats GuardedCache",
    "_checks": "Check",
    "_compile": "CheckFunction compile_guards",
    "_compiled_entries": "EntryReport EntryReports GuardReport inspect",
    "_explanation": "Explanation",
    "_op_facts": "OpFacts facts",
    "_specialize": "Specialized specialize",
    "_saving": "dumps loads saveable verify",
    "_evaluation": "ChainedValueSource ValueSource",
    "_fetch": "MISSING REFUSED",
    "_value_sources": (
        "AttrSource CellContentsSource ConstDictKeySource ConstantSource DefaultsSource "
        "GetItemSource GlobalSource GlobalStateSource LengthSource LocalSource ParamBufferSource "
        "TensorPropertySource TypeSource"
    ),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}


def load(name: str) -> Any:
    """Give what the package exports under this name, loading the module that defines it.

    Raises:
        AttributeError: the package has no such name.
    """
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'guards' has no attribute {name!r}")
    return getattr(importlib.import_module(f"guards.{module}"), name)
