"""Context managers that are decorators too, and hold inside generators and coroutines as well."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractContextManager
from typing import Any, TypeVar, cast

__all__ = ["Scope", "called", "run_through"]

F = TypeVar("F", bound=Callable[..., Any])
Runner = Callable[[Callable[[], Any]], Any]


def run_through(start: Callable[[], Runner], fn: F) -> F:
    """Make a function whose calls are run by a runner, a new one from `start` for each call.

    A generator that holds a context open while it is suspended would leave it on for whoever
    drives it; so the runner runs each step of a generator on its own, and of a coroutine and an
    asynchronous generator likewise.
    """
    code = called(fn)
    if inspect.isgeneratorfunction(code):

        @functools.wraps(fn)
        def stepwise(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            run = start()
            return (yield from _in_steps(run, run(lambda: fn(*args, **kwargs))))

        return cast(F, stepwise)

    if inspect.iscoroutinefunction(code):

        @functools.wraps(fn)
        async def awaiting(*args: Any, **kwargs: Any) -> Any:
            run = start()
            return await _await_in_steps(run, run(lambda: fn(*args, **kwargs)))

        return cast(F, awaiting)

    if inspect.isasyncgenfunction(code):

        @functools.wraps(fn)
        async def each(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
            run = start()
            generator = run(lambda: fn(*args, **kwargs))
            step = generator.asend(None)
            while True:
                try:
                    value = await _await_in_steps(run, step)
                except StopAsyncIteration:
                    return
                try:
                    sent = yield value
                except GeneratorExit:
                    await _await_in_steps(run, generator.aclose())
                    raise
                except BaseException as error:
                    step = generator.athrow(error)
                else:
                    step = generator.asend(sent)

        return cast(F, each)

    @functools.wraps(fn)
    def whole(*args: Any, **kwargs: Any) -> Any:
        return start()(lambda: fn(*args, **kwargs))

    return cast(F, whole)


def called(fn: Any) -> Any:
    """Give the function that a call of `fn` runs, where `fn` is an object with `__call__`."""
    if isinstance(fn, type) or inspect.isroutine(fn) or isinstance(fn, functools.partial):
        return fn
    call: Any = type(fn).__call__
    return call


def _in_steps(run: Runner, generator: Any) -> Generator[Any, Any, Any]:
    """Drive a generator, or the iterator of an awaitable, through a runner."""
    step: Callable[[], Any] = functools.partial(next, generator)
    while True:
        try:
            value = run(step)
        except StopIteration as stop:
            return stop.value
        try:
            sent = yield value
        except GeneratorExit:
            run(generator.close)
            raise
        except BaseException as error:
            step = functools.partial(generator.throw, error)
        else:
            step = functools.partial(generator.send, sent)


@types.coroutine
def _await_in_steps(run: Runner, awaitable: Awaitable[Any]) -> Generator[Any, Any, Any]:
    return (yield from _in_steps(run, awaitable.__await__()))


class Scope(AbstractContextManager[Any]):
    """A context manager that can be entered again, and decorates functions of every kind."""

    def __call__(self, fn: F) -> F:
        """Run each call of a function, and each step of a generator or coroutine, in it."""

        def run(thunk: Callable[[], Any]) -> Any:
            with self:
                return thunk()

        return run_through(lambda: run, fn)
