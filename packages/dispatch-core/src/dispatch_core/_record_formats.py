"""Write recorded events as text, JSON lines, a Chrome trace and a Mermaid graph."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dispatch_core._dtype_names import short_dtype
from dispatch_core._events import Event, Opaque, TensorInfo
from dispatch_core._registry import handle_of

__all__ = ["chrome_trace", "json_lines", "mermaid", "normalized_events", "text_lines"]


def _plain_name(value: object) -> str:
    return str(value).removeprefix("torch.")


def _type(info: TensorInfo) -> str:
    device = "" if info.device.type == "cpu" else f" {info.device}"
    return f"{short_dtype(info.dtype)}[{', '.join(map(str, info.shape))}]{device}"


# ── text ────────────────────────────────────────────────────────────────────────────────────────


def _shown(value: Any) -> str:
    if isinstance(value, TensorInfo):
        return f"${value.number}: {_type(value)}"
    if isinstance(value, Opaque):
        return f"<{value.text}>"
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(_shown, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_shown(item)}" for key, item in value.items()) + "}"
    return repr(value)


def _call(event: Event) -> str:
    arguments = [_shown(value) for value in event.args]
    arguments += [f"{name}={_shown(value)}" for name, value in event.kwargs.items()]
    results = ", ".join(map(_shown, event.outputs)) or "nothing"
    return f"{event.name}({', '.join(arguments)}) -> {results}"


def text_lines(events: Iterable[Event]) -> str:
    """Write one line an event."""
    return "".join(f"{_call(event)}  # {event.duration_ns / 1000:.1f} us\n" for event in events)


# ── JSON ────────────────────────────────────────────────────────────────────────────────────────


def _tensor_json(info: TensorInfo) -> dict[str, Any]:
    return {
        "tensor": info.number,
        "shape": list(info.shape),
        "dtype": _plain_name(info.dtype),
        "device": str(info.device),
    }


def _json(value: Any) -> Any:
    if isinstance(value, TensorInfo):
        return _tensor_json(value)
    if isinstance(value, Opaque):
        return {"object": value.text}
    if isinstance(value, list | tuple):
        return [_json(item) for item in value]
    if isinstance(value, dict):
        return {key: _json(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return _plain_name(value)


def json_lines(events: Iterable[Event]) -> str:
    """Write one JSON object a line."""
    lines = []
    for event in events:
        record = {
            "index": event.index,
            "op": event.name,
            "args": _json(event.args),
            "kwargs": _json(event.kwargs),
            "inputs": [_tensor_json(info) for info in event.inputs],
            "outputs": [_tensor_json(info) for info in event.outputs],
            "sources": list(event.sources),
            "start_ns": event.start_ns,
            "duration_ns": event.duration_ns,
            "thread": event.thread,
            "stack": [frame._asdict() for frame in event.stack],
        }
        lines.append(json.dumps(record, allow_nan=False) + "\n")
    return "".join(lines)


# ── Chrome trace ────────────────────────────────────────────────────────────────────────────────


def chrome_trace(events: Sequence[Event]) -> str:
    """Write complete events ('ph': 'X') with times in microseconds from the first one.

    The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
    """
    process = os.getpid()
    threads = sorted({event.thread for event in events})
    entries: list[dict[str, Any]] = [
        {
            "name": "thread_name",
            "ph": "M",
            "pid": process,
            "tid": number,
            "args": {"name": f"thread {number}"},
        }
        for number in threads
    ]
    zero = min((event.start_ns for event in events), default=0)
    for event in events:
        stack = event.stack
        entries.append(
            {
                "name": event.name,
                "cat": "operator",
                "ph": "X",
                "ts": (event.start_ns - zero) / 1000,
                "dur": event.duration_ns / 1000,
                "pid": process,
                "tid": event.thread,
                "args": {
                    "call": _call(event),
                    "from": f"{stack[-1].file}:{stack[-1].line}" if stack else "",
                },
            }
        )
    return json.dumps({"traceEvents": entries, "displayTimeUnit": "ns"}, allow_nan=False)


# ── graph ───────────────────────────────────────────────────────────────────────────────────────


def _label(text: str) -> str:
    escaped = text.replace("&", "#amp;").replace('"', "#quot;")
    return escaped.replace("<", "#lt;").replace(">", "#gt;")


def mermaid(events: Sequence[Event]) -> str:
    """Draw the events as nodes, and an arrow for each tensor that goes from one to another."""
    lines = ["flowchart TD"]
    known = {event.index for event in events}
    inputs: dict[int, None] = {}
    arrows: dict[str, None] = {}
    produced: set[int] = set()
    for event in events:
        types = ", ".join(_type(info) for info in event.outputs)
        label = _label(event.name) + (f"<br/>{_label(types)}" if types else "")
        lines.append(f'    op{event.index}["{label}"]')
        for info in event.inputs:
            if info.number not in produced and info.number not in inputs:
                inputs[info.number] = None
                lines.append(f'    in{info.number}(["{_label(f"${info.number}: {_type(info)}")}"])')
            if info.number in inputs:
                arrows[f"    in{info.number} --> op{event.index}"] = None
        for source in event.sources:
            if source in known:
                arrows[f"    op{source} --> op{event.index}"] = None
        produced.update(info.number for info in event.outputs)
    return "\n".join([*lines, *arrows]) + "\n"


# ── comparison ──────────────────────────────────────────────────────────────────────────────────


def normalized_events(events: Sequence[Event]) -> tuple[Any, ...]:
    """Give names, arguments and results, tensors numbered afresh; one group for each thread.

    The first group is of the thread that opened the recording; the others are sorted, because
    threads start in any order.
    """
    groups: dict[int, list[Event]] = {}
    for event in events:
        groups.setdefault(event.thread, []).append(event)
    own = _normalized_group(groups.pop(0, []))
    others = sorted((_normalized_group(group) for group in groups.values()), key=repr)
    return own if not others else (own, *others)


# Sizes that torch names by counters of the process: 'j3' of a nested tensor, 's0', 'u1 + 2'.
_SYMBOL = re.compile(r"\b[a-z]{1,4}\d+\b")


def _without_defaults(event: Event) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Leave out what equals its default, as torch does of the calls that Python makes.

    Its C++ writes out all arguments, and calls that a mode has passed on come from Python.
    """
    args, kwargs = event.args, event.kwargs
    if getattr(event.op, "_schema", None) is None:
        return args, kwargs
    defaults = _defaults_of(event.op)
    count = len(args)
    while count and count <= len(defaults):
        _, found = defaults[count - 1]
        if not found or not _same(args[count - 1], found[0]):
            break
        count -= 1
    by_name = dict(defaults)
    return args[:count], {
        name: value
        for name, value in kwargs.items()
        if not (found := by_name.get(name, ())) or not _same(value, found[0])
    }


