"""Checks of None, of bools, and of numbers between two bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from guards._checks import NodeCheck, OneSourceCheck, wants
from guards._constants import spell
from guards._emit import Emitter
from guards._errors import UnsupportedGuardError

if TYPE_CHECKING:
    from guards._value_sources import ValueSource

__all__ = ["BoolCheck", "NoneCheck", "RangeCheck"]


class NoneCheck(OneSourceCheck, NodeCheck):
    """The value is None."""

    code = "NONE_MATCH"

    def condition(self, names: Sequence[str], emitter: Emitter) -> str:
        return f"{names[0]} is None"

    def pattern(self) -> tuple[str, Any] | None:
        return "identity", None

    def add_to(self, node: Any, kind: Any, value: Any) -> object:
        node.add_none_match_guard(["None"], None)
        return None

    def holds(self, value: object) -> bool:
        return value is None

    def expected(self) -> str:
        return "None"


class BoolCheck(OneSourceCheck, NodeCheck):
    """The value is this bool."""

    code = "BOOL_MATCH"

    def __init__(self, source: ValueSource, value: bool) -> None:
        super().__init__(source)
        if type(value) is not bool:
            raise UnsupportedGuardError(
                f"BOOL_MATCH on {source.name()}: got {spell(value)}; use EQUALS_MATCH"
            )
        self.value = value

    def condition(self, names: Sequence[str], emitter: Emitter) -> str:
        return f"{names[0]} is {self.value}"

    def pattern(self) -> tuple[str, Any] | None:
        return "identity", self.value

    def add_to(self, node: Any, kind: Any, value: Any) -> object:
        add = node.add_true_match_guard if self.value else node.add_false_match_guard
        add(["flag"], None)
        return None

    def holds(self, value: object) -> bool:
        return value is self.value

    def expected(self) -> str:
        return str(self.value)

    def state(self) -> dict[str, Any]:
        return {"value": self.value}


class RangeCheck(OneSourceCheck):
    """An int or a float (no bool) lies between two bounds, both included; None is no bound."""

    code = "RANGE_MATCH"

    def __init__(
        self, source: ValueSource, kind: str, low: float | None = None, high: float | None = None
    ) -> None:
        super().__init__(source)
        wants(kind in ("int", "float") and type(kind) is str, self.code, "'int' or 'float'", kind)
        for bound in (low, high):
            wants(bound is None or type(bound) in (int, float), self.code, "numbers", bound)
        self.kind, self.low, self.high = kind, low, high

    def condition(self, names: Sequence[str], emitter: Emitter) -> str:
        name = names[0]
        low = "" if self.low is None else f"{emitter.constant(self.low, 'low')} <= "
        high = "" if self.high is None else f" <= {emitter.constant(self.high, 'high')}"
        # A bound of its own makes nan fail, as it is in no range.
        return f"type({name}) is {self.kind} and {low}{name}{high}" + (
            "" if low or high else f" == {name}"
        )

    def expected(self) -> str:
        low = "" if self.low is None else f" from {spell(self.low)}"
        high = "" if self.high is None else f" up to {spell(self.high)}"
        return f"{'an int' if self.kind == 'int' else 'a float'}{low}{high}"

    def state(self) -> dict[str, Any]:
        return {"kind": self.kind, "low": self.low, "high": self.high}
