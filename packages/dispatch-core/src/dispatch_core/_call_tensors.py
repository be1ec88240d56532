"""The tensors in the arguments or results of a call, taken out and put back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dispatch_core import _torch_private as private

__all__ = [
    "SymbolicSizeError",
    "fill",
    "fill_without_data",
    "look_of_call",
    "walk",
    "with_examples",
    "without_data",
]

Tensor = torch.Tensor


class _Hole:
    """Where a tensor stood."""


_HOLE = _Hole()


def walk(value: Any, visit: Callable[[Tensor], object]) -> Any:
    """Visit each tensor in order, and give the same structure with holes in their place."""
    if isinstance(value, Tensor):
        visit(value)
        return _HOLE
    if isinstance(value, list):
        return [walk(item, visit) for item in value]
    if isinstance(value, tuple):
        return tuple(walk(item, visit) for item in value)
    if isinstance(value, dict):
        return {key: walk(item, visit) for key, item in value.items()}
    return value


def fill(template: Any, tensors: list[Any]) -> Any:
    """Put tensors into the holes; takes them off the list."""
    if template is _HOLE:
        return tensors.pop(0)
    if isinstance(template, list):
        return [fill(item, tensors) for item in template]
    if isinstance(template, tuple):
        return tuple(fill(item, tensors) for item in template)
    if isinstance(template, dict):
        return {key: fill(item, tensors) for key, item in template.items()}
    return template


def fill_without_data(template: Any, stand_ins: list[Any], devices: set[torch.device]) -> Any:
    """Put stand-ins without data into the holes, and their device where it said one of others."""
    return _moved(fill(template, stand_ins), devices)


def _moved(value: Any, devices: set[torch.device]) -> Any:
    if isinstance(value, torch.device):
        return torch.device("meta") if value in devices else value
    if isinstance(value, list | tuple):
        return type(value)(_moved(item, devices) for item in value)
    if isinstance(value, dict):
        return {key: _moved(item, devices) for key, item in value.items()}
    return value


class SymbolicSizeError(Exception):
    """Looking at a symbolic size would settle it."""


def with_examples(value: Any) -> Any:
    """Put an example in the place of each symbolic number.

    Raises: SymbolicSizeError where one has none.
    """
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        example = private.example_of(value)
        if example is None:
            raise SymbolicSizeError
        return example
    if isinstance(value, list | tuple):
        items = [with_examples(item) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {key: with_examples(item) for key, item in value.items()}
    return value


def without_data(tensor: Tensor, *, by_example: bool = False) -> Tensor:
    """Make a tensor that looks like another one, on the device that has no memory.

    Raises: SymbolicSizeError, unless an example of the sizes will do, and there is one;
    RuntimeError for a tensor without strides.
    """
    size, stride = tuple(tensor.size()), tuple(tensor.stride())
    if by_example:
        size, stride = with_examples(size), with_examples(stride)
    elif any(type(number) is not int for number in (*size, *stride)):
        raise SymbolicSizeError
    with private.disable_dispatch():
        made = torch.empty_strided(size, stride, dtype=tensor.dtype, device="meta")
        if tensor.is_conj():
            made = made.conj()
        if tensor.is_neg():
            made = torch._neg_view(made)
        return made.detach().requires_grad_(tensor.requires_grad)


def look_of_call(op: Any, template: Any, tensors: Sequence[Tensor]) -> Any:
    """Describe a call by all but its tensors' values, as a key of a dict.

    Raises: SymbolicSizeError where a symbolic size has no example. What cannot be compared makes
    a key that raises a TypeError where it is looked up.
    """
    return op, _frozen(template), tuple(map(_look, tensors))


def _look(tensor: Tensor) -> tuple[Any, ...]:
    strided = tensor.layout is torch.strided
    sizes = with_examples((*tensor.size(), *tensor.stride()) if strided else (*tensor.size(),))
    bits = tensor.is_conj(), tensor.is_neg(), private.has_python_key(tensor)
    return (*sizes, tensor.layout, tensor.dtype, tensor.device, tensor.requires_grad, bits)


def _frozen(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return (type(value), *map(_frozen, value))
    if isinstance(value, dict):
        return tuple((key, _frozen(item)) for key, item in value.items())
    return type(value), value
