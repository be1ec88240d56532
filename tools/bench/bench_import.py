"""Importing the packages after torch, against importing torch: time and memory."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator

from tools.bench.row import Row, at_most
from tools.bench.timing import in_new_process

ROUNDS = 9
SOON = at_most(0.02)
IMPORTS = {
    "dispatch_core": "import dispatch_core",
    "subclass_utils": "import subclass_utils",
    "WrapperTensor": "from subclass_utils import WrapperTensor",
    "guards": "import guards",
}
FIRST_USES = {
    "dispatch_core": ("first handle made", "ops.aten.addmv.default.bind"),
    "WrapperTensor": ("first wrapper made", "WrapperTensor(tensor)"),
}

CODE = """
import json, os, resource, sys, time
def resident():
    try:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return kilobytes * (1 if sys.platform == "darwin" else 1024)
figures = {}
def measure(name, code):
    memory, start = resident(), time.perf_counter()
    exec(code, globals())
    figures[name] = time.perf_counter() - start
    figures[name + " bytes"] = resident() - memory
measure("torch", "import torch")
# Bytecode, as there is for torch, also from a checkout where none is to be written.
sys.pycache_prefix, sys.dont_write_bytecode = sys.argv[3], False
measure("ours", sys.argv[1])
tensor = torch.ones(3)
if "dispatch_core" in sys.argv[1]:
    from dispatch_core import ops
measure("first use", sys.argv[2])
print(json.dumps(figures))
"""


def rows() -> Iterator[Row]:
    """Compare each package with torch, both measured in the same process."""
    with tempfile.TemporaryDirectory() as bytecode:
        for name, code in IMPORTS.items():
            first, use = FIRST_USES.get(name, ("", "pass"))
            in_new_process(CODE, code, use, bytecode)
            runs = [in_new_process(CODE, code, use, bytecode) for _ in range(ROUNDS)]
            median = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
            yield Row(f"import {name}", "import torch", median["ours"], median["torch"], SOON)
            yield Row(
                f"memory of import {name}",
                "import torch",
                median["ours bytes"],
                median["torch bytes"],
                at_most(0.03),
                unit="B",
            )
            if first:
                yield Row(first, "import torch", median["first use"], median["torch"])
