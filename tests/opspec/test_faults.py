"""Every fault that a spec can have is told in full: place, what is wrong, caret, remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from opspec.diagnostics import Diagnostic
from opspec.model import SpecTree

FAULTS = Path(__file__).parent / "faults"
Files = Mapping[str, "str | bytes"]
FaultsIn = Callable[[Files], str]
Load = Callable[[Files], "tuple[SpecTree, list[Diagnostic]]"]


def _read_cases() -> Iterator[tuple[str, str, str]]:
    """Read the files in faults/: blocks of `=== name`, a spec file, `---`, what is said of it."""
    for path in sorted(FAULTS.glob("*.txt")):
        for block in path.read_text(encoding="utf-8").split("\n=== ")[1:]:
            name, _, rest = block.partition("\n")
            # The last line of dashes: a spec may have one of its own.
            text, _, expected = rest.rpartition("\n---\n")
            yield f"{path.stem}-{name}", text + "\n", expected.strip("\n")


CASES = list(_read_cases())
IDS = [name for name, _, _ in CASES]


@pytest.mark.parametrize(("name", "text", "expected"), CASES, ids=IDS)
def test_fault_is_told_in_full(name: str, text: str, expected: str, faults_in: FaultsIn) -> None:
    assert faults_in({"specs/mylib.yaml": text}) == expected


@pytest.mark.parametrize(
    "text", [text for name, text, _ in CASES if "document" not in name and text[0] == "-"]
)
def test_fault_hides_no_later_entry(text: str, load_specs: Load) -> None:
    """What stands behind a fault, in the same file or in another one, is read all the same."""
    later = "- func: later(Tensor self) -> Tensor\n"
    tree, _ = load_specs({"specs/mylib.yaml": text + later, "specs/other.yaml": later})
    names = {operator.qualified_name for operator in tree.operators}
    assert {"mylib::later", "other::later"} <= names


def test_every_fault_has_place_and_remedy() -> None:
    """An error names its place, shows a caret, and says how to mend it."""
    for _, _, expected in CASES:
        for block in re.split(r"\n(?=specs/mylib)", expected):
            first, source, caret, *remedy = block.split("\n")
            assert re.match(r"specs/mylib\.yaml:\d+:\d+: (error|note): \S", first)
            assert source.startswith("  ")
            assert re.fullmatch(r"[\s]*\^+", caret)
            if "note" not in first:
                assert remedy, f"no remedy: {first}"


BYTES = {
    "empty": (
        b"",
        "specs/mylib.yaml:1:1: error: the file is empty\n"
        "  write entries like `- func: mm(Tensor self, Tensor mat2) -> Tensor`",
    ),
    "blank": (
        b"\n \n",
        "specs/mylib.yaml:1:1: error: the file is empty\n"
        "  write entries like `- func: mm(Tensor self, Tensor mat2) -> Tensor`",
    ),
    "empty_list": (
        b"[]\n",
        "specs/mylib.yaml:1:1: error: the file has no entries\n"
        "  []\n"
        "  ^\n"
        "  write entries like `- func: mm(Tensor self, Tensor mat2) -> Tensor`",
    ),
    "spaces": (
        b"   ",
        "specs/mylib.yaml:1:1: error: the file is empty\n"
        "  write entries like `- func: mm(Tensor self, Tensor mat2) -> Tensor`",
    ),
    "not_utf8": (
        b"# caf\xe9\n- func: good(Tensor self) -> Tensor\n",
        "specs/mylib.yaml:1:6: error: the file is not UTF-8: the byte 0xe9 stands here\n"
        "  # caf\ufffd\n"
        "       ^\n"
        "  save the file as UTF-8",
    ),
    "utf_16": (
        "- func: f(Tensor self) -> Tensor\n".encode("utf-16-le"),
        "specs/mylib.yaml:1:1: error: the file looks like UTF-16\n  save the file as UTF-8",
    ),
    "utf_16_with_mark": (
        "- func: f(Tensor self) -> Tensor\n".encode("utf-16"),
        "specs/mylib.yaml:1:1: error: the file looks like UTF-16\n  save the file as UTF-8",
    ),
    "control_characters": (
        b"- func: f(Tensor\x00self) -> Tensor\n- func: g(Tensor self) -> Tensor # \x1b[31m\n",
        "specs/mylib.yaml:1:17: error: the control character U+0000 may not stand in YAML\n"
        "  - func: f(Tensor\ufffdself) -> Tensor\n"
        "                  ^\n"
        "  take it out, or write it as an escape in double quotes\n"
        "specs/mylib.yaml:2:36: error: the control character U+001B may not stand in YAML\n"
        "  - func: g(Tensor self) -> Tensor # \ufffd[31m\n"
        "                                     ^\n"
        "  take it out, or write it as an escape in double quotes",
    ),
    "byte_order_mark_counts_for_no_column": (
        b"\xef\xbb\xbf- func: f(Tensor self) -> Tensr\n",
        "specs/mylib.yaml:1:27: error: unknown type Tensr\n"
        "  - func: f(Tensor self) -> Tensr\n"
        "                            ^^^^^\n"
        "  did you mean Tensor?",
    ),
    "windows_lines": (
        b"- func: f(Tensor self) -> Tensor\r\n- func: g(Tensr self) -> Tensor\r\n",
        "specs/mylib.yaml:2:11: error: unknown type Tensr\n"
        "  - func: g(Tensr self) -> Tensor\n"
        "            ^^^^^\n"
        "  did you mean Tensor?",
    ),
    "old_mac_lines": (
        b"- func: f(Tensor self) -> Tensor\r- func: g(Tensr self) -> Tensor\r",
        "specs/mylib.yaml:2:11: error: unknown type Tensr\n"
        "  - func: g(Tensr self) -> Tensor\n"
        "            ^^^^^\n"
        "  did you mean Tensor?",
    ),
}


@pytest.mark.parametrize(("content", "expected"), BYTES.values(), ids=BYTES)
def test_fault_of_bytes_is_told_in_full(content: bytes, expected: str, faults_in: FaultsIn) -> None:
    assert faults_in({"specs/mylib.yaml": content}) == expected


def test_fault_of_a_default_with_a_thousand_digits_is_told(faults_in: FaultsIn) -> None:
    text = f"- func: f(int x={'9' * 5000}) -> Tensor\n"
    first, *_ = faults_in({"specs/mylib.yaml": text}).split("\n")
    assert first == "specs/mylib.yaml:1:17: error: the default does not fit into 64 bits"


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "], ids=["list", "mapping", "block"])
def test_yaml_nested_a_hundred_thousand_deep_is_told(opening: str, faults_in: FaultsIn) -> None:
    """No loader may run out of stack, or grow with the square of the depth."""
    told = faults_in({"specs/mylib.yaml": "- func: \n    " + opening * 100_000 + "\n"})
    assert "error: the YAML is nested too deeply" in told


def test_billion_laughs_take_no_memory_and_are_told(faults_in: FaultsIn) -> None:
    """Aliases are one node each: nothing is expanded."""
    lines = ["- &a0 [lol, lol]"]
    lines += (f"- &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 40))
    told = faults_in({"specs/mylib.yaml": "\n".join(lines) + "\n"})
    assert told.count("error: an entry must be a mapping, but this is a list") == 40


def test_billion_merges_take_no_time_and_are_told(faults_in: FaultsIn) -> None:
    lines = ["- &a0 {func: f(Tensr self) -> Tensor}"]
    lines += (f"- &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 12))
    told = faults_in({"specs/mylib.yaml": "\n".join(lines) + "\n"})
    assert "error: unknown type Tensr" in told
