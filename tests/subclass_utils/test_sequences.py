"""Padded and packed sequences, recurrent networks and `vander` keep the class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from subclass_utils import LoggingTensor, WrapperTensor
from torch.nn.utils import rnn

from tests.subclass_utils.wrappers import Measured, ScaledOnPlain


def value_of(x: Any) -> torch.Tensor:
    while isinstance(x, WrapperTensor):
        x = x.to_plain()
    assert type(x) is torch.Tensor
    return x


def packed(make: Callable[[Any], Any], batch_first: bool = True) -> Any:
    x = make(torch.arange(24.0).view(3, 4, 2) / 24)
    return rnn.pack_padded_sequence(x, [4, 2, 1], batch_first) if batch_first else x


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "pack": lambda make: packed(make).data,
    "pad": lambda make: rnn.pad_packed_sequence(packed(make))[0],
    "pad, batch first": lambda make: rnn.pad_packed_sequence(packed(make), True, -1.0)[0],
    "pad to a length": lambda make: rnn.pad_packed_sequence(packed(make), total_length=6)[0],
    "unpack": lambda make: rnn.unpack_sequence(rnn.pack_sequence(parts(make)))[1],
    "unpack, unsorted": lambda make: rnn.unpack_sequence(
        rnn.pack_sequence(parts(make)[::-1], enforce_sorted=False)
    )[0],
    "pad_sequence": lambda make: rnn.pad_sequence(parts(make)),
    "pad_sequence, batch first": lambda make: rnn.pad_sequence(parts(make), True, 5.0),
    "pad_sequence, left": lambda make: rnn.pad_sequence(parts(make), padding_side="left"),
    "pad_sequence, 1d": lambda make: rnn.pad_sequence([x[:, 0] for x in parts(make)]),
    "LSTM": lambda make: recurrent(torch.nn.LSTM, make, True),
    "GRU": lambda make: recurrent(torch.nn.GRU, make, True),
    "RNN": lambda make: recurrent(torch.nn.RNN, make, True),
    "LSTM, not packed": lambda make: recurrent(torch.nn.LSTM, make, False),
    "GRU, not packed": lambda make: recurrent(torch.nn.GRU, make, False),
    "RNN, not packed": lambda make: recurrent(torch.nn.RNN, make, False),
    "vander": lambda make: torch.vander(make(torch.tensor([2.0, 3.0, 0.5]))),
    "vander, many": lambda make: torch.vander(make(torch.tensor([2.0, 3.0])), 5, increasing=True),
    "vander, none": lambda make: torch.vander(make(torch.tensor([2.0, 3.0])), 0),
    "vander, one": lambda make: torch.vander(make(torch.tensor([2.0, 3.0])), 1),
}


def parts(make: Callable[[Any], Any]) -> list[Any]:
    return [make(torch.ones(3, 2)), make(torch.ones(2, 2) * 2)]


def recurrent(network: Any, make: Callable[[Any], Any], is_packed: bool) -> Any:
    torch.manual_seed(0)
    output = network(2, 3, num_layers=2, bidirectional=True)(packed(make, is_packed))[0]
    return rnn.pad_packed_sequence(output)[0] if is_packed else output


@pytest.mark.slow
@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_sequence_is_as_of_plain_tensors(name: str, inference: bool) -> None:
    with torch.inference_mode(inference), torch.set_grad_enabled(not inference):
        wanted = PROGRAMS[name](lambda plain: plain)
        for cls in (Measured, LoggingTensor):
            got = PROGRAMS[name](cls)
            assert type(got) is cls
            torch.testing.assert_close(value_of(got), wanted)
            assert got.stride() == wanted.stride()
        assert PROGRAMS[name](ScaledOnPlain.from_plain).size() == wanted.size()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PROGRAMS if "vander" not in name])  # no plain
def test_sequence_is_differentiated(name: str) -> None:
    gradients = []
    for cls in (Measured, lambda plain: plain):
        leaves: list[Any] = []

        def leaf(plain: torch.Tensor, cls: Any = cls, leaves: list[Any] = leaves) -> Any:
            leaves.append(cls(plain).requires_grad_())
            return leaves[-1]

        result = PROGRAMS[name](leaf)
        weights = torch.arange(float(result.numel())).view(result.size())
        (result * weights).sum().backward()
        gradients.append([each.grad for each in leaves])
    for got, wanted in zip(*gradients, strict=True):
        assert (got is None) == (wanted is None)
        if got is not None:
            torch.testing.assert_close(value_of(got), wanted)


@pytest.mark.parametrize(
    "call",
    [
        lambda make: torch.vander(make(torch.ones(2, 2))),
        lambda make: torch.vander(make(torch.ones(2)), -1),
        lambda make: rnn.pad_sequence([make(torch.ones(2, 2)), make(torch.ones(2, 3))]),
        lambda make: rnn.pad_packed_sequence(packed(make), total_length=2),
    ],
)
def test_sequence_that_torch_refuses_is_refused(call: Any) -> None:
    with pytest.raises((RuntimeError, ValueError)) as wanted:
        call(lambda plain: plain)
    with pytest.raises(type(wanted.value)) as got:
        call(Measured)
    assert str(got.value) == str(wanted.value)


def test_sequence_of_numbers_is_raised_to_powers_of_the_same_dtype() -> None:
    for dtype in (torch.int32, torch.bool, torch.float16):
        x = torch.tensor([1, 0, 1]).to(dtype)
        assert torch.vander(Measured(x)).dtype is torch.vander(x).dtype
