"""Copy, pickle and save wrappers: their inner tensors, their metadata, and how they look.

Wrappers of one family share data: the whole, what detach gave, and views that a class's own
handlers made. Those that are copied together share the data of the copy, as tensors do whose
storage is copied once.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any
from weakref import WeakValueDictionary

import torch
from dispatch_core import UnknownOperatorError, handle_of

from subclass_utils._declaration import cannot_travel, travels
from subclass_utils._description import describe_outside, make_described
from subclass_utils._encoding import decode, encode
from subclass_utils._errors import CopyError
from subclass_utils._rebuild import name_or_class, rebuild_wrapper
from subclass_utils._shared_data import Link, Step, connect_part, link_of, root_of

__all__ = ["CLASSES", "build_wrapper", "deepcopy_wrapper", "reduce_wrapper", "share_with"]

CLASSES: WeakValueDictionary[tuple[str, str], type[Any]] = WeakValueDictionary()
"""The wrapper classes of this process by module and name, also those of no module's namespace."""

_OF_THIS_OBJECT = {"_argument", "_family", "_family_seen", "_from_data", "_lent"}
"""Attributes that say with whom an object shares its data: a copy finds that out by itself.

`_argument` is one of a compiled function, while torch.compile finds out what is written there.
"""


def _extras(wrapper: Any) -> dict[str, Any]:
    """Give the attributes that nobody declared: a Parameter's mark, a user's own."""
    declared = {*type(wrapper).inner_tensors, *type(wrapper).metadata}
    return {
        name: value
        for name, value in wrapper.__dict__.items()
        if name not in declared and name not in _OF_THIS_OBJECT
    }


def _is_apart(wrapper: Any) -> bool:
    """Say whether a view's handler made this, and its shape was changed since.

    What is written to it could not be written to the whole, so a copy shares nothing.
    """
    link = link_of(wrapper)
    return link is not None and bool(link.steps) and link.apart


def _family_of(wrapper: Any) -> Any:
    """Give what is one object for all wrappers that share data; None where nobody does."""
    if type(wrapper)._transparent or wrapper._is_part:
        return None
    link = link_of(wrapper)
    if link is not None:
        return None if link.apart else link.family
    return wrapper.__dict__.get("_family")


def _lent_by(wrapper: Any) -> set[str]:
    """List the inner tensors that wrappers of other data have too."""
    return {*root_of(wrapper).__dict__.get("_lent", ())}


# ── copy ────────────────────────────────────────────────────────────────────────────────────────


def deepcopy_wrapper(wrapper: Any, memo: dict[int, Any]) -> Any:
    """Copy a wrapper and everything it holds; what is shared inside the copy stays shared.

    But for a Parameter, which torch copies by itself: it shares the inner tensors that are the
    same objects elsewhere, and nothing else.

    Raises: RuntimeError for a tensor that autograd computed, as torch does; CopyError if the
    class's own clone gives another class.
    """
    if id(wrapper) in memo:
        return memo[id(wrapper)]
    if not wrapper.is_leaf:
        raise CopyError(
            "only tensors that were created explicitly by the user (graph leaves) support the "
            f"deepcopy protocol; this {type(wrapper).__qualname__} was computed: use "
            ".detach() or .clone() first",
            cls=type(wrapper),
        )
    _check_clone(wrapper)
    cls = type(wrapper)
    alone = isinstance(wrapper, torch.nn.Parameter) or _is_apart(wrapper)
    with torch.no_grad():
        names = cls.inner_tensors
        inner = [_copied(getattr(wrapper, name), memo, alone=alone) for name in names]
        made = make_described(cls, describe_outside(wrapper), inner)
    memo[id(wrapper)] = made
    made.requires_grad_(wrapper.requires_grad)
    for name in cls.metadata:
        setattr(made, name, copy.deepcopy(getattr(wrapper, name), memo))
    if wrapper.grad is not None:
        made.grad = copy.deepcopy(wrapper.grad, memo)
    made.__dict__.update(copy.deepcopy(_extras(wrapper), memo))
    lent = _lent_by(wrapper)
    if lent:
        made.__dict__["_lent"] = lent
    family = None if alone else _family_of(wrapper)
    if family is not None:
        _connect_copy(made, wrapper, family, memo)
    return made


def _copied(inner: torch.Tensor, memo: dict[int, Any], *, alone: bool) -> torch.Tensor:
    """Copy an inner tensor; `alone` if it is to share no memory with other copies."""
    if alone and id(inner) not in memo:
        memo[id(inner)] = copy.deepcopy(inner, {})
    made: torch.Tensor = copy.deepcopy(inner, memo)
    return made


def _connect_copy(made: Any, wrapper: Any, family: Any, memo: dict[int, Any]) -> None:
    """Let a copy share the data of the other copies of its family, as the wrapper does."""
    link = link_of(wrapper)
    if link is None or not link.steps:
        first = memo.setdefault(id(family), made)
        if first is not made:
            connect_part(made, first, ())
        return
    if id(family) not in memo:
        root = link.root
        alone = isinstance(root, torch.nn.Parameter) or not root.is_leaf
        copy.deepcopy(root.detach() if alone else root, memo)
    connect_part(made, memo[id(family)], link.steps)


