"""Write items of classes that mix with nothing, by numbers and lists.

torch makes plain tensors of them by itself, which are none that anybody mixed. Reading is left to
torch: with a `__getitem__` of Python's, a tensor without dimensions would count as a sequence.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from subclass_utils._roles import each_in

__all__ = ["is_item_at_hand", "set_item"]

_here = threading.local()


def is_item_at_hand() -> bool:
    """Say whether what is plain in a call was made by torch, to write an item."""
    return getattr(_here, "at_hand", False)


@contextmanager
def _at_hand(*given: Any) -> Iterator[None]:
    is_plain = any(
        isinstance(each, torch.Tensor) and not hasattr(type(each), "inner_tensors")
        for each in each_in(given)
    )
    before = is_item_at_hand()
    _here.at_hand = not is_plain
    try:
        yield
    finally:
        _here.at_hand = before


def set_item(self: Any, index: Any, value: Any) -> None:
    """Write an item, or several."""
    with _at_hand(index, value):
        torch.Tensor.__setitem__(self, index, value)
