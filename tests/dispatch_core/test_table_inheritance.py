"""HandlerTable: whose entries a class has."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from dispatch_core import DispatchMode, HandlerTable, NoHandlerError, ops

from tests.dispatch_core.wrapping import Tabled, general, tabled

aten = ops.aten


class Parent(Tabled):
    table = HandlerTable()


class Child(Parent):
    pass


class OtherChild(Parent):
    table = HandlerTable()


class GrandChild(Child):
    pass


@pytest.fixture
def _empty_tables() -> Any:
    yield
    for cls in (Parent, Child, OtherChild, GrandChild):
        cls.table._exact.clear()
        cls.table._packets.clear()
        cls.table._rules.clear()
        cls.table._fallback = None
        cls.table.implements(aten.neg)(general("flush"))
        cls.table._packets.clear()


@pytest.mark.usefixtures("_empty_tables")
@pytest.mark.parametrize("cls", [Child, OtherChild, GrandChild])
def test_childs_entry_is_not_the_parents(cls: type[Tabled]) -> None:
    cls.table.implements(aten.mm)(general("child"))
    assert cls.table.lookup(aten.mm.default) is not None
    assert Parent.table.lookup(aten.mm.default) is None
    for other in (Child, OtherChild, GrandChild):
        expected = issubclass(other, cls)
        assert (other.table.lookup(aten.mm.default) is not None) == expected


@pytest.mark.usefixtures("_empty_tables")
def test_parents_entry_is_every_childs() -> None:
    handler = Parent.table.implements(aten.mm)(general("parent"))
    for cls in (Child, OtherChild, GrandChild):
        assert cls.table.lookup(aten.mm.default) is handler


@pytest.mark.usefixtures("_empty_tables")
def test_nearest_class_comes_first_whatever_kind_of_entry() -> None:
    @Parent.table.implements(aten.mm.default)
    def exact(self: Any, mat2: Any) -> Any: ...

    fallback = Child.table.fallback(general("fallback"))
    assert Parent.table.lookup(aten.mm.default) is exact
    assert Child.table.lookup(aten.mm.default) is fallback
    assert GrandChild.table.lookup(aten.mm.default) is fallback


@pytest.mark.usefixtures("_empty_tables")
def test_order_of_several_bases_is_the_mro() -> None:
    class Both(OtherChild, Child):
        pass

    one = OtherChild.table.implements(aten.mm)(general("other"))
    Child.table.implements(aten.mm)(general("child"))
    assert Both.table.lookup(aten.mm.default) is one


def test_table_set_on_a_finished_class_belongs_to_it() -> None:
    class Late(torch.Tensor):
        table: Any

    Late.table = HandlerTable()

    class LateChild(Late):
        pass

    LateChild.table.implements(aten.mm)(general("child"))
    assert Late.table.lookup(aten.mm.default) is None
    assert LateChild.table.lookup(aten.mm.default) is not None


def test_table_set_on_a_finished_class_knows_class_and_name() -> None:
    class Late(Tabled):
        handlers: Any

        @classmethod
        def __torch_dispatch__(  # type: ignore[override]
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return cls.handlers.dispatch(func, types, args, kwargs)

    own = HandlerTable()
    Late.handlers = own

    class LateChild(Late):
        pass

    assert Late.handlers is own
    assert repr(own).startswith(f"<HandlerTable of {Late.__qualname__}: ")
    LateChild.handlers.implements(aten.mm)(general("child"))
    assert "handlers" in vars(LateChild)
    with pytest.raises(NoHandlerError) as caught:
        tabled([1.0], Late).sin()
    assert caught.value.declined == (Late,)


def test_one_table_in_two_classes_does_not_leak() -> None:
    class One(torch.Tensor):
        table = HandlerTable()

    class Two(torch.Tensor):
        table = One.table

    Two.table.implements(aten.mm)(general("two"))
    shared = One.table.implements(aten.sin)(general("one"))
    assert One.table.lookup(aten.mm.default) is None
    assert Two.table.lookup(aten.sin.default) is shared


def test_modes_inherit_like_classes() -> None:
    class Outer(DispatchMode):
        table = HandlerTable(missing="next")

    class Inner(Outer):
        pass

    handler = Outer.table.implements(aten.mm)(general("mode"))
    Inner.table.implements(aten.sin)(general("inner"))
    assert Inner().table.lookup(aten.mm.default) is handler
    assert Outer().table.lookup(aten.sin.default) is None
    assert Inner.table.missing == "next"
