"""Name every private part of torch that operators and handles use, and check that it is there.

torch promises nothing about these names. They are looked up once, at import, so that a torch
which lacks one fails with one clear sentence instead of somewhere inside a call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch._C
import torch._ops

if TYPE_CHECKING:
    from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

__all__ = [
    "HIGHER_ORDER_OPERATOR",
    "OP_OVERLOAD",
    "OP_OVERLOAD_PACKET",
    "SCRIPT_METHOD_OVERLOAD",
    "all_operator_names",
    "fast_call",
    "has_kernel",
    "higher_order_operators",
    "live_overload_names",
    "live_schema",
    "numbers_as_tensors",
    "overload_name",
    "packet_name",
]


def _look_up(owner: object, name: str) -> Any:
    try:
        return getattr(owner, name)
    except AttributeError:
        where = getattr(owner, "__name__", repr(owner))
        raise ImportError(
            f"dispatch_core needs {where}.{name}, which torch {torch.__version__} does not have. "
            "Install a torch that this version of dispatch_core supports (2.13 or later), "
            "or a newer dispatch_core."
        ) from None


_get_schema: Callable[[str, str], object] = _look_up(torch._C, "_get_schema")
_schemas_of: Callable[[str], list[Any]] = _look_up(torch._C, "_jit_get_schemas_for_operator")
_all_names: Callable[[], list[str]] = _look_up(torch._C, "_dispatch_get_all_op_names")
_has_kernel: Callable[[str, str], bool] = _look_up(
    torch._C, "_dispatch_has_kernel_for_dispatch_key"
)
_higher_order: dict[str, HigherOrderOperator] = _look_up(torch._ops, "_higher_order_ops")

numbers_as_tensors: Callable[[str], bool] = _look_up(torch._C, "_should_allow_numbers_as_tensors")
"""Say whether a base name ('add') takes Python numbers where its schema says Tensor."""

OP_OVERLOAD: type[OpOverload[..., Any]] = _look_up(torch._ops, "OpOverload")
OP_OVERLOAD_PACKET: type[OpOverloadPacket[..., Any]] = _look_up(torch._ops, "OpOverloadPacket")
HIGHER_ORDER_OPERATOR: type[HigherOrderOperator] = _look_up(torch._ops, "HigherOrderOperator")
SCRIPT_METHOD_OVERLOAD: type[OpOverload[..., Any]] = _look_up(torch._ops, "TorchBindOpOverload")


def live_schema(base: str, overload: str) -> str | None:
    """Give the text of the schema that the installed torch has, None where it has none.

    `overload` is '' for the default overload. No OpOverload is made.
    """
    try:
        return str(_get_schema(base, overload))
    except RuntimeError:
        return None


def live_overload_names(base: str) -> tuple[str, ...]:
    """List the overloads ('' for the default one) that torch has of a name like 'aten::addmv'."""
    return tuple(schema.overload_name for schema in _schemas_of(base))


def all_operator_names() -> list[str]:
    """List the qualified names of all operators that the dispatcher knows; about 3 ms."""
    return _all_names()


def has_kernel(qualified_name: str, key: str) -> bool:
    """Say whether an operator has a kernel for a dispatch key, given by name."""
    return _has_kernel(qualified_name, key)


def higher_order_operators() -> dict[str, HigherOrderOperator]:
    """Give torch's own table of higher-order operators, by name."""
    return _higher_order


def packet_name(packet: OpOverloadPacket[..., Any]) -> str:
    """Give the name of a packet as 'aten::addmv'."""
    name: str = _look_up(packet, "_qualified_op_name")
    return name


def overload_name(op: OpOverload[..., Any]) -> str:
    """Give the qualified name of an overload, 'aten::addmv.out'."""
    name: str = _look_up(op, "_name")
    return name


def fast_call(op: OpOverload[..., Any]) -> Callable[..., Any]:
    """Give what `OpOverload.__call__` ends in, without its Python frame.

    Operators with script objects among their arguments choose their way in Python, per call:
    for them it is the overload itself.
    """
    if isinstance(op, SCRIPT_METHOD_OVERLOAD):
        return op
    call: Callable[..., Any] = getattr(op, "_op", op)
    return call
