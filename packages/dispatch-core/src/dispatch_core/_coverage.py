"""Which operators a program runs, and which entry of a table answers each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dispatch_core import _torch_private as private
from dispatch_core._describe import op_name
from dispatch_core._errors import NoHandlerError
from dispatch_core._honest import answering
from dispatch_core._mode import DispatchMode
from dispatch_core._mode_stack import QuietMode

if TYPE_CHECKING:
    from dispatch_core._table import HandlerTable

__all__ = ["Coverage", "Hit", "measure"]


@dataclass(frozen=True)
class Hit:
    """What answered an operator: an entry's kind ('exact', 'packet', …), its key, how often."""

    kind: str
    found_by: str
    handler: Callable[..., Any]
    calls: int


@dataclass(frozen=True)
class Coverage:
    """What `HandlerTable.coverage` found.

    `hits` and `missing` (with the number of calls) are by overload, in order of appearance.
    `result` is what the function gave; `error` the NoHandlerError that ended it early: what would
    have come after is not listed.
    """

    hits: Mapping[Any, Hit]
    missing: Mapping[Any, int]
    result: Any = field(default=None, repr=False)
    error: NoHandlerError | None = None

    def __str__(self) -> str:
        lines = [f"{len(self.hits)} operators with a handler, {len(self.missing)} without"]
        for op, hit in self.hits.items():
            alone = hit.kind in ("exact", "fallback")
            how = hit.kind if alone else f"{hit.kind}: {hit.found_by}"
            lines.append(f"  {op_name(op)}  {hit.calls}x  {how}")
        lines += [f"  {op_name(op)}  {calls}x  missing" for op, calls in self.missing.items()]
        if self.error is not None:
            lines.append(f"  ended early: {self.error}")
        return "\n".join(lines)


def measure(
    table: HandlerTable, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Coverage:
    """Run a function and note what the table says to each operator that would ask it."""
    calls: dict[Any, int] = {}
    of_tensors = table._is_of_tensors()
    owner: Any = table._owner

    class Answer(DispatchMode):
        def __torch_dispatch__(
            self,
            func: Any,
            types: Sequence[type],
            args: Sequence[Any] = (),
            kwargs: Mapping[str, Any] | None = None,
        ) -> Any:
            calls[func] = calls.get(func, 0) + 1
            if table._entries[func].kind == "missing":
                return NotImplemented
            return table._answer(func, types, args, kwargs or {})

    class Watch(QuietMode):
        def __torch_dispatch__(
            self,
            func: Any,
            types: Sequence[type],
            args: Sequence[Any] = (),
            kwargs: Mapping[str, Any] | None = None,
        ) -> Any:
            if any(cls is owner for cls in types):
                calls[func] = calls.get(func, 0) + 1
            if answering(types) and not private.mode_stack_size():
                return NotImplemented  # torch asks the classes, with this mode still on
            if private.sets_bits(func, args):
                with private.as_in_parts():
                    return func(*args, **(kwargs or {}))
            return func(*args, **(kwargs or {}))

    error: NoHandlerError | None = None
    result: Any = None
    with Watch() if of_tensors else Answer():
        try:
            result = fn(*args, **kwargs)
        except NoHandlerError as raised:
            error = raised
    hits: dict[Any, Hit] = {}
    missing: dict[Any, int] = {}
    for func, count in calls.items():
        entry = table._entries[func]
        if entry.handler is None:
            missing[func] = count
        else:
            hits[func] = Hit(entry.kind, entry.found_by, entry.handler, count)
    return Coverage(hits, missing, result, error)
