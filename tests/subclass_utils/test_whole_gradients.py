"""The gradients of whole composite operators: those of the parts, and what is kept for them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from subclass_utils import WrapperTensor

from tests.subclass_utils.wrappers import ScaledOnPlain

aten = torch.ops.aten


def _plain(tensor: Any) -> list[Any]:
    value = tensor.to_plain() if isinstance(tensor, WrapperTensor) else tensor
    values: list[Any] = value.detach().tolist()
    return values


class Linear(WrapperTensor):
    """Answers linear, of wrappers or of a plain input."""

    elem: torch.Tensor


@Linear.table.implements(aten.linear.default)
def _linear_of_wrappers(input: Any, weight: Any, bias: Any = None) -> Any:
    given = input.elem if isinstance(input, Linear) else input
    return Linear(F.linear(given, weight.elem))


class Frozen(ScaledOnPlain):
    """A weight that has a handler for linear."""


@Frozen.table.implements(aten.linear.default)
def _linear(input: Any, weight: Any, bias: Any = None) -> Any:
    return F.linear(input, weight.to_plain(), bias)


@pytest.mark.slow
def test_input_of_a_frozen_weight_may_be_written_and_is_not_kept() -> None:
    weight = Frozen.from_plain(torch.eye(4))
    leaf = torch.ones(2, 4, requires_grad=True)
    x = leaf * 1
    x += F.linear(x, weight)  # a residual
    (grad,) = torch.autograd.grad(x.sum(), leaf)
    assert torch.equal(grad, torch.full((2, 4), 2.0))
    x = leaf * 1
    kept = weakref.ref(x)
    y = F.linear(x, weight)
    del x
    gc.collect()
    assert kept() is None
    (grad,) = torch.autograd.grad(y.sum(), leaf)
    assert torch.equal(grad, torch.ones(2, 4))


def test_what_the_gradient_needs_must_not_be_written() -> None:
    weight = Frozen.from_plain(torch.eye(4)).requires_grad_()
    x = torch.ones(2, 4)
    y = F.linear(x, weight)
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_wrapper_that_the_gradient_does_not_need_may_be_written() -> None:
    x: Any = Linear(torch.ones(2, 4))
    weight: Any = Linear(torch.ones(3, 4), requires_grad=True)
    frozen: Any = Linear(torch.ones(3, 4))
    leaf: Any = Linear(torch.ones(2, 4), requires_grad=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        _add_after(x, weight).backward()
    _add_after(leaf * 1, frozen).backward()
    assert torch.equal(leaf.grad.elem, torch.full((2, 4), 3.0))


def _add_after(x: Any, weight: Any) -> Any:
    loss = F.linear(x, weight).sum()
    with torch.no_grad():
        x.add_(1)
    return loss


@pytest.mark.parametrize("how", ["handler", "without"])
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_autocast_is_on_in_a_whole_handler_and_for_its_gradient(how: str, mode: Any) -> None:
    class Own(WrapperTensor):
        elem: torch.Tensor

    @Own.table.implements(aten.einsum.default)
    def einsum(equation: Any, tensors: Any, *, path: Any = None) -> Any:
        if how == "without":
            return Own.run_without_handler(aten.einsum.default, equation, tensors, path=path)
        return Own(torch.einsum(equation, [tensor.elem for tensor in tensors]))

    torch.manual_seed(0)
    plain = torch.randn(3, 3, requires_grad=True)
    wrapped: Any = Own(plain.detach(), requires_grad=True)

    def call(x: Any) -> Any:
        return torch.einsum("ij,jk->ik", x, x)

    with torch.autocast("cpu", torch.bfloat16), mode():
        want, got = call(plain), call(wrapped)
    assert got.dtype is got.elem.dtype is torch.bfloat16
    assert torch.equal(got.elem, want)
    assert call(wrapped).dtype is torch.float32
    if want.requires_grad:
        want.float().sum().backward()
        got.float().sum().backward()
        assert plain.grad is not None
        assert torch.equal(wrapped.grad.elem, plain.grad)


def test_autocast_that_a_backward_runs_in_does_not_reach_the_parts() -> None:
    class Own(WrapperTensor):
        elem: torch.Tensor

    seen: list[torch.dtype] = []

    @Own.table.implements(aten.einsum.default)
    def einsum(equation: Any, tensors: Any, *, path: Any = None) -> Any:
        return Own(torch.einsum(equation, [tensor.elem for tensor in tensors]))

    @Own.table.implements(aten.bmm.default)
    def bmm(self: Any, mat2: Any) -> Any:
        seen.append(self.dtype)
        return Own(torch.bmm(self.elem, mat2.elem))

    x: Any = Own(torch.randn(3, 3), requires_grad=True)
    y = torch.einsum("ij,jk->ik", x, x).sum()
    with torch.autocast("cpu", torch.bfloat16):
        y.backward()
    assert seen[0] is torch.float32


def test_handler_that_gives_what_it_gave_before_has_the_gradient_of_each_call() -> None:
    class Cached(WrapperTensor):
        elem: torch.Tensor

    constant = torch.ones(3, 3)

    @Cached.table.implements(aten.einsum.default)
    def einsum(equation: Any, tensors: Any, *, path: Any = None) -> Any:
        return constant

    given: list[Any] = [Cached(torch.ones(3, 3), requires_grad=True) for _ in range(2)]
    for each in (*given, given[0]):
        torch.einsum("ij,jk->ik", each, each).sum().backward()
    assert [each.grad.elem[0, 0].item() for each in given] == [12.0, 6.0]


WRITES_OF_PARTS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "square_": (aten.square_, lambda x: x.square_()),
    "multiply_": (aten.multiply_, lambda x: x.multiply_(3)),
    "divide_": (aten.divide_, lambda x: x.divide_(2)),
    "absolute_": (aten.absolute_, lambda x: x.absolute_()),
    "selu_": (aten.selu_, lambda x: torch.selu_(x)),
    "arctan_": (aten.arctan_, lambda x: x.arctan_()),
}


PLACES: dict[str, Callable[[Any], Any]] = {
    "whole": lambda x: x,
    "row": lambda x: x[1],
    "flat": lambda x: x.view(-1),
    "transposed": lambda x: x.t(),
}


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", WRITES_OF_PARTS)
def test_write_into_a_view_has_its_gradient_once(name: str, place: str, anew: bool) -> None:
    class Own(WrapperTensor):
        elem: torch.Tensor

    packet, write = WRITES_OF_PARTS[name]

    @Own.table.implements(packet)
    def answer(func: Any, *args: Any, **kwargs: Any) -> Any:
        if not anew:
            return Own.run_without_handler(func, *args, **kwargs)
        func(args[0].elem, *args[1:], **kwargs)
        return args[0]

    def run(wrap: Callable[[torch.Tensor], Any]) -> list[Any]:
        leaf = wrap(torch.tensor([[2.0, -3.0], [-4.0, 5.0]])).requires_grad_()
        x = leaf * 1
        part = PLACES[place](x)
        write(part)
        (x * x).sum().backward()
        return [_plain(leaf.grad), x._version, part._version]

    assert run(Own) == run(torch.clone)


def test_residual_of_a_dropout_may_be_added_in_place() -> None:
    class Drops(WrapperTensor):
        elem: torch.Tensor

    @Drops.table.implements(aten.dropout.default)
    def dropout(input: Any, p: Any, train: Any) -> Any:
        return Drops(F.dropout(input.elem, p, train))

    leaf: Any = Drops(torch.ones(4, 4)).requires_grad_()
    x = leaf * 1
    x += F.dropout(x, 0.5)
    x.sum().backward()
    assert torch.equal(leaf.grad.elem, x.elem)


@pytest.mark.slow
def test_residual_may_be_added_in_a_compiled_function_of_dynamic_sizes() -> None:
    torch._dynamo.reset()

    def residual(x: Any, weight: Any) -> Any:
        x = x * 1
        x += F.linear(x, weight)
        return x * 2

    compiled = torch.compile(residual, backend="aot_eager")
    for size in (4, 5, 7):
        leaf: Any = Linear(torch.ones(size, 4)).requires_grad_()
        compiled(leaf, Linear(torch.ones(4, 4))).sum().backward()
        assert torch.equal(leaf.grad.elem, torch.full((size, 4), 10.0))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # its own call
def test_wrappers_from_outside_of_a_transform_get_the_parts() -> None:
    weight, x = Linear(torch.ones(2, 3), requires_grad=True), Linear(torch.ones(4, 3))

    def call(scale: Any) -> Any:
        return (F.linear(x, weight) * scale).sum()

    assert torch.func.grad(call)(torch.tensor(2.0)).detach() == 24
    assert bool((torch.vmap(call)(torch.ones(3)).detach() == 24).all())
    assert torch.func.jvp(call, (torch.tensor(2.0),), (torch.tensor(1.0),))[1].detach() == 24


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_call_leaves_the_gradient_of_the_next_as_it_is(backend: str) -> None:
    torch._dynamo.reset()

    def call(x: Any, weight: Any) -> Any:
        return F.linear(x, weight)

    for size in (2, 3, 4):  # static, then dynamic
        x = torch.ones(size, 5)
        weight: Any = Linear(torch.ones(3, 5), requires_grad=True)
        torch.compile(call, backend=backend)(x, weight).sum().backward()
        assert torch.equal(weight.grad.elem, torch.full((3, 5), float(size)))
        call(x, weight).sum().backward()
        assert torch.equal(weight.grad.elem, torch.full((3, 5), 2.0 * size))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_write_has_the_gradient_of_the_values_before(backend: str) -> None:
    torch._dynamo.reset()

    class Own(WrapperTensor):
        elem: torch.Tensor

    @Own.table.implements(aten.square_.default)
    def square(self: Any) -> Any:
        self.elem.square_()
        return self

    def call(x: Any) -> Any:
        return (x * 1).square_() * 2

    for size in (3, 4, 5):
        x: Any = Own(torch.arange(1.0, 1 + size), requires_grad=True)
        torch.compile(call, backend=backend)(x).sum().backward()
        assert torch.equal(x.grad.elem, 4 * x.elem)


class SquareKept(torch.autograd.Function):
    """Keeps what it needs where autograd does not see it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.x = x.detach()
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return 2 * ctx.x * grad