def _check_clone(wrapper: Any) -> None:
    """Refuse where the class's own clone shows that it is not made to be copied."""
    cls = type(wrapper)
    if not cls._has_own_handler(torch.ops.aten.clone.default):
        return
    with torch.no_grad():
        clone = wrapper.clone()
    if type(clone) is not cls:
        raise CopyError(
            f"deepcopy of {cls.__qualname__}: cloning must return the same subclass, but its "
            f"handler of aten::clone gave a {type(clone).__qualname__}",
            cls=cls,
        )


def share_with(wrapper: Any) -> Any:
    """Make another wrapper of the same inner tensors."""
    state = _state_of(wrapper)
    if wrapper._is_part:
        state["inner"] = [wrapper.source]  # itself, of which the copy is a view
    return build_wrapper(type(wrapper), state)


# ── pickle ──────────────────────────────────────────────────────────────────────────────────────


def reduce_wrapper(wrapper: Any) -> tuple[Any, ...]:
    """Say how to build a wrapper again; everything in it may be loaded with weights_only."""
    state = _state_of(wrapper)
    family = _family_of(wrapper)
    steps = None if family is None else _encode_steps(link_of(wrapper))
    if steps is None and (family is not None or _is_apart(wrapper)):
        state["inner"] = [tensor.clone() for tensor in state["inner"]]
    elif steps is not None:
        state["family"], state["steps"] = family.saved, steps
        if steps:
            state["whole"] = link_of(wrapper).root  # type: ignore[union-attr]  # has steps
    if _lent_by(wrapper):
        state["lent"] = sorted(_lent_by(wrapper))
    return rebuild_wrapper, (name_or_class(type(wrapper)), state)


def _state_of(wrapper: Any) -> dict[str, Any]:
    """Say everything that a wrapper is, but for whom it shares its data with."""
    cls = type(wrapper)
    extras = _extras(wrapper)
    inner = [getattr(wrapper, name) for name in cls.inner_tensors]
    if wrapper.requires_grad:
        inner = [tensor.detach() for tensor in inner]
    return {
        "outside": {key: encode(value) for key, value in describe_outside(wrapper).items()},
        "inner": inner,
        "metadata": {name: _encoded(wrapper, name) for name in cls.metadata},
        "requires_grad": wrapper.requires_grad,
        "parameter": extras.pop("_is_param", False),
        "grad": wrapper.grad if wrapper.is_leaf else None,
        "extras": extras,
    }


def _encoded(wrapper: Any, name: str) -> Any:
    """Write metadata as builtins.

    Raises: CopyError for what was set to something that cannot travel after construction.
    """
    value = getattr(wrapper, name)
    try:
        return encode(value)
    except CopyError:
        problem = travels(value)
        if problem is None:
            raise
        cls = type(wrapper)
        raise CopyError(f"{cls.__qualname__}: {cannot_travel(name, problem)}", cls=cls) from None


def build_wrapper(cls: type[Any], state: Mapping[str, Any]) -> Any:
    """Build a wrapper from what `reduce_wrapper` said."""
    if not (isinstance(cls, type) and hasattr(cls, "inner_tensors")):
        raise CopyError(f"{cls!r} is no wrapper class", cls=type(cls))
    outside = {key: decode(value) for key, value in state["outside"].items()}
    inner = list(state["inner"])
    if inner and not cls._transparent:
        outside["device"] = inner[0].device if outside["device"].type != "meta" else "meta"
    made = make_described(cls, outside, inner, state["requires_grad"])
    for name, value in state["metadata"].items():
        setattr(made, name, decode(value))
    made.__dict__.update(state["extras"])
    if state["parameter"]:
        made._is_param = True
    if state["grad"] is not None:
        made.grad = state["grad"]
    if state.get("lent"):
        made.__dict__["_lent"] = {*state["lent"]} & {*cls.inner_tensors}
    family = state.get("family")
    if family is not None:  # one list for all that share data, which the first whole one enters
        if family:
            connect_part(made, family[0], _decode_steps(state["steps"]))
        elif not state["steps"]:
            family.append(made)
    return made


def _encode_steps(link: Link | None) -> list[Any] | None:
    """Write how a part came out of the whole; None where that cannot be said in a file."""
    encoded = []
    for op, args, kwargs, index in () if link is None else link.steps:
        try:
            values = [encode(value) for value in args]
            named = {name: encode(value) for name, value in kwargs.items()}
            if not handle_of(op).facts.view:
                return None
        except CopyError:
            return None
        encoded.append([op.name(), values, named, index])
    return encoded


def _decode_steps(steps: Any) -> list[Step]:
    """Read what `_encode_steps` wrote: nothing but operators that make views."""
    decoded: list[Step] = []
    for name, args, kwargs, index in steps:
        try:
            handle = handle_of(name)
        except UnknownOperatorError as error:
            raise CopyError(f"{name}: {error}", cls=Link) from error
        if not handle.facts.view:
            raise CopyError(f"{name} makes no view, so it is nothing that was saved", cls=Link)
        values = [decode(value) for value in args]
        named = {key: decode(value) for key, value in kwargs.items()}
        decoded.append((handle.torch_op, values, named, index))
    return decoded
