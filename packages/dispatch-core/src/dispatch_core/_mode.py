"""A torch dispatch mode that answers from a table of handlers, and declines honestly."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from dispatch_core import _torch_private as private
from dispatch_core._errors import TableError
from dispatch_core._honest import (
    answering,
    ask_classes,
    handler_failed,
    nobody_took,
)
from dispatch_core._mode_stack import brought_to_top
from dispatch_core._results import gives_one_tensor, result_check
from dispatch_core._table import HandlerTable
from dispatch_core._torch_private import TorchDispatchMode

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["DispatchMode", "hand_on", "is_honest"]

F = TypeVar("F", bound=Callable[..., Any])


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
            _check_table(table, "takes")
            self.table = table

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)  # type: ignore[no-untyped-call]
        _make_honest(cls)

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
        if entry.composite and private.may_set_bits(entry.composite, args):
            with private.as_in_parts():
                result = self._answer(func, types, args, kwargs)
                return hand_on(func, types, args, kwargs) if result is NotImplemented else result
        if entry.simple:  # the same as _answer, one call less
            try:
                result = entry.run(*args, **kwargs)
            except TypeError as error:
                raise handler_failed(func, entry.handler, error) from error
            if result.__class__ is entry.at_once:
                return result
            if result is not NotImplemented:
                return entry.check(result)
        elif entry.handler is None and table.missing == "next":
            return hand_on(func, types, args, kwargs)
        else:
            result = self._answer(func, types, args, kwargs)
        if result is NotImplemented:
            return hand_on(func, types, args, kwargs)
        return result

    def _answer(
        self, func: Any, types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        table = self.table
        if table._entries[func].kind != "missing" or table.missing == "next":
            return table._answer(func, types, args, kwargs)
        return self._answer_missing(func, args, kwargs)

    def _answer_missing(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        # The parts are to come here as well, so the mode goes back on the stack for them.
        private.push_mode(self)
        try:
            return self.table._answer_missing(func, args, kwargs)
        finally:
            private.pop_mode()

    @private.skip_in_dynamo
    def __enter__(self) -> Self:
        if not _is_marked(type(self).__torch_dispatch__):  # it was given later
            _make_honest(type(self))
        if type(self).__torch_dispatch__ is DispatchMode.__torch_dispatch__:
            _check_table(self.table, f"answers from {type(self).__qualname__}.table,")
        own = self.__dict__.get("__torch_dispatch__")
        if own is not None and not _is_marked(own):
            self.__dict__["__torch_dispatch__"] = _honest_of_instance(own, self)
        _flags.note_entered()
        try:
            return super().__enter__()  # type: ignore[no-untyped-call,no-any-return]
        except BaseException:
            _flags.note_left()
            raise

    @private.skip_in_dynamo
    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        try:
            with brought_to_top(self):
                super().__exit__(exc_type, exc_val, exc_tb)  # type: ignore[no-untyped-call]
        finally:  # also of a mode that somebody has taken off
            _flags.note_left()


class _Flags:
    """Torch's flags of open modes, as they were before any of ours was open.

    A mode that is left sets them to what it found, which where several threads have modes open is
    what another one set, and no function would be compiled from then on.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0
        self._before: tuple[bool, ...] = ()

    def note_entered(self) -> None:
        """Note that a mode is about to be entered."""
        with self._lock:
            if not self._open:
                self._before = private.mode_flags()
            self._open += 1

    def note_left(self) -> None:
        """Put the flags back when the last mode has been left."""
        with self._lock:
            self._open = max(self._open - 1, 0)
            if not self._open:
                private.set_mode_flags(self._before)


_flags = _Flags()


def _check_table(table: object, what: str) -> None:
    if not isinstance(table, HandlerTable):
        raise TableError(f"a DispatchMode {what} a HandlerTable, not {table!r}")


