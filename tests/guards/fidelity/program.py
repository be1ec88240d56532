"""Run scenarios in one world and print what happened as JSON.

    python -m tests.guards.fidelity.program torch|guards MODULE:BACKEND …

In the world `guards`, guards.torch_guards takes the place of torch._guards before torch._dynamo
is imported. The other world is torch as it is installed.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch


def main(world: str, runs: list[str]) -> None:
    if world == "guards":
        from guards import torch_guards

        torch_guards.install()
    from tests.guards.fidelity import record

    results: dict[str, Any] = {"world": torch._guards.Guard.__module__.partition(".")[0]}
    for module, _, backend in (run.partition(":") for run in runs):
        for name, scenario in record.load(module).items():
            results[f"{name}[{backend}]"] = record.run(scenario, backend)
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
