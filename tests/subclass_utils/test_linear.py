"""Linear on transparent wrappers, which runs whole where nobody could see its parts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from dispatch_core import ops
from subclass_utils import WrapperTensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.subclass_utils.truth import autograd_facts, compare_run

linear: Any = torch.nn.functional.linear
addmm: Any = torch.addmm
mm: Any = torch.mm
aten = ops.aten


class Named(WrapperTensor):
    metadata = ("title",)
    elem: torch.Tensor
    title: str = ""


class Names(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func.name())
        return func(*args, **(kwargs or {}))


def arguments(cls: Any = Named, *names: Any) -> list[Any]:
    plain = [torch.arange(8.0).view(2, 4), torch.ones(3, 4), torch.arange(3.0)]
    return [cls(each, *names) for each in plain] if cls is not torch.Tensor else plain


def test_linear_of_two_dimensions_gives_what_a_plain_one_does() -> None:
    x, weight, bias = arguments()
    for given in ((x, weight, bias), (x, weight)):
        want = linear(*arguments(torch.Tensor)[: len(given)])
        got: Any = linear(*given)
        assert type(got) is Named
        assert torch.equal(got.elem, want)
        assert (got.stride(), got._version, got._is_view()) == (want.stride(), 0, False)
        assert not got.requires_grad


@pytest.mark.parametrize("grad", [False, True])
def test_linear_carries_the_metadata_that_its_parts_do(grad: bool) -> None:
    x, weight, bias = (
        Named(each.elem, title) for each, title in zip(arguments(), "xwb", strict=True)
    )
    weight.requires_grad_(grad)
    assert linear(x, weight, bias).title == addmm(bias, x, weight.t()).title == "b"
    assert linear(x, weight).title == mm(x, weight.t()).title == "x"


def test_linear_comes_in_parts_once_the_class_has_a_handler() -> None:
    class Counts(WrapperTensor):
        elem: torch.Tensor

    args = arguments(Counts)
    linear(*args)
    seen: list[str] = []

    @Counts.table.implements(aten.addmm.default)
    def handler(self: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
        seen.append("addmm")
        return Counts(torch.addmm(self.elem, mat1.elem, mat2.elem))

    linear(*args)
    assert seen == ["addmm"]


@pytest.mark.slow  # torch imports on first use what a mode needs
def test_linear_comes_in_parts_to_a_mode() -> None:
    args = arguments()
    linear(*args)
    with Names() as mode:
        linear(*args)
    assert mode.seen[:2] == ["aten::t", "aten::addmm"]


@pytest.mark.parametrize("grad", [False, True])
def test_linear_follows_autocast(grad: bool) -> None:
    args = arguments()
    args[1].requires_grad_(grad)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = linear(*args)
    assert got.dtype is got.elem.dtype is torch.bfloat16
    assert got.requires_grad is grad


def test_linear_is_mapped_over_wrappers() -> None:
    x, weight, bias = arguments()
    stacked = Named(torch.stack([x.elem, x.elem + 1]))
    got = torch.func.vmap(lambda each: linear(each, weight, bias))(stacked)
    want = linear(stacked.elem, weight.elem, bias.elem)
    assert torch.equal(got.elem, want)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_gradient_of_linear_is_a_wrapper(which: int) -> None:
    args = arguments()
    args[which].requires_grad_()
    plain = arguments(torch.Tensor)
    plain[which].requires_grad_()
    linear(*args).sum().backward()
    linear(*plain).sum().backward()
    assert type(args[which].grad) is Named
    assert torch.equal(args[which].grad.elem, plain[which].grad)


def test_linear_follows_inner_tensors_that_require_grad() -> None:
    x, weight, bias = arguments()
    inner = weight.elem.requires_grad_()
    linear(x, weight, bias).elem.sum().backward()
    assert torch.equal(inner.grad, x.elem.sum(0).expand(3, 4))


def double(*size: int) -> torch.Tensor:
    return torch.randn(*size, dtype=torch.float64)


INPUTS = {
    "a matrix": lambda: double(2, 4),
    "a matrix by columns": lambda: double(4, 2).t(),
    "a row": lambda: double(1, 4),
    "every second column": lambda: double(2, 8)[:, ::2],
    "no rows": lambda: double(0, 4),
    "three dims": lambda: double(2, 3, 4),
    "three dims, not as a matrix": lambda: double(3, 2, 4).transpose(0, 1),
    "four dims": lambda: double(2, 1, 3, 4),
    "four dims, expanded": lambda: double(1, 1, 3, 4).expand(2, 2, 3, 4),
    "no elements": lambda: double(2, 0, 4),
    "a vector": lambda: double(4),
}
WEIGHTS = {"by rows": lambda: double(5, 4), "by columns": lambda: double(4, 5).t()}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("input", INPUTS)
def test_linear_is_what_a_plain_one_is(input: str, weight: str, bias: bool) -> None:
    for required in ([], [0], [1], [2], [0, 1, 2]):
        tensors = [INPUTS[input](), WEIGHTS[weight](), *([double(5)] if bias else [])]
        for index in required[: len(tensors)]:
            tensors[min(index, len(tensors) - 1)].requires_grad_()
        for context in ("plain", "no_grad", "inference", "inference_inside"):
            outcome = compare_run(linear, (tensors, {}), context=context, backward=True)
            assert outcome.ran
            assert outcome.faults == []


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("input", INPUTS)
def test_gradients_of_linear_are_what_those_of_a_plain_one_are(input: str, weight: str) -> None:
    given = [INPUTS[input](), WEIGHTS[weight](), double(5)]
    plain: Any = [each.detach().requires_grad_() for each in given]
    wrapped = [Named(each.detach()).requires_grad_() for each in given]
    want: Any = linear(*plain)
    got: Any = linear(*wrapped)
    seed = torch.randn_like(want)
    for graph in (False, True):
        grads = torch.autograd.grad(want, plain, seed, retain_graph=True, create_graph=graph)
        found: Any = torch.autograd.grad(
            got, wrapped, Named(seed), retain_graph=True, create_graph=graph
        )
        for a, b in zip(grads, found, strict=True):
            assert type(b) is Named
            assert torch.equal(a, b.elem)
            assert a.stride() == b.stride() == b.elem.stride()
    # The gradient of the bias depends on nothing.
    want = torch.autograd.grad([each.square().sum() for each in grads[:2]], plain[:2])
    got = torch.autograd.grad([each.square().sum() for each in found[:2]], wrapped[:2])
    for a, b in zip(want, got, strict=True):
        assert torch.allclose(a, b.elem)


@pytest.mark.parametrize("dims", [2, 3])
def test_gradient_of_linear_is_one_node_by_the_name_of_a_plain_one(dims: int) -> None:
    x, weight, bias = arguments()
    weight.requires_grad_()
    x = x if dims == 2 else x.view(2, 1, 4)
    plain: Any = [x.elem, weight.elem.clone().requires_grad_(), bias.elem]
    for count in (2, 3):
        got, want = linear(*(x, weight, bias)[:count]), linear(*plain[:count])
        assert got.grad_fn.name() == want.grad_fn.name()
        assert autograd_facts(got) == autograd_facts(want)


def test_gradients_of_linear_carry_the_metadata_that_those_of_its_parts_do() -> None:
    x, weight, bias = (
        Named(each.elem, title) for each, title in zip(arguments(), "xwb", strict=True)
    )
    for each in (x, weight, bias):
        each.requires_grad_()
    seed = Named(torch.ones(2, 3), "seed")
    of_parts: Any = torch.autograd.grad(addmm(bias, x, weight.t()), (x, weight, bias), seed)
    grads: Any = torch.autograd.grad(linear(x, weight, bias), (x, weight, bias), seed)
    assert [each.title for each in grads] == [each.title for each in of_parts]


def test_write_into_what_linear_saved_is_noticed() -> None:
    x, weight, bias = arguments()
    x.requires_grad_()
    result = linear(x, weight, bias)
    weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_linear_saves_no_more_than_its_gradients_need() -> None:
    x, weight, bias = arguments()
    bias.requires_grad_()
    result = linear(x, weight, bias)
    x.add_(1)
    weight.add_(1)
    result.sum().backward()
    assert torch.equal(bias.grad.elem, torch.full((3,), 2.0))


def test_gradients_of_linear_are_taken_in_batches() -> None:
    args = arguments()
    args[1].requires_grad_()
    plain = arguments(torch.Tensor)
    plain[1].requires_grad_()
    seeds = torch.eye(6).view(6, 2, 3)
    [want] = torch.autograd.grad(linear(*plain), [plain[1]], seeds, is_grads_batched=True)
    [got] = torch.autograd.grad(linear(*args), [args[1]], Named(seeds), is_grads_batched=True)
    assert torch.equal(got.elem, want)  # type: ignore[attr-defined]


def test_gradient_of_linear_comes_in_operators_to_a_mode() -> None:
    args = arguments()
    args[1].requires_grad_()
    total = linear(*args).sum()
    with Names() as mode:
        total.backward()
    assert "aten::mm" in mode.seen


ODD_BIASES = {
    "of double": ((4, 2, 3), torch.ones(5, dtype=torch.float64)),
    "of complex numbers": ((4, 2, 3), torch.ones(5, dtype=torch.complex64)),
    "of two dims": ((4, 2, 3), torch.ones(1, 5)),
    "of a place each": ((4, 2, 3), torch.ones(4, 2, 5)),
    "of one number": ((4, 2, 3), torch.ones(())),
    "greater than the result": ((3,), torch.ones(4, 5)),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", ODD_BIASES)
def test_odd_bias_is_added_as_to_a_plain_result(name: str, grad: bool) -> None:
    size, bias = ODD_BIASES[name]

    def outcome(make: Any) -> Any:
        given = [make(each.clone()) for each in (torch.ones(size), torch.ones(5, 3), bias)]
        given[1].requires_grad_(grad)
        try:
            made = linear(*given)
        except RuntimeError:
            return "refused"
        return made.dtype, made.size(), made.stride(), made._version, made.requires_grad

    assert outcome(Named) == outcome(lambda each: each)
