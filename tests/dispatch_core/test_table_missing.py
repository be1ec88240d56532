"""HandlerTable: operators without a handler, and calls that are declined."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from dispatch_core import HandlerTable, NoHandlerError, ops

from tests.dispatch_core.wrapping import Tabled, run_plain, tabled

aten = ops.aten


def test_missing_operator_is_an_error_that_names_it() -> None:
    class Strict(Tabled):
        table = HandlerTable()

    with pytest.raises(NoHandlerError) as caught:
        tabled([1.0], Strict).sin()
    assert str(caught.value) == (
        "aten::sin: nobody took the call; declined by "
        "test_missing_operator_is_an_error_that_names_it.<locals>.Strict. The table of "
        "test_missing_operator_is_an_error_that_names_it.<locals>.Strict has no handler for it "
        "and its missing is 'error': register one, or a fallback."
    )
    assert caught.value.overload == aten.sin.default
    assert caught.value.declined == (Strict,)


def test_missing_composite_is_taken_apart_where_asked() -> None:
    class Parts(Tabled):
        table = HandlerTable(missing="decompose")

    seen: list[str] = []

    @Parts.table.implements(aten.t)
    @Parts.table.implements(aten.mm)
    def _(func: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(str(func))
        return run_plain(func, *args, **kwargs).as_subclass(Parts)

    x = tabled([[1.0, 2.0]], Parts)
    with torch.inference_mode():  # where torch hands composite operators over whole
        y = torch.nn.functional.linear(x, x)
        seen.clear()
        assert torch.equal(run_plain(torch.nn.functional.linear, x, x), run_plain(torch.clone, y))
        torch.nn.functional.linear(x, x)  # the same once more
    assert run_plain(torch.ops.aten.sum.default, y).item() == 5.0
    assert seen == ["aten.t.default", "aten.mm.default"]
    with pytest.raises(NoHandlerError, match="aten::sin"):
        x.sin()


def test_parts_with_a_factory_run_under_a_mode_and_inference() -> None:
    class InParts(Tabled):
        table = HandlerTable(missing="decompose")

    class PassesOn(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func(*args, **(kwargs or {}))

    @InParts.table.implements(aten.where.self)
    def _(condition: Any, self: Any, other: Any) -> Any:
        return run_plain(torch.where, condition, self, other)

    x = tabled([1.0, -1.0], InParts)
    with torch.inference_mode(), PassesOn():  # type: ignore[no-untyped-call]
        y = torch.where(torch.tensor([True, False]), x, 2.0)
    assert y.tolist() == [1.0, 2.0]


def test_missing_composite_is_an_error_where_not_asked() -> None:
    class Whole(Tabled):
        table = HandlerTable()

    x = tabled([[1.0]], Whole)
    with torch.inference_mode(), pytest.raises(NoHandlerError, match="missing='decompose'"):
        torch.nn.functional.linear(x, x)


def test_missing_operator_is_handed_to_the_next_class() -> None:
    class Declines(Tabled):
        table = HandlerTable(missing="next")

    class Answers(Tabled):
        table = HandlerTable()

    @Answers.table.fallback
    def _(func: Any, *args: Any, **kwargs: Any) -> Any:
        return run_plain(func, *args, **kwargs)

    assert (tabled([1.0], Declines) + tabled([2.0], Answers)).tolist() == [3.0]


def test_call_that_every_class_declined_lists_them() -> None:
    class One(Tabled):
        table = HandlerTable(missing="next")

    class Two(Tabled):
        table = HandlerTable(missing="next")

    with pytest.raises(NoHandlerError) as caught:
        tabled([1.0], One) == tabled([2.0], Two)  # noqa: B015  # the comparison is what raises
    assert caught.value.declined == (One, Two)
    assert "declined by" in str(caught.value)


def test_class_that_is_not_ours_is_asked_too() -> None:
    class Foreign(torch.Tensor):
        @classmethod
        def __torch_dispatch__(  # type: ignore[override]
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            asked.append(cls)
            return NotImplemented

    class Ours(Tabled):
        table = HandlerTable(missing="next")

    asked: list[type] = []
    foreign = torch.ones(1).as_subclass(Foreign)
    with pytest.raises(NoHandlerError) as caught:
        tabled([1.0], Ours) == foreign  # noqa: B015  # the comparison is what raises
    assert caught.value.declined == (Ours, Foreign)
    assert asked == [Foreign]
    asked.clear()
    with pytest.raises(NoHandlerError):
        foreign == tabled([1.0], Ours)  # noqa: B015  # the comparison is what raises
    assert asked == [Foreign]


def test_handler_that_declines_declines_for_its_class() -> None:
    class Declines(Tabled):
        table = HandlerTable()

    @Declines.table.fallback
    def _(func: Any, *args: Any, **kwargs: Any) -> Any:
        return NotImplemented

    with pytest.raises(NoHandlerError) as caught:
        tabled([1.0], Declines) + 1
    assert caught.value.declined == (Declines,)
