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
from functools import partial
from typing import Any

import torch
from dispatch_core._for_subclass_utils import let_classes_answer

from subclass_utils._linear import linear_kernel
from subclass_utils._plans import other_parts
from subclass_utils._torch_private import (
    WRAPPER_KEY,
    composite_out_operators,
    fall_through,
    keys_below_wrapper_key,
    without_modes,
    wrapper_kernels,
)
from subclass_utils._wrapper import WrapperTensor

__all__: list[str] = []

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


def _kernel(
    name: str, differentiable: bool = True, parts: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """Make a kernel that hands the operator whole to the wrappers' class, where that may be.

    Elsewhere `parts` runs, given what torch would run.
    """
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
        if parts is not None:
            below = partial(op.redispatch, keys & keys_below_wrapper_key)
            return parts(below, *args, **kwargs)
        return op.redispatch(keys & keys_below_wrapper_key, *args, **kwargs)

    return run


def _rank_kernel(name: str) -> Callable[..., Any]:
    """Make the kernel of `matrix_rank`, whose parts write into a plain tensor that torch makes."""
    whole = _kernel(name, differentiable=False, parts=_rank_parts(name))

    def run(keys: Any, *args: Any, **kwargs: Any) -> Any:
        return _as_wrapper(whole(keys, *args, **kwargs), args, kwargs)

    return run


def _rank_parts(name: str) -> Callable[..., Any]:
    """Make what runs the parts, which in torch do not write `out` where they are given wrappers."""
    without_out = name.replace(".out_", ".").removesuffix("out").rstrip("_.")

    def run(parts: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if "out" not in kwargs:
            return _as_wrapper(parts(*args, **kwargs), args, kwargs)
        out = kwargs.pop("out")
        result = _overload(without_out)(*args, **kwargs)
        if not torch.can_cast(result.dtype, out.dtype):
            raise RuntimeError(
                f"{name}: Expected out tensor to have a dtype that {result.dtype} can be cast to, "
                f"but got {out.dtype} instead"
            )
        if out.size() != result.size():
            out.resize_(result.size())
        return out.copy_(result)

    return run


def _as_wrapper(result: Any, args: Any, kwargs: Any) -> Any:
    if type(result) is not torch.Tensor or "out" in kwargs:
        return result
    with without_modes():
        return _wrapped(result, args[0])


def _wrapped(value: Any, like: Any) -> Any:
    cls: Any = type(like)
    if not isinstance(like, WrapperTensor) or not cls._transparent or cls.mixing != "wrap":
        return value
    return cls.from_plain(_wrapped(value, getattr(like, cls.inner_tensors[0])), like)


def _tensor_split_kernel(keys: Any, self: Any, sections: Any, dim: int = 0) -> Any:
    op = _aten.tensor_split.tensor_indices_or_sections
    keys &= keys_below_wrapper_key
    return _tensor_split_parts(partial(op.redispatch, keys), self, sections, dim)


def _tensor_split_parts(parts: Callable[..., Any], self: Any, sections: Any, dim: int = 0) -> Any:
    answer = _tensor_split(self, sections, dim)
    return parts(self, sections, dim) if answer is NotImplemented else answer


def _register() -> tuple[Any, ...]:
    """Register the kernels for tensors that carry the wrappers' own dispatch key."""
    passes_on = fall_through(WRAPPER_KEY)
    let_classes_answer()  # operators that are younger than the first class with a table
    register = wrapper_kernels("aten")
    register("aten::tensor_split.tensor_indices_or_sections", _tensor_split_kernel)
    register("aten::linear", linear_kernel)
    rank = [
        f"aten::linalg_matrix_rank.{name}".removesuffix(".default")
        for name in _aten.linalg_matrix_rank.overloads()
    ]
    register("aten::one_hot", _kernel("aten::one_hot", differentiable=False))
    for name in rank:
        register(name, _rank_kernel(name))
        other_parts[name] = _rank_parts(name)
    other_parts["aten::tensor_split.tensor_indices_or_sections"] = _tensor_split_parts
    for name in {"aten::max_pool1d", *composite_out_operators()} - {*rank}:
        register(name, _kernel(name))
    return passes_on, register


_kept = _register()