def _defaults_of(op: Any) -> list[tuple[str, tuple[Any, ...]]]:
    try:
        params = handle_of(op).params
    except Exception:  # it is gone from torch since
        return []
    return [(param.name, () if param.required else (param.default,)) for param in params]


def _same(value: Any, default: Any) -> bool:
    if isinstance(value, list | tuple) and isinstance(default, list | tuple):
        return len(value) == len(default) and all(map(_same, value, default))
    return type(value) is type(default) and bool(value == default)


def _normalized_group(events: Iterable[Event]) -> tuple[Any, ...]:
    numbers: dict[int, int] = {}
    symbols: dict[str, str] = {}

    def renamed(text: str) -> str:
        return _SYMBOL.sub(lambda found: symbols.setdefault(found[0], f"size{len(symbols)}"), text)

    def plain(value: Any) -> Any:
        if isinstance(value, TensorInfo):
            number = numbers.setdefault(value.number, len(numbers))
            shape = tuple([renamed(n) if isinstance(n, str) else n for n in value.shape])
            return (f"${number}", shape, _plain_name(value.dtype), str(value.device))
        if isinstance(value, Opaque):
            return f"<{renamed(value.text)}>"
        if isinstance(value, list | tuple):
            return tuple(plain(item) for item in value)
        if isinstance(value, Mapping):
            return tuple((key, plain(item)) for key, item in value.items())
        if value is None or type(value) in (int, str):
            return value
        return repr(value)  # True is equal to 1, and 1.0

    def row(event: Event) -> tuple[Any, ...]:
        args, kwargs = _without_defaults(event)
        return event.name, plain(args), plain(kwargs), plain(event.outputs)

    return tuple(map(row, events))
