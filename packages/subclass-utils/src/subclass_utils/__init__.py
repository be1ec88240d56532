"""Tensor subclasses that wrap tensors, with an outside that does not lie about the inside.

Public names are the ones in `__all__`; modules that start with an underscore are private.
"""

from subclass_utils import _sibling  # noqa: F401  (first: it refuses another version)
from subclass_utils._capture import capture_logs, log_input
from subclass_utils._errors import (
    CopyError,
    DeclarationError,
    MemorylessError,
    MixingError,
    ResizeError,
    SubclassError,
    ViewError,
)
from subclass_utils._logging_tensor import LoggingTensor
from subclass_utils._plain_view import PlainView
from subclass_utils._saving import flatten_state_dict, unflatten_state_dict
from subclass_utils._version import __version__
from subclass_utils._wrapper import WrapperTensor

__all__ = [
    "CopyError",
    "DeclarationError",
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
