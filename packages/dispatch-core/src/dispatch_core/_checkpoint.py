"""Checkpointing that keeps the modes for what it recomputes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils import checkpoint as torch_checkpoint

from dispatch_core._mode_stack import propagate_modes

__all__ = ["checkpoint"]


def checkpoint(
    fn: Callable[..., Any], /, *args: Any, use_reentrant: bool = False, **kwargs: Any
) -> Any:
    """Call `torch.utils.checkpoint.checkpoint` with the modes carried into the recomputation.

    Torch recomputes in the backward, where the modes of the forward are usually closed. Then a
    mode that changes values gives other activations there, and the gradients are wrong without
    a word, in both of torch's forms. Takes what torch's function takes.
    """
    return torch_checkpoint.checkpoint(
        propagate_modes(fn), *args, use_reentrant=use_reentrant, **kwargs
    )
