"""Operators on wrappers whose outside differs from their inner tensors, without a handler.

What keeps the value (detach, clone, a move to another device, a copy from the same class) is done
to each inner tensor; everything else needs a handler, or runs on `to_plain()` where the class
asks for that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from dispatch_core import NoHandlerError

from subclass_utils._copying import as_view_of, describe_outside, make_described
from subclass_utils._roles import Roles, roles_of
from subclass_utils._torch_private import fast_call, increment_version, share_storage
from subclass_utils._transparent import Plan, mixing_error

__all__ = ["inner_wise_plan"]

_aten = torch.ops.aten
_set_data = torch.Tensor.data.__set__  # type: ignore[attr-defined]


def inner_wise_plan(cls: type[Any], op: Any) -> Plan:
    """Make what runs `op`, which has no handler, for a class whose outside differs."""
    own = _PLANS.get(op)
    if own is not None:
        return lambda args, kwargs: own(cls, op, args, kwargs)
    if cls.without_handler == "to_plain":
        return _OnPlain(cls, op)
    return lambda args, kwargs: _no_handler(cls, op)


def _no_handler(cls: type[Any], op: Any) -> Any:
    raise NoHandlerError(
        f"{op.name()}: {cls.__qualname__} has no handler for it. Register one with "
        f"@{cls.__qualname__}.table.implements(torch.ops.{op}), or declare "
        'without_handler = "to_plain", to run such operators on to_plain().',
        overload=op,
        declined=(cls,),
    )


# ── each inner tensor ───────────────────────────────────────────────────────────────────────────


def _rebuilt(cls: type[Any], like: Any, inner: Sequence[Any], **outside: Any) -> Any:
    made = make_described(type(like), {**describe_outside(like), **outside}, inner)
    type(like)._carry_metadata(made, like)
    return made


def _inner(wrapper: Any) -> list[Any]:
    return [getattr(wrapper, name) for name in type(wrapper).inner_tensors]


def _alias(cls: type[Any], op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    wrapper = args[0]
    made = _rebuilt(cls, wrapper, [op(tensor) for tensor in _inner(wrapper)])
    share_storage(made, wrapper)
    return made


def _clone(cls: type[Any], op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    wrapper = args[0]
    outside = torch.clone(_meta(wrapper), **kwargs)
    inner = [torch.clone(tensor) for tensor in _inner(wrapper)]
    return _rebuilt(cls, wrapper, inner, stride=outside.stride(), offset=0)


def _to_copy(cls: type[Any], op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    wrapper = args[0]
    dtype = kwargs.get("dtype")
    if dtype is not None and dtype is not wrapper.dtype:
        return cls.from_plain(op(cls.to_plain(wrapper), **kwargs), wrapper)
    moves = {key: value for key, value in kwargs.items() if key in ("device", "non_blocking")}
    inner = [op(tensor, **moves) for tensor in _inner(wrapper)]
    format_ = {key: value for key, value in kwargs.items() if key == "memory_format"}
    outside = torch.clone(_meta(wrapper), **format_)
    device = inner[0].device
    return _rebuilt(cls, wrapper, inner, stride=outside.stride(), offset=0, device=device)


def _copy(cls: type[Any], op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    target, source, *rest = args
    if not isinstance(target, cls):
        op(target, source.to_plain(), *rest, **kwargs)
        return target
    if not _same_form(target, source):
        plain = source.to_plain() if isinstance(source, cls) else source
        if plain.size() != target.size() or plain.dtype is not target.dtype:
            plain = torch.empty_like(_meta(target), device=plain.device).copy_(plain)
        source = cls.from_plain(plain, target)
    _write_back(target, source)
    return target


def _pin(cls: type[Any], op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    wrapper = args[0]
    inner = [op(tensor, *args[1:], **kwargs) for tensor in _inner(wrapper)]
    return _rebuilt(cls, wrapper, inner)


def _is_pinned(cls: type[Any], op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return all(op(tensor, *args[1:], **kwargs) for tensor in _inner(args[0]))


_PLANS: dict[Any, Callable[..., Any]] = {
    _aten.detach.default: _alias,
    _aten.alias.default: _alias,
    _aten.lift_fresh.default: _alias,
    _aten.clone.default: _clone,
    _aten._to_copy.default: _to_copy,
    _aten.copy_.default: _copy,
    _aten._pin_memory.default: _pin,
    _aten.is_pinned.default: _is_pinned,
}


def _meta(wrapper: Any) -> torch.Tensor:
    return torch.empty_strided(wrapper.size(), wrapper.stride(), dtype=wrapper.dtype, device="meta")


def _same_form(a: Any, b: Any) -> bool:
    """Say whether the inner tensors of one can be copied into those of the other."""
    return (
        type(a) is type(b)
        and a.size() == b.size()
        and all(getattr(a, name) == getattr(b, name) for name in type(a).metadata)
        and all(
            one.size() == other.size() and one.dtype is other.dtype
            for one, other in zip(_inner(a), _inner(b), strict=True)
        )
    )


def _write_back(target: Any, source: Any) -> None:
    for name in type(target).inner_tensors:
        own, new = getattr(target, name), getattr(source, name)
        if own.size() == new.size():
            own.copy_(new)
        else:  # compressed data that another value has more, or less, of
            setattr(target, name, new)
    type(target)._carry_metadata(target, source)


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Say what an operator that writes may change beside the values."""
    strided = tensor.layout is torch.strided
    place = (tensor.stride(), tensor.storage_offset()) if strided else ()
    return (tensor.size(), tensor.dtype, tensor.is_conj(), tensor.is_neg(), *place)