def test_parts_in_python_find_the_values_they_keep_by_themselves() -> None:
    library = torch.library.Library("tests_whole_results", "DEF")
    library.define("squared(Tensor x, Tensor y) -> Tensor")
    parts: Any = SquareKept.apply
    library.impl("squared", lambda x, y: parts(x) * y, "CompositeImplicitAutograd")

    class Own(WrapperTensor):
        elem: torch.Tensor

    squared = torch.ops.tests_whole_results.squared

    @Own.table.implements(squared.default)
    def answer(x: Any, y: Any) -> Any:
        return Own(squared(x.detach(), y.elem))

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    squared(x, Own(torch.full((2,), 3.0))).sum().backward()
    assert _plain(x.grad) == [6.0, 12.0]
    library._destroy()


def test_tensor_that_is_written_and_read_counts_one_write() -> None:
    class Own(WrapperTensor):
        elem: torch.Tensor

    @Own.table.implements(aten.multiply_.Tensor)
    def multiply(self: Any, other: Any) -> Any:
        self.elem.multiply_(other.elem)
        return self

    x: Any = Own(torch.full((3,), 3.0))
    x.multiply_(x)
    assert (x._version, x.elem.tolist()) == (1, [9.0] * 3)
    leaf: Any = Own(torch.full((3,), 3.0)).requires_grad_()
    y = leaf * 1
    y.multiply_(y)
    y.sum().backward()
    assert (y._version, leaf.grad.elem.tolist()) == (1, [6.0] * 3)


