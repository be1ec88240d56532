"""mypy and pyright accept the right uses of the typed operators, and report each seeded mistake."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CLIENTS = [HERE / name for name in ("right_uses.py", "seeded_errors.py", "torch_ops_uses.py")]


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=False
    )


@pytest.fixture(scope="module")
def cache(request: pytest.FixtureRequest) -> Path:
    """Give mypy a cache that outlives the test run: torch is what takes its time."""
    folder = request.config.cache
    assert folder is not None
    return Path(str(folder.mkdir("typing-clients")))


@pytest.mark.slow
def test_clients_under_mypy_strict_have_no_unexpected_and_no_missing_error(cache: Path) -> None:
    result = _run(
        sys.executable, "-m", "mypy", "--strict", f"--cache-dir={cache}", *map(str, CLIENTS)
    )
    assert (result.returncode, result.stdout + result.stderr) == (
        0,
        f"Success: no issues found in {len(CLIENTS)} source files\n",
    )


@pytest.mark.slow
def test_clients_under_pyright_strict_have_no_unexpected_and_no_missing_error() -> None:
    result = _run(
        sys.executable,
        "-m",
        "pyright",
        f"--pythonpath={sys.executable}",
        "--outputjson",
        *map(str, CLIENTS),
    )
    report = json.loads(result.stdout[result.stdout.index("{") :])
    found = [
        f"{Path(item['file']).name}:{item['range']['start']['line'] + 1}: {item['message']}"
        for item in report["generalDiagnostics"]
    ]
    assert found == []
    assert report["summary"]["filesAnalyzed"] == len(CLIENTS)


def test_seeded_errors_are_of_many_kinds_and_each_says_which() -> None:
    lines = (HERE / "seeded_errors.py").read_text(encoding="utf-8").splitlines()
    excused = [number for number, line in enumerate(lines) if "# type: ignore[" in line]
    described = [lines[number - 1] for number in excused]
    assert all(re.fullmatch(r"# [a-zA-Z].+", text) for text in described), described
    assert len(set(described)) == len(described) >= 40


@pytest.mark.slow
def test_mypy_names_the_overload_in_its_message(cache: Path, tmp_path: Path) -> None:
    client = tmp_path / "client.py"
    client.write_text(
        "import torch\nfrom dispatch_core import ops\n"
        "x = torch.ones(2)\nops.aten.mm.default(x)\nops.aten.add.Tensr\n",
        encoding="utf-8",
    )
    result = _run(sys.executable, "-m", "mypy", "--strict", f"--cache-dir={cache}", str(client))
    assert [line.split(": ", 1)[1] for line in result.stdout.splitlines()[:2]] == [
        'error: Missing positional argument "mat2" in call to "__call__" of "mm_default"  '
        "[call-arg]",
        'error: "add_packet" has no attribute "Tensr"; maybe "Tensor"?  [attr-defined]',
    ]


UNANNOTATED = """\
import torch
from dispatch_core import HandlerTable, ops

class Mine(torch.Tensor):
    table = HandlerTable()

@Mine.table.implements(ops.aten.add.Tensor)
def add(self, other, *, alpha=1):
    return self

@Mine.table.implements(ops.aten.addmm.default)
def addmm(self, mat1, mat2, *, beta=1, alpha=1):
    return self

@Mine.table.implements(ops.aten.pdist.default)
def pdist(self, p=2):
    return self

@Mine.table.implements(ops.aten.leaky_relu.default)
def leaky_relu(self, negative_slope=0.01):
    return self

@Mine.table.implements(ops.aten.add.Tensor)
def wrong(self, other, *, alpha=""):
    return self
"""


@pytest.mark.slow
def test_pyright_takes_handlers_without_annotations(tmp_path: Path) -> None:
    client = tmp_path / "client.py"
    client.write_text(UNANNOTATED, encoding="utf-8")
    command = (sys.executable, "-m", "pyright", f"--pythonpath={sys.executable}", "--outputjson")
    result = _run(*command, str(client))
    report = json.loads(result.stdout[result.stdout.index("{") :])
    lines = UNANNOTATED.splitlines()
    found = [lines[item["range"]["start"]["line"] + 1] for item in report["generalDiagnostics"]]
    assert found == ['def wrong(self, other, *, alpha=""):']
