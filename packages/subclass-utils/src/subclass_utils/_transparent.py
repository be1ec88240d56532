"""Run an operator on the inner tensors of transparent wrappers, and wrap what it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from subclass_utils._errors import ResizeError
from subclass_utils._outside import alias_outside, outside_differs, outside_like, update_outside
from subclass_utils._roles import Roles, TensorResult, roles_of
from subclass_utils._torch_private import (
    fast_call,
    outside_of_handlers,
    restore_caller_state,
)

__all__ = ["Plan", "transparent_plan"]

Plan = Callable[[Sequence[Any], Mapping[str, Any]], Any]

_RESIZES = {"resize_", "resize_as_", "resize_as_sparse_", "sparse_resize_"}
# In-place operators that can change more than values, besides those torch tags as such.
_RESHAPES = _RESIZES | {"set_", "sparse_resize_and_clear_", "_resize_output_", "set_data"}


def _can_change_outside(op: Any, roles: Roles) -> bool:
    """Say whether a written argument may get another shape or place in memory."""
    if not roles.writes:
        return False
    namespace, _, name = op._schema.name.partition("::")
    if namespace == "aten" and name.endswith("_") and name not in _RESHAPES:
        return torch.Tag.inplace_view in op.tags
    return True


class _Call:
    """The wrappers that one call has, found while its arguments are unwrapped."""

    __slots__ = ("inner", "like", "restore", "values")

    def __init__(self) -> None:
        self.like: Any = None
        self.inner: list[tuple[Any, Any]] = []
        self.values: dict[str, Any] = {}
        self.restore = False


def transparent_plan(cls: type[Any], op: Any) -> Plan:
    """Make what runs `op` for a class of transparent wrappers, for any arguments."""
    roles = roles_of(op)
    call = fast_call(op)
    inner_name = cls.inner_tensors[0]
    name = op.name()
    base_name = op._schema.name.partition("::")[2]
    writes = roles.writes
    aliases = any(result.kind == "view" for result in roles.results)
    reshapes = _can_change_outside(op, roles)
    resizes = base_name in _RESIZES

    def unwrap(state: _Call, value: Any, argument: str) -> Any:
        if isinstance(value, torch.Tensor):
            if isinstance(value, cls):
                inner = getattr(value, inner_name)
                if state.like is None or type(state.like) is not cls:
                    state.like = value
                state.inner.append((value, inner))
            else:
                inner = value
            if inner.requires_grad or inner.is_complex():
                state.restore = True
            return inner
        return value

    def run(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        state = _Call()
        state.restore = writes or aliases
        new_args = list(args)
        new_kwargs = dict(kwargs)
        for argument in roles.arguments:
            key: Any
            holder: Any
            if argument.position is not None and argument.position < len(new_args):
                holder, key = new_args, argument.position
            elif argument.name in new_kwargs:
                holder, key = new_kwargs, argument.name
            else:
                continue
            value = holder[key]
            state.values[argument.name] = value
            if argument.is_list and isinstance(value, list | tuple):
                holder[key] = [unwrap(state, item, argument.name) for item in value]
            elif value is not None:
                holder[key] = unwrap(state, value, argument.name)
        if resizes:
            for outer, _ in state.inner:
                _check_resizable(outer, name)
        if state.restore and not outside_of_handlers():
            with restore_caller_state():
                result = call(*new_args, **new_kwargs)
        else:
            result = call(*new_args, **new_kwargs)
        if writes:
            after_write(state)
        return wrap_results(state, result)

    def after_write(state: _Call) -> None:
        for argument in roles.arguments:
            if not argument.written:
                continue
            value = state.values.get(argument.name)
            outers = value if argument.is_list else (value,)
            for outer in outers or ():
                if not isinstance(outer, cls):
                    continue
                inner = getattr(outer, inner_name)
                if reshapes and outside_differs(outer, inner):
                    update_outside(outer, inner, tuple(state.inner))

    def wrap_results(state: _Call, result: Any) -> Any:
        results = roles.results
        if len(results) == 1:
            return wrap_one(state, result, results[0])
        if not results:
            return result
        return tuple(
            wrap_one(state, value, role) for value, role in zip(result, results, strict=True)
        )

    def wrap_one(state: _Call, value: Any, role: TensorResult) -> Any:
        if value is None or role.kind == "none":
            return value
        source = state.values.get(role.source) if role.source is not None else None
        if role.kind == "same":
            return source
        if role.is_list or isinstance(value, list | tuple):
            return [wrap_tensor(state, item, source) for item in value]
        return wrap_tensor(state, value, source)

    def wrap_tensor(state: _Call, value: Any, source: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        for outer, inner in state.inner:
            if inner is value:
                return outer
        if isinstance(source, cls):
            wrapper = alias_outside(cls, value, source)
        else:
            wrapper = outside_like(cls, value)
        setattr(wrapper, inner_name, value)
        cls._carry_metadata(wrapper, state.like)
        return wrapper

    return run


def _check_resizable(outer: Any, name: str) -> None:
    if outer.__dict__.get("_from_data"):
        raise ResizeError(
            f"{name}: this tensor came from `.data`, and a wrapper's `.data` cannot tell the "
            "tensor it came from of another size. Resize `tensor.detach()`, or the tensor itself "
            "under torch.no_grad()."
        )
