"""Autocast as it was for a call, for what runs the call's parts later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch

__all__ = ["Autocast"]


class Autocast:
    """The settings of autocast in this moment, for the devices of some tensors."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        kinds = sorted({tensor.device.type for tensor in tensors})
        self.settings = tuple(
            (kind, torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None)
            for kind in kinds
            if torch.amp.is_autocast_available(kind)
        )

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Have these settings again. What is cast is not kept for others."""
        with ExitStack() as stack:
            for kind, dtype in self.settings:
                if dtype is not None:
                    again = torch.autocast(kind, dtype=dtype, cache_enabled=False)
                    stack.enter_context(again)
                elif torch.is_autocast_enabled(kind):
                    stack.enter_context(torch.autocast(kind, enabled=False))
            yield
