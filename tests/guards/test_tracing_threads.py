"""Traces belong to threads, not to generators or tasks."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor

from guards import (
    CompileContext,
    CompileId,
    TracingContext,
    compile_context,
    tracing,
)

from tests.guards.traces import frame, functions


def test_eight_threads_see_only_their_own() -> None:
    barrier = threading.Barrier(8)

    def work(n: int) -> list[str]:
        assert TracingContext.try_get() is None
        assert CompileContext.try_get() is None
        seen = []
        mine = CompileContext(CompileId(frame_id=n, frame_compile_id=0))
        with compile_context(mine), tracing(TracingContext(None)) as context:
            for depth in range(20):
                barrier.wait()
                TracingContext.set_current_loc(f"{n}.py", depth, f"f{n}")
                with (
                    contextlib.suppress(ZeroDivisionError),
                    tracing(TracingContext(None)),
                    TracingContext.current_frame(frame(f"g{n}")),
                ):
                    barrier.wait()
                    seen += functions(TracingContext.extract_stack())
                    if depth % 3 == n % 3:
                        raise ZeroDivisionError
                assert TracingContext.get() is context
                assert CompileContext.get() is mine
                seen += functions(TracingContext.extract_stack())
        assert TracingContext.try_get() is None
        return seen

    with tracing(TracingContext(None)) as outer, ThreadPoolExecutor(8) as pool:
        results = list(pool.map(work, range(8)))
        assert TracingContext.get() is outer
    assert results == [[f"g{n}", f"f{n}"] * 20 for n in range(8)]


def test_a_scope_belongs_to_the_thread_that_enters_it() -> None:
    context = TracingContext(None)
    with tracing(context), ThreadPoolExecutor(1) as pool:
        assert pool.submit(TracingContext.try_get).result() is None
        with tracing(TracingContext(None)) as inner:
            assert TracingContext.get() is inner
        assert TracingContext.get() is context


def test_a_generator_shares_its_callers_trace() -> None:
    # Thread-local means local to the thread: what a suspended generator has set stays set.
    def generator() -> Iterator[TracingContext | None]:
        yield TracingContext.try_get()
        with tracing(TracingContext(None)) as own:
            yield own
        yield TracingContext.try_get()

    with tracing(TracingContext(None)) as outer:
        steps = generator()
        assert next(steps) is outer
        own = next(steps)
        assert TracingContext.try_get() is own
        assert next(steps) is outer
        assert TracingContext.get() is outer


def test_a_generator_that_is_closed_puts_back_what_it_found() -> None:
    def generator() -> Generator[None, None, None]:
        with tracing(TracingContext(None)), TracingContext.current_frame(frame("a")):
            yield

    with tracing(TracingContext(None)) as outer:
        steps = generator()
        next(steps)
        assert TracingContext.get() is not outer
        steps.close()
        assert TracingContext.get() is outer


def test_tasks_of_one_loop_share_the_thread_and_so_the_trace() -> None:
    async def step(name: str) -> list[str]:
        with tracing(TracingContext(None)):  # no await within: nobody else runs meanwhile
            TracingContext.set_current_loc("user.py", 1, name)
            seen = functions(TracingContext.extract_stack())
        await asyncio.sleep(0)
        assert TracingContext.try_get() is outer
        return seen

    async def main() -> None:
        results = await asyncio.gather(*(step(f"f{n}") for n in range(8)))
        assert results == [[f"f{n}"] for n in range(8)]
        assert await asyncio.to_thread(TracingContext.try_get) is None

    with tracing(TracingContext(None)) as outer:
        asyncio.run(main())
        assert TracingContext.get() is outer


def test_an_await_within_a_trace_shows_it_to_other_tasks() -> None:
    async def main() -> None:
        suspended, seen = asyncio.Event(), asyncio.Event()

        async def traces() -> None:
            with tracing(shown):
                suspended.set()
                await seen.wait()

        async def looks() -> TracingContext | None:
            await suspended.wait()
            found = TracingContext.try_get()
            seen.set()
            return found

        _, found = await asyncio.gather(traces(), looks())
        assert found is shown
        assert TracingContext.try_get() is None

    shown = TracingContext(None)
    asyncio.run(main())
