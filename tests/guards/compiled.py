"""Functions that torch.compile is given, and what is said of them."""

from __future__ import annotations

import json
import re
from typing import Any

import torch
from guards import EntryReport

FACTOR = 3


def compile_eagerly(function: Any, **options: Any) -> Any:
    return torch.compile(function, backend="eager", **options)


def add(x: torch.Tensor, n: int, config: dict[str, Any]) -> torch.Tensor:
    y = x * n
    if config["double"]:
        y = y * 2
    return y + FACTOR


ADDRESS = re.compile(r"\b(0x[0-9a-f]{6,}|\d{9,})\b|___|__builtins_dict|__import_")


def check_texts(reports: list[EntryReport]) -> None:
    for report in reports:
        assert not ADDRESS.search(str(report)), ADDRESS.search(str(report))
        assert report.guards
        json.loads(report.to_json())


def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


class Scaled:
    factor = 2

    def times(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor

    @torch.compile(backend="eager")
    def compiled_times(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


def broken(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    torch._dynamo.graph_break()
    return y * 2
