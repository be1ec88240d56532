"""A block-masked tensor: a matrix of which only some blocks are stored, the rest is zero.

The stored blocks are one dense tensor; which blocks they are is metadata, so a compiled function
is traced anew for another mask.
"""

from __future__ import annotations

from typing import Any

import torch
from dispatch_core import ops
from subclass_utils import WrapperTensor

aten = ops.aten
Place = tuple[int, int]


class BlockMaskedTensor(WrapperTensor):
    """A matrix of `rows × columns` in square blocks; `blocks[i]` lies at `places[i]`."""

    inner_tensors = ("blocks",)
    metadata = ("places", "rows", "columns")
    without_handler = "to_plain"
    blocks: torch.Tensor
    places: tuple[Place, ...]
    rows: int
    columns: int

    @staticmethod
    def __new__(
        cls: Any,
        blocks: torch.Tensor,
        places: tuple[Place, ...],
        rows: int,
        columns: int,
        *,
        requires_grad: bool = False,
    ) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            cls,
            (rows, columns),
            dtype=blocks.dtype,
            device=blocks.device,
            requires_grad=requires_grad,
        )

    @property
    def side(self) -> int:
        """Give the length of a block's side."""
        return self.blocks.size(-1)

    def to_plain(self) -> torch.Tensor:
        """Give the whole matrix."""
        dense = self.blocks.new_zeros(self.rows, self.columns)
        for block, window in zip(self.blocks, self.windows(dense), strict=True):
            window.copy_(block)
        return dense

    def windows(self, dense: torch.Tensor) -> list[torch.Tensor]:
        """Give the parts of a whole matrix that are stored, in their order."""
        side = self.side
        return [
            dense[row * side : (row + 1) * side, column * side : (column + 1) * side]
            for row, column in self.places
        ]

    @classmethod
    def from_plain(cls, plain: torch.Tensor, like: Any = None) -> BlockMaskedTensor:
        """Store the blocks that `like` stores, and drop the rest."""
        blocks = torch.stack(like.windows(plain))
        return cls(blocks, like.places, like.rows, like.columns)


def masked(plain: torch.Tensor, side: int) -> BlockMaskedTensor:
    """Store the blocks that are not all zero."""
    rows, columns = plain.size()
    kept = [
        ((i, j), block)
        for i in range(rows // side)
        for j in range(columns // side)
        if (block := plain[i * side : (i + 1) * side, j * side : (j + 1) * side]).any()
    ]
    blocks = torch.stack([block for _, block in kept]) if kept else plain.new_empty(0, side, side)
    return BlockMaskedTensor(blocks, tuple(place for place, _ in kept), rows, columns)


@BlockMaskedTensor.table.implements(aten.mm.default)
def mm(self: Any, mat2: Any) -> Any:
    """Multiply block by block; a block that is not stored costs nothing."""
    if not isinstance(self, BlockMaskedTensor) or isinstance(mat2, BlockMaskedTensor):
        return (self if type(self) is torch.Tensor else self.to_plain()) @ mat2.to_plain()
    side = self.side
    out = mat2.new_zeros(self.rows, mat2.size(1))
    for block, (row, column) in zip(self.blocks, self.places, strict=True):
        out[row * side : (row + 1) * side] += block @ mat2[column * side : (column + 1) * side]
    return out


@BlockMaskedTensor.table.implements(aten.mul.Tensor)
def mul(self: Any, other: Any) -> Any:
    """Scale the stored blocks; a product with another tensor is a whole matrix."""
    if isinstance(self, BlockMaskedTensor) and not isinstance(other, torch.Tensor):
        blocks = self.blocks * other
        return BlockMaskedTensor(blocks, self.places, self.rows, self.columns)
    left, right = (x.to_plain() if isinstance(x, BlockMaskedTensor) else x for x in (self, other))
    return left * right


@BlockMaskedTensor.table.implements(aten.stack.default)
def stack(tensors: Any, dim: int = 0) -> Any:
    """Stack whole matrices, for a DataLoader's batches: several are no matrix in blocks."""
    whole = [x.to_plain() if isinstance(x, BlockMaskedTensor) else x for x in tensors]
    return torch.stack(whole, dim)
