"""Let results of a kept operator that share memory with its arguments be views, as torch's are.

Torch makes views where the parts of a composite operator run, which is after the place where a
kept one is answered. So the parts run once more for autograd's sake, and a mode gives them what
the handlers have answered already: the results are the handlers' own tensors, with torch's nodes,
bases and version counters. That is so for operators whose parts are views, or read a number; what
computes anything is none of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from dispatch_core import _torch_private as private
from dispatch_core._call_tensors import (
    SymbolicSizeError,
    fill,
    fill_without_data,
    look_of_call,
    walk,
    without_data,
)
from dispatch_core._kept import nothing_kept
from dispatch_core._mode_stack import QuietMode
from dispatch_core._no_dispatch import is_memoryless

__all__ = ["OnlyPartsError", "as_views", "shares_data", "shares_memory"]

Tensor = torch.Tensor
Parts = Callable[..., Any]
Origin = tuple[int, int]  # a part and which of its results; or _ARGUMENT and which of the tensors
_ARGUMENT = -1

# Calls of operators whose schema says nothing of views, that were seen to compute something.
_computing: set[Any] = set()
_MOST_COMPUTING = 4096


class _NoViews(Exception):
    """Leaves a composite operator at a part that is no view."""


class OnlyPartsError(Exception):
    """Some of the results are to be views, and others, which are none, have a gradient."""


def as_views(
    op: Any, template: Any, tensors: Sequence[Tensor], results: Sequence[Tensor]
) -> Sequence[Tensor] | None:
    """Give the results of a call as the views that torch would have made of its arguments.

    `template` is the call's (args, kwargs) with holes for `tensors`. None means that they are
    none: the operator computes, or a handler answered with something else than its parts give.

    Raises: OnlyPartsError where only the parts can give both views and gradients.
    """
    if not results or not _may_share(op, template, tensors, results):
        return None
    parts: Any = private.composite_kernel(op)
    plan = _make_plan(op, parts, template, tensors)
    fitting = None if plan is None else plan.fitting(tensors, results)
    if plan is None or fitting is None:
        return None
    views: list[Tensor] = []
    args, kwargs = fill(template, list(tensors))
    try:
        with nothing_kept(), _Answer(plan, results, fitting):
            walk(parts(*args, **kwargs), views.append)
    except _NoViews:  # in a trace they may go another way than on stand-ins
        return None
    return [
        view if fits else result for view, result, fits in zip(views, results, fitting, strict=True)
    ]


def shares_memory(one: Tensor, other: Tensor) -> bool:
    """Say whether two tensors are one, or have their data in the same storage."""
    if one is other:
        return True
    try:
        return private.is_alias_of(one, other)
    except RuntimeError:  # some layouts have no storage
        return False


def shares_data(one: Tensor, other: Tensor) -> bool:
    """Say whether what is written into one tensor may be seen in the other, inside of it too."""
    return shares_memory(one, other) or any(
        bool(shares(*pair))
        for pair in ((one, other), (other, one))
        if (shares := getattr(type(pair[0]), "_shares_inner_tensors", None)) is not None
    )


def _may_share(
    op: Any, template: Any, tensors: Sequence[Tensor], results: Sequence[Tensor]
) -> bool:
    pairs = [(result, tensor) for result in results for tensor in tensors]
    if any(shares_memory(*pair) or _has_data_of(*pair) for pair in pairs):
        return True
    if not any(map(_is_wrapper, tensors)):
        return False
    if _says_views(op):
        return True
    # The memory of wrappers is elsewhere; some classes know where.
    if not any(map(_may_share_elsewhere, *zip(*pairs, strict=True))):
        return False
    try:
        return look_of_call(op, template, tensors) not in _computing
    except (TypeError, SymbolicSizeError):
        return True


def _says_views(op: Any) -> bool:
    return any(value.alias_info for value in op._schema.returns)


def _may_share_elsewhere(result: Tensor, tensor: Tensor) -> bool:
    shares = getattr(type(result), "_shares_inner_tensors", None)
    if shares is not None:
        return bool(shares(result, tensor))
    return _is_wrapper(tensor) and not hasattr(type(tensor), "_shares_inner_tensors")


def _has_data_of(result: Tensor, tensor: Tensor) -> bool:
    """Say whether a result looks at the whole of another tensor's data, just as that does."""
    of_wrappers = getattr(type(result), "_has_data_of", None)
    if of_wrappers is not None:
        return bool(of_wrappers(result, tensor))
    return (
        type(result) is type(tensor)
        and not _is_wrapper(result)
        and _geometry(result) == _geometry(tensor)
        and shares_memory(result, tensor)
    )


