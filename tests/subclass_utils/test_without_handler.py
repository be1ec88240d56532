"""A handler may do what would be done without it, and something more."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from dispatch_core import HandlerError, ops
from subclass_utils import WrapperTensor

from tests.subclass_utils.wrappers import Requantised

aten = torch.ops.aten


class Counted(WrapperTensor):
    """Counts what its handlers were called for."""

    metadata = ("calls",)
    calls: int = 0
    elem: torch.Tensor


class Child(Counted):
    """Has no handlers of its own."""


@Counted.table.implements(ops.aten.relu.default)
def _relu(self: Any) -> Any:
    made = Counted.run_without_handler(ops.aten.relu.default, self)
    made.calls = self.calls + 1
    return made


@Counted.table.implements(aten.add_.Tensor)
def _add_(self: Any, other: Any, *, alpha: Any = 1) -> Any:
    self.calls += 1
    return Counted.run_without_handler(aten.add_.Tensor, self, other=other, alpha=alpha)


@Counted.table.implements(aten.select.int)
def _select(self: Any, dim: Any, index: Any) -> Any:
    made = Counted.run_without_handler(aten.select.int, self, dim, index=index)
    made.calls = self.calls + 1
    return made


@pytest.mark.parametrize("cls", [Counted, Child])
def test_result_and_gradient_are_those_without_the_handler(cls: Any) -> None:
    x = cls(torch.tensor([-1.0, 2.0]), requires_grad=True)
    y = x.relu().relu()
    assert type(y) is cls
    assert (y.calls, y.elem.tolist()) == (2, [0.0, 2.0])
    (y * y).sum().backward()
    assert x.grad.elem.tolist() == [0.0, 4.0]


def test_write_is_counted_once_and_a_view_is_one() -> None:
    x: Any = Counted(torch.zeros(2, 3))
    row = x[1]
    assert row._base is x
    row.add_(1, alpha=2)
    assert (x.calls, row.calls) == (0, 2)
    assert (x._version, x.elem._version, row._version) == (1, 1, 1)
    assert x.elem.tolist() == [[0.0] * 3, [2.0] * 3]


@pytest.mark.parametrize("bit", ["conj", "neg"])
def test_conjugate_and_negative_bits_stay_right(bit: str) -> None:
    class Transposed(WrapperTensor):
        pass

    @Transposed.table.fallback
    def pass_on(func: Any, *args: Any, **kwargs: Any) -> Any:
        return Transposed.run_without_handler(func, *args, **kwargs)

    plain = torch.arange(6).view(2, 3) * (1 + 2j)
    plain = plain.conj() if bit == "conj" else torch._neg_view(plain)
    x: Any = Transposed(plain)
    y = (x.transpose(0, 1).clone().transpose_(0, 1) * x).real
    assert torch.equal(y.elem, (plain * plain).real)
    assert (x * 1).transpose_(0, 1).shape == (3, 2)


def test_class_that_goes_by_its_plain_value_reads_and_writes_it() -> None:
    class Noted(Requantised):
        pass

    seen = []

    @Noted.table.fallback
    def note(func: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(func)
        return Noted.run_without_handler(func, *args, **kwargs)

    x = Noted.from_plain(torch.arange(4.0).view(2, 2))
    detached, row = x.detach(), x[1]
    x.add_(1)
    row.add_(1)  # that of a view of the plain value, which has no handlers
    want = torch.tensor([[1.0, 2.0], [4.0, 5.0]])
    for tensor, value in ((x, want), (detached, want), (row, want[1])):
        assert torch.allclose(tensor.to_plain(), value, atol=0.01)
    assert type(x * 2) is torch.Tensor
    assert seen == [aten.detach.default, aten.select.int, aten.add_.Tensor, aten.mul.Tensor]


@pytest.mark.parametrize("context", [nullcontext, torch.no_grad, torch.inference_mode])
def test_parts_of_a_composite_operator_go_to_their_handlers(context: Any) -> None:
    class Noted(WrapperTensor):
        pass

    seen = []

    @Noted.table.implements(aten.matmul, aten.mm)
    def note(func: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(func)
        return Noted.run_without_handler(func, *args, **kwargs)

    with context():
        torch.matmul(Noted(torch.eye(2)), Noted(torch.eye(2)))
    assert seen == [aten.matmul.default, aten.mm.default]


def test_handler_of_the_parent_is_called_by_its_table() -> None:
    class Louder(Counted):
        pass

    @Louder.table.implements(aten.relu.default)
    def relu(self: Any) -> Any:
        inherited: Any = Counted.table.lookup(aten.relu.default)
        made = inherited(self)
        made.calls += 10
        return made

    x: Any = Louder(torch.ones(1))
    assert x.relu().calls == 11
    assert type(x.relu()) is Louder


def test_overridden_dispatch_calls_super() -> None:
    seen = []

    class Watched(WrapperTensor):
        elem: torch.Tensor

        @classmethod
        def __torch_dispatch__(  # type: ignore[override]
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(func)
            return super().__torch_dispatch__(func, types, args, kwargs)

    x: Any = Watched(torch.ones(2))
    x.add_(1)
    assert (x.elem.tolist(), x._version, seen) == ([2.0, 2.0], 1, [aten.add_.Tensor])


def test_argument_that_does_not_fit_is_named() -> None:
    class Wrong(WrapperTensor):
        pass

    @Wrong.table.implements(aten.neg.default)
    def neg(self: Any) -> Any:
        return Wrong.run_without_handler(aten.neg.default, self, 3)

    with pytest.raises(HandlerError, match=r"aten::neg: .*takes 1 positional argument"):
        -Wrong(torch.ones(1))
