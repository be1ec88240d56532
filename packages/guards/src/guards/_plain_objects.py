"""Objects of classes written in Python: all that they hold, and how another one is made."""

from __future__ import annotations

import collections
import types
from dataclasses import dataclass
from typing import Any

from guards import _fetch
from guards._emit import is_heap_type
from guards._fetch import MISSING

__all__ = ["Layout", "layout_of", "make", "slot_values"]


@dataclass(frozen=True)
class Layout:
    """Where the objects of a class keep what they hold.

    Attributes:
        root: the class of C that holds the rest: object, or a container.
        slots: the slots of the class and its bases, each with what reads and sets it.
    """

    root: type
    slots: tuple[tuple[str, types.MemberDescriptorType], ...]


_ROOTS = (collections.OrderedDict, collections.defaultdict, dict, list, tuple, set, object)
_TWO_POINTERS = 16  # to the dict of attributes and to the weak references


_class_mro = type.__dict__["__mro__"].__get__
_class_dict = type.__dict__["__dict__"].__get__
_size = type.__dict__["__basicsize__"].__get__


def layout_of(cls: type) -> Layout | None:
    """Say where objects of a class keep what they hold; None where that cannot be told in full."""
    mro = _class_mro(cls)
    root = next(root for root in _ROOTS if _is_among(root, mro))
    slots: dict[str, types.MemberDescriptorType] = {}
    for base in mro:
        if _is_among(base, _class_mro(root)):
            continue
        if not _is_of_python(base):
            return None
        for name, member in _class_dict(base).items():
            if type(member) is types.MemberDescriptorType:
                if name in slots:
                    return None  # one hides the other
                slots[name] = member
    # What is larger than that keeps something where nobody can look.
    if _size(cls) > _size(root) + 8 * len(slots) + _TWO_POINTERS:
        return None
    return Layout(root, tuple(slots.items()))


def _is_among(cls: type, classes: tuple[type, ...]) -> bool:
    return any(cls is other for other in classes)  # a metaclass may have an __eq__ of its own


def _is_of_python(cls: type) -> bool:
    """Tell whether a class was made by a class statement, and not by C code at run time."""
    if not is_heap_type(cls):
        return False
    own = _class_dict(cls)
    for name, member in own.items():
        kind = type(member)
        if kind in _MADE_IN_C and member.__objclass__ is cls:
            return False
        if kind is types.GetSetDescriptorType and name not in ("__dict__", "__weakref__"):
            return False
        if kind is types.MemberDescriptorType and "__slots__" not in own:
            return False
    return True


_MADE_IN_C = (
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
)


def make(cls: Any, root: Any, items: Any, own: dict[str, Any], slots: dict[str, Any]) -> Any:
    """Make an object that holds these things, without running code of its class."""
    made = root.__new__(cls, items) if root is tuple else root.__new__(cls)
    if root is list:
        list.extend(made, items)
    elif root is set:
        set.update(made, items)
    elif root is not tuple:
        for key, value in items:
            root.__setitem__(made, key, value)
    place = _fetch.instance_dict(made) if own else None
    if place is not None:
        place.update(own)
    for name, value in slots.items():
        _fetch.class_attribute(cls, name).__set__(made, value)
    return made


def slot_values(value: Any, layout: Layout) -> dict[str, Any]:
    """Give what the slots of an object hold; MISSING for those that hold nothing."""
    found = {}
    for name, slot in layout.slots:
        try:
            found[name] = slot.__get__(value, type(value))
        except AttributeError:
            found[name] = MISSING
    return found
