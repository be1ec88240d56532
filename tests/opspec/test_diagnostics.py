"""How faults are printed, and which near matches are offered."""

from __future__ import annotations

import pytest
from opspec.diagnostics import Diagnostic, near_matches
from opspec.model import Location
from opspec.source import Source


def printed(line: str, column: int, length: int = 1) -> list[str]:
    return str(Diagnostic(Location("f", 1, column), "error", "wrong", "mend", length, line)).split(
        "\n"
    )


def test_fault_has_place_line_caret_and_remedy() -> None:
    assert printed("one two", 5, 3) == ["f:1:5: error: wrong", "  one two", "      ^^^", "  mend"]


def test_fault_without_a_line_or_remedy_is_one_line() -> None:
    assert str(Diagnostic(Location("f", 1, 1), "note", "odd")) == "f:1:1: note: odd"
    assert str(Diagnostic(Location("f", 1, 1), "note", "odd", None, 1, "")) == "f:1:1: note: odd"


def test_caret_behind_the_end_of_the_line() -> None:
    assert printed("abc", 4)[2] == "     ^"


@pytest.mark.parametrize("column", [1, 50, 119, 120, 121, 200, 399, 400, 401])
def test_long_line_is_cut_around_the_fault(column: int) -> None:
    line = "".join(chr(ord("a") + n % 26) for n in range(400))
    _, shown, caret, _ = printed(line, column)
    assert len(shown) <= 2 + 121
    if column <= 400:
        assert shown[caret.index("^")] in (line[column - 1], "…")
    assert ("…" in shown[2:3]) or shown[2:].startswith(line[:50])


def test_control_characters_are_shown_by_a_mark() -> None:
    fault = Diagnostic(Location("f", 1, 3), "error", "a\x1b[31mb", "c\nd", 1, "\x1b\x07x")
    assert str(fault).split("\n") == [
        "f:1:3: error: a\ufffd[31mb", "  \ufffd\ufffdx", "    ^", "  c\ufffdd",
    ]  # fmt: skip


def test_near_matches_are_three_at_most_and_ignore_case() -> None:
    assert near_matches("tensor", ["Tensor", "int"]) == ["Tensor"]
    assert near_matches("aaab", ["aaaa", "aaac", "aaad", "aaae", "aaaf"])[0].startswith("aaa")
    assert len(near_matches("aaab", ["aaaa", "aaac", "aaad", "aaae", "aaaf"])) == 3
    assert near_matches("zzz", ["Tensor", "int"]) == []
    assert near_matches("x" * 100_000, ["Tensor"]) == []


def test_source_finds_lines_as_yaml_counts_them() -> None:
    source = Source("f", "a\r\nb\rc\x85d\u2028e\n")
    assert [source.line(n) for n in range(8)] == ["", "a", "b", "c", "d", "e", "", ""]
    for offset, char in enumerate(source.text):
        place = source.location(offset)
        assert source.offset(place.line - 1, place.column - 1) == offset
        if char.isalpha():
            assert source.line(place.line)[place.column - 1] == char
    assert source.location(10_000) == source.location(len(source.text))
