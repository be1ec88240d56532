"""Keep plain tensors from taking over the outside of a wrapper, which has no memory.

`plain.data = wrapper` asks no class, but torch asks an operator whether the one may become the
other. A kernel of our own answers that. Another one is for `set_` with a place in a wrapper, where
torch asks no class but for the storage. They are for the key that every subclass carries, as the
wrappers' own key is not on all of them. They are put there when this is imported, as those of
`_whole` are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from dispatch_core._for_subclass_utils import stand_behind

from subclass_utils._errors import ViewError
from subclass_utils._torch_private import keys_below_subclasses
from subclass_utils._wrapper import WrapperTensor

__all__: list[str] = []

_asked = torch.ops.aten._has_compatible_shallow_copy_type.default


def _may_become(keys: Any, tensor: torch.Tensor, data: torch.Tensor) -> Any:
    if isinstance(data, WrapperTensor) and not isinstance(tensor, WrapperTensor):
        return False
    return _asked.redispatch(keys & keys_below_subclasses, tensor, data)


def _set_to_part(
    keys: Any,
    tensor: torch.Tensor,
    source: torch.Tensor,
    storage_offset: int,
    size: Sequence[int],
    stride: Sequence[int] = (),
) -> Any:
    if not isinstance(source, WrapperTensor):
        below = keys & keys_below_subclasses
        return _set.redispatch(below, tensor, source, storage_offset, size, stride)
    if not source.is_contiguous():
        raise ViewError("set_: the source must be contiguous; take as_strided of it, and set_ that")
    if not stride:
        stride = torch.empty(size, device="meta").stride()
    part: Any = source.detach().as_strided(size, stride, storage_offset + source.storage_offset())
    return tensor.set_(part)


_set = torch.ops.aten.set_.source_Tensor_storage_offset
stand_behind(_asked, _may_become)
stand_behind(_set, _set_to_part)
