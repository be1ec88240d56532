"""enable_python_mode: a class answers everything, in the order of classes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from dispatch_core import (
    DispatchError,
    HandlerError,
    HandlerTable,
    NoHandlerError,
    enable_python_mode,
    no_dispatch,
)

from tests.dispatch_core.wrapping import Tabled, Wrapped


class A(torch.Tensor):
    """Answers everything with its own name."""

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        answered.append("A")
        with no_dispatch():
            return func(*args, **(kwargs or {}))


class B(A):
    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        answered.append("B")
        with no_dispatch():
            return func(*args, **(kwargs or {}))


class Unrelated(A):
    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        answered.append("declined")
        return NotImplemented


answered: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_answered() -> None:
    answered.clear()


def make(cls: type[A]) -> Any:
    return torch.ones(2).as_subclass(cls)


@pytest.mark.parametrize(
    ("left", "right", "who"), [(A, A, "A"), (A, B, "B"), (B, A, "B"), (B, B, "B")]
)
def test_class_order_without_mode_is_torchs(left: type[A], right: type[A], who: str) -> None:
    make(left) + make(right)
    assert answered == [who]


@pytest.mark.parametrize(
    ("mode", "left", "right"),
    [(A, B, B), (B, A, A), (B, A, B), (B, B, A), (A, A, B)],
)
def test_modes_class_comes_first_unless_an_argument_is_its_subclass(
    mode: type, left: type[A], right: type[A]
) -> None:
    a, b = make(left), make(right)
    with enable_python_mode(mode):
        a + b
    assert answered == ["B"]


def test_modes_class_that_declines_leaves_the_call_to_the_arguments_class() -> None:
    a = make(B)
    with enable_python_mode(Unrelated):
        result = a + a
    assert answered == ["declined", "B"]
    assert result.tolist() == [2, 2]


def test_modes_class_that_declines_on_plain_tensors_runs_as_without() -> None:
    with enable_python_mode(Unrelated):
        result = torch.ones(2)
    assert type(result) is torch.Tensor
    assert answered == ["declined"]


def test_table_class_that_declines_on_plain_tensors_runs_as_without() -> None:
    class Declines(Tabled):
        pass

    @Declines.table.fallback
    def decline(func: Any, *args: Any, **kwargs: Any) -> Any:
        return NotImplemented

    with enable_python_mode(Declines):
        assert type(torch.ones(2) + 1) is torch.Tensor


def test_call_that_nobody_takes_within_the_modes_handler_comes_out() -> None:
    class Asks(Tabled):
        table = HandlerTable()

    @Asks.table.implements(torch.ops.aten.sin.default)
    def sine(self: Any) -> Any:
        return self.as_subclass(Asks).cos()

    x = torch.ones(2)
    with enable_python_mode(Asks), pytest.raises(NoHandlerError) as caught:
        x.sin()
    assert caught.value.overload == torch.ops.aten.cos.default


def test_call_that_the_arguments_class_declined_too_comes_out() -> None:
    class Declines(Tabled):
        table = HandlerTable(missing="next")

    x = torch.ones(2).as_subclass(Declines)
    with enable_python_mode(Declines), pytest.raises(NoHandlerError) as caught:
        x.sin()
    assert caught.value.declined == (Declines,)


def test_factory_in_mode_gives_the_class() -> None:
    with enable_python_mode(Wrapped):
        assert type(torch.empty([])) is Wrapped


def test_operator_on_plain_tensors_in_mode_gives_the_class() -> None:
    x, y = torch.ones(2), torch.ones(2)
    with enable_python_mode(Wrapped):
        z = x + y
    assert type(z) is Wrapped
    assert z.elem.tolist() == [2, 2]


def test_no_dispatch_in_mode_gives_plain() -> None:
    with enable_python_mode(Wrapped), no_dispatch():
        assert type(torch.ones([2, 3])) is torch.Tensor


def test_mode_inside_mode_is_refused_and_outer_goes_on() -> None:
    with enable_python_mode(Wrapped):
        with (
            pytest.raises(RuntimeError, match="has already been set"),
            enable_python_mode(Wrapped),
        ):
            pass
        assert type(torch.ones(2)) is Wrapped
    assert type(torch.ones(2)) is torch.Tensor


def test_mode_may_be_entered_again_after_an_error() -> None:
    mode = enable_python_mode(Wrapped)
    for _ in range(2):
        with pytest.raises(KeyError), mode:
            raise KeyError
    with mode:
        assert type(torch.ones(2)) is Wrapped


class WithoutHandler(torch.Tensor):
    pass


@pytest.mark.parametrize("cls", [torch.Tensor, WithoutHandler, int])
def test_class_without_handler_is_refused(cls: type) -> None:
    with pytest.raises(ValueError, match="__torch_dispatch__") as caught:
        enable_python_mode(cls)
    assert isinstance(caught.value, DispatchError)


@pytest.mark.parametrize("instance", [Wrapped(torch.ones(1)), torch.ones(1), 3])
def test_instance_is_refused(instance: Any) -> None:
    with pytest.raises(ValueError, match="must be the type"):
        enable_python_mode(instance)


def test_handler_runs_with_the_mode_off() -> None:
    Wrapped.arrived.clear()
    with enable_python_mode(Wrapped):
        torch.ones(2).add(1)
    assert Wrapped.arrived == [torch.ops.aten.ones.default, torch.ops.aten.add.Tensor]


def test_type_error_of_the_class_comes_out_as_handler_error() -> None:
    class Raises(A):
        @classmethod
        def __torch_dispatch__(  # type: ignore[override]
            cls,
            func: Any,
            types: Sequence[type],
            args: Sequence[Any] = (),
            kwargs: Mapping[str, Any] | None = None,
        ) -> Any:
            raise TypeError("inside")

    x = torch.ones(2)
    with enable_python_mode(Raises), pytest.raises(HandlerError, match="inside"):
        x == 1  # noqa: B015  # the comparison is what raises


def test_storage_made_in_mode_can_be_set() -> None:
    with enable_python_mode(Wrapped), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch.Storage is deprecated
        storage = torch.Storage()  # type: ignore[attr-defined]
        z = Wrapped(torch.empty([]))
        z.set_(storage)


def test_decorated_function_runs_in_mode() -> None:
    @enable_python_mode(Wrapped)
    def make_one() -> Any:
        return torch.ones(1)

    assert type(make_one()) is Wrapped
    assert type(torch.ones(1)) is torch.Tensor