def _is_wrapper(tensor: Tensor) -> bool:
    return private.has_python_key(tensor) and is_memoryless(tensor)


# ── what the parts give ─────────────────────────────────────────────────────────────────────────


@dataclass
class _Part:
    """A part that ran: its results, as a structure and the tensors in it."""

    func: Any
    template: Any
    results: list[Tensor]


@dataclass
class _Plan:
    """The parts of a call, and which of their results are the call's."""

    parts: list[_Part]
    origins: list[Origin]
    needing: list[bool]  # which of them have a gradient
    given: list[Tensor]  # the arguments, or what stood in for them
    on_stand_ins: bool

    def fitting(self, tensors: Sequence[Tensor], results: Sequence[Tensor]) -> list[bool] | None:
        """Say which results are what the parts give.

        None where none is, or where one has a gradient and is something else.

        Raises: OnlyPartsError where that is a wrapper of what a plain tensor gave.
        """
        if len(results) != len(self.origins):
            return None
        fits = [self._fits(tensors, *pair) for pair in zip(results, self.origins, strict=True)]
        if not any(fits):
            return None
        for result, origin, needs, fit in zip(
            results, self.origins, self.needing, fits, strict=True
        ):
            if needs and not fit:
                if not self._is_wrapper_of_plain(tensors, result, origin):
                    return None
                raise OnlyPartsError
        seen: set[int] = set()
        origins: set[Origin] = set()
        for result, (part, at), fit in zip(results, self.origins, fits, strict=True):
            if fit:  # one that is the argument may be a wrapper made anew of it
                seen.add(id(tensors[at] if part == _ARGUMENT else result))
                origins.add((part, at))
        return fits if len(seen) == len(origins) else None

    def _fits(self, tensors: Sequence[Tensor], result: Tensor, origin: Origin) -> bool:
        part, at = origin
        if part == _ARGUMENT:
            return result is tensors[at] or _has_data_of(result, tensors[at])
        if result.is_inference() and not any(t.is_inference() for t in tensors):
            return False  # which torch takes for no view
        if self._is_wrapper_of_plain(tensors, result, origin):
            return False
        return self._is_like(result, self.parts[part].results[at])

    def _is_wrapper_of_plain(
        self, tensors: Sequence[Tensor], result: Tensor, origin: Origin
    ) -> bool:
        """Say whether a handler wrapped what the operator views of a plain tensor."""
        if not self.on_stand_ins or not private.has_python_key(result):
            return False
        part, at = origin
        if part == _ARGUMENT:
            return not private.has_python_key(tensors[at])
        wanted = self.parts[part].results[at]
        return not any(
            private.has_python_key(tensor) and shares_memory(given, wanted)
            for tensor, given in zip(tensors, self.given, strict=True)
        )

    def _is_like(self, result: Tensor, wanted: Tensor) -> bool:
        if result._is_view() or result.requires_grad:  # a handler has seen to it
            return False
        if self.on_stand_ins:
            return (result.dtype, result.size()) == (wanted.dtype, wanted.size())
        return _geometry(result) == _geometry(wanted) and shares_memory(result, wanted)


def _geometry(tensor: Tensor) -> Any:
    what = (tensor.dtype, tensor.layout, tensor.is_conj(), tensor.is_neg(), tensor.size())
    if tensor.layout is not torch.strided:
        return what
    return (*what, tensor.stride(), tensor.storage_offset())


def _make_plan(op: Any, parts: Parts, template: Any, tensors: Sequence[Tensor]) -> _Plan | None:
    """Run the parts with nobody watching, on stand-ins for what has no memory.

    Parts that look at two tensors want them on one device, so stand-ins are made for the others
    too, unless the parts read those.
    """
    wrapped = [private.has_python_key(tensor) for tensor in tensors]
    whole = [True] * len(tensors)
    for stands_in in [whole, wrapped] if any(wrapped) and not all(wrapped) else [wrapped]:
        plan = _run_parts(parts, template, tensors, stands_in)
        if plan is not None:
            return plan
    if not _says_views(op):
        _note_computing(op, template, tensors)
    return None


