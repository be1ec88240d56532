"""Operators on wrappers whose outside differs from their inner tensors, without a handler.

What keeps the value (detach, clone, a move to another device, a copy from the same class) is done
to each inner tensor; everything else needs a handler, or runs on `to_plain()` where the class
asks for that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import torch
from dispatch_core import NoHandlerError

from subclass_utils._description import all_views_of, describe_outside, make_described
from subclass_utils._errors import ViewError
from subclass_utils._other_data import can_take, take_data
from subclass_utils._outside import new_outside
from subclass_utils._own_writes import counts_in_lists
from subclass_utils._plain_writes import Memories, write_value
from subclass_utils._roles import Roles, TensorArgument, each_in, roles_of
from subclass_utils._shared_data import (
    cannot_follow,
    check_keeps_shape,
    connect,
    fill,
    in_one_memory,
    inner_of,
    link_of,
    make_from_plain,
    new_from_plain,
    plain_of,
    replace,
    root_of,
)
from subclass_utils._straight_copies import straight_copy
from subclass_utils._torch_private import (
    fast_call,
    increment_version,
    passed_over,
    refuse_write_outside_inference_mode,
    share_storage,
)
from subclass_utils._transparent import Plan, is_made_by_torch, mixing_error

__all__ = ["inner_wise_plan"]

_aten = torch.ops.aten
_detach = _aten.detach.default


def inner_wise_plan(cls: type[Any], op: Any) -> Plan:
    """Make what runs `op`, which has no handler, for a class whose outside differs."""
    own = _PLANS.get(op)
    if own is not None and not cls._is_part:
        return straight_copy(cls, op, partial(own, cls, op))
    return _other_plan(cls, op)


def _other_plan(cls: type[Any], op: Any) -> Plan:
    if op.name().startswith("c10d::") and op.name() not in _NO_RESULT:
        return lambda args, kwargs: _no_collective(cls, op)
    if cls.without_handler == "to_plain":
        return _OnPlain(cls, op)
    return lambda args, kwargs: _no_handler(cls, op)


# Collectives that write none of their tensors. The others write when they come to it, later.
_NO_RESULT = {"c10d::send", "c10d::barrier", "c10d::monitored_barrier_", "c10d::check_for_nan"}


def _no_collective(cls: type[Any], op: Any) -> Any:
    raise NoHandlerError(
        f"{op.name()}: a collective writes into the memory of plain tensors, at its own time, and "
        f"{cls.__qualname__} has no handler for it. Communicate the inner tensors "
        f"({', '.join(cls.inner_tensors)}), or to_plain(), or register a handler with "
        f"@{cls.__qualname__}.table.implements(torch.ops.{op}).",
        overload=op,
        declined=(cls,),
    )


def _no_handler(cls: type[Any], op: Any) -> Any:
    raise NoHandlerError(
        f"{op.name()}: {cls.__qualname__} has no handler for it. Register one with "
        f"@{cls.__qualname__}.table.implements(torch.ops.{op}), or declare "
        'without_handler = "to_plain", to run such operators on to_plain().',
        overload=op,
        declined=(cls,),
    )


# ── each inner tensor ───────────────────────────────────────────────────────────────────────────


def _rebuilt(
    cls: type[Any],
    like: Any,
    inner: Sequence[Any],
    inference: bool | None = None,
    **outside: Any,
) -> Any:
    outside = {**describe_outside(like), **outside}
    made = make_described(type(like), outside, inner, inference=inference)
    type(like)._carry_metadata(made, like)
    return made


def _outside_again(like: Any, inner: list[Any], inference: bool, offset: int | None = None) -> Any:
    """Make a wrapper with the same outside, but for its place in memory."""
    cls, dtype = type(like), like.dtype
    if (
        like.layout is not torch.strided
        or (dtype.is_complex and like.is_conj())
        or like.is_neg()
        or inference is not torch.is_inference_mode_enabled()
    ):
        place = {} if offset is None else {"offset": offset}
        return _rebuilt(cls, like, inner, inference, **place)
    made = new_outside(
        cls,
        like.size(),
        like.stride(),
        like.storage_offset() if offset is None else offset,
        dtype,
        torch.strided,
        like.device,
        False,
    )
    for name, tensor in zip(cls.inner_tensors, inner, strict=True):
        setattr(made, name, tensor)
    if cls.metadata:
        cls._carry_metadata(made, like)
    return made


def _alias(cls: type[Any], op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    wrapper = args[0]
    call = torch.detach if op is _detach else fast_call(op)
    inner = [call(tensor) for tensor in inner_of(wrapper)]
    made = _outside_again(wrapper, inner, wrapper.is_inference())
    share_storage(made, wrapper)
    connect(made, wrapper)
    return made


def _as_strided(cls: type[Any], op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Give a wrapper itself at the place where it is: torch.compile asks so for what detach gives.

    Elsewhere it is an operator like others.
    """
    wrapper, size, stride, *offset = args
    link = link_of(wrapper)
    if link is not None and link.steps and not offset and cls.without_handler == "to_plain":
        return _other_plan(cls, op)(args, kwargs)  # its outside may say another place
    place = (wrapper.storage_offset(), *wrapper.size(), *wrapper.stride())
    if (*(offset or (wrapper.storage_offset(),)), *size, *stride) == place:
        return _alias(cls, _aten.detach.default, args, kwargs)
    return _other_plan(cls, op)(args, kwargs)


