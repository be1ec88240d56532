"""Keep plain tensors from taking over the outside of a wrapper, which has no memory.

`plain.data = wrapper` asks no class, but torch asks an operator whether the one may become the
other. A kernel of our own answers that. It is for the key that every subclass carries: the
wrappers' own key is not on all of them. It is registered when this is imported, as those of
`_whole` are.
"""

from __future__ import annotations

from typing import Any

import torch

from subclass_utils._torch_private import (
    KEY_OF_SUBCLASSES,
    keys_below_subclasses,
    register_kernels,
)
from subclass_utils._wrapper import WrapperTensor

__all__: list[str] = []

_asked = torch.ops.aten._has_compatible_shallow_copy_type.default


def _may_become(keys: Any, tensor: torch.Tensor, data: torch.Tensor) -> Any:
    if isinstance(data, WrapperTensor) and not isinstance(tensor, WrapperTensor):
        return False
    return _asked.redispatch(keys & keys_below_subclasses, tensor, data)


_kept = register_kernels("aten", KEY_OF_SUBCLASSES)
_kept("aten::_has_compatible_shallow_copy_type", _may_become)
