"""Which function answers which operator: a table of handlers that belongs to one class."""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, overload

import torch

from dispatch_core import _torch_private as private
from dispatch_core._describe import op_name
from dispatch_core._entry import Entry, Kind, MissingEntry
from dispatch_core._errors import TableError
from dispatch_core._handle import Handle
from dispatch_core._higher_order import HigherOrderHandle, let_classes_answer
from dispatch_core._honest import (
    answering,
    ask_classes,
    handler_failed,
    nobody_took,
)
from dispatch_core._registry import handle_of
from dispatch_core._rules import has_family, has_tag, known_family, known_tag
from dispatch_core._signatures import check_general_handler, check_handlers

if TYPE_CHECKING:
    from torch._ops import OpOverloadPacket

    from dispatch_core._coverage import Coverage
    from dispatch_core._ops import OpPacket

__all__ = ["Entry", "HandlerTable"]

H = TypeVar("H")
F = TypeVar("F", bound=Callable[..., Any])
Handler = Callable[..., Any]


class GeneralHandler(Protocol):
    """A function that takes the call of any operator. Checkers take `Any` for just anything."""

    def __call__(self, func: Any, /, *args: object, **kwargs: object) -> object: ...


class GeneralMethod(Protocol):
    """The same as a class method, of which checkers see the class in the class's body."""

    def __call__(self, cls: Any, func: Any, /, *args: object, **kwargs: object) -> object: ...


class DispatchHandler(Protocol):
    """A function written as `__torch_dispatch__` is."""

    def __call__(self, func: Any, types: Any, args: Any, kwargs: Any) -> object: ...


G = TypeVar("G", bound=GeneralHandler | GeneralMethod | DispatchHandler)
Missing = Literal["error", "decompose", "next"]

_tables: weakref.WeakSet[HandlerTable] = weakref.WeakSet()
_lock = threading.RLock()
_watchers: list[Callable[[HandlerTable], None]] = []  # of handlers for composite operators
_running = threading.local()  # the composite operators that are being taken apart


class _Entries(dict[Any, Entry]):
    """The entry of each overload that has been asked for, found on first use."""

    __slots__ = ("table",)

    def __init__(self, table: HandlerTable) -> None:
        self.table = table

    def __missing__(self, func: Any) -> Entry:
        with _lock:
            entry = self[func] = self.table._resolve(func)
        return entry


