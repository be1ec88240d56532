"""The text of a schema inside a spec file: where an offset in it lies in the file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from opspec.diagnostics import Diagnostic
from opspec.model import Location
from opspec.source import Source

__all__ = ["SchemaText"]


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A schema as a YAML value. `locate` is needed where it does not stand on one line as it is."""

    text: str
    location: Location
    locate: Callable[[int], Location] | None
    source: Source

    def place(self, offset: int) -> Location:
        """Give the place of an offset in the text."""
        if self.locate is not None:
            return self.locate(offset)
        file, line, column = self.location
        return Location(file, line, column + offset)

    def fault(self, start: int, length: int, message: str, remedy: str | None = None) -> Diagnostic:
        """Make an error at a part of the text."""
        return self.source.diagnostic(self.place(start), message, remedy, length)

    def complete(self, fault: Diagnostic) -> Diagnostic:
        """Add the source line to a fault that the schema parser found."""
        line = self.source.line(fault.location.line)
        length = max(1, min(fault.span_length, len(line) - fault.location.column + 1))
        remedy = fault.remedy
        if self.locate is None and fault.message.endswith("never closed"):
            behind = line[self.location.column - 1 + len(self.text) :]
            if behind.lstrip().startswith("#"):
                remedy = "` #` starts a comment in YAML: put the schema into single quotes"
        return replace(fault, source_line=line, span_length=length, remedy=remedy)
