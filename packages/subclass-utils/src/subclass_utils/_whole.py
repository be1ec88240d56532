"""Operators that have to be taken whole, before torch takes them apart.

Most composite operators may come in parts. Some do otherwise when they are given a subclass: they
read memory that a wrapper does not have, write into plain tensors of their own, go another way
than for a plain tensor, or resize their `out` so that it counts as a version of its own. Linear
is taken because that is the quickest, where nobody could see its parts; else they have their
versions counted.

The kernels are registered when this is imported, which the first wrapper does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from dispatch_core._for_subclass_utils import is_kept, let_classes_answer

from subclass_utils._fast_lists import wrapping
from subclass_utils._torch_private import (
    composite_out_operators,
    fall_through_wrapper_key,
    fast_redispatch,
    has_tangents,
    increment_version,
    keys_below_wrapper_key,
    modes_are_open,
    others_are_watching,
    outside_of_handlers,
    stops_before_autograd,
    without_modes,
    wrapper_kernels,
)
from subclass_utils._transparent import Transparent
from subclass_utils._wrapper import WrapperTensor

__all__: list[str] = []

_aten = torch.ops.aten
_linear = _aten.linear.default
_plain_linear: Any = torch.nn.functional.linear  # quicker than the overload
_redispatch_linear = fast_redispatch(_linear)
_is_grad_enabled = torch.is_grad_enabled
_dispatch = WrapperTensor.__torch_dispatch__.__func__  # type: ignore[attr-defined]


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


def _kernel(name: str, differentiable: bool = True) -> Callable[..., Any]:
    """Make a kernel that hands the operator whole to the wrappers' class, where that may be."""
    op: Any = None

    def run(keys: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal op
        if op is None:
            op = _overload(name)
        for value in (*args, *kwargs.values()):
            for item in value if isinstance(value, list | tuple) else (value,):
                if isinstance(item, WrapperTensor):
                    answer = type(item)._run_whole(op, args, kwargs, differentiable)
                    if answer is not NotImplemented:
                        return answer
        return op.redispatch(keys & keys_below_wrapper_key, *args, **kwargs)

    return run


def _rank_kernel(name: str) -> Callable[..., Any]:
    """Make the kernel of `matrix_rank`, whose parts write into a plain tensor that torch makes."""
    whole = _kernel(name, differentiable=False)

    def run(keys: Any, *args: Any, **kwargs: Any) -> Any:
        result = whole(keys, *args, **kwargs)
        if type(result) is not torch.Tensor or "out" in kwargs or not modes_are_open():
            return result
        with without_modes():
            return _wrapped(result, args[0])

    return run


def _wrapped(value: Any, like: Any) -> Any:
    cls: Any = type(like)
    if not isinstance(like, WrapperTensor) or not cls._transparent or cls.mixing != "wrap":
        return value
    return cls.from_plain(_wrapped(value, getattr(like, cls.inner_tensors[0])), like)


def _tensor_split_kernel(keys: Any, self: Any, sections: Any, dim: int = 0) -> Any:
    answer = _tensor_split(self, sections, dim)
    if answer is not NotImplemented:
        return answer
    op = _aten.tensor_split.tensor_indices_or_sections
    return op.redispatch(keys & keys_below_wrapper_key, self, sections, dim)


def _linear_kernel(keys: Any, input: Any, weight: Any, bias: Any = None) -> Any:
    """Run linear at once where it may be, and in parts elsewhere."""
    if bias is not None and input.dim() != 2:
        return _linear_in_parts(keys, input, weight, bias)
    if not _is_grad_enabled() or not (
        input.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    ):
        answer = _linear_at_once(keys, input, weight, bias)
        if answer is not None:
            return answer
    return _redispatch_linear(keys & keys_below_wrapper_key, input, weight, bias)


def _linear_at_once(keys: Any, input: Any, weight: Any, bias: Any) -> Any:
    """Run linear on the inner tensors; None where somebody may want to see its parts."""
    cls = input.__class__
    if (
        weight.__class__ is not cls
        or not (bias is None or bias.__class__ is cls)
        or input.dim() != 2
        or stops_before_autograd(keys)
        or is_kept(_linear)
        or not outside_of_handlers()
        or has_tangents()
        or modes_are_open()
    ):
        return None
    wrap = _linear_wrap(cls)
    if wrap is None:
        return None
    name = cls.inner_tensors[0]
    args = getattr(input, name), getattr(weight, name)
    if bias is None:
        return wrap(_plain_linear(*args), input)
    return wrap(_plain_linear(*args, getattr(bias, name)), bias)  # addmm's first argument


def _linear_wrap(cls: Any) -> Any:
    """Give what wraps the result of the whole; None where the class may want to see the parts."""
    if cls.__torch_dispatch__.__func__ is not _dispatch:
        return None
    key = cls._entries[_linear], "whole"  # the entries are others once a handler is registered
    try:
        return cls._plans[key]
    except KeyError:
        sees_parts = not cls._transparent or cls._wants_parts()
        wrap = None if sees_parts else wrapping(cls, Transparent(cls, _linear))
        cls._plans[key] = wrap
        return wrap


def _linear_in_parts(keys: Any, input: Any, weight: Any, bias: Any) -> Any:
    """Run linear's parts, and count the writes that torch left out.

    Torch adds the bias in place, but not where the bias is a subclass. Whether there was such an
    addition is seen by the result: a bias that went into addmm left that, or a view of it.
    """
    result = _redispatch_linear(keys & keys_below_wrapper_key, input, weight, bias)
    if (
        isinstance(bias, WrapperTensor)
        and isinstance(result, WrapperTensor)
        and type(result)._transparent
        and not (result.is_inference() or result._is_view() or others_are_watching())
        and not (has_tangents() and torch.autograd.forward_ad.unpack_dual(bias).tangent is not None)
    ):
        removes_dim = input.dim() == 1 and weight.dim() == 2  # matmul's squeeze_
        inner = getattr(result, result.inner_tensors[0])
        for tensor in (result, inner) if not inner.is_inference() else (result,):
            increment_version((tensor,) * (2 if removes_dim else 1))
    return result


def _register() -> tuple[Any, ...]:
    """Register the kernels for tensors that carry the wrappers' own dispatch key."""
    passes_on = fall_through_wrapper_key()
    let_classes_answer()  # operators that are younger than the first class with a table
    register = wrapper_kernels("aten")
    register("aten::tensor_split.tensor_indices_or_sections", _tensor_split_kernel)
    register("aten::linear", _linear_kernel)
    rank = [
        f"aten::linalg_matrix_rank.{name}".removesuffix(".default")
        for name in _aten.linalg_matrix_rank.overloads()
    ]
    register("aten::one_hot", _kernel("aten::one_hot", differentiable=False))
    for name in rank:
        register(name, _rank_kernel(name))
    for name in {"aten::max_pool1d", *composite_out_operators()} - {*rank}:
        register(name, _kernel(name))
    return passes_on, register


_kept = _register()
