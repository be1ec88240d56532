"""A tensor made of a wrapper is an inference tensor where that of a plain tensor is one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from subclass_utils import WrapperTensor

from tests.subclass_utils.wrappers import Halves, Measured, Requantised, RequantisedInParts

aten = torch.ops.aten


class OwnNew(WrapperTensor):
    """Transparent; says its outside itself."""

    elem: torch.Tensor

    @staticmethod
    def __new__(cls: Any, elem: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, elem.size(), dtype=elem.dtype)


class TransparentInParts(WrapperTensor):
    """Transparent, with a handler for a view, and one for a write of a list."""

    elem: torch.Tensor


@TransparentInParts.table.implements(aten.t.default)
def _t(self: Any) -> Any:
    return TransparentInParts(self.elem.t())


@TransparentInParts.table.implements(aten._foreach_mul_.Scalar)
def _foreach_mul_(self: Any, scalar: Any) -> None:
    torch._foreach_mul_([tensor.elem for tensor in self], scalar)


class Copying(Requantised):
    """Its view has numbers of its own, and the scale of the whole."""


@Copying.table.implements(aten.t.default)
def _t_copied(self: Any) -> Any:
    return Copying(self.numbers.t().clone(), self.scale)


class Negated(Requantised):
    """A negative has the same numbers."""


@Negated.table.implements(aten.neg.default)
def _neg(self: Any) -> Any:
    return Negated(self.numbers, -self.scale)


CLASSES = (
    Measured,
    TransparentInParts,
    Requantised,
    RequantisedInParts,
    Copying,
    Negated,
    Halves,
)


any_torch: Any = torch  # whose writes of lists give nothing
any_setattr: Any = setattr


def written(x: Any, _: Any) -> Any:
    return x


OPERATORS: dict[str, Callable[[Any], Any]] = {
    "t": lambda x: x.t(),
    "slice": lambda x: x[1:],
    "select": lambda x: x[0],
    "split": lambda x: x.split(1)[1],
    "unbind": lambda x: x.unbind()[1],
    "view": lambda x: x.view(-1),
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "clone": lambda x: x.clone(),
    "double": lambda x: x.double(),
    "neg": lambda x: -x,
    "add": lambda x: x + 1,
    "Parameter": lambda x: torch.nn.Parameter(x, requires_grad=False),
    "add_": lambda x: x.add_(1),
    "t_": lambda x: x.t_(),
    "unsqueeze_": lambda x: x.unsqueeze_(0),
    "transpose_": lambda x: x.transpose_(0, 1),
    "squeeze_": lambda x: x.squeeze_(),
    "resize_": lambda x: x.resize_(4, 4),
    "as_strided_": lambda x: x.as_strided_((3,), (1,)),
    "set_": lambda x: x.set_(x.clone()),
    "data =": lambda x: written(x, any_setattr(x, "data", x.clone())),
    "out": lambda x: torch.add(torch.ones(2, 3), 1, out=x),
    "_foreach_add_": lambda x: written(x, any_torch._foreach_add_([x], 1.0)),
    "_foreach_mul_": lambda x: written(x, any_torch._foreach_mul_([x], 2.0)),
    "_foreach_copy_": lambda x: written(x, any_torch._foreach_copy_([x], [torch.ones(2, 3)])),
    "list of out": lambda x: written(x, any_torch.unbind_copy(torch.ones(1, 2, 3), out=[x])),
}
THEN: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda x: x,
    "detach": lambda x: x.detach(),
    "t": lambda x: x.view(-1, x.size(-1)).t(),
    "Parameter": lambda x: torch.nn.Parameter(x, requires_grad=False),
    "requires_grad_": lambda x: x.detach().requires_grad_(),
}


def mode(on: bool) -> AbstractContextManager[Any]:
    return torch.inference_mode() if on else nullcontext()


def kind_of(make: Callable[[torch.Tensor], Any], name: str, then: str, modes: Any) -> Any:
    """Say whether the tensor, the result and what is made of that are inference tensors.

    Instead of what cannot be made, the first words of torch's error.
    """
    made, run, after = modes
    with mode(made):
        x = make(torch.arange(6.0).view(2, 3))
    try:
        with mode(run):
            y = OPERATORS[name](x)
        with mode(after):
            z = THEN[then](y)
    except RuntimeError as error:
        return x.is_inference(), str(error)[:40]
    return x.is_inference(), y.is_inference(), z.is_inference()


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("cls", CLASSES)
def test_results_are_inference_tensors_where_plain_ones_are(cls: Any, name: str) -> None:
    for then in THEN:
        for modes in [(a, b, c) for a in (0, 1) for b in (0, 1) for c in (0, 1)]:
            want = kind_of(lambda plain: plain, name, then, modes)
            assert kind_of(cls.from_plain, name, then, modes) == want, (then, modes)


def test_shape_changed_in_inference_mode_keeps_what_shares_the_data() -> None:
    x: Any = Requantised.from_plain(torch.arange(6.0).view(2, 3))
    with torch.inference_mode():
        x.t_()
        x.add_(1)
    x.detach().mul_(2)
    assert not any(inner.is_inference() for inner in (x.numbers, x.scale))
    assert torch.allclose(x.to_plain(), 2 * (torch.arange(6.0).view(2, 3).t() + 1), atol=0.01)
    x.requires_grad_().sum().backward()
    assert torch.equal(x.grad, torch.ones(3, 2))


def test_view_outside_of_inference_mode_is_written_inside() -> None:
    with torch.inference_mode():
        x: Any = RequantisedInParts.from_plain(torch.arange(6.0).view(2, 3))
    view = x[1:].detach()
    with torch.inference_mode():
        view.mul_(2)
    want = torch.tensor([[0.0, 1.0, 2.0], [6.0, 8.0, 10.0]])
    assert torch.allclose(x.to_plain(), want, atol=0.01)


def test_module_of_views_of_an_inference_tensor_gives_its_state() -> None:
    with torch.inference_mode():
        whole: Any = RequantisedInParts.from_plain(torch.arange(6.0).view(2, 3))
    module = torch.nn.ParameterList([torch.nn.Parameter(whole.t(), requires_grad=False)])
    state = module.state_dict()
    assert torch.allclose(state["0"].to_plain(), torch.arange(6.0).view(2, 3).t(), atol=0.01)


@pytest.mark.parametrize("cls", [Halves, Requantised, OwnNew])
@pytest.mark.parametrize("inside", [False, True])
def test_wrapper_made_in_the_mode_is_an_inference_tensor_of_one_alone(
    cls: Any, inside: bool
) -> None:
    parts = [torch.ones(3) for _ in cls.inner_tensors]
    with torch.inference_mode():
        x = cls(*[part.clone() for part in parts] if inside else parts)
    assert x.is_inference() is inside
    if not inside:
        y = torch.ones(3, requires_grad=True)
        (x * y).sum().backward()
        assert y.grad is not None
        assert x.requires_grad_().requires_grad


class Signed(Requantised):
    """Its negative has the same inner tensors."""

    metadata = ("factor",)
    factor: int = 1

    @staticmethod
    def __new__(cls: Any, numbers: torch.Tensor, scale: torch.Tensor, factor: int = 1) -> Any:
        return Requantised.__new__(cls, numbers, scale)

    def to_plain(self) -> torch.Tensor:
        return super().to_plain() * self.factor


@Signed.table.implements(torch.ops.aten.neg.default)
def _neg_sign(self: Any) -> Any:
    return Signed(self.numbers, self.scale, -self.factor)


def test_result_of_a_handler_in_the_mode_is_an_inference_tensor_as_the_plain_one_is() -> None:
    x = Signed.from_plain(torch.ones(2))
    with torch.inference_mode():
        y = -x
    assert y.is_inference()
    assert not (-x).is_inference()
