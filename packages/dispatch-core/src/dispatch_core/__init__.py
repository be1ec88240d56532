"""Typed operator handles, checked handlers and dispatch modes for PyTorch.

Public names are the ones in `__all__`; modules that start with an underscore are private.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from dispatch_core._errors import (
    BindError,
    DefinitionError,
    DispatchError,
    HandlerError,
    HandlerResultError,
    HandlerSignatureError,
    MemorylessError,
    ModeClassError,
    ModeStateError,
    NoHandlerError,
    NotAnOperatorError,
    NotRegisteredError,
    SchemaDriftError,
    TableError,
    UnknownOperatorError,
)
from dispatch_core._handle import Facts, Handle, Param
from dispatch_core._ops import ops
from dispatch_core._registry import handle_of
from dispatch_core._version import __version__

if TYPE_CHECKING:
    from dispatch_core._checkpoint import checkpoint
    from dispatch_core._composite import keep_composite
    from dispatch_core._coverage import Coverage, Hit
    from dispatch_core._define import define
    from dispatch_core._events import Event, Frame, Opaque, TensorInfo
    from dispatch_core._mode import DispatchMode
    from dispatch_core._mode_stack import propagate_modes
    from dispatch_core._no_dispatch import no_dispatch
    from dispatch_core._python_mode import enable_python_mode
    from dispatch_core._recorder import Recorder
    from dispatch_core._table import HandlerTable

__all__ = [
    "BindError",
    "Coverage",
    "DefinitionError",
    "DispatchError",
    "DispatchMode",
    "Event",
    "Facts",
    "Frame",
    "Handle",
    "HandlerError",
    "HandlerResultError",
    "HandlerSignatureError",
    "HandlerTable",
    "Hit",
    "MemorylessError",
    "ModeClassError",
    "ModeStateError",
    "NoHandlerError",
    "NotAnOperatorError",
    "NotRegisteredError",
    "Opaque",
    "Param",
    "Recorder",
    "SchemaDriftError",
    "TableError",
    "TensorInfo",
    "UnknownOperatorError",
    "__version__",
    "checkpoint",
    "define",
    "enable_python_mode",
    "handle_of",
    "keep_composite",
    "no_dispatch",
    "ops",
    "propagate_modes",
]

# Loaded when first used: whoever needs handles alone does not pay for modes and recording.
_LATER = {
    "_checkpoint": "checkpoint",
    "_composite": "keep_composite",
    "_coverage": "Coverage Hit",
    "_define": "define",
    "_events": "Event Frame Opaque TensorInfo",
    "_mode": "DispatchMode",
    "_mode_stack": "propagate_modes",
    "_no_dispatch": "no_dispatch",
    "_python_mode": "enable_python_mode",
    "_recorder": "Recorder",
    "_table": "HandlerTable",
}
_HOME = {name: module for module, names in _LATER.items() for name in names.split()}


def __getattr__(name: str) -> object:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
