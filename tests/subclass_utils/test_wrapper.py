"""What travels along with a wrapper, and what a class gets whose outside differs."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from dispatch_core import NoHandlerError, enable_python_mode

from tests.subclass_utils.wrappers import (
    Measured,
    Origin,
    Scaled,
    ScaledOnPlain,
    Unit,
    metre,
    scaled,
)

# ── metadata ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x.detach(),
        lambda x: x.clone(),
        lambda x: x.to(torch.float64),
        lambda x: x.view(-1),
        lambda x: x[0],
        lambda x: x + 1,
        lambda x: x * torch.ones(2, 2),
        lambda x: torch.ones(2, 2) * x,
        lambda x: torch.nn.Parameter(x),
        lambda x: torch.split(x, 1)[0],
        lambda x: torch.max(x, 0)[1],
        lambda x: torch.empty_like(x),
        lambda x: x.data,
    ],
)
def test_metadata_is_carried_along(operation: Any) -> None:
    result = operation(metre(2, 2))
    assert type(result) is Measured
    assert result.unit is Unit.METRE
    assert result.origin == Origin("here")


def test_metadata_of_the_first_wrapper_counts() -> None:
    a, b = metre(1), Measured(torch.ones(1), Unit.SECOND)
    assert (a + b).unit is Unit.METRE  # type: ignore[attr-defined]
    assert (b + a).unit is Unit.SECOND  # type: ignore[attr-defined]


def test_metadata_falls_back_to_the_class_where_no_wrapper_says_it() -> None:
    with enable_python_mode(Measured):
        assert torch.ones(1).unit is None  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (lambda x: x.new_tensor([1, 2]), [1.0, 2.0]),
        (lambda x: x.new([1.0, 2.0]), [1.0, 2.0]),
        (lambda x: x.new_tensor([1], dtype=torch.int64), [1]),
        (lambda x: x.new_ones(2), [1.0, 1.0]),
        (lambda x: x.new_full((1,), 3.0), [3.0]),
    ],
)
def test_new_tensors_are_wrapped_with_the_metadata(make: Any, values: list[Any]) -> None:
    made = make(metre(3))
    assert type(made) is Measured
    assert made.unit is Unit.METRE
    assert made.elem.tolist() == values


def test_operators_outside_the_specs_are_wrapped_too() -> None:
    with torch.library._scoped_library("subclass_utils_test", "DEF") as library:
        library.define("twice(Tensor x, Tensor(a!) log) -> (Tensor, Tensor)")
        library.impl(
            "twice",
            lambda x, log: (x * 2, log.add_(1) * 1),
            "CompositeExplicitAutograd",
        )
        log = metre(1)
        first, second = torch.ops.subclass_utils_test.twice(metre(1), log)
    assert (type(first), type(second)) == (Measured, Measured)
    assert log.elem.tolist() == [2.0]


# ── where the outside differs ───────────────────────────────────────────────────────────────────


def test_operator_without_handler_names_what_to_register() -> None:
    with pytest.raises(NoHandlerError) as caught:
        scaled(1.0) + 1
    assert str(caught.value) == (
        "aten::add.Tensor: Scaled has no handler for it. Register one with "
        "@Scaled.table.implements(torch.ops.aten.add.Tensor), or declare "
        'without_handler = "to_plain", to run such operators on to_plain().'
    )


def test_comparison_without_handler_does_not_answer_false() -> None:
    with pytest.raises(NoHandlerError):
        operator.eq(scaled(1.0), 1)


def test_operator_on_plain_gives_plain_and_writes_back() -> None:
    x = ScaledOnPlain.from_plain(torch.tensor([1.0, 2.0]))
    assert type(x + 1) is torch.Tensor
    assert (x + 1).tolist() == [2.0, 3.0]
    assert x.add_(1) is x
    assert x.numbers.tolist() == [4, 6]


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x.detach(),
        lambda x: x.clone(),
        lambda x: x.to("cpu", copy=True),
        lambda x: x.to(torch.float64),
        lambda x: torch.nn.Parameter(x),
        lambda x: x.data,
    ],
)
def test_what_keeps_the_value_keeps_the_class(operation: Any) -> None:
    x = Scaled.from_plain(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    x.bits = 4
    y = operation(x)
    assert type(y) is Scaled
    assert y.bits == (4 if y.dtype is x.dtype else 8)  # its from_plain gives what it was not told
    assert y.to_plain().tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert y.shape == (2, 2)


def test_copy_into_a_wrapper_converts_plain_values() -> None:
    x = scaled(1.0, 2.0)
    x.copy_(torch.tensor([3.0, 4.0]))
    assert x.numbers.tolist() == [6, 8]
    x.copy_(scaled(5.0, 6.0))
    assert x.to_plain().tolist() == [5.0, 6.0]
    plain = torch.zeros(2)
    plain.copy_(x)
    assert plain.tolist() == [5.0, 6.0]


def test_registered_handler_gets_plain_and_wrapped_arguments_as_they_are() -> None:
    weight = Scaled.from_plain(torch.eye(2))
    assert (torch.ones(1, 2) @ weight).tolist() == [[1.0, 1.0]]


class WithoutStrides(ScaledOnPlain):
    """Its `__new__` says no strides, so a new one is contiguous."""

    @staticmethod
    def __new__(cls: type[Any], numbers: torch.Tensor, scale: torch.Tensor, bits: int = 8) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, numbers.size(), dtype=scale.dtype)


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("cls", [ScaledOnPlain, WithoutStrides])
@pytest.mark.parametrize("context", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.t_(),
        lambda x: x.unsqueeze_(0),
        lambda x: x.swapaxes_(0, 1),
        lambda x: x.resize_(6),
        lambda x: x.resize_as_(torch.ones(6)),
        lambda x: x.set_(torch.ones(4)),
        lambda x: x.set_(torch.ones(6)[2:]),
        lambda x: torch.add(torch.ones(4), 1, out=x),
    ],
)
def test_outside_follows_what_was_written_on_the_plain_tensor(
    write: Any, context: Any, cls: Any
) -> None:
    plain = torch.arange(6.0).view(2, 3)
    x = cls.from_plain(plain)
    with context():
        write(x)
        write(plain)
    assert (x.size(), x.stride()) == (plain.size(), plain.stride())
    assert x.storage_offset() == plain.storage_offset()
    assert x.numbers.size() == plain.size()
    assert torch.equal(x.to_plain(), plain)


def test_foreach_on_plain_tensors_counts_a_version() -> None:
    a = torch.ones(2, requires_grad=True)
    b = ScaledOnPlain.from_plain(torch.ones(2))
    y = (a * b).sum()
    with torch.no_grad():
        torch._foreach_mul_([b], 3.0)
    assert b._version == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()