def _run_parts(
    parts: Parts, template: Any, tensors: Sequence[Tensor], stands_in: Sequence[bool]
) -> _Plan | None:
    stand_ins: dict[int, Tensor] = {}
    watch = _Watch()
    results: list[Tensor] = []
    try:
        for tensor, needed in zip(tensors, stands_in, strict=True):
            if needed and id(tensor) not in stand_ins:
                stand_ins[id(tensor)] = without_data(tensor)
        given = [stand_ins.get(id(tensor), tensor) for tensor in tensors]
        moved = {tensor.device for tensor in tensors if id(tensor) in stand_ins}
        args, kwargs = fill_without_data(template, list(given), moved)
        with nothing_kept(), watch:
            walk(parts(*args, **kwargs), results.append)
    except Exception:  # also: two devices, data that decides
        return None
    places: dict[int, Origin] = {id(tensor): (_ARGUMENT, at) for at, tensor in enumerate(given)}
    for index, part in enumerate(watch.parts):
        for at, result in enumerate(part.results):
            places.setdefault(id(result), (index, at))
    if not all(id(result) in places for result in results):
        return None
    origins = [places[id(result)] for result in results]
    needing = [result.requires_grad for result in results]
    return _Plan(watch.parts, origins, needing, given, bool(stand_ins))


def _note_computing(op: Any, template: Any, tensors: Sequence[Tensor]) -> None:
    if len(_computing) >= _MOST_COMPUTING:
        _computing.clear()
    with suppress(TypeError, SymbolicSizeError):  # something that cannot be compared
        _computing.add(look_of_call(op, template, tensors))


class _Watch(QuietMode):
    """Runs the parts, and leaves at the first one that computes."""

    def __init__(self) -> None:
        self.parts: list[_Part] = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func._schema.is_mutable:
            raise _NoViews
        parts = private.composite_kernel(func)
        if parts is not None:  # as under inference mode
            with private.state_of_caller(), self:
                return parts(*args, **(kwargs or {}))
        given: list[Tensor] = []
        walk((list(args), dict(kwargs or {})), given.append)
        if not given:  # which may draw random numbers
            raise _NoViews
        with private.disable_dispatch():
            result = func(*args, **(kwargs or {}))
        made: list[Tensor] = []
        template = walk(result, made.append)
        if not all(any(shares_memory(value, tensor) for tensor in given) for value in made):
            raise _NoViews
        self.parts.append(_Part(func, template, made))
        return result


# ── giving them the answers ─────────────────────────────────────────────────────────────────────


class _Answer(QuietMode):
    """Gives the parts what the handlers answered, and what leads there."""

    def __init__(self, plan: _Plan, results: Sequence[Tensor], fitting: Sequence[bool]) -> None:
        self._plan = plan
        answers = zip(plan.origins, results, fitting, strict=True)
        self._answers = {origin: result for origin, result, fits in answers if fits}
        self._next = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        parts = private.composite_kernel(func)
        if parts is not None:
            with private.state_of_caller(), self:
                return parts(*args, **(kwargs or {}))
        index = self._next
        self._next += 1
        if index >= len(self._plan.parts) or self._plan.parts[index].func is not func:
            raise _NoViews
        part = self._plan.parts[index]
        answers = [self._answers.get((index, at)) for at in range(len(part.results))]
        if all(answer is not None for answer in answers):
            return fill(part.template, answers)
        with private.disable_dispatch():
            made: list[Tensor] = []
            if self._plan.on_stand_ins:
                given: list[Tensor] = []
                walk((list(args), dict(kwargs or {})), given.append)
                with torch.inference_mode(given[0].is_inference()):  # whatever mode is on
                    made = [_stand_in(value, given[0].device) for value in part.results]
            else:
                walk(func(*args, **(kwargs or {})), made.append)
        chosen = [a if a is not None else m for a, m in zip(answers, made, strict=True)]
        return fill(part.template, chosen)


class _StandIn(Tensor):
    """Stands between two views of a wrapper; nobody computes on it."""

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return NotImplemented


def _stand_in(like: Tensor, device: torch.device) -> Tensor:
    made: Tensor = Tensor._make_wrapper_subclass(
        _StandIn,
        like.size(),
        strides=like.stride(),
        storage_offset=like.storage_offset(),
        dtype=like.dtype,
        layout=like.layout,
        device=device,
    )
    if like.is_conj():
        private.set_conjugate_bit(made, True)
    if like.is_neg():
        private.set_negative_bit(made, True)
    return made


for _mode in (_Watch, _Answer):
    private.skip_in_dynamo(_mode.__torch_dispatch__)
