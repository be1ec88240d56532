"""Tensor subclasses that wrap tensors, with an outside that does not lie about the inside.

Public names are the ones in `__all__`; modules that start with an underscore are private.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from subclass_utils import _rebuild, _sibling  # noqa: F401  (for loading; to refuse a version)
from subclass_utils._errors import (
    CopyError,
    DeclarationError,
    LayoutError,
    MemorylessError,
    MixingError,
    ResizeError,
    SubclassError,
    ViewError,
)
from subclass_utils._version import __version__

if TYPE_CHECKING:
    from subclass_utils._capture import capture_logs, log_input
    from subclass_utils._logging_tensor import LoggingTensor
    from subclass_utils._plain_view import PlainView
    from subclass_utils._saving import flatten_state_dict, unflatten_state_dict
    from subclass_utils._wrapper import WrapperTensor

__all__ = [
    "CopyError",
    "DeclarationError",
    "LayoutError",
    "LoggingTensor",
    "MemorylessError",
    "MixingError",
    "PlainView",
    "ResizeError",
    "SubclassError",
    "ViewError",
    "WrapperTensor",
    "__version__",
    "capture_logs",
    "flatten_state_dict",
    "log_input",
    "unflatten_state_dict",
]

# Loaded when first used: a program that may never make a wrapper does not wait for them.
_LATER = {
    "_capture": "capture_logs log_input",
    "_logging_tensor": "LoggingTensor",
    "_plain_view": "PlainView",
    "_saving": "flatten_state_dict unflatten_state_dict",
    "_wrapper": "WrapperTensor",
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
