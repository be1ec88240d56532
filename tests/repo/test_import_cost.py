"""An import makes no operators and loads nothing large that torch has not loaded itself."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache

import pytest

from tests.repo.layout import PACKAGES, within

# What a package loads with the first class that is used counts, too.
MODULES = [*PACKAGES, "subclass_utils._logging_tensor"]

# Parts of torch that torch itself loads late.
LARGE = ["torch._dynamo", "torch._inductor", "torch.testing", "torch.distributed", "torch.onnx"]

CODE = """
import gc, json, sys
import torch
before = set(sys.modules)
gc.collect()
def overloads():
    return {str(x) for x in gc.get_objects() if type(x) is torch._ops.OpOverload}
existing = overloads()
__import__(sys.argv[1])
gc.collect()
print(json.dumps([sorted(overloads() - existing), sorted(set(sys.modules) - before)]))
"""


@cache
def import_of(module: str) -> tuple[list[str], list[str]]:
    """Import a module after torch, anew; give the overloads made and the modules loaded."""
    command = [sys.executable, "-W", "error", "-c", CODE, module]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made, loaded = json.loads(done.stdout)
    return made, loaded


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES)
def test_import_makes_no_operators_and_loads_nothing_large(module: str) -> None:
    made, loaded = import_of(module)
    # A handful that a module of the package names in a table of its own is no matter.
    assert len(made) <= {"subclass_utils._logging_tensor": 20}.get(module, 0), made
    package = module.partition(".")[0]
    own = {"subclass_utils": {"subclass_utils", "dispatch_core"}}.get(package, {package})
    allowed = {"torch", *own, *sys.stdlib_module_names}
    assert [name for name in loaded if name.split(".")[0] not in allowed] == []
    assert [name for name in loaded if within(name, *LARGE)] == []


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES)
def test_import_reads_no_generated_family(module: str) -> None:
    _, loaded = import_of(module)
    families = [
        name
        for name in loaded
        if "._generated." in name and name.split("._generated.")[1].count(".") > 0
    ]
    assert [name for name in families if not name.rpartition(".")[2].startswith("_")] == []
