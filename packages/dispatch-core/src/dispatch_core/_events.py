"""What a recorder keeps of an operator that ran: no tensor, only what it looked like."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch

from dispatch_core._describe import op_name
from dispatch_core._registry import handle_of

__all__ = ["Event", "Frame", "Opaque", "TensorInfo", "call_stack", "freeze"]

_AS_THEY_ARE = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
)


class TensorInfo(NamedTuple):
    """What a tensor looked like. `number` tells tensors apart within one recording.

    A symbolic size is kept as its text; one that a nested tensor does not have is '?'.
    """

    number: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


class Opaque(NamedTuple):
    """Stands for an argument that is not kept, because it might hold on to tensors."""

    text: str


class Frame(NamedTuple):
    """A place in the program."""

    file: str
    line: int
    function: str


class _Code(NamedTuple):
    """What is left of a function's code in another process."""

    co_filename: str
    co_name: str


@dataclass(frozen=True)
class Event:
    """One operator that ran.

    `op` is torch's own object, equal to its handle. `args` and `kwargs` are as the operator got
    them, with a TensorInfo for each tensor. `inputs` and `outputs` are the tensors of both, in
    order; `sources` the indices of the events that last wrote to an input. Times are of
    `time.perf_counter_ns`; `thread` counts the threads from 0, the one that opened the recording.
    """

    index: int
    op: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    sources: tuple[int, ...]
    start_ns: int
    duration_ns: int
    thread: int
    places: tuple[tuple[CodeType | _Code, int], ...]

    def __reduce__(self) -> tuple[Any, ...]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values["op"] = None
        values["places"] = tuple(
            (_Code(code.co_filename, code.co_name), line) for code, line in self.places
        )
        return _event_of, (self.name, values)

    @property
    def name(self) -> str:
        """Give the qualified name, 'aten::add.Tensor'."""
        return op_name(self.op)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Give the shapes of the inputs, then those of the outputs."""
        return tuple(info.shape for info in (*self.inputs, *self.outputs))

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        """Give the dtypes of the inputs, then those of the outputs."""
        return tuple(info.dtype for info in (*self.inputs, *self.outputs))

    @property
    def devices(self) -> tuple[torch.device, ...]:
        """Give the devices of the inputs, then those of the outputs."""
        return tuple(info.device for info in (*self.inputs, *self.outputs))

    @property
    def stack(self) -> tuple[Frame, ...]:
        """Give the places that led to the call, the innermost last, without torch's own."""
        return tuple(
            Frame(code.co_filename, line, code.co_name) for code, line in reversed(self.places)
        )


def _event_of(name: str, values: dict[str, Any]) -> Event:
    return Event(**{**values, "op": handle_of(name).torch_op})


def freeze(value: Any, describe: Callable[[torch.Tensor], TensorInfo]) -> Any:
    """Copy an argument so that it keeps nothing alive, with tensors described."""
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if isinstance(value, torch.Tensor):
        return describe(value)
    if isinstance(value, list):
        return [freeze(item, describe) for item in value]
    if isinstance(value, tuple):
        return tuple(freeze(item, describe) for item in value)
    if isinstance(value, dict):
        return {str(key): freeze(item, describe) for key, item in value.items()}
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return Opaque(str(value))
    return Opaque(kind.__name__)


def call_stack(frame: FrameType | None, hidden: Sequence[str]) -> tuple[tuple[CodeType, int], ...]:
    """List code and line of the frames from here outwards, leaving out files under `hidden`."""
    places: list[tuple[CodeType, int]] = []
    prefixes = tuple(hidden)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(prefixes):
            places.append((code, frame.f_lineno))
        frame = frame.f_back
    return tuple(places)
