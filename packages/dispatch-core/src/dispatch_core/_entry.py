"""What answers one overload: a handler, named after the operator, and how to call it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Literal

import torch

from dispatch_core import _torch_private as private
from dispatch_core._describe import op_name
from dispatch_core._results import gives_one_tensor, result_check
from dispatch_core._signatures import takes_types

if TYPE_CHECKING:
    from dispatch_core._table import HandlerTable

__all__ = ["Entry", "Kind", "MissingEntry", "named_after"]

Handler = Callable[..., Any]
Kind = Literal["exact", "packet", "where", "fallback", "missing"]


class Entry:
    """What answers one overload: the handler, and how to call it."""

    __slots__ = (
        "at_once",
        "check",
        "composite",
        "found_by",
        "handler",
        "kind",
        "run",
        "simple",
        "table",
        "with_types",
    )

    def __init__(
        self, func: Any, kind: Kind, found_by: str, handler: Handler, table: HandlerTable
    ) -> None:
        self.handler: Handler | None
        self.kind = kind
        self.found_by = found_by
        self.handler = handler
        self.table = table
        self.composite = private.composite_kind(func)
        run = named_after(handler, op_name(func))
        self.with_types = kind != "exact" and takes_types(handler)
        self.run = run if kind == "exact" or self.with_types else functools.partial(run, func)
        self.simple = not self.with_types
        self.check = result_check(func, handler)
        self.at_once = torch.Tensor if gives_one_tensor(func) else None  # needs no check

    @property
    def is_named(self) -> bool:
        """Say whether the handler is registered for the operator by its name or its packet's."""
        return self.kind in ("exact", "packet")


class MissingEntry(Entry):
    """No handler: what the nearest table says about such operators."""

    __slots__ = ()

    def __init__(self, func: Any, table: HandlerTable) -> None:
        self.kind = "missing"
        self.composite = private.composite_kind(func)
        self.found_by = "missing"
        self.handler = None
        self.table = table
        self.simple = False


def named_after(handler: Handler, name: str) -> Handler:
    """Give the same function with the operator's name in its frames.

    A traceback through ten handlers called `_` says nothing. What is neither a function nor a
    method, an object that can be called or a cached function, gets a frame of its own before it.
    """
    if type(handler) is functools.partial:
        named = named_after(handler.func, name)
        return functools.partial(named, *handler.args, **handler.keywords)
    if type(handler) is MethodType and isinstance(handler.__func__, FunctionType):
        return MethodType(_renamed(handler.__func__, name), handler.__self__)
    if isinstance(handler, FunctionType):
        return _renamed(handler, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        return handler(*args, **kwargs)

    call.__name__ = getattr(handler, "__name__", type(handler).__name__)
    return _renamed(call, name)


def _renamed(handler: Any, name: str) -> FunctionType:
    own = handler.__name__
    shown = name if own in ("_", "<lambda>") else f"{own}[{name}]"
    names: dict[str, Any] = {"co_name": shown}
    if hasattr(handler.__code__, "co_qualname"):  # Python 3.11
        names["co_qualname"] = shown
    code = handler.__code__.replace(**names)
    named = FunctionType(code, handler.__globals__, own, handler.__defaults__, handler.__closure__)
    named.__kwdefaults__ = handler.__kwdefaults__
    named.__dict__.update(handler.__dict__)
    return named
