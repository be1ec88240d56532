"""Write plain values into wrappers whose outside differs, and into all that share their data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from subclass_utils._errors import ViewError
from subclass_utils._shared_data import (
    extent_of,
    fill,
    in_one_memory,
    inner_of,
    laid_out_as,
    lies_like,
    link_of,
    make_from_plain,
    memory_of,
    part_of,
    root_of,
)
from subclass_utils._torch_private import is_alias_of, is_fake

__all__ = ["Memories", "write_value"]


class Memories:
    """The values of the wrappers in one call, such that those that share data overlap here too."""

    def __init__(self) -> None:
        self._roots: list[tuple[Any, torch.Tensor]] = []

    def window(self, wrapper: Any) -> torch.Tensor | None:
        """Give a plain tensor to write to in a wrapper's place; None if there can be none."""
        if wrapper.layout is not torch.strided or wrapper.is_conj() or wrapper.is_neg():
            return None
        if wrapper._is_part:
            source = wrapper._checked_source()
            whole = self.window(source)
            if whole is None or not lies_like(whole, source):
                return None
            of_view: torch.Tensor = wrapper._part_of(whole)
            return of_view
        link = link_of(wrapper)
        if link is None:
            return self._memory(wrapper)
        if link.apart:
            raise ViewError(
                f"{type(wrapper).__qualname__}: this tensor shared the data of another one when "
                "its shape was changed in place; what is written to it cannot reach that one. "
                "Write to a clone(), or change the shape of a view instead."
            )
        whole = self.window(link.root)
        # Not the whole itself: who resizes the one leaves the other as it is.
        return None if whole is None else part_of(torch.ops.aten.alias.default(whole), link.steps)

    def _memory(self, root: Any) -> torch.Tensor:
        for known, memory in self._roots:
            if known is root:
                return memory
        memory = memory_of(root)
        strided = [each for each in inner_of(root) if each.layout is torch.strided]
        if any(is_alias_of(memory, each) for each in strided):
            memory = laid_out_as(root, memory.clone())
        self._roots.append((root, memory))
        return memory

    def write_back(self, written: Sequence[Any]) -> None:
        """Give the wrappers that were written, and all that share their data, the new values.

        Raises: ViewError where something cannot follow.
        """
        roots = [root_of(wrapper) for wrapper in written]
        pairs = [
            (root, memory) for root, memory in self._roots if any(each is root for each in roots)
        ]
        if len(pairs) > 1:
            _check_apart([root for root, _ in pairs])
        for root, memory in pairs:
            fill(root, make_from_plain(type(root), memory, root))


def _check_apart(roots: Sequence[Any]) -> None:
    """Refuse to write wrappers at once of which one would overwrite what is written to another.

    Raises: ViewError where two that nobody knows to share data were made of one tensor.
    """
    seen: list[Any] = []
    for root in roots:
        lent = root.__dict__.get("_lent", ())
        own = [getattr(root, name) for name in type(root).inner_tensors if name not in lent]
        if any(_overlap(one, other) for one in own for other in seen):
            raise ViewError(
                f"{type(root).__qualname__}: one operator writes two wrappers that were made of "
                "the same tensor, and one would lose what is written to the other. Write them "
                "one after the other, or make the second as the detach() of the first."
            )
        seen += own


def _overlap(one: Any, other: Any) -> bool:
    """Say whether two tensors have an element in common."""
    if one is other:
        return True
    if not in_one_memory(one, other) or not one.numel() or not other.numel():
        return False
    size = one.element_size(), other.element_size()
    starts = one.storage_offset() * size[0], other.storage_offset() * size[1]
    ends = extent_of(one) * size[0], extent_of(other) * size[1]
    if max(starts) >= min(ends):
        return False
    if size[0] != size[1] or is_fake(one):
        return True
    marks = torch.zeros(max(extent_of(one), extent_of(other)), dtype=torch.bool)
    marks.as_strided(one.size(), one.stride(), one.storage_offset()).fill_(True)
    return bool(marks.as_strided(other.size(), other.stride(), other.storage_offset()).any())


def write_value(wrapper: Any, plain: torch.Tensor) -> None:
    """Give a wrapper a new value, which everything that shares its data has from then on.

    Raises: ViewError where something cannot follow.
    """
    memories = Memories()
    window = memories.window(wrapper)
    if window is not None:
        window.copy_(plain)
        memories.write_back([wrapper])
    elif wrapper._is_part:
        wrapper._write_part(plain)
    else:
        fill(wrapper, make_from_plain(type(wrapper), plain, wrapper))
