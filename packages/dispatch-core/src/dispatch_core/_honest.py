"""Say what went wrong in a handler, where torch and Python's operators would hide it.

A TypeError that leaves an operator turns into "unsupported operand", or makes `a == b` answer
False; so none does. What a handler answers is compared with the schema before torch's C++ casts
it, which knows neither the operator nor the handler.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from dispatch_core import _torch_private as private
from dispatch_core._errors import HandlerError, HandlerResultError, NoHandlerError

__all__ = [
    "answering",
    "ask_classes",
    "class_order",
    "describe_handler",
    "gives_one_tensor",
    "handler_failed",
    "nobody_took",
    "op_name",
    "result_check",
]

Tensor = torch.Tensor
_NUMBERS = (numbers.Number, torch.SymInt, torch.SymFloat, torch.SymBool, Tensor)
_NUMBER_TYPES = {"int", "SymInt", "float", "SymFloat", "bool", "SymBool", "Scalar", "number"}


def op_name(func: Any) -> str:
    """Give 'aten::add.Tensor', or 'higher_order::cond'."""
    name: str = func.name()
    return name if "::" in name else f"higher_order::{name}"


def describe_handler(handler: Any) -> str:
    """Name a function with the place where it was written."""
    inner = getattr(handler, "__func__", handler)
    while not hasattr(inner, "__code__") and hasattr(inner, "func"):  # a partial
        inner = inner.func
    name = getattr(inner, "__qualname__", None) or repr(handler)
    code = getattr(inner, "__code__", None)
    return name if code is None else f"{name} ({code.co_filename}:{code.co_firstlineno})"


def handler_failed(
    func: Any, handler: Any, error: BaseException, what: str = "handler"
) -> HandlerError:
    """Make the error to raise in place of a TypeError that a handler raised."""
    return HandlerError(
        f"{op_name(func)}: {what} {describe_handler(handler)} raised "
        f"{type(error).__name__}: {error}",
        overload=func,
        handler=handler,
    )


# ── results ─────────────────────────────────────────────────────────────────────────────────────


def _fits(value: Any, kind: str) -> bool:
    if kind in ("Tensor", "Optional[Tensor]", "Tensor?"):
        return value is None or isinstance(value, Tensor)
    if kind in ("List[Tensor]", "Tensor[]"):
        if isinstance(value, list | tuple):
            return all(isinstance(item, Tensor) for item in value)
        return not isinstance(value, str | bytes | Tensor) and hasattr(value, "__iter__")
    if kind in _NUMBER_TYPES:
        return isinstance(value, _NUMBERS)
    return True


def _shown(value: Any) -> str:
    try:
        return repr(value)
    except Exception:  # the error to come is about something else
        return f"a {type(value).__name__}"


def gives_one_tensor(func: Any) -> bool:
    """Say whether an operator's only result is a tensor."""
    schema = getattr(func, "_schema", None)
    return schema is not None and [str(value.type) for value in schema.returns] == ["Tensor"]


def result_check(func: Any, handler: Any) -> Callable[[Any], Any]:
    """Make a function that gives a handler's result back, if the operator can give it.

    A list will do for a tuple; None stands for a tensor that is not there.
    Raises: HandlerResultError, where torch would say no more than "Unable to cast".
    """
    schema = getattr(func, "_schema", None)
    if schema is None:  # a higher-order operator
        return lambda result: result
    kinds = [str(value.type) for value in schema.returns]
    expected = ", ".join(kinds) if len(kinds) == 1 else f"({', '.join(kinds)})"

    def fail(result: Any) -> HandlerResultError:
        shown = _shown(result) if not isinstance(result, Tensor | list | tuple) else "it"
        got = type(result).__name__
        if isinstance(result, list | tuple):
            got += f" of {', '.join(type(item).__name__ for item in result) or 'nothing'}"
        want = f"gives {expected}" if kinds else "gives nothing, so None"
        return HandlerResultError(
            f"{op_name(func)}: handler {describe_handler(handler)} answered with a {got}, but "
            f"the operator {want}. Unable to cast {shown} to {expected if kinds else 'None'}",
            overload=func,
            handler=handler,
            expected=expected,
            result_type=type(result),
        )

    def check(result: Any) -> Any:
        if len(kinds) == 1:
            if not _fits(result, kinds[0]):
                raise fail(result)
        elif not kinds:
            if result is not None:
                raise fail(result)
        elif not (
            isinstance(result, list | tuple)
            and len(result) == len(kinds)
            and all(map(_fits, result, kinds))
        ):
            raise fail(result)
        return result

    return check


# ── declining ───────────────────────────────────────────────────────────────────────────────────


def nobody_took(func: Any, declined: Sequence[type], remedy: str = "") -> NoHandlerError:
    """Make the error of a call that nobody took; `declined` are classes that were asked."""
    name = op_name(func)
    if declined:
        names = ", ".join(cls.__qualname__ for cls in declined)
        text = f"{name}: nobody took the call; declined by {names}."
    else:
        text = f"{name}: nobody took the call."
    remedy = remedy or (
        "Register a handler for it, e.g. "
        f"@table.implements({_spell(name)}), or a fallback, in the table of one of them."
    )
    return NoHandlerError(f"{text} {remedy}", overload=func, declined=tuple(declined))


def _spell(name: str) -> str:
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    if namespace == "higher_order":
        return f"ops.{namespace}.{base}"
    return f"ops.{namespace}.{base}.{overload or 'default'}"


def answering(types: Sequence[type]) -> tuple[type, ...]:
    """Give the classes among a call's that have a handler.

    torch's C++ names torch.Tensor itself in some calls (the `detach` of `.data`, of what autograd
    saves), and `torch.nn.Parameter`. Nobody answers for these.
    """
    if not types:
        return ()
    disabled = private.disabled_torch_dispatch
    return tuple(
        [cls for cls in types if getattr(cls, "__torch_dispatch__", disabled) is not disabled]
    )


def class_order(types: Sequence[type]) -> tuple[type, ...]:
    """Order classes as torch does: as given, but a subclass before its bases."""
    order: list[type] = []
    for cls in types:
        if cls in order:
            continue
        for index, other in enumerate(order):
            if issubclass(cls, other):
                order.insert(index, cls)
                break
        else:
            order.append(cls)
    return tuple(order)


def ask_classes(
    func: Any,
    order: Sequence[type],
    types: Sequence[type],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    """Ask classes for an answer, one after the other; NotImplemented if all decline.

    Raises: HandlerError for a TypeError, whosever class raised it; HandlerResultError for an
    answer that the operator cannot give.
    """
    for cls in answering(order):
        handler = cls.__torch_dispatch__  # type: ignore[attr-defined]
        try:
            result = handler(func, types, args, kwargs)
        except TypeError as error:
            raise handler_failed(func, handler, error) from error
        if result is not NotImplemented:
            return result_check(func, handler)(result)
    return NotImplemented
