"""Run scenarios in one world and print what happened as JSON.

    python program.py torch|guards FILE:BACKEND …

In the world `guards`, guards.torch_guards takes the place of torch._guards before torch._dynamo
is imported. The other world is torch as it is installed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent


def main(world: str, files: list[str]) -> None:
    if world == "guards":
        from guards import torch_guards

        torch_guards.install()
    sys.path.insert(0, str(HERE))  # scenarios import `record`
    import record

    results = {"world": torch._guards.Guard.__module__.partition(".")[0]}
    for file, _, backend in (name.partition(":") for name in files):
        for name, scenario in record.load(HERE / file).items():
            results[f"{name}[{backend}]"] = record.run(scenario, backend)
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