def hand_on(
    func: Any, types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Run a call that the innermost mode, which is off the stack now, does not answer."""
    if not private.mode_stack_size():
        asked = answering(types) if types else ()
        if not asked:
            return func(*args, **kwargs)
        result = ask_classes(func, asked, types, args, kwargs)
        if result is NotImplemented:
            raise nobody_took(func, asked)
        return result
    try:
        return func(*args, **kwargs)
    except TypeError as error:
        # Only a mode that is not ours lets this one out.
        if not str(error).startswith(f"Multiple dispatch failed for 'torch._ops.{func}'"):
            raise
        asked = answering(types)
        if asked or not _was_raised_at_once(error):
            raise nobody_took(func, asked) from error
    # torch asks no more than the innermost mode, which has declined.
    declined = private.pop_mode()
    try:
        return hand_on(func, types, args, kwargs)
    finally:
        private.push_mode(declined)


def _was_raised_at_once(error: BaseException) -> bool:
    """Say whether torch raised an error for the call itself, not for one made in a handler."""
    trace = error.__traceback__
    depth = 0
    while trace is not None:
        depth += 1
        trace = trace.tb_next
    return depth <= 2  # our frame, and that of OpOverload.__call__


def _make_honest(cls: type[DispatchMode]) -> None:
    """See to the `__torch_dispatch__` that a class has, its own or one that came by a base."""
    for base in cls.__mro__:
        own = vars(base).get("__torch_dispatch__")
        if own is None:
            continue
        if not _is_marked(own):
            # A base that is no mode of ours, a mixin, is left as it is.
            target = base if issubclass(base, DispatchMode) else cls
            target.__torch_dispatch__ = _honest(own)  # type: ignore[method-assign]
        return


class _Known(dict[Any, tuple[str, type | None, Callable[[Any], Any]]]):
    """Which composite an operator is, what needs no check of its results, and the check."""

    def __init__(self, own: Any) -> None:
        self._own = own

    def __missing__(self, func: Any) -> tuple[str, type | None, Callable[[Any], Any]]:
        at_once = torch.Tensor if gives_one_tensor(func) else None
        made = self[func] = private.composite_kind(func), at_once, result_check(func, self._own)
        return made


def _honest(own: Any) -> Callable[..., Any]:
    """Wrap an overridden `__torch_dispatch__`: no TypeErrors out, and NotImplemented declines."""
    plain = isinstance(own, FunctionType)
    known = _Known(own)

    def __torch_dispatch__(
        self: Any,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if kwargs is None:
            kwargs = {}
        kind = known[func][0]
        if kind and private.may_set_bits(kind, args):
            with private.as_in_parts():
                return answer(self, func, types, args, kwargs)
        return answer(self, func, types, args, kwargs)

    def answer(
        self: Any,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        try:
            if plain:
                result = own(self, func, types, args, kwargs)
            else:  # a static method, a partial one, an object that can be called, …
                bound = own.__get__(self, type(self)) if hasattr(own, "__get__") else own
                result = bound(func, types, args, kwargs)
        except TypeError as error:
            raise handler_failed(func, own, error) from error
        _, at_once, check = known[func]
        if result.__class__ is at_once:
            return result
        if result is NotImplemented:
            return hand_on(func, types, args, kwargs)
        return check(result)

    private.skip_in_dynamo(__torch_dispatch__)
    if callable(own):
        functools.update_wrapper(__torch_dispatch__, own)
    return is_honest(__torch_dispatch__)


def _honest_of_instance(own: Any, mode: DispatchMode) -> Callable[..., Any]:
    def call(_: Any, *arguments: Any) -> Any:
        return own(*arguments)

    return MethodType(_honest(functools.update_wrapper(call, own)), mode)


def is_honest(function: F) -> F:
    """Mark a `__torch_dispatch__` that is to be left as it is."""
    # With its code, because functools.wraps copies marks to other functions.
    function.__honest__ = function.__code__  # type: ignore[attr-defined]
    return function


def _is_marked(own: Any) -> bool:
    return getattr(own, "__honest__", None) is getattr(own, "__code__", own)


is_honest(private.skip_in_dynamo(DispatchMode.__torch_dispatch__))
