"""Checks of several values in one of torch's own trees of guards, which is asked in one call.

torch's check of many tensors (``TensorGuards``) is no faster, refuses the same tensor twice, and
ends the process where one is nested; of a tree, that comes out as an exception. But a tree with
more than one node needs ``torch._dynamo``, which takes a second to load: so trees are only made
where something has loaded it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from guards import _torch_private as private

if TYPE_CHECKING:
    from guards._checks import NodeCheck

__all__ = ["Leaf", "Table", "can_be_made", "tree_of"]


class Leaf(NamedTuple):
    """A check, and the value that it was made for."""

    check: NodeCheck
    value: Any


class Table(NamedTuple):
    """A dict that holds values, or such a dict of a module of class ``cls``."""

    leaves: dict[Any, Leaf]
    cls: type | None
    name: str


def can_be_made() -> bool:
    """Tell whether trees with several nodes can be made without loading anything."""
    return private.kind_of_node() is not None


def tree_of(parts: Sequence[Leaf | Table]) -> tuple[Any, list[object]]:
    """Make the tree that checks a tuple of values, one for each part; a single value by itself.

    A dict that is none, or lacks a key, does not hold, nor does a module of another class. Gives
    the tree, and the objects of which each must stay alive while the tree is asked.
    """
    root, kind = private.tree(), private.kind_of_node()
    by_address = []
    for place, part in enumerate(parts):
        # No example is given for a node: torch would only remember its class.
        node = root
        if len(parts) > 1:
            node = root.tuple_getitem_manager(place, "values", None, kind)
        if isinstance(part, Leaf):
            by_address.append(part.check.add_to(node, kind, part.value))
            continue
        if part.cls is not None:
            node.add_type_match_guard(id(part.cls), ["class"], None)
            node = node.get_generic_dict_manager("__dict__", None, kind)
            node = node.getitem_manager(part.name, part.name, None, kind)
        node.add_type_match_guard(id(dict), ["dict"], None)
        for key, (check, value) in part.leaves.items():
            # Torch's own way for dicts first sets aside what error there may be.
            below = node.getitem_manager(key, "value", None, kind)
            by_address.append(check.add_to(below, kind, value))
    return root, [value for value in by_address if value is not None]
