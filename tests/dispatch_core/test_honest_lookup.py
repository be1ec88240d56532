"""Errors on the way to a handler, and ways to give a mode or class its `__torch_dispatch__`."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
from dispatch_core import (
    DispatchMode,
    HandlerError,
    HandlerResultError,
    HandlerTable,
    TableError,
    enable_python_mode,
    ops,
)

from tests.dispatch_core.wrapping import Tabled, run_plain, tabled

aten = ops.aten

COMPARISONS: dict[str, Callable[[Any], object]] = {
    "==": lambda x: x == 1,
    "!=": lambda x: x != 1,
    "+": lambda x: x + 1,
    "call": lambda x: torch.add(x, 1),
}
comparisons = pytest.mark.parametrize("comparison", COMPARISONS.values(), ids=COMPARISONS)


def adds_to_text(handle: Any) -> bool:
    return handle.facts.family + 1  # type: ignore[no-any-return]


class NoBool:
    """What is neither true nor false."""

    def __bool__(self) -> bool:
        raise TypeError("neither")


def gives_no_bool(handle: Any) -> Any:
    return NoBool()


def takes_too_much(handle: Any, more: Any) -> bool:
    return True


PREDICATES: list[Any] = [adds_to_text, gives_no_bool, takes_too_much]


# ── looking up ──────────────────────────────────────────────────────────────────────────────────


@comparisons
@pytest.mark.parametrize("predicate", PREDICATES)
@pytest.mark.parametrize("where", ["mode", "class"])
def test_predicate_that_raises_type_error_is_named(
    comparison: Any, predicate: Any, where: str
) -> None:
    table = HandlerTable(missing="next")
    table.implements_where(predicate=predicate)(run_plain)

    class Ruled(Tabled):
        pass

    Ruled.table = table
    x = tabled([1.0], Ruled) if where == "class" else torch.ones(1)
    mode = DispatchMode(table) if where == "mode" else DispatchMode(HandlerTable(missing="next"))
    with mode, pytest.raises(HandlerError, match=f"predicate {predicate.__name__}") as caught:
        comparison(x)
    assert isinstance(caught.value.__cause__, TypeError)
    assert caught.value.handler is predicate
    assert caught.value.overload.namespace == "aten"


def test_other_errors_of_a_predicate_pass() -> None:
    table = HandlerTable(missing="next")
    table.implements_where(predicate=lambda handle: bool(1 // 0))(run_plain)
    with DispatchMode(table), pytest.raises(ZeroDivisionError):
        torch.ones(1)


@pytest.mark.parametrize("predicate", [3, "pointwise", True])
def test_predicate_that_cannot_be_called_is_refused(predicate: Any) -> None:
    with pytest.raises(TableError, match="predicate is a function of the handle"):
        HandlerTable().implements_where(predicate=predicate)


# ── whatever way the handler came ───────────────────────────────────────────────────────────────


class Mixin:
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise TypeError("of the mixin")


class Mixed(Mixin, DispatchMode):
    pass


class MixedChild(Mixed):
    pass


class AssignedLater(DispatchMode):
    pass


def later(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    raise TypeError("assigned later")


AssignedLater.__torch_dispatch__ = later  # type: ignore[method-assign]


class Parent(DispatchMode):
    pass


class ChildOfParent(Parent):
    pass


Parent.__torch_dispatch__ = later  # type: ignore[method-assign]


class Static(DispatchMode):
    @staticmethod
    def __torch_dispatch__(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise TypeError("static")


class OfTheClass(DispatchMode):
    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise TypeError("of the class")


class Partial(DispatchMode):
    __torch_dispatch__ = functools.partialmethod(later)


class OfTheInstance(DispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.__torch_dispatch__ = functools.partial(later, self)  # type: ignore[method-assign]


MODES = [
    Mixed,
    MixedChild,
    AssignedLater,
    Parent,
    ChildOfParent,
    Static,
    OfTheClass,
    Partial,
    OfTheInstance,
]


@comparisons
@pytest.mark.parametrize("mode", MODES)
def test_type_error_comes_out_however_the_mode_got_its_dispatch(comparison: Any, mode: Any) -> None:
    x = torch.ones(1)
    for _ in range(2):  # entered again, the same is not wrapped twice
        with mode(), pytest.raises(HandlerError, match="raised TypeError") as caught:
            comparison(x)
        assert str(caught.value).count("raised") == 1


def test_mixin_itself_is_left_as_it_was() -> None:
    assert not hasattr(vars(Mixin)["__torch_dispatch__"], "__honest__")


def test_instances_dispatch_declines_and_answers() -> None:
    mode = DispatchMode()
    seen: list[str] = []

    def dispatch(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        seen.append(str(func))
        return NotImplemented

    mode.__torch_dispatch__ = dispatch  # type: ignore[method-assign]
    with mode:
        same = torch.ones(1) == 1
    assert same.tolist() == [True]
    assert seen == ["aten.ones.default", "aten.eq.Scalar"]


# ── a class's wrong answer ──────────────────────────────────────────────────────────────────────


class AnswersText(torch.Tensor):
    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return "text"


@pytest.mark.parametrize("way", ["python mode", "mode that declines"])
def test_wrong_answer_of_a_class_names_the_class(way: str) -> None:
    table = HandlerTable(missing="next")
    x = torch.ones(1).as_subclass(AnswersText)
    mode: Any = enable_python_mode(AnswersText) if way == "python mode" else DispatchMode(table)
    with mode, pytest.raises(HandlerResultError, match="Unable to cast") as caught:
        x.sin()
    assert "handler AnswersText.__torch_dispatch__" in str(caught.value)
    assert caught.value.handler == AnswersText.__torch_dispatch__
    assert caught.value.result_type is str


class Unprintable:
    def __repr__(self) -> str:
        raise TypeError("cannot be shown")


def test_wrong_answer_that_cannot_be_shown() -> None:
    table = HandlerTable()
    table.fallback(lambda func, *args, **kwargs: Unprintable())
    x = torch.ones(1)
    with DispatchMode(table), pytest.raises(HandlerResultError, match="a Unprintable"):
        x.sin()


# ── frames ──────────────────────────────────────────────────────────────────────────────────────


class Calls:
    def __call__(self, self_: Any) -> Any:
        raise ValueError("in a frame")

    def method(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        raise ValueError("in a frame")


def plain(extra: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
    raise ValueError("in a frame")


@functools.lru_cache
def cached(func: Any, *args: Any, **kwargs: Any) -> Any:
    raise ValueError("in a frame")


class General:
    def __call__(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        raise ValueError("in a frame")


HANDLERS: dict[str, tuple[Any, str]] = {
    "bound method": (Calls().method, "method[aten::log]"),
    "object": (General(), "General[aten::log]"),
    "partial": (functools.partial(plain, 1), "plain[aten::log]"),
    "partial of a method": (functools.partial(Calls().method), "method[aten::log]"),
    "partial of an object": (functools.partial(General()), "General[aten::log]"),
    "cached": (cached, "cached[aten::log]"),
    "lambda": (lambda func, *args, **kwargs: 1 // 0, "aten::log"),
}


@pytest.mark.parametrize(("handler", "shown"), HANDLERS.values(), ids=HANDLERS)
def test_every_kind_of_handler_has_a_frame_with_the_operators_name(
    handler: Any, shown: str
) -> None:
    table = HandlerTable(missing="next")
    table.implements(aten.log)(handler)
    x = torch.ones(1)
    with DispatchMode(table), pytest.raises((ValueError, ZeroDivisionError)) as caught:
        x.log()
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert shown in frames
    assert table.lookup(aten.log) is handler
