"""Context managers that are decorators too, and hold inside generators as well."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import Any, TypeVar, cast

__all__ = ["Scope", "run_through"]

F = TypeVar("F", bound=Callable[..., Any])
Runner = Callable[[Callable[[], Any]], Any]


def run_through(start: Callable[[], Runner], fn: F) -> F:
    """Make a function whose calls are run by a runner, a new one from `start` for each call.

    A generator that holds a context open while it is suspended would leave it on for whoever
    drives it; so the runner runs each step of a generator on its own.
    """
    if inspect.isgeneratorfunction(fn):

        @functools.wraps(fn)
        def stepwise(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            run = start()
            generator = run(lambda: fn(*args, **kwargs))
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

        return cast(F, stepwise)

    @functools.wraps(fn)
    def whole(*args: Any, **kwargs: Any) -> Any:
        return start()(lambda: fn(*args, **kwargs))

    return cast(F, whole)


class Scope(AbstractContextManager[Any]):
    """A context manager that can be entered again, and decorates functions and generators."""

    def __call__(self, fn: F) -> F:
        """Run each call of a function, and each step of a generator, in this context."""

        def run(thunk: Callable[[], Any]) -> Any:
            with self:
                return thunk()

        return run_through(lambda: run, fn)
