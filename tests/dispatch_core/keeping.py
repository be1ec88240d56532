"""A mode that notes what arrives, for the tests of keep_composite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from dispatch_core import DispatchMode

KL_PARTS = ["mul.Tensor", "xlogy.Tensor", "sub.Tensor", "mean.default"]


class Names(DispatchMode):
    """Notes the names of the overloads it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.calls: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func).removeprefix("aten."))
        self.calls.append((func, args, kwargs))
        return func(*args, **(kwargs or {}))


def inputs(requires_grad: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    x, y = torch.rand(3).log(), torch.rand(3)
    return x.requires_grad_(requires_grad), y.requires_grad_(requires_grad)


def arrived(run: Callable[[], object]) -> list[str]:
    with Names() as names:
        run()
    return list(names.seen)
