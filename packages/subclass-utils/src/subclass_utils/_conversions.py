"""Give a TypeError of a class's `to_plain` or `from_plain` another type within an operator.

Python's operators turn a TypeError into "unsupported operand", and `==` answers False.
"""

from __future__ import annotations

import weakref
from types import FunctionType
from typing import Any

from dispatch_core import HandlerError

__all__ = ["check_conversions", "know_conversions"]

_known: dict[int, weakref.ref[FunctionType]] = {}  # by their code, which tracebacks name


def know_conversions(cls: type[Any]) -> None:
    """Remember what a class says of its own about getting to a plain tensor and back."""
    for name in ("to_plain", "from_plain"):
        function = vars(cls).get(name)
        function = getattr(function, "__func__", function)
        if isinstance(function, FunctionType):
            key = id(function.__code__)

            def forget(dead: weakref.ref[FunctionType], key: int = key) -> None:
                if _known.get(key) is dead:
                    del _known[key]

            _known[key] = weakref.ref(function, forget)


def check_conversions(func: Any, error: TypeError) -> None:
    """Say which conversion an error came out of.

    Raises: HandlerError if it came out of one.
    """
    conversion, trace = None, error.__traceback__
    while trace is not None:
        known = _known.get(id(trace.tb_frame.f_code))
        conversion = (known and known()) or conversion
        trace = trace.tb_next
    if conversion is not None:
        raise HandlerError(
            f"{func.name()}: {conversion.__qualname__} raised TypeError: {error}",
            overload=func,
            handler=conversion,
        ) from error
