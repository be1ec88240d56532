"""What a call becomes that modes, tables and classes decline, whoever torch names as its types."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from dispatch_core import (
    DispatchMode,
    HandlerTable,
    NoHandlerError,
    enable_python_mode,
    ops,
)
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils.checkpoint import checkpoint

from tests.dispatch_core.wrapping import Direct, run_plain

aten = ops.aten


def gradient(program: Callable[[Any], Any]) -> Any:
    x = torch.tensor([0.5, 1.0, 2.0], requires_grad=True)
    program(x).sum().backward()
    return x.grad


class _Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        result = x.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * ctx.saved_tensors[0]


def _saved_by_hooks(x: Any) -> Any:
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        return x.sigmoid()


def _lstm(x: Any) -> Any:
    torch.manual_seed(0)
    return torch.nn.LSTM(3, 2)(x.reshape(1, 1, 3))[0]


# In all of these torch's C++ itself detaches a plain tensor, and names torch.Tensor or Parameter
# as the type that is to answer.
PROGRAMS: dict[str, Callable[[], Any]] = {
    "data": lambda: torch.ones(3).data,
    "data of a parameter": lambda: torch.nn.Parameter(torch.ones(3)).data,
    "saved result": lambda: gradient(torch.exp),
    "saved result, in place": lambda: gradient(lambda x: (x * 2).relu_()),
    "softmax": lambda: gradient(lambda x: x.softmax(0).square()),
    "saved by a function": lambda: gradient(_Exp.apply),
    "saved by hooks": lambda: gradient(_saved_by_hooks),
    "deepcopy": lambda: copy.deepcopy(torch.nn.Parameter(torch.ones(3))),
    "checkpoint": lambda: gradient(
        lambda x: checkpoint(lambda y: y.exp().tanh(), x, use_reentrant=False)
    ),
    "lstm": lambda: gradient(_lstm),
}
programs = pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)


class Empty(DispatchMode):
    table = HandlerTable(missing="next")


class ByHand(DispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented


class HandlersDecline(DispatchMode):
    table = HandlerTable(missing="next")


@HandlersDecline.table.fallback
def _(func: Any, *args: Any, **kwargs: Any) -> Any:
    return NotImplemented


class Declines(torch.Tensor):
    """A class that is enabled for all calls, and takes none."""

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return NotImplemented


class DeclinesByTable(torch.Tensor):
    table = HandlerTable(missing="next")

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return cls.table.dispatch(func, types, args, kwargs)


class ForeignDeclines(TorchDispatchMode):
    """A mode of torch's kind: of these torch asks no more than one."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented


MODES: dict[str, Callable[[], Any]] = {
    "an empty table": Empty,
    "by hand": ByHand,
    "handlers decline": HandlersDecline,
    "a class": lambda: enable_python_mode(Declines),
    "a class by its table": lambda: enable_python_mode(DeclinesByTable),
}


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@programs
def test_plain_tensors_run_as_without_modes(program: Any, mode: Any) -> None:
    plain = program()
    with mode():
        watched = program()
    assert type(watched) is type(plain)
    assert torch.equal(watched, plain)


@programs
def test_modes_that_decline_in_each_other(program: Any) -> None:
    plain = program()
    with Empty(), ByHand(), HandlersDecline():
        assert torch.equal(program(), plain)


@pytest.mark.parametrize("owned", [False, True])
@programs
def test_coverage_runs_what_is_missing(program: Any, owned: bool) -> None:
    table = HandlerTable()
    if owned:

        class Owner(torch.Tensor):
            pass

        Owner.table = table  # type: ignore[attr-defined]
        assert Owner.table is table  # type: ignore[attr-defined]
    coverage = table.coverage(program)
    assert coverage.error is None
    assert torch.equal(coverage.result, program())


