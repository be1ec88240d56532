"""Straight lines for the common shapes of operators on transparent wrappers.

Most operators take tensors first and give one fresh tensor, a view of the first, or the first
itself, written. For those a function is written, once for each class and overload, that does
little more than a handler written by hand would; whatever is not as expected goes the general
way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from subclass_utils._carrying import carrying_lines
from subclass_utils._fast_lists import list_path
from subclass_utils._outside import keys_of, update_outside
from subclass_utils._roles import TensorResult
from subclass_utils._torch_private import (
    increment_version,
    inference_mode,
    make_outside,
    outside_of_handlers,
    restore_caller_state,
    set_conj,
    share_storage,
    skip_in_dynamo,
)
from subclass_utils._transparent import Transparent

__all__ = ["fast_path"]

TypedPlan = Callable[[Sequence[type], Sequence[Any], Mapping[str, Any]], Any]

_CALL = """
def run(types, args, kwargs):
    if len(args) {at_least} {count}:
        {arguments} = args{first}
        if {all_ours}:
            {unwrap}
            if not ({odd}):
{body}
"""
_NUMBER = """
        elif a0.__class__ is cls and (a1.__class__ is float or a1.__class__ is int):
            x0 = a0.{name}
            x1 = a1
            if not (x0.requires_grad or x0.is_complex()):
{body}
"""
_OTHERWISE = """
    return general(args, kwargs)
"""
_WRAP = """
wrapper = make_outside(
    cls, result.size(), result.stride(), result.storage_offset(), None, dtype,
    strided, result.device, False, False, None, False, False, keys,
)
wrapper.{name} = result
{metadata}
"""
_FRESH = """
result = call({inner}{rest})
dtype = result.dtype
if result.layout is strided:
{wrap}
    if dtype.is_complex and result.is_conj():
        set_conj(wrapper, True)
    return wrapper
return general.wrap_fresh(result, a0)
"""
_WRITTEN = """
call({inner}{rest})
if not x0.is_inference():
    increment_version((x0,))
if x0.layout is not strided and x0.size() != a0.size():
    update_outside(a0, x0)
return a0
"""
_VIEW = """
def run(types, args, kwargs):
    a0 = args[0] if args else None
    if a0.__class__ is cls{unless}:
        x0 = a0.{name}
        if x0.__class__ is tensor and x0.layout is strided and not x0.is_complex():
            try:
                with restore_caller_state():
                    result = call(x0, *args[1:]{keywords})
            except RuntimeError:
                if outside_of_handlers():
                    return general(args, kwargs)
                raise
            if result is x0:
                return a0
            dtype = result.dtype
            if not (dtype.is_complex or result.is_neg()):
                inference = result.is_inference()
                if inference is is_inference_mode():
{wrap}
                else:
                    with inference_mode(inference):
{wrap_deeper}
                share_storage(wrapper, a0)
                return wrapper
            return general.wrap_view(result, a0)
    return general(args, kwargs)
