"""Collectives of `torch.distributed` whose wrappers may all be in lists of lists.

There torch looks for no class, and would hand wrappers to code that reads memory. So a kernel of
our own, which every call passes on its way to that code, looks for them. The kernels are registered
when this is imported, as those of `_whole` are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from subclass_utils._roles import each_in
from subclass_utils._torch_private import KEY_OF_ALL_CALLS, keys_below_all_calls, register_kernels
from subclass_utils._wrapper import WrapperTensor

__all__: list[str] = []

_NAMES = ("allgather_", "allgather_coalesced_", "gather_", "reduce_scatter_", "scatter_")


def _kernel(op: Any) -> Callable[..., Any]:
    def run(keys: Any, *args: Any, **kwargs: Any) -> Any:
        for value in each_in(args):
            if isinstance(value, WrapperTensor):
                cls = type(value)
                return cls.__torch_dispatch__(op, (cls,), args, kwargs)
        return op.redispatch(keys & keys_below_all_calls, *args, **kwargs)

    return run


def _register() -> Any:
    if not torch.distributed.is_available():
        return None
    register = register_kernels("c10d", KEY_OF_ALL_CALLS)
    for name in _NAMES:
        register(f"c10d::{name}", _kernel(getattr(torch.ops.c10d, name).default))
    return register


_kept = _register()
