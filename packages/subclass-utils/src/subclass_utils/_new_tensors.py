"""Make tensors like a wrapper, in the ways in which torch reads memory without asking anybody."""

from __future__ import annotations

from typing import Any

import torch

from subclass_utils._torch_private import without_modes

__all__ = ["NewTensors"]


def _is_wrapper(value: Any) -> bool:
    return hasattr(type(value), "inner_tensors")


class NewTensors:
    """Methods of torch.Tensor that make others of its class."""

    def new_tensor(self: Any, data: Any, *, requires_grad: bool = False, **options: Any) -> Any:
        """Make a tensor of `data` with this one's dtype and device, as `new_ones` would."""
        # torch reads data without asking anybody, and does not know our dispatch key there.
        if _is_wrapper(data):
            data = data.to_plain()
        with without_modes():
            empty = torch.empty(0, dtype=self.dtype, device=self.device)
            made: Any = empty.new_tensor(data, **options)
        if self._transparent:
            made = type(self).from_plain(made, self)
        return made.requires_grad_(requires_grad)

    def new(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Make a tensor of a size or of data: torch's old way to say new_empty, new_tensor.

        Of a sparse one, which torch.optim.SparseAdam asks, also one of indices and values.
        """
        if self.layout is torch.sparse_coo and len(args) > 1 and isinstance(args[1], torch.Tensor):
            parts: Any = torch.sparse_coo_tensor(*args, dtype=self.dtype, device=self.device)
            given = any(map(_is_wrapper, args))
            return parts if given or not self._transparent else type(self).from_plain(parts, self)
        with without_modes():
            layout = self.layout if self.layout is torch.sparse_coo else torch.strided
            empty = torch.empty(0, dtype=self.dtype, device=self.device, layout=layout)
            made = empty.new(*args, **kwargs)
        return type(self).from_plain(made, self) if self._transparent else made
