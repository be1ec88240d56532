"""Run a function once under observation, and from then on only its operators, while guards hold."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import threading
import types
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

import torch

from guards._arguments import need, wrong_call
from guards._assumptions import Assumptions, CannotSpecialize
from guards._builder import GuardBuilder
from guards._cache import CacheStats, GuardedCache
from guards._compile import compile_guards
from guards._constants import spell
from guards._errors import GuardError, UnsupportedGuardError
from guards._explanation import Explanation
from guards._fetch import is_a
from guards._record import StepFailed
from guards._recording import unchanged, watch
from guards._replay import write_replay
from guards._settings import is_ordinary, state_guards

__all__ = ["Specialized", "specialize"]

R = TypeVar("R")


class Specialized(Generic[R]):
    """A function that knows what it did the last times; made by :func:`specialize`.

    Attributes:
        function: the plain function, method or module.
        refusals: why runs could not be written down, the latest last.
    """

    def __init__(self, function: Callable[..., R], limit: int, patience: int) -> None:
        wanted = "a whole number from 1 on"
        need(type(limit) is int and limit >= 1, "specialize", "limit", wanted, limit)
        whole = type(patience) is int and patience >= 0
        need(whole, "specialize", "patience", "a whole number from 0 on", patience)
        self.function = function
        self.refusals: list[str] = []
        self._limit = limit
        self._patience = patience
        self._inner, self._bind = _take_apart(function)
        self._cache: GuardedCache[Callable[[Any, Any], Any]] = GuardedCache(limit=limit)
        self._name = getattr(self._inner, "__qualname__", type(function).__qualname__)
        self._G: dict[str, Any] = {self._name: function}
        self._lock = threading.Lock()
        functools.update_wrapper(cast(Any, self), self._inner, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        """Give what the plain function would give."""
        if torch.compiler.is_compiling() or not is_ordinary():  # compiled as the plain function
            return self.function(*args, **kwargs)
        try:
            L = self._bind(*args, **kwargs)
        except TypeError:
            return self.function(*args, **kwargs)  # it says itself what is wrong
        replay = self._cache.lookup(L)
        if replay is not None:
            with contextlib.suppress(StepFailed):
                return cast(R, replay(L, self._G))
            # An operator raised: the plain function may catch that, or else says where it was.
            return self.function(*args, **kwargs)
        if len(self.refusals) >= self._patience or sys.getprofile() is not None:
            return self.function(*args, **kwargs)
        return self._record(L, args, kwargs)

    def _record(self, L: dict[str, Any], args: Any, kwargs: Any) -> R:
        with self._lock:
            G = dict(self._G)
        if torch.is_warn_always_enabled():
            self.refusals.append("torch warns always, of what no record would do")
            return self.function(*args, **kwargs)
        try:
            assumptions = Assumptions(L, G, self.function, self._name)
            check = compile_guards([*state_guards(), *assumptions.guards], L, G)
        except (CannotSpecialize, GuardError, RecursionError) as problem:
            self.refusals.append(str(problem) or "it nests too deep")
            return self.function(*args, **kwargs)
        except Exception as error:  # of builtins that are replaced, which are used here too
            self.refusals.append(f"what it reaches cannot be looked at: {type(error).__name__}")
            return self.function(*args, **kwargs)
        result, record, refusal = watch(lambda: self.function(*args, **kwargs), assumptions)
        builder = GuardBuilder(L, G)
        if record is None:
            self.refusals.append(str(refusal))
        elif not is_ordinary():
            self.refusals.append("it leaves a mode, autocast or a global hook behind")
        elif not check(L) or not unchanged(assumptions, builder.lookup):
            changed = check.explain(L)
            self.refusals.append(
                "it changes what it reads" + (f": {changed}" if changed is not None else "")
            )
        else:
            with self._lock:
                self._G.update(G)
            self._cache.insert(check, write_replay(record, builder.lookup))
        return cast(R, result)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle the function without its records: they are about what it has read."""
        return Specialized, (self.function, self._limit, self._patience)

    @property
    def stats(self) -> CacheStats:
        """Give the numbers of the cache of records."""
        return self._cache.stats

    def explain_miss(self, *args: Any, **kwargs: Any) -> list[Explanation]:
        """Say for each record why it would not do for a call, the nearest one first.

        Raises:
            WrongArgumentError: the function takes no such arguments.
        """
        try:
            L = self._bind(*args, **kwargs)
        except TypeError as error:
            raise wrong_call(self._name, error, (args, kwargs)) from None
        return self._cache.explain_miss(L)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<specialized {self._name}, {len(self._cache)} records>"


def specialize(function: Callable[..., R], *, limit: int = 8, patience: int = 8) -> Specialized[R]:
    """Make a function that gives the same, and repeats its operators without its Python code.

    The first call is watched: what the function reads is guarded, what it does is written down.
    A later call for which the guards hold runs the operators alone; another one is watched anew.
    A run that cannot be written down in full is left as it is: data-dependent control flow,
    changes of Python state, foreign code, random numbers of Python, and the like. While a call is
    watched, Python's cyclic garbage collection is off, in all threads: its finalizers could run
    within the call at any place.

    ``limit`` is the number of records, ``patience`` the number of refusals after which nothing is
    watched any more.

    Raises:
        UnsupportedGuardError: ``function`` is no Python function, method or module, nor a partial
            of a Python function.
    """
    return Specialized(function, limit, patience)


def _take_apart(function: Any) -> tuple[Any, Callable[..., dict[str, Any]]]:
    """Find the Python function behind a callable, and make what names the arguments of a call."""
    inner = function
    if is_a(function, torch.nn.Module):
        inner = inspect.getattr_static(type(function), "forward")
    if type(function) is functools.partial and is_a(function.func, types.FunctionType):
        return function.func, _make_binder(list(inspect.signature(function).parameters.values()))
    skipped = 1 if is_a(function, (torch.nn.Module, types.MethodType)) else 0
    inner = inner.__func__ if is_a(inner, types.MethodType) else inner
    if not is_a(inner, types.FunctionType):
        raise UnsupportedGuardError(
            f"specialize takes a Python function, a method or a module, got {spell(function)}"
        )
    parameters = list(inspect.signature(inner, follow_wrapped=False).parameters.values())[skipped:]
    return inner, _make_binder(parameters)


def _make_binder(parameters: list[inspect.Parameter]) -> Callable[..., dict[str, Any]]:
    namespace: dict[str, Any] = {}
    bare = []
    for number, parameter in enumerate(parameters):
        default = parameter.default
        if default is not inspect.Parameter.empty:
            namespace[f"default_{number}"] = default
            default = _Default(f"default_{number}")
        bare.append(parameter.replace(default=default, annotation=inspect.Parameter.empty))
    names = [p.name for p in parameters]
    text = (
        f"def bind{inspect.Signature(bare)}: return {{{', '.join(f'{n!r}: {n}' for n in names)}}}"
    )
    exec(text, namespace)
    return cast("Callable[..., dict[str, Any]]", namespace["bind"])


class _Default:
    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name
