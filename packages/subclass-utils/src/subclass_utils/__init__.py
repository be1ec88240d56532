"""Tensor subclasses that wrap tensors, with an outside that does not lie about the inside."""

from subclass_utils._capture import capture_logs, log_input
from subclass_utils._errors import SubclassError
from subclass_utils._logging_tensor import LoggingTensor
from subclass_utils._version import __version__
from subclass_utils._wrapper import WrapperTensor

__all__ = [
    "LoggingTensor",
    "SubclassError",
    "WrapperTensor",
    "__version__",
    "capture_logs",
    "log_input",
]
