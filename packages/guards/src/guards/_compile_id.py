"""The identity of a compilation, and of one attempt at it."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import NamedTuple, overload

from guards._errors import CompileIdError

__all__ = ["CompileId", "TraceId"]

# ASCII digits only and no leading zeros: every text that parses is the text of exactly one id.
_NUMBER = "0|[1-9][0-9]*"
_TEXT = re.compile(
    rf"(?:!(?P<autograd>{_NUMBER})(?:/(?P<ca_frame>{_NUMBER})/(?P<ca_compile>{_NUMBER}))?"
    rf"|(?P<frame>{_NUMBER})/(?P<compile>{_NUMBER}))"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class CompileId:
    """Name one compilation of one frame, for as long as the program runs.

    Tools outside the program read it, so its text is the contract:

    >>> str(CompileId(frame_id=3, frame_compile_id=1))
    '3/1'
    >>> str(CompileId(frame_id=None, frame_compile_id=None, compiled_autograd_id=2))
    '!2'
    >>> str(CompileId(frame_id=3, frame_compile_id=1, compiled_autograd_id=2))
    '!2/3/1'

    ``frame_compile_id`` counts the compilations of that frame, so it shows how often the frame
    was compiled anew.

    Raises:
        CompileIdError: a number is negative or no int, frame and compile are not given together,
            or all three are missing.
    """

    frame_id: int | None
    frame_compile_id: int | None
    compiled_autograd_id: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and (
                not isinstance(value, int) or isinstance(value, bool) or value < 0
            ):
                raise CompileIdError(
                    f"{field.name} must be None or an int of at least 0, got {value!r}"
                )
        if (self.frame_id is None) != (self.frame_compile_id is None) or (
            self.frame_id is None and self.compiled_autograd_id is None
        ):
            wanted = (
                "both or neither"
                if self.compiled_autograd_id is not None
                else "given, both of them"
            )
            raise CompileIdError(
                f"frame_id and frame_compile_id must be {wanted}, got "
                f"frame_id={self.frame_id}, frame_compile_id={self.frame_compile_id}, "
                f"compiled_autograd_id={self.compiled_autograd_id}"
            )

    def __str__(self) -> str:
        frame = None if self.frame_id is None else f"{self.frame_id}/{self.frame_compile_id}"
        if self.compiled_autograd_id is None:
            return str(frame)
        autograd = f"!{self.compiled_autograd_id}"
        return autograd if frame is None else f"{autograd}/{frame}"

    @overload
    @classmethod
    def from_string(cls, compile_id: None) -> None: ...
    @overload
    @classmethod
    def from_string(cls, compile_id: str) -> CompileId: ...
    @classmethod
    def from_string(cls, compile_id: str | None) -> CompileId | None:
        """Read what ``str`` wrote; None stays None.

        Raises:
            CompileIdError: the text is not exactly what some id prints.
        """
        if compile_id is None:
            return None
        match = _TEXT.fullmatch(compile_id) if isinstance(compile_id, str) else None
        if match is None:
            raise CompileIdError(f"Invalid compile_id {_quoted(compile_id)}")
        try:
            numbers = {k: int(v) for k, v in match.groupdict().items() if v is not None}
        except ValueError as error:  # more digits than Python converts
            raise CompileIdError(f"Invalid compile_id {_quoted(compile_id)}") from error
        return cls(
            frame_id=numbers.get("frame", numbers.get("ca_frame")),
            frame_compile_id=numbers.get("compile", numbers.get("ca_compile")),
            compiled_autograd_id=numbers.get("autograd"),
        )


def _quoted(text: object) -> str:
    return f"'{text}'"


class TraceId(NamedTuple):
    """Name one attempt at a compilation; ``attempt`` counts how often the analysis restarted.

    >>> str(TraceId(CompileId(frame_id=3, frame_compile_id=1), 2))
    '3/1_2'
    """

    compile_id: CompileId
    attempt: int

    def __str__(self) -> str:
        return str(self.compile_id) if self.attempt == 0 else f"{self.compile_id}_{self.attempt}"
