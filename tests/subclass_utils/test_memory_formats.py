"""A copy in a memory format has it outside and inside, as the plain copy has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from subclass_utils import WrapperTensor

from tests.subclass_utils.wrappers import Requantised, RequantisedInParts, ScaledOnPlain

aten = torch.ops.aten


class Affine(WrapperTensor):
    """Numbers of the outside's size, and an addend for each row; views are views of both."""

    inner_tensors = ("numbers", "addends")
    without_handler = "to_plain"
    numbers: torch.Tensor
    addends: torch.Tensor

    @staticmethod
    def __new__(cls: Any, numbers: torch.Tensor, addends: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            cls,
            numbers.size(),
            strides=numbers.stride(),
            storage_offset=numbers.storage_offset(),
            dtype=numbers.dtype,
        )

    def to_plain(self) -> torch.Tensor:
        return self.numbers + self.addends

    @classmethod
    def from_plain(cls, plain: torch.Tensor, like: Any = None) -> Any:
        addends = plain.new_ones((*plain.size()[:-1], 1))
        return cls(plain - addends, addends)


@Affine.table.implements(aten.permute.default)
def _permute(self: Any, dims: Any) -> Any:
    return Affine(self.numbers.permute(dims), self.addends.permute(dims))


@Affine.table.implements(aten.view.default)
def _view(self: Any, size: Any) -> Any:
    return Affine(self.numbers.view(size), self.addends.expand_as(self.numbers).reshape(size))


COPIES: dict[str, Callable[..., Any]] = {
    "clone": lambda x, wanted: x.clone(memory_format=wanted),
    "to": lambda x, wanted: x.to("cpu", copy=True, memory_format=wanted),
    "to another dtype": lambda x, wanted: x.to(torch.float64, memory_format=wanted),
    "contiguous": lambda x, wanted: x.contiguous(memory_format=wanted),
    "float": lambda x, wanted: x.float(memory_format=wanted),
    "empty_like": lambda x, wanted: torch.empty_like(x, memory_format=wanted),
    "ones_like": lambda x, wanted: torch.ones_like(x, memory_format=wanted),
}
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda x: x,
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "permuted": lambda x: x.permute(3, 2, 0, 1),
    "every second": lambda x: x[:, :, ::2],
}
FORMATS = (torch.contiguous_format, torch.preserve_format, torch.channels_last)


def laid_out(layout: str) -> torch.Tensor:
    return LAYOUTS[layout](torch.arange(240.0).view(2, 3, 4, 10) - 50)


def wrapped(cls: Any, layout: str) -> Any:
    if layout == "every second":  # from_plain takes no gaps over
        return LAYOUTS[layout](cls.from_plain(laid_out("contiguous")))
    return cls.from_plain(laid_out(layout))


def value_of(tensor: Any) -> torch.Tensor:
    plain: torch.Tensor = tensor.to_plain() if isinstance(tensor, WrapperTensor) else tensor
    return plain


@pytest.mark.parametrize("wanted", FORMATS)
@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("cls", [Requantised, RequantisedInParts, Affine])
def test_copy_lies_as_the_plain_one_outside_and_inside(cls: Any, name: str, wanted: Any) -> None:
    for layout in LAYOUTS:
        plain = laid_out(layout)
        if name == "contiguous" and wanted is torch.preserve_format:
            continue  # torch refuses it
        want = COPIES[name](plain, wanted)
        got = COPIES[name](wrapped(cls, layout), wanted)
        assert (got.size(), got.stride(), got.storage_offset(), got.dtype) == (
            (want.size(), want.stride(), want.storage_offset(), want.dtype)
        ), (layout, wanted)
        if isinstance(got, cls):
            assert got.numbers.stride() == want.stride(), (layout, wanted)
        if name != "empty_like":
            assert torch.allclose(value_of(got), want, atol=0.01)


def test_every_inner_tensor_of_a_contiguous_copy_is_contiguous() -> None:
    x: Any = Affine.from_plain(laid_out("contiguous")).permute(3, 2, 0, 1)
    for copy in (x.contiguous(), x.to("cpu", copy=True, memory_format=torch.contiguous_format)):
        assert copy.addends.is_contiguous()
    assert not x.clone().addends.is_contiguous()


@pytest.mark.parametrize("cls", [RequantisedInParts, Affine])
def test_contiguous_copy_of_a_view_is_viewed_by_the_handler(cls: Any) -> None:
    plain = torch.arange(12.0).view(3, 4) - 2
    for whole in (cls.from_plain(plain.t()), cls.from_plain(plain).permute(1, 0)):
        x = whole.contiguous()
        for view in (x.view(-1), x.reshape(12), x.flatten()):
            assert torch.allclose(value_of(view), plain.t().reshape(-1), atol=0.01)
        assert x.transpose(0, 1).stride() == (1, 3)
        assert x[1:].is_contiguous()


def test_copy_in_a_format_of_inner_tensors_of_other_sizes_and_layouts() -> None:
    x = ScaledOnPlain.from_plain(laid_out("contiguous"))
    copy: Any = x.contiguous(memory_format=torch.channels_last)
    assert copy.scale.size() == ()
    assert copy.numbers.is_contiguous(memory_format=torch.channels_last)

    class Sparse(WrapperTensor):
        inner_tensors = ("values_",)
        without_handler = "to_plain"
        values_: torch.Tensor

        @staticmethod
        def __new__(cls: Any, values_: torch.Tensor) -> Any:
            return torch.Tensor._make_wrapper_subclass(cls, values_.size(), dtype=values_.dtype)

        def to_plain(self) -> torch.Tensor:
            return self.values_.to_dense()

        @classmethod
        def from_plain(cls, plain: torch.Tensor, like: Any = None) -> Any:
            return cls(plain.to_sparse())

    sparse: Any = Sparse.from_plain(torch.eye(3))
    made = sparse.clone(memory_format=torch.contiguous_format)
    assert torch.equal(made.to_plain(), torch.eye(3))


def test_module_of_wrappers_in_a_format() -> None:
    module: Any = torch.nn.Conv2d(3, 2, 4)
    want = module.weight.detach().clone()
    module.weight = torch.nn.Parameter(Requantised.from_plain(want))
    module.to(memory_format=torch.channels_last)
    want = want.contiguous(memory_format=torch.channels_last)
    assert module.weight.stride() == module.weight.numbers.stride() == want.stride()


def test_resize_in_a_format() -> None:
    plain = torch.zeros(2, 3, 4, 5)
    x = Requantised.from_plain(plain.clone())
    for tensor in (plain, x):
        tensor.resize_(1, 2, 3, 4, memory_format=torch.channels_last)
    assert x.stride() == x.numbers.stride() == plain.stride()


@pytest.mark.slow
def test_compiled_contiguous_copy_lies_as_the_plain_one() -> None:
    x = RequantisedInParts.from_plain(torch.arange(12.0).view(3, 4))
    got = torch.compile(lambda x: x.t().contiguous(), backend="aot_eager", fullgraph=True)(x)
    assert got.stride() == (3, 1)
    assert got.numbers.stride() == (3, 1)
