"""What would touch memory that a wrapper does not have raises; the interpreter never dies."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PREPARE = """
import numpy, torch
from dispatch_core import no_dispatch
from subclass_utils import LoggingTensor
w = LoggingTensor(torch.ones(3))
plain = torch.ones(3)
module = torch.nn.Linear(2, 2)
module.weight = torch.nn.Parameter(LoggingTensor(module.weight.detach()))
"""

ATTEMPTS = {
    "share_memory_": ("w.share_memory_()", "share_memory_"),
    "from_dlpack": ("torch.from_dlpack(w)", "from_dlpack"),
    "numpy.from_dlpack": ("numpy.from_dlpack(w)", "from_dlpack"),
    "apply_": ("w.apply_(lambda x: x)", "elem.apply_"),
    "map_": ("w.map_(plain, lambda x, y: x)", "elem.map_"),
    "map2_": ("w.map2_(plain, plain, lambda x, y, z: x)", "elem.map2_"),
    "numpy": ("w.numpy()", "to_plain"),
    "numpy force": ("w.numpy(force=True)", "to_plain"),
    "asarray": ("numpy.asarray(w)", "to_plain"),
    "tolist": ("w.tolist()", "to_plain"),
    "data_ptr": ("w.data_ptr()", "elem.data_ptr"),
    "storage": ("w.storage()", "elem.untyped_storage"),
    "Module.share_memory": ("module.share_memory()", "share_memory_"),
    "no_dispatch read": ("with no_dispatch(): w + 1", "memory"),
    "no_dispatch write": ("with no_dispatch(): w.add_(1)", "memory"),
    "no_dispatch plain": ("with no_dispatch(): plain.add_(w)", "memory"),
    "no_dispatch view": ("with no_dispatch(): w[1:].sum()", "memory"),
    "no_dispatch list": ("with no_dispatch(): torch.cat([plain, w])", "memory"),
    "torch.tensor": ("torch.tensor([w[0], w[1]])", ""),
}

RUN = """
for name, (code, _) in ATTEMPTS.items():
    try:
        exec(code)
    except Exception as error:
        print(name, type(error).__name__, str(error).replace(chr(10), " "), sep="|", flush=True)
    else:
        print(name, "nothing raised", "", sep="|", flush=True)
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def answers() -> dict[str, tuple[str, str]]:
    """Try everything in one process; where it dies, go on behind that in another."""
    found: dict[str, tuple[str, str]] = {}
    while len(found) < len(ATTEMPTS):
        rest = {name: attempt for name, attempt in ATTEMPTS.items() if name not in found}
        done = run(f"{PREPARE}\nATTEMPTS = {rest!r}\n{RUN}")
        lines = [line.split("|", 2) for line in done.stdout.splitlines() if line.count("|") >= 2]
        found.update({name: (kind, text) for name, kind, text in lines})
        if done.returncode:
            died = next((name for name in rest if name not in found), None)
            if died is None:
                break
            found[died] = ("died", f"exit status {done.returncode}: {done.stderr[-500:]}")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_attempt_raises_and_names_the_way_out(
    attempt: str, answers: dict[str, tuple[str, str]]
) -> None:
    kind, text = answers[attempt]
    if attempt == "torch.tensor":  # torch's own error, before anybody can be asked
        assert kind == "RuntimeError"
        return
    assert kind in ("MemorylessError", "TypeError" if "dlpack" in attempt else "MemorylessError")
    assert ATTEMPTS[attempt][1] in text
