"""Hand composite operators whole to the classes that have handlers for them.

Torch takes a composite operator apart before it asks a class, unless autograd is out of the way.
So the wrappers of a class that has a handler for one, by its name or its packet's, carry a dispatch
key for which there is a kernel that hands it over whole; no other tensor has that key. What is
found by a rule or is the fallback gets the parts.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from dispatch_core import HandlerTable
from dispatch_core._for_subclass_utils import (
    kernel_for_classes,
    named_composites,
    tell_of_composites,
)

from subclass_utils._outside import give_keys
from subclass_utils._roles import each_in
from subclass_utils._shared_data import in_one_memory
from subclass_utils._torch_private import (
    COMPOSITE_KEY,
    composite_key,
    fall_through,
    is_composite_implicit,
    register_kernels,
    share_storage,
)

__all__ = ["follow_tables", "has_data_of", "shares_inner_tensors", "take_whole"]

_lock = threading.RLock()
_kept: list[Any] = []  # the library by which other operators pass the key by
_libraries: dict[str, Callable[[str, Callable[..., Any]], None]] = {}
_registered: set[Any] = set()


def take_whole(cls: Any) -> None:
    """See to it that the composite operators that a class has handlers for arrive whole."""
    ops = [op for op in named_composites(cls.table) if is_composite_implicit(op)]
    if not ops:
        return
    with _lock:
        for op in ops:
            if op not in _registered:
                _register(op)
        if "_keys_for_composites" in vars(cls):
            return
        cls._keys_for_composites = True
        made_before = bool(cls._keys)
        cls._keys.clear()
    if made_before:
        for wrapper in gc.get_referrers(cls):
            if type(wrapper) is cls:
                give_keys(wrapper)


def follow_tables(root: Any) -> None:
    """Look after the classes of a tree whose tables get handlers for composite operators."""

    def note(table: HandlerTable) -> None:
        for cls in _classes(root):
            own = cls.table  # anything, where the class was refused for it
            if isinstance(own, HandlerTable) and table in own._line():
                take_whole(cls)

    tell_of_composites(note)


def _classes(root: Any) -> Iterator[Any]:
    yield root
    for child in root.__subclasses__():
        yield from _classes(child)


def _register(op: Any) -> None:
    if not _kept:
        _kept.append(fall_through(COMPOSITE_KEY))
    register = _libraries.get(op.namespace)
    if register is None:
        register = _libraries[op.namespace] = register_kernels(op.namespace, COMPOSITE_KEY)
    register(op.name(), kernel_for_classes(op, composite_key, _wanted(op), _share_storage))
    _registered.add(op)


def _wanted(op: Any) -> Callable[[Sequence[Any], Mapping[str, Any]], bool]:
    """Make what says whether the class that torch asks first has a handler for an operator."""

    def is_wanted(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        first: Any = None
        for value in each_in((*args, *kwargs.values())):
            cls: Any = type(value)
            if hasattr(cls, "inner_tensors") and (first is None or issubclass(cls, first)):
                first = cls
        return first is not None and first._entries[op].is_named

    return is_wanted


def _share_storage(result: Any) -> Any:
    """Let the views among the results share the storage of what they view, outside too.

    By it torch.compile tells views from other inputs.
    """
    for value in each_in((result,)):
        if not hasattr(type(value), "inner_tensors") or value.is_inference():
            continue
        if type(value._base) is type(value):
            share_storage(value, value._base)
    return result


# ── results that are the argument ───────────────────────────────────────────────────────────────


def has_data_of(one: Any, other: Any) -> bool:
    """Say whether a wrapper holds nothing but what another one holds, in the same memory.

    A handler that makes a wrapper anew of what `to` or `flatten` gave for the inner tensor does
    so where that was the inner tensor itself.
    """
    cls = type(one)
    return (
        cls is type(other)
        and all(_is_same(getattr(one, n), getattr(other, n)) for n in cls.inner_tensors)
        and _look(one) == _look(other)
        and all(_is_equal(getattr(one, n), getattr(other, n)) for n in cls.metadata)
    )


def shares_inner_tensors(one: Any, other: Any) -> bool:
    """Say whether a wrapper and another tensor have an inner tensor, or its memory, in common."""
    mine, theirs = [*_innermost(one)], [*_innermost(other)]
    return any(in_one_memory(a, b) for a in mine for b in theirs)


def _innermost(tensor: Any) -> Iterator[Any]:
    names = getattr(type(tensor), "inner_tensors", None)
    if names is None:
        yield tensor
        return
    for name in names:
        inner = getattr(tensor, name)
        if isinstance(inner, torch.Tensor):
            yield from _innermost(inner)


def _is_same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)):
        return False
    if hasattr(type(one), "inner_tensors"):
        return has_data_of(one, other)
    return (
        type(one) is type(other) is torch.Tensor
        and in_one_memory(one, other)
        and _look(one) == _look(other)
    )


def _look(tensor: Any) -> tuple[Any, ...]:
    if tensor.layout is not torch.strided:
        return tensor.size(), tensor.dtype, tensor.layout
    place = tensor.size(), tensor.stride(), tensor.storage_offset()
    return (*place, tensor.dtype, tensor.layout, tensor.is_conj(), tensor.is_neg())


def _is_equal(one: Any, other: Any) -> bool:
    """Compare metadata, without asking objects that may answer as they like."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_is_equal, one, other))
    if isinstance(one, dict):
        return [*one] == [*other] and all(map(_is_equal, one.values(), other.values()))
    return isinstance(one, bool | int | float | complex | str | bytes) and bool(one == other)