def _format_of(inner: torch.Tensor, wrapper: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Give the memory format that a copy of a wrapper asks for, where an inner tensor can have it.

    Any tensor with strides can be contiguous; the others are for some sizes only.
    """
    wanted = kwargs.get("memory_format")
    if wanted is None or inner.layout is not torch.strided:
        return {}
    if wanted is torch.contiguous_format or inner.size() == wrapper.size():
        return {"memory_format": wanted}
    return {}


def _clone(cls: type[Any], op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    wrapper = args[0]
    inner = [
        torch.clone(tensor, **_format_of(tensor, wrapper, kwargs)) for tensor in inner_of(wrapper)
    ]
    if not kwargs and wrapper.numel() and wrapper.is_contiguous():
        return _outside_again(wrapper, inner, torch.is_inference_mode_enabled(), offset=0)
    outside = torch.clone(_meta(wrapper), **kwargs)
    return _rebuilt(cls, wrapper, inner, stride=outside.stride(), offset=0)


def _to_copy(cls: type[Any], op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    wrapper = args[0]
    dtype = kwargs.get("dtype")
    if dtype is not None and dtype is not wrapper.dtype:
        return new_from_plain(cls, op(cls.to_plain(wrapper), **kwargs), wrapper)
    moves = {key: value for key, value in kwargs.items() if key in ("device", "non_blocking")}
    formats = [_format_of(tensor, wrapper, kwargs) for tensor in inner_of(wrapper)]
    inner = [
        op(tensor, **moves, **format_)
        for tensor, format_ in zip(inner_of(wrapper), formats, strict=True)
    ]
    format_ = {key: value for key, value in kwargs.items() if key == "memory_format"}
    outside = torch.clone(_meta(wrapper), **format_)
    device = inner[0].device
    return _rebuilt(cls, wrapper, inner, stride=outside.stride(), offset=0, device=device)


def _copy(cls: type[Any], op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    target, source, *rest = args
    if cls.mixing == "error":
        for name, value in (("self", target), ("src", source)):
            own = isinstance(value, cls) or getattr(value, "_is_part", False)
            if not own and not is_made_by_torch(op.name(), name):
                raise mixing_error(cls, op.name(), name, value)
    if not isinstance(target, cls):
        op(target, source.to_plain(), *rest, **kwargs)
        return target
    link = link_of(target)
    shares_all = link is None or not (link.steps or link.apart)
    if shares_all and _same_form(target, source):
        fill(root_of(target), source)
        return target
    plain = source.to_plain() if isinstance(source, cls) else source
    if plain.size() != target.size() or plain.dtype is not target.dtype:
        plain = torch.empty_like(_meta(target), device=plain.device).copy_(plain)
    write_value(target, plain)
    return target


def _set(cls: type[Any], op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Take over the data of another wrapper, which both have from then on."""
    target, source = (*args, *kwargs.values())
    if not isinstance(target, cls) or not can_take(target, source):
        return _other_plan(cls, op)(args, kwargs)
    check_keeps_shape(target)
    take_data(target, source, target.is_inference())
    return target


def _pin(cls: type[Any], op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    wrapper = args[0]
    inner = [op(tensor, *args[1:], **kwargs) for tensor in inner_of(wrapper)]
    return _rebuilt(cls, wrapper, inner)


def _is_pinned(cls: type[Any], op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return all(op(tensor, *args[1:], **kwargs) for tensor in inner_of(args[0]))


_PLANS: dict[Any, Callable[..., Any]] = {
    _aten.detach.default: _alias,
    _aten.alias.default: _alias,
    _aten.lift_fresh.default: _alias,
    _aten.as_strided.default: _as_strided,
    _aten.clone.default: _clone,
    _aten._to_copy.default: _to_copy,
    _aten.copy_.default: _copy,
    _aten.set_.source_Tensor: _set,
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
            for one, other in zip(inner_of(a), inner_of(b), strict=True)
        )
    )


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Say what an operator that writes may change beside the values."""
    strided = tensor.layout is torch.strided
    place = (tensor.stride(), tensor.storage_offset()) if strided else ()
    return (tensor.size(), tensor.dtype, tensor.is_conj(), tensor.is_neg(), *place)


# ── on plain tensors ────────────────────────────────────────────────────────────────────────────


# Reshaping is told strides.
_AS_STRIDED = "aten::as_strided"
_TOLD: dict[str, Literal["stride"]] = {"aten::_reshape_alias": "stride"}


def _refuse_temporary(args: Sequence[Any], new_args: Sequence[Any]) -> None:
    """Refuse to let a plain tensor take over the data of a wrapper's plain value, which dies.

    Raises: ViewError unless that is an inner tensor's.
    """
    target, source = (*args, None, None)[:2]
    if not hasattr(type(source), "inner_tensors") or hasattr(type(target), "inner_tensors"):
        return
    if not any(in_one_memory(new_args[1], inner) for inner in inner_of(root_of(source))):
        raise ViewError(
            f"set_: a plain tensor cannot share the data of a {type(source).__qualname__}, which "
            "has its values in another form. Use copy_, or detach() of the wrapper."
        )


class _OnPlain:
    """Run an operator on what the wrappers stand for; what it writes is written back."""

    def __init__(self, cls: type[Any], op: Any) -> None:
        self.cls = cls
        self.name = op.name()
        self.roles: Roles = roles_of(op)
        self.call = fast_call(op)
        self.sets = self.name.startswith("aten::set_")
        self.passed_over = self.roles.writes and passed_over(op)
        self.writes_values = torch.Tag.inplace_view not in op.tags

    def __call__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run the operator."""
        if self.roles.aliases:
            views = self.views(args, kwargs)
            if views is not None:
                return views
        strict = self.strict_class(args, kwargs)
        values: dict[str, Any] = {}
        pairs: list[tuple[Any, torch.Tensor]] = []
        unsaid = self.roles.unsaid_writes(args, kwargs)
        memories = Memories() if self.roles.writes or unsaid else None
        roots = [] if memories is None else self.roots_of(args, kwargs)

        def plain(value: Any, name: str) -> Any:
            if self.is_ours(value, roots):
                for outer, known in pairs:
                    if outer is value:
                        return known
                made = None if memories is None else memories.window(value)
                if made is None:
                    made = plain_of(value)
                pairs.append((value, made))
                return made
            if (
                strict is not None
                and isinstance(value, torch.Tensor)
                and not isinstance(value, strict)
                and not is_made_by_torch(self.name, name)
            ):
                raise mixing_error(strict, self.name, name, value)
            return value

        new_args, new_kwargs = self.roles.replace_tensors(args, kwargs, plain, values)
        places = [_place(made) for _, made in pairs]
        uncounted = self.plain_uncounted(values, pairs)
        if self.sets:
            _refuse_temporary(args, new_args)
        result = self.call(*new_args, **new_kwargs)
        counted_by_nobody = [each for each, version in uncounted if each._version == version]
        if counted_by_nobody:
            increment_version(counted_by_nobody)
        if memories is not None:
            moved = [
                outer
                for (outer, made), place in zip(pairs, places, strict=True)
                if _place(made) != place or self.sets
            ]

            def in_place(meta: torch.Tensor) -> Any:
                return self.call(meta, *new_args[1:], **new_kwargs)

            self.write_back(unsaid, values, pairs, moved, memories, in_place)
        return self.answer(result, values)

    def strict_class(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Give the class that mixes with nothing, which may be that of which a view is; or None."""
        if self.cls.mixing == "error":
            return self.cls
        for value in each_in((*args, *kwargs.values())) if self.cls._is_part else ():
            if getattr(value, "_is_part", False) and type(root_of(value)).mixing == "error":
                return type(root_of(value))
        return None

    def plain_uncounted(
        self, values: Mapping[str, Any], pairs: Sequence[tuple[Any, torch.Tensor]]
    ) -> list[tuple[torch.Tensor, int]]:
        """List the plain tensors to be written whose versions autograd passes over, as in lists."""
        unwrapped = {id(outer) for outer, _ in pairs}
        return [
            (each, each._version)
            for argument in self.roles.arguments
            if argument.written and (argument.is_list or self.passed_over)
            for each in each_in(values.get(argument.name))
            if isinstance(each, torch.Tensor)
            and id(each) not in unwrapped
            and not each.is_inference()
        ]

    def is_ours(self, value: Any, roots: Sequence[Any] = ()) -> bool:
        """Say whether a value is to be unwrapped: a wrapper of the class, or a view of one.

        Where the operator writes, so are those that share the data of any of them.
        """
        if isinstance(value, self.cls) or getattr(value, "_is_part", False):
            return True
        if not roots or getattr(value, "_transparent", True):
            return False
        root = root_of(value)
        return any(root is each for each in roots)

    def roots_of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """List the wrappers whose data the call's arguments have."""
        roots: list[Any] = []

        def note(value: Any, name: str) -> Any:
            if self.is_ours(value):
                roots.append(root_of(value))
            return value

        self.roles.replace_tensors(args, kwargs, note, {})
        return roots

    def views(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Make views that read and write the wrapper; None where the operator makes none of it."""
        from subclass_utils._plain_view import views_of

        values: dict[str, Any] = {}
        self.roles.replace_tensors(args, kwargs, lambda value, name: value, values)
        wrapper: Any = values.get(self.roles.results[0].source or "")
        if not self.is_ours(wrapper):
            return None

        def call(meta: torch.Tensor) -> Any:
            def stand_in(value: Any, name: str) -> Any:
                return meta if value is wrapper else value

            new_args, new_kwargs = self.roles.replace_tensors(args, kwargs, stand_in, {})
            return self.call(*new_args, **new_kwargs)

        by: Literal["order", "stride", "place"] = _TOLD.get(self.name, "order")
        if self.name == _AS_STRIDED:
            by = "stride" if [*args, *kwargs.values()][3:] in ([], [None]) else "place"
        views = views_of(wrapper, call, by=by)
        is_whole = isinstance(views, torch.Tensor) and _place(views) == _place(wrapper)
        return _aten.detach.default(wrapper) if is_whole and not wrapper._is_part else views

    def write_back(
        self,
        unsaid: Sequence[TensorArgument],
        values: Mapping[str, Any],
        pairs: Sequence[tuple[Any, torch.Tensor]],
        moved: Sequence[Any],
        memories: Memories,
        in_place: Callable[[torch.Tensor], Any],
    ) -> None:
        """Bring written wrappers to their new value; `moved` have another outside now, too."""
        written, refused = [], False
        for argument in self.roles.arguments:
            is_written = argument.written or argument in unsaid
            value = values.get(argument.name) if is_written else None
            for outer in each_in(value):
                for wrapper, plain in pairs:
                    if wrapper is not outer:
                        continue
                    if any(outer is each for each in moved):
                        self.move(wrapper, plain, memories, in_place)
                    elif memories.window(wrapper) is None:
                        write_value(wrapper, plain)
                    else:
                        written.append(wrapper)
                    if (argument.is_list or self.passed_over) and not outer.is_inference():
                        increment_version((outer,))  # autograd does not
                    elif counts_in_lists(self.name, argument):
                        refused = not torch.is_inference_mode_enabled()
        memories.write_back(written)
        if refused:
            refuse_write_outside_inference_mode()

    def move(
        self, wrapper: Any, plain: torch.Tensor, memories: Memories, in_place: Callable[..., Any]
    ) -> None:
        """Give a wrapper the shape, strides and data that its plain value has got.

        Raises: ViewError where what was written there does not reach all that shares the data.
        """
        if wrapper._is_part:
            from subclass_utils._plain_view import reshape_view

            return reshape_view(wrapper, in_place if len(self.roles.arguments) == 1 else None)
        link = link_of(wrapper)
        if link is not None and self.writes_values:  # as `out`, which torch resizes
            check_keeps_shape(wrapper)
            if memories.window(wrapper) is None:
                raise cannot_follow(type(wrapper))
            memories.write_back([wrapper])
        return replace(wrapper, make_from_plain(type(wrapper), plain, wrapper), plain)

    def answer(self, result: Any, values: Mapping[str, Any]) -> Any:
        """Give written arguments back as what they are; other results stay plain."""
        roles = self.roles.results
        if self.roles.aliases:
            result = all_views_of(result, values.get(roles[0].source or ""))
        if len(roles) == 1:
            return values[roles[0].source or ""] if roles[0].kind == "same" else result
        if not roles:
            return result
        return tuple(
            values[role.source or ""] if role.kind == "same" else value
            for value, role in zip(result, roles, strict=True)
        )
