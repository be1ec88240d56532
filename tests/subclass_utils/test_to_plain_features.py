"""Classes that go by their plain value under the features of torch, as the README's table says."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from subclass_utils import WrapperTensor
from torch import nn
from torch.autograd import forward_ad
from torch.nn.parameter import Parameter

from tests.subclass_utils.wrappers import Requantised, RequantisedInParts, ScaledOnPlain

CLASSES = [Requantised, RequantisedInParts, ScaledOnPlain]


def value_of(x: Any) -> torch.Tensor:
    plain: torch.Tensor = x.to_plain() if isinstance(x, WrapperTensor) else x
    return plain.detach()


def leaf(x: Any) -> Any:
    return x.detach().requires_grad_()


def gradient(x: Any, function: Callable[[Any], Any]) -> Any:
    x = leaf(x)
    return torch.autograd.grad(function(x), x)[0]


def under_autocast(x: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = F.linear(torch.ones(2, 4), x)
    assert y.dtype is torch.bfloat16
    return y.float()


def checkpointed(x: Any) -> Any:
    x = leaf(x)
    torch.utils.checkpoint.checkpoint(lambda a: (a * a).sum(), x, use_reentrant=False).backward()
    return x.grad


def hooked(x: Any) -> Any:
    x = leaf(x)
    x.register_hook(lambda gradient: gradient * 2)
    (x * 3).sum().backward()
    return x.grad


def tangent(x: Any) -> Any:
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, value_of(x) * 2)
        return forward_ad.unpack_dual(F.linear(dual, torch.ones(2, 4))).tangent


def second(x: Any) -> Any:
    x = leaf(x)
    (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    return torch.autograd.grad(first.sum(), x)[0]


def called(x: Any) -> Any:
    module, bias = nn.Linear(4, 3), torch.ones(3)
    return torch.func.functional_call(module, {"weight": x, "bias": bias}, (torch.ones(2, 4),))


class Cube(torch.autograd.Function):
    """A function with a backward of its own."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (x,) = ctx.saved_tensors
        return gradient * 3 * x * x


def cubed(x: Any) -> Any:
    apply: Any = Cube.apply
    return apply(x).sum()


FEATURES: dict[str, Callable[[Any], Any]] = {
    "autograd.Function": lambda x: gradient(x, cubed),
    "autocast": under_autocast,
    "checkpoint": checkpointed,
    "hook": hooked,
    "second order": second,
    "forward AD": tangent,
    "gradient through views": lambda x: gradient(x, lambda a: (a[0] * a.t()[:, 1]).sum()),
    "gradient through iteration": lambda x: gradient(x, lambda a: sum(r.sum() * 2 for r in a)),
    "func.grad": torch.func.grad(lambda a: (a * a).sum()),
    "func.grad of a view": torch.func.grad(lambda a: a[0].sin().sum()),
    "func.vmap": torch.func.vmap(lambda a: a * 2),
    "func.vmap, other dim": torch.func.vmap(lambda a: a.sin(), in_dims=1),
    "func.vmap of a view": torch.func.vmap(lambda a: a[1:] * 2),
    "func.jvp": lambda x: torch.func.jvp(lambda a: a * a, (x,), (value_of(x),))[1],
    "func.vjp": lambda x: torch.func.vjp(lambda a: a * a, x)[1](torch.ones(3, 4))[0],
    "func.jacrev": torch.func.jacrev(lambda a: (a * a).sum(1)),
    "func.hessian": torch.func.hessian(lambda a: (a * a * a).sum()),
    "func.functional_call": called,
}


@pytest.mark.slow  # torch imports on first use what forward AD and torch.func need
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # its own call
@pytest.mark.parametrize("name", FEATURES)
@pytest.mark.parametrize("cls", CLASSES)
def test_feature_gives_what_the_plain_value_gives(cls: Any, name: str) -> None:
    plain = (torch.arange(12.0).view(3, 4) - 5) / 2
    x = cls.from_plain(plain)
    torch.manual_seed(0)
    want = FEATURES[name](x.to_plain().clone())
    torch.manual_seed(0)
    got = FEATURES[name](x)
    assert torch.allclose(value_of(got), want.detach(), atol=0.01)
    assert torch.allclose(x.to_plain(), plain, atol=0.01)


# ── modules ─────────────────────────────────────────────────────────────────────────────────────


def layer(cls: Any) -> Any:
    torch.manual_seed(0)
    module = nn.Linear(4, 3)
    module.weight = Parameter(cls.from_plain((module.weight.detach() * 8).round() / 2))
    return module


@pytest.mark.parametrize("cls", CLASSES)
def test_module_moves_and_copies(cls: Any) -> None:
    module = layer(cls)
    before = value_of(module.weight).clone()
    for dtype in (torch.float64, torch.float16, torch.float32):
        module.to(dtype)
        assert type(module.weight) is cls
        assert isinstance(module.weight, Parameter)
        assert module.weight.dtype is value_of(module.weight).dtype is dtype
    assert torch.allclose(value_of(module.weight), before, atol=0.01)
    other = copy.deepcopy(module)
    with torch.no_grad():
        other.weight[0] = 3.0
    assert value_of(other.weight)[0].tolist() == pytest.approx([3.0] * 4)
    assert torch.allclose(value_of(module.weight), before, atol=0.01)


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("cls", CLASSES)
def test_state_dict_is_loaded(cls: Any, assign: bool) -> None:
    source, target = layer(cls), layer(cls)
    nn.init.zeros_(target.weight)
    assert not value_of(target.weight).any()
    target.load_state_dict(source.state_dict(), assign=assign)
    assert type(target.weight) is cls
    assert torch.allclose(value_of(target.weight), value_of(source.weight), atol=0.01)


@pytest.mark.parametrize("cls", CLASSES)
def test_plain_and_wrapped_states_load_into_each_other(cls: Any) -> None:
    wrapped, plain = layer(cls), nn.Linear(4, 3)
    plain.load_state_dict(wrapped.state_dict())
    assert type(plain.weight) is Parameter
    assert torch.allclose(plain.weight, value_of(wrapped.weight))
    with torch.no_grad():
        plain.weight.mul_(2)
    wrapped.load_state_dict(plain.state_dict())
    assert torch.allclose(value_of(wrapped.weight), plain.weight, atol=0.01)


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("cls", [Requantised, RequantisedInParts])
def test_optimizer_steps_are_those_of_plain_parameters(cls: Any, kind: Any, foreach: bool) -> None:
    wrapped, plain = layer(cls), nn.Linear(4, 3)
    plain.load_state_dict(wrapped.state_dict())
    x = torch.ones(2, 4)
    for module in (wrapped, plain):
        optimizer = kind(module.parameters(), lr=0.1, foreach=foreach)
        for _ in range(3):
            optimizer.zero_grad()
            module(x).square().sum().backward()
            nn.utils.clip_grad_norm_(module.parameters(), 10.0)
            optimizer.step()
    assert type(wrapped.weight) is cls
    assert torch.allclose(value_of(wrapped.weight), plain.weight, atol=0.05)


def test_swap_tensors_swaps_everything() -> None:
    a, b = Requantised.from_plain(torch.ones(2)), Requantised.from_plain(torch.zeros(3))
    torch.utils.swap_tensors(a, b)
    assert (a.shape, b.shape) == ((3,), (2,))
    assert a.to_plain().tolist() == [0.0, 0.0, 0.0]
