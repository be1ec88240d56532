"""The smallest tensor subclasses that the tests of modes and tables need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from dispatch_core import HandlerTable, no_dispatch


class Wrapped(torch.Tensor):
    """A wrapper without memory, as anyone would write it: unwrap, run, wrap. Logs overloads."""

    elem: torch.Tensor
    arrived: ClassVar[list[Any]] = []

    @staticmethod
    def __new__(
        cls: Any, elem: torch.Tensor, *, requires_grad: bool = False, **options: Any
    ) -> Any:
        if not options:
            options = {"strides": elem.stride(), "storage_offset": elem.storage_offset()}
        outside: Any = torch.Tensor._make_wrapper_subclass(
            cls,
            options.pop("size", elem.shape),
            dtype=elem.dtype,
            device=elem.device,
            requires_grad=requires_grad,
            **options,
        )
        outside.elem = elem
        return outside

    def __init__(self, elem: torch.Tensor, **options: Any) -> None:
        pass

    def __repr__(self) -> str:  # type: ignore[override]
        return f"{type(self).__name__}({self.elem})"

    @classmethod
    def unwrap(cls, value: Any) -> Any:
        if isinstance(value, Wrapped):
            return value.elem
        if isinstance(value, list | tuple):
            return type(value)(cls.unwrap(item) for item in value)
        return value

    @classmethod
    def wrap(cls, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and not isinstance(value, Wrapped):
            return cls(value)
        if type(value) in (list, tuple):
            return type(value)(cls.wrap(item) for item in value)
        return value

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        cls.arrived.append(func)
        kwargs = kwargs or {}
        inner_kwargs = {name: cls.unwrap(value) for name, value in kwargs.items()}
        result = func(*cls.unwrap(list(args)), **inner_kwargs)
        written = [a for a in func._schema.arguments if a.alias_info and a.alias_info.is_write]
        if written and func._schema.returns:
            return kwargs.get("out", args[0]) if len(written) == 1 else result
        return cls.wrap(result)


class WrappedChild(Wrapped):
    """A subclass, for the order of classes."""


class Direct(torch.Tensor):
    """A subclass that owns memory, and computes on it with dispatch off."""

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        with no_dispatch():
            return func(*args, **(kwargs or {}))


class Tabled(torch.Tensor):
    """A subclass that owns memory and answers from its table, plain torch being the fallback."""

    table = HandlerTable()

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return cls.table.dispatch(func, types, args, kwargs)


def run_plain(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Answer any operator with what torch answers without handlers."""
    with no_dispatch():
        return func(*args, **kwargs)


def tabled(values: Any, cls: type[Tabled] = Tabled) -> Any:
    """Make a tensor of that class."""
    return torch.as_tensor(values, dtype=torch.float32).as_subclass(cls)


def general(name: str) -> Any:
    """Make a handler for any operator that answers with its name, as far as lookups go."""

    def handler(func: Any, *args: Any, **kwargs: Any) -> Any:
        return run_plain(func, *args, **kwargs)

    handler.__name__ = name
    return handler
