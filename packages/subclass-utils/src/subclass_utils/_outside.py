"""Make the outside of a wrapper agree with its inner tensor."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch

from subclass_utils._errors import LayoutError
from subclass_utils._torch_private import (
    inference_mode,
    is_alias_of,
    make_outside,
    mkldnn_layout,
    outside_keys,
    set_conj,
    set_neg,
    set_version,
    share_storage,
    skip_in_dynamo,
)

__all__ = [
    "alias_outside",
    "give_keys",
    "keys_of",
    "new_outside",
    "outside_differs",
    "outside_like",
    "takes_composites",
    "update_outside",
]

# Those that torch can report without asking the handler (prim::layout).
_LAYOUTS = (torch.strided, torch.sparse_coo, mkldnn_layout)
_is_inference_mode = torch.is_inference_mode_enabled
_set_data = torch.Tensor.data.__set__  # type: ignore[attr-defined]
_kernels_are_registered = False


def new_outside(
    cls: type[Any],
    size: Sequence[int],
    stride: Sequence[int] | None,
    offset: int | torch.SymInt | None,
    dtype: torch.dtype,
    layout: torch.layout,
    device: torch.device | str,
    requires_grad: bool,
    asks_for_layout: bool = False,
) -> Any:
    """Make a wrapper without attributes, with those of our own dispatch keys that it needs."""
    return make_outside(
        cls,
        size,
        stride,
        offset,
        None,
        dtype,
        layout,
        device,
        False,
        requires_grad,
        None,
        False,
        asks_for_layout,
        keys_of(cls, dtype),
    )


def keys_of(cls: type[Any], dtype: torch.dtype) -> Any:
    """Give the dispatch keys of our own whose kernels may matter to a wrapper; None for none.

    Where the outside differs, only those kernels for the wrappers' own key do that keep torch from
    reading indices and sizes, which are of int64, from memory that is not there.

    The kernels are registered before the first wrapper is made, and not at import: torch takes
    some milliseconds to look through its operators.
    """
    try:
        return cls._keys[dtype]
    except KeyError:
        pass
    if not _kernels_are_registered:
        _register_kernels()
    simple = cls._transparent or dtype is torch.int64
    keys = cls._keys[dtype] = outside_keys(simple, cls._keys_for_composites)
    return keys


def takes_composites(tensor: Any) -> bool:
    """Say whether a tensor's class has handlers for composite operators.

    One that wraps such a tensor takes them apart, and nothing may be done whole inside it then.
    """
    return tensor.__class__ is not torch.Tensor and getattr(
        tensor.__class__, "_keys_for_composites", False
    )


def give_keys(wrapper: Any) -> None:
    """Give a wrapper the dispatch keys of our own that its class has come to need."""
    _set_data(wrapper, alias_outside(type(wrapper), wrapper, wrapper))


def _register_kernels() -> None:
    global _kernels_are_registered
    import_module("subclass_utils._whole")  # Python lets one thread do it, and the others wait
    import_module("subclass_utils._sequences")
    import_module("subclass_utils._collectives")
    import_module("subclass_utils._set_data")
    import_module("subclass_utils._sparse")
    _kernels_are_registered = True


skip_in_dynamo(_register_kernels.__code__)


def outside_like(cls: type[Any], inner: torch.Tensor, requires_grad: bool = False) -> Any:
    """Make a wrapper without attributes whose outside is that of `inner`.

    It is an inference tensor if `inner` is one, whatever mode is on: a view made under inference
    mode of a tensor from outside is none.
    """
    inference = inner.is_inference()
    if _is_inference_mode() is not inference:
        with inference_mode(inference):
            return _outside(cls, inner, requires_grad)
    return _outside(cls, inner, requires_grad)


def _outside(cls: type[Any], inner: torch.Tensor, requires_grad: bool) -> Any:
    if inner.is_nested:
        raise LayoutError(
            f"{cls.__qualname__}: a nested tensor has no size that an outside could have, so it "
            "cannot be wrapped. Nest what is inside (torch.nested.nested_tensor of "
            f"tensor.{cls.inner_tensors[0]}), or pad (torch.nn.utils.rnn.pad_sequence). A "
            "torch.nn.TransformerEncoder nests by itself where it is given a padding mask: say "
            "enable_nested_tensor=False.",
            cls=cls,
        )
    layout = inner.layout
    strided = layout is torch.strided
    outer = new_outside(
        cls,
        inner.size(),
        inner.stride() if strided else None,
        inner.storage_offset() if strided else None,
        inner.dtype,
        layout,
        inner.device,
        requires_grad,
        layout not in _LAYOUTS,
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
    if outer.size() != inner.size() or outer.dtype is not inner.dtype:
        return True
    if outer.is_conj() is not inner.is_conj() or outer.is_neg() is not inner.is_neg():
        return True
    return inner.layout is torch.strided and (
        outer.stride() != inner.stride() or outer.storage_offset() != inner.storage_offset()
    )


def update_outside(
    outer: torch.Tensor,
    inner: torch.Tensor,
    others: tuple[tuple[Any, torch.Tensor], ...] = (),
    *,
    keeps_memory: bool = True,
) -> None:
    """Bring a wrapper's outside in step with its inner tensor.

    `others` are pairs of a wrapper and its inner tensor, whose memory `inner` may use now. It no
    more has its own of before unless it `keeps_memory`.
    """
    base = outer if keeps_memory else None
    for other, memory in others:
        strided = inner.layout is memory.layout is torch.strided
        if other is not outer and strided and is_alias_of(inner, memory):
            base = other
    cls = type(outer)
    made = outside_like(cls, inner) if base is None else alias_outside(cls, inner, base)
    _set_data(outer, made)


def follow_version(outer: torch.Tensor, inner: torch.Tensor) -> None:
    """Give a fresh wrapper the version that its inner tensor has come to."""
    if not inner.is_inference() and inner._version:
        set_version(outer, inner._version)
