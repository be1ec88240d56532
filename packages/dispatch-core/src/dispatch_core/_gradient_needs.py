"""Which arguments the gradient of a composite operator needs, and which results have one.

The node of a kept operator runs the operator's parts in its backward. What these would not have
saved, nor anything that was computed from it, may be written before then, and need not be kept.
So the parts run once on tensors without data, with somebody who follows what each is made from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from dispatch_core import _torch_private as private
from dispatch_core._call_tensors import (
    SymbolicSizeError,
    fill_without_data,
    look_of_call,
    walk,
    with_examples,
    without_data,
)
from dispatch_core._kept import nothing_kept
from dispatch_core._mode_stack import QuietMode
from dispatch_core._registry import handle_of

__all__ = ["GradientNeeds", "LikePlain", "gradient_needs"]

Tensor = torch.Tensor


@dataclass
class GradientNeeds:
    """The positions of the tensors whose values it needs; which results depend on what has one.

    All of them, and None, where the parts cannot run without data. And whether the parts draw
    random numbers.
    """

    values: frozenset[int]
    results: tuple[bool, ...] | None
    draws: bool


_known: dict[Any, GradientNeeds] = {}
_MOST_KNOWN = 4096


def gradient_needs(
    op: Any, template: Any, tensors: Sequence[Tensor], written: Sequence[int], state: Any
) -> GradientNeeds:
    """Find what the gradient of a call needs, by running its parts without data.

    `template` is the call's (args, kwargs) with holes for `tensors`, of which it writes those at
    the positions `written`; `state` is what else the parts depend on. Of symbolic sizes one
    example each is looked at, which settles nothing.
    """
    all_of_them = GradientNeeds(frozenset(range(len(tensors))), None, handle_of(op).facts.random)
    if op.namespace != "aten" or not private.saved_tensors_are_told():
        return all_of_them  # parts in Python may keep what they like, and look at values
    try:
        template = with_examples(template)
        key = state, look_of_call(op, template, tensors)
        known = _known.get(key)
    except (TypeError, SymbolicSizeError):  # also: something that cannot be compared
        return all_of_them
    if known is None:
        known = _find(op, template, tensors, written, all_of_them)
        if known is None:  # torch does not tell at the moment
            return all_of_them
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[key] = known
    return known


def _find(
    op: Any,
    template: Any,
    tensors: Sequence[Tensor],
    written: Sequence[int],
    all_of_them: GradientNeeds,
) -> GradientNeeds | None:
    parts: Any = private.composite_kernel(op)
    saved: list[Tensor] = []
    results: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    try:
        stand_ins = [without_data(tensor, by_example=True) for tensor in tensors]
        follow = _Follow(stand_ins)
        devices = {tensor.device for tensor in tensors}
        with (
            nothing_kept(),
            torch.enable_grad(),
            private.telling_saved_tensors(),
            private.disable_python_dispatcher(),
            torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
            _nothing_drawn(),
            follow,
        ):
            if not _are_told(saved):
                return None
            # A leaf must not be written to.
            given = [t.clone() if at in written else t for at, t in enumerate(stand_ins)]
            args, kwargs = fill_without_data(template, given, devices)
            walk(parts(*args, **kwargs), results.append)
        values: frozenset[int] = frozenset().union(*map(follow.made_from, saved))
    except Exception:  # two devices, data that decides, sizes that are symbols
        return all_of_them
    needing = tuple(result.requires_grad for result in results)
    return GradientNeeds(values, needing, follow.draws)


def _are_told(saved: list[Tensor]) -> bool:
    """See whether the hooks are called, by a product that saves its factors."""
    factor = torch.empty((), device="meta").requires_grad_()
    product = factor * factor
    told = bool(saved)
    saved.clear()
    return told and product.requires_grad


@contextmanager
def _nothing_drawn() -> Iterator[None]:
    """Leave the generator as it is, from which parts may draw that make tensors of their own."""
    with private.disable_dispatch():
        state = torch.default_generator.get_state()
    try:
        yield
    finally:
        with private.disable_dispatch():
            torch.default_generator.set_state(state)


# What of an operator's results depends on the values of which arguments, where that is not all.
_OF_FIRST = "native_group_norm native_layer_norm native_batch_norm _native_batch_norm_legit"
_FROM: dict[str, tuple[tuple[int, ...], ...]] = {
    "native_dropout": ((0,), ()),
    **dict.fromkeys(_OF_FIRST.split(), ((0, 1, 2, 3, 4), (0,), (0,))),
}


def _depends_on_no_value(name: str) -> bool:
    return name.endswith("_like") or name.startswith("new_")


class _Follow(QuietMode):
    """Runs the parts, and notes which arguments each tensor is made from."""

    def __init__(self, arguments: Sequence[Tensor]) -> None:
        self._sources: dict[int, frozenset[int]] = {}
        self._alive: list[Tensor] = []  # so that no storage is mistaken for another
        self._all = frozenset(range(len(arguments)))
        self.draws = False
        for position, tensor in enumerate(arguments):
            self._note(tensor, frozenset([position]))

    def made_from(self, tensor: Tensor) -> frozenset[int]:
        """Give the positions of the arguments that a tensor is made from; all if nobody saw it."""
        return self._sources.get(_storage(tensor), self._all)

    def _note(self, tensor: Tensor, sources: frozenset[int]) -> None:
        self._alive.append(tensor)
        storage = _storage(tensor)
        self._sources[storage] = self._sources.get(storage, frozenset()) | sources

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        with private.disable_dispatch():
            result = func(*args, **kwargs)
        self.draws = self.draws or torch.Tag.nondeterministic_seeded in func.tags
        namespace, _, name = func._schema.name.partition("::")
        made: list[Tensor] = []
        walk(result, made.append)
        if namespace == "aten" and _depends_on_no_value(name):
            self._note(made[0], frozenset())
        elif namespace == "aten" and name in _FROM and len(made) == len(_FROM[name]):
            for tensor, positions in zip(made, _FROM[name], strict=True):
                self._note(tensor, self._all_sources([args[p] for p in positions if p < len(args)]))
        else:
            sources = self._all_sources((args, kwargs))
            walk((made, (args, kwargs) if func._schema.is_mutable else ()), self._noting(sources))
        return result

    def _all_sources(self, values: Any) -> frozenset[int]:
        given: list[Tensor] = []
        walk(values, given.append)
        return frozenset().union(*map(self.made_from, given))

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
