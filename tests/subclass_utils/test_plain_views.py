"""Views of wrappers that go by their plain value read and write the wrapper."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from subclass_utils import DeclarationError, PlainView, ResizeError, ViewError, WrapperTensor

from tests.subclass_utils.wrappers import (
    ComplexPair,
    Halves,
    Requantised,
    RequantisedInParts,
    ScaledOnPlain,
)

aten = torch.ops.aten
CONTEXTS = [torch.enable_grad, torch.no_grad, torch.inference_mode]


def real() -> torch.Tensor:
    return torch.arange(24.0).view(4, 6) - 9


def set_item(x: Any, index: Any, value: Any) -> None:
    x[index] = value


WRITES: dict[str, Callable[[Any], Any]] = {
    "x[0] = number": lambda x: set_item(x, 0, 5.0),
    "x[1, 2] = number": lambda x: set_item(x, (1, 2), 5.0),
    "x[:, 1] = tensor": lambda x: set_item(x, (slice(None), 1), torch.arange(4.0)),
    "x[...] = number": lambda x: set_item(x, ..., 2.0),
    "x[0] += number": lambda x: set_item(x, 0, x[0].add_(1)),
    "slice": lambda x: x[1:].add_(1),
    "slice of a slice": lambda x: x[1:][:, ::2].mul_(2),
    "slice of a transposed one": lambda x: x.t()[2:].sub_(3),
    "t": lambda x: x.t().zero_(),
    "t of t": lambda x: x.t().t().add_(1),
    "copy_ into t": lambda x: x.t().copy_(torch.ones(6, 4)),
    "diagonal": lambda x: x.diagonal().zero_(),
    "reshape": lambda x: x.reshape(-1).zero_(),
    "view": lambda x: x.view(2, 12)[1].fill_(4),
    "flatten": lambda x: x.flatten()[3:5].fill_(4),
    "unsqueeze": lambda x: x.unsqueeze(0).add_(1),
    "permute": lambda x: x.permute(1, 0)[1].add_(1),
    "narrow": lambda x: x.narrow(1, 2, 2).add_(1),
    "as_strided": lambda x: x.as_strided((2, 2), (1, 6), 3).add_(1),
    "unfold": lambda x: x.unfold(1, 2, 2)[0].add_(1),
    "split": lambda x: x.split(2)[1].add_(1),
    "chunk": lambda x: x.chunk(2, 1)[0].add_(1),
    "unbind": lambda x: x.unbind()[2].add_(1),
    "iteration": lambda x: [row.add_(1) for row in x],
    "t_ of a view": lambda x: x[1:3].t_().add_(1),
    "unsqueeze in place on a view": lambda x: x[1].unsqueeze_(0).add_(1),
    "detach": lambda x: x.detach()[0].add_(1),
    "detach, whole": lambda x: x.detach().mul_(2),
    "view of detach": lambda x: x[1:].detach().mul_(2),
    "out=": lambda x: torch.add(torch.ones(6), 1, out=x[2]),
    "out= into a slice": lambda x: torch.neg(torch.ones(2, 6), out=x[2:]),
    "foreach": lambda x: torch._foreach_add_([x[0], x[1], torch.ones(2)], 1),
    "foreach on parts": lambda x: torch._foreach_mul_([x[1:], x.t()], 2),
    "from itself": lambda x: x[0].copy_(x[1]),
    "from the whole": lambda x: x[0].add_(x.mean()),
    "whole from a view": lambda x: x.add_(x[0].clone()),
    "whole and part in one list": lambda x: torch._foreach_add_([x[0], x, x[0], x.t()], 1),
    "part and whole in one list": lambda x: torch._foreach_mul_([x, x[1:], x[1]], 2),
    "masked": lambda x: x[1].masked_fill_(x[1] > 2, 0.0),
    "index_put_": lambda x: x.t().index_put_((torch.tensor([0]),), torch.tensor(3.0)),
    "index_fill_": lambda x: x[1:].index_fill_(1, torch.tensor([0, 1]), -1.0),
    "relu in place": lambda x: torch.nn.functional.relu(x[:2], inplace=True),
    "addmm_": lambda x: x[:2, :2].addmm_(torch.ones(2, 3), torch.ones(3, 2)),
    "set through a view of another dtype": lambda x: x.view(torch.int32)[0].zero_(),
    "two views in turn": lambda x: (x[0].add_(1), x[1].add_(x[0])),
    "copy_ of the whole": lambda x: x.copy_(torch.ones(4, 6)),
    "tensor_split": lambda x: x.tensor_split(3)[1].add_(1),
    "expand": lambda x: x[:1].expand(1, 6).add_(1),
    "_reshape_alias": lambda x: aten._reshape_alias(x, [24], [1]).add_(1),
}
COMPLEX: dict[str, Callable[[Any], Any]] = {
    "conj add_": lambda x: x.conj().add_(1j),
    "conj copy_": lambda x: x.conj().copy_(torch.full((2, 3), 1 + 2j)),
    "conj of a part": lambda x: x[0].conj().mul_(1j),
    "imag": lambda x: x.imag.mul_(2),
    "real": lambda x: x.real.zero_(),
    "imag of conj": lambda x: x.conj().imag.add_(1),
    "view_as_real": lambda x: torch.view_as_real(x)[0, :, 1].fill_(3),
    "mH": lambda x: x.mH.mul_(1j),
    "conj[0] = number": lambda x: set_item(x.conj(), 0, 2j),
    "copy_ of conj": lambda x: x.copy_(x.conj()),
    "neg view": lambda x: torch._neg_view(x).add_(1),
}
CASES = [
    *((cls, name) for cls in (ScaledOnPlain, Requantised, RequantisedInParts) for name in WRITES),
    *((ComplexPair, name) for name in COMPLEX),
]


def value_of(x: Any) -> torch.Tensor:
    while isinstance(x, WrapperTensor):
        x = x.to_plain()
    assert type(x) is torch.Tensor
    return x.resolve_conj().resolve_neg()


def same(got: Any, wanted: torch.Tensor) -> bool:
    """Say whether values agree, but for what whole numbers cannot hold."""
    return got.size() == wanted.size() and torch.allclose(
        value_of(got), wanted.resolve_conj(), atol=0.01
    )


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize(("cls", "name"), CASES)
def test_write_through_a_view_reaches_the_wrapper(cls: Any, name: str, context: Any) -> None:
    plain, write = real(), WRITES.get(name) or COMPLEX[name]
    if cls is ComplexPair:
        plain = torch.complex(plain, plain.flip(0))[:2, :3].clone()
    x = cls.from_plain(plain)
    plain = x.to_plain().clone()
    version = x._version
    with context():
        wanted = write(plain)
        if cls is RequantisedInParts and name == "t_ of a view":
            with pytest.raises(ViewError, match="cannot reach that one"):
                write(x)
            return
        got = write(x)
    assert same(x, plain)
    if not (context is torch.inference_mode and "another dtype" in name):  # torch counts none
        assert x._version - version == plain._version
    if isinstance(wanted, torch.Tensor):
        assert same(got, wanted)
        assert (got.stride(), got.storage_offset()) == (wanted.stride(), wanted.storage_offset())


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.add_(x[0]),
        lambda x: x[1].expand(4, 6).add_(1),
        lambda x: torch.add(x[1:], 1, out=x[:3]),
        lambda x: x[0].copy_(x),
    ],
)
@pytest.mark.parametrize("cls", [ScaledOnPlain, Requantised, RequantisedInParts])
def test_write_that_torch_refuses_is_refused(cls: Any, write: Any) -> None:
    x = cls.from_plain(real())
    with pytest.raises(RuntimeError) as wanted:
        write(real())
    with pytest.raises(RuntimeError) as got:
        write(x)
    assert str(got.value) == str(wanted.value)
    assert same(x, real())


@pytest.mark.parametrize("cls", [ScaledOnPlain, Requantised, RequantisedInParts])
def test_view_shows_what_the_wrapper_was_given_since(cls: Any) -> None:
    x = cls.from_plain(real())
    views = [x[1], x.t(), x[1:], x.detach(), x.split(2)[1], x.t()[2]]
    kept = real()
    plain_views = [kept[1], kept.t(), kept[1:], kept.detach(), kept.split(2)[1], kept.t()[2]]
    for tensor in (x, kept):
        tensor.mul_(3)
    assert all(map(same, views, plain_views))
    assert all(view._version == x._version for view in views)


@pytest.mark.parametrize("cls", [ScaledOnPlain, Requantised])
def test_view_is_one_to_autograd(cls: Any) -> None:
    x = cls.from_plain(real())
    view = x[1:].t()
    assert type(view) is PlainView
    assert isinstance(view, torch.Tensor)
    assert view._is_view()
    assert view._base is x
    assert torch._C._is_alias_of(view, x)  # type: ignore[attr-defined]
    assert type(view + 1) is torch.Tensor
    assert type(view.clone()) is torch.Tensor


def test_write_through_a_view_is_differentiated() -> None:
    gradients = []
    for x in (real().requires_grad_(), ScaledOnPlain.from_plain(real()).requires_grad_()):
        whole = x.clone()
        whole[0] = 5.0
        whole[1:].mul_(3)
        whole.t()[2].add_(x.t()[1])
        (whole.to(torch.float32) * torch.arange(6.0)).sum().backward()
        gradients.append(x.grad)
    assert gradients[0] is not None
    assert gradients[1] is not None
    assert same(gradients[1], gradients[0])


def test_write_through_a_view_is_noticed_by_autograd() -> None:
    a = torch.ones(4, 6, requires_grad=True)
    x = Requantised.from_plain(real())
    product = (a * x).sum()
    x[0].zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_view_of_a_leaf_that_requires_grad_is_not_written() -> None:
    x = Requantised.from_plain(real()).requires_grad_()
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        x[0] = 1.0
    parameter = torch.nn.Parameter(Requantised.from_plain(real()))
    with torch.no_grad():
        parameter[0] = 0
    assert value_of(parameter)[0].tolist() == [0.0] * 6


@pytest.mark.parametrize("write", [lambda x: x[0].zero_(), lambda x: x.mul_(2)])
@pytest.mark.parametrize("cls", [ScaledOnPlain, Requantised])
def test_inner_tensors_count_writes_too(cls: Any, write: Any) -> None:
    x = cls.from_plain(real())
    version = x.numbers._version
    write(x)
    assert x.numbers._version > version


def test_data_of_a_view_writes_without_a_version() -> None:
    x, plain = Requantised.from_plain(real()), real()
    for tensor in (x, plain):
        tensor[1].data.add_(2)
        tensor.data[2].add_(2)
    assert same(x, plain)
    assert x._version == plain._version == 0


# ── further on ──────────────────────────────────────────────────────────────────────────────────


def save_and_load(view: Any) -> Any:
    file = io.BytesIO()
    torch.save(view, file)
    file.seek(0)
    return torch.load(file)


@pytest.mark.parametrize(
    "way", [copy.copy, copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v)), save_and_load]
)
@pytest.mark.parametrize("view", [lambda x: x[1:, ::2], lambda x: x.t(), lambda x: x[2, 3]])
def test_view_is_copied_and_saved(view: Any, way: Any) -> None:
    x = Requantised.from_plain(real())
    other = way(view(x))
    assert type(other) is PlainView
    assert same(other, view(real()))
    other.zero_()
    assert same(other, torch.zeros(other.size()))
    if way is not copy.copy:
        assert same(x, real())


@pytest.mark.parametrize("cls", [ScaledOnPlain, Requantised, RequantisedInParts])
@pytest.mark.parametrize("part", [lambda x: x, lambda x: x[1:], lambda x: x.t()])
def test_shallow_copy_shares_the_data(cls: Any, part: Any) -> None:
    x, plain = cls.from_plain(real()), real()
    for tensor in (x, plain):
        copy.copy(part(tensor)).mul_(2)
    assert same(x, plain)


@pytest.mark.parametrize("wrap", [torch.nn.Parameter, lambda x: x.requires_grad_()])
def test_shallow_copy_of_a_view_that_requires_grad_reads_on(wrap: Any) -> None:
    x: Any = ScaledOnPlain.from_plain(torch.ones(3))
    view = wrap(x[1:])
    other = copy.copy(view)
    x.add_(1)
    assert type(other) is PlainView
    assert other.requires_grad
    assert other.to_plain().tolist() == view.to_plain().tolist() == [2.0, 2.0]


def test_shallow_copy_of_compressed_data_takes_its_source_along() -> None:
    x = sparse()
    copy.copy(x).add_(1)
    assert x.to_plain().tolist() == [1.0, 3.0, 1.0, 5.0]


def test_conjugated_view_is_copied() -> None:
    x = ComplexPair.from_plain(torch.tensor([1 + 2j, 3 - 1j]))
    other = save_and_load(x.conj())
    assert other.is_conj()
    assert value_of(other).tolist() == [1 - 2j, 3 + 1j]


def test_view_shows_its_values() -> None:
    x = ScaledOnPlain.from_plain(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert repr(x[1]) == "PlainView(tensor([3., 4.]))"
    assert f"{x[1, 0]:.1f}" == "3.0"
    assert x[1].tolist() == [3.0, 4.0]
    assert x[1, 1].item() == 4.0


def test_view_under_inference_mode_of_a_wrapper_from_outside() -> None:
    x = Requantised.from_plain(real())
    with torch.inference_mode():
        inside = Requantised.from_plain(real())
        assert not x[0].is_inference()
        assert inside[0].is_inference()


# ── what cannot be ──────────────────────────────────────────────────────────────────────────────


class Sparse(WrapperTensor):
    """The values that are not zero, and where they are: another value has more or fewer of them."""

    values_: torch.Tensor
    places: torch.Tensor
    length: int

    inner_tensors = ("values_", "places")
    metadata = ("length",)
    without_handler = "to_plain"

    @staticmethod
    def __new__(cls: type[Any], values: torch.Tensor, places: torch.Tensor, length: int) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, (length,), dtype=values.dtype)

    def to_plain(self) -> torch.Tensor:
        return self.values_.new_zeros(self.length).index_put_((self.places,), self.values_)

    @classmethod
    def from_plain(cls, plain: torch.Tensor, like: Any = None) -> Any:
        places = plain.nonzero().flatten()
        return cls(plain[places], places, plain.size(0))


def sparse() -> Any:
    return Sparse.from_plain(torch.tensor([0.0, 2.0, 0.0, 4.0]))


def test_view_of_compressed_data_writes_the_whole() -> None:
    x = sparse()
    x[0] = 5.0
    x[1:].zero_()
    assert x.to_plain().tolist() == [5.0, 0.0, 0.0, 0.0]
    assert x.values_.size() == (1,)


def test_detached_compressed_data_and_its_source_follow_each_other() -> None:
    x = sparse()
    detached: Any = x.detach()
    detached.add_(1)
    assert x.to_plain().tolist() == detached.to_plain().tolist() == [1.0, 3.0, 1.0, 5.0]
    x.zero_()
    assert x.to_plain().tolist() == detached.to_plain().tolist() == [0.0] * 4
    x.data.add_(1)
    assert x.to_plain().tolist() == detached.to_plain().tolist() == [1.0] * 4


@pytest.mark.parametrize("change", [lambda x: x.resize_(4), lambda x: x.t_()])
def test_shape_of_what_came_from_data_is_not_changed(change: Any) -> None:
    x = Requantised.from_plain(real())
    with pytest.raises(ResizeError, match=r"came from `.data`"):
        change(x.data)
    assert same(x, real())
    detached: Any = x.detach()
    change(detached)
    assert detached.size() == detached.numbers.size() == detached.to_plain().size()
    assert same(x, real())


@pytest.mark.parametrize(
    "change",
    [
        lambda view: view.resize_(40),
        lambda view: view.set_(torch.ones(3)),
        lambda view: setattr(view, "data", torch.ones(3)),
        lambda view: torch.add(torch.ones(9), 1, out=view),
    ],
)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_view_takes_no_other_memory(change: Any) -> None:
    x = Requantised.from_plain(real())
    view = x[0]
    with pytest.raises(ViewError):
        change(view)
    assert same(view, real()[0])
    assert same(x, real())


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.set_(torch.ones(4, 6)),
        lambda x: setattr(x, "data", torch.ones(4, 6)),
        lambda x: x.resize_(2),
    ],
)
def test_view_of_what_was_given_other_data_says_so(change: Any) -> None:
    x = Requantised.from_plain(real())
    view = x[0]
    change(x)
    with pytest.raises(ViewError, match="take the view again"):
        view + 1
    with pytest.raises(ViewError, match="take the view again"):
        view.zero_()


def test_shape_of_what_others_share_is_not_changed_in_place() -> None:
    x = Requantised.from_plain(real())
    detached = x.detach()
    with pytest.raises(ViewError, match="cannot follow a change of its shape"):
        x.t_()
    detached.t_()
    assert same(detached, real().t())
    with pytest.raises(ViewError, match="cannot reach that one"):
        detached.zero_()
    with pytest.raises(ViewError, match="was changed in place"):
        x.zero_()
    assert same(x, real())


def test_from_plain_that_makes_another_dtype_is_named() -> None:
    class OneDtype(Requantised):
        @classmethod
        def from_plain(cls, plain: torch.Tensor, like: Any = None) -> Any:
            return super().from_plain(plain.float(), like)

    x: Any = OneDtype.from_plain(real())
    for dtype in (torch.float16, torch.float64, torch.bfloat16):
        with pytest.raises(DeclarationError, match=r"OneDtype.from_plain made torch.float32") as e:
            x.to(dtype)
        assert "let it keep the dtype" in str(e.value)
        assert "handler for aten::_to_copy" in str(e.value)


def test_from_plain_that_makes_another_size_is_named() -> None:
    class Rows(Requantised):
        @classmethod
        def from_plain(cls, plain: torch.Tensor, like: Any = None) -> Any:
            return super().from_plain(plain.reshape(plain.size(0), -1), like)

    x: Any = Rows.from_plain(real())
    with pytest.raises(DeclarationError, match=r"Rows.from_plain made .* and size \(1, 24\)") as e:
        torch.utils.data.default_collate([x])
    assert "register a handler for the operator" in str(e.value)
    assert "aten::stack" in str(e.value)


def test_to_plain_that_is_not_what_the_outside_says_is_named() -> None:
    class Lying(Requantised):
        def to_plain(self) -> torch.Tensor:
            return super().to_plain().double()

    with pytest.raises(DeclarationError, match=r"Lying.to_plain made torch.float64 .* of torch.fl"):
        Lying.from_plain(real()) + 1


@pytest.mark.parametrize(
    "view",
    [
        lambda tensor: tensor.t()[:1],
        lambda tensor: tensor.t()[:, 1:],
        lambda tensor: tensor.t().unsqueeze(0),
        lambda tensor: tensor[1][1:],
        lambda tensor: tensor[:, 1][1:],
        lambda tensor: tensor.t()[1][1:].view(3, 1),
        lambda tensor: tensor.t()[1:].t()[1:],
    ],
)
@pytest.mark.parametrize(
    "write",
    [
        lambda view, whole: view.mul_(10),
        lambda view, whole: view.copy_(-view.clone()),
        lambda view, whole: torch._foreach_add_([view, whole], 3),
        lambda view, whole: torch.add(view, 7, out=view),
        lambda view, whole: whole.fill_(5),
    ],
)
def test_view_of_a_handlers_view_writes_where_it_is(view: Any, write: Any) -> None:
    numbers = torch.arange(12.0).view(4, 3)
    whole, part = (one := Halves.from_plain(numbers.clone())), view(one)
    write(part, whole)
    plain = numbers.clone()
    write(view(plain), plain)
    assert torch.equal(whole.to_plain(), plain)
    assert torch.equal(part.to_plain(), view(plain))


def test_place_outside_of_the_wrapper_is_named() -> None:
    x = Requantised.from_plain(torch.arange(6.0).view(2, 3))
    x.resize_(3)
    view = x[2:].as_strided((2,), (1,))
    with pytest.raises(ViewError, match=r"size \[2\], stride \[1\] and offset 2, lies outside"):
        view.to_plain()
