"""Checking the types of a client of the typed operators, against one that imports torch only."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tools.bench.row import Row, at_most
from tools.bench.timing import alternate_slow, seconds_of

CALLS = """
def client(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = ops.aten.mul.Tensor(a, b)
    c = ops.aten.addmv.default(c, a, b, alpha=2)
    c = ops.aten.convolution.default(c, a, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    c = ops.aten.view.default(c, [2, 3])
    c = ops.aten.sum.dim_IntList(c, [0], True)
    c = ops.aten.native_layer_norm.default(c, [3], a, b, 1e-5)[0]
    c = ops.aten.sort.default(c)[0]
    result: torch.Tensor = ops.aten._to_copy.default(c, dtype=torch.float64)
    return result
"""
OURS = f"import torch\nfrom dispatch_core import ops\n{CALLS}"
THEIRS = f"import torch\nfrom torch import ops\n{CALLS}"


def rows() -> Iterator[Row]:
    """Compare mypy without a cache, and pyright, on two clients that make the same calls."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "ours.py").write_text(OURS)
        (place / "theirs.py").write_text(THEIRS)

        def mypy(client: str) -> float:
            options = ["--config-file=", "--cache-dir=/dev/null", "--strict"]
            return seconds_of([sys.executable, "-m", "mypy", *options, client], cwd=place)

        def pyright(client: str) -> float:
            command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, client]
            return seconds_of(command, cwd=place)

        pyright("theirs.py")  # The first run may have to fetch or unpack it.
        for name, checker, rounds, target in [
            ("mypy, cold", mypy, 3, at_most(1.25)),
            ("pyright", pyright, 5, None),
        ]:
            works = [partial(checker, "ours.py"), partial(checker, "theirs.py")]
            ours, theirs = alternate_slow(*works, rounds=rounds)
            yield Row(f"{name}, client of ops", "client of torch", ours, theirs, target)
