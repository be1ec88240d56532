"""Write down, one line each, the operators that reach a LoggingTensor."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any

import torch
from dispatch_core._for_subclass_utils import short_dtype

from subclass_utils._roles import each_in

__all__ = ["ACTIVE", "capture_logs", "log_input"]


class Capture:
    """One open capture: its lines, and the numbers of the tensors that it has seen."""

    def __init__(
        self, tensor_type: type, *, overloads: bool, types: bool, all_tensors: bool, stacks: bool
    ) -> None:
        self.lines: list[str] = []
        self._tensor_type = torch.Tensor if all_tensors else tensor_type
        self._overloads = overloads
        self._types = types
        self._stacks = stacks
        self._next = 0
        # By identity: a tensor's entry goes when the tensor dies, its number never comes back.
        self._numbers: dict[int, tuple[int, weakref.ref[Any]]] = {}

    def _new_number(self, tensor: Any) -> int:
        number = self._next
        self._next = number + 1
        key = id(tensor)
        known = self._numbers.get(key)
        if known is None:
            numbers = self._numbers

            def forget(dead: weakref.ref[Any]) -> None:
                entry = numbers.get(key)
                if entry is not None and entry[1] is dead:
                    del numbers[key]

            numbers[key] = (number, weakref.ref(tensor, forget))
        return number

    def _mention(self, tensor: Any, number: int) -> str:
        return f"${number}: {_look(tensor)}" if self._types else f"${number}"

    def looks(self, func: Any, values: Sequence[Any]) -> dict[int, str]:
        """Say what arguments look like that the operator may give another shape or dtype."""
        schema = getattr(func, "_schema", None)
        if not self._types or schema is None or not schema.is_mutable:
            return {}
        return {
            id(value): _look(value)
            for value in each_in(values)
            if isinstance(value, self._tensor_type)
        }

    def _argument(self, value: Any, looks: Mapping[int, str]) -> str:
        if isinstance(value, self._tensor_type):
            known = self._numbers.get(id(value))
            number = self._new_number(value) if known is None else known[0]
            before = looks.get(id(value))
            return self._mention(value, number) if before is None else f"${number}: {before}"
        kind = type(value)
        if kind is list:
            return f"[{', '.join([self._argument(item, looks) for item in value])}]"
        if kind is tuple:
            inside = ", ".join([self._argument(item, looks) for item in value])
            return f"({inside},)" if len(value) == 1 else f"({inside})"
        return repr(value)

    def _result(self, value: Any) -> str:
        if isinstance(value, self._tensor_type):
            return self._mention(value, self._new_number(value))
        kind = type(value)
        if kind is list:
            return f"[{', '.join([self._result(item) for item in value])}]"
        if kind is tuple:
            inside = ", ".join([self._result(item) for item in value])
            return f"({inside},)" if len(value) == 1 else f"({inside})"
        return repr(value)

    def add_call(
        self,
        func: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        result: Any,
        looks: Mapping[int, str],
    ) -> None:
        """Write the line of one operator that ran; `looks` from before it did."""
        arguments = [self._argument(value, looks) for value in args]
        for name, value in kwargs.items():
            arguments.append(f"{name}={self._argument(value, looks)}")
        name = _overload_name(func) if self._overloads else _packet_name(func)
        line = f"{self._result(result)} = torch._ops.{name}({', '.join(arguments)})"
        self._append(line)

    def add_input(self, name: str, tensor: torch.Tensor) -> None:
        """Write the line of an input."""
        known = self._numbers.get(id(tensor))
        number = self._new_number(tensor) if known is None else known[0]
        self._append(f"{self._mention(tensor, number)} = input({name!r})")

    def _append(self, line: str) -> None:
        self.lines.append(f"{line}  # {_stack()}" if self._stacks else line)


def _look(tensor: Any) -> str:
    return f"{short_dtype(tensor.dtype)}[{', '.join(map(str, tensor.size()))}]"


_names: dict[Any, tuple[str, str]] = {}


def _packet_name(func: Any) -> str:
    try:
        return _names[func][0]
    except KeyError:
        return _name(func)[0]


def _overload_name(func: Any) -> str:
    try:
        return _names[func][1]
    except KeyError:
        return _name(func)[1]


def _name(func: Any) -> tuple[str, str]:
    packet = getattr(func, "overloadpacket", None)
    names = (str(packet or func), str(func))
    _names[func] = names
    return names


def _stack() -> str:
    """Name the places in the user's code that led here, innermost first."""
    places: list[str] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(places) < 8:
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] not in ("torch", "subclass_utils", "dispatch_core"):
            code = frame.f_code
            places.append(f"{code.co_filename}:{frame.f_lineno} in {code.co_name}")
        frame = frame.f_back
    return " < ".join(places)


ACTIVE: ContextVar[tuple[Capture, ...]] = ContextVar("captures", default=())
"""The captures that are open where this code runs, outermost first."""


@contextmanager
def capture_logs(
    *,
    overloads: bool = False,
    types: bool = False,
    all_tensors: bool = False,
    stacks: bool = False,
) -> Iterator[list[str]]:
    """Collect one line for each operator that reaches a LoggingTensor while this is open.

    Tensors are written `$n`, numbered in order of appearance from 0; a result always gets a new
    number, also where an operator gives back its own argument. `overloads` writes
    `aten.mul.Tensor` for `aten.mul`, `types` writes `$1: f32[1]` for `$1`, `all_tensors` numbers
    plain tensors too, `stacks` ends a line with the places in your code that led to the call.
    The log keeps no tensor alive. Other threads are seen only through `propagate_modes`.
    """
    from subclass_utils._logging_tensor import LoggingTensor

    capture = Capture(
        LoggingTensor, overloads=overloads, types=types, all_tensors=all_tensors, stacks=stacks
    )
    token = ACTIVE.set((*ACTIVE.get(), capture))
    try:
        yield capture.lines
    finally:
        ACTIVE.reset(token)


def log_input(name: str, tensor: torch.Tensor) -> None:
    """Number a tensor and write the line `$n = input('name')` to every open capture."""
    for capture in ACTIVE.get():
        capture.add_input(name, tensor)
