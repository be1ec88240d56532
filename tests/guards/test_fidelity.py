"""torch.compile does the same on guards.torch_guards as on torch._guards.

Two processes run the same scenarios, one with the vocabulary of this package in the place of
torch._guards. Results, compilations, guards, reasons, errors and warnings must agree.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests/guards/fidelity"
# The backend with which a module always runs; with --long each runs with the other one too.
MODULES = {
    "recompiles": "eager",
    "shapes": "aot_eager",
    "regions": "aot_eager",
    "limits": "eager",
    "surroundings": "aot_eager",
}
WORLDS = ("torch", "guards")
OTHER = {"eager": "aot_eager", "aot_eager": "eager"}


def scenarios() -> list[Any]:
    found = []
    for module, backend in MODULES.items():
        for node in ast.parse((FOLDER / f"{module}.py").read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                name = f"{module}.{node.name}"
                found.append(pytest.param(f"{name}[{backend}]", marks=pytest.mark.slow))
                found.append(pytest.param(f"{name}[{OTHER[backend]}]", marks=pytest.mark.long))
    return found


def run(world: str, runs: list[str]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.guards.fidelity.program", world, *runs],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    results: dict[str, Any] = json.loads(done.stdout)
    assert results.pop("world") == world
    return results


@pytest.fixture(scope="module")
def worlds(request: pytest.FixtureRequest) -> dict[str, dict[str, Any]]:
    """Give what happened in each world, by scenario."""
    runs = [f"{module}:{backend}" for module, backend in MODULES.items()]
    if request.config.getoption("--long"):
        runs += [f"{module}:{OTHER[backend]}" for module, backend in MODULES.items()]
    with ThreadPoolExecutor(2) as pool:
        results = pool.map(run, WORLDS, [runs, runs])
        return dict(zip(WORLDS, results, strict=True))


@pytest.mark.parametrize("scenario", scenarios())
def test_the_same_happens(scenario: str, worlds: dict[str, dict[str, Any]]) -> None:
    expected, actual = worlds["torch"][scenario], worlds["guards"][scenario]
    assert expected["error"] is None
    assert expected["results"] != []
    for what, there in expected.items():
        assert actual[what] == there, what
    assert actual.keys() == expected.keys()
