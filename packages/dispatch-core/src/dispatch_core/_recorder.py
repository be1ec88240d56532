"""Record which operators a program runs, without changing the program."""

from __future__ import annotations

import functools
import itertools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dispatch_core import _torch_private as private
from dispatch_core._errors import TableError
from dispatch_core._events import Event, Opaque, TensorInfo, call_stack, freeze
from dispatch_core._mode import DispatchMode, is_honest
from dispatch_core._record_formats import (
    chrome_trace,
    json_lines,
    mermaid,
    normalized_events,
    text_lines,
)

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Recorder"]

_HIDDEN = (
    os.path.dirname(torch.__file__) + os.sep,
    os.path.dirname(__file__) + os.sep,
    "<__array_function__",
)


class _TensorRef(weakref.ref[torch.Tensor]):
    """A weak reference that knows under which key its tensor is filed."""

    __slots__ = ("key",)
    key: int


class _Memory:
    """What tensors share that are views of one another: the event that wrote through one last."""

    __slots__ = ("writer",)

    def __init__(self) -> None:
        self.writer: int | None = None


class _Seen:
    """What is known of a tensor that is alive: its number, and the event that gave it last."""

    __slots__ = ("memory", "number", "ref", "writer")

    def __init__(
        self, number: int, ref: _TensorRef, writer: int | None, memory: _Memory | None
    ) -> None:
        self.number = number
        self.ref = ref
        self.writer = writer
        self.memory = memory or _Memory()

    def source(self) -> int | None:
        """Give the event that the tensor's values are from."""
        writer, shared = self.writer, self.memory.writer
        if writer is None or shared is None:
            return shared if writer is None else writer
        return max(writer, shared)


