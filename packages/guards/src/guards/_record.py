"""What a run was written down as, and how it is repeated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from guards._evaluation import ValueSource
from guards._op_facts import facts

__all__ = [
    "Built",
    "Input",
    "Number",
    "Place",
    "Record",
    "Result",
    "Row",
    "Step",
    "StepFailed",
    "make_record",
]


@dataclass(frozen=True)
class Input:
    place: int


@dataclass(frozen=True)
class Result:
    number: int


@dataclass(frozen=True)
class Row:
    """A result with names, such as torch.return_types.max."""

    cls: Any
    parts: tuple[Any, ...]


@dataclass(frozen=True)
class Place:
    """An object that was there before the call, and is given back: by where it is found."""

    source: ValueSource


@dataclass(frozen=True)
class Built:
    """An object that the call made: its class, the class of C behind it, and what it holds."""

    cls: Any
    root: Any
    items: tuple[Any, ...]
    own: dict[str, Any]
    slots: dict[str, Any]


@dataclass(frozen=True)
class Step:
    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    grad: bool
    outputs: tuple[int | None, ...] | int | None
    last_use_of: tuple[int, ...] = ()


@dataclass(frozen=True)
class Number:
    """A tensor that torch makes of constants, as of the number in ``x[0] = 5``; anew each time."""

    tensor: torch.Tensor


class StepFailed(Exception):
    """An operator of a record raised, before anything was changed that can be seen outside."""


@dataclass(frozen=True)
class Record:
    """A run that can be repeated: its operators, its inputs, its result.

    Attributes:
        grad: the grad mode in which the call began.
        harmless: whether the operators write to nothing that was there before, and draw no
            random numbers.
    """

    steps: tuple[Step, ...]
    inputs: tuple[ValueSource, ...]
    output: Any
    grad: bool
    harmless: bool


def _parts(value: Any) -> list[Any]:
    if type(value) in (list, tuple):
        return [found for part in value for found in _parts(part)]
    if type(value) is dict:
        return _parts(list(value.values()))
    if type(value) is Row:
        return _parts(value.parts)
    if type(value) is Built:
        return _parts([value.items, value.own, value.slots])
    return [value] if type(value) in (Input, Result) else []


def _without_unused(steps: list[Step], output: Any) -> tuple[list[Step], set[int]]:
    """Drop the detached copies that autograd keeps for itself, and find the inputs in use."""
    used = set(_parts(output))
    kept = []
    for step in reversed(steps):
        if step.op is torch.ops.aten.detach.default and Result(step.outputs) not in used:  # type: ignore[arg-type]
            continue
        used.update(_parts(step.args), _parts(step.kwargs))
        kept.append(step)
    return kept[::-1], {part.place for part in used if type(part) is Input}


def _replace(value: Any, inputs: dict[int, Input]) -> Any:
    if type(value) is Input:
        return inputs[value.place]
    if type(value) in (list, tuple):
        return type(value)(_replace(part, inputs) for part in value)
    if type(value) is dict:
        return {key: _replace(part, inputs) for key, part in value.items()}
    if type(value) is Row:
        return Row(value.cls, _replace(value.parts, inputs))
    if type(value) is Built:
        held = (_replace(part, inputs) for part in (value.items, value.own, value.slots))
        return Built(value.cls, value.root, *held)
    return value


def _is_harmless(step: Step) -> bool:
    known = facts(step.op)
    return not (known.mutates or known.random)


def make_record(
    steps: list[Step], output: Any, sources: Sequence[ValueSource], grad: bool
) -> Record:
    """Make a record of steps, with the inputs that they use; results are kept until last used."""
    steps, used = _without_unused(steps, output)
    inputs = {place: Input(number) for number, place in enumerate(sorted(used))}
    kept = {part.number for part in _parts(output) if type(part) is Result}
    finished = []
    for step in reversed(steps):
        mine = {p.number for p in _parts([step.args, step.kwargs]) if type(p) is Result}
        made: Any = step.outputs if type(step.outputs) is tuple else [step.outputs]
        done = (mine | {number for number in made if number is not None}) - kept
        kept |= done
        finished.append(
            replace(
                step,
                args=_replace(step.args, inputs),
                kwargs=_replace(step.kwargs, inputs),
                last_use_of=tuple(sorted(done)),
            )
        )
    places = tuple(sources[place] for place in sorted(used))
    harmless = all(map(_is_harmless, finished))
    return Record(tuple(finished[::-1]), places, _replace(output, inputs), grad, harmless)
