"""Views, writes and versions of transparent wrappers are those of plain tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from dispatch_core import keep_composite
from subclass_utils import LoggingTensor, WrapperTensor

from tests.subclass_utils.wrappers import Measured, ScaledOnPlain, Unit, metre


class WithOwnWrite(WrapperTensor):
    """Transparent; writes by a handler of its own."""

    elem: torch.Tensor


def _add(self: Any, other: Any) -> Any:
    getattr(self, "elem", self).add_(getattr(other, "elem", other))
    return self


def test_views_share_versions_and_base_as_plain_ones_do() -> None:
    x = metre(4)
    y = x[1:]
    before = (x._version, x.elem._version)
    y.add_(1)
    assert y._base is x
    assert (x._version, x.elem._version) == (before[0] + 1, before[1] + 1)
    assert y._version == x._version
    assert x.elem.tolist() == [1.0, 2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.t_(),
        lambda x: x.resize_(5),
        lambda x: x.unsqueeze_(0),
        lambda x: x.transpose_(0, 1),
        lambda x: x.squeeze_(),
        lambda x: x.set_(Measured(torch.ones(7))),
        lambda x: torch.matmul(metre(5), metre(5, 3), out=x.resize_(0)),
        lambda x: setattr(x, "data", Measured(torch.zeros(2, 2).t())),
        lambda x: setattr(x, "data", torch.zeros(9)),
    ],
)
def test_outside_follows_in_place_changes(write: Any) -> None:
    x = Measured(torch.ones(2, 3))
    write(x)
    assert x.size() == x.elem.size()
    assert x.stride() == x.elem.stride()
    assert x.storage_offset() == x.elem.storage_offset()


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("bias", [torch.ones(3), torch.ones(6)[::2], torch.tensor(1.0)])
@pytest.mark.parametrize(
    "x",
    [
        torch.ones(4),
        torch.ones(5, 4),
        torch.ones(2, 5, 4),
        torch.ones(5, 2, 4).transpose(0, 1),
        torch.ones(2, 5, 2, 4).transpose(1, 2),
    ],
)
def test_linear_counts_the_versions_that_a_plain_one_does(
    x: torch.Tensor, bias: torch.Tensor, grad: bool
) -> None:
    weight = torch.ones(3, 4)
    plain = torch.nn.functional.linear(x.detach().requires_grad_(grad), weight, bias)
    y: Any = torch.nn.functional.linear(
        Measured(x, requires_grad=grad), Measured(weight), Measured(bias)
    )
    assert torch.equal(y.elem, plain)
    assert (y._version, y._is_view()) == (plain._version, plain._is_view())
    before = y._version, y.elem._version
    with torch.no_grad():
        y.add_(1)
    assert (y._version, y.elem._version) == (before[0] + 1, before[1] + 1)


FORWARD_AD: dict[str, Any] = {
    "linear": lambda x: torch.nn.functional.linear(x, torch.ones(2, 4)),
    "max_pool1d": lambda x: torch.nn.functional.max_pool1d(x, 2),
    "mul": lambda x: x * 3,
}


@pytest.mark.slow  # torch imports on first use what forward AD needs
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # its own call
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("name", FORWARD_AD)
def test_tangent_goes_through(name: str, grad: bool) -> None:
    x, tangent = torch.arange(12.0).view(3, 4), torch.ones(3, 4) * 2
    forward_ad = torch.autograd.forward_ad
    with forward_ad.dual_level(), torch.set_grad_enabled(grad):
        plain = FORWARD_AD[name](forward_ad.make_dual(x, tangent))
        y = FORWARD_AD[name](forward_ad.make_dual(Measured(x), Measured(tangent)))
        want, have = forward_ad.unpack_dual(plain).tangent, forward_ad.unpack_dual(y).tangent
        assert want is not None
        assert have is not None
        assert torch.equal(have.to_plain(), want)


@pytest.mark.slow  # torch imports on first use what forward AD needs
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # its own call
def test_linear_with_a_bias_that_has_a_tangent_counts_no_version() -> None:
    x, weight, bias = torch.ones(4), torch.ones(3, 4), torch.tensor(1.0)
    with torch.autograd.forward_ad.dual_level():
        plain = torch.nn.functional.linear(
            x, weight, torch.autograd.forward_ad.make_dual(bias, bias)
        )
        dual = torch.autograd.forward_ad.make_dual(Measured(bias), Measured(bias))
        y = torch.nn.functional.linear(Measured(x), Measured(weight), dual)
        assert y._version == plain._version == 0


def test_setting_data_takes_over_metadata_of_a_wrapper() -> None:
    x = Measured(torch.ones(1))
    x.data = metre(3)
    assert x.unit is Unit.METRE
    assert x.shape == (3,)


def test_foreach_counts_versions_and_leaves_plain_results_plain() -> None:
    xs: list[Any] = [metre(1), torch.ones(1)]
    versions = [x._version for x in xs]
    torch._foreach_add_(xs, 1)
    assert [x._version for x in xs] == [version + 1 for version in versions]
    assert [type(x) for x in torch._foreach_mul(xs, 2)] == [Measured, torch.Tensor]


def test_foreach_counts_once_for_each_view_of_one_tensor() -> None:
    x, plain = metre(2, 3), torch.ones(2, 3)
    torch._foreach_add_([x[0], x[1]], 1)
    plain[0].add_(1)
    plain[1].add_(1)
    assert x._version == x.elem._version == plain._version


@pytest.mark.parametrize("context", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_kept_composite_that_copied_gives_no_view(context: Any) -> None:
    x = Measured(torch.randn(3, 4), requires_grad=True)
    kept = [torch.ops.aten.reshape, torch.ops.aten.to, torch.ops.aten.contiguous]
    with context(), keep_composite(*kept):
        for copied in (x.t().reshape(-1), x.t().contiguous(), x.to(torch.float64)):
            assert not torch._C._is_alias_of(copied, x)  # type: ignore[attr-defined]
            assert copied.requires_grad is (context is torch.enable_grad)
            with torch.no_grad():
                copied.zero_()
        view = x.reshape(-1)
    assert torch._C._is_alias_of(view, x)  # type: ignore[attr-defined]
    assert x._version == 0
    assert bool((x.elem != 0).all())


def test_foreach_change_is_noticed_by_autograd() -> None:
    x = Measured(torch.ones(1), requires_grad=True)
    y = x * 1
    z = y * y
    torch._foreach_add_([y], 1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_conjugate_and_negative_bits_are_those_of_the_inner_tensor() -> None:
    x = Measured(torch.tensor([2 + 3j])).conj()
    assert x.is_conj()
    assert x.elem.is_conj()  # type: ignore[attr-defined]
    assert (Measured(torch.tensor([1 + 1j])) * x).elem.item() == 5 - 1j  # type: ignore[attr-defined]
    assert x.imag.is_neg()
    assert x.imag.elem.item() == -3  # type: ignore[attr-defined]


def test_negative_view_of_a_plain_tensor_has_the_bit() -> None:
    x = metre(2)._neg_view()
    assert x.is_neg()
    assert x.elem.is_neg()  # type: ignore[attr-defined]
    assert (x + 0).elem.tolist() == [-1.0, -1.0]  # type: ignore[attr-defined]


def test_view_of_a_wrapper_from_outside_under_inference_mode() -> None:
    x = metre(4)
    with torch.inference_mode():
        y, z = x[1:], x + 1
        assert not y.is_inference()
        assert z.is_inference()
        inside = metre(2)
    assert inside.is_inference()
    assert inside.elem.is_inference()
    y.add_(1)
    assert x._version == y._version == 1


def test_wrappers_nest_the_outer_class_first() -> None:
    x = Measured(LoggingTensor(torch.ones(2)), Unit.METRE)
    y = x * 2
    assert type(y) is Measured
    assert type(y.elem) is LoggingTensor
    assert y.elem.elem.tolist() == [2.0, 2.0]
    x.add_(1)
    assert x.elem.elem.tolist() == [2.0, 2.0]  # type: ignore[attr-defined]


def test_split_by_a_wrapped_tensor_of_indices() -> None:
    parts = torch.tensor_split(metre(4), Measured(torch.tensor([1, 3])))
    assert [part.shape[0] for part in parts] == [1, 2, 1]


@pytest.fixture
def library() -> Any:
    """Two operators that write, whose author left versions and gradients to torch."""
    name = "tests_of_versions"
    with torch.library._scoped_library(name, "DEF") as library:
        library.define("add_(Tensor(a!) self, Tensor other) -> Tensor(a!)")
        library.impl("add_", lambda self, other: self.add_(other), "CPU")
        library.define("add_into(Tensor self, *, Tensor(a!) out) -> Tensor(a!)")
        library.impl("add_into", lambda self, out: out.add_(self), "CPU")
        yield getattr(torch.ops, name)


@pytest.mark.parametrize("wrap", [Measured, ScaledOnPlain.from_plain, WithOwnWrite])
def test_writes_of_operators_of_a_library_are_counted(library: Any, wrap: Any) -> None:
    implements: Any = WithOwnWrite.table.implements(library.add_.default)
    implements(_add)
    x, y = wrap(torch.ones(3)), torch.ones(3)
    view = x.detach()[1:]
    assert library.add_(x, y) is x
    assert x._version == view._version == 1
    library.add_(view, wrap(torch.ones(2)))
    library.add_into(y, out=x)
    assert x._version == view._version == 3
    assert x.to_plain().tolist() == [3.0, 4.0, 4.0]
    library.add_(y, x)
    assert y._version == 1


@pytest.mark.parametrize("wrap", [Measured, ScaledOnPlain.from_plain])
def test_autograd_notices_what_an_operator_of_a_library_wrote(library: Any, wrap: Any) -> None:
    x = wrap(torch.ones(3)).requires_grad_()
    y = x.clone()
    squared = (y * y).sum()
    library.add_(y.detach(), torch.ones(3))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        squared.backward()
