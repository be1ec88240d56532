"""Choose, once for each class and overload, what answers an operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from dispatch_core import NoHandlerError
from dispatch_core._for_subclass_utils import is_kept, remember, state_of_caller
from torch.autograd.forward_ad import unpack_dual

from subclass_utils._fast_paths import fast_path
from subclass_utils._inner_wise import inner_wise_plan
from subclass_utils._outside import takes_composites
from subclass_utils._own_handlers import handled_plan
from subclass_utils._roles import each_in, roles_of
from subclass_utils._torch_private import (
    HIGHER_ORDER_OPERATOR,
    composite_kernel,
    has_view_kernel,
    is_composite_implicit,
    leaving_bits,
    others_are_watching,
    outside_of_handlers,
)
from subclass_utils._transparent import Transparent

__all__ = [
    "TypedPlan",
    "make_plan",
    "other_parts",
    "run_whole",
    "run_without_handler",
    "runs_in_parts",
]

TypedPlan = Callable[[Sequence[type], Sequence[Any], Mapping[str, Any]], Any]

_QUERIES = {
    torch.ops.prim.layout.default: lambda inner: inner.layout,
    torch.ops.prim.device.default: lambda inner: inner.device,
}


# Under inference mode these give views, of a tensor from outside.
_SAFE = {
    torch.ops.aten.unsafe_split.Tensor: torch.ops.aten.split.Tensor,
    torch.ops.aten.unsafe_split_with_sizes.default: torch.ops.aten.split_with_sizes.default,
}


other_parts: dict[str, Callable[..., Any]] = {}
"""What runs instead of a composite operator's parts, which are its first argument, by name."""


def make_plan(cls: type[Any], func: Any) -> TypedPlan:
    """Make what answers `func` for a class, and remember it until the class's table changes."""
    entry = cls._entries[func]
    plan = _choose(cls, func, entry)
    remember(cls.table, func, plan, func, entry)
    return plan


def _choose(cls: type[Any], func: Any, entry: Any) -> TypedPlan:
    if entry.kind == "missing":
        return _without_handler(cls, func)
    handled = handled_plan(cls, func, entry)
    if not is_composite_implicit(func):
        return handled
    in_parts = _without_handler(cls, func)
    is_named = entry.is_named

    def run(types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call the handler where torch asks for the whole outside of inference mode, too."""
        whole = is_kept(func) or (is_named and _has_wrapper(args, kwargs))
        return (handled if whole else in_parts)(types, args, kwargs)

    return run


def run_without_handler(
    cls: type[Any], func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Answer `func` as if the class had no handler for it."""
    key = func, "without handler"
    plan = cls._plans.get(key)
    if plan is None:
        entry = cls._entries[func]
        plan = _without_handler(cls, func)
        remember(cls.table, key, plan, func, entry)
    if outside_of_handlers():
        return plan((cls,), args, kwargs)
    with leaving_bits():
        return plan((cls,), args, kwargs)


def _without_handler(cls: type[Any], func: Any) -> TypedPlan:
    if isinstance(func, HIGHER_ORDER_OPERATOR):
        return _higher_order(cls, func)
    query = _QUERIES.get(func)
    if query is not None:
        return lambda types, args, kwargs: query(getattr(args[0], cls.inner_tensors[0]))
    if cls._transparent:
        whole = fast_path(cls, func, Transparent(cls, func))
    else:
        inner_wise = inner_wise_plan(cls, func)

        def whole(types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            return inner_wise(args, kwargs)

    safe = _SAFE.get(func)
    if safe is not None:
        return _safe(safe, whole)
    if not is_composite_implicit(func):
        return whole
    parts = _parts(func)

    def composite(types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if is_kept(func):
            return whole(types, args, kwargs)
        if cls._transparent and not _has_wrapper(args, kwargs):  # enable_python_mode
            wrap = cls.from_plain
            args, kwargs = roles_of(func).replace_tensors(
                args, kwargs, lambda value, name: wrap(value) if _is_tensor(value) else value, {}
            )
        return parts(args, kwargs)

    return composite


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _has_wrapper(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    return any(hasattr(type(each), "inner_tensors") for each in each_in((*args, *kwargs.values())))


def runs_in_parts(func: Any) -> bool:
    """Say whether an operator without a handler is taken apart at this moment."""
    return is_composite_implicit(func) and not is_kept(func)


def _parts(func: Any) -> Callable[[Sequence[Any], Mapping[str, Any]], Any]:
    """Run a composite operator's parts; under inference mode it arrives in one piece."""
    parts: Callable[..., Any] = composite_kernel(func)
    if func.name() in other_parts:
        parts = partial(other_parts[func.name()], parts)
    # Where torch makes a view of the whole result, or counts its version, the parts must not.
    within = has_view_kernel(func)

    def run(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if within or outside_of_handlers():
            return parts(*args, **kwargs)
        with state_of_caller():
            return parts(*args, **kwargs)

    return run


def run_whole(
    cls: type[Any],
    func: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    differentiable: bool,
) -> Any:
    """Run a composite operator on the inner tensors; NotImplemented where its parts are due.

    They are where a gradient or a tangent may be needed, where a class has handlers for parts,
    also that of an inner tensor, and where a mode or a transform of torch.func comes first.
    """
    if not cls._transparent or cls._wants_parts() or is_kept(func) or others_are_watching():
        return NotImplemented
    backward = torch.is_grad_enabled()
    for value in (*args, *kwargs.values()):
        for item in value if isinstance(value, list | tuple) else (value,):
            if (
                differentiable
                and isinstance(item, torch.Tensor)
                and ((backward and item.requires_grad) or unpack_dual(item).tangent is not None)
            ):
                return NotImplemented
            if type(item) is cls and takes_composites(getattr(item, cls.inner_tensors[0])):
                return NotImplemented
    return Transparent(cls, func)(args, kwargs, counts=True)


def _safe(safe: Any, whole: TypedPlan) -> TypedPlan:
    def run(types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if torch.is_inference_mode_enabled() and not outside_of_handlers():
            with state_of_caller():
                return safe(*args, **kwargs)
        return whole(types, args, kwargs)

    return run


def _higher_order(cls: type[Any], func: Any) -> TypedPlan:
    def run(types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        raise NoHandlerError(
            f"higher_order::{func.name()}: reached {cls.__qualname__}, which has no handler for "
            f"it: register one with @{cls.__qualname__}.table.implements("
            f"torch.ops.higher_order.{func.name()}), a function of the same arguments, or call it "
            "on to_plain().",
            overload=func,
            declined=(cls,),
        )

    return run