class Recorder(DispatchMode):
    """Record the operators of a thread while it is entered.

    Each becomes an `Event` with shapes, dtypes, devices, time and the stack that led to it. An
    operator that raised leaves none. No tensor is kept alive and nothing runs otherwise than
    without the recorder; a class derived from it with a `table` of its own records what it
    answers. Other threads are recorded through `propagate_modes`.

    Tensors are numbered in order of appearance; a result always gets a new number.
    `stacks=False` leaves the stacks out, which is faster. With `max_events` only the latest are
    kept, and `dropped` counts the others.
    """

    @private.skip_in_dynamo
    def __init__(self, *, stacks: bool = True, max_events: int | None = None) -> None:
        super().__init__()
        positive = type(max_events) is int and max_events > 0
        if max_events is not None and not positive:
            raise TableError(f"max_events is a positive int or None, not {max_events!r}")
        self.dropped = 0
        self._stacks = stacks
        self._max_events = max_events
        self._events: list[Event] = []
        self._numbers = itertools.count()
        self._indices = itertools.count()
        self._seen: dict[int, _Seen] = {}
        self._lock = threading.Lock()
        self._threads = itertools.count()
        self._thread = threading.local()
        self._forget = _forgetter(self._seen)

    def __reduce__(self) -> Any:
        raise TypeError(
            "a Recorder watches tensors of this process, so it can be neither copied nor pickled; "
            "its events can: list(recorder.events)"
        )

    @property
    def events(self) -> Sequence[Event]:
        """Give the events in the order in which they ended."""
        if self._max_events is None:
            return self._events
        with self._lock:
            self._drop(self._max_events)
            return self._events

    @private.skip_in_dynamo
    def __enter__(self) -> Self:
        self._number_of_thread()
        return super().__enter__()

    def _number_of_thread(self) -> int:
        """Give this thread's number; identifiers come back when a thread has ended."""
        number: int | None = getattr(self._thread, "number", None)
        if number is None:
            number = self._thread.number = next(self._threads)
        return number

    # ── recording ───────────────────────────────────────────────────────────────────────────────

    def _record(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run the operator and note that it ran."""
        if kwargs is None:
            kwargs = {}
        table = self.table
        start = time.perf_counter_ns()
        entry = table._entries[func]
        if table.missing == "next" and entry.kind == "missing":
            if entry.composite and private.may_set_bits(entry.composite, args):
                with private.as_in_parts():
                    result = func(*args, **kwargs)
            else:
                result = func(*args, **kwargs)
        else:
            result = DispatchMode.__torch_dispatch__(self, func, types, args, kwargs)
        duration = time.perf_counter_ns() - start
        places = call_stack(sys._getframe(1), _HIDDEN) if self._stacks else ()
        with self._lock:
            index = next(self._indices)
            try:
                event = self._event(index, func, args, kwargs, result, start, duration, places)
            except Exception:  # the program must go on, whatever it hands to its operators
                event = Event(
                    index=index,
                    op=func,
                    args=(Opaque("arguments that cannot be described"),),
                    kwargs={},
                    inputs=(),
                    outputs=(),
                    sources=(),
                    start_ns=start,
                    duration_ns=duration,
                    thread=self._number_of_thread(),
                    places=places,
                )
            self._events.append(event)
            if self._max_events is not None and len(self._events) >= 2 * self._max_events:
                self._drop(self._max_events)
        return result

    def _event(
        self,
        index: int,
        func: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        result: Any,
        start: int,
        duration: int,
        places: tuple[Any, ...],
    ) -> Event:
        sources: set[int] = set()
        inputs: list[TensorInfo] = []
        outputs: list[TensorInfo] = []

        def describe_input(tensor: torch.Tensor) -> TensorInfo:
            seen = self._seen.get(id(tensor))
            if seen is None:
                seen = self._file(tensor, next(self._numbers), None)
            elif (source := seen.source()) is not None:
                sources.add(source)
            inputs.append(info := _look_at(tensor, seen.number))
            return info

        def describe_output(tensor: torch.Tensor) -> TensorInfo:
            number = next(self._numbers)
            seen = self._seen.get(id(tensor))
            if seen is None:
                self._file(tensor, number, index)
            else:
                seen.writer = index
            outputs.append(info := _look_at(tensor, number))
            return info

        frozen_args = tuple([freeze(value, describe_input) for value in args])
        frozen_kwargs = {name: freeze(value, describe_input) for name, value in kwargs.items()}
        freeze(result, describe_output)
        self._note_writes(func, args, kwargs, result, index)
        return Event(
            index=index,
            op=func,
            args=frozen_args,
            kwargs=frozen_kwargs,
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            sources=tuple(sorted(sources)),
            start_ns=start,
            duration_ns=duration,
            thread=self._number_of_thread(),
            places=places,
        )

    def _note_writes(
        self,
        func: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        result: Any,
        index: int,
    ) -> None:
        aliases = _aliases_of(func)
        if not aliases:
            return
        shared: _Memory | None = None
        for position, name, is_write in aliases:
            value = args[position] if position < len(args) else kwargs.get(name)
            for tensor in value if isinstance(value, list | tuple) else (value,):
                seen = self._seen.get(id(tensor))
                if seen is None:
                    continue
                if is_write:
                    seen.writer = seen.memory.writer = index
                elif shared is None:
                    shared = seen.memory
        if shared is None:
            return
        for tensor in result if isinstance(result, list | tuple) else (result,):
            seen = self._seen.get(id(tensor))
            if seen is not None and seen.writer == index:
                seen.memory = shared

    def _file(self, tensor: torch.Tensor, number: int, writer: int | None) -> _Seen:
        ref = _TensorRef(tensor, self._forget)
        ref.key = id(tensor)
        seen = self._seen[ref.key] = _Seen(number, ref, writer, None)
        return seen

    def _drop(self, keep: int) -> None:
        surplus = len(self._events) - keep
        if surplus > 0:
            del self._events[:surplus]
            self.dropped += surplus

    # ── export ──────────────────────────────────────────────────────────────────────────────────

    def to_text(self) -> str:
        """Write one line an operator: the call with types, what it gave, how long it took."""
        return text_lines(self.events)

    def to_jsonl(self) -> str:
        """Write one JSON object a line, with everything an event has."""
        return json_lines(self.events)

    def to_chrome_trace(self) -> str:
        """Write a trace in the trace-event format, for Perfetto or chrome://tracing."""
        return chrome_trace(self.events)

    def to_mermaid(self) -> str:
        """Draw which operator uses what another one gave, as a Mermaid flow chart.

        Mermaid itself draws no more than 500 arrows unless its page allows more (`maxEdges`).
        """
        return mermaid(self.events)

    def normalized(self) -> tuple[Any, ...]:
        """Give what ran, without times, paths and threads: the same for the same program."""
        return normalized_events(self.events)


# Not by overriding in the class body: what a recorder only watches may raise what it likes.
Recorder.__torch_dispatch__ = Recorder._record  # type: ignore[method-assign,assignment]
is_honest(private.skip_in_dynamo(Recorder._record))


def _forgetter(seen: dict[int, _Seen]) -> Callable[[Any], None]:
    def forget(ref: Any) -> None:
        entry = seen.get(ref.key)
        if entry is not None and entry.ref is ref:
            del seen[ref.key]

    return forget


@functools.lru_cache(maxsize=4096)
def _aliases_of(func: Any) -> tuple[tuple[int, str, bool], ...]:
    """List the arguments that an operator writes to, or may give a view of."""
    schema = getattr(func, "_schema", None)
    if schema is None:
        return ()
    return tuple(
        (position, argument.name, argument.alias_info.is_write)
        for position, argument in enumerate(schema.arguments)
        if argument.alias_info is not None
    )


def _look_at(tensor: torch.Tensor, number: int) -> TensorInfo:
    if type(tensor) is not torch.Tensor:
        with private.disable_torch_function():  # which would be more of the program's own code
            return _describe(tensor, number)
    return _describe(tensor, number)


def _describe(tensor: torch.Tensor, number: int) -> TensorInfo:
    try:
        shape: tuple[Any, ...] = tuple(tensor.shape)
    except Exception:
        shape = _sizes(tensor)
    for size in shape:
        if type(size) not in (int, str):  # a symbolic size would hold on to its graph
            shape = tuple(map(str, shape))
            break
    try:
        return TensorInfo(number, shape, tensor.dtype, tensor.device)
    except Exception:  # a property of a subclass's own
        return TensorInfo(number, shape, _DTYPE(tensor), _DEVICE(tensor))


_DTYPE, _DEVICE = (vars(torch._C.TensorBase)[name].__get__ for name in ("dtype", "device"))


def _sizes(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Give the sizes one by one, '?' for one that the tensor has not: it is nested."""

    def size(dim: int) -> Any:
        try:
            return tensor.size(dim)
        except Exception:
            return "?"

    try:
        return tuple([size(dim) for dim in range(tensor.dim())])
    except Exception:
        return ("?",)
