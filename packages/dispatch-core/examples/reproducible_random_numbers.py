"""Answer some operators: a mode that draws all random numbers from one seed of its own.

The program under it gets the same numbers whatever was drawn before.
"""

from __future__ import annotations

from typing import Any

import torch
from dispatch_core import DispatchMode, Handle, HandlerTable


def draws(handle: Handle[Any]) -> bool:
    """Say whether an operator draws random numbers, and lets the caller say from where."""
    return handle.facts.random and any(param.name == "generator" for param in handle.params)


class Seeded(DispatchMode):
    """Draws all random numbers from a generator of its own."""

    def __init__(self, seed: int) -> None:
        # A table of the instance, whose handler knows the instance.
        table = HandlerTable(missing="next")
        table.implements_where(predicate=draws)(self.draw)
        super().__init__(table)
        self.generator = torch.Generator().manual_seed(seed)

    def draw(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Draw from the mode's generator, unless the caller names one."""
        if kwargs.get("generator") is None:
            kwargs["generator"] = self.generator
        return func(*args, **kwargs)


if __name__ == "__main__":
    for drawn_before in (0, 3):
        torch.rand(drawn_before)
        with Seeded(42):
            print(torch.empty(3).uniform_(), torch.empty(2).normal_())
