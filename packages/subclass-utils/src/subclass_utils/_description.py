"""Say what a wrapper looks like, and make one that looks like it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from subclass_utils._outside import new_outside, outside_like
from subclass_utils._torch_private import inference_mode, set_conj, set_neg

__all__ = ["all_views_of", "as_view_of", "describe_outside", "make_described"]


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
    inference: bool | None = None,
) -> Any:
    """Make a wrapper around inner tensors, without calling the class's own `__new__`.

    It is an inference tensor where the first of them is, if `inference` does not say.
    """
    if inference is None or cls._transparent:
        inference = inner[0].is_inference()
    if torch.is_inference_mode_enabled() is not inference:
        with inference_mode(inference):
            return make_described(cls, outside, inner, requires_grad, inference)
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
    """Give a view that is an inference tensor if what it views is one, whatever mode is on.

    What a handler makes it makes as the mode says, but torch takes no inference tensor for a view
    of a tensor from outside.
    """
    if not isinstance(value, torch.Tensor) or not isinstance(source, torch.Tensor):
        return value
    inference = source.is_inference()
    if value is source or value.is_inference() is inference:
        return value
    cls: Any = type(value)
    if not hasattr(cls, "inner_tensors"):
        return value if inference else _from_outside(value)
    inner = [getattr(value, name) for name in cls.inner_tensors]
    if cls._transparent or not inference:
        inner = [as_view_of(tensor, source) for tensor in inner]
    made = make_described(cls, describe_outside(value), inner, inference=inference)
    made.__dict__.update({k: v for k, v in value.__dict__.items() if k not in cls.inner_tensors})
    return made


def all_views_of(result: Any, source: Any) -> Any:
    """Give a result's views of one tensor as `as_view_of` does."""
    if not torch.is_inference_mode_enabled() and not (
        isinstance(source, torch.Tensor) and source.is_inference()
    ):
        return result
    if isinstance(result, list | tuple):
        return [as_view_of(value, source) for value in result]
    return as_view_of(result, source)


def _from_outside(tensor: torch.Tensor) -> torch.Tensor:
    """Give a plain tensor of an inference tensor's values that is none."""
    with inference_mode(False):
        if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided:
            return tensor.clone()
        made = tensor.new_empty(0)
        size, stride, offset = tensor.size(), tensor.stride(), tensor.storage_offset()
        return made.set_(tensor.untyped_storage(), offset, size, stride)
