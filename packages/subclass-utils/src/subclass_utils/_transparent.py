"""Run an operator on the inner tensors of transparent wrappers, and wrap what it gives."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from subclass_utils._errors import MixingError, ResizeError
from subclass_utils._items import is_item_at_hand
from subclass_utils._outside import (
    alias_outside,
    follow_version,
    outside_differs,
    outside_like,
    update_outside,
)
from subclass_utils._roles import Roles, TensorArgument, TensorResult, each_in, roles_of
from subclass_utils._torch_private import (
    fast_call,
    is_alias_of,
    is_composite_implicit,
    is_zero_tensor,
    looking_for_no_modes,
    looks_for_modes,
    outside_of_handlers,
    passed_over,
    restore_caller_state,
    set_version,
    share_storage,
    with_memory,
)

__all__ = ["Plan", "Transparent", "is_made_by_torch", "mixing_error"]

Plan = Callable[[Sequence[Any], Mapping[str, Any]], Any]

# Kernels that ask whether their arguments require grad, and prepare the backward only then.
_ASKS_FOR_GRADIENT = {"aten::_sparse_mm_reduce_impl"}
_RESIZES = {"resize_", "resize_as_", "resize_as_sparse_", "sparse_resize_"}


class _Call:
    """One call: its tensor arguments by name, the wrappers among them, what they need."""

    __slots__ = ("inner", "like", "plain", "plain_versions", "restore", "values", "versions")

    def __init__(self, restore: bool) -> None:
        self.like: Any = None
        self.inner: list[tuple[Any, Any]] = []
        self.values: dict[str, Any] = {}
        self.plain: str | None = None
        self.plain_versions: list[tuple[Any, int]] = []
        self.restore = restore
        self.versions: list[tuple[Any, int, Any, int]] = []


class Transparent:
    """What runs one overload for one class of transparent wrappers, for any arguments."""

    def __init__(self, cls: type[Any], op: Any) -> None:
        self.cls = cls
        self.name: str = op.name()
        self.roles: Roles = roles_of(op)
        self.inner_name: str = cls.inner_tensors[0]
        self.base_name = op._schema.name.partition("::")[2]
        self.call = fast_call(op)
        # An operator that is written in Python counts on the state of its caller, too.
        self.restores = (
            self.roles.writes or self.roles.aliases or not self.name.startswith("aten::")
        )
        self.written = tuple(argument for argument in self.roles.arguments if argument.written)
        self.resizes = self.base_name in _RESIZES
        self.sets = self.base_name == "set_"
        self.may_copy = is_composite_implicit(op)
        self.asks = self.name in _ASKS_FOR_GRADIENT
        self.passed_over = self.roles.writes and passed_over(op)

    def __call__(self, args: Sequence[Any], kwargs: Mapping[str, Any], counts: bool = False) -> Any:
        """Run the operator; `counts` if autograd has not seen it and counts no versions."""
        state = _Call(self.restores)
        new_args, new_kwargs = self.unwrap_all(state, args, kwargs)
        if state.plain is not None and self.cls.mixing == "error":
            values = each_in(state.values[state.plain])
            other = next(x for x in values if isinstance(x, torch.Tensor) and not self.is_ours(x))
            raise mixing_error(self.cls, self.name, state.plain, other)
        if self.resizes:
            self.check_resizable(state)
        for argument in self.written:
            if argument.is_list or counts or self.passed_over:
                self.note_versions(state, argument)
            else:
                self.note_plain_version(state, argument)
        if state.restore and not outside_of_handlers():
            with restore_caller_state():
                if looks_for_modes():
                    with looking_for_no_modes():
                        result = self.call(*new_args, **new_kwargs)
                else:
                    result = self.call(*new_args, **new_kwargs)
        else:
            result = self.call(*new_args, **new_kwargs)
        for argument in self.written:
            self.after_write(state, argument)
        return self.wrap_all(state, result)

    @property
    def touches(self) -> bool:
        """Say whether the operator writes an argument, or gives a view of one."""
        return self.roles.writes or self.roles.aliases

    def in_step(self, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Bring wrappers in step after a handler of the class's own wrote, or made a view."""
        state = _Call(False)
        self.unwrap_all(state, args, kwargs)
        for argument in self.written:
            self.after_write(state, argument)
        if self.roles.aliases and len(self.roles.results) == 1:
            source = state.values.get(self.roles.results[0].source or "")
            for value in each_in(result):
                self.share_memory(value, source)

    def share_memory(self, value: Any, source: Any) -> None:
        """Give a view that a handler made the storage of what it views, and warn of a copy."""
        if not (isinstance(value, self.cls) and isinstance(source, self.cls)) or value is source:
            return
        inner, memory = getattr(value, self.inner_name), getattr(source, self.inner_name)
        if not inner.layout is memory.layout is torch.strided:
            return
        if is_alias_of(inner, memory):
            share_storage(value, source)
        elif type(inner) is type(memory) is torch.Tensor and inner.numel() and not self.may_copy:
            warnings.warn(
                f"{self.name}: the handler of {self.cls.__qualname__} gave a copy, where the "
                "operator gives a view: what is written to the one is not seen in the other. Give "
                f"a view of {self.inner_name!r}; where the class holds its values in another form, "
                "give it to_plain and from_plain, and writes reach the whole.",
                stacklevel=2,
            )

    # ── arguments ───────────────────────────────────────────────────────────────────────────────

    def unwrap_all(
        self, state: _Call, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Put the inner tensors in the place of the wrappers."""
        unwrap = functools.partial(self.unwrap, state)
        return self.roles.replace_tensors(args, kwargs, unwrap, state.values)

    def unwrap(self, state: _Call, value: Any, name: str) -> Any:
        """Give the inner tensor of a wrapper, and anything else as it is."""
        if not isinstance(value, torch.Tensor):
            return value
        if self.is_ours(value):
            inner = getattr(value, self.inner_name)
            if state.like is None or (type(state.like) is not self.cls and type(value) is self.cls):
                state.like = value
            state.inner.append((value, inner))
            if self.asks and value.requires_grad:
                return inner.detach().requires_grad_()
        else:
            inner = value
            if state.plain is None and not is_made_by_torch(self.name, name):
                state.plain = name
        if inner.requires_grad or inner.is_complex():
            state.restore = True
        return inner

    def is_ours(self, value: Any) -> bool:
        """Say whether a value is a wrapper of this class, of a child, or of a parent."""
        return type(value) is self.cls or (
            isinstance(value, self.cls)
            or (
                issubclass(self.cls, type(value))
                and isinstance(getattr(value, self.inner_name, None), torch.Tensor)
            )
        )

    # ── writes ──────────────────────────────────────────────────────────────────────────────────

    def check_resizable(self, state: _Call) -> None:
        """Refuse to resize what came from `.data`."""
        for outer, _ in state.inner:
            if outer.__dict__.get("_from_data"):
                raise ResizeError(
                    f"{self.name}: this tensor came from `.data`, and a wrapper's `.data` cannot "
                    "tell the tensor it came from of another size. Resize `tensor.detach()`, or "
                    "the tensor itself under torch.no_grad()."
                )

    def note_versions(self, state: _Call, argument: TensorArgument) -> None:
        """Remember versions that autograd will not count, as of the tensors of a list."""
        for outer in each_in(state.values.get(argument.name)):
            if isinstance(outer, self.cls):
                inner = getattr(outer, self.inner_name)
                if not (inner.is_inference() or outer.is_inference()):
                    state.versions.append((outer, outer._version, inner, inner._version))

    def note_plain_version(self, state: _Call, argument: TensorArgument) -> None:
        """Remember the version of a plain tensor, which autograd will count once more."""
        value = state.values.get(argument.name)
        if isinstance(value, torch.Tensor) and not self.is_ours(value) and not value.is_inference():
            state.plain_versions.append((value, value._version))

    def after_write(self, state: _Call, argument: TensorArgument) -> None:
        """Bring the outside of what was written in step."""
        for outer in each_in(state.values.get(argument.name)):
            if isinstance(outer, self.cls):
                inner = getattr(outer, self.inner_name)
                if self.sets or outside_differs(outer, inner):
                    update_outside(outer, inner, tuple(state.inner), keeps_memory=not self.sets)
        for outer, before, inner, inner_before in state.versions:
            if inner._version != inner_before:  # once for views that share their versions
                set_version(outer, before + inner._version - inner_before)
        for plain, version in state.plain_versions:
            if plain._version != version:
                set_version(plain, version)
        state.versions.clear()
        state.plain_versions.clear()

    # ── results ─────────────────────────────────────────────────────────────────────────────────

    def wrap_all(self, state: _Call, result: Any) -> Any:
        """Wrap the tensors of a result."""
        roles = self.roles.results
        if len(roles) == 1:
            return self.wrap_result(state, result, roles[0])
        if not roles:
            return result
        return tuple(map(self.wrap_result, [state] * len(roles), result, roles))

    def wrap_result(self, state: _Call, value: Any, role: TensorResult) -> Any:
        """Wrap one result by its role."""
        if value is None or role.kind == "none":
            return value
        source = state.values.get(role.source) if role.source is not None else None
        if role.kind == "same":
            return source
        if state.plain is not None and self.cls.mixing == "unwrap":
            return value
        if isinstance(value, list | tuple) and self.base_name.startswith("_foreach_"):
            return self.wrap_each(state, value)
        return self.wrap_nested(state, value, source)

    def wrap_nested(self, state: _Call, value: Any, source: Any) -> Any:
        """Wrap a tensor, or those in lists, of lists, and dicts."""
        if isinstance(value, list | tuple):
            made = [self.wrap_nested(state, item, source) for item in value]
            return made if isinstance(value, list) else tuple(made)
        if isinstance(value, dict):
            return {key: self.wrap_nested(state, item, source) for key, item in value.items()}
        return self.wrap(state, value, source)

    def wrap_each(self, state: _Call, values: Sequence[Any]) -> list[Any]:
        """Wrap the results of an operator on lists, each by the arguments at its place."""
        if not state.inner:  # enable_python_mode
            return [self.wrap(state, value, None) for value in values]
        lists = [value for value in state.values.values() if isinstance(value, list | tuple)]
        single = [value for value in state.values.values() if isinstance(value, torch.Tensor)]
        return [
            self.wrap(state, value, None)
            if any(map(self.is_ours, [*single, *(items[index] for items in lists)]))
            else value
            for index, value in enumerate(values)
        ]

    def wrap_fresh(self, value: Any, like: Any) -> Any:
        """Wrap a fresh tensor of any layout."""
        state = _Call(False)
        state.like = like
        return self.wrap(state, value, None)

    def wrap_view(self, value: Any, source: Any) -> Any:
        """Wrap a view of a wrapper's inner tensor."""
        state = _Call(False)
        state.like = source
        return self.wrap(state, value, source)

    def wrap(self, state: _Call, value: Any, source: Any) -> Any:
        """Wrap one tensor; give an argument back where it is that argument's inner tensor."""
        if not isinstance(value, torch.Tensor):
            return value
        for outer, inner in state.inner:
            if inner is value:
                return outer
        if isinstance(source, self.cls) and not (self.may_copy and self.is_copy(value, source)):
            wrapper = alias_outside(self.cls, value, source)
        else:
            if not state.inner and is_zero_tensor(value):  # made under enable_python_mode
                value = with_memory(value)
            wrapper = outside_like(self.cls, value)
            follow_version(wrapper, value)
        setattr(wrapper, self.inner_name, value)
        self.cls._carry_metadata(wrapper, state.like)
        return wrapper

    def is_copy(self, value: torch.Tensor, source: Any) -> bool:
        """Say whether a composite operator copied where it may also give a view."""
        memory = getattr(source, self.inner_name)
        strided = value.layout is memory.layout is torch.strided
        return not strided or not is_alias_of(value, memory)


_MADE_BY_TORCH = {
    ("aten::_pack_padded_sequence", "lengths"),
    *(
        (f"aten::_fused_{name}_", argument)
        for name in ("adam", "adamw", "adagrad", "sgd")
        for argument in ("state_steps", "grad_scale", "found_inf")
    ),
}


def is_made_by_torch(name: str, argument: str) -> bool:
    """Say whether an argument is plain whatever a user has: torch makes it, or counts with it."""
    return (name, argument) in _MADE_BY_TORCH or is_item_at_hand()


def mixing_error(
    cls: type[Any], name: str, argument: str, value: torch.Tensor | None = None
) -> MixingError:
    """Make the error of a plain tensor, or another class's, in a call of wrappers alone."""
    kind, remedy = "a plain Tensor", f"wrap it with {cls.__name__}.from_plain"
    if hasattr(type(value), "inner_tensors"):
        kind = f"a {type(value).__name__}, which is no {cls.__name__}"
        remedy = f"convert it with {cls.__name__}.from_plain({argument}.to_plain())"
    return MixingError(
        f"{name}: argument {argument!r} is {kind}; {cls.__name__} mixes by policy 'error': "
        f'{remedy}, or declare mixing="wrap".',
        qualified_name=name,
        argument=argument,
        cls=cls,
    )
