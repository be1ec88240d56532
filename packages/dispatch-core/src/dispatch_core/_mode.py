"""A torch dispatch mode that answers from a table of handlers, and declines honestly."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dispatch_core import _torch_private as private
from dispatch_core._honest import ask_classes, handler_failed, nobody_took, result_check
from dispatch_core._mode_stack import brought_to_top
from dispatch_core._table import HandlerTable
from dispatch_core._torch_private import TorchDispatchMode

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["DispatchMode"]


class DispatchMode(TorchDispatchMode):
    """Watch or answer the operators of a thread while it is entered.

    `table` says which; give a class one of its own, or an instance::

        class Ones(DispatchMode):
            table = HandlerTable(missing="next")

        @Ones.table.implements(ops.aten.randn.default)
        def randn(size, *, dtype=None, layout=None, device=None, pin_memory=None): ...

    A handler runs with the mode taken off, so what it calls goes to the mode outside. A mode
    that declines (a handler answers NotImplemented, or `missing="next"`) hands the call to the
    next mode, then to the subclasses among the arguments; when every class has declined too,
    that is an error. A call on plain tensors that every mode declined runs as without modes.

    A subclass may also override `__torch_dispatch__`; answering NotImplemented declines.

    Raises, from the operator: HandlerError for a TypeError of a handler; HandlerResultError for
    an answer that the operator cannot give; NoHandlerError if nobody took the call.
    """

    table: HandlerTable = HandlerTable(missing="next")
    supports_higher_order_operators = True

    @private.skip_in_dynamo
    def __init__(self, table: HandlerTable | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        if table is not None:
            self.table = table

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)  # type: ignore[no-untyped-call]
        own = vars(cls).get("__torch_dispatch__")
        if own is not None:
            cls.__torch_dispatch__ = _honest(own)  # type: ignore[method-assign]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # the code is marked instead, which costs nothing when it runs

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Answer a call from the table, or hand it on."""
        if kwargs is None:
            kwargs = {}
        table = self.table
        entry = table._entries[func]
        if entry.simple:
            try:
                result = entry.run(*args, **kwargs)
            except TypeError as error:
                raise handler_failed(func, entry.handler, error) from error
            if result.__class__ is entry.at_once:
                return result
            if result is not NotImplemented:
                return entry.check(result)
        elif entry.kind != "missing" or table.missing == "next":
            result = table._answer(func, types, args, kwargs)
        else:
            result = self._answer_missing(func, args, kwargs)
        if result is NotImplemented:
            return hand_on(func, types, args, kwargs)
        return result

    def _answer_missing(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        # The parts are to come here as well, so the mode goes back on the stack for them.
        private.push_mode(self)
        try:
            return self.table._answer_missing(func, args, kwargs)
        finally:
            private.pop_mode()

    @private.skip_in_dynamo
    def __enter__(self) -> Self:
        return super().__enter__()  # type: ignore[no-untyped-call,no-any-return]

    @private.skip_in_dynamo
    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        with brought_to_top(self):
            super().__exit__(exc_type, exc_val, exc_tb)  # type: ignore[no-untyped-call]


def hand_on(
    func: Any, types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Run a call that the innermost mode, which is off the stack now, does not answer."""
    if not types and not private.mode_stack_size():
        return func(*args, **kwargs)
    if not private.mode_stack_size():
        result = ask_classes(func, types, types, args, kwargs)
        if result is NotImplemented:
            raise nobody_took(func, types)
        return result
    try:
        return func(*args, **kwargs)
    except TypeError as error:
        # Only a mode that is not ours lets this one out.
        if str(error).startswith(f"Multiple dispatch failed for 'torch._ops.{func}'"):
            raise nobody_took(func, types) from error
        raise


def _honest(dispatch: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an overridden `__torch_dispatch__`: no TypeErrors out, and NotImplemented declines."""

    def __torch_dispatch__(
        self: Any,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if kwargs is None:
            kwargs = {}
        try:
            result = dispatch(self, func, types, args, kwargs)
        except TypeError as error:
            raise handler_failed(func, dispatch, error) from error
        if result is NotImplemented:
            return hand_on(func, types, args, kwargs)
        return result_check(func, dispatch)(result)

    private.skip_in_dynamo(__torch_dispatch__)
    return functools.wraps(dispatch)(__torch_dispatch__)


private.skip_in_dynamo(DispatchMode.__torch_dispatch__)
