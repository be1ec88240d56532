"""keep_composite: the gradients of whole operators are those of their parts."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from dispatch_core import (
    DispatchMode,
    keep_composite,
)

from tests.dispatch_core.keeping import Names, inputs
from tests.dispatch_core.wrapping import Wrapped

aten = torch.ops.aten


CALLS: dict[str, tuple[Any, Callable[..., Any]]] = {
    "kl_div": (aten.kl_div, lambda x, y: aten.kl_div(x, y, 2)),
    "kl_div log_target": (aten.kl_div, lambda x, y: aten.kl_div(x, y, log_target=True)),
    "same tensor twice": (aten.kl_div, lambda x, y: aten.kl_div(x, x, log_target=True) + y.sum()),
    "one depends on the other": (aten.kl_div, lambda x, y: aten.kl_div(x, x.exp() * y)),
    "linear": (aten.linear, lambda x, y: aten.linear(x.view(1, 3), y.expand(2, 3), y[:2]).sum()),
    "matmul": (aten.matmul, lambda x, y: aten.matmul(x, y) ** 2),
    "list in": (aten.vstack, lambda x, y: (aten.vstack([x, y, x]) ** 3).sum()),
    "list out": (aten.chunk, lambda x, y: (aten.chunk(x * y, 3)[1] ** 3).sum()),
    "several results": (aten.var_mean, lambda x, y: sum(aten.var_mean.dim(x * y, [0])) ** 3),
    "integer result too": (
        aten.adaptive_max_pool1d,
        lambda x, y: (aten.adaptive_max_pool1d((x * y).view(1, 3), [1])[0] ** 3).sum(),
    ),
    "view": (aten.reshape, lambda x, y: (aten.reshape(x, [3, 1]) * y).pow(3).sum()),
    "input itself": (aten.contiguous, lambda x, y: (aten.contiguous(x) * y).pow(3).sum()),
    "in place": (aten.multiply_, lambda x, y: aten.multiply_.Tensor(x * 1, y).pow(2).sum()),
    "in place on what is used later": (
        aten.square_,
        lambda x, y: aten.square_(x * y).pow(2).sum(),
    ),
    "keyword tensor": (aten.clip, lambda x, y: (aten.clip.Tensor(x, max=-y) ** 3).sum()),
    "two kept, one in the other": (
        aten.cosine_similarity,
        lambda x, y: aten.cosine_similarity(x.view(1, 3), y.view(1, 3)).sum(),
    ),
}


def gradients(run: Callable[..., Any], x: Any, y: Any) -> list[torch.Tensor | None]:
    """Give the result, the gradients, and those of a function of the gradients."""
    value = run(x, y)
    first = torch.autograd.grad(value, (x, y), create_graph=True, allow_unused=True)
    total = sum((g**3).sum() for g in first if g is not None)
    second: Any = (None, None)
    if isinstance(total, torch.Tensor) and total.requires_grad:
        second = torch.autograd.grad(total, (x, y), allow_unused=True)
    return [value, *first, *second]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("kind", ["mode", "wrapper"])
def test_gradients_of_first_and_second_order_are_those_of_the_parts(name: str, kind: str) -> None:
    kept, run = CALLS[name]
    expected = gradients(run, *inputs(requires_grad=True))
    plain = inputs()
    with keep_composite(kept, aten.norm_except_dim):
        if kind == "mode":
            for tensor in plain:
                tensor.requires_grad_()
            with Names() as names:
                found = gradients(run, *plain)
            seen = names.seen
        else:
            Wrapped.arrived.clear()
            wrapped = [Wrapped(tensor, requires_grad=True) for tensor in plain]
            found = gradients(run, *wrapped)
            found = [Wrapped.unwrap(value) for value in found]
            seen = [str(op).removeprefix("aten.") for op in Wrapped.arrived]
    base = kept.__name__
    assert any(op.startswith(base + ".") for op in seen)
    for want, got in zip(expected, found, strict=True):
        torch.testing.assert_close(got, want)


def test_kept_operator_is_one_node_of_the_graph() -> None:
    x, y = inputs(requires_grad=True)
    with keep_composite(aten.kl_div), Names():
        result = aten.kl_div(x, y)
    assert result.grad_fn is not None
    leaves = [function.name() for function, _ in result.grad_fn.next_functions if function]
    assert leaves == ["torch::autograd::AccumulateGrad"] * 2


def test_backward_may_run_after_it_is_closed() -> None:
    x, y = inputs(requires_grad=True)
    with keep_composite(aten.kl_div), Names():
        result = aten.kl_div(x, y)
    result.backward()
    got = x.grad
    x.grad = None
    aten.kl_div(x, y).backward()
    torch.testing.assert_close(got, x.grad)


def test_no_graph_without_need() -> None:
    x, y = inputs(requires_grad=True)
    with keep_composite(aten.kl_div), Names(), torch.no_grad():
        assert aten.kl_div(x, y).grad_fn is None


def test_random_operator_draws_the_same_in_the_backward() -> None:
    x = torch.ones(100, requires_grad=True)
    torch.manual_seed(3)
    with keep_composite(aten.dropout), Names() as names:
        y = aten.dropout(x, 0.5, True)
    torch.rand(5)
    after = torch.get_rng_state()
    y.sum().backward()
    assert names.seen == ["dropout.default"]
    assert torch.equal(torch.get_rng_state(), after)
    torch.testing.assert_close(x.grad, y.detach())


@pytest.mark.slow
def test_running_statistics_are_updated_once() -> None:
    def run() -> tuple[torch.Tensor, Any]:
        norm = torch.nn.BatchNorm1d(3)
        x = torch.arange(12.0).view(4, 3).requires_grad_()
        (norm(x) ** 3).sum().backward()
        return norm.running_mean, x.grad  # type: ignore[return-value]

    expected = run()
    with keep_composite(aten.batch_norm), Names() as names:
        found = run()
    assert "batch_norm.default" in names.seen
    torch.testing.assert_close(found, expected)


def test_handler_finds_the_grad_mode_of_the_caller() -> None:
    modes: list[bool] = []

    class Looks(DispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func.overloadpacket in kept:
                modes.append(torch.is_grad_enabled())
            return func(*args, **kwargs)

    kept = (aten.kl_div, aten.square_, aten.reshape)
    x, y = inputs(requires_grad=True)
    z = x * 1
    with keep_composite(*kept), Looks():
        aten.kl_div(x, y)
        aten.square_(z)
        aten.reshape(x, [3, 1])
        with torch.no_grad():
            aten.kl_div(x, y)
    assert modes == [True, True, True, False]  # as for operators that are no composites


# ── other ways to differentiate and cast ──────────────────────────────────────────────────────────


def test_number_for_a_tensor_arrives_as_a_number() -> None:
    x, _ = inputs()
    expected = torch.subtract(x, 1.5)
    with keep_composite(aten.subtract), Names() as names:
        found = torch.subtract(x, 1.5)
    assert torch.equal(found, expected)
    assert names.seen == ["subtract.Tensor"]
    assert names.calls[0][1][1] == 1.5
    others: list[torch.Tensor] = []
    with keep_composite(aten.subtract):

        def work() -> None:
            with Names():
                others.append(torch.subtract(x, 1.5))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert torch.equal(others[0], expected)


@pytest.mark.slow
def test_transforms_get_the_parts() -> None:
    x, y = inputs()
    expected = torch.func.grad(aten.kl_div)(x, y)
    with keep_composite(aten.kl_div), Names():
        torch.testing.assert_close(torch.func.grad(aten.kl_div)(x, y), expected)
        batched = torch.func.vmap(lambda a: aten.kl_div(a, y))(torch.stack([x, x]))
    torch.testing.assert_close(batched[0], aten.kl_div(x, y))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_forward_gradients_are_those_of_the_parts() -> None:
    x, y = inputs()

    def tangent() -> Any:
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, torch.ones(3))
            result = aten.kl_div(dual, y)
            found = torch.autograd.forward_ad.unpack_dual(result).tangent
            assert found is not None
            return found.clone()

    expected = tangent()
    with keep_composite(aten.kl_div), Names():
        torch.testing.assert_close(tangent(), expected)


def test_autocast_casts_as_without() -> None:
    x, w = torch.ones(2, 3), torch.ones(4, 3)
    with (
        keep_composite(aten.linear),
        Names() as names,
        torch.autocast("cpu", dtype=torch.bfloat16),
    ):
        result = torch.nn.functional.linear(x, w)
    assert result.dtype is torch.bfloat16
    assert "linear.default" in names.seen


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_autocast_reaches_what_a_handler_of_the_whole_calls(mode: Any) -> None:
    x = torch.arange(9.0).view(3, 3).requires_grad_()

    def run() -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16), mode():
            return torch.einsum("ij,jk->ik", x, x / 7)

    want = run()
    with keep_composite(aten.einsum), Names() as names:
        got = run()
    assert "einsum.default" in names.seen
    assert got.dtype is torch.bfloat16
    assert torch.equal(got, want)
    if want.requires_grad:
        grads = [torch.autograd.grad(y.float().sum(), x)[0] for y in (want, got)]
        assert torch.equal(*grads)


# ── what is kept for the backward ─────────────────────────────────────────────────────────────────


def _kept_linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    with keep_composite(aten.linear), Names():
        return torch.nn.functional.linear(x, weight)


@pytest.mark.parametrize("of", ["x", "weight"])
def test_only_what_the_gradient_needs_must_stay_as_it_is(of: str) -> None:
    tensors = {"x": torch.randn(2, 3), "weight": torch.randn(4, 3)}
    for written in tensors:
        leaf = tensors[of].clone().requires_grad_()
        call = {name: leaf * 1 if name == of else tensors[name].clone() for name in tensors}
        y = _kept_linear(**call)
        direct = torch.nn.functional.linear(**call).sum()
        want = torch.autograd.grad(direct, leaf, retain_graph=True)
        with torch.no_grad():
            call[written].add_(1)
        if written == of:
            assert torch.equal(torch.autograd.grad(y.sum(), leaf)[0], want[0])
        else:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                y.sum().backward()


@pytest.mark.slow
def test_what_the_gradient_does_not_need_is_not_kept() -> None:
    weight = torch.randn(4, 3)
    for trained in (False, True):
        x = torch.randn(2, 3).requires_grad_() * 1
        alive = weakref.ref(x)
        y = _kept_linear(x, weight.requires_grad_(trained))
        del x
        gc.collect()
        assert (alive() is not None) is trained
        y.sum().backward()


def test_operator_that_cannot_run_without_data_keeps_all() -> None:
    library = torch.library.Library("tests_keep_all", "DEF")
    library.define("shifted(Tensor x) -> Tensor")
    library.impl("shifted", lambda x: x * 1 + x.min().item(), "CompositeImplicitAutograd")
    leaf = torch.randn(3, requires_grad=True)
    x = leaf * 1
    with keep_composite(torch.ops.tests_keep_all.shifted), Names():
        y = torch.ops.tests_keep_all.shifted(x)
    (grad,) = torch.autograd.grad(y.sum(), leaf, retain_graph=True)
    assert torch.equal(grad, torch.ones(3))
    with torch.no_grad():
        x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    library._destroy()


def test_shift_of_a_norm_may_be_written_and_its_scale_may_not() -> None:
    for written, harmless in ((0, False), (1, True)):
        x = torch.randn(4, 4).requires_grad_() * 1
        scale, shift = torch.ones(4), torch.ones(4)
        with keep_composite(aten.group_norm), Names():
            y = torch.nn.functional.group_norm(x, 2, scale, shift)
        (scale, shift)[written].add_(1)
        if harmless:
            y.sum().backward()
        else:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                y.sum().backward()


def test_write_that_needs_no_values_keeps_none() -> None:
    saved: list[torch.Size] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor.size())
        return tensor

    leaf = torch.ones(8, requires_grad=True)
    x = leaf * 1
    with (
        keep_composite(aten.multiply_),
        Names(),
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
    ):
        x.multiply_(2)
    (grad,) = torch.autograd.grad(x.sum(), leaf)
    assert torch.equal(grad, torch.full((8,), 2.0))
    assert saved == []


def test_looking_for_what_is_needed_draws_no_numbers() -> None:
    library = torch.library.Library("tests_draws", "DEF")
    library.define("noisy(Tensor x) -> Tensor")
    library.impl("noisy", lambda x: x * torch.rand(4), "CompositeImplicitAutograd")
    noisy = torch.ops.tests_draws.noisy

    def draw(*kept: Any) -> float:
        torch.manual_seed(0)
        with keep_composite(*kept), Names():
            noisy(torch.ones(4, requires_grad=True))
        return torch.rand(1).item()

    assert draw() == draw(noisy) == draw(noisy)
    library._destroy()


def test_handler_that_gives_what_it_gave_before_has_the_gradient_of_each_call() -> None:
    class Caches(DispatchMode):
        """Gives the same tensor for every Kronecker product."""

        given: Any = None

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func is not aten.kron.default:
                return func(*args, **(kwargs or {}))
            if self.given is None:
                self.given = torch.ones(4, 4)
            return self.given

    a, b = (torch.ones(2, 2, requires_grad=True) for _ in range(2))
    with keep_composite(aten.kron), Caches():
        for each in (a, b):
            torch.kron(each, each).sum().backward()
    assert a.grad is not None
    assert b.grad is not None
    assert torch.equal(a.grad, b.grad)
