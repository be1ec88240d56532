"""Let type checkers check code that uses `torch.ops`: change one import.

    from dispatch_core.torch_ops import ops

    ops.aten.addmv.default(x, y, z, beta=2)

At run time this `ops` is `torch.ops` itself. Type checkers see every operator with its signature,
and report a misspelt operator, overload or argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dispatch_core._generated._torch import TypedTorchOps

    ops: TypedTorchOps
else:
    from torch import ops

__all__ = ["ops"]
