"""The fake mode in force."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import (
    _get_current_dispatch_mode_stack,
    is_traceable_wrapper_subclass,
)

from guards._current import current
from guards._errors import FakeModeMismatchError

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode

__all__ = ["active_fake_mode", "detect_fake_mode", "places", "the_one_of"]


def detect_fake_mode(inputs: Any = None) -> FakeTensorMode | None:
    """Find the fake mode in force, None if there is none.

    It looks at the tracing context, then at the modes that are active, innermost first, then at
    the fake tensors among ``inputs`` (any pytree), also inside traceable wrapper subclasses.

    Raises:
        FakeModeMismatchError: not all that are found are the same.
    """
    return the_one_of(places(inputs), FakeModeMismatchError)


def the_one_of(
    found: Iterator[tuple[str, FakeTensorMode]], error: type[FakeModeMismatchError]
) -> FakeTensorMode | None:
    """Give the mode that all places agree on, or raise this error."""
    first = next(found, None)
    if first is None:
        return None
    place, mode = first
    for other_place, other in found:
        if other is not mode:
            raise error(
                f"the fake mode of {place} ({mode}) is not the one of {other_place} ({other}): "
                "all that is used together must be made under one fake mode\n\n"
                f"fake mode of {place} made at:\n{_made_at(mode)}\n"
                f"fake mode of {other_place} made at:\n{_made_at(other)}",
                places=(place, other_place),
                modes=(mode, other),
            )
    return mode


def active_fake_mode() -> FakeTensorMode | None:
    """Find the innermost fake mode among the active modes, None if there is none."""
    return next((mode for _, mode in _active()), None)


def places(inputs: Any) -> Iterator[tuple[str, FakeTensorMode]]:
    """Give where a fake mode is found and which, in the order of precedence."""
    context = current.tracing_context
    if context is not None and context.fake_mode is not None:
        yield "the tracing context", context.fake_mode
    yield from _active()
    yield from _of_inputs(inputs)


def _active() -> Iterator[tuple[str, FakeTensorMode]]:
    from torch._subclasses.fake_tensor import FakeTensorMode

    for depth, mode in enumerate(reversed(_get_current_dispatch_mode_stack())):
        if isinstance(mode, FakeTensorMode):
            yield f"active mode {depth}, counted from the innermost", mode


def _of_inputs(inputs: Any) -> Iterator[tuple[str, FakeTensorMode]]:
    from torch._subclasses.fake_tensor import FakeTensor

    for position, leaf in enumerate(pytree.tree_leaves(inputs)):
        for path, tensor in _inner_tensors(leaf, ""):
            if isinstance(tensor, FakeTensor):
                yield f"input {position}{path}", tensor.fake_mode


def _inner_tensors(leaf: Any, path: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(leaf, torch.Tensor):
        return
    yield path, leaf
    if is_traceable_wrapper_subclass(leaf):
        for attribute in leaf.__tensor_flatten__()[0]:
            yield from _inner_tensors(getattr(leaf, attribute), f"{path}.{attribute}")


def _made_at(mode: Any) -> str:
    return str(getattr(mode, "stack", "unknown"))
