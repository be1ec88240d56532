"""Running an operator through a handle, against running it through torch.ops."""

from __future__ import annotations

from collections.abc import Iterator

from dispatch_core import handle_of

from tools.bench.calls import CALLS
from tools.bench.row import Row, at_most
from tools.bench.timing import Statement, alternate


def rows() -> Iterator[Row]:
    """Compare a call of a handle with a call of the overload it stands for."""
    for name, (args, kwargs) in CALLS.items():
        handle = handle_of(name)
        names: dict[str, object] = {"a": args, "k": kwargs, "ours": handle}
        names["theirs"] = handle.torch_op
        ours, theirs = alternate(
            Statement("ours(*a, **k)", names), Statement("theirs(*a, **k)", names)
        )
        yield Row(f"call {name}", "torch.ops", ours, theirs, at_most(1.1))
