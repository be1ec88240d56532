"""Cut the text of a schema into tokens that know where they stand."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["NUMBER", "STRING", "Token", "tokenize", "unescape", "unknown_escape"]

NUMBER = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?j?"
STRING = r'"(?:[^"\\]|\\.)*"|' + r"'(?:[^'\\]|\\.)*'"

_TOKEN = re.compile(
    rf"(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<number>{NUMBER})|(?P<string>{STRING})"
    r"|(?P<punct>\.\.\.|->|::|[()\[\],=?!|*:.+-])|(?P<open_string>[\"'].*)|(?P<bad>.)",
    re.DOTALL,
)
_SPACE = re.compile(r"\s*")

_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{1,3}|.)", re.DOTALL)
# torch reads no others; \377 and less is all that three octal digits may say.
_TORCH_ESCAPE = re.compile(r"\\(?:[abfntv\\'\"]|[0-3][0-7]{2})")
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a", "b": "\b"}


class Token(NamedTuple):
    """A piece of the text: `kind` is name, number, string, punct, open_string, bad or end."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        """The offset behind the token."""
        return self.start + len(self.text)


def tokenize(text: str) -> list[Token]:
    """Cut `text` into tokens; the last one is the end, whatever stands in the text."""
    tokens = []
    at = 0
    while True:
        space = _SPACE.match(text, at)
        at = at if space is None else space.end()
        found = _TOKEN.match(text, at)
        if found is None:
            tokens.append(Token("end", "", len(text.rstrip())))
            return tokens
        tokens.append(Token(found.lastgroup or "bad", found[0], at))
        at = found.end()


def _unescape_one(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] in "xuU":
        number = int(code[1:], 16) if len(code) > 1 else -1
        # Not a character (or a lone `\x`): leave it as it is written.
        return chr(number) if 0 <= number < 0x110000 else match[0]
    if code[0] in "01234567":
        return chr(int(code, 8))
    return _SIMPLE.get(code, code)


def unknown_escape(literal: str) -> re.Match[str] | None:
    """Find the first escape in a string literal that torch does not know."""
    if "\\" not in literal:
        return None
    escapes = _ESCAPE.finditer(literal, 1, len(literal) - 1)
    return next((found for found in escapes if not _TORCH_ESCAPE.fullmatch(found[0])), None)


def unescape(literal: str) -> str:
    """Give the value of a string literal with its quotes, by the rules of torch and Python."""
    body = literal[1:-1]
    return _ESCAPE.sub(_unescape_one, body) if "\\" in body else body
