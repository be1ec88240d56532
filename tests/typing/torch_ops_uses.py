"""Uses of `torch.ops` that one changed import lets the checkers see; nothing here is run."""

# pyright: strict, reportPrivateUsage=false, reportUnnecessaryTypeIgnoreComment=true
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from typing import Any

import torch
from dispatch_core.torch_ops import ops
from torch._ops import OpOverload
from typing_extensions import assert_type

x = torch.ones(2, 2)

# ── right ───────────────────────────────────────────────────────────────────────────────────────
assert_type(ops.aten.mm.default(x, x), torch.Tensor)
ops.aten.addmv.out(x, x, x, out=x)
ops.aten.add(x, 1)
overload: OpOverload[..., Any] = ops.aten.mm.default
print(ops.aten.mm.default._schema.arguments)
table: dict[OpOverload[..., Any], int] = {ops.aten.add.Tensor: 1, ops.aten.sub.Tensor: 2}
ops.some_library.some_op.default(x, anything=1)
assert_type(ops.aten.size.default(x), "list[int]")


def dispatch(func: OpOverload[..., Any], *args: Any) -> Any:
    """Compare as a handler does."""
    if func is ops.aten.mm.default or func == ops.aten.bmm.default:
        return func(*args)
    if func in (ops.aten.add.Tensor, ops.aten.sub.Tensor):
        return func(*args)
    if func.overloadpacket == ops.aten.mul:
        return func(*args)
    return NotImplemented


# ── wrong ───────────────────────────────────────────────────────────────────────────────────────
# a missing argument
ops.aten.mm.default(x)  # type: ignore[call-arg]
# a number for a tensor
ops.aten.mm.default(x, 1)  # type: ignore[arg-type]
# a misspelt operator
print(ops.aten.admv)  # type: ignore[attr-defined]
# a misspelt overload
print(ops.aten.mm.defalt)  # type: ignore[attr-defined]
# a result that is used as another type
text: str = ops.aten.mm.default(x, x)  # type: ignore[assignment]
