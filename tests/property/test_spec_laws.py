"""Laws of spec files: any bytes are read or told of, and every place lies inside the file."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

import pytest
import yaml
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from opspec import yaml_nodes
from opspec.diagnostics import Diagnostic
from opspec.model import Location, Schema, SpecTree
from opspec.source import Source
from opspec.tree import load

from tests.property.strategies import LAWS, names, schemas, spec_bytes, spec_texts

pytestmark = pytest.mark.slow

_LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


def read(folder: Path, content: bytes) -> tuple[SpecTree, list[Diagnostic]]:
    """Read one file of a tree."""
    path = folder / "specs/mylib.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return load([path])


def check_places(content: bytes, faults: list[Diagnostic]) -> None:
    """Every fault lies inside the file, shows its line, and can be printed."""
    text = content.decode("utf-8", "replace").removeprefix("\ufeff")
    lines = _LINE_END.split(text)
    for fault in faults:
        place = fault.location
        assert 1 <= place.line <= len(lines)
        assert 1 <= place.column <= len(lines[place.line - 1]) + 1
        assert fault.message
        printed = str(fault)
        printed.encode("utf-8")
        assert all(char == "\n" or char == "\t" or char.isprintable() for char in printed)


@pytest.mark.parametrize("loader", ["CSafeLoader", "SafeLoader"])
@settings(LAWS, max_examples=200)
@given(content=spec_bytes)
@example(content=b"- func: f(Tensor self) -> Tensor\n\ttags: core\n")
@example(content=b"\xff\xfe")
@example(content=b"- &a\n  <<: *a\n")
@example(content=b"- &a [*a]\n")
@example(content=b"? - ? - ? -\n")
@example(content=b"- func: !!binary aGk=\n")
@example(content=b"- 'func: \n- func: \"\n- [\n- {\n")
@example(content=b"---\n---\n")
@example(content=b"%TAG ! tag:x,2000:\n--- !y\n- a\n")
def test_any_bytes_are_read_or_every_fault_lies_inside(
    loader: str, content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No traceback from any file, with either loader of PyYAML."""
    folder = tmp_path_factory.mktemp("tree")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yaml_nodes, "_Loader", getattr(yaml, loader))
        _, faults = read(folder, content)
    check_places(content, faults)


@LAWS
@given(content=spec_bytes)
def test_any_bytes_are_told_of_as_an_overlay(
    content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("tree") / "specs/mine"
    folder.mkdir(parents=True)
    (folder / "facts.yaml").write_bytes(content)
    _, faults = load([folder / "facts.yaml"])
    check_places(content, faults)


@LAWS
@given(text=spec_texts)
def test_both_loaders_read_the_same(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("tree")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yaml_nodes, "_Loader", yaml.SafeLoader)
        slow = read(folder, text.encode())
    assert slow[0] == read(folder, text.encode())[0]


STYLES = {
    "single": lambda text: "'" + text.replace("'", "''") + "'",
    "double": lambda text: '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"',
    "double with escapes": lambda text: (
        '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("T", "\\x54") + '"'
    ),
    "folded": lambda text: ">-\n    " + text.replace(", ", ",\n    "),
    "literal": lambda text: "|-\n    " + text,
    "double over lines": lambda text: (
        '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace(", ", ",\n    ") + '"'
    ),
}


@pytest.mark.parametrize("style", STYLES)
@LAWS
@given(schema=schemas(bare=True))
def test_place_is_right_in_every_style_of_yaml(
    style: str, schema: Schema, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The place of a fault is that of its text in the file, however YAML quotes it."""
    text = str(schema)
    assume("  " not in text and ",\t" not in text and "\\" not in text)
    assume(", " not in re.sub(r", (?=[A-Za-z(*.])", "", text) or "over" not in style)
    marked = (
        text.replace("(", "(wrong_type x_, ", 1)
        if schema.parameters or schema.vararg
        else (text.replace("(", "(wrong_type x_", 1))
    )
    content = f"- func: {STYLES[style](marked)}\n"
    _, faults = read(tmp_path_factory.mktemp("tree"), content.encode())
    lines = content.split("\n")
    found = [fault for fault in faults if fault.message == "unknown type wrong_type"]
    assert found
    for fault in found:
        line = lines[fault.location.line - 1]
        assert line[fault.location.column - 1 :].startswith("wrong_type")


@LAWS
@given(stems=st.lists(names, min_size=1, max_size=5, unique_by=str.lower), random=st.randoms())
def test_order_of_paths_changes_nothing(
    stems: list[str], random: object, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("tree") / "specs"
    folder.mkdir()
    paths = [folder / f"x{stem.lower()}.yaml" for stem in stems]
    for path in paths:
        path.write_text("- func: f(Tensor self) -> Tensor\n- func: g(Tensr x) -> ()\n")
    shuffled = list(paths)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert load(paths) == load(shuffled) == load([folder])


def _cells(text: str) -> int:
    width = 0
    for char in text:
        if unicodedata.category(char) in ("Mn", "Me", "Cf"):
            continue
        width += 2 if unicodedata.east_asian_width(char) in "WF" else 1
    return width


@LAWS
@given(
    st.text(st.sampled_from("ab \t漢字é\u0301🎉"), max_size=30),
    st.text(st.sampled_from("xy漢"), min_size=1, max_size=5),
)
def test_caret_stands_under_the_fault(before: str, wrong: str) -> None:
    """Wide characters take two cells, combining ones none, and tabs stay tabs."""
    source = Source("f", before + wrong + " after")
    fault = source.diagnostic(Location("f", 1, len(before) + 1), "wrong", "mend", len(wrong))
    _, line, caret, _ = str(fault).split("\n")
    assert line == f"  {before}{wrong} after"
    padding, carets = caret[: caret.index("^")], caret[caret.index("^") :]
    assert [_cells(part) for part in padding.split("\t")] == [
        _cells(part) for part in f"  {before}".split("\t")
    ]
    assert len(carets) == _cells(wrong)
