"""Let a DataLoader's default collation give the same wrapper with workers as without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from dispatch_core import NoHandlerError
from torch.utils.data._utils.collate import default_collate_fn_map

from subclass_utils._shared_data import new_from_plain

__all__ = ["register_collation"]

_stack = torch.ops.aten.stack.default


def _collate(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
    """Stack wrappers. torch would stack into shared memory in a worker, and lose the class."""
    first = batch[0]
    try:
        stacked = torch.stack(list(batch), 0)
    except NoHandlerError:
        stacked = torch.stack([item.to_plain() for item in batch], 0)
    cls = type(first)
    if isinstance(stacked, cls) or first._is_part or cls._has_own_handler(_stack):
        return stacked
    # Without a handler of its own a class that goes by its plain value is stacked as one.
    return new_from_plain(cls, stacked, first)


def register_collation(cls: type[Any]) -> None:
    """Make the default collation stack the wrappers of a class as wrappers."""
    default_collate_fn_map[cls] = _collate
