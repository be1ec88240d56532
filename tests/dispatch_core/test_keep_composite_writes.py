"""keep_composite: what views and writes of whole operators do to autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from dispatch_core import (
    DispatchMode,
    Recorder,
    keep_composite,
)

from tests.dispatch_core.keeping import Names, inputs
from tests.dispatch_core.wrapping import Wrapped

aten = torch.ops.aten


def test_in_place_operator_counts_as_a_write() -> None:
    x = torch.ones(2)
    with keep_composite(aten.square_), Names():
        before = x._version
        aten.square_(x)
    assert x._version == before + 1


@pytest.mark.parametrize("wrapped", [False, True])
def test_kept_view_is_a_view_to_autograd(wrapped: bool) -> None:
    x: Any = torch.arange(6.0).view(2, 3).clone()
    if wrapped:
        x = Wrapped(x)
    with keep_composite(aten.reshape, aten.chunk), Names() as names:
        y = aten.reshape(x, [6])
        first, _ = aten.chunk(x, 2)
        copied = aten.reshape(x.t(), [6])
    assert names.seen == ["reshape.default", "chunk.default", "t.default", "reshape.default"]
    assert y._is_view()
    assert y._base is first._base is x
    assert not copied._is_view()
    before = x._version
    y.add_(1)
    assert x._version == y._version == first._version == before + 1
    copied.add_(1)
    assert x._version == before + 1


def test_writing_through_a_kept_view_brings_the_gradient_to_what_it_views() -> None:
    def run() -> Any:
        x = torch.arange(4.0)
        w = torch.ones(4, requires_grad=True)
        y = aten.reshape(x, [2, 2])
        y.mul_(w.view(2, 2))
        x.pow(2).sum().backward()
        return w.grad

    expected = run()
    with keep_composite(aten.reshape), Names():
        assert torch.equal(run(), expected)


def test_writing_through_a_kept_view_of_what_requires_grad_changes_the_graph() -> None:
    def run() -> Any:
        x, _ = inputs(requires_grad=True)
        z = x * 1
        y = aten.reshape(z, [3, 1])
        y.mul_(y.detach().clone())
        (first,) = torch.autograd.grad(z.pow(2).sum(), x, create_graph=True)
        return z._version, y.grad_fn, first, torch.autograd.grad(first.pow(2).sum(), x)[0]

    version, node, first, second = run()
    with keep_composite(aten.reshape), Names() as names:
        kept_version, kept_node, kept_first, kept_second = run()
    assert "reshape.default" in names.seen
    assert kept_version == version
    assert type(kept_node) is type(node)
    assert torch.equal(kept_first, first)
    assert torch.equal(kept_second, second)


def test_several_kept_views_have_torchs_own_refusal() -> None:
    def refusal() -> str:
        x, _ = inputs(requires_grad=True)
        first, *_ = aten.chunk(x * 1, 3)
        with pytest.raises(RuntimeError, match="returns multiple views") as caught:
            first.add_(1)
        return str(caught.value)

    with keep_composite(aten.chunk), Names() as names:
        kept = refusal()
    assert "chunk.default" in names.seen
    assert kept == refusal()


def test_argument_that_is_given_back_is_the_argument() -> None:
    x, y = inputs(requires_grad=True)
    with keep_composite(aten.contiguous, aten.dropout, aten.broadcast_tensors), Names() as names:
        assert aten.contiguous(x) is x
        assert aten.dropout(x, 0.5, False) is x
        assert aten.broadcast_tensors([x, y.new_ones(2, 1)])[0]._base is x
    assert names.seen[:2] == ["contiguous.default", "dropout.default"]
    assert names.seen[-1] == "broadcast_tensors.default"


def test_recorder_knows_a_kept_view_again() -> None:
    x, _ = inputs(requires_grad=True)
    with keep_composite(aten.reshape), Recorder() as recorder:
        aten.reshape(x, [3, 1]).neg()
    assert [event.sources for event in recorder.events] == [(), (0,)]


def test_kept_view_of_a_wrapper_that_requires_grad_can_be_written() -> None:
    arrived: list[Any] = []

    def run(x: Any) -> Any:
        z = x * 1
        y = aten.atleast_3d(aten.reshape(z, [3, 1]))
        arrived[:] = Wrapped.arrived  # a write makes torch run the view once more
        y.mul_(2)
        (z * z).sum().backward()
        return y

    plain, _ = inputs(requires_grad=True)
    run(plain)
    Wrapped.arrived.clear()
    x = Wrapped(plain.detach(), requires_grad=True)
    with keep_composite(aten.reshape, aten.atleast_3d):
        y = run(x)
    assert arrived == [aten.mul.Tensor, aten.reshape.default, aten.atleast_3d.default]
    assert type(y) is Wrapped
    assert torch.equal(Wrapped.unwrap(x.grad), plain.grad)  # type: ignore[arg-type]


def test_handler_that_answers_a_view_operator_with_a_copy_has_its_answer_kept() -> None:
    class Copies(DispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **kwargs)
            return result + 1 if func is aten.reshape.default else result

    x, _ = inputs(requires_grad=True)
    with keep_composite(aten.reshape), Copies():
        y = aten.reshape(x, [3, 1])
    assert torch.equal(y.view(3), x + 1)
    assert not y._is_view()
    y.mul_(2).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2, 2]


# ── writes ────────────────────────────────────────────────────────────────────────────────────────


def view_made_without_grad(x: Any) -> Any:
    with torch.no_grad():
        return (x * 1)[:1]


REFUSED: dict[str, Callable[[Any], Any]] = {
    "leaf": lambda x: x,
    "view of a leaf": lambda x: x[:1],
    "one of several views": lambda x: (x * 1).chunk(3)[0],
    "view made without grad": view_made_without_grad,
}


@pytest.mark.parametrize("name", REFUSED)
def test_write_that_torch_refuses_is_refused_before_it_happens(name: str) -> None:
    def refusal() -> tuple[str, list[float]]:
        x, _ = inputs(requires_grad=True)
        target = REFUSED[name](x)
        values = target.tolist()
        try:
            aten.square_(target)
        except RuntimeError as error:
            assert target.tolist() == values
            return str(error), values
        return "", target.tolist()

    expected = refusal()
    with keep_composite(aten.square_), Names():
        assert refusal() == expected


def test_gradient_of_a_write_whose_other_argument_shares_its_memory() -> None:
    def run() -> torch.Tensor:
        x = torch.tensor([2.0, 3.0], requires_grad=True)
        z = x * 1
        aten.multiply_.Tensor(z, z.view(2))  # reads what it writes
        return torch.autograd.grad(z.sum(), x)[0]

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        run()  # torch itself has lost what the gradient needs
    with keep_composite(aten.multiply_), Names():
        assert run().tolist() == [4, 6]


def test_saved_argument_that_changes_later_is_an_error() -> None:
    x, y = inputs(requires_grad=True)
    z = x * 1
    with keep_composite(aten.kl_div), Names():
        result = aten.kl_div(z, y)
    z.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()


def test_out_with_gradients_is_refused_as_by_torch() -> None:
    x, y = inputs(requires_grad=True)
    with (
        keep_composite(aten.multiply),
        Names(),
        pytest.raises(RuntimeError, match="don't support automatic differentiation"),
    ):
        aten.multiply.out(x, y, out=torch.empty(3))


def test_operator_that_turns_its_argument_around_is_a_view_as_ever() -> None:
    outcomes = []
    for kept in ([], ["aten::swapaxes_"]):
        x = torch.arange(6.0).view(2, 3).requires_grad_()
        turned = x * 2
        with keep_composite(*kept):
            assert aten.swapaxes_(turned, 0, 1) is turned
        (turned * torch.arange(6.0).view(3, 2)).sum().backward()
        outcomes.append((turned.shape, turned.stride(), turned._version, x.grad))
    assert outcomes[0][:3] == outcomes[1][:3]
    torch.testing.assert_close(outcomes[0][3], outcomes[1][3])
