"""torch's own check of gradients, by finite differences, over wrappers: first and second order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch.autograd.gradcheck import GradcheckError

from tests.subclass_utils.wrappers import Measured, Unit

pytestmark = [
    pytest.mark.slow,
    # torch compiles its own decompositions with torch.jit.script, which warns.
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated"),
]


def real(*size: int) -> torch.Tensor:
    return torch.randn(*size, dtype=torch.float64)


def positive(*size: int) -> torch.Tensor:
    return real(*size).abs() + 1


def complex_(*size: int) -> torch.Tensor:
    return torch.randn(*size, dtype=torch.complex128)


def regular(n: int) -> torch.Tensor:
    return real(n, n) / 4 + torch.eye(n, dtype=torch.float64)


def checkpointed(x: Any) -> Any:
    return torch.utils.checkpoint.checkpoint(lambda y: y.sin() * y, x, use_reentrant=False)


def view_written(x: Any) -> Any:
    y = x.clone()
    y[0].mul_(x[1])
    return y


INDEX = torch.tensor([0, 0, 1])
FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[[], list[torch.Tensor]]]] = {
    "mul": (lambda a, b: a * b, lambda: [real(2, 3), real(3)]),
    "div": (lambda a, b: a / b, lambda: [real(2, 3), positive(2, 3)]),
    "pow": (lambda a, b: a.pow(b), lambda: [positive(2), real(2)]),
    "exp": (torch.exp, lambda: [real(3)]),
    "lerp": (torch.lerp, lambda: [real(3), real(3), real(3)]),
    "where": (lambda a, b: torch.where(a > b, a, b * 2), lambda: [real(3), real(3)]),
    "mm": (torch.mm, lambda: [real(2, 3), real(3, 2)]),
    "linear": (F.linear, lambda: [real(2, 3), real(4, 3), real(4)]),
    "bilinear": (F.bilinear, lambda: [real(2, 2), real(2, 2), real(2, 2, 2)]),
    "einsum": (
        lambda a, b: torch.einsum("ij,kj->ik", a, b),
        lambda: [real(2, 3), real(2, 3)],
    ),
    "kron": (torch.kron, lambda: [real(2), real(2)]),
    "conv1d": (lambda x, w: F.conv1d(x, w, padding=1), lambda: [real(1, 1, 3), real(1, 1, 2)]),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), lambda: [real(1, 1, 4, 4)]),
    "interpolate": (
        lambda x: F.interpolate(x, scale_factor=2, mode="linear"),
        lambda: [real(1, 1, 3)],
    ),
    "pad": (lambda x: F.pad(x, (1, 1)), lambda: [real(1, 3)]),
    "sum": (lambda x: x.sum(0), lambda: [real(2, 3)]),
    "var": (lambda x: x.var(0), lambda: [real(3, 2)]),
    "prod": (lambda x: x.prod(0), lambda: [real(3, 2)]),
    "cumsum": (lambda x: x.cumsum(0), lambda: [real(3)]),
    "logsumexp": (lambda x: x.logsumexp(1), lambda: [real(2, 3)]),
    "max": (lambda x: x.max(1)[0], lambda: [real(2, 3)]),
    "sort": (lambda x: x.sort()[0], lambda: [real(4)]),
    "norm": (lambda x: x.norm(), lambda: [real(3)]),
    "softmax": (lambda x: x.softmax(-1), lambda: [real(2, 3)]),
    "gelu": (F.gelu, lambda: [real(3)]),
    "prelu": (F.prelu, lambda: [real(2, 2), real(2)]),
    "layer_norm": (
        lambda x, w, b: F.layer_norm(x, (3,), w, b),
        lambda: [real(2, 3), real(3), real(3)],
    ),
    "batch_norm": (
        lambda x, w: F.batch_norm(x, None, None, w, training=True),
        lambda: [real(3, 2), real(2)],
    ),
    "cross_entropy": (lambda x: F.cross_entropy(x, torch.tensor([0, 1])), lambda: [real(2, 3)]),
    "mse_loss": (F.mse_loss, lambda: [real(3), real(3)]),
    "embedding": (lambda w: F.embedding(INDEX, w), lambda: [real(3, 2)]),
    "t": (lambda x: x.t() * 2, lambda: [real(2, 3)]),
    "slice": (lambda x: x[1:, ::2].sin(), lambda: [real(3, 4)]),
    "index": (lambda x: x[INDEX], lambda: [real(3, 2)]),
    "gather": (lambda x: x.gather(0, torch.tensor([[0, 1], [1, 0]])), lambda: [real(2, 2)]),
    "scatter": (
        lambda x, s: x.scatter(0, torch.tensor([[0, 1]]), s),
        lambda: [real(2, 2), real(1, 2)],
    ),
    "expand": (lambda x: x.expand(3, 2) * x, lambda: [real(2)]),
    "unfold": (lambda x: x.unfold(0, 2, 1), lambda: [real(4)]),
    "cat": (lambda a, b: torch.cat([a, b * 2]), lambda: [real(2), real(3)]),
    "stack": (lambda a, b: torch.stack([a, b]).prod(0), lambda: [real(2), real(2)]),
    "in place": (lambda x: x.clone().mul_(2).add_(x), lambda: [real(3)]),
    "view written": (view_written, lambda: [real(2, 3)]),
    "inv": (torch.linalg.inv, lambda: [regular(2)]),
    "solve": (torch.linalg.solve, lambda: [regular(2), real(2, 1)]),
    "cholesky": (
        lambda x: torch.linalg.cholesky(x @ x.mT + torch.eye(2, dtype=torch.float64)),
        lambda: [real(2, 2)],
    ),
    "svdvals": (torch.linalg.svdvals, lambda: [real(3, 2)]),
    "logdet": (torch.logdet, lambda: [torch.eye(2, dtype=torch.float64) + 1]),
    "conj": (lambda z: (z * z.conj()).real, lambda: [complex_(3)]),
    "imag of conj": (lambda z: z.conj().imag, lambda: [complex_(3)]),
    "abs of complex": (torch.abs, lambda: [complex_(2)]),
    "rfft": (lambda x: torch.view_as_real(torch.fft.rfft(x)), lambda: [real(4)]),
    "checkpoint": (checkpointed, lambda: [real(3)]),
}


def wrapped(tensors: list[torch.Tensor]) -> list[Any]:
    return [Measured(tensor, Unit.METRE, requires_grad=True) for tensor in tensors]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_of_both_orders_are_right(name: str) -> None:
    torch.manual_seed(0)
    function, inputs = FUNCTIONS[name]
    assert torch.autograd.gradcheck(function, wrapped(inputs()))
    assert torch.autograd.gradgradcheck(function, wrapped(inputs()))


@pytest.mark.parametrize("name", ["mul", "mm", "softmax", "slice", "in place", "conj"])
def test_tangents_are_right(name: str) -> None:
    torch.manual_seed(0)
    function, inputs = FUNCTIONS[name]
    assert torch.autograd.gradcheck(function, wrapped(inputs()), check_forward_ad=True)


class Doubled(torch.autograd.Function):
    """A function whose gradient is wrong."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * 3


def test_wrong_gradient_is_found() -> None:
    with pytest.raises(GradcheckError, match="Jacobian mismatch"):
        torch.autograd.gradcheck(Doubled.apply, wrapped([real(2)]))
