"""Linear on transparent wrappers, which runs whole where nobody could see its parts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from dispatch_core import ops
from subclass_utils import WrapperTensor
from torch.utils._python_dispatch import TorchDispatchMode

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
