"""Name every private part of torch that wrapper subclasses use, and check that it is there.

torch promises nothing about these names. They are looked up once, at import, so that a torch
which lacks one fails with one clear sentence instead of somewhere inside an operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import CodeType
from typing import Any

import torch
import torch._C
import torch._C._dynamo.eval_frame as _eval_frame
import torch._ops

__all__ = [
    "HIGHER_ORDER_OPERATOR",
    "NO_MEMORY_KEYS",
    "decompose",
    "fast_call",
    "increment_version",
    "inference_mode",
    "is_alias_of",
    "is_composite_implicit",
    "is_fake",
    "make_outside",
    "no_torch_function",
    "outside_of_handlers",
    "restore_caller_state",
    "set_conj",
    "set_neg",
    "share_storage",
    "skip_in_dynamo",
]


def _look_up(owner: object, name: str) -> Any:
    try:
        return getattr(owner, name)
    except AttributeError:
        where = getattr(owner, "__name__", repr(owner))
        raise ImportError(
            f"subclass_utils needs {where}.{name}, which torch {torch.__version__} does not have. "
            "Install a torch that this version of subclass_utils supports (2.13 or later), "
            "or a newer subclass_utils."
        ) from None


_dispatch_key = _look_up(torch._C, "DispatchKey")

NO_MEMORY_KEYS: Any = _look_up(torch._C, "DispatchKeySet")(_look_up(_dispatch_key, "AutocastIPU"))
"""An extra dispatch key of every wrapper.

Nobody registers kernels for it and torch excludes it by default, so it changes nothing; where
a guard includes it, an operator on a wrapper ends in an error instead of reading memory that
a wrapper does not have.
"""

make_outside: Callable[..., Any] = _look_up(torch.Tensor, "_make_wrapper_subclass")

no_torch_function: Any = _look_up(torch._C, "_disabled_torch_function_impl")

restore_caller_state: Callable[[], AbstractContextManager[None]] = _look_up(
    torch._C, "_RestorePythonTLSSnapshot"
)
"""Put the dispatcher's thread-local state back to what it was where the operator was called.

While a handler runs torch excludes autograd, version counting, the conjugate and negative bits.
"""

_is_excluded: Callable[[Any], bool] = _look_up(torch._C, "_dispatch_tls_is_dispatch_key_excluded")
_snapshot_key = _look_up(_dispatch_key, "PythonTLSSnapshot")


def outside_of_handlers() -> bool:
    """Say whether no dispatched call is under way, so that there is no state to restore."""
    return not _is_excluded(_snapshot_key)


inference_mode: Callable[[bool], AbstractContextManager[None]] = _look_up(
    torch._C, "_InferenceMode"
)
increment_version: Callable[[Sequence[torch.Tensor]], None] = _look_up(
    torch._C, "_increment_version"
)
is_alias_of: Callable[[torch.Tensor, torch.Tensor], bool] = _look_up(torch._C, "_is_alias_of")
set_conj: Callable[[torch.Tensor, bool], None] = _look_up(torch._C, "_set_conj")
set_neg: Callable[[torch.Tensor, bool], None] = _look_up(torch._C, "_set_neg")
share_storage: Callable[[torch.Tensor, torch.Tensor], None] = _look_up(
    torch, "_functionalize_unsafe_set"
)
"""Give the first tensor the storage of the second."""

HIGHER_ORDER_OPERATOR: type[Any] = _look_up(torch._ops, "HigherOrderOperator")

_has_kernel: Callable[[str, str], bool] = _look_up(
    torch._C, "_dispatch_has_kernel_for_dispatch_key"
)


def is_composite_implicit(op: Any) -> bool:
    """Say whether an overload is made of other operators, which torch derives autograd from."""
    return _has_kernel(op.name(), "CompositeImplicitAutograd")


def fast_call(op: Any) -> Callable[..., Any]:
    """Give what `OpOverload.__call__` ends in, without its Python frame."""
    if type(op) is not torch._ops.OpOverload:
        return op  # type: ignore[no-any-return]
    call: Callable[..., Any] = getattr(op, "_op", op)
    return call


def decompose(op: Any) -> Callable[..., Any]:
    """Give what runs the parts of a composite operator."""
    method: Callable[..., Any] = _look_up(op, "decompose")
    return method


def is_fake(tensor: torch.Tensor) -> bool:
    """Say whether a tensor is one that torch.compile traces with."""
    return type(tensor).__name__ in ("FakeTensor", "FunctionalTensor") and type(
        tensor
    ).__module__.startswith("torch._subclasses")


def skip_in_dynamo(code: CodeType) -> None:
    """Tell torch.compile to run this code as it is, and everything that it calls."""
    skip = _eval_frame._FrameAction.SKIP
    _eval_frame.set_code_exec_strategy(code, _eval_frame._FrameExecStrategy(skip, skip))


for _name in ("set_code_exec_strategy", "_FrameAction", "_FrameExecStrategy"):
    _look_up(_eval_frame, _name)
