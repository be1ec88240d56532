"""Subclasses that derive from torch.Tensor directly, as their authors write them by hand."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from dispatch_core import no_dispatch
from torch.utils._pytree import tree_map

from tests.dispatch_core.wrapping import Direct


class OtherDevice(torch.Tensor):
    """Says that it is on the meta device; the tensor that it computes with is on the CPU."""

    elem: torch.Tensor

    @staticmethod
    def __new__(cls: Any, elem: torch.Tensor) -> Any:
        made = torch.Tensor._make_subclass(cls, elem.detach().to("meta"), elem.requires_grad)
        made.elem = elem.detach()
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        def unwrap(value: Any) -> Any:
            return value.elem if isinstance(value, OtherDevice) else value

        def wrap(value: Any) -> Any:
            return OtherDevice(value) if isinstance(value, torch.Tensor) else value

        with no_dispatch():
            result = func(*tree_map(unwrap, args), **tree_map(unwrap, kwargs or {}))
        return tree_map(wrap, result)


@pytest.mark.parametrize("seed", [None, 1.0, 3.0])
def test_subclass_of_another_device_has_the_gradients_of_the_plain_run(seed: float | None) -> None:
    values, others = torch.tensor([3.0, 4.0]), torch.tensor([-1.0, 0.5])
    plain_x, plain_y = values.clone().requires_grad_(), others.clone().requires_grad_()
    (plain_x * plain_y).sum().backward(None if seed is None else torch.tensor(seed))
    x, y = OtherDevice(values.clone().requires_grad_()), others.clone().requires_grad_()
    z = x * y
    assert type(z) is OtherDevice
    assert z.is_meta
    assert torch.equal(z.elem, values * others)
    z.sum().backward(None if seed is None else OtherDevice(torch.tensor(seed)))
    for have, want in ((x.grad, plain_x.grad), (y.grad, plain_y.grad)):
        assert isinstance(have, OtherDevice)
        assert want is not None
        assert torch.equal(have.elem, want)


class PlainEmpty(Direct):
    """Its `new_empty` gives what no_dispatch gives: a plain tensor."""


class OwnEmpty(Direct):
    """Its `new_empty` gives the class."""

    def new_empty(self, *args: Any, **kwargs: Any) -> Any:
        return super().new_empty(*args, **kwargs).as_subclass(OwnEmpty)


def test_deepcopy_where_new_empty_gives_a_plain_tensor_is_refused() -> None:
    x = torch.tensor([1.0, 2.0]).as_subclass(PlainEmpty)
    with pytest.raises(
        RuntimeError, match=r"new_empty\(\) .* returns another instance of the same"
    ):
        copy.deepcopy(x)


def test_deepcopy_where_new_empty_gives_the_class() -> None:
    x = torch.tensor([1.0, 2.0]).as_subclass(OwnEmpty)
    copied = copy.deepcopy(x)
    assert type(copied) is OwnEmpty
    assert copied is not x
    assert copied.data_ptr() != x.data_ptr()
    with no_dispatch():
        assert torch.equal(copied, x)


def test_complex_subclass_leaves_no_state_of_the_dispatcher() -> None:
    before = str(torch._C._dispatch_tls_local_exclude_set())
    plain = torch.tensor([1 + 2j, -1j])
    assert torch.equal(plain.as_subclass(Direct).conj().exp(), plain.conj().exp())
    assert str(torch._C._dispatch_tls_local_exclude_set()) == before
    assert torch._C._len_torch_dispatch_stack() == 0
    x = torch.ones(2).as_subclass(Direct)
    assert type(x + 1) is torch.Tensor


class AnswersItself(torch.Tensor):
    """Its handler answers every operator with the same thing."""

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return three(cls)


def three(cls: type[torch.Tensor]) -> Any:
    return torch.tensor(3.0).as_subclass(cls)


def test_new_tensor_of_a_handler_that_answers_one_thing_is_that_thing() -> None:
    made = three(AnswersItself).new_ones(3)
    assert type(made) is AnswersItself
    assert made.shape == ()


@pytest.mark.parametrize("name", ["empty", "ones", "rand", "randn", "zeros", "full", "randint"])
def test_factory_like_one_is_that_thing(name: str) -> None:
    more = {"full": (1.0,), "randint": (3,)}.get(name, ())
    made = getattr(torch, f"{name}_like")(three(AnswersItself), *more)
    assert type(made) is AnswersItself
    assert made.shape == ()


class AnswersNone(torch.Tensor):
    """Its handler gives None for an addition, and else what torch gives."""

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func.overloadpacket is torch.ops.aten.add:
            return None
        with no_dispatch():
            return func(*args, **(kwargs or {})).as_subclass(cls)


def test_handler_may_answer_none_but_a_backward_that_needs_more_says_so() -> None:
    x = torch.tensor([0.5]).as_subclass(AnswersNone)
    assert x + 2 is None
    out = x.requires_grad_().acos().sum()  # whose backward adds, then goes on
    with pytest.raises(RuntimeError, match="but got None"):
        out.backward()
