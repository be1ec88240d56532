"""Operators on sequences, and `vander`, by operators that wrappers answer.

Torch writes their results into plain tensors of its own, and reads the sizes of the batches of a
packed sequence from memory. So the sizes are handed over plain, and the results are put together
from what is given. The kernels are registered when this is imported, as those of `_whole` are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from dispatch_core._for_subclass_utils import is_kept

from subclass_utils._torch_private import keys_below_wrapper_key, wrapper_kernels
from subclass_utils._wrapper import WrapperTensor

__all__: list[str] = []

_aten = torch.ops.aten


def _is_transparent(value: Any) -> bool:
    return isinstance(value, WrapperTensor) and type(value)._transparent


def _plain_sizes(value: Any) -> Any:
    while isinstance(value, WrapperTensor):
        value = value.to_plain()
    return value


def _padded(part: Any, length: int, value: Any, left: bool = False) -> Any:
    """Give a tensor with more rows, which hold `value`."""
    more = length - part.size(0)
    if more == 0:
        return part
    place = [more, 0] if left else [0, more]
    return _aten.constant_pad_nd(part, [0, 0] * (part.dim() - 1) + place, value)


def _unpacked(data: Any, sizes: Any, value: Any) -> tuple[Any, list[int]]:
    """Give (T, B, ...) of a packed sequence, and the batch size of each of the T steps."""
    steps: list[int] = sizes.tolist()
    parts = data.split(steps)
    return torch.stack([_padded(part, steps[0], value) for part in parts]), steps


def _pad_packed(
    data: Any, sizes: Any, batch_first: bool, padding_value: Any, total_length: int
) -> Any:
    if sizes.numel() == 0 or 0 < total_length < sizes.numel():
        return NotImplemented  # torch says what is wrong
    made, steps = _unpacked(data, sizes, padding_value)
    made = _padded(made, max(total_length, len(steps)), padding_value)
    lengths = [sum(step > index for step in steps) for index in range(steps[0])]
    return made.transpose(0, 1) if batch_first else made, torch.tensor(lengths)


def _pack_backward(grad: Any, input_size: Sequence[int], sizes: Any, batch_first: bool) -> Any:
    made, _ = _unpacked(grad, sizes, 0)
    length = input_size[1 if batch_first else 0]
    made = _padded(made, length, 0)
    return made.transpose(0, 1) if batch_first else made


def _with_sizes(name: str, index: int, make: Callable[..., Any]) -> Callable[..., Any]:
    """Make the kernel of an operator whose argument `index` holds sizes of batches."""
    base, _, overload = name.partition("::")[2].partition(".")
    op = getattr(getattr(_aten, base), overload or "default")

    def run(keys: Any, *args: Any) -> Any:
        if not is_kept(op):
            args = (*args[:index], _plain_sizes(args[index]), *args[index + 1 :])
            if _is_transparent(args[0]):
                made = make(*args)
                if made is not NotImplemented:
                    return made
        return op.redispatch(keys & keys_below_wrapper_key, *args)

    return run


def _recurrent(name: str, packed: bool) -> Callable[..., Any]:
    """Make the kernel of a recurrent network: the sizes are plain, and the state is wrapped.

    The state that a module begins with is plain, and torch writes what it computes into products
    with it.
    """
    base, _, overload = name.partition("::")[2].partition(".")
    op = getattr(getattr(_aten, base), overload)

    def run(keys: Any, data: Any, *args: Any) -> Any:
        if not is_kept(op):
            sizes = [_plain_sizes(args[0])] if packed else []
            state, *rest = args[len(sizes) :]
            if _is_transparent(data) and type(data).mixing == "wrap":
                if isinstance(state, list | tuple):
                    state = [_wrapped(each, data) for each in state]
                else:
                    state = _wrapped(state, data)
            args = (*sizes, state, *rest)
        return op.redispatch(keys & keys_below_wrapper_key, data, *args)

    return run


def _wrapped(state: Any, like: Any) -> Any:
    if isinstance(state, WrapperTensor) or state.requires_grad:
        return state
    return type(like).from_plain(state, like)


def _pad_sequence(
    keys: Any,
    sequences: Sequence[Any],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Any:
    op = _aten.pad_sequence.default
    first = sequences[0]
    usual = padding_side in ("left", "right") and all(
        each.dim() > 0
        and each.size()[1:] == first.size()[1:]
        and each.dtype is first.dtype
        and each.device == first.device
        for each in sequences
    )
    if not usual or is_kept(op) or not any(map(_is_transparent, sequences)):
        below = keys & keys_below_wrapper_key
        return op.redispatch(below, sequences, batch_first, padding_value, padding_side)
    length = max(each.size(0) for each in sequences)
    left = padding_side == "left"
    padded = [_padded(each, length, padding_value, left) for each in sequences]
    return torch.stack(padded, 0 if batch_first else 1)


def _vander(keys: Any, x: Any, N: int | None = None, increasing: bool = False) -> Any:
    op = _aten.vander.default
    if x.dim() != 1 or (N is not None and N < 0) or is_kept(op) or not _is_transparent(x):
        return op.redispatch(keys & keys_below_wrapper_key, x, N, increasing)
    count = x.size(0) if N is None else N
    x = x.to(torch.promote_types(x.dtype, torch.int64))
    if count == 0:
        return x.new_empty((x.size(0), 0))
    made = x.new_ones((x.size(0), 1))
    if count > 1:
        powers = x.unsqueeze(1).expand(-1, count - 1).cumprod(1)
        made = torch.cat([made, powers], 1)
    return made if increasing else made.flip(1)


def _register() -> Any:
    register = wrapper_kernels("aten")
    register(
        "aten::_pad_packed_sequence", _with_sizes("aten::_pad_packed_sequence", 1, _pad_packed)
    )
    backward = "aten::_pack_padded_sequence_backward"
    register(backward, _with_sizes(backward, 2, _pack_backward))
    for name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        register(f"aten::{name}.data", _recurrent(f"aten::{name}.data", True))
        register(f"aten::{name}.input", _recurrent(f"aten::{name}.input", False))
    register("aten::pad_sequence", _pad_sequence)
    register("aten::vander", _vander)
    return register


_kept = _register()
