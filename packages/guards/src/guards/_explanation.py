"""Why guards do not hold, in words a person understands and in a form that can be counted."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from guards._fetch import Absent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guards._checks import Check
    from guards._guard import Guard

__all__ = ["Explanation", "explain_failure", "nearest_first", "user_location_of"]


@dataclass(frozen=True)
class Explanation:
    """The first guard that does not hold, and why.

    Attributes:
        code: the kind of guard, a code that can be counted.
        expression: what was tested, as a person would write it.
        expected: what the guard wants.
        actual: what was found.
        user_location: the user's line that caused the guard, where one is known.
        failures: all guards that do not hold, in a fixed order, where all were asked for.
    """

    code: str
    expression: str
    expected: str
    actual: str
    user_location: str | None = None
    failures: tuple[Explanation, ...] = ()

    def __str__(self) -> str:
        """Say it in one line."""
        where = f" ({self.user_location})" if self.user_location else ""
        return f"{self.expression}: expected {self.expected}, found {self.actual}{where}"

    def to_dict(self) -> dict[str, Any]:
        """Give plain values, ready for JSON."""
        fields: dict[str, Any] = {
            "code": self.code,
            "expression": self.expression,
            "expected": self.expected,
            "actual": self.actual,
            "user_location": self.user_location,
        }
        if self.failures:
            fields["failures"] = [failure.to_dict() for failure in self.failures]
        return fields

    def to_json(self) -> str:
        """Give the same as one line of JSON."""
        return json.dumps(self.to_dict())


def nearest_first(found: list[Explanation]) -> list[Explanation]:
    """Sort reasons by how many guards do not hold; the very same cause of all is said once."""
    ordered = sorted(found, key=lambda e: len(e.failures))
    causes = {(e.code, e.expression, e.expected, e.actual) for e in found}
    return ordered[:1] if len(causes) == 1 else ordered


def explain_failure(
    guard: Guard, check: Check, values: Sequence[Any], L: Any, G: Any
) -> Explanation:
    """Say why one check does not hold."""
    expression = expected = actual = "…"
    try:
        expression, expected = check.expression(), check.expected()
        actual = _actual(check, values, L, G)
        difference = getattr(check, "difference", None)
        if difference is not None and type(values[0]) is not Absent:
            expected, actual = difference(values[0])
        if actual == expected:
            actual = f"another one that looks alike: {actual}"
    except Exception as error:  # a hostile object must not hide which guard it fails
        actual = f"a value that cannot be described ({type(error).__name__})"
    return Explanation(check.code, expression, expected, actual, user_location_of(guard))


def _actual(check: Check, values: Sequence[Any], L: Any, G: Any) -> str:
    for source, value in zip(check.sources, values, strict=True):
        if type(value) is Absent:
            return f"{source.first_absent(L, G).name()} {value!r}"
    return check.actual(values)


def user_location_of(guard: Guard) -> str | None:
    """Give the user's line that caused a guard: file, line and function."""
    stack = guard.user_stack
    if not stack:
        return None
    frame = stack[-1]
    text = f"{frame.filename}:{frame.lineno} in {frame.name}"
    try:
        line = frame.line  # read from the file now, which whoever traced may have named wrongly
    except Exception:
        return text
    return f"{text}: {line}" if line else text
