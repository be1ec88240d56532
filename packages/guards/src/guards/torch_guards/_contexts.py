"""Guard sets and contexts as torch has them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import torch._guards as _installed

import guards
from guards import CompileContext, Guard, Source
from guards._arguments import each_of
from guards._current import current
from guards._fake_mode import places, the_one_of
from guards.torch_guards._subgraph_caches import HopDispatchSetCache

__all__ = [
    "GuardsContext",
    "GuardsSet",
    "InlinedCodeCache",
    "TracingContext",
    "compile_context",
    "detect_fake_mode",
]

C = TypeVar("C", bound="CompileContext | None")

InlinedCodeCache = _installed.InlinedCodeCache  # a record of Dynamo's own, without behaviour


class GuardsSet(guards.GuardsSet):
    """A set of guards that can be asked for those on one source."""

    def __init__(self, inner: Iterable[Guard] | None = None) -> None:
        super().__init__(inner)
        self.source_to_guards: dict[Source, list[Guard]] = {}
        for guard in self.inner:
            self.track_guard_by_source(guard)

    def track_guard_by_source(self, guard: Guard) -> None:
        """Find this guard by its source from now on."""
        self.source_to_guards.setdefault(guard.originating_source, []).append(guard)

    def get_guards_for_source(self, source: Source) -> list[Guard]:
        """Give the guards on exactly this source, in the order of adding."""
        return list(self.source_to_guards.get(source, ()))

    def clear(self) -> None:
        """Drop all guards."""
        self.__init__()  # type: ignore[misc]

    def add(self, guard: Guard, *, collect_debug_stack: bool = True, skip: int = 0) -> None:
        count = len(self.inner)
        super().add(guard, collect_debug_stack=collect_debug_stack, skip=skip + 1)
        if len(self.inner) > count:
            self.track_guard_by_source(guard)

    def update(self, *others: Iterable[Guard]) -> None:
        for other in others:
            for guard in each_of(Guard, other, "GuardsSet.update", "others", "guards"):
                self.add(guard, skip=1)

    def remove_guards_with_source(self, source: Source) -> None:
        super().remove_guards_with_source(source)
        self.source_to_guards = {}
        for guard in self.inner:
            self.track_guard_by_source(guard)


class GuardsContext(guards.GuardsContext):
    """All guards of one trace; for a while, it may be told not to take any."""

    _guards_set = GuardsSet
    dynamo_guards: GuardsSet

    def __init__(self) -> None:
        super().__init__()
        self.skip_install = False

    def skip_guard_install(self) -> AbstractContextManager[None]:
        """Ask whoever installs guards to leave it for the length of a ``with``."""
        return _SkipInstall(self)


class _SkipInstall(AbstractContextManager[None]):
    def __init__(self, context: GuardsContext) -> None:
        self._context = context
        self._saved: list[bool] = []

    def __enter__(self) -> None:
        self._saved.append(self._context.skip_install)
        self._context.skip_install = True

    def __exit__(self, *error: object) -> None:
        self._context.skip_install = self._saved.pop()


class TracingContext(guards.TracingContext):
    """What a trace by Dynamo keeps."""

    _guards_context = GuardsContext
    _hop_dispatch_set_cache = HopDispatchSetCache
    guards_context: GuardsContext

    def __init__(self, fake_mode: Any) -> None:
        super().__init__(fake_mode)
        self.inlined_code_cache: dict[Any, InlinedCodeCache] = {}
        self.cudagraph_annotation: Any = None

    def clear(self) -> None:
        super().clear()
        self.inlined_code_cache.clear()


class FakeModeMismatchError(guards.FakeModeMismatchError, AssertionError):
    """Two different fake modes are in force; torch raises an AssertionError then."""


def detect_fake_mode(inputs: Any = None) -> Any:
    """Find the fake mode in force as torch does: that of the tracing context wins unchecked.

    Raises:
        FakeModeMismatchError: not all others are the same.
    """
    context = current.tracing_context
    if context is not None and context.fake_mode is not None:
        return context.fake_mode
    return the_one_of(places(inputs), FakeModeMismatchError)


def compile_context(context: C) -> AbstractContextManager[C]:
    """Make ``context`` this thread's compilation for the length of a ``with``."""
    _count_as_framework()
    return guards.compile_context(context)


_framework: list[object] = []


def _count_as_framework() -> None:
    # Dynamo traces into the files of others, and skips torch/_guards.py. Its rules exist only
    # once it is loaded, which it is when it opens its first compilation.
    rules: Any = sys.modules.get("torch._dynamo.trace_rules")
    if rules is not None and rules not in _framework:
        _framework.append(rules)
        rules.add(guards.__name__)
