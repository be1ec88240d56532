"""Fresh virtual environments with an outsider's view: no checkout on the path."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SMOKE = Path(__file__).parent / "smoke"


@dataclass(frozen=True)
class Environment:
    """A virtual environment, and an empty folder to run its commands from."""

    python: Path
    empty: Path

    def run(self, *arguments: str | Path) -> str:
        """Run the environment's Python and give what it printed; fail with it otherwise."""
        command = [str(self.python), *map(str, arguments)]
        outside = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "NOX"))}
        done = subprocess.run(
            command,
            cwd=self.empty,
            env=outside,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            pytest.fail(f"{' '.join(command)}\n{done.stdout}", pytrace=False)
        return done.stdout

    def pip(self, *arguments: str | Path) -> str:
        """Run the environment's pip."""
        return self.run("-m", "pip", *arguments)

    def smoke(self, module: str) -> None:
        """Run the smoke test of a package without the checkout in sight."""
        # Without numpy, which is no requirement of torch, torch warns when it is imported.
        quiet = "ignore:Failed to initialize NumPy:UserWarning"
        self.run("-I", "-W", "error", "-W", quiet, SMOKE / f"smoke_{module}.py")


MakeEnvironment = Callable[..., Environment]


@pytest.fixture
def make_environment(tmp_path: Path, request: pytest.FixtureRequest) -> MakeEnvironment:
    """Give a function that makes an environment, with torch in it or not, and a pip."""

    def make(*, torch: bool, pip: str | None = None) -> Environment:
        folder, empty = tmp_path / "environment", tmp_path / "empty"
        empty.mkdir()
        chosen = ["--download", "--pip", pip] if pip else []
        subprocess.run(
            [sys.executable, "-m", "virtualenv", "--quiet", *chosen, str(folder)], check=True
        )
        scheme = {"base": str(folder), "platbase": str(folder)}
        if torch:
            site = Path(sysconfig.get_path("purelib", scheme="venv", vars=scheme))
            (site / "torch.pth").write_text(request.config.getoption("--torch-site") + "\n")
        return Environment(Path(sysconfig.get_path("scripts", "venv", scheme)) / "python", empty)

    return make
