"""Make the outside of a wrapper agree with its inner tensor."""

from __future__ import annotations

from typing import Any

import torch

from subclass_utils._torch_private import (
    NO_MEMORY_KEYS,
    inference_mode,
    is_alias_of,
    make_outside,
    set_conj,
    set_neg,
    share_storage,
)

__all__ = ["alias_outside", "outside_differs", "outside_like", "update_outside"]

_is_inference_mode = torch.is_inference_mode_enabled
_set_data = torch.Tensor.data.__set__  # type: ignore[attr-defined]


def outside_like(cls: type[Any], inner: torch.Tensor, requires_grad: bool = False) -> Any:
    """Make a wrapper without attributes whose outside is that of `inner`."""
    if _is_inference_mode() is not inner.is_inference():
        with inference_mode(inner.is_inference()):
            return _outside(cls, inner, requires_grad)
    return _outside(cls, inner, requires_grad)


def _outside(cls: type[Any], inner: torch.Tensor, requires_grad: bool) -> Any:
    layout = inner.layout
    strided = layout is torch.strided
    outer = make_outside(
        cls,
        inner.size(),
        inner.stride() if strided else None,
        inner.storage_offset() if strided else None,
        None,
        inner.dtype,
        layout,
        inner.device,
        False,
        requires_grad,
        None,
        False,
        False,
        NO_MEMORY_KEYS,
    )
    if inner.is_conj():
        set_conj(outer, True)
    if inner.is_neg():
        set_neg(outer, True)
    return outer


def alias_outside(cls: type[Any], inner: torch.Tensor, base: torch.Tensor) -> Any:
    """Make a wrapper without attributes for a view, sharing the storage of its base's outside."""
    outer = outside_like(cls, inner)
    if inner.layout is torch.strided and base.layout is torch.strided:
        share_storage(outer, base)
    return outer


def outside_differs(outer: torch.Tensor, inner: torch.Tensor) -> bool:
    """Say whether an operator that wrote `inner` changed its shape or place in memory."""
    return (
        outer.size() != inner.size()
        or (
            inner.layout is torch.strided
            and (
                outer.stride() != inner.stride() or outer.storage_offset() != inner.storage_offset()
            )
        )
        or outer.dtype is not inner.dtype
        or outer.is_conj() is not inner.is_conj()
        or outer.is_neg() is not inner.is_neg()
    )


def update_outside(
    outer: torch.Tensor, inner: torch.Tensor, sources: tuple[tuple[Any, torch.Tensor], ...] = ()
) -> None:
    """Bring a wrapper's outside in step with its inner tensor.

    `sources` are pairs of another wrapper and its inner tensor whose memory `inner` may now use.
    """
    base = outer
    for other, memory in sources:
        strided = inner.layout is memory.layout is torch.strided
        if other is not outer and strided and is_alias_of(inner, memory):
            base = other
    _set_data(outer, alias_outside(type(outer), inner, base))
