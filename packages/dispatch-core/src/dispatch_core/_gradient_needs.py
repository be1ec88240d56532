"""Which arguments the gradient of a composite operator needs, and which results have one.

The node of a kept operator runs the operator's parts in its backward. What these would not have
saved, nor anything that was computed from it, may be written before then, and need not be kept.
So the parts run once on tensors without data, with somebody who follows what each is made from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dispatch_core import _torch_private as private
from dispatch_core._call_tensors import fill_without_data, walk, without_data
from dispatch_core._kept import nothing_kept
from dispatch_core._mode_stack import QuietMode

__all__ = ["GradientNeeds", "LikePlain", "gradient_needs"]

Tensor = torch.Tensor


@dataclass
class GradientNeeds:
    """The positions of the tensors whose values it needs; which results depend on what has one.

    All of them, and None, where the parts cannot run without data.
    """

    values: frozenset[int]
    results: tuple[bool, ...] | None


_known: dict[Any, GradientNeeds] = {}
_MOST_KNOWN = 4096


def gradient_needs(op: Any, template: Any, tensors: Sequence[Tensor], state: Any) -> GradientNeeds:
    """Find what the gradient of a call needs, by running its parts without data.

    `template` is the call's (args, kwargs) with holes for `tensors`; `state` is what else the
    parts depend on.
    """
    try:
        key = op, state, _frozen(template), tuple(map(_look, tensors))
        known = _known.get(key)
    except TypeError:  # something that cannot be compared is an argument
        return GradientNeeds(frozenset(range(len(tensors))), None)
    if known is None:
        known = _find(op, template, tensors)
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[key] = known
    return known


def _look(tensor: Tensor) -> tuple[Any, ...]:
    sizes = (*tensor.size(), *tensor.stride()) if tensor.layout is torch.strided else ()
    if any(type(size) is not int for size in sizes):
        raise TypeError("a symbolic size")
    bits = tensor.is_conj(), tensor.is_neg()
    return (*sizes, tensor.layout, tensor.dtype, tensor.requires_grad, bits)


def _frozen(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return (type(value), *map(_frozen, value))
    if isinstance(value, dict):
        return tuple((key, _frozen(item)) for key, item in value.items())
    return type(value), value


def _find(op: Any, template: Any, tensors: Sequence[Tensor]) -> GradientNeeds:
    parts: Any = private.composite_kernel(op)
    saved: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    try:
        stand_ins = [without_data(tensor) for tensor in tensors]
        follow = _Follow(stand_ins)
        devices = {tensor.device for tensor in tensors}
        args, kwargs = fill_without_data(template, list(stand_ins), devices)
        with (
            nothing_kept(),
            torch.enable_grad(),
            torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
            follow,
        ):
            results: list[Tensor] = []
            walk(parts(*args, **kwargs), results.append)
        values: frozenset[int] = frozenset().union(*map(follow.made_from, saved))
    except Exception:  # two devices, data that decides, sizes that are symbols
        return GradientNeeds(frozenset(range(len(tensors))), None)
    return GradientNeeds(values, tuple(result.requires_grad for result in results))


class _Follow(QuietMode):
    """Runs the parts, and notes which arguments each tensor is made from."""

    def __init__(self, arguments: Sequence[Tensor]) -> None:
        self._sources: dict[int, frozenset[int]] = {}
        self._alive: list[Tensor] = []  # so that no storage is mistaken for another
        for position, tensor in enumerate(arguments):
            self._note(tensor, frozenset([position]))

    def made_from(self, tensor: Tensor) -> frozenset[int]:
        """Give the positions of the arguments that a tensor is made from."""
        return self._sources.get(_storage(tensor), frozenset())

    def _note(self, tensor: Tensor, sources: frozenset[int]) -> None:
        self._alive.append(tensor)
        self._sources[_storage(tensor)] = self.made_from(tensor) | sources

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        with private.disable_dispatch():
            result = func(*args, **(kwargs or {}))
        given: list[Tensor] = []
        walk((list(args), dict(kwargs or {})), given.append)
        sources = frozenset().union(*map(self.made_from, given))
        walk((result, given if func._schema.is_mutable else ()), self._noting(sources))
        return result

    def _noting(self, sources: frozenset[int]) -> Callable[[Tensor], None]:
        return lambda tensor: self._note(tensor, sources)


private.skip_in_dynamo(_Follow.__torch_dispatch__)


def _storage(tensor: Tensor) -> int:
    storage: int = tensor.untyped_storage()._cdata
    return storage


class LikePlain:
    """What a plain tensor looks like, for one whose values nobody needs."""

    def __init__(self, tensor: Tensor) -> None:
        self._size = tensor.size()
        self._stride = tensor.stride()
        self._dtype = tensor.dtype
        self._device = tensor.device
        self._bits = tensor.is_conj(), tensor.is_neg()

    def make(self) -> Tensor:
        """Make a tensor of zeros that looks like it."""
        with private.disable_dispatch(), torch.no_grad():
            made = torch.empty_strided(
                self._size, self._stride, dtype=self._dtype, device=self._device
            ).zero_()
            if self._bits[0]:
                made = made.conj()
            if self._bits[1]:
                made = torch._neg_view(made)
        return made
