"""HandlerTable.coverage: which operators a program runs, and what answers them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from dispatch_core import DispatchMode, HandlerTable, Hit, NoHandlerError, ops

from tests.dispatch_core.wrapping import Tabled, run_plain, tabled

aten = ops.aten


def general(func: Any, *args: Any, **kwargs: Any) -> Any:
    return run_plain(func, *args, **kwargs)


def test_table_of_no_class_answers_what_it_can_and_the_rest_runs() -> None:
    table = HandlerTable()

    @table.implements(aten.sin.default)
    def sin(self: Any) -> Any:
        return torch.full_like(self, 5)

    table.implements(aten.mul)(general)
    x = torch.ones(1)

    def program(scale: float, *, shift: float) -> Any:
        return x.sin() * scale + x.sin() + shift

    coverage = table.coverage(program, 2, shift=1)
    assert coverage.result.item() == 16
    assert coverage.error is None
    assert coverage.hits == {
        torch.ops.aten.sin.default: Hit("exact", "aten::sin", sin, 2),
        torch.ops.aten.mul.Tensor: Hit("packet", "aten::mul", general, 1),
    }
    assert coverage.missing == {torch.ops.aten.add.Tensor: 2}
    assert str(coverage) == (
        "2 operators with a handler, 1 without\n"
        "  aten::sin  2x  exact\n"
        "  aten::mul.Tensor  1x  packet: aten::mul\n"
        "  aten::add.Tensor  2x  missing"
    )


def test_kinds_of_entries_are_told() -> None:
    table = HandlerTable()
    table.implements_where(tag="pointwise")(general)
    table.fallback(general)
    coverage = table.coverage(lambda: torch.ones(1).sin())
    assert [(hit.kind, hit.found_by) for hit in coverage.hits.values()] == [
        ("fallback", "fallback"),
        ("where", "tag pointwise"),
    ]


def test_table_of_a_mode() -> None:
    class Mode(DispatchMode):
        table = HandlerTable()

    @Mode.table.implements(aten.sin.default)
    def _(self: Any) -> Any:
        return self

    x = torch.ones(1)
    coverage = Mode.table.coverage(lambda: x.sin().cos())
    assert list(coverage.hits) == [aten.sin.default]
    assert list(coverage.missing) == [aten.cos.default]


def test_table_of_a_tensor_class_is_asked_for_calls_on_the_class_only() -> None:
    class Mine(Tabled):
        table = HandlerTable()

    @Mine.table.implements(aten.sin.default)
    def _(self: Any) -> Any:
        return run_plain(torch.sin, self).as_subclass(Mine)

    class Other(Tabled):
        table = HandlerTable()

    Other.table.fallback(general)
    x, other = tabled([1.0], Mine), tabled([1.0], Other)
    coverage = Mine.table.coverage(lambda: (torch.ones(1).exp(), other.exp(), x.sin()))
    assert list(coverage.hits) == [aten.sin.default]
    assert not coverage.missing


def test_calls_that_a_handler_makes_on_its_class_count() -> None:
    class Mine(Tabled):
        table = HandlerTable()

    @Mine.table.implements(aten.sin.default)
    def _(self: Any) -> Any:
        return self.cos()

    Mine.table.implements(aten.cos)(general)
    coverage = Mine.table.coverage(tabled([1.0], Mine).sin)
    assert list(coverage.hits) == [aten.sin.default, aten.cos.default]


def test_missing_operator_of_a_class_ends_the_program_and_is_listed() -> None:
    class Mine(Tabled):
        table = HandlerTable()

    coverage = Mine.table.coverage(tabled([1.0], Mine).sin)
    assert list(coverage.missing) == [aten.sin.default]
    assert isinstance(coverage.error, NoHandlerError)
    assert "ended early: aten::sin" in str(coverage)


def test_other_errors_pass() -> None:
    def program() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        HandlerTable().coverage(program)


def test_inherited_entry_counts() -> None:
    class Mine(Tabled):
        table = HandlerTable()

    class Child(Mine):
        pass

    Mine.table.implements(aten.sin)(general)
    coverage = Child.table.coverage(tabled([1.0], Child).sin)
    assert list(coverage.hits) == [aten.sin.default]
