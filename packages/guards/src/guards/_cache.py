"""A cache whose entries are good while their guards hold."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from guards._arguments import need, need_scope
from guards._compile import CheckFunction, Scope
from guards._constants import spell
from guards._errors import CacheLimitError, UnsupportedGuardError
from guards._explanation import Explanation, nearest_first

__all__ = ["CacheStats", "GuardedCache"]

V = TypeVar("V")


@dataclass
class CacheStats:
    """What a cache has done so far.

    Attributes:
        hits: lookups that found an entry.
        misses: lookups that found none.
        checks: check functions that were called.
        time_ns: time spent in lookups, in nanoseconds.
        evictions: entries that made room for a newer one.
        deaths: entries dropped since an object they were about had died.
        reasons: for each kind of guard, how many misses it caused, by the nearest entry; once the
            cache has given up, by the most recently used one, since misses are common then.
    """

    hits: int = 0
    misses: int = 0
    checks: int = 0
    time_ns: int = 0
    evictions: int = 0
    deaths: int = 0
    reasons: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, eq=False)
class _Entry(Generic[V]):
    check: CheckFunction
    value: V


class GuardedCache(Generic[V]):
    """Keep values, each with the guards under which it may be used again.

    ``lookup(L)`` gives the value of the first entry whose guards hold, the most recently used
    one first. Any number of threads may use one cache.

    ``limit`` is the number of entries. Past it, ``on_limit`` decides: ``"evict"`` drops the entry
    that was not used for the longest time; ``"error"`` raises CacheLimitError; ``"give_up"``
    warns once and takes no more entries.
    """

    def __init__(
        self, *, limit: int = 8, on_limit: Literal["error", "evict", "give_up"] = "evict"
    ) -> None:
        whole = type(limit) is int and limit >= 1
        need(whole, "GuardedCache", "limit", "a whole number from 1 on", limit)
        known = type(on_limit) is str and on_limit in ("error", "evict", "give_up")
        need(known, "GuardedCache", "on_limit", "'error', 'evict' or 'give_up'", on_limit)
        self.limit = limit
        self.on_limit = on_limit
        self.gave_up = False
        # Readers take the tuple as it is; writers replace it whole, under the lock.
        self._entries: tuple[_Entry[V], ...] = ()
        # One thread may come back in here: what dies meanwhile may run code that asks the cache.
        self._lock = threading.RLock()
        self._busy = False
        self._stats = CacheStats()
        self._dead = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle an empty cache: guards are about the objects that they were made on."""
        return functools.partial(type(self), limit=self.limit, on_limit=self.on_limit), ()

    @property
    def stats(self) -> CacheStats:
        """Give a copy of the numbers so far."""
        with self._lock:
            return CacheStats(**{**self._stats.__dict__, "reasons": Counter(self._stats.reasons)})

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        state = ", takes no more" if self.gave_up else ""
        return f"<GuardedCache of {len(self)} entries, limit {self.limit}{state}>"

    def insert(self, check: CheckFunction, value: V) -> None:
        """Add a value that may be used while ``check`` holds; it counts as just used.

        Raises:
            CacheLimitError: the cache is full and ``on_limit`` is ``"error"``; nothing changed.
            UnsupportedGuardError: ``check`` is no check function.
        """
        if not isinstance(check, CheckFunction):
            raise UnsupportedGuardError(
                f"a guarded cache takes what compile_guards gives, got {spell(check)}"
            )
        entry = _Entry(check, value)
        warn = False
        before: tuple[_Entry[V], ...] = ()
        with self._changing():
            before = self._entries  # goes outside the lock: with it go values, which may run code
            others = tuple(e for e in self._entries if e.check is not check)
            if len(others) >= self.limit:
                if self.on_limit == "error":
                    raise CacheLimitError(
                        f"the cache holds {len(others)} entries, its limit; raise limit=, or "
                        "choose on_limit='evict'",
                        self.limit,
                    )
                if self.on_limit == "give_up":
                    warn, self.gave_up = not self.gave_up, True
                else:
                    self._stats.evictions += len(others) - self.limit + 1
                    others = others[: self.limit - 1]
            if not self.gave_up or len(others) < self.limit:
                self._entries = (entry, *others)
        del before
        if warn:
            warnings.warn(
                f"the guarded cache is full ({self.limit} entries) and takes no more; "
                "explain_miss(L) says what keeps changing",
                stacklevel=2,
            )
        check.death.tell(self._drop_dead)
        self._settle()

    def lookup(self, L: Scope) -> V | None:
        """Give the value of the first entry whose guards hold, or None.

        Raises:
            WrongArgumentError: no entry fits, and ``L`` is no mapping.
        """
        start = time.perf_counter_ns()
        entries = self._entries
        found: _Entry[V] | None = None
        tried = 0
        for entry in entries:
            tried += 1
            if entry.check(L):
                found = entry
                break
        reason = None
        if found is None:
            need_scope("GuardedCache.lookup", "L", L)
        if found is None and entries:
            reason = self._explain(entries[:1] if self.gave_up else entries, L)[0].code
        with self._changing():
            stats = self._stats
            stats.checks += tried
            if found is None:
                stats.misses += 1
                if reason is not None:
                    stats.reasons[reason] += 1
            else:
                stats.hits += 1
                current = self._entries
                if current and current[0] is not found and found in current:
                    self._entries = (found, *(e for e in current if e is not found))
            stats.time_ns += time.perf_counter_ns() - start
        self._settle()
        return None if found is None else found.value

    def explain_miss(self, L: Scope) -> list[Explanation]:
        """Say for each entry why it does not fit, the nearest entry first; empty on a hit.

        The nearest entry has the fewest guards that do not hold. Where the very same cause keeps
        every entry from fitting, it is said once.
        """
        need_scope("GuardedCache.explain_miss", "L", L)
        entries = self._entries
        if any(entry.check(L) for entry in entries):
            return []
        return nearest_first(self._explain(entries, L))

    def _explain(self, entries: tuple[_Entry[V], ...], L: Scope) -> list[Explanation]:
        found = [entry.check.explain(L, all=True) for entry in entries]
        explained = [e for e in found if e is not None]
        explained.sort(key=lambda e: len(e.failures))
        return explained or [Explanation("CHANGED", "the inputs", "to stay", "they changed")]

    def clear(self) -> None:
        """Drop all entries; the numbers go on."""
        with self._changing():
            before, self._entries = self._entries, ()
            self.gave_up = False
        del before

    def _drop_dead(self) -> None:
        # Called from wherever an object died, perhaps by this very thread inside the lock.
        self._dead = True
        self._settle()

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        with self._lock:
            outer, self._busy = self._busy, True
            try:
                yield
            finally:
                self._busy = outer

    def _settle(self) -> None:
        while self._dead and self._lock.acquire(blocking=False):
            try:
                if self._busy:
                    return  # this very thread is at it, further out, and settles when it is done
                self._dead = False
                alive = tuple(e for e in self._entries if not e.check.death.happened)
                dropped = self._entries
                self._stats.deaths += len(dropped) - len(alive)
                self._entries = alive
            finally:
                self._lock.release()
            del dropped  # outside the lock: dropping a value may run code of its own
