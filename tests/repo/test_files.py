"""What lies in the repository, file by file."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

from tests.repo.layout import FOLDERS, PACKAGES, ROOT, SOURCES, committed, generated

TOP = {
    "folders": {".ci", "packages", "specs", "tests", "tools"},
    "files": {
        ".editorconfig",
        ".gitattributes",
        ".gitignore",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "LICENSE",
        "README.md",
        "noxfile.py",
        "pyproject.toml",
    },
}
# Written in pieces, so that this file does not hold what it looks for.
FORBIDDEN = {
    "a path of one machine": r"/(?:root|home|work|opt|tmp/lab|Users)" + r"/\w",
    "a host of a package index": r"(?:files\.pythonhosted|pypi|download\.pytorch)" + r"\.org",
    "a folder outside the repository": r"\.\./sha" + r"red\b",
    "a number of a plan": r"(?<![\w-])(?:D[1-9]\d|G[1-9]\d|iss" + r"ue #?\d+)(?![\w-])",
}
WORDS = re.compile("|".join(f"(?P<n{i}>{p})" for i, p in enumerate(FORBIDDEN.values())))
NAMES = list(FORBIDDEN)


def text_files() -> list[Path]:
    """List the files a person reads; generated ones and specs are checked by their own tests."""
    return [path for path in committed() if not generated(path)]


def found_in(text: str) -> list[tuple[int, str, str]]:
    """Give line, kind and text of everything forbidden."""
    return [
        (text.count("\n", 0, match.start()) + 1, NAMES[int(str(match.lastgroup)[1:])], match[0])
        for match in WORDS.finditer(text)
    ]


def test_nothing_else_lies_at_the_top() -> None:
    parts = [path.relative_to(ROOT).parts for path in committed()]
    assert {first for first, *rest in parts if rest} == TOP["folders"]
    assert {first for first, *rest in parts if not rest} == TOP["files"]


@pytest.mark.slow
def test_no_file_speaks_of_a_machine_or_a_plan() -> None:
    faults = [
        f"{path.relative_to(ROOT)}:{line}: {kind}: {text}"
        for path in text_files()
        for line, kind, text in found_in(path.read_text(encoding="utf-8"))
    ]
    assert faults == []


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("x\n/ro" + "ot/x", "a path of one machine"),
        ("x\nhttps://py" + "pi.org/simple", "a host of a package index"),
        ("x\nsee ../sha" + "red/DESIGN.md", "a folder outside the repository"),
        ("x\nas D" + "42 asks", "a number of a plan"),
    ],
)
def test_found_in_finds(text: str, kind: str) -> None:
    ((line, found, _),) = found_in(text)
    assert (line, found) == (2, kind)


@pytest.mark.parametrize("package", SOURCES)
def test_package_folder_is_complete(package: str) -> None:
    folder = FOLDERS[package]
    for needed in ["pyproject.toml", "README.md", "LICENSE"]:
        assert (folder / needed).is_file(), needed
    assert (SOURCES[package] / "py.typed").is_file()


@pytest.mark.parametrize("package", SOURCES)
def test_every_module_says_what_it_is_for(package: str) -> None:
    mute = [
        path.relative_to(ROOT).as_posix()
        for path in SOURCES[package].rglob("*.py")
        if not generated(path) and not path.read_text(encoding="utf-8").lstrip("#!").startswith('"')
    ]
    assert mute == []


def test_generated_files_are_marked_for_reviewers() -> None:
    paths = [path for path in committed() if generated(path)]
    assert paths
    command = ["git", "check-attr", "-z", "--stdin", "linguist-generated"]
    names = "\0".join(path.relative_to(ROOT).as_posix() for path in [*paths, ROOT / "README.md"])
    done = subprocess.run(
        command, cwd=ROOT, input=names, capture_output=True, text=True, check=True
    )
    fields = done.stdout.rstrip("\0").split("\0")
    values = dict(zip(fields[::3], fields[2::3], strict=True))
    assert values.pop("README.md") == "unspecified"
    assert set(values.values()) == {"set"}


def test_no_module_is_called_for_what_fits_nowhere() -> None:
    vague = {"utils", "helpers", "common", "misc"}
    named = [
        path.relative_to(ROOT).as_posix()
        for path in committed()
        if not generated(path) and vague & {part.strip("_") for part in path.with_suffix("").parts}
    ]
    assert named == []


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_function_is_used_by_a_test(package: str) -> None:
    tests = [
        path
        for folder in (package, "property", "integration", "typing", "packages")
        for path in (ROOT / "tests" / folder).rglob("*.py")
    ]
    # In code: that a comment or a text has the word is no use of it.
    nodes = [n for t in tests for n in ast.walk(ast.parse(t.read_text(encoding="utf-8")))]
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    used |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    tree = ast.parse((SOURCES[package] / "__init__.py").read_text(encoding="utf-8"))
    names = [
        name
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        for name in ast.literal_eval(node.value)
        if name.islower()
    ]
    assert names
    assert [name for name in names if name not in used] == []
