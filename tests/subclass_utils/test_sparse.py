"""Sparse tensors inside of wrappers, and those made of wrapped indices and values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from subclass_utils import WrapperTensor
from torch import nn

from tests.subclass_utils.wrappers import Measured, Strict

pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")

INDICES, VALUES = torch.tensor([[0, 2], [1, 1]]), torch.tensor([3.0, 4.0])


class WithRest(WrapperTensor):
    """Two addends of any dtype."""

    inner_tensors = ("one", "rest")
    without_handler = "to_plain"
    one: torch.Tensor
    rest: torch.Tensor

    @staticmethod
    def __new__(cls: Any, one: torch.Tensor, rest: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, one.size(), dtype=one.dtype)

    def to_plain(self) -> torch.Tensor:
        return self.one + self.rest

    @classmethod
    def from_plain(cls, plain: torch.Tensor, like: Any = None) -> Any:
        return cls(plain.clone(), torch.zeros_like(plain))


def nested(x: torch.Tensor) -> Measured:
    return Measured(Strict(x))


def plain_of(value: Any) -> Any:
    while isinstance(value, WrapperTensor):
        value = value.to_plain()
    return value


WRAPS = [Measured, Strict, nested, WithRest.from_plain]


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("wrap", WRAPS)
def test_size_follows_from_wrapped_indices(wrap: Any, inference: bool) -> None:
    with torch.inference_mode(inference):
        made = torch.sparse_coo_tensor(wrap(INDICES), wrap(VALUES))
        want = torch.sparse_coo_tensor(INDICES, VALUES)
    assert made.size() == want.size()
    assert torch.equal(plain_of(made).to_dense(), want.to_dense())
    made = torch.sparse_coo_tensor(wrap(INDICES[:, :0]), wrap(VALUES[:0]))
    assert made.size() == (0, 0)


@pytest.mark.parametrize("wrap", WRAPS)
def test_wrapped_indices_that_are_wrong_are_refused(wrap: Any) -> None:
    negative = wrap(torch.tensor([[0, -1]]))
    with pytest.raises(RuntimeError, match="found negative index -1"):
        torch.sparse_coo_tensor(negative, wrap(VALUES))
    with pytest.raises(RuntimeError, match="indices must be sparse_dim x nnz"):
        torch.sparse_coo_tensor(wrap(INDICES[0]), wrap(VALUES))


@pytest.mark.parametrize("wrap", WRAPS)
def test_invariants_of_wrapped_indices_are_checked(wrap: Any) -> None:
    def make(size: tuple[int, ...]) -> Any:
        return torch.sparse_coo_tensor(
            wrap(INDICES), wrap(VALUES), size, check_invariants=True, dtype=torch.float64
        )

    assert plain_of(make((3, 2))).to_dense().sum() == 7
    with pytest.raises(RuntimeError, match="size is inconsistent with indices"):
        make((2, 2))


def test_values_get_gradients() -> None:
    values = Measured(VALUES, requires_grad=True)
    made: Any = torch.sparse_coo_tensor(Measured(INDICES), values)
    (made.to_dense() * 2).sum().backward()
    assert isinstance(values.grad, Measured)
    assert values.grad.elem.tolist() == [2.0, 2.0]


def test_old_way_to_make_a_sparse_one_gives_the_class() -> None:
    like: Any = Measured(torch.eye(2).to_sparse())
    for part in (Measured, lambda x: x):
        made = like.new(part(INDICES), part(VALUES), (3, 2))
        assert type(made) is Measured
        assert made.elem.to_dense()[2, 1] == 4
    assert like.new().layout is torch.sparse_coo
    assert Measured(VALUES).new(2, 3).size() == (2, 3)


@pytest.mark.slow
def test_sparse_adam_steps_as_for_plain_parameters() -> None:
    weights = []
    for wrap in (Measured, lambda x: x):
        module = nn.Embedding(4, 2, sparse=True)
        module.weight = nn.Parameter(wrap(torch.arange(8.0).view(4, 2)))
        optimizer = torch.optim.SparseAdam(module.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            module(wrap(torch.tensor([1, 3]))).pow(2).sum().backward()
            optimizer.step()
        weights.append(plain_of(module.weight.detach()))
    assert torch.equal(*weights)
