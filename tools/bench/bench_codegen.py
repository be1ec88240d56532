"""Generating everything, against torchgen merely loading native_functions.yaml."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tools.bench.row import Row, at_most
from tools.bench.timing import alternate_slow, in_new_process, seconds_of

ROOT = Path(__file__).parents[2]

TORCHGEN = """
import json, pathlib, time, torchgen
from torchgen.gen import parse_native_yaml
folder = pathlib.Path(torchgen.__file__).parent / "packaged/ATen/native"
start = time.process_time()
parse_native_yaml(str(folder / "native_functions.yaml"), str(folder / "tags.yaml"))
print(json.dumps({"seconds": time.process_time() - start}))
"""


def rows() -> Iterator[Row]:
    """Compare the whole command with what torchgen needs once it is imported."""
    command = [sys.executable, "-m", "opspec", "codegen"]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        shutil.copytree(ROOT / "specs", tree / "specs")
        sources = [path.relative_to(ROOT) for path in ROOT.glob("packages/*/src/*")]

        def clean() -> None:
            shutil.rmtree(tree / "packages", ignore_errors=True)
            for source in sources:
                (tree / source).mkdir(parents=True)

        def cold() -> float:
            clean()
            return seconds_of(command, cwd=tree)

        def unchanged() -> float:
            return seconds_of(command, cwd=tree)

        def torchgen() -> float:
            return in_new_process(TORCHGEN)["seconds"]

        ours, theirs = alternate_slow(cold, torchgen, rounds=5)
        yield Row("codegen of everything", "torchgen's load", ours, theirs, at_most(3))
        unchanged()
        ours, theirs = alternate_slow(unchanged, torchgen, rounds=5)
        yield Row("codegen, nothing changed", "torchgen's load", ours, theirs, at_most(1))
