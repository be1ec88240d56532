"""Give a wrapper the data of another one, as `.data =` and `set_` do."""

from __future__ import annotations

from typing import Any

import torch

from subclass_utils._description import describe_outside, make_described
from subclass_utils._errors import ViewError
from subclass_utils._shared_data import (
    Step,
    check_argument,
    connect,
    disconnect,
    hand_over,
    inner_of,
    link_of,
    root_of,
    value_of_view,
)
from subclass_utils._torch_private import share_storage

__all__ = ["can_take", "take_data"]

_data = torch.Tensor.data


def can_take(wrapper: Any, other: Any) -> bool:
    """Say whether a wrapper can have the data of another tensor, and not only a value like it."""
    cls = type(wrapper)
    if getattr(other, "_is_part", False):
        return isinstance(root_of(other), cls) and not wrapper._is_part
    return isinstance(other, cls)


def take_data(wrapper: Any, other: Any, inference: bool | None = None) -> None:
    """Give a wrapper the outside and the metadata of another tensor, and let both have one data.

    `inference` says whether it is an inference tensor then; else it is one if the other is.

    Raises: ViewError where `other` is a view of which the wrapper cannot be told new values.
    """
    cls = type(wrapper)
    if cls._transparent:
        inner = [_inner_data(inner) for inner in inner_of(other)]
        return _replace(wrapper, other, inner, describe_outside(other), other)
    check_argument(wrapper, True)
    step: Step | None = None
    value = source = other
    if other._is_part:
        source, step = _part_of_what(wrapper, other)
        value = value_of_view(other)
    elif _have_the_same(wrapper, other):
        return None
    inner = [each.data for each in inner_of(value)]
    outside = describe_outside(other)
    disconnect(wrapper)
    _replace(wrapper, value, inner, outside, other, inference)
    if step is None and link_of(source) is None and type(source) is cls:
        # The one that lives longer, mostly: what is given as data is often made for that.
        hand_over(source, wrapper)
        connect(source, wrapper)
    else:
        connect(wrapper, source, step)
    return None


def _inner_data(inner: Any) -> Any:
    """Give an inner tensor's data to a wrapper, which may change its shape as any other.

    What comes from a wrapper's `.data` may not.
    """
    if not hasattr(type(inner), "inner_tensors"):
        return inner.data
    if not type(inner)._transparent:
        return inner.detach()
    made = inner.data
    made.__dict__.pop("_from_data", None)
    name = type(inner).inner_tensors[0]
    setattr(made, name, _inner_data(getattr(inner, name)))
    return made


def _replace(
    wrapper: Any,
    value: Any,
    inner: list[Any],
    outside: dict[str, Any],
    storage: Any,
    inference: bool | None = None,
) -> None:
    cls = type(wrapper)
    made = make_described(cls, outside, inner, inference=inference)
    if storage.layout is torch.strided:
        share_storage(made, storage)
    _data.__set__(wrapper, made)  # type: ignore[attr-defined]
    for name, tensor in zip(cls.inner_tensors, inner, strict=True):
        setattr(wrapper, name, tensor)
    cls._carry_metadata(wrapper, value)


def _have_the_same(wrapper: Any, other: Any) -> bool:
    """Say whether two wrappers share all of one data already, and look alike."""
    if wrapper is other:
        return True
    link, others = link_of(wrapper), link_of(other)
    if root_of(wrapper) is not root_of(other):
        return False
    if any(each is not None and each.apart for each in (link, others)):
        return False
    steps, other_steps = (() if each is None else each.steps for each in (link, others))
    return steps is other_steps or steps == other_steps == ()


def _part_of_what(wrapper: Any, view: Any) -> tuple[Any, Step]:
    """Give the wrapper that a PlainView is of, and the step that leads there.

    Raises: ViewError where no operator leads there that wrappers follow.
    """
    source = view._checked_source()
    link = link_of(source)
    plain_steps = link is None or not (link.steps or link.apart)
    alike = view.dtype is source.dtype and (view.is_conj(), view.is_neg()) == (
        source.is_conj(),
        source.is_neg(),
    )
    if not plain_steps or not alike:
        raise ViewError(
            f"{type(wrapper).__qualname__}: the new data is a view that this tensor could not "
            "follow, as it has another dtype, or is of a view that a handler made. Give it "
            "a clone()."
        )
    place = [*view.size()], [*view.stride()], view.storage_offset()
    return source, (torch.ops.aten.as_strided.default, place, {}, None)
