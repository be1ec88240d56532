"""A call through a table of checked handlers, against a plain dict of functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from dispatch_core import DispatchMode, HandlerTable, Recorder, no_dispatch, ops
from torch.utils._python_dispatch import TorchDispatchMode

from tools.bench.row import Row, at_most
from tools.bench.timing import Statement, alternate

OP = ops.aten.add.Tensor
TORCH_OP = torch.ops.aten.add.Tensor
RESULT = torch.ones(2)


def add(self: Any, other: Any, *, alpha: Any = 1) -> Any:
    """Answer with a tensor that is there already, so that only the way to here is timed."""
    return RESULT


HANDLERS = {TORCH_OP: add}


class ByTable(torch.Tensor):
    """A subclass whose handlers are in a table."""

    table = HandlerTable()

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Answer from the table."""
        return cls.table.dispatch(func, types, args, kwargs)


class ByDict(torch.Tensor):
    """A subclass whose handlers are in a dict, as written by hand."""

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Answer from the dict."""
        handler = HANDLERS.get(func)
        if handler is None:
            return NotImplemented
        return handler(*args, **(kwargs or {}))


class ModeByTable(DispatchMode):
    """A mode whose handlers are in a table."""

    table = HandlerTable(missing="next")


class ModeByDict(TorchDispatchMode):
    """A mode whose handlers are in a dict, as written by hand."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Answer from the dict, or pass on."""
        handler = HANDLERS.get(func)
        if handler is None:
            return func(*args, **(kwargs or {}))
        return handler(*args, **(kwargs or {}))


ByTable.table.implements(OP)(add)
ModeByTable.table.implements(OP)(add)


def rows() -> Iterator[Row]:
    """Compare the way to a handler, on a subclass and in a mode, and what watching costs."""
    plain = torch.ones(2)
    names: dict[str, object] = {
        "a": plain.as_subclass(ByTable),
        "b": plain.as_subclass(ByDict),
        "x": plain,
        "add": torch.add,
        "mul": torch.mul,
        "op": TORCH_OP,
        "lookup": ByTable.table.lookup,
        "handlers": HANDLERS,
        "no_dispatch": no_dispatch,
        "guard": torch._C._DisableTorchDispatch,
    }
    for cls in (ByTable, ByDict):  # torch imports something on the first call
        torch.add(plain.as_subclass(cls), 1)
    ours, theirs = alternate(Statement("add(a, a)", names), Statement("add(b, b)", names))
    yield Row(
        "operator on a subclass, by table", "a dict of functions", ours, theirs, at_most(1.15)
    )
    ours, theirs = alternate(
        Statement("lookup(op)(x, x)", names), Statement("handlers[op](x, x)", names)
    )
    yield Row("look a handler up and call it", "a dict of functions", ours, theirs)

    by_table, by_dict = ModeByTable(), ModeByDict()  # type: ignore[no-untyped-call]
    recorder = Recorder(stacks=False, max_events=100)
    works = {
        "operator in a mode, by table": ("add(x, x)", by_table, at_most(1.15)),
        "operator that a mode passes on": ("mul(x, x)", by_table, at_most(1.15)),
        "operator that is recorded": ("mul(x, x)", recorder, None),
    }
    for work, (code, mode, target) in works.items():
        ours, theirs = alternate(
            Statement(f"with mode:\n    for _ in range(100): {code}", {**names, "mode": mode}),
            Statement(f"with mode:\n    for _ in range(100): {code}", {**names, "mode": by_dict}),
        )
        yield Row(work, "a mode with a dict", ours / 100, theirs / 100, target)
    ours, theirs = alternate(
        Statement("with no_dispatch(): mul(x, x)", names),
        Statement("with guard(): mul(x, x)", names),
    )
    yield Row("an operator in no_dispatch()", "torch's unchecked guard", ours, theirs)