class HandlerTable:
    """The handlers of one class, a tensor subclass or a mode.

    As a class attribute it belongs to that class. Each subclass has a table of its own, made when
    it is first asked for, which goes on with those of its bases, nearest first: an entry of a
    child is never seen by its parent.

    An operator without a handler is, by `missing`: an error that names it; taken apart, if it is
    a composite operator, so that its parts arrive, and else an error; handed to the next: for a
    mode the next mode, then the subclasses, then the kernel; for a class the next class.
    """

    def __init__(self, *, missing: Missing = "error") -> None:
        if missing not in ("error", "decompose", "next"):
            raise TableError(f"missing is 'error', 'decompose' or 'next', not {missing!r}")
        self.missing: Missing = missing
        self._owner: type | None = None
        self._name = "table"
        self._parent: HandlerTable | None = None
        self._exact: dict[Any, Handler] = {}
        self._packets: dict[Any, Handler] = {}
        self._rules: list[tuple[str, Callable[[Handle[Any]], bool], Handler]] = []
        self._fallback: Handler | None = None
        self._entries = _Entries(self)
        self._remembered: dict[Any, Any] = {}  # what others make of the entries
        with _lock:
            _tables.add(self)

    # ── whose it is ─────────────────────────────────────────────────────────────────────────────

    def __set_name__(self, owner: type, name: str) -> None:
        if self._owner is None:
            self._owner = owner
            self._name = name
            _forget_entries()
            if self._is_of_tensors():
                let_classes_answer()

    def __get__(self, instance: object, owner: type | None = None) -> HandlerTable:
        if owner is self._owner or owner is None:
            return self
        return self._of_class(owner)

    def _of_class(self, owner: type) -> HandlerTable:
        with _lock:
            if self._owner is None:  # set on a class that was there already
                for cls in owner.__mro__:
                    for name, value in vars(cls).items():
                        if value is self:
                            self.__set_name__(cls, name)
                if owner is self._owner:
                    return self
            own = vars(owner).get(self._name)
            if isinstance(own, HandlerTable) and own is not self:
                return own
            child = HandlerTable(missing=self.missing)
            child._parent = self
            setattr(owner, self._name, child)
            child.__set_name__(owner, self._name)
            return child

    def _line(self) -> list[HandlerTable]:
        """List this table and those it goes on with, nearest first."""
        line = [self]
        if self._owner is not None:
            for cls in self._owner.__mro__[1:]:
                table = vars(cls).get(self._name)
                if isinstance(table, HandlerTable) and table not in line:
                    line.append(table)
        if self._parent is not None:
            line += [table for table in self._parent._line() if table not in line]
        return line

    def __copy__(self) -> HandlerTable:
        """Give a table of no class yet, with the same handlers and the same bases to go on with."""
        made = HandlerTable(missing=self.missing)
        rest = self._line()[1:]
        made._parent = rest[0] if rest else None
        with _lock:
            made._exact, made._packets = dict(self._exact), dict(self._packets)
            made._rules, made._fallback = list(self._rules), self._fallback
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> HandlerTable:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        if self._owner is None:
            raise TypeError(
                "a HandlerTable that belongs to no class cannot be pickled, because its handlers "
                "are functions: make it an attribute of a class, which is found again by its name"
            )
        return getattr, (self._owner, self._name)

    # ── registering ─────────────────────────────────────────────────────────────────────────────

    # Of several handles the first says to checkers what the handler takes; all do when it runs.
    @overload
    def implements(self, op: Handle[H], /, *more: Handle[Any]) -> Callable[[H], H]: ...
    @overload
    def implements(
        self,
        op: OpPacket | OpOverloadPacket[..., Any],
        /,
        *more: OpPacket | OpOverloadPacket[..., Any],
    ) -> Callable[[G], G]: ...
    @overload
    def implements(self, *ops: Any) -> Callable[[F], F]: ...
    def implements(self, *ops: Any) -> Callable[[Any], Any]:
        """Register a function for overloads or for packets.

        For an overload its parameters are those of the schema: same names, kinds and defaults,
        so it gets every argument by name, whatever the caller wrote or left out. For a packet,
        which stands for all its overloads, they are `(func, *args, **kwargs)`.
        A handler gets the call's own arguments, wrappers as wrappers; NotImplemented declines.
        It may be a static method, a class method (called on the class that is asked) or a bound
        method (`table.implements(op)(self.handler)`).

        Raises: HandlerSignatureError, when it decorates, with everything that differs.
        """
        if not ops:
            raise TableError("implements() needs at least one operator")
        exact: list[Handle[Any]] = []
        packets: list[Any] = []
        for op in ops:
            packet = getattr(op, "torch_packet", op)
            if isinstance(packet, private.OP_OVERLOAD_PACKET):
                packets.append(packet)
            else:
                exact.append(handle_of(op))

        def register(handler: Any) -> Any:
            if exact:
                check_handlers(exact, handler)
            for packet in packets:
                check_general_handler(private.packet_name(packet), handler)
            with _lock:
                for handle in exact:
                    self._exact[handle.torch_op] = handler
                for packet in packets:
                    self._packets[packet] = handler
                _forget_entries()
            if any(isinstance(handle, HigherOrderHandle) for handle in exact):
                let_classes_answer()  # the operator may be younger than the table
            if _watchers and _composites((handle.torch_op for handle in exact), packets):
                for watcher in _watchers:
                    watcher(self)
            return handler

        return register

    def implements_where(
        self,
        *,
        tag: str | None = None,
        family: str | None = None,
        predicate: Callable[[Handle[Any]], bool] | None = None,
    ) -> Callable[[G], G]:
        """Register a function `(func, *args, **kwargs)` for all operators that fit.

        `tag` is the name of one of torch's tags ('pointwise'), `family` one of the spec's
        ('reductions'), `predicate` looks at the handle. Of several given all must hold. Of
        several rules that fit an operator the one registered last counts.
        """
        conditions: list[tuple[str, Callable[[Handle[Any]], bool]]] = []
        if tag is not None:
            conditions.append((f"tag {tag}", functools.partial(has_tag, known_tag(tag))))
        if family is not None:
            conditions.append(
                (f"family {family}", functools.partial(has_family, known_family(family)))
            )
        if predicate is not None:
            if not callable(predicate):
                raise TableError(f"predicate is a function of the handle, not {predicate!r}")
            name = getattr(predicate, "__name__", repr(predicate))
            conditions.append((f"predicate {name}", predicate))
        if not conditions:
            raise TableError("implements_where() needs a tag, a family or a predicate")
        found_by = ", ".join(text for text, _ in conditions)
        tests = [test for _, test in conditions]

        def fits(handle: Handle[Any]) -> bool:
            for test in tests:
                try:
                    if not test(handle):
                        return False
                except TypeError as error:  # which an operator that is looked up must not raise
                    op = handle.torch_op
                    raise handler_failed(op, test, error, "predicate") from error
            return True

        def register(handler: G) -> G:
            check_general_handler(found_by, handler)
            with _lock:
                self._rules.insert(0, (found_by, fits, handler))
                _forget_entries()
            return handler

        return register

    def fallback(self, handler: G) -> G:
        """Register the function `(func, *args, **kwargs)` for what has no other handler."""
        check_general_handler("fallback", handler)
        with _lock:
            self._fallback = handler
            _forget_entries()
        return handler

    def _named_composites(self) -> set[Any]:
        """List the composite operators that have a handler by their name or by their packet's."""
        named: set[Any] = set()
        for table in self._line():
            named.update(_composites(table._exact, table._packets))
        return {op for op in named if self._entries[op].is_named}

    # ── looking up ──────────────────────────────────────────────────────────────────────────────

    def lookup(self, op: Any) -> Handler | None:
        """Give the handler of an overload, a packet or a name; None if there is none.

        The nearest class comes first; within one table an overload's own handler, then its
        packet's, then a rule's, then the fallback.
        """
        try:
            known = self._entries.get(op)
        except TypeError:  # not hashable, so no operator
            known = None
        if known is not None:
            return known.handler
        packet = getattr(op, "torch_packet", op)
        if isinstance(packet, private.OP_OVERLOAD_PACKET):
            for table in self._line():
                handler = table._packets.get(packet, table._fallback)
                if handler is not None:
                    return self._bound(handler)
            return None
        return self._entries[handle_of(op).torch_op].handler

    def _resolve(self, func: Any) -> Entry:
        packet: Any = getattr(func, "overloadpacket", None)
        for table in self._line():
            if func in table._exact:
                return self._entry(func, "exact", op_name(func), table._exact[func], table)
            if packet in table._packets:
                found_by = private.packet_name(packet)
                return self._entry(func, "packet", found_by, table._packets[packet], table)
            if table._rules:
                handle = handle_of(func)
                for found_by, test, handler in table._rules:
                    if test(handle):
                        return self._entry(func, "where", found_by, handler, table)
            if table._fallback is not None:
                return self._entry(func, "fallback", "fallback", table._fallback, table)
        return MissingEntry(func, self)

    def _entry(
        self, func: Any, kind: Kind, found_by: str, handler: Handler, table: HandlerTable
    ) -> Entry:
        return Entry(func, kind, found_by, self._bound(handler), table)

    def _bound(self, handler: Handler) -> Handler:
        """Give what a class method or static method is, taken from the class of this table."""
        if not isinstance(handler, classmethod | staticmethod):
            return handler
        bound: Handler = handler.__get__(None, self._owner or object)
        return bound

    # ── running ─────────────────────────────────────────────────────────────────────────────────

    def dispatch(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Answer a call of `__torch_dispatch__` from this table.

        A class that derives from torch.Tensor directly writes no more than this::

            @classmethod
            def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
                return cls.table.dispatch(func, types, args, kwargs)

        When the class declines, the classes after it are asked; when all have, it is an error,
        because torch's own would be taken for "unsupported operand".

        Raises: HandlerError for a TypeError of a handler; HandlerResultError for a result that
        the operator cannot give; NoHandlerError if nobody takes the call.
        """
        if kwargs is None:
            kwargs = {}
        entry = self._entries[func]
        if entry.composite and private.may_set_bits(entry.composite, args):
            with private.as_in_parts():
                result = self._answer(func, types, args, kwargs)
        elif entry.simple:  # the same as _answer, one call less
            try:
                result = entry.run(*args, **kwargs)
            except TypeError as error:
                raise handler_failed(func, entry.handler, error) from error
            if result.__class__ is entry.at_once:
                return result
            if result is not NotImplemented:
                return entry.check(result)
        else:
            result = self._answer(func, types, args, kwargs)
        if result is NotImplemented:
            return self._after_declining(func, types, args, kwargs)
        return result

    def _answer(
        self, func: Any, types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        entry = self._entries[func]
        if entry.kind == "missing":
            return self._answer_missing(func, args, kwargs)
        try:
            if entry.with_types:
                result = entry.run(func, types, args, kwargs)
            else:
                result = entry.run(*args, **kwargs)
        except TypeError as error:
            raise handler_failed(func, entry.handler, error) from error
        if result.__class__ is entry.at_once or result is NotImplemented:
            return result
        return entry.check(result)

    def _answer_missing(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if self.missing == "next":
            return NotImplemented
        parts = private.composite_kernel(func) if hasattr(func, "_schema") else None
        if self.missing == "error" or parts is None:
            raise self._no_handler(func, parts is not None)
        # The only part of a question for sizes is the question itself.
        call = func, *map(id, args)
        running = _running.__dict__.setdefault("calls", [])
        if call in running:
            raise self._no_handler(func, composite=False)
        running.append(call)
        try:
            with private.state_of_caller():
                return parts(*args, **kwargs)
        finally:
            running.pop()

    def _no_handler(self, func: Any, composite: bool) -> BaseException:
        whose = f" of {self._owner.__qualname__}" if self._owner is not None else ""
        remedy = (
            f"The table{whose} has no handler for it and its missing is {self.missing!r}: "
            "register one, or a fallback"
        )
        if composite and self.missing == "error":
            remedy += ", or have its parts with missing='decompose'"
        declined = (self._owner,) if self._is_of_tensors() and self._owner is not None else ()
        return nobody_took(func, declined, remedy + ".")

    def _is_of_tensors(self) -> bool:
        return self._owner is not None and issubclass(self._owner, torch.Tensor)

    def _after_declining(
        self, func: Any, types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        asked = answering(types)
        one = self._asked_now(asked)
        if isinstance(one, private.TorchDispatchMode):
            from dispatch_core._mode import DispatchMode, hand_on

            if isinstance(one, DispatchMode):
                return NotImplemented  # which does the same
            return hand_on(func, types, args, kwargs)
        if one is None:
            return NotImplemented
        result = ask_classes(func, asked[asked.index(one) + 1 :], types, args, kwargs)
        if result is NotImplemented:
            raise nobody_took(func, asked)
        return result

    def _asked_now(self, types: Sequence[type]) -> Any:
        """Find which of a call's classes, or which mode, has come here for an answer."""
        if self._owner in types and len(types) == 1:
            return self._owner
        # The table may be another class's, or nobody's. So look who called.
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            code = frame.f_code
            if code.co_name == "__torch_dispatch__" and code.co_argcount:
                one = frame.f_locals.get(code.co_varnames[0])
                if one in types or isinstance(one, private.TorchDispatchMode):
                    return one
            frame = frame.f_back
        if self._owner in types or len(types) == 1:
            return self._owner if self._owner in types else types[0]
        return None

    def coverage(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Coverage:
        """Run `fn(*args, **kwargs)` and list which operators were hit, how, and which missing.

        The table of a tensor class is asked for the calls on its class; that of a mode, or of no
        class, for all of them: it answers what it has handlers for, and the rest runs as usual.
        """
        from dispatch_core._coverage import measure

        return measure(self, fn, args, kwargs)

    def __repr__(self) -> str:
        owner = f" of {self._owner.__qualname__}" if self._owner is not None else ""
        counts = f"{len(self._exact)} overloads, {len(self._packets)} packets"
        more = ", a fallback" if self._fallback is not None else ""
        rules = f", {len(self._rules)} rules" if self._rules else ""
        return f"<HandlerTable{owner}: {counts}{rules}{more}; missing={self.missing!r}>"


def _composites(ops: Iterable[Any], packets: Iterable[Any]) -> list[Any]:
    """List the composite operators among overloads and those of packets."""
    overloads = [*ops]
    for packet in packets:
        overloads += private.dispatched_overloads(packet)
    return [op for op in overloads if private.composite_kind(op) == "implicit"]


def _forget_entries() -> None:
    with _lock:
        for table in list(_tables):
            table._entries.clear()
            table._remembered.clear()


for _function in (HandlerTable.dispatch, HandlerTable._answer):
    private.skip_in_dynamo(_function)