@pytest.mark.slow
def test_compiled_loss_leaves_the_gradient_of_the_next_as_it_is() -> None:
    torch._dynamo.reset()

    class Own(WrapperTensor):
        elem: torch.Tensor

    @Own.table.implements(aten.cross_entropy_loss.default)
    def loss(
        self: Any,
        target: Any,
        weight: Any = None,
        reduction: int = 1,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
    ) -> Any:
        return Own(F.cross_entropy(self.elem, target))

    plain, target = torch.randn(4, 3, requires_grad=True), torch.tensor([0, 2, 1, 1])
    want = torch.autograd.grad(F.cross_entropy(plain, target), plain)[0]
    compiled = torch.compile(F.cross_entropy, backend="aot_eager")
    for call in (compiled, F.cross_entropy):
        x: Any = Own(plain.detach().clone()).requires_grad_()
        call(x, target).backward()
        assert torch.allclose(x.grad.elem, want)


@pytest.mark.slow
def test_compiled_dropout_has_the_gradient_of_what_it_drew() -> None:
    torch._dynamo.reset()

    class Drops(WrapperTensor):
        elem: torch.Tensor

    @Drops.table.implements(aten.dropout.default)
    def dropout(input: Any, p: Any, train: Any) -> Any:
        return Drops(F.dropout(input.elem, p, train))

    x: Any = Drops(torch.ones(64)).requires_grad_()
    y: Any = torch.compile(lambda x: F.dropout(x * 1, 0.5), backend="aot_eager")(x)
    y.sum().backward()
    assert 0 < int(y.elem.count_nonzero()) < 64
    assert torch.equal(x.grad.elem, y.elem)


def test_write_has_the_gradient_of_an_alias_before_it() -> None:
    class Own(WrapperTensor):
        elem: torch.Tensor

    @Own.table.implements(aten.multiply_.Tensor)
    def multiply(self: Any, other: Any) -> Any:
        self.elem.multiply_(other)
        return self

    leaf: Any = Own(torch.ones(3)).requires_grad_()
    x = leaf * 3
    x.multiply_(x.elem)
    x.sum().backward()
    assert leaf.grad.elem.tolist() == [9.0] * 3
