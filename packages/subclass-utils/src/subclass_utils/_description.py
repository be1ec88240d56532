"""Say what a wrapper looks like, and make one that looks like it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from subclass_utils._outside import new_outside, outside_like
from subclass_utils._torch_private import inference_mode, set_conj, set_neg

__all__ = ["as_view_of", "describe_outside", "make_described"]


def describe_outside(wrapper: Any) -> dict[str, Any]:
    """Say what an outside that differs from the inner tensors looks like."""
    strided = wrapper.layout is torch.strided
    return {
        "size": tuple(wrapper.size()),
        "stride": tuple(wrapper.stride()) if strided else None,
        "offset": wrapper.storage_offset() if strided else None,
        "dtype": wrapper.dtype,
        "layout": wrapper.layout,
        "device": wrapper.device,
        "conj": wrapper.is_conj(),
        "neg": wrapper.is_neg(),
    }


def make_described(
    cls: type[Any],
    outside: Mapping[str, Any],
    inner: Sequence[torch.Tensor],
    requires_grad: bool = False,
) -> Any:
    """Make a wrapper around inner tensors, without calling the class's own `__new__`.

    It is an inference tensor where they are.
    """
    inference = inner[0].is_inference()
    if torch.is_inference_mode_enabled() is not inference:
        with inference_mode(inference):
            return make_described(cls, outside, inner, requires_grad)
    if cls._transparent:
        made = outside_like(cls, inner[0], requires_grad)
    else:
        made = new_outside(
            cls,
            outside["size"],
            outside["stride"],
            outside["offset"],
            outside["dtype"],
            outside["layout"],
            outside["device"],
            requires_grad,
        )
        if outside["conj"]:
            set_conj(made, True)
        if outside["neg"]:
            set_neg(made, True)
    for name, tensor in zip(cls.inner_tensors, inner, strict=True):
        setattr(made, name, tensor)
    return made


def as_view_of(value: Any, source: Any) -> Any:
    """Give a view that is no inference tensor, where what it views is none.

    Under inference mode a handler makes inference tensors; torch takes none for a view of a tensor
    from outside.
    """
    if not isinstance(value, torch.Tensor) or not isinstance(source, torch.Tensor):
        return value
    if value is source or not value.is_inference() or source.is_inference():
        return value
    with inference_mode(False):
        if not hasattr(type(value), "inner_tensors"):
            return value.clone()
        cls: Any = type(value)
        inner = [as_view_of(getattr(value, name), source) for name in cls.inner_tensors]
        made = make_described(cls, describe_outside(value), inner)
    made.__dict__.update({k: v for k, v in value.__dict__.items() if k not in cls.inner_tensors})
    return made
