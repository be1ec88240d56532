"""YAML that is broken, composed entry by entry, with each of PyYAML's loaders."""

from __future__ import annotations

import pytest
import yaml
from opspec import yaml_nodes
from opspec.source import Source
from opspec.yaml_nodes import compose, locator
from yaml.nodes import ScalarNode, SequenceNode

LOADERS = [name for name in ("CSafeLoader", "SafeLoader") if hasattr(yaml, name)]


@pytest.fixture(params=LOADERS, autouse=True)
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every test with the loader in C and the one in Python."""
    monkeypatch.setattr(yaml_nodes, "_Loader", getattr(yaml, request.param))


BROKEN = {
    "tab": ("- a: 1\n\tb: 2\n", "a tab cannot indent YAML"),
    "quote": ("- a: 'x\n", "the string is never closed"),
    "list": ("- a: [x\n", "the `[` is never closed, or an item is not followed by a comma"),
    "mapping": ("- {a: x\n", "the `{` is never closed, or an item is not followed by a comma"),
    "alias": ("- *x\n", "no anchor of this name comes before"),
    "document": ("- a\n---\n- b\n", "a second document starts here"),
    "colon": ("- a: b: c\n", "a `:` with a space behind it cannot stand here"),
    "escape": ('- "\\q"\n', "YAML knows no such escape in double quotes"),
    "sign": ("- a: @x\n", "this character cannot start a text"),
    "depth": ("- " + "[" * 5000 + "\n", "the YAML is nested too deeply"),
}


@pytest.mark.parametrize(("text", "message"), BROKEN.values(), ids=BROKEN)
def test_broken_yaml_is_told_alike_with_both_loaders(text: str, message: str) -> None:
    _, faults = compose(Source("f", text))
    assert [fault.message for fault in faults] == [message]
    assert all(fault.remedy for fault in faults)


def test_each_broken_entry_is_told_and_the_others_are_read() -> None:
    text = '- a: "x\n- b: 1\n- c: [y\n- d: 2\n- e: *gone\n- f: 3\n'
    node, faults = compose(Source("f", text))
    assert isinstance(node, SequenceNode)
    assert [fault.location.line for fault in faults] == [1, 3, 5]
    assert [item.start_mark.line + 1 for item in node.value] == [2, 4, 6]


@pytest.mark.parametrize("text", ["", "# nothing\n", "\n\n"])
def test_nothing_is_no_fault_of_the_yaml(text: str) -> None:
    assert compose(Source("f", text)) == (None, [])


STYLES = {
    "plain": "- word and more",
    "plain over lines": "- word\n  and\n\n  more",
    "single quotes": "- 'wo''rd and more'",
    "double quotes": '- "w\\u00f6rd \\"and\\" more"',
    "double quotes over lines": '- "word \\\n    and\n    more"',
    "literal": "- |\n  word\n   and\n  more\n",
    "folded": "- >-\n    word\n    and\n\n    more\n",
    "literal with indentation indicator": "- |2-\n   word\n  more",
    "windows": '- "word\r\n   and more"',
}


@pytest.mark.parametrize("text", STYLES.values(), ids=STYLES)
def test_place_of_every_letter_is_that_in_the_file(text: str) -> None:
    source = Source("f", text)
    node, faults = compose(source)
    assert faults == []
    assert isinstance(node, SequenceNode)
    (scalar,) = node.value
    assert isinstance(scalar, ScalarNode)
    locate = locator(scalar, source)
    for offset, char in enumerate(scalar.value):
        if not char.isalpha():
            continue
        if locate is None:
            column = scalar.start_mark.column + offset
            assert source.text[source.offset(scalar.start_mark.line, column)] == char
            continue
        place = locate(offset)
        there = source.line(place.line)[place.column - 1]
        assert there == char or (char == "ö" and there == "\\")
