"""Higher-order operators on tensors whose class has a table, alone and in modes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from dispatch_core import (
    DispatchMode,
    HandlerTable,
    NoHandlerError,
    Recorder,
    enable_python_mode,
    ops,
)
from torch._ops import HigherOrderOperator

from tests.dispatch_core.wrapping import Wrapped

higher = torch.ops.higher_order
pytestmark = pytest.mark.slow  # torch imports Dynamo when it first meets some of them


@pytest.fixture(autouse=True)
def dynamo_warns() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


class Base(torch.Tensor):
    """A wrapper that goes by its table."""

    table: HandlerTable
    elem: torch.Tensor

    @staticmethod
    def __new__(cls: Any, elem: torch.Tensor) -> Any:
        made: Any = torch.Tensor._make_wrapper_subclass(cls, elem.shape, dtype=elem.dtype)
        made.elem = elem
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"{type(self).__name__}({self.elem})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return cls.table.dispatch(func, types, args, kwargs)


class Tabled(Base):
    """Has handlers."""

    table = HandlerTable()


class Child(Tabled):
    """Inherits what its parent's table has."""


class Bare(Base):
    """Has none."""

    table = HandlerTable()


def unwrapped(value: Any) -> Any:
    return value.elem if isinstance(value, Tabled) else value


def cond(pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
    branch = true_fn if unwrapped(pred) else false_fn
    return Tabled(branch(*map(unwrapped, operands)))


Tabled.table.implements(ops.higher_order.cond)(cond)  # type: ignore[no-untyped-call]


@Tabled.table.implements(higher.while_loop)
def while_loop(cond_fn: Any, body_fn: Any, carried_inputs: Any, additional_inputs: Any) -> Any:
    values = tuple(map(unwrapped, carried_inputs))
    while cond_fn(*values):
        values = body_fn(*values)
    return tuple(map(Tabled, values))


def run_cond(x: Any, pred: Any = True) -> Any:
    return higher.cond(torch.tensor(pred), lambda a: a + 1, lambda a: a - 1, (x,))


def run_while(x: Any) -> Any:
    return higher.while_loop(lambda a: a.sum() < 10, lambda a: (a * 2,), (x,), ())[0]


def run_scan(x: Any) -> Any:
    return higher.scan(lambda c, a: (c + a, c), [x], [x.unsqueeze(0)], ())


@pytest.mark.parametrize("cls", [Tabled, Child])
def test_handler_of_the_class_answers(cls: Any) -> None:
    x = cls(torch.ones(2))
    assert run_cond(x).elem.tolist() == [2, 2]
    assert run_cond(x, False).elem.tolist() == [0, 0]
    assert run_while(x).elem.tolist() == [8, 8]
    assert higher.cond(cls(torch.tensor(True)), lambda: torch.ones(1), torch.zeros, ()).elem == 1


@pytest.mark.parametrize(
    "mode",
    [
        Recorder,
        lambda: DispatchMode(HandlerTable(missing="next")),
        lambda: enable_python_mode(Tabled),
    ],
)
def test_handler_of_the_class_answers_within_modes(mode: Any) -> None:
    x = Tabled(torch.ones(2))
    with mode():
        result = run_cond(x)
    assert type(result) is Tabled
    assert result.elem.tolist() == [2, 2]


@pytest.mark.parametrize("cls", [Tabled, Bare])
def test_handler_of_a_mode_comes_first(cls: Any) -> None:
    table = HandlerTable(missing="next")

    @table.implements(higher.cond)
    def answer(pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
        return "of the mode"

    with DispatchMode(table):
        assert run_cond(cls(torch.ones(2))) == "of the mode"


@pytest.mark.parametrize("inside", ["nothing", "recorder", "mode that declines"])
@pytest.mark.parametrize(
    ("run", "name"), [(run_cond, "cond"), (run_while, "while_loop")], ids=["cond", "while_loop"]
)
def test_class_without_a_handler_says_what_to_register(
    run: Callable[[Any], Any], name: str, inside: str
) -> None:
    x = Bare(torch.ones(2))
    modes: dict[str, Any] = {
        "nothing": lambda: torch.no_grad(),
        "recorder": Recorder,
        "mode that declines": DispatchMode,
    }
    refused = pytest.raises(
        NoHandlerError,
        match=rf"^higher_order::{name}: nobody took the call; declined by Bare\. .*register one",
    )
    with modes[inside](), refused:
        run(x)


def test_class_that_declines_says_what_to_register() -> None:
    class Declining(Bare):
        table = HandlerTable(missing="next")

    with pytest.raises(NoHandlerError, match=r"@table\.implements\(ops\.higher_order\.cond\)"):
        run_cond(Declining(torch.ones(2)))


def test_classes_of_one_call_are_asked_in_their_order() -> None:
    asked: list[str] = []

    class First(Bare):
        table = HandlerTable(missing="next")

        @classmethod
        def __torch_dispatch__(  # type: ignore[override]
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            asked.append(cls.__name__)
            return cls.table.dispatch(func, types, args, kwargs)

    class Second(First):
        pass

    First.table.implements(higher.cond)(lambda pred, true_fn, false_fn, operands=(): "first")
    x, y = First(torch.ones(2)), Second(torch.ones(2))
    branch = lambda a, b: a + b  # noqa: E731
    assert higher.cond(torch.tensor(True), branch, branch, (x, y)) == "first"
    assert asked == ["Second"]


def test_class_without_a_table_is_refused_by_torch_as_ever() -> None:
    with pytest.raises(NotImplementedError, match="no rule registered for HOP cond"):
        run_cond(Wrapped(torch.ones(2)))


def test_rule_registered_with_torch_itself_goes_before_the_table() -> None:
    class Ruled(Bare):
        table = HandlerTable()

    higher.cond.py_impl(Ruled)(lambda *args: "torch's rule")
    assert run_cond(Ruled(torch.ones(2))) == "torch's rule"


def test_operator_that_is_younger_than_the_table() -> None:
    class Younger(HigherOrderOperator):
        def __init__(self) -> None:
            super().__init__("d2_younger")  # type: ignore[no-untyped-call]

        def __call__(self, x: Any) -> Any:
            return super().__call__(x)  # type: ignore[no-untyped-call]

    younger = Younger()
    younger.fallthrough(torch._C.DispatchKey.AutogradCPU)  # type: ignore[no-untyped-call]
    try:
        Tabled.table.implements(younger)(lambda x: "answered")
        assert younger(Tabled(torch.ones(1))) == "answered"
    finally:
        del torch._ops._higher_order_ops["d2_younger"]


def test_plain_tensors_run_as_ever() -> None:
    assert run_cond(torch.ones(2)).tolist() == [2, 2]
    with pytest.raises(KeyError):
        higher.cond.python_key_table[int]  # type: ignore[index]
    assert Tabled not in higher.cond.python_key_table
