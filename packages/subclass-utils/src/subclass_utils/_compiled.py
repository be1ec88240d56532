"""Take wrappers apart and put them together for torch.compile, and say what gradients are like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from subclass_utils._description import make_described
from subclass_utils._shared_data import reclaim, root_of
from subclass_utils._torch_private import as_plain_tangent, is_functional

__all__ = ["concrete", "example_of_gradient", "gradient_as_foreseen", "parts_of", "put_together"]


def concrete(value: Any) -> Any:
    """Give a metadata value with numbers for the symbols in it, and builtins for immutable ones.

    torch.compile keeps what a wrapper says beside its inner tensors as it is, and hands it out with
    every later result. So a symbol among it is one value, for which torch makes a guard here.
    """
    cls = type(value)
    if cls in (torch.SymInt, torch.SymFloat, torch.SymBool):
        return {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}[cls](value)
    if isinstance(value, list):
        return [concrete(item) for item in value]
    if cls in (tuple, torch.Size):
        return cls([concrete(item) for item in value])
    if isinstance(value, dict):
        return {key: concrete(item) for key, item in value.items()}
    return value


def parts_of(wrapper: Any) -> tuple[list[str], Any]:
    """Give the names of a wrapper's inner tensors, and what else it takes to build it again.

    A compiled function writes into the inner tensors themselves, so they are the wrapper's own
    from then on.
    """
    cls = type(wrapper)
    if not cls._transparent:
        reclaim(root_of(wrapper))
    metadata = tuple(concrete(getattr(wrapper, name)) for name in cls.metadata)
    outside: tuple[Any, ...] = ()
    if not cls._transparent:
        strided = wrapper.layout is torch.strided
        outside = (
            wrapper.dtype,
            wrapper.layout,
            concrete(wrapper.storage_offset()) if strided else None,
            wrapper.is_conj(),
            wrapper.is_neg(),
        )
    return list(cls.inner_tensors), (metadata, outside, wrapper.requires_grad)


def put_together(
    cls: type[Any], inner: Mapping[str, Any], context: Any, size: Any, stride: Any
) -> Any:
    """Build a wrapper from what `parts_of` gave."""
    metadata, outside, requires_grad = context
    tensors = [inner[name] for name in cls.inner_tensors]
    description: dict[str, Any] = {}
    if outside:
        dtype, layout, offset, conj, neg = outside
        description = {
            "size": size,
            "stride": stride,
            "offset": offset,
            "dtype": dtype,
            "layout": layout,
            "device": tensors[0].device,
            "conj": conj,
            "neg": neg,
        }
    made = make_described(cls, description, tensors, requires_grad)
    for name, value in zip(cls.metadata, metadata, strict=True):
        setattr(made, name, cls._carrier.carried(value))
    if type(tensors[0]) is not torch.Tensor and is_functional(tensors[0]):
        made.__dict__["_argument"] = "whole"
        if cls._is_part:
            tensors[0].__dict__["_argument"] = "view"
    return made


def example_of_gradient(wrapper: Any) -> Any:
    """Say, by an example, what torch.compile is to expect as a gradient of this result.

    It is plain where results are: it comes from an operator on them.
    """
    cls = type(wrapper)
    if not cls._transparent:
        plain = cls.without_handler == "to_plain"
        return as_plain_tangent(wrapper.to_plain()) if plain else wrapper
    inner = getattr(wrapper, cls.inner_tensors[0])
    if cls.mixing == "unwrap":
        return as_plain_tangent(inner)
    if hasattr(type(inner), "inner_tensors"):
        expected = example_of_gradient(inner)
        if expected is not inner:
            return cls.from_plain(expected, wrapper)
    return wrapper


def gradient_as_foreseen(gradient: Any, expected: Any, expected_type: type[Any] | None) -> Any:
    """Give a gradient the metadata that torch.compile foresaw; None where that cannot be."""
    cls = type(gradient)
    if expected_type is not None and expected_type is not cls:
        return gradient.to_plain() if expected_type is torch.Tensor else None
    names, (_, outside, requires_grad) = parts_of(gradient)
    if outside != expected[1]:
        return None
    inner = {name: getattr(gradient, name) for name in names}
    context = (*expected[:2], requires_grad)
    return put_together(cls, inner, context, gradient.size(), gradient.stride())
