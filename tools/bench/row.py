"""One line of the table: what was measured, against what, and what was hoped for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unit = Literal["s", "B"]


@dataclass(frozen=True, slots=True)
class Target:
    """What the ratio of ours to theirs should be."""

    kind: Literal["at most", "faster"]
    value: float

    def met(self, ours: float, theirs: float) -> bool:
        """Say whether two figures meet the target."""
        if self.kind == "faster":
            return theirs >= self.value * ours
        return ours <= self.value * theirs

    def __str__(self) -> str:
        if self.kind == "faster":
            return f"≥ {self.value:g}× faster"
        return f"≤ {self.value:.0%}" if self.value < 0.5 else f"≤ {self.value:g}×"


def at_most(ratio: float) -> Target:
    """Ask that ours takes at most this multiple of theirs."""
    return Target("at most", ratio)


def faster(times: float) -> Target:
    """Ask that theirs takes at least this many times as much as ours."""
    return Target("faster", times)


@dataclass(frozen=True, slots=True)
class Row:
    """A measured comparison; `ours` and `theirs` are medians in seconds, or bytes."""

    work: str
    against: str
    ours: float
    theirs: float
    target: Target | None = None
    unit: Unit = "s"

    @property
    def ratio(self) -> str:
        """Give the ratio in the words of the target."""
        if self.target is not None and self.target.kind == "faster":
            return f"{self.theirs / self.ours:.1f}× faster"
        ratio = self.ours / self.theirs
        return f"{ratio:.1%}" if ratio < 0.5 else f"{ratio:.2f}×"

    @property
    def verdict(self) -> str:
        """Say whether the target is met; empty where there is none."""
        if self.target is None:
            return ""
        return "yes" if self.target.met(self.ours, self.theirs) else "NO"


def amount(value: float, unit: Unit) -> str:
    """Write a figure with the unit a reader expects for its size."""
    scales = {
        "s": [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")],
        "B": [(2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B")],
    }[unit]
    scale, name = next((each for each in scales if abs(value) >= each[0]), scales[-1])
    return f"{value / scale:.3g} {name}"


def table(rows: list[Row]) -> str:
    """Lay rows out in columns."""
    head = ("work", "ours", "against", "theirs", "ratio", "target", "met")
    cells = [head] + [
        (
            row.work,
            amount(row.ours, row.unit),
            row.against,
            amount(row.theirs, row.unit),
            row.ratio,
            str(row.target or ""),
            row.verdict,
        )
        for row in rows
    ]
    widths = [max(len(cell) for cell in column) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]
    lines.insert(1, "  ".join("─" * width for width in widths))
    return "\n".join(lines)
