"""Typed operator handles, checked handlers and dispatch modes for PyTorch.

Public names are the ones in `__all__`; modules that start with an underscore are private.
"""

from __future__ import annotations

from dispatch_core._errors import (
    BindError,
    DispatchError,
    NotRegisteredError,
    SchemaDriftError,
    UnknownOperatorError,
)
from dispatch_core._handle import Facts, Handle, Param
from dispatch_core._ops import ops
from dispatch_core._registry import handle_of

__all__ = [
    "BindError",
    "DispatchError",
    "Facts",
    "Handle",
    "NotRegisteredError",
    "Param",
    "SchemaDriftError",
    "UnknownOperatorError",
    "handle_of",
    "ops",
]
