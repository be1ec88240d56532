"""Check what a tensor subclass covers: run a program and list the operators without a handler."""

from __future__ import annotations

from typing import Any

import torch
from dispatch_core import HandlerTable, no_dispatch, ops

aten = ops.aten


class Metres(torch.Tensor):
    """A length: it adds and scales, and other operators make no sense of it."""

    table = HandlerTable()

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's stub forgets func
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Answer from the table."""
        return cls.table.dispatch(func, types, args, kwargs)


@Metres.table.implements(aten.add.Tensor)
def add(self: Any, other: Any, *, alpha: Any = 1) -> Any:
    """Add two lengths."""
    if not (isinstance(self, Metres) and isinstance(other, Metres)):
        raise TypeError("a length and a number do not add")
    with no_dispatch():
        return torch.add(self, other, alpha=alpha).as_subclass(Metres)


@Metres.table.implements_where(predicate=lambda handle: handle.facts.view)
@Metres.table.implements(aten.mul, aten.div, aten.sum, aten.detach)
def same_unit(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Scale, sum and view lengths."""
    with no_dispatch():
        return func(*args, **kwargs).as_subclass(Metres)


def program(lengths: Any) -> Any:
    """Do what a user of lengths might do."""
    lengths = (lengths + lengths) * 2
    lengths.view(2, 1).sum()
    return lengths.sqrt()


if __name__ == "__main__":
    x = torch.tensor([1.0, 2.0]).as_subclass(Metres)
    print(Metres.table.coverage(program, x))
    try:
        x + 1
    except RuntimeError as error:
        print(type(error).__name__, "from", type(error.__cause__).__name__)