def _replace(target: Any, source: Any) -> None:
    """Make a wrapper what another one is, outside and inside."""
    _set_data(target, make_described(type(target), describe_outside(source), _inner(source)))
    for name in type(target).inner_tensors:
        setattr(target, name, getattr(source, name))
    type(target)._carry_metadata(target, source)


# ── on plain tensors ────────────────────────────────────────────────────────────────────────────


class _OnPlain:
    """Run an operator on what the wrappers stand for; what it writes is written back."""

    def __init__(self, cls: type[Any], op: Any) -> None:
        self.cls = cls
        self.name = op.name()
        self.roles: Roles = roles_of(op)
        self.call = fast_call(op)

    def __call__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run the operator."""
        values: dict[str, Any] = {}
        pairs: list[tuple[Any, torch.Tensor]] = []

        def plain(value: Any, name: str) -> Any:
            if isinstance(value, self.cls):
                for outer, known in pairs:
                    if outer is value:
                        return known
                made = value.to_plain()
                pairs.append((value, made))
                return made
            if isinstance(value, torch.Tensor) and self.cls.mixing == "error":
                raise mixing_error(self.cls, self.name, name)
            return value

        new_args, new_kwargs = self.roles.replace_tensors(args, kwargs, plain, values)
        places = [_place(made) for _, made in pairs]
        result = self.call(*new_args, **new_kwargs)
        moved = [
            outer
            for (outer, made), place in zip(pairs, places, strict=True)
            if _place(made) != place
        ]
        self.write_back(values, pairs, moved)
        return self.answer(result, values)

    def write_back(
        self,
        values: Mapping[str, Any],
        pairs: Sequence[tuple[Any, Any]],
        moved: Sequence[Any],
    ) -> None:
        """Bring written wrappers to their new value; `moved` have another outside now, too."""
        for argument in self.roles.arguments:
            if not argument.written:
                continue
            value = values.get(argument.name)
            for outer in value if isinstance(value, list | tuple) else (value,):
                for wrapper, plain in pairs:
                    if wrapper is outer:
                        source = self.cls.from_plain(plain, wrapper)
                        if any(outer is each for each in moved):
                            _replace(wrapper, source)
                        else:
                            _write_back(wrapper, source)
                        if argument.is_list and not outer.is_inference():
                            increment_version((outer,))  # autograd passes over lists

    def answer(self, result: Any, values: Mapping[str, Any]) -> Any:
        """Give written arguments back as what they are; other results stay plain."""
        roles = self.roles.results
        if self.roles.aliases and torch.is_inference_mode_enabled():
            source = values.get(roles[0].source or "")
            if isinstance(result, list | tuple):
                result = [as_view_of(value, source) for value in result]
            else:
                result = as_view_of(result, source)
        if len(roles) == 1:
            return values[roles[0].source or ""] if roles[0].kind == "same" else result
        if not roles:
            return result
        return tuple(
            values[role.source or ""] if role.kind == "same" else value
            for value, role in zip(result, roles, strict=True)
        )
