"""Make sparse tensors of wrapped indices and values, which torch reads from memory.

It reads the indices to find the size where none is given, and to check them. The kernels are for
the wrappers' own dispatch key, and put there when this is imported, as those of `_whole` are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from dispatch_core._for_subclass_utils import is_kept

from subclass_utils._torch_private import keys_below_wrapper_key, wrapper_kernels
from subclass_utils._wrapper import WrapperTensor

__all__: list[str] = []

_check_invariants = torch.sparse.check_sparse_tensor_invariants


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    while isinstance(tensor, WrapperTensor):
        tensor = tensor.to_plain()
    return tensor


def _without_size(keys: Any, indices: Any, values: Any, **options: Any) -> Any:
    op = torch.ops.aten.sparse_coo_tensor
    readable = isinstance(indices, WrapperTensor) and indices.dim() == 2 and indices.numel()
    if is_kept(op.indices) or not readable:
        below = keys & keys_below_wrapper_key  # torch has nothing to read, or says what is wrong
        return op.indices.redispatch(below, indices, values, **options)
    plain = _plain(indices.detach())
    if int(plain.min()) < 0:
        raise RuntimeError(f"found negative index {int(plain.min())}")
    size = [int(last) + 1 for last in plain.amax(1)] + [*values.size()[1:]]
    return op.indices_size(indices, values, size, **options)


def _with_size(keys: Any, indices: Any, values: Any, size: Sequence[int], **options: Any) -> Any:
    below = keys & keys_below_wrapper_key
    op = torch.ops.aten.sparse_coo_tensor.indices_size
    if is_kept(op) or not _check_invariants.is_enabled():
        return op.redispatch(below, indices, values, size, **options)
    _check(keys, indices, values, size, options.get("is_coalesced"))
    with _check_invariants(False):
        return op.redispatch(below, indices, values, size, **options)


def _check(
    keys: Any, indices: Any, values: Any, size: Sequence[int], *rest: Any, **named: Any
) -> None:
    op = torch.ops.aten._validate_sparse_coo_tensor_args.default
    op(_plain(indices.detach()), _plain(values.detach()), size, *rest, **named)


def _register() -> Any:
    register = wrapper_kernels("aten")
    register("aten::sparse_coo_tensor.indices", _without_size)
    register("aten::sparse_coo_tensor.indices_size", _with_size)
    register("aten::_validate_sparse_coo_tensor_args", _check)
    return register


_kept = _register()
