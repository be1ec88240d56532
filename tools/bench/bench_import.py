"""Importing the packages after torch, against importing torch: time and memory."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from tools.bench.row import Row, at_most
from tools.bench.timing import in_new_process

ROUNDS = 9
PACKAGES = ["dispatch_core", "subclass_utils", "guards"]

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
for name in ["torch", sys.argv[1]]:
    memory, start = resident(), time.perf_counter()
    __import__(name)
    figures[name] = time.perf_counter() - start
    figures[name + " bytes"] = resident() - memory
if sys.argv[1] == "dispatch_core":
    from dispatch_core import ops
    start = time.perf_counter()
    ops.aten.addmv.default.bind
    figures["first handle"] = time.perf_counter() - start
print(json.dumps(figures))
"""


def rows() -> Iterator[Row]:
    """Compare each package with torch, both measured in the same process."""
    for package in PACKAGES:
        runs = [in_new_process(CODE, package) for _ in range(ROUNDS)]
        median = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
        ours, theirs = median[package], median["torch"]
        yield Row(f"import {package}", "import torch", ours, theirs, at_most(0.02))
        ours, theirs = median[f"{package} bytes"], median["torch bytes"]
        work = f"memory of import {package}"
        yield Row(work, "import torch", ours, theirs, at_most(0.03), unit="B")
        if "first handle" in median:
            yield Row("first handle made", "import torch", median["first handle"], median["torch"])
