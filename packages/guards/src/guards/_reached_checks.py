"""Checks of all values that a function reaches, taken together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from guards import _fetch
from guards._builder import GuardBuilder
from guards._checks import Check
from guards._emit import Emitter
from guards._evaluation import ValueSource
from guards._guard import Guard

__all__ = ["bare_tensors", "distinct_objects"]


class DistinctCheck(Check):
    """No two of these sources hold the same object."""

    code = "DISTINCT"

    def __init__(self, sources: Sequence[ValueSource]) -> None:
        self.sources = tuple(sources)

    def condition(self, names: Sequence[str], emitter: Emitter) -> str:
        return f"len({{{', '.join(f'id({name})' for name in names)}}}) == {len(names)}"

    def expected(self) -> str:
        return "each an object of its own"

    def actual(self, values: Sequence[Any]) -> str:
        first: dict[int, ValueSource] = {}
        for source, value in zip(self.sources, values, strict=True):
            other = first.setdefault(id(value), source)
            if other is not source:
                return f"{source.name()} and {other.name()} the same object"
        return "each an object of its own"

    def expression(self) -> str:
        return "the values that are reached"


def distinct_objects(builder: GuardBuilder, guard: Guard, sources: list[ValueSource]) -> None:
    """Guard on the values of these sources being different objects."""
    if sources:
        builder.add(guard, DistinctCheck(sources))


class BareCheck(Check):
    """None of these tensors has attributes of its own, which code could read or set."""

    code = "BARE"

    def __init__(self, sources: Sequence[ValueSource]) -> None:
        self.sources = tuple(sources)

    def condition(self, names: Sequence[str], emitter: Emitter) -> str:
        plain = emitter.constant((torch.Tensor, torch.nn.Parameter), "plain_tensors")
        return " and ".join(f"type({name}) in {plain} and not {name}.__dict__" for name in names)

    def expected(self) -> str:
        return "no attributes of its own"

    def actual(self, values: Sequence[Any]) -> str:
        for source, value in zip(self.sources, values, strict=True):
            own = _fetch.instance_dict(value)
            if own:
                return f"{source.name()} has {', '.join(own)}"
        return "no attributes of its own"

    def expression(self) -> str:
        return "each tensor"


def bare_tensors(builder: GuardBuilder, guard: Guard, sources: list[ValueSource]) -> None:
    """Guard on the tensors of these sources having no attributes of their own."""
    if sources:
        builder.add(guard, BareCheck(sources))