def test_mode_of_torchs_kind_that_declines_on_plain_tensors_is_passed_over() -> None:
    asked: list[str] = []

    class Outer(DispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            asked.append(str(func))
            return func(*args, **(kwargs or {}))

    x = torch.ones(2)
    with ForeignDeclines(), Empty():  # type: ignore[no-untyped-call]
        assert torch.equal(x + 1, torch.full((2,), 2.0))
        assert torch.equal(x.data, x)
    with Outer(), ForeignDeclines(), Empty():  # type: ignore[no-untyped-call]
        assert (x == 1).tolist() == [True, True]
    assert asked == ["aten.eq.Scalar"]
    assert _get_current_dispatch_mode_stack() == []


def test_mode_of_torchs_kind_that_declines_within_another_ones_handler_is_an_error() -> None:
    class Passes(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func(*args, **(kwargs or {})) * 2

    refused = pytest.raises(NoHandlerError, match=r"aten::add\.Tensor")
    with refused, ForeignDeclines(), Passes(), Empty():  # type: ignore[no-untyped-call]
        _one + 1


_one = torch.ones(2)


# ── tables that are asked by another class than their own ───────────────────────────────────────


class Base(torch.Tensor):
    table = HandlerTable(missing="next")

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        asked.append(cls.__name__)
        return Base.table.dispatch(func, types, args, kwargs)


class ChildA(Base):
    pass


class ChildB(Base):
    pass


loose = HandlerTable(missing="next")


class Loose(torch.Tensor):
    """Goes by a table of no class."""

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        asked.append(cls.__name__)
        return loose.dispatch(func, types, args, kwargs)


class Takes(torch.Tensor):
    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        asked.append(cls.__name__)
        return torch.full((1,), 7.0)


asked: list[str] = []


def of(cls: type[torch.Tensor]) -> Any:
    asked.clear()
    return torch.ones(1).as_subclass(cls)


EXPRESSIONS: dict[str, Callable[..., Any]] = {
    "==": lambda x, y: x == y,
    "+": lambda x, y: x + y,
    "[]": lambda x, y: torch.cat([x, y]),
}
expressions = pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)


@expressions
@pytest.mark.parametrize(
    ("left", "right", "order"),
    [
        (Base, Base, ["Base"]),
        (ChildA, ChildA, ["ChildA"]),
        (ChildA, Base, ["ChildA", "Base"]),
        (Base, ChildA, ["ChildA", "Base"]),
        (ChildA, ChildB, ["ChildA", "ChildB"]),
        (Loose, Loose, ["Loose"]),
        (Loose, Base, ["Loose", "Base"]),
        (Base, Loose, ["Base", "Loose"]),
    ],
)
def test_call_that_all_classes_declined_is_an_error_that_lists_them(
    expression: Any, left: Any, right: Any, order: list[str]
) -> None:
    x, y = of(left), of(right)
    with pytest.raises(NoHandlerError, match="nobody took the call") as caught:
        expression(x, y)
    assert [cls.__name__ for cls in caught.value.declined] == order
    assert asked == order


@expressions
@pytest.mark.parametrize("cls", [Base, ChildA, Loose])
def test_class_after_the_one_that_declined_answers(expression: Any, cls: Any) -> None:
    x, y = of(cls), of(Takes)
    assert expression(x, y).item() == 7
    assert asked == [cls.__name__, "Takes"]


@expressions
def test_plain_tensor_beside_a_class_that_declined_does_not_count(expression: Any) -> None:
    for one in (of(ChildA), of(Loose)):
        with pytest.raises(NoHandlerError):
            expression(one, torch.ones(1))
        with pytest.raises(NoHandlerError):
            expression(torch.ones(1), one)


def test_mode_of_torchs_kind_that_goes_by_a_table() -> None:
    class ByTable(TorchDispatchMode):
        table = HandlerTable(missing="next")

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return self.table.dispatch(func, types, args, kwargs)

    with ByTable():  # type: ignore[no-untyped-call]
        assert torch.equal(_one + 1, torch.full((2,), 2.0))
        assert torch.equal(gradient(torch.exp), torch.tensor([0.5, 1.0, 2.0]).exp())
        assert torch.equal(_one.as_subclass(Direct) + 1, torch.full((2,), 2.0))
        with pytest.raises(NoHandlerError, match="declined by ChildA"):
            of(ChildA) + 1


def test_mode_that_extends_its_table_and_declines() -> None:
    class Extends(DispatchMode):
        table = HandlerTable(missing="next")

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return self.table.dispatch(func, types, args, kwargs)

    with Extends():
        assert torch.equal(_one + 1, torch.full((2,), 2.0))
        assert torch.equal(_one.data, _one)
    assert run_plain(torch.ops.aten.add.Tensor, _one, 1).tolist() == [2, 2]
