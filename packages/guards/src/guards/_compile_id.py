"""The identity of a compilation, and of one attempt at it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, overload

from guards._errors import CompileIdError

__all__ = ["CompileId", "TraceId"]


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
        for name in self.__slots__:
            value = getattr(self, name)
            if value is not None and (
                not isinstance(value, int) or isinstance(value, bool) or value < 0
            ):
                raise CompileIdError(
                    f"{name} must be None or an int of at least 0, got {_spell(value)}"
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
        try:
            autograd, frame = _parts(compile_id)
        except ValueError as error:
            text = compile_id if isinstance(compile_id, str) else _spell(compile_id)
            raise CompileIdError(f"Invalid compile_id '{text}'") from error
        return cls(frame_id=frame[0], frame_compile_id=frame[1], compiled_autograd_id=autograd)


def _spell(value: object) -> str:
    from guards._constants import spell  # only where something is wrong: others need not wait

    return spell(value)


def _parts(text: str) -> tuple[int | None, tuple[int, int] | tuple[None, None]]:
    """Split into the autograd id and the two numbers of the frame; ValueError for other text."""
    if not isinstance(text, str):
        raise ValueError("not a text")
    autograd = None
    if text.startswith("!"):
        first, slash, text = text[1:].partition("/")
        autograd = _number(first)
        if not slash:
            return autograd, (None, None)
    frame, compile = text.split("/")
    return autograd, (_number(frame), _number(compile))


def _number(digits: str) -> int:
    number = int(digits)
    if str(number) != digits or number < 0:  # what int() takes besides: blanks, signs, zeros, …
        raise ValueError(f"{digits!r} is not how a number is written here")
    return number


class TraceId(NamedTuple):
    """Name one attempt at a compilation; ``attempt`` counts how often the analysis restarted.

    >>> str(TraceId(CompileId(frame_id=3, frame_compile_id=1), 2))
    '3/1_2'
    """

    compile_id: CompileId
    attempt: int

    def __str__(self) -> str:
        return str(self.compile_id) if self.attempt == 0 else f"{self.compile_id}_{self.attempt}"
