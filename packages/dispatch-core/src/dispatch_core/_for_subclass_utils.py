"""What subclass_utils uses of this package beside the public names.

Both packages are released together. Nothing else of the private parts is used over there, so what
is not named here may change without a look at it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dispatch_core._composite import is_kept, kernel_for_classes, stand_behind
from dispatch_core._dtype_names import short_dtype
from dispatch_core._entry import Entry
from dispatch_core._higher_order import let_classes_answer
from dispatch_core._honest import handler_failed
from dispatch_core._table import HandlerTable, _lock, _watchers
from dispatch_core._torch_private import look_up, state_of_caller

__all__ = [
    "Entry",
    "after_declining",
    "entries_of",
    "handler_failed",
    "has_handlers",
    "is_kept",
    "kernel_for_classes",
    "let_classes_answer",
    "look_up",
    "named_composites",
    "remember",
    "remembered_of",
    "short_dtype",
    "stand_behind",
    "state_of_caller",
    "tell_of_composites",
]


def entries_of(table: HandlerTable) -> Mapping[Any, Entry]:
    """Give the entry of each overload, found when it is first asked for.

    It stays the same mapping for the table's life. A registration anywhere makes new entries. An
    entry's `kind` is "missing" where the table has no handler.
    """
    return table._entries


def remembered_of(table: HandlerTable) -> Mapping[Any, Any]:
    """Give what `remember` was told of a table, the same mapping for the table's life."""
    return table._remembered


def remember(table: HandlerTable, key: Any, value: Any, func: Any, entry: Entry) -> None:
    """Remember a value that was made of the entry of an overload.

    Until a registration anywhere, also one that came in between.
    """
    with _lock:
        if table._entries.get(func) is entry:
            table._remembered[key] = value


def has_handlers(table: HandlerTable) -> bool:
    """Say whether a table, or one that it goes on with, has any handler."""
    return any(
        each._exact or each._packets or each._rules or each._fallback for each in table._line()
    )


def named_composites(table: HandlerTable) -> set[Any]:
    """List the composite operators that a table has a handler for by name.

    That is a handler of the overload or of its packet, of this table or of one that it goes on
    with; those that are found by rules, and the fallback, do not count.
    """
    return table._named_composites()


def tell_of_composites(watcher: Callable[[HandlerTable], None]) -> None:
    """Call a function with each table that gets a handler for a composite operator by its name."""
    _watchers.append(watcher)


def after_declining(
    table: HandlerTable,
    func: Any,
    types: Sequence[type],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    """Give what the others say to a call that a handler of the table declined."""
    return table._after_declining(func, types, args, kwargs)
