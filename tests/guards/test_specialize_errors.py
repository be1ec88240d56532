"""Errors of operators in specialized functions: caught or not, before and after writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from guards import specialize
from torch import nn

TABLE = torch.ones(3, 2)


def looks_up(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.embedding(x, TABLE)


def looks_up_or_not(x: torch.Tensor) -> torch.Tensor:
    try:
        return looks_up(x)
    except IndexError:
        return torch.zeros(1)


class Forgiving:
    def __enter__(self) -> Forgiving:
        return self

    def __exit__(self, *error: object) -> bool:
        return True


def forgives(x: torch.Tensor) -> torch.Tensor:
    with Forgiving():
        return looks_up(x)
    return torch.zeros(1)


def decomposes_or_not(x: torch.Tensor) -> Any:
    try:
        return torch.linalg.cholesky(x.float())
    except RuntimeError:
        return torch.zeros(1)


FITS, FAILS = torch.tensor([[1, 0], [0, 1]]), torch.tensor([[0, -3], [-3, 7]])


@pytest.mark.parametrize(
    "function", [looks_up_or_not, forgives, decomposes_or_not], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("order", [(FITS, FAILS), (FAILS, FITS)], ids=["later", "at first"])
def test_error_that_is_caught(function: Callable[..., Any], order: Any) -> None:
    special = specialize(function)
    for x in (*order, *order):
        assert torch.equal(special(x), function(x))
    assert special.stats.hits > 0


def test_error_that_is_not_caught_comes_from_the_users_line() -> None:
    special = specialize(looks_up)
    for _ in range(2):
        special(FITS)
    with pytest.raises(IndexError) as raised:
        special(FAILS)
    assert raised.value.__context__ is None
    assert raised.traceback[-2].name == "looks_up"
    assert special.stats.hits == 2


def test_error_that_may_be_caught_after_something_was_written() -> None:
    def function(x: torch.Tensor, log: torch.Tensor) -> torch.Tensor:
        log.add_(1)
        try:
            return looks_up(x)
        except IndexError:
            return torch.zeros(1)

    special = specialize(function)
    log = torch.zeros(())
    for number, x in enumerate((FITS, FITS, FAILS), 1):
        special(x, log)
        assert log == number
    assert special.refusals[0] == "function may catch an error, after something was written"


def test_error_after_something_was_written_that_nobody_catches() -> None:
    def function(x: torch.Tensor, log: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            log.add_(1)
        return looks_up(x)

    special = specialize(function)
    log = torch.zeros(())
    for _ in range(2):
        special(FITS, log)
    with pytest.raises(IndexError):
        special(FAILS, log)
    assert log == 3
    assert torch.is_grad_enabled()
    assert special.stats.hits == 2
