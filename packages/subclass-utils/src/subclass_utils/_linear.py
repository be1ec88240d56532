"""Linear on transparent wrappers: at once where nobody could see its parts, and else in parts.

Torch takes linear apart into up to five operators, each of which would ask the wrappers' class; at
once takes less than half the time. What came out of the parts is seen by the inner tensors: a view
is one outside as well, and the versions are theirs. The gradient is one node, by the name of the
node that a plain tensor would have, and computes what the nodes of the parts would.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import torch
from dispatch_core._for_subclass_utils import is_kept, remember

from subclass_utils._fast_lists import wrapping
from subclass_utils._outside import takes_composites
from subclass_utils._torch_private import (
    apply_node,
    fast_redispatch,
    has_tangents,
    increment_version,
    keys_below_wrapper_key,
    modes_are_open,
    name_nodes,
    others_are_watching,
    outside_of_handlers,
    set_version,
    skip_in_dynamo,
    stops_before_autograd,
)
from subclass_utils._transparent import Transparent
from subclass_utils._wrapper import WrapperTensor

__all__ = ["linear_kernel"]

_linear = torch.ops.aten.linear.default
_plain_linear: Any = torch.nn.functional.linear  # quicker than the overload
_redispatch = fast_redispatch(_linear)
_is_grad_enabled = torch.is_grad_enabled
_dispatch = WrapperTensor.__torch_dispatch__.__func__  # type: ignore[attr-defined]
_plain = torch.Tensor


def linear_kernel(keys: Any, input: Any, weight: Any, bias: Any = None) -> Any:
    """Run linear at once where it may be, and in parts elsewhere."""
    cls = input.__class__
    if weight.__class__ is cls and (bias is None or bias.__class__ is cls):
        way = _way_of(cls)
        if way is not None and not (
            stops_before_autograd(keys)
            or is_kept(_linear)
            or not outside_of_handlers()
            or has_tangents()
            or modes_are_open()
        ):
            if _is_grad_enabled() and (
                input.requires_grad
                or weight.requires_grad
                or (bias is not None and bias.requires_grad)
            ):
                result = way.with_gradient(input, weight, bias)
            else:
                result = way.without_gradient(input, weight, bias)
            if result is not None:
                return result
    below = keys & keys_below_wrapper_key
    if (
        bias is not None
        and input.dim() != 2
        and (bias.dim() != 1 or bias.dtype is not input.dtype)
        and not (stops_before_autograd(keys) or is_kept(_linear) or has_tangents())
    ):
        # Torch adds such a bias in place, which keeps dtype and size; but not where it is a
        # subclass.
        return _redispatch(below, input, weight, None).add_(bias)
    result = _redispatch(below, input, weight, bias)
    if bias is not None and input.dim() != 2:
        _count_addition(result, input, weight, bias)
    return result


def _way_of(cls: Any) -> _AtOnce | None:
    """Give what runs the whole for a class; None where the class may want to see the parts."""
    own_dispatch = getattr(cls, "__torch_dispatch__", None)
    if getattr(own_dispatch, "__func__", None) is not _dispatch:
        return None
    try:
        way: _AtOnce | None = cls._plans["linear at once"]
    except KeyError:
        entry = cls._entries[_linear]
        way = _AtOnce(cls) if cls._transparent and not cls._wants_parts() else None
        remember(cls.table, "linear at once", way, _linear, entry)
    return way


class _AtOnce:
    """What runs linear on the inner tensors of one class of wrappers.

    Both ways give None where the parts are due.
    """

    def __init__(self, cls: Any) -> None:
        self.cls = cls
        self.inner: Callable[[Any], Any] = attrgetter(cls.inner_tensors[0])
        self.wrap = wrapping(cls, Transparent(cls, _linear))

    def without_gradient(self, input: Any, weight: Any, bias: Any) -> Any:
        """Run it where autograd has nothing to do."""
        inner = self.inner
        x, w = inner(input), inner(weight)
        if x.dim() != 2 and weight.requires_grad:  # by which torch chooses between ways to multiply
            return None
        if takes_composites(x) or takes_composites(w):
            return None
        if bias is None:
            result, like = _plain_linear(x, w), input
        else:
            result, like = _plain_linear(x, w, inner(bias)), bias  # addmm's first argument
        if x.dim() == 2 or result.is_inference():
            return self.wrap(result, like)
        return self._as_inside(result, like)

    def _as_inside(self, result: Any, like: Any) -> Any:
        """Wrap what may be a view, or have been written."""
        base = result._base
        if base is None:
            made = self.wrap(result, like)
            if result._version:
                set_version(made, result._version)
            return made
        if base.numel() != result.numel() or result._version:
            return None
        return self.wrap(base, like).view(result.size())

    def with_gradient(self, input: Any, weight: Any, bias: Any) -> Any:
        """Run it as one node of autograd, where its parts are known to be products of matrices."""
        inner = self.inner
        x, w = inner(input), inner(weight)
        if not (_is_simple(x) and _is_simple(w)) or w.dim() != 2:
            return None
        flat = x.dim() == 2
        if not flat and (x.dim() < 2 or not x.is_contiguous()):
            return None
        if bias is None:
            result = _plain_linear(x, w)
            if not flat and result._base is not None:
                return None
            apply = _apply_mm if flat else _apply_view
            return apply((self, self.wrap(result, input)), None, input, weight)
        b = inner(bias)
        if not _is_simple(b):
            return None
        result = _plain_linear(x, w, b)
        if flat:
            return _apply_addmm((self, self.wrap(result, bias)), bias, input, weight)
        rows = result._base
        if rows is None:  # the bias was added afterwards
            return None
        made = _apply_addmm((self, self.wrap(rows, bias)), bias, input, weight)
        return made.view(result.size())


def _is_simple(inner: Any) -> bool:
    return inner.__class__ is _plain and not (
        inner.layout is not torch.strided or inner.requires_grad or inner.is_complex()
    )


class _Node(torch.autograd.Function):
    """The gradient of linear, for matrices, or more dims that lie as a matrix does.

    It multiplies the same matrices in the same order as the nodes of the parts do, which go by
    how these lie in memory.
    """

    @staticmethod
    def forward(ctx: Any, made: Any, bias: Any, input: Any, weight: Any) -> Any:
        way, result = made
        _, _, for_input, for_weight = ctx.needs_input_grad
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(input if for_weight else None, weight if for_input else None)
        x, w = way.inner(input), way.inner(weight)
        size = x.size()
        columns = for_input and _lies_by_columns(x) if len(size) == 2 else False
        rows = for_weight and w.stride() == (w.size(1), 1)
        ctx.how = way, size, columns, rows
        return result

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        if grad is None:
            return None, None, None, None
        way, size, columns, rows = ctx.how
        input, weight = ctx.saved_tensors
        _, for_bias, for_input, for_weight = ctx.needs_input_grad
        bias_grad = grad if for_bias else None  # autograd sums it up
        at_once = not _is_grad_enabled() and not others_are_watching()
        for each in (grad, input, weight):
            at_once = at_once and (each is None or each.__class__ is way.cls)
        input_like = weight if columns else grad
        weight_like = grad if rows else input
        if at_once:
            grad, input, weight = (
                None if each is None else way.inner(each) for each in (grad, input, weight)
            )
        input_grad = weight_grad = None
        if len(size) > 2:
            count = size[:-1].numel()
            grad = grad.reshape(count, grad.size(-1))
            input = None if input is None else input.view(count, size[-1])
        if for_input:
            input_grad = weight.t().mm(grad.t()).t() if columns else grad.mm(weight)
            if len(size) > 2:
                input_grad = input_grad.view(size)
        if for_weight:
            weight_grad = grad.t().mm(input) if rows else input.t().mm(grad).t()
        if at_once:
            input_grad = None if input_grad is None else way.wrap(input_grad, input_like)
            weight_grad = None if weight_grad is None else way.wrap(weight_grad, weight_like)
        return None, bias_grad, input_grad, weight_grad


def _lies_by_columns(matrix: Any) -> bool:
    by_columns: bool = matrix.stride() == (1, matrix.size(0))
    return by_columns


def _node(name: str) -> Callable[..., Any]:
    """Give what applies a node that has the name of one of torch's own."""
    node = type(name, (_Node,), {})
    name_nodes(node, name)
    return apply_node(node)


_apply_addmm = _node("AddmmBackward0")
_apply_mm = _node("MmBackward0")
_apply_view = _node("UnsafeViewBackward0")


def _count_addition(result: Any, input: Any, weight: Any, bias: Any) -> None:
    """Count the write that torch left out when linear ran in parts.

    Torch adds the bias in place, but not where the bias is a subclass. Whether there was such an
    addition is seen by the result: a bias that went into addmm left that, or a view of it.
    """
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


for _each in (linear_kernel, _Node.forward, _Node.backward):
    skip_in_dynamo(_each.__code__)
