"""Faults in specs: what, where, and how to mend it."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from opspec.model import Location, Schema

__all__ = ["Diagnostic", "OpspecError", "SchemaError", "Severity", "near_matches"]

Severity = Literal["error", "warning", "note"]

_WIDTH = 120


class OpspecError(Exception):
    """The base of all errors that opspec raises for its users' mistakes.

    `exit_code` is what the command ends with.
    """

    exit_code: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One fault. `span_length` is the number of characters that the caret underlines.

    `source_line` is the text of the line as it was read: the file may have changed since.
    """

    location: Location
    severity: Severity
    message: str
    remedy: str | None = None
    span_length: int = 1
    source_line: str | None = None

    def __str__(self) -> str:
        """Give `file:line:column: error: what`, the source line, a caret, and the remedy."""
        lines = [f"{self.location}: {self.severity}: {_visible(self.message)}"]
        if self.source_line and not self.source_line.isspace():
            lines += _excerpt(self.source_line, self.location.column, self.span_length)
        if self.remedy:
            lines.append(f"  {_visible(self.remedy)}")
        return "\n".join(lines)

    def sort_key(self) -> tuple[object, ...]:
        """Order by place, then text."""
        return self.location, self.message


class SchemaError(OpspecError):
    """A text is no schema; `diagnostics` has every fault that was found in it.

    `partial` is what could be read all the same, without the arguments that are broken.
    """

    def __init__(self, diagnostics: Iterable[Diagnostic], partial: Schema | None = None) -> None:
        self.diagnostics = tuple(diagnostics)
        self.partial = partial
        super().__init__("\n".join(str(diagnostic) for diagnostic in self.diagnostics))


def near_matches(word: str, candidates: Iterable[str]) -> list[str]:
    """Give at most three candidates that `word` may be a misspelling of, best first."""
    known = sorted(set(candidates))
    found = [name for name in known if name.lower() == word.lower()]
    close = difflib.get_close_matches(word[:200], known, n=3, cutoff=0.6)
    return (found + [name for name in close if name not in found])[:3]


def _visible(text: str) -> str:
    """Show control characters by a mark: they would move the caret or the reader's terminal."""
    return "".join(
        char if char == "\t" or (char.isprintable() or char == " ") else "\N{REPLACEMENT CHARACTER}"
        for char in text
    )


def _cells(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _excerpt(line: str, column: int, length: int) -> list[str]:
    line = _visible(line.rstrip("\r\n"))
    start = max(0, min(column - 1, len(line)))
    cut = 0
    if len(line) > _WIDTH:  # keep the fault in view
        cut = max(0, min(start - _WIDTH // 3, len(line) - _WIDTH))
        shown = line[cut : cut + _WIDTH]
        line = ("…" + shown[1:] if cut else shown) + ("…" if cut + _WIDTH < len(line) else "")
    before = line[: start - cut]
    marked = line[start - cut : start - cut + max(1, length)]
    padding = "".join("\t" if char == "\t" else " " * _cells(char) for char in before)
    carets = "^" * max(1, sum(1 if char == "\t" else _cells(char) for char in marked))
    return [f"  {line}", f"  {padding}{carets}"]
