"""Straight lines for `detach` and `clone` of wrappers whose outside differs.

As in `_fast_paths`, whatever is not as expected goes the general way.
"""

from __future__ import annotations

from typing import Any

import torch

from subclass_utils._outside import keys_of
from subclass_utils._shared_data import connect
from subclass_utils._torch_private import make_outside, share_storage, skip_in_dynamo
from subclass_utils._transparent import Plan

__all__ = ["straight_copy"]

_aten = torch.ops.aten

# A wrapper of int64 has a dispatch key that those of other dtypes have not.
_COPY = """
def run(args, kwargs):
    source = args[0]
    if source.__class__ is cls and not kwargs:
        dtype = source.dtype
        {inner} = {own}
        if (
            source.layout is strided
            and dtype is not int64
            and not (dtype.is_complex or source.is_neg()){more}
        ):
            {copies} = {copied}
            made = make_outside(
                cls, source.size(), source.stride(), {offset}, None, dtype,
                strided, source.device, False, False, None, False, False, keys,
            )
            {attributes} = {copies}
            {metadata}
            {shares}
            return made
    return general(args, kwargs)
"""


def straight_copy(cls: type[Any], op: Any, general: Plan) -> Plan:
    """Make the shortest way to detach or clone; `general` does it, and other operators."""
    if op is _aten.detach.default:
        copy, offset = torch.detach, "source.storage_offset()"
        shares = "share_storage(made, source); connect(made, source)"
        more = " and source.is_inference() is is_inference_mode()"
    elif op is _aten.clone.default:
        copy, offset, shares = torch.clone, "0", ""
        more = " and source.numel() and source.is_contiguous()"
    else:
        return general
    names = cls.inner_tensors
    inner, copies = (_tuple(f"{x}{index}" for index in range(len(names))) for x in "xy")
    source = _COPY.format(
        inner=inner,
        own=_tuple(f"source.{name}" for name in names),
        copies=copies,
        copied=_tuple(f"copy(x{index})" for index in range(len(names))),
        attributes=_tuple(f"made.{name}" for name in names),
        offset=offset,
        more=more,
        metadata="carry_metadata(made, source)" if cls.metadata else "",
        shares=shares,
    )
    namespace: dict[str, Any] = {
        "carry_metadata": cls._carry_metadata,
        "cls": cls,
        "connect": connect,
        "copy": copy,
        "general": general,
        "int64": torch.int64,
        "is_inference_mode": torch.is_inference_mode_enabled,
        "keys": keys_of(cls, torch.float32),
        "make_outside": make_outside,
        "share_storage": share_storage,
        "strided": torch.strided,
    }
    exec(compile(source, f"<{op.name()} of {cls.__qualname__}>", "exec"), namespace)
    run: Plan = namespace["run"]
    skip_in_dynamo(run.__code__)
    return run


def _tuple(items: Any) -> str:
    return "".join(f"{item}, " for item in items)
