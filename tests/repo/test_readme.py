"""What the documents tell a reader to type works, in the order they tell it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.repo.layout import ROOT, committed, copy_tree
from tests.repo.markdown import Reader, blocks_of, commands_of

DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in committed()
    if path.suffix == ".md" and path.name != "CHANGELOG.md"
)


def sessions() -> set[str]:
    """Give the names of the sessions of noxfile.py."""
    text = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    found = re.findall(r'^@nox\.session(?:\(name="([\w-]+)"\))?\ndef (\w+)', text, re.MULTILINE)
    return {name or function for name, function in found}


@pytest.mark.slow
@pytest.mark.parametrize("document", DOCUMENTS)
def test_blocks_of_document_run(document: str, tmp_path: Path) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    if not list(blocks_of(text)):
        return
    reader = Reader(document, copy_tree(tmp_path / "tree"), sessions())
    reader.follow(text)
    assert reader.ran


def test_readme_has_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first = next(blocks_of(text))
    assert list(commands_of(first.text)) == ["pip install nox", "nox -s codegen", "nox -s tests"]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_of_document_lead_somewhere(document: str) -> None:
    place = (ROOT / document).parent
    text = re.sub(r"```.*?```", "", (ROOT / document).read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text)
    assert [target for target in targets if not (place / target).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_no_document_fetches_a_package_by_a_name_of_ours(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    ours = r"pip3? install(?: -\S+)* +(?:guards|dispatch-core|subclass-utils|opspec[\w-]*)\b"
    assert re.findall(ours, text) == []


def test_blocks_of_finds_language_line_and_text() -> None:
    text = "a\n```python\nx = 1\n```\n- item\n  ```sh\n  ls\n  ```\n"
    found = [(block.language, block.line, block.text) for block in blocks_of(text)]
    assert found == [("python", 3, "x = 1\n"), ("sh", 7, "ls\n")]


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ("```python\nx = 1\n```\n```python\nx / 0\n```\n", "line 5, in .*\nZeroDivisionError"),
        ("```pycon\n>>> 1 + 1\n3\n```\n", r"Expected:\s+3\s+Got:\s+2"),
        ("```sh\nnox -s nothing\n```\n", "x.md:2: no session"),
        ("```sh\nmake all\n```\n", "x.md:2: no test knows how to run 'make all'"),
        ("```ruby\n1\n```\n", "x.md:2: ruby"),
    ],
    ids=["python", "doctest", "session", "command", "language"],
)
def test_reader_fails_on_a_block_that_fails(document: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=complaint):
        Reader("x.md", tmp_path, set()).follow(document)
