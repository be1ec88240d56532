"""Say on a terminal how far a long run has come; say nothing where nobody watches."""

from __future__ import annotations

import shutil
import sys
import time
from types import TracebackType
from typing import TextIO

__all__ = ["Progress"]

_PATIENCE = 1.0  # seconds until the first word
_PERIOD = 0.1  # seconds between two


class Progress:
    """One line that is rewritten in place: `reading specs 12/83`.

    Shows nothing in the first second, and nothing at all unless the stream is a terminal.

    >>> with Progress("reading specs") as progress:
    ...     progress(12, 83)
    """

    def __init__(self, what: str, stream: TextIO | None = None) -> None:
        self._what = what
        self._stream = sys.stderr if stream is None else stream
        self._next = time.monotonic() + _PATIENCE
        self._watched = self._stream is not None and self._stream.isatty()
        self._shown = False

    def __call__(self, done: int, total: int) -> None:
        """Say that `done` of `total` are done."""
        if not self._watched or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _PERIOD
        self._shown = True
        width = shutil.get_terminal_size().columns - 1
        self._stream.write(f"\r\x1b[K{f'{self._what} {done}/{total}'[:width]}")
        self._stream.flush()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
