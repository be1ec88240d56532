"""What must work where only opspec is installed, without torch."""

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

import opspec

assert "site-packages" in opspec.__file__, opspec.__file__
assert importlib.util.find_spec("torch") is None

with tempfile.TemporaryDirectory() as folder:
    spec = Path(folder, "mylib.yaml")
    spec.write_text("- func: fused(Tensor self, *, Scalar scale=1) -> Tensor\n")
    command = Path(sys.executable).with_name("opspec")
    subprocess.run([command, "check", spec], check=True)
    spec.write_text("- func: fused(Tensr self) -> Tensor\n")
    refused = subprocess.run([command, "check", spec], capture_output=True, text=True, check=False)
    assert refused.returncode == 1, refused
    assert "mylib.yaml:1:" in refused.stdout + refused.stderr, refused
