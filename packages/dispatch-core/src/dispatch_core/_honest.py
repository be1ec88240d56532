"""Say what went wrong in a handler, where torch and Python's operators would hide it.

A TypeError that leaves an operator turns into "unsupported operand", or makes `a == b` answer
False; so none does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dispatch_core import _torch_private as private
from dispatch_core._describe import describe_handler, op_name
from dispatch_core._errors import HandlerError, NoHandlerError
from dispatch_core._results import result_check

__all__ = ["answering", "ask_classes", "class_order", "handler_failed", "nobody_took"]


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
