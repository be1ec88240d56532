"""A set of guards that remembers where each was added."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from typing import Any

from torch.utils._ordered_set import OrderedSet
from torch.utils._traceback import CapturedTraceback

from guards._arguments import each_of, need
from guards._current import user_stack
from guards._guard import Guard
from guards._source import ReachedThrough, Source, need_source

__all__ = ["GuardsSet"]


class GuardsSet:
    """Guards in the order in which they were added, each with the stacks of that moment.

    It copies the guards it starts from, and takes their stacks as they are.
    """

    def __init__(self, inner: Iterable[Guard] | None = None) -> None:
        if inner is not None and type(inner) is not type(self):
            inner = each_of(Guard, inner, type(self).__name__, "inner", "guards")
        self.inner: OrderedSet[Guard] = OrderedSet(inner)

    def __iter__(self) -> Iterator[Guard]:
        return iter(self.inner)

    def __len__(self) -> int:
        return len(self.inner)

    def __bool__(self) -> bool:
        return bool(self.inner)

    def __contains__(self, guard: object) -> bool:
        return guard in self.inner

    def __sub__(self, other: GuardsSet) -> GuardsSet:
        if not isinstance(other, (GuardsSet, Set)):
            return NotImplemented
        return type(self)(guard for guard in self.inner if guard not in other)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self.inner)})"

    def add(self, guard: Guard, *, collect_debug_stack: bool = True, skip: int = 0) -> None:
        """Add a guard, unless an equal one is there.

        Args:
            collect_debug_stack: keep the Python stack of the caller in ``guard.stack``.
            skip: how many of the innermost frames to leave out of it, besides this one's.

        The user's stack, from the tracing context, is always kept. Neither replaces a stack that
        the guard has already.
        """
        need(isinstance(guard, Guard), "GuardsSet.add", "guard", "a Guard", guard)
        if guard in self.inner:
            return
        if collect_debug_stack and guard.stack is None:
            extract: Any = CapturedTraceback.extract  # torch has no types for it
            guard.stack = extract(skip=1 + skip)
        if guard.user_stack is None:
            guard.user_stack = user_stack()
        self.inner.add(guard)

    def update(self, *others: Iterable[Guard]) -> None:
        """Add all guards of all the others."""
        for other in others:
            for guard in each_of(Guard, other, "GuardsSet.update", "others", "guards"):
                self.add(guard, skip=1)

    def remove_guards_with_source(self, source: Source) -> None:
        """Drop every guard on the source itself or on something reached through it."""
        need_source("GuardsSet.remove_guards_with_source", "source", source)
        reached = ReachedThrough(source)
        self.inner = OrderedSet(g for g in self.inner if g.originating_source not in reached)
