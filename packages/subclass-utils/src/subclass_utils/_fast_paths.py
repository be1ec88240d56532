"""Straight lines for the common shapes of operators on transparent wrappers.

Most operators take tensors first and give one fresh tensor. For those a function is written, once
for each class and overload, that does no more than a handler written by hand would; whatever is
not as expected goes the general way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from subclass_utils._roles import TensorResult
from subclass_utils._torch_private import (
    WRAPPER_KEYS,
    make_outside,
    set_conj,
    skip_in_dynamo,
)
from subclass_utils._transparent import Transparent

__all__ = ["fast_path"]

TypedPlan = Callable[[Sequence[type], Sequence[Any], Mapping[str, Any]], Any]

_FRESH = """
def run(types, args, kwargs):
    if len(args) {at_least} {count}:
        {arguments} = args{first}
        if {all_ours}:
            {unwrap}
            if not ({odd}):
                result = call({inner}{rest}, **kwargs)
                dtype = result.dtype
                if result.layout is strided:
                    wrapper = make_outside(
                        cls, result.size(), result.stride(), result.storage_offset(), None, dtype,
                        strided, result.device, False, False, None, False, False, keys,
                    )
                    wrapper.{name} = result
                    {metadata}
                    if dtype.is_complex and result.is_conj():
                        set_conj(wrapper, True)
                    return wrapper
                return general.wrap_fresh(result, a0)
    return general(args, kwargs)
"""


def fast_path(cls: type[Any], op: Any, general: Transparent) -> TypedPlan:
    """Make the shortest way to run `op` for a class; `general` runs it for any arguments."""
    count = _leading_tensors(general)
    if not count:
        return lambda types, args, kwargs: general(args, kwargs)
    source = _source(cls, op, general, count)
    namespace: dict[str, Any] = {
        "cls": cls,
        "call": general.call,
        "make_outside": make_outside,
        "strided": torch.strided,
        "keys": WRAPPER_KEYS,
        "set_conj": set_conj,
        "general": general,
        "numbers": (int, float, bool),
    }
    exec(compile(source, f"<{op.name()} on {cls.__qualname__}>", "exec"), namespace)
    run: TypedPlan = namespace["run"]
    skip_in_dynamo(run.__code__)
    return run


def _leading_tensors(general: Transparent) -> int:
    """Count the arguments, if they are all tensors that come first, and give one fresh tensor."""
    roles = general.roles
    if general.restores or roles.results != (TensorResult("new"),):
        return 0
    if not general.name.startswith("aten::"):
        return 0
    for position, argument in enumerate(roles.arguments):
        if argument.position != position or argument.is_list:
            return 0
    count = len(roles.arguments)
    return count if count <= 4 else 0


def _source(cls: type[Any], op: Any, general: Transparent, count: int) -> str:
    names = [f"a{index}" for index in range(count)]
    inner = [f"x{index}" for index in range(count)]
    attribute = general.inner_name
    exact = len(op._schema.arguments) == count
    odd = " or ".join([f"{x}.requires_grad" for x in inner] + [f"{x}.is_complex()" for x in inner])
    return _FRESH.format(
        at_least="==" if exact else ">=",
        count=count,
        arguments=", ".join(names) + ("," if count == 1 else ""),
        first="" if exact else f"[:{count}]",
        all_ours=" and ".join(f"{name}.__class__ is cls" for name in names),
        unwrap="; ".join(f"{x} = {name}.{attribute}" for x, name in zip(inner, names, strict=True)),
        odd=odd,
        inner=", ".join(inner),
        rest="" if exact else f", *args[{count}:]",
        name=attribute,
        metadata="; ".join(f"wrapper.{name} = a0.{name}" for name in cls.metadata) or "pass",
    )
