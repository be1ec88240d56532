"""Settings of torch that a specialized function asks for or makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from guards import specialize
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.guards.twins import first_number

ONE = torch.ones(2)


@pytest.fixture(autouse=True)
def settings_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put back what the tests of this file change."""
    # torch's own lists of operators, once loaded, freeze the flags.
    flags: Any = torch.backends.ContextProp.__set__
    monkeypatch.setitem(flags.__globals__, "__allow_nonbracketed_mutation_flag", True)
    yield
    torch.backends.cudnn.benchmark = False
    torch.set_warn_always(False)
    torch.set_float32_matmul_precision("highest")
    torch.set_default_device(None)


def test_setting_that_code_asks_for() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        fast = torch.backends.cudnn.benchmark
        return x + (1 if torch.get_float32_matmul_precision() == "highest" else 2) + 4 * fast

    special = specialize(function)
    for precision, benchmark in (("highest", False), ("high", False), ("high", True)) * 2:
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.benchmark = benchmark
        assert first_number(special, ONE) == first_number(function, ONE)
    assert special.stats.hits == 3
    assert special.refusals == []


def test_setting_that_composites_ask_for() -> None:
    q = torch.randn(2, 4, 16, 8)
    special = specialize(lambda q: nn.functional.scaled_dot_product_attention(q, q, q))
    special(q)
    with sdpa_kernel(SDPBackend.MATH):
        assert torch.equal(special(q), special.function(q))
    assert special.stats.hits == 0


def set_benchmark() -> None:
    torch.backends.cudnn.benchmark = True


def set_always() -> None:
    torch.set_warn_always(True)


def set_device() -> None:
    torch.set_default_device("cpu")


@pytest.mark.parametrize(
    ("change", "read", "before"),
    [
        (set_benchmark, lambda: torch.backends.cudnn.benchmark, False),
        (set_always, torch.is_warn_always_enabled, False),
        (set_device, torch._C._len_torch_function_stack, 0),
    ],
)
def test_setting_that_code_makes(
    change: Callable[[], None], read: Callable[[], Any], before: Any
) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        change()
        return x + 1

    special = specialize(function)
    for _ in range(3):
        torch.backends.cudnn.benchmark = False
        torch.set_warn_always(False)
        torch.set_default_device(None)
        assert read() == before
        special(ONE)
        assert read() != before
    assert special.stats.hits == 0
