"""The tensors in the arguments or results of a call, taken out and put back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["fill", "walk"]

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
