"""What a class's own handler writes counts, reaches who shares the data, and is what it returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from dispatch_core import HandlerError
from subclass_utils import WrapperTensor

from tests.subclass_utils.wrappers import Requantised, ScaledOnPlain

aten = torch.ops.aten


class Own(WrapperTensor):
    """Transparent, with handlers that write into the inner tensor in several ways."""

    elem: torch.Tensor


@Own.table.implements(aten.add_.Tensor)
def _add_(self: Any, other: Any, *, alpha: Any = 1) -> Any:
    self.elem.add_(other, alpha=alpha)
    return self


@Own.table.implements(aten.sin_.default)
def _sin_(self: Any) -> Any:
    self.elem.sin_()  # and returns nothing


@Own.table.implements(aten.cos_.default)
def _cos_(self: Any) -> Any:
    return Own(self.elem.cos_())  # wraps again what was written


@Own.table.implements(aten.relu_.default)
def _relu_(self: Any) -> Any:
    return Own(self.elem.relu())  # forgets to write


@Own.table.implements(aten._foreach_add_.Scalar)
def _foreach_add_(self: Any, scalar: Any) -> None:
    for each in self:
        (each.elem if isinstance(each, Own) else each).add_(scalar)


@Own.table.implements(aten.abs.out)
def _abs_out(self: Any, *, out: Any) -> Any:
    torch.abs(self.elem, out=out.elem)
    return out


@pytest.mark.parametrize("context", [torch.enable_grad, torch.inference_mode])
@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.add_(1),
        lambda x: x.sin_(),
        lambda x: x.cos_(),
        lambda x: torch.abs(torch.ones(2).neg() if type(x) is torch.Tensor else -x * 0 + 1, out=x),
    ],
)
def test_own_write_counts_outside_and_inside(write: Callable[[Any], Any], context: Any) -> None:
    x, plain = Own(torch.ones(2)), torch.ones(2)
    with context():
        result, wanted = write(x), write(plain)
    assert result is x
    assert torch.equal(x.elem, wanted)
    assert (x._version, x.elem._version) == (plain._version, 1)


def test_own_write_that_is_none_is_an_error() -> None:
    x = Own(-torch.ones(2))
    with pytest.raises(HandlerError) as caught:
        x.relu_()
    assert str(caught.value) == (
        "aten::relu_: the handler of Own gave a new Own for 'self', which the operator writes, "
        "and torch gives 'self' itself to the caller: write into its inner tensors, and return "
        "'self'"
    )


def test_own_write_into_a_list_is_counted() -> None:
    a, b = Own(torch.ones(2)), torch.ones(2)
    torch._foreach_add_([a, b, a], 2.0)
    assert a.elem.tolist() == [5.0, 5.0]
    assert (a._version, a.elem._version, b._version) == (1, 1, 1)


@pytest.mark.parametrize(
    "make", [Own, ScaledOnPlain.from_plain, Requantised.from_plain], ids=["own", "scaled", "re"]
)
@pytest.mark.parametrize(
    "write",
    [
        lambda list_: torch._foreach_add_(list_, 1.0),
        lambda list_: torch._foreach_mul_(list_, 5.0),
        lambda list_: torch._foreach_mul_(list_, [torch.ones(2, 3)] * 2),
        lambda list_: torch._foreach_copy_(list_, [torch.ones(2, 3)] * 2),
    ],
)
def test_plain_tensor_beside_a_wrapper_in_a_list_is_counted(make: Any, write: Any) -> None:
    leaf = torch.ones(2, 3, requires_grad=True)
    written = leaf * 1
    total = (written * written).sum()
    with torch.no_grad():
        write([make(torch.ones(2, 3)), written])
    assert written._version == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()


class Replacing(Requantised):
    """Its in-place handlers exchange inner tensors."""


@Replacing.table.implements(aten.neg_.default)
def _neg_(self: Any) -> Any:
    self.numbers, self.scale = self.numbers // 2, self.scale * -2
    return self


@Replacing.table.implements(aten.slice.Tensor)
def _slice(self: Any, dim: Any = 0, start: Any = None, end: Any = None, step: Any = 1) -> Any:
    return Replacing(aten.slice.Tensor(self.numbers, dim, start, end, step), self.scale)


@pytest.mark.parametrize("writer", ["whole", "detached", "part"])
def test_own_write_that_exchanges_inner_tensors_reaches_who_shares_them(writer: str) -> None:
    results = []
    for x in (Replacing.from_plain(torch.arange(1.0, 5.0)), torch.arange(1.0, 5.0)):
        family = {"whole": x, "detached": x.detach(), "part": x[1:3], "other": x[2:], "row": x[0]}
        family[writer].neg_()
        results.append([getattr(each, "to_plain", lambda e=each: e)() for each in family.values()])
    for got, wanted in zip(*results, strict=True):
        assert torch.allclose(got, wanted, atol=0.01)
