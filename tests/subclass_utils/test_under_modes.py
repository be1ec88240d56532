"""Wrappers under dispatch modes, and in the python mode of a class."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from dispatch_core import Recorder, enable_python_mode
from subclass_utils import LoggingTensor

from tests.subclass_utils.wrappers import Measured, Requantised, Unit, metre

WITH_FACTORIES: dict[str, Any] = {
    "where": lambda x: torch.where(x > 0, x, 2.0),
    "batch_norm": lambda x: torch.nn.functional.batch_norm(x, None, None, training=True),
    "cosine_similarity": lambda x: torch.cosine_similarity(x, x + 1),
    "quantile": lambda x: torch.quantile(x, 0.5),
    "matrix_rank": lambda x: torch.linalg.matrix_rank(x),
    "unsafe_split": lambda x: torch.unsafe_split(x, 2)[0],
}


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("name", WITH_FACTORIES)
def test_composite_with_a_factory_runs_under_mode_and_inference(name: str, inside: bool) -> None:
    plain = torch.arange(12.0).view(3, 4) - 5
    x = Measured(plain)
    with torch.inference_mode(), Recorder():
        y = WITH_FACTORIES[name](Measured(plain) if inside else x)
    assert type(y) is Measured
    assert torch.equal(y.elem, WITH_FACTORIES[name](plain))


@pytest.mark.parametrize("context", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_matrix_rank_under_a_mode_is_of_the_class(context: Any) -> None:
    with context(), Recorder():
        rank: Any = torch.linalg.matrix_rank(metre(2, 3))
        nested: Any = torch.linalg.matrix_rank(Measured(LoggingTensor(torch.eye(3))))
    assert (type(rank), rank.unit, rank.elem.item()) == (Measured, Unit.METRE, 1)
    assert (type(nested), type(nested.elem), nested.elem.elem.item()) == (
        Measured,
        LoggingTensor,
        3,
    )


@pytest.mark.parametrize("context", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[0],
        lambda x: x.t()[1:],
        lambda x: x.view(-1),
        lambda x: x.unbind(1)[0].add_(1),
    ],
)
def test_view_of_a_wrapper_around_one_that_goes_by_its_plain_value(view: Any, context: Any) -> None:
    plain = torch.arange(6.0).view(2, 3)
    x: Any = Measured(Requantised.from_plain(plain))
    with context(), Recorder():
        got = view(x)
    assert type(got) is Measured
    inner: Any = got.elem
    assert torch.allclose(inner.to_plain(), view(plain), atol=0.01)
    assert torch.allclose(x.elem.to_plain(), plain, atol=0.01)


@pytest.mark.parametrize("mode", [Recorder, lambda: enable_python_mode(Measured)])
def test_foreach_counts_versions_under_a_mode(mode: Any) -> None:
    x, y, plain = metre(1), metre(1), torch.ones(1)
    with mode():
        torch._foreach_add_([x, y, plain], 1)
        torch._foreach_mul_([x, x], 2)
    assert (x._version, x.elem._version) == (3, 3)
    assert (y._version, y.elem._version, plain._version) == (1, 1, 1)


def test_conjugated_parts_are_right_under_a_mode() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(2, 4, 3, dtype=torch.complex64), torch.randn(2, 4, 3, dtype=torch.complex64)
    with Recorder():
        y: Any = torch.linalg.pinv(Measured(a) @ Measured(b).mH)
        z: Any = torch.addmm(Measured(a[0]).conj(), Measured(b[0]), Measured(b[0, :3]).mH)
    assert torch.allclose(y.elem, torch.linalg.pinv(a @ b.mH), atol=1e-4)
    assert torch.allclose(z.elem, torch.addmm(a[0].conj(), b[0], b[0, :3].mH), atol=1e-4)


IN_PYTHON_MODE: dict[str, Any] = {
    "factory": lambda p, w: torch.ones(2, 3) + p,
    "plain": lambda p, w: p + p,
    "wrapper": lambda p, w: w * 2 + p,
    "view": lambda p, w: p.t()[1:],
    "in place": lambda p, w: p.clone().add_(w),
    "t_": lambda p, w: p.clone().t_(),
    "resize_": lambda p, w: p.clone().resize_(2),
    "set_": lambda p, w: p.clone().set_(torch.ones(3)),
    "out": lambda p, w: torch.add(p, 1, out=torch.empty(0)),
    "cat": lambda p, w: torch.cat([p, w]),
    "split": lambda p, w: torch.split(p, 1)[1],
    "max": lambda p, w: p.max(1)[1],
    "where": lambda p, w: torch.where(p > 1, p, 2.0),
    "index": lambda p, w: p[p > 2],
    "linear": lambda p, w: torch.nn.functional.linear(p, torch.ones(4, 3), torch.ones(4)),
    "batch_norm": lambda p, w: torch.nn.functional.batch_norm(p, None, None, training=True),
    "quantile": lambda p, w: p.quantile(0.5),
    "conj": lambda p, w: torch.complex(p, p).conj().imag,
    "foreach": lambda p, w: torch._foreach_add([p, p], 1)[1],
    "foreach, mixed": lambda p, w: torch._foreach_add([p, w], 1)[1],
    "Parameter": lambda p, w: torch.nn.Parameter(torch.ones(2)),
    "tensor": lambda p, w: torch.tensor([1.0, 2.0]),
}


@pytest.mark.parametrize("context", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", IN_PYTHON_MODE)
def test_python_mode_of_a_class_gives_wrappers(name: str, context: Any) -> None:
    p = torch.arange(6.0).view(2, 3)
    with context():
        want = IN_PYTHON_MODE[name](p, p)
        w = Measured(p, Unit.METRE)
        with enable_python_mode(Measured):
            got = IN_PYTHON_MODE[name](p, w)
    assert type(got) is Measured
    assert torch.equal(got.elem, want)
    assert (got.stride(), got.storage_offset()) == (want.stride(), want.storage_offset())
    assert got.requires_grad == want.requires_grad
