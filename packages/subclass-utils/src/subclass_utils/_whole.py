"""Operators that have to be taken whole, before torch takes them apart.

Most composite operators may come in parts. Some do otherwise when they are given a subclass: they
read memory that a wrapper does not have, write into plain tensors of their own, go another way
than for a plain tensor, or resize their `out` so that it counts as a version of its own. Linear
stays in parts, and has its versions counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from subclass_utils._torch_private import (
    composite_out_operators,
    fall_through_wrapper_key,
    increment_version,
    keys_below_wrapper_key,
    others_are_watching,
    wrapper_kernels,
)

__all__ = ["install"]

_aten = torch.ops.aten


def _tensor_split(self: Any, sections: Any, dim: int) -> Any:
    """Read the tensor of indices by operators, not from its memory."""
    if sections.dim() > 1 or sections.dtype is not torch.int64 or sections.device.type != "cpu":
        return NotImplemented  # torch says what is wrong
    if sections.dim() == 0:
        return _aten.tensor_split.sections(self, int(sections.item()), dim)
    values = [int(sections[i].item()) for i in range(sections.size(0))]
    return _aten.tensor_split.indices(self, values, dim)


def _overload(name: str) -> Any:
    base, _, overload = name.partition("::")[2].partition(".")
    return getattr(getattr(_aten, base), overload or "default")


def _kernel(name: str, wrapper_type: type[Any], differentiable: bool = True) -> Callable[..., Any]:
    """Make a kernel that hands the operator whole to the wrappers' class, where that may be."""
    op: Any = None

    def run(keys: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal op
        if op is None:
            op = _overload(name)
        for value in (*args, *kwargs.values()):
            for item in value if isinstance(value, list | tuple) else (value,):
                if isinstance(item, wrapper_type):
                    answer = type(item)._run_whole(op, args, kwargs, differentiable)
                    if answer is not NotImplemented:
                        return answer
        return op.redispatch(keys & keys_below_wrapper_key, *args, **kwargs)

    return run


def _tensor_split_kernel(keys: Any, self: Any, sections: Any, dim: int = 0) -> Any:
    answer = _tensor_split(self, sections, dim)
    if answer is not NotImplemented:
        return answer
    op = _aten.tensor_split.tensor_indices_or_sections
    return op.redispatch(keys & keys_below_wrapper_key, self, sections, dim)


def _linear_kernel(wrapper_type: type[Any]) -> Callable[..., Any]:
    """Make a kernel that runs linear's parts, and counts the writes that torch left out.

    Torch adds the bias in place, but not where the bias is a subclass. Whether there was such an
    addition is seen by the result: a bias that went into addmm left that, or a view of it.
    """
    op = _aten.linear.default

    def run(keys: Any, input: Any, weight: Any, bias: Any = None) -> Any:
        result = op.redispatch(keys & keys_below_wrapper_key, input, weight, bias)
        if (
            isinstance(bias, wrapper_type)
            and input.dim() != 2
            and isinstance(result, wrapper_type)
            and type(result)._transparent
            and not (result.is_inference() or result._is_view() or others_are_watching())
            and torch.autograd.forward_ad.unpack_dual(bias).tangent is None
        ):
            removes_dim = input.dim() == 1 and weight.dim() == 2  # matmul's squeeze_
            inner = getattr(result, result.inner_tensors[0])
            for tensor in (result, inner) if not inner.is_inference() else (result,):
                increment_version((tensor,) * (2 if removes_dim else 1))
        return result

    return run


def install(wrapper_type: type[Any]) -> None:
    """Register the kernels, for tensors that carry the wrappers' own dispatch key."""
    fall_through_wrapper_key()
    register = wrapper_kernels("aten")
    register("aten::tensor_split.tensor_indices_or_sections", _tensor_split_kernel)
    register("aten::linear", _linear_kernel(wrapper_type))
    rank = [
        f"aten::linalg_matrix_rank.{name}".removesuffix(".default")
        for name in _aten.linalg_matrix_rank.overloads()
    ]
    for name in {"aten::one_hot", *rank}:
        register(name, _kernel(name, wrapper_type, differentiable=False))
    for name in {"aten::max_pool1d", *composite_out_operators()} - {*rank}:
        register(name, _kernel(name, wrapper_type))
