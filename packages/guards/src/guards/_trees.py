"""Checks of several values in one of torch's own trees of guards, which is asked in one call.

torch's check of many tensors (``TensorGuards``) is no faster, refuses the same tensor twice, and
ends the process where one is nested; of a tree, that comes out as an exception. But a tree with
more than one node needs ``torch._dynamo``, which takes a second to load: so trees are only made
where something has loaded it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from guards import _torch_private as private

if TYPE_CHECKING:
    from guards._checks import NodeCheck

__all__ = ["Leaf", "Table", "can_be_made", "tree_of"]


class Leaf(NamedTuple):
    """A check, and the value that it was made for."""

    check: NodeCheck
    value: Any

    def add_to(self, node: Any, kind: Any) -> object:
        """Let a node make the check; see there."""
        return self.check.add_to(node, kind, self.value)


class Table(NamedTuple):
    """A dict that holds values, or such a dict of a module of class ``cls``, or any mapping.

    ``bare`` lists the keys that the module's own dict must not have, where it would hide them.
    """

    leaves: dict[Any, Leaf]
    cls: type | None
    name: str
    is_any_mapping: bool
    bare: list[str]


def can_be_made() -> bool:
    """Tell whether trees with several nodes can be made without loading anything."""
    return private.kind_of_node() is not None


def tree_of(parts: Sequence[Leaf | Table]) -> tuple[Any, list[object]]:
    """Make the tree that checks a tuple of values, one for each part; a single value by itself.

    A dict that is none, or lacks a key, does not hold, nor does a module of another class. Gives
    the tree, and the objects of which each must stay alive while the tree is asked.
    """
    root, kind, of_dict = private.tree(), private.kind_of_node(), private.kind_of_dict_node()

    def below(reach: Callable[..., Any], key: Any, leaf: object) -> Any:
        # No example is given for another node: torch would only remember its class.
        example = leaf.check.dict_of_node() if isinstance(leaf, Leaf) else None
        return reach(key, "value", example, kind if example is None else of_dict)

    by_address = []
    for place, part in enumerate(parts):
        node = root
        if len(parts) > 1:
            node = below(root.tuple_getitem_manager, place, part)
        if isinstance(part, Leaf):
            by_address.append(part.add_to(node, kind))
            continue
        if part.cls is not None:
            node.add_type_match_guard(id(part.cls), ["class"], None)
            node = node.get_generic_dict_manager("__dict__", None, kind)
            for key in part.bare:
                node.add_dict_contains_guard(False, key, ["hidden"], None)
            node = node.getitem_manager(part.name, part.name, None, kind)
        if not part.is_any_mapping:
            node.add_type_match_guard(id(dict), ["dict"], None)
        for key, leaf in part.leaves.items():
            # Torch's own way for dicts first sets aside what error there may be.
            by_address.append(leaf.add_to(below(node.getitem_manager, key, leaf), kind))
    return root, [value for value in by_address if value is not None]
