"""Read a spec file as text, and find the place of a character in it."""

from __future__ import annotations

import os
import re
import stat
from bisect import bisect_right
from dataclasses import dataclass

from opspec.diagnostics import Diagnostic
from opspec.model import Location

__all__ = ["MAX_BYTES", "Source", "read_source"]

MAX_BYTES = 8 * 1024 * 1024  # native_functions.yaml has 0.7 MB

# What YAML 1.1 takes for the end of a line, and with it everything that counts lines here.
_LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_FORBIDDEN = re.compile(
    "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)


@dataclass(frozen=True)
class Source:
    """The text of a file as it was read once; nobody looks at the file again."""

    file: str
    text: str

    def __post_init__(self) -> None:
        starts = [0]
        starts += (found.end() for found in _LINE_END.finditer(self.text))
        object.__setattr__(self, "_starts", starts)

    def line(self, number: int) -> str:
        """Give the text of a line, without its end."""
        starts: list[int] = self.__dict__["_starts"]
        if not 1 <= number <= len(starts):
            return ""
        end = starts[number] if number < len(starts) else len(self.text)
        return self.text[starts[number - 1] : end].rstrip("\r\n\x85\u2028\u2029")

    def offset(self, line: int, column: int) -> int:
        """Give the offset of a place, both counted from 0 as YAML's marks do."""
        starts: list[int] = self.__dict__["_starts"]
        return starts[line] + column if line < len(starts) else len(self.text)

    def location(self, offset: int) -> Location:
        """Give the place of an offset."""
        starts: list[int] = self.__dict__["_starts"]
        offset = min(max(offset, 0), len(self.text))
        line = bisect_right(starts, offset)
        return Location(self.file, line, offset - starts[line - 1] + 1)

    def diagnostic(
        self, location: Location, message: str, remedy: str | None = None, length: int = 1
    ) -> Diagnostic:
        """Make an error that carries its source line."""
        line = self.line(location.line)
        length = max(1, min(length, len(line) - location.column + 1))
        return Diagnostic(location, "error", message, remedy, length, line)


def _error(file: str, message: str, remedy: str | None = None) -> Diagnostic:
    return Diagnostic(Location(file, 1, 1), "error", message, remedy)


def _reason(error: OSError | ValueError) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()


def _read_bytes(path: str, file: str) -> bytes | Diagnostic:
    try:
        # Without O_NONBLOCK the open of a named pipe waits for a writer that may never come.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        if os.path.islink(path):
            return _error(
                file, f"the link points to nothing: {os.readlink(path)}", "mend or remove the link"
            )
        return _error(file, "no such file", "check the path")
    except (OSError, ValueError) as error:
        return _error(file, f"the file cannot be read: {_reason(error)}", "check the path")
    with os.fdopen(descriptor, "rb") as stream:
        kind = os.fstat(stream.fileno()).st_mode
        if stat.S_ISDIR(kind):
            return _error(file, "this is a directory", "a spec is a file")
        if not stat.S_ISREG(kind):
            return _error(file, "this is no regular file", "copy the spec into a file")
        try:
            content = stream.read(MAX_BYTES + 1)
        except OSError as error:
            return _error(file, f"the file cannot be read: {_reason(error)}", "check the file")
    if len(content) > MAX_BYTES:
        return _error(
            file, f"the file is larger than {MAX_BYTES // 2**20} MB", "split it by family"
        )
    return content


def read_source(path: str, file: str | None = None) -> tuple[Source | None, list[Diagnostic]]:
    """Read a file; `file` is its name in messages.

    Gives the source, or None with the reason. A file with characters that YAML forbids has a
    source too, where they are blanks, so that the rest can be read.
    """
    file = path if file is None else file
    content = _read_bytes(path, file)
    if isinstance(content, Diagnostic):
        return None, [content]
    if content[:2] in (b"\xff\xfe", b"\xfe\xff") or content.count(0) > len(content) // 4:
        return None, [_error(file, "the file looks like UTF-16", "save the file as UTF-8")]
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        before = Source(
            file, content[: error.start].decode("utf-8", "replace").removeprefix("\ufeff")
        )
        whole = Source(file, content.decode("utf-8", "replace").removeprefix("\ufeff"))
        place = before.location(len(before.text))
        byte = content[error.start]
        message = f"the file is not UTF-8: the byte 0x{byte:02x} stands here"
        return None, [whole.diagnostic(place, message, "save the file as UTF-8")]
    source = Source(file, text.removeprefix("\ufeff"))
    bad = list(_FORBIDDEN.finditer(source.text))
    if not bad:
        return source, []
    faults = [
        source.diagnostic(
            source.location(found.start()),
            f"the control character U+{ord(found[0]):04X} may not stand in YAML",
            "take it out, or write it as an escape in double quotes",
        )
        for found in bad[:20]
    ]
    return Source(file, _FORBIDDEN.sub(" ", source.text)), faults
