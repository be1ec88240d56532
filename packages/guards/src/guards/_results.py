"""How the result of a run is written down, so that it can be given again."""

from __future__ import annotations

import collections
import re
from typing import TYPE_CHECKING, Any

import torch

from guards import _fetch
from guards._assumptions import Assumptions, CannotSpecialize
from guards._constants import is_constant, spell, type_name
from guards._fetch import MISSING, is_a
from guards._plain_objects import Layout, layout_of, slot_values
from guards._reached_constants import is_constant_like
from guards._record import Built, Place, Row

if TYPE_CHECKING:
    from guards._recording import Watcher

__all__ = ["write_result"]

_DEEPEST = 40  # Python takes 200 brackets within each other
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]{4,}")  # as the repr of most objects has it
_FACTORY: Any = collections.defaultdict.__dict__["default_factory"]


def write_result(
    value: Any, watcher: Watcher, assumptions: Assumptions, above: tuple[int, ...] = ()
) -> Any:
    """Give the form of a result that another call can be answered with.

    Raises:
        CannotSpecialize: it holds what cannot be made again.
    """
    if is_a(value, torch.Tensor):
        return watcher.write(value)
    if type(value) is torch.Size or (type(value) is tuple and not value):
        return value
    known = assumptions.places.get(id(value)) or assumptions.given.get(id(value))
    if known is not None:
        return Place(known[0])
    if id(value) in assumptions.within:
        raise CannotSpecialize(f"it gives the {type(value).__name__} within another container")
    if is_a(value, type):
        if is_constant_like(value) or assumptions.reaches_class(value):
            return value
        raise CannotSpecialize(f"it gives {spell(value)}")
    if is_constant(value) and type(value) not in (list, tuple, dict, set):
        _need_no_address(value)
        return value
    cls = type(value)
    row = type_name(cls).startswith("torch.return_types.")
    layout = None if row else layout_of(cls)
    if row or layout is not None:
        if id(value) in above or len(above) > _DEEPEST:
            raise CannotSpecialize("it gives something that contains itself, or nests too deep")
        above = (*above, id(value))
        if id(value) in watcher.given:
            raise CannotSpecialize(f"it gives the same {cls.__name__} in two places")
        watcher.given[id(value)] = value

    def write(part: Any) -> Any:
        return write_result(part, watcher, assumptions, above)

    if row:
        return Row(cls, tuple(map(write, value)))
    if layout is None or is_a(value, torch.nn.Module) or not assumptions.reaches_class(cls):
        raise CannotSpecialize(f"it gives {spell(value)}")
    slots = {k: write(v) for k, v in slot_values(value, layout).items() if v is not MISSING}
    if layout.root is collections.defaultdict:
        slots["default_factory"] = write(_FACTORY.__get__(value, cls))
    own = {name: write(part) for name, part in (_fetch.instance_dict(value) or {}).items()}
    return Built(cls, layout.root, _items(value, layout, write), own, slots)


def _need_no_address(*texts: Any) -> None:
    for text in texts:
        if type(text) is str and _ADDRESS.search(text):
            raise CannotSpecialize("it gives a text that says the address of an object")


def _items(value: Any, layout: Layout, write: Any) -> Any:
    root: Any = layout.root
    if root is object:
        return ()
    if root in (tuple, list):
        return tuple(map(write, root.__iter__(value)))
    if root is set:
        if not all(map(is_constant, set.__iter__(value))):
            raise CannotSpecialize("it gives a set of objects")
        _need_no_address(*set.__iter__(value))
        return tuple(set.__iter__(value))
    pairs = [(key, dict.__getitem__(value, key)) for key in root.__iter__(value)]
    if not all(is_constant(key) for key, _ in pairs):
        raise CannotSpecialize("it gives a dict whose keys are objects")
    _need_no_address(*(key for key, _ in pairs))
    return tuple((key, write(part)) for key, part in pairs)
