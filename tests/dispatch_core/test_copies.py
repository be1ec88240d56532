"""Copies and pickles of tables, modes and records."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from dispatch_core import DispatchMode, Event, HandlerTable, Recorder, ops

aten = ops.aten
x = torch.tensor([2.0])


class Base(DispatchMode):
    table = HandlerTable(missing="next")


class Derived(Base):
    pass


def one(self: Any) -> Any:
    return torch.full_like(self, 1)


def two(self: Any) -> Any:
    return torch.full_like(self, 2)


def add_ten(func: Any, *args: Any, **kwargs: Any) -> Any:
    return func(*args, **kwargs) + 10


Base.table.implements(aten.sin.default)(one)
Derived.table.implements(aten.cos.default)(two)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copy_of_a_table_has_its_handlers_and_goes_its_own_way(copied: Any) -> None:
    table = HandlerTable(missing="next")
    table.implements(aten.sin.default)(one)
    table.implements(aten.cos)(add_ten)
    table.implements_where(tag="core")(add_ten)
    table.fallback(add_ten)
    made = copied(table)
    for op in (aten.sin.default, aten.cos.default, aten.mul.Tensor, aten.special_erf.default):
        assert made.lookup(op) is table.lookup(op) is not None
    assert made.missing == "next"
    made.implements(aten.sin.default)(two)
    table.implements(aten.tanh.default)(one)
    assert table.lookup(aten.sin.default) is one
    assert made.lookup(aten.sin.default) is two
    assert made.lookup(aten.tanh.default) is add_ten
    with DispatchMode(made):
        y = x.sin()
    assert y.item() == 2


def test_copy_of_an_inheriting_table_goes_on_with_its_bases() -> None:
    made = copy.copy(Derived.table)
    assert made.lookup(aten.cos.default) is two
    assert made.lookup(aten.sin.default) is one

    class Other(DispatchMode):
        table = made

    assert Other.table is made
    Other.table.implements(aten.sin.default)(two)
    assert Derived.table.lookup(aten.sin.default) is one


def test_deep_copy_of_a_mode_has_a_table_of_its_own() -> None:
    mode = DispatchMode(HandlerTable(missing="next"))
    made = copy.deepcopy(mode)
    with made:
        x.sin()
    made.table.implements(aten.sin.default)(two)
    with made:
        assert x.sin().item() == 2
    assert mode.table.lookup(aten.sin.default) is None
    assert copy.deepcopy(Base()).table is Base.table


def test_table_of_a_class_is_found_again_by_its_name() -> None:
    assert pickle.loads(pickle.dumps(Base.table)) is Base.table
    assert pickle.loads(pickle.dumps(Derived.table)) is Derived.table
    assert pickle.loads(pickle.dumps(Derived())).table is Derived.table


def test_table_of_no_class_says_why_it_cannot_be_pickled() -> None:
    with pytest.raises(TypeError) as caught:
        pickle.dumps(HandlerTable())
    assert str(caught.value) == (
        "a HandlerTable that belongs to no class cannot be pickled, because its handlers are "
        "functions: make it an attribute of a class, which is found again by its name"
    )


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))]
)
def test_events_go_to_another_process(again: Any) -> None:
    with Recorder() as recorder:
        torch.add(x, x, alpha=2)
        ops.higher_order.cond(True, one, two, (x,))
    for event in recorder.events:
        made = again(event)
        assert isinstance(made, Event)
        for field in ("op", "name", "args", "kwargs", "inputs", "outputs", "stack", "start_ns"):
            assert getattr(made, field) == getattr(event, field), field
        assert made.stack[-1].file == __file__
    assert {event.name for event in recorder.events} >= {"aten::add.Tensor", "higher_order::cond"}


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, pickle.dumps])
def test_recorder_says_what_of_it_can_be_copied(again: Any) -> None:
    with pytest.raises(TypeError, match=r"copied nor pickled; its events can: list\(recorder\.ev"):
        again(Recorder())
