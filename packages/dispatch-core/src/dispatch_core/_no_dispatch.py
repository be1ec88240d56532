"""Run operators without modes and without the handlers of subclasses."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from dispatch_core import _torch_private as private
from dispatch_core._describe import op_name
from dispatch_core._errors import MemorylessError
from dispatch_core._mode_stack import QuietMode
from dispatch_core._scopes import Scope

__all__ = ["is_memoryless", "no_dispatch"]

_PLAIN = (torch.Tensor, torch.nn.Parameter)

# What torch asks of a class that answers for its sizes, layout or device. The shell knows them too.
_QUESTIONS = frozenset(
    [f"aten::{name}" for name in ("size", "stride", "numel", "storage_offset", "is_contiguous")]
    + [f"aten::sym_{name}" for name in ("size", "stride", "numel", "storage_offset")]
    + ["aten::dim", "aten::sym_is_contiguous", "aten::is_strides_like_format"]
    + ["aten::is_non_overlapping_and_dense", "prim::device", "prim::layout"]
)


def no_dispatch() -> Scope:
    """Run operators without modes and without the handlers of subclasses.

    A subclass that owns memory is computed on as the plain tensor it also is. A wrapper subclass
    has none; torch's own switch would read from address zero and end the process, so here any
    operator on a wrapper raises.

    Only the entering thread is affected. A mode that is entered inside sees the operators, and
    what it passes on runs without the modes outside. Also a decorator, for functions and
    generators; a plain `with` in a generator stays on while the generator is suspended.

    Raises: MemorylessError from an operator that was given a wrapper.
    """
    return _NoDispatch()


class _NoDispatch(QuietMode):
    """The innermost mode while dispatch is off: it runs everything itself."""

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if types:
            _refuse_wrappers(func, args, kwargs or {})
        if private.sets_bits(func, args):
            with private.disable_dispatch(), private.as_in_parts():
                return func(*args, **(kwargs or {}))
        with private.disable_dispatch():
            return func(*args, **(kwargs or {}))


private.skip_in_dynamo(_NoDispatch.__torch_dispatch__)


def _refuse_wrappers(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    for position, name, value in _tensors(args, kwargs):
        if type(value) not in _PLAIN and private.has_python_key(value) and is_memoryless(value):
            if func.name().partition(".")[0] in _QUESTIONS:
                return
            if not name:
                schema = getattr(func, "_schema", None)
                name = schema.arguments[position].name if schema is not None else str(position)
            raise MemorylessError(
                f"{op_name(func)}: argument {name!r} is a {type(value).__qualname__}, which wraps "
                "a tensor and has no memory of its own, and no_dispatch() turned its "
                "__torch_dispatch__ off. Pass the tensor that it wraps, or leave no_dispatch() "
                "for this operator.",
                overload=func,
                argument=name,
                cls=type(value),
            )


def _tensors(
    args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[int, str, torch.Tensor]]:
    for position, name, value in (
        *((index, "", value) for index, value in enumerate(args)),
        *((-1, key, value) for key, value in kwargs.items()),
    ):
        for item in value if isinstance(value, list | tuple) else (value,):
            if isinstance(item, torch.Tensor):
                yield position, name, item


def is_memoryless(tensor: torch.Tensor) -> bool:
    """Say whether computing on the tensor's own memory would read where there is none."""
    if private.key_is_set(private.dispatch_keys(tensor), "Meta"):
        return False  # nothing computes there
    fake = sys.modules.get("torch._subclasses.fake_tensor")
    if fake is not None and isinstance(tensor, fake.FakeTensor):
        return True  # torch warns of asking it where its memory is
    try:
        with private.disable_torch_function(), private.disable_dispatch():
            if not tensor.numel():
                return False
            start = tensor.storage_offset() * tensor.element_size()
            return private.data_pointer(tensor) == start
    except Exception:
        return True  # no strided memory that one could point to
