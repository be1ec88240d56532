"""Scopes and carried modes around coroutines and asynchronous generators: on in each step only."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from typing import Any

import pytest
import torch
from dispatch_core import (
    DispatchMode,
    HandlerTable,
    Recorder,
    enable_python_mode,
    keep_composite,
    no_dispatch,
    propagate_modes,
)
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from tests.dispatch_core.wrapping import Direct


def depth() -> int:
    return len(_get_current_dispatch_mode_stack())


def watched(run: Any) -> Any:
    """Decorate with a scope that puts a mode on the stack."""
    return enable_python_mode(Direct)(run)


async def pause() -> int:
    """Let others run; give how many modes they find."""
    await asyncio.sleep(0)
    return depth()


@watched
async def coroutine(value: int) -> list[int]:
    found = [depth()]
    await asyncio.sleep(0)
    found.append(depth())
    return [*found, value]


@watched
async def raises() -> None:
    await asyncio.sleep(0)
    raise ValueError(depth())


@watched
async def catches() -> str:
    try:
        await asyncio.sleep(10)
    except asyncio.CancelledError:
        return f"cancelled in {depth()}"
    return "not cancelled"


@watched
async def numbers(count: int) -> AsyncGenerator[Any, Any]:
    sent: Any = None
    try:
        for number in range(count):
            await asyncio.sleep(0)
            sent = yield (number, depth(), sent)
    except KeyError as error:
        yield ("caught", depth(), str(error))
    finally:
        closed.append(depth())


closed: list[int] = []


def test_scope_is_on_in_each_step_of_a_coroutine_and_off_between() -> None:
    async def main() -> Any:
        return await asyncio.gather(coroutine(7), pause(), coroutine(8))

    assert asyncio.run(main()) == [[1, 1, 7], 0, [1, 1, 8]]
    assert inspect.iscoroutinefunction(coroutine)
    assert depth() == 0


def test_errors_and_cancelling_pass() -> None:
    async def main() -> Any:
        with pytest.raises(ValueError, match="1"):
            await raises()
        task = asyncio.ensure_future(catches())
        await asyncio.sleep(0)
        task.cancel()
        return await task

    assert asyncio.run(main()) == "cancelled in 1"


def test_asynchronous_generator() -> None:
    async def main() -> None:
        closed.clear()
        assert [item async for item in numbers(2)] == [(0, 1, None), (1, 1, None)]
        assert closed == [1]
        generator = numbers(3)
        assert await generator.asend(None) == (0, 1, None)
        assert depth() == 0
        assert await generator.asend("x") == (1, 1, "x")
        assert await generator.athrow(KeyError("k")) == ("caught", 1, "'k'")
        with pytest.raises(StopAsyncIteration):
            await generator.asend(None)
        generator = numbers(3)
        await generator.asend(None)
        await generator.aclose()
        assert closed == [1, 1, 1]

    asyncio.run(main())
    assert inspect.isasyncgenfunction(numbers)


def test_every_scope_holds_within_a_coroutine() -> None:
    table = HandlerTable()
    table.fallback(lambda func, *args, **kwargs: torch.full((1,), 7.0))
    kl_div = torch.ops.aten.kl_div.default
    x = torch.ones(1)

    @no_dispatch()
    async def plain() -> float:
        await asyncio.sleep(0)
        return (x + 1).item()

    @keep_composite(kl_div)
    async def whole() -> list[str]:
        with Recorder() as recorder:
            kl_div(x, x)
        await asyncio.sleep(0)
        return [event.name for event in recorder.events]

    with DispatchMode(table):
        assert asyncio.run(plain()) == 2
    assert asyncio.run(whole()) == ["aten::kl_div"]


def test_carried_modes_are_on_in_each_step() -> None:
    recorder = Recorder()
    x = torch.ones(1)

    async def work() -> float:
        x.sin()
        await asyncio.sleep(0)
        x.cos()
        return 1.0

    async def each() -> AsyncIterator[int]:
        x.tan()
        await asyncio.sleep(0)
        yield depth()

    with recorder:
        carried, generator = propagate_modes(work), propagate_modes(each)

    async def other() -> None:
        for _ in range(3):
            x.exp()
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(carried(), other())
        assert [number async for number in generator()] == [1]

    asyncio.run(main())
    assert [event.name for event in recorder.events] == ["aten::sin", "aten::cos", "aten::tan"]


def test_object_whose_call_is_a_coroutine_or_generator_function() -> None:
    class Work:
        async def __call__(self) -> int:
            await asyncio.sleep(0)
            return depth()

    class Steps:
        def __call__(self) -> Generator[int, None, None]:
            yield depth()
            yield depth()

    assert asyncio.run(watched(Work())()) == 1
    steps = watched(Steps())()
    assert next(steps) == 1
    assert depth() == 0
    assert list(steps) == [1]
