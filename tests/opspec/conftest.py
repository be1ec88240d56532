"""What the tests of opspec share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from opspec.diagnostics import Diagnostic
from opspec.model import SpecTree
from opspec.tree import load

Files = Mapping[str, "str | bytes"]
Load = Callable[[Files], "tuple[SpecTree, list[Diagnostic]]"]


@pytest.fixture
def write_specs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Files], Path]:
    """Write files below an empty folder that is the current one, and give it."""
    monkeypatch.chdir(tmp_path)

    def write(files: Files) -> Path:
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return tmp_path

    return write


@pytest.fixture
def load_specs(write_specs: Callable[[Files], Path]) -> Load:
    """Write files and load the folder specs."""

    def write_and_load(files: Files) -> tuple[SpecTree, list[Diagnostic]]:
        write_specs(files)
        return load(["specs"])

    return write_and_load


@pytest.fixture
def faults_in(load_specs: Load) -> Callable[[Files], str]:
    """Write files, load the folder specs, and give the whole text of what is wrong."""

    def write_load_and_print(files: Files) -> str:
        return "\n".join(map(str, load_specs(files)[1]))

    return write_load_and_print
