"""What an operator writes without a word in its schema reaches wrappers, too."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from dispatch_core import ops
from subclass_utils import WrapperTensor

from tests.subclass_utils.wrappers import Requantised

aten = torch.ops.aten

NORMS: dict[str, Any] = {
    "batch_norm": lambda x, mean, var, train: F.batch_norm(x, mean, var, training=train),
    "instance_norm": lambda x, mean, var, train: F.instance_norm(
        x, mean, var, use_input_stats=train
    ),
    "native_batch_norm": lambda x, mean, var, train: torch.native_batch_norm(
        x, None, None, mean, var, train, 0.1, 1e-5
    )[0],
    "out": lambda x, mean, var, train: aten.native_batch_norm.out(
        x,
        None,
        None,
        mean,
        var,
        train,
        0.1,
        1e-5,
        out=torch.empty_like(x),
        save_mean=torch.empty(3),
        save_invstd=torch.empty(3),
    )[0],
}


class Whole(WrapperTensor):
    """Transparent."""

    elem: torch.Tensor


class Handled(Requantised):
    """Has a handler for what writes."""


@Handled.table.implements(ops.aten.native_batch_norm.default)
def _norm(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: Any,
    momentum: Any,
    eps: Any,
) -> Any:
    return Handled.run_without_handler(
        aten.native_batch_norm.default,
        input,
        weight,
        bias,
        running_mean,
        running_var,
        training,
        momentum,
        eps,
    )


@pytest.mark.parametrize("cls", [Requantised, Whole, Handled])
@pytest.mark.parametrize("context", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", NORMS)
def test_statistics_of_a_norm_are_kept_in_wrappers(name: str, context: Any, cls: Any) -> None:
    norm, x = NORMS[name], torch.randn(4, 3, 5) + 5
    with context():
        plain = torch.zeros(3), torch.ones(3)
        wrapped = [cls.from_plain(each) for each in plain]
        alias = wrapped[0].detach()
        got, want = norm(x, *wrapped, True), norm(x, *plain, True)
        assert torch.allclose(got.to_plain() if isinstance(got, cls) else got, want, atol=1e-4)
        for mine, other in zip((*wrapped, alias), (*plain, plain[0]), strict=True):
            assert torch.allclose(mine.to_plain(), other, atol=0.02)
        assert plain[0].abs().max() > 0.1


@pytest.mark.parametrize("name", ["batch_norm", "native_batch_norm", "out"])
def test_statistics_stay_as_they_are_where_a_norm_does_not_train(name: str) -> None:
    mean, var = Requantised.from_plain(torch.rand(3)), Requantised.from_plain(torch.ones(3))
    inner = [getattr(mean, each) for each in mean.inner_tensors]
    values = [each.clone() for each in inner]
    NORMS[name](torch.randn(4, 3, 5), mean, var, False)
    for attribute, before, value in zip(mean.inner_tensors, inner, values, strict=True):
        assert getattr(mean, attribute) is before
        assert torch.equal(before, value)
    assert mean._version == 0


@pytest.mark.slow
def test_compiled_norm_keeps_its_statistics_in_wrappers() -> None:
    torch.compiler.reset()
    module = torch.nn.BatchNorm1d(3)
    mean = module.running_mean = Requantised.from_plain(torch.zeros(3))
    want = torch.nn.BatchNorm1d(3)
    compiled = torch.compile(module, backend="aot_eager")
    for _ in range(3):
        x = torch.randn(8, 3) + 5
        assert torch.allclose(compiled(x), want(x), atol=1e-4)
    assert want.running_mean is not None
    assert torch.allclose(mean.to_plain(), want.running_mean, atol=0.05)


def test_statistics_may_be_a_view() -> None:
    whole = Requantised.from_plain(torch.zeros(2, 3))
    F.batch_norm(torch.ones(4, 3), whole[1], torch.ones(3), training=True)
    assert torch.allclose(whole.to_plain(), torch.tensor([[0.0] * 3, [0.1] * 3]), atol=0.01)
