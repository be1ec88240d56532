"""Tokens of a schema, and the strings in it."""

from __future__ import annotations

import pytest
from opspec.tokens import tokenize, unescape


def kinds(text: str) -> list[tuple[str, str]]:
    return [(token.kind, token.text) for token in tokenize(text)]


def test_tokens_of_a_schema() -> None:
    assert kinds("a::f(int[2] x=-1.5e-3, *, ...) -> T?") == [
        ("name", "a"), ("punct", "::"), ("name", "f"), ("punct", "("), ("name", "int"),
        ("punct", "["), ("number", "2"), ("punct", "]"), ("name", "x"), ("punct", "="),
        ("punct", "-"), ("number", "1.5e-3"), ("punct", ","), ("punct", "*"), ("punct", ","),
        ("punct", "..."), ("punct", ")"), ("punct", "->"), ("name", "T"), ("punct", "?"),
        ("end", ""),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", " ", "\n", "f ", "f(x) -> y", "é漢\U0001f389", "'", '"\\'])
def test_tokens_cover_the_text_and_end(text: str) -> None:
    tokens = tokenize(text)
    assert tokens[-1].kind == "end"
    assert [token.kind for token in tokens].count("end") == 1
    assert "".join(token.text for token in tokens) == "".join(text.split())
    for token in tokens:
        assert text[token.start : token.end] == token.text


@pytest.mark.parametrize("number", ["0", "12", "1.", ".5", "1.5", "1e5", "1E-5", "2j", "1.5e3j"])
def test_tokens_take_every_number(number: str) -> None:
    assert kinds(number) == [("number", number), ("end", "")]


def test_tokens_mark_what_does_not_belong() -> None:
    assert kinds("$ 'open") == [("bad", "$"), ("open_string", "'open"), ("end", "")]


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("'plain'", "plain"),
        ('"it\'s"', "it's"),
        (r"'\''", "'"),
        (r'"\"\'\\"', "\"'\\"),
        (r'" \n\t\f\v\r\a\b"', " \n\t\f\v\r\a\b"),
        (r'"\x41\u00e9\U0001f389"', "A\xe9\U0001f389"),
        (r'"\101\0"', "A\0"),
        (r'"\q\?"', "q?"),
        (r'"\x4"', r"\x4"),
        (r'"\U00110000"', r"\U00110000"),
    ],
)
def test_unescape(literal: str, value: str) -> None:
    assert unescape(literal) == value
