"""A guarded cache gives an entry only while its guards hold, whoever asks, and forgets the dead."""

from __future__ import annotations

import copy
import gc
import pickle
import random
import threading
import tracemalloc
import warnings
import weakref
from typing import Any

import pytest
import torch
from guards import (
    CacheLimitError,
    CheckFunction,
    Guard,
    GuardBuilder,
    GuardedCache,
    LocalSource,
    UnsupportedGuardError,
    compile_guards,
)

from tests.guards.kinds import Point


def equals(value: Any, name: str = "x") -> CheckFunction:
    return compile_guards([Guard(LocalSource(name), GuardBuilder.EQUALS_MATCH)], {name: value})


def filled(count: int, **options: Any) -> GuardedCache[str]:
    cache: GuardedCache[str] = GuardedCache(**options)
    for number in range(count):
        cache.insert(equals(number), f"value {number}")
    return cache


def test_lookup_gives_the_entry_whose_guards_hold() -> None:
    cache = filled(3)
    assert [cache.lookup({"x": n}) for n in (0, 2, 1, 7, True)] == [
        "value 0",
        "value 2",
        "value 1",
        None,
        None,
    ]
    stats = cache.stats
    assert (stats.hits, stats.misses) == (3, 2)
    assert stats.reasons == {"EQUALS_MATCH": 2}
    assert stats.time_ns > 0


def test_most_recently_used_is_tried_first() -> None:
    cache = filled(3)
    for n in (0, 0, 0, 1, 0):
        cache.lookup({"x": n})
    # 3 checks to find 0 behind 2 and 1; then 1, 1; 1 lies third again; 0 second.
    assert cache.stats.checks == 3 + 1 + 1 + 3 + 2


def test_evicts_what_was_not_used_for_longest() -> None:
    cache = filled(2, limit=2)
    cache.lookup({"x": 0})
    cache.insert(equals(5), "value 5")
    assert cache.lookup({"x": 1}) is None
    assert cache.lookup({"x": 0}) == "value 0"
    assert cache.stats.evictions == 1
    assert len(cache) == 2


def test_error_at_the_limit_changes_nothing() -> None:
    cache = filled(2, limit=2, on_limit="error")
    with pytest.raises(CacheLimitError, match="holds 2 entries, its limit") as raised:
        cache.insert(equals(9), "value 9")
    assert raised.value.limit == 2
    assert [cache.lookup({"x": n}) for n in (0, 1, 9)] == ["value 0", "value 1", None]


def test_gives_up_with_one_warning() -> None:
    cache = filled(1, limit=1, on_limit="give_up")
    with pytest.warns(UserWarning, match="takes no more"):
        cache.insert(equals(8), "value 8")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.insert(equals(9), "value 9")
    assert cache.gave_up
    assert [cache.lookup({"x": n}) for n in (0, 8, 9)] == ["value 0", None, None]
    cache.clear()
    assert not cache.gave_up
    cache.insert(equals(9), "value 9")
    assert cache.lookup({"x": 9}) == "value 9"


@pytest.mark.parametrize("limit", [0, -1, True, 1.0, None])
def test_limit_that_makes_no_sense(limit: Any) -> None:
    with pytest.raises(ValueError, match="limit must be a whole number"):
        GuardedCache(limit=limit)


def test_unknown_way_at_the_limit() -> None:
    with pytest.raises(ValueError, match="on_limit must be"):
        GuardedCache(on_limit="explode")  # type: ignore[arg-type]


def test_reasons_are_counted_after_giving_up() -> None:
    cache = filled(2, limit=2, on_limit="give_up")
    with pytest.warns(UserWarning, match="takes no more"):
        cache.insert(equals(8), "value 8")
    assert repr(cache) == "<GuardedCache of 2 entries, limit 2, takes no more>"
    for value in (8, 9):
        assert cache.lookup({"x": value}) is None
    assert cache.stats.reasons == {"EQUALS_MATCH": 2}


def test_only_check_functions_are_taken() -> None:
    cache: GuardedCache[int] = GuardedCache()
    with pytest.raises(UnsupportedGuardError, match="takes what compile_guards gives, got 3"):
        cache.insert(3, 3)  # type: ignore[arg-type]
    assert repr(cache) == "<GuardedCache of 0 entries, limit 8>"


def test_miss_is_explained_by_the_nearest_entry_first() -> None:
    cache: GuardedCache[int] = GuardedCache()
    guards = [Guard(LocalSource(n), GuardBuilder.EQUALS_MATCH) for n in "ab"]
    cache.insert(compile_guards(guards, {"a": 1, "b": 1}), 1)
    cache.insert(compile_guards(guards, {"a": 2, "b": 2}), 2)
    assert cache.explain_miss({"a": 1, "b": 1}) == []
    nearest, other = cache.explain_miss({"a": 1, "b": 5})
    assert str(nearest) == "L['b'] == 1: expected 1, found 5"
    assert len(nearest.failures) == 1
    assert len(other.failures) == 2


def test_one_cause_of_all_misses_is_said_once() -> None:
    cache: GuardedCache[int] = GuardedCache()
    for number in range(3):
        guards = [
            Guard(LocalSource("a"), GuardBuilder.EQUALS_MATCH),
            Guard(LocalSource("b"), GuardBuilder.TYPE_MATCH),
        ]
        cache.insert(compile_guards(guards, {"a": 1, "b": number}), number)
    (only,) = cache.explain_miss({"a": 2, "b": 0})
    assert str(only) == "L['a'] == 1: expected 1, found 2"


