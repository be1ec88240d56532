"""The jobs of noxfile.py and .ci/run, read without running them."""

from __future__ import annotations

import ast
import os
import re

import pytest

from tests.repo.layout import ROOT

TREE = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))
CI = (ROOT / ".ci/run").read_text(encoding="utf-8")
WRITES_OR_IS_SLOW = {"codegen", "bench"}


def sessions() -> dict[str, ast.FunctionDef]:
    """Give the functions that are sessions, by the name of the session."""
    found = {}
    for node in TREE.body:
        if not isinstance(node, ast.FunctionDef):
            continue
        for decorator in node.decorator_list:
            text = ast.unparse(decorator)
            if text.startswith("nox.session"):
                named = re.search(r"name='([\w-]+)'", text)
                found[named[1] if named else node.name] = node
    return found


def default_sessions() -> list[str]:
    """Give what plain `nox` runs."""
    for node in TREE.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "nox.options.sessions":
            names: list[str] = ast.literal_eval(node.value)
            return names
    raise AssertionError("noxfile.py sets no default sessions")


def test_plain_nox_runs_everything_that_checks_and_nothing_that_writes() -> None:
    assert set(default_sessions()) == sessions().keys() - WRITES_OR_IS_SLOW


@pytest.mark.parametrize("name", sessions())
def test_session_says_in_one_line_what_it_does(name: str) -> None:
    documentation = ast.get_docstring(sessions()[name])
    assert documentation is not None
    assert "\n" not in documentation
    assert documentation.endswith(".")


@pytest.mark.parametrize("name", sessions())
def test_session_passes_on_what_follows_the_dashes(name: str) -> None:
    assert "*session.posargs" in ast.unparse(sessions()[name])


@pytest.mark.parametrize("name", sessions())
def test_session_asks_for_torch_in_one_place_only(name: str) -> None:
    # A requirement of torch anywhere else could resolve to another torch, of gigabytes.
    strings = [node.value for node in ast.walk(sessions()[name]) if isinstance(node, ast.Constant)]
    assert [text for text in strings if str(text).startswith("torch")] == []


def test_codegen_needs_no_torch() -> None:
    for name in ("codegen", "codegen-check", "lint"):
        code = ast.unparse(sessions()[name])
        assert "provide_torch" not in code
        assert "develop" not in code


def test_ci_runs_all_that_plain_nox_runs_and_the_tests_last() -> None:
    named = re.findall(r"\$nox\b.*? -s ([\w -]+?)(?= <)", CI)
    assert " ".join(named).split() == [*(n for n in default_sessions() if n != "tests"), "tests"]
    assert os.access(ROOT / ".ci/run", os.X_OK)