"""


def fast_path(cls: type[Any], op: Any, general: Transparent) -> TypedPlan:
    """Make the shortest way to run `op` for a class; `general` runs it for any arguments."""
    source = _source(cls, op, general)
    if source is None:
        listed = list_path(cls, op, general)
        return listed or (lambda types, args, kwargs: general(args, kwargs))
    namespace: dict[str, Any] = {
        "as_is": cls._carrier.as_is,
        "carried": cls._carrier.carried,
        "cls": cls,
        "call": general.call,
        "general": general,
        "increment_version": increment_version,
        "inference_mode": inference_mode,
        "is_inference_mode": torch.is_inference_mode_enabled,
        "keys": keys_of(cls, torch.float32),  # of any dtype
        "make_outside": make_outside,
        "outside_of_handlers": outside_of_handlers,
        "restore_caller_state": restore_caller_state,
        "set_conj": set_conj,
        "share_storage": share_storage,
        "strided": torch.strided,
        "tensor": torch.Tensor,  # a class may make tensors of its own, and find no mode to do so
        "update_outside": update_outside,
    }
    exec(compile(source, f"<{op.name()} on {cls.__qualname__}>", "exec"), namespace)
    run: TypedPlan = namespace["run"]
    skip_in_dynamo(run.__code__)
    return run


def _source(cls: type[Any], op: Any, general: Transparent) -> str | None:
    roles = general.roles
    if not general.name.startswith("aten::") or general.asks or general.resizes:
        return None
    if "nested" in general.name:  # an outside cannot be made, and the general way says so
        return None
    if general.may_copy:  # a composite operator may give its own argument back
        return None
    for position, argument in enumerate(roles.arguments):
        if argument.position != position or argument.is_list:
            return None
    count = len(roles.arguments)
    if not 1 <= count <= 4 or len(roles.results) != 1:
        return None
    wrap = _WRAP.format(
        name=general.inner_name,
        metadata=carrying_lines(cls.metadata, "a0"),
    )
    result = roles.results[0]
    if result == TensorResult("new") and not roles.writes:
        return _with_arguments(op, general, count, _FRESH, wrap)
    first = roles.arguments[0].name
    if roles.writes:
        in_place = [a.written for a in roles.arguments] == [True] + [False] * (count - 1)
        if not in_place or result != TensorResult("same", False, first) or not _keeps_place(op):
            return None
        return _with_arguments(op, general, count, _WRITTEN, "")
    is_view = result == TensorResult("view", False, first)
    if is_view and count == 1 and first == "self":
        keywords = _keywords(op)
        return _VIEW.format(
            name=general.inner_name,
            unless="" if keywords else " and not kwargs",
            keywords=keywords,
            wrap=_indented(wrap, 20),
            wrap_deeper=_indented(wrap, 24),
        )
    return None


def _keeps_place(op: Any) -> bool:
    """Say whether an in-place operator writes values where they are."""
    name = op._schema.name.partition("::")[2]
    return torch.Tag.pointwise in op.tags or name in ("copy_", "fill_", "zero_", "addmm_")


def _with_arguments(op: Any, general: Transparent, count: int, body: str, wrap: str) -> str:
    names = [f"a{index}" for index in range(count)]
    inner = [f"x{index}" for index in range(count)]
    parameters = op._schema.arguments
    exact = sum(not parameter.kwarg_only for parameter in parameters) == count
    keywords = _keywords(op)
    rest = ("" if exact else f", *args[{count}:]") + keywords
    # A tensor that may be None is one more question, so it is asked where None may come.
    optional = [isinstance(parameters[index].type, torch.OptionalType) for index in range(count)]
    odd = [f"({x}.requires_grad or {x}.is_complex())" for x in inner]
    if body == _WRITTEN and op._schema.name != "aten::copy_":
        # Nothing else writes complex numbers into real ones.
        odd[1:] = [f"{x}.requires_grad" for x in inner[1:]]
    filled = body.format(inner=", ".join(inner), rest=rest, wrap=_indented(wrap, 4))
    lines = _indented(filled, 16)
    source = _CALL.format(
        at_least="==" if exact else ">=",
        count=count if keywords else f"{count} and not kwargs",
        arguments=", ".join(names) + ("," if count == 1 else ""),
        first="" if exact else f"[:{count}]",
        all_ours=" and ".join(
            f"({name} is None or {name}.__class__ is cls)"
            if may_miss
            else f"{name}.__class__ is cls"
            for name, may_miss in zip(names, optional, strict=True)
        ),
        unwrap="; ".join(
            f"{x} = None if {name} is None else {name}.{general.inner_name}"
            if may_miss
            else f"{x} = {name}.{general.inner_name}"
            for x, name, may_miss in zip(inner, names, optional, strict=True)
        ),
        odd=" or ".join(
            f"({x} is not None and {odd})" if may_miss else odd
            for x, odd, may_miss in zip(inner, odd, optional, strict=True)
        ),
        body=lines,
    )
    if count == 2:
        source += _NUMBER.format(name=general.inner_name, body=lines)
    return source.replace("\n\n", "\n") + _OTHERWISE


def _keywords(op: Any) -> str:
    return ", **kwargs" if any(each.kwarg_only for each in op._schema.arguments) else ""


def _indented(text: str, by: int) -> str:
    return "\n".join(" " * by + line for line in text.splitlines() if line.strip())