def test_death_of_a_guarded_object_frees_the_entry() -> None:
    cache: GuardedCache[Any] = GuardedCache()
    point, value = Point(), Point()
    alive = weakref.ref(value)
    guard = Guard(LocalSource("x"), GuardBuilder.ID_MATCH)
    cache.insert(compile_guards([guard], {"x": point}), value)
    cache.insert(equals(1), "stays")
    del value
    assert cache.lookup({"x": point}) is alive()
    del point
    gc.collect(0)
    assert len(cache) == 1
    assert alive() is None
    assert cache.stats.deaths == 1
    assert cache.lookup({"x": 1}) == "stays"


def test_value_may_use_the_cache_when_it_dies() -> None:
    cache: GuardedCache[Any] = GuardedCache(limit=1)
    seen: list[Any] = []

    class Last:
        def __del__(self) -> None:
            seen.append(cache.lookup({"x": 2}))

    cache.insert(equals(1), Last())
    cache.insert(equals(2), "two")
    assert seen == ["two"]


@pytest.mark.slow
def test_eight_threads_lose_nothing_and_hit_nothing_wrong() -> None:
    cache: GuardedCache[int] = GuardedCache(limit=16)
    checks = {number: equals(number) for number in range(48)}
    wrong: list[Any] = []
    done = [0] * 8
    start = threading.Barrier(8)

    def work(which: int) -> None:
        start.wait()
        for step in range(400):
            number = (step * 7 + which * 5) % 48
            found = cache.lookup({"x": number})
            if found is None:
                cache.insert(checks[number], number)
            elif found != number:
                wrong.append((number, found))
            if step % 100 == 99:
                cache.explain_miss({"x": -1})
            done[which] += 1

    threads = [threading.Thread(target=work, args=(which,)) for which in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [400] * 8
    assert not wrong
    assert len(cache) == 16
    stats = cache.stats
    assert stats.hits + stats.misses == 3200
    # What was inserted is there or was evicted; two threads may both insert one number.
    assert stats.misses - stats.evictions >= 16


def test_insertions_from_many_threads_are_all_kept() -> None:
    cache: GuardedCache[int] = GuardedCache(limit=64)
    checks = [equals(number) for number in range(64)]

    def insert(part: int) -> None:
        for number in range(part, 64, 8):
            cache.insert(checks[number], number)

    threads = [threading.Thread(target=insert, args=(part,)) for part in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [cache.lookup({"x": number}) for number in range(64)] == list(range(64))


def run_in_threads(count: int, work: Any) -> None:
    start = threading.Barrier(count)
    errors: list[BaseException] = []

    def run(which: int) -> None:
        start.wait()
        try:
            work(which)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(which,)) for which in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def million_lookups(times: int) -> None:
    """Look up in eight threads, while entries come, are evicted, and die with what they are about.

    Each value names the input it is for and itself: a torn read or a wrong hit would show.
    """
    cache: GuardedCache[tuple[int, str]] = GuardedCache(limit=12)
    checks = [equals(number) for number in range(16)]
    wrong: list[Any] = []
    hits, lookups = [0] * 8, [0] * 8

    def work(which: int) -> None:
        rng = random.Random(which)
        for step in range(times // 8):
            number = rng.randrange(16)
            found = cache.lookup({"x": number})
            lookups[which] += 1
            if found is None:
                cache.insert(checks[number], (number, f"value {number}"))
            elif found == (number, f"value {number}"):
                hits[which] += 1
            else:
                wrong.append((number, found))
            if step % 1000 == 0:  # an entry about an object that dies at once
                point = Point()
                guard = Guard(LocalSource("x"), GuardBuilder.ID_MATCH)
                cache.insert(compile_guards([guard], {"x": point}), (-1, "dead"))
                del point
            if step % 5000 == 4999:
                assert len(cache.explain_miss({"x": -1})) <= 12

    run_in_threads(8, work)
    assert wrong == []
    stats = cache.stats
    assert stats.hits + stats.misses == sum(lookups) == times // 8 * 8
    assert stats.hits == sum(hits)
    assert stats.checks >= stats.hits
    assert stats.deaths + stats.evictions >= times // 8 // 1000 * 8
    assert len(cache) == 12
    # What is there still answers for its own input alone.
    found = [cache.lookup({"x": number}) for number in range(16)]
    there = [(n, f"value {n}") if f is not None else None for n, f in enumerate(found)]
    assert found == there
    assert len(found) - found.count(None) == 12


@pytest.mark.slow
def test_many_lookups_in_many_threads() -> None:
    million_lookups(8_000)


@pytest.mark.long
def test_a_million_lookups_in_many_threads() -> None:
    million_lookups(1_000_000)


def memory_of_lookups(times: int) -> int:
    cache = filled(3)
    tensors = compile_guards(
        [Guard(LocalSource("x"), GuardBuilder.TENSOR_MATCH)], {"x": torch.zeros(3)}
    )
    cache.insert(tensors, "tensor")
    scopes: list[dict[str, Any]] = [{"x": 0}, {"x": torch.zeros(3)}, {"x": 2}]
    for scope in scopes:
        cache.lookup(scope)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for step in range(times):
            cache.lookup(scopes[step % 3])
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_memory_is_flat_over_many_lookups() -> None:
    assert memory_of_lookups(20_000) < 20_000


@pytest.mark.long
def test_memory_is_flat_over_a_million_lookups() -> None:
    assert memory_of_lookups(1_000_000) < 20_000


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_copy_is_an_empty_cache_of_the_same_kind(copied: Any) -> None:
    cache: GuardedCache[str] = GuardedCache(limit=3, on_limit="error")
    cache.insert(equals(1), "one")
    made = copied(cache)
    assert (made.limit, made.on_limit, len(made)) == (3, "error", 0)
    made.insert(equals(2), "two")
    assert (cache.lookup({"x": 1}), cache.lookup({"x": 2})) == ("one", None)
