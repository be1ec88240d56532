"""HandlerTable: who answers, whose entries, and in which order."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
from dispatch_core import (
    DispatchMode,
    HandlerError,
    HandlerSignatureError,
    HandlerTable,
    NoHandlerError,
    TableError,
    UnknownOperatorError,
    ops,
)
from dispatch_core._for_subclass_utils import entries_of, has_handlers

from tests.dispatch_core.wrapping import Tabled, run_plain, tabled

aten = ops.aten


def general(name: str) -> Any:
    """Make a handler for any operator that answers with its name, as far as lookups go."""

    def handler(func: Any, *args: Any, **kwargs: Any) -> Any:
        return run_plain(func, *args, **kwargs)

    handler.__name__ = name
    return handler


# ── lookup ──────────────────────────────────────────────────────────────────────────────────────


def test_lookup_prefers_exact_then_packet_then_rule_then_fallback() -> None:
    table = HandlerTable()
    assert table.lookup(aten.add.Tensor) is None
    fallback, by_family, packet = general("fallback"), general("family"), general("packet")
    table.fallback(fallback)
    assert table.lookup(aten.add.Tensor) is fallback
    table.implements_where(family="pointwise")(by_family)
    table.implements_where(tag="pointwise")(by_family)
    assert table.lookup(aten.add.Tensor) is by_family
    assert table.lookup(aten.mm.default) is fallback
    table.implements(aten.add)(packet)
    assert table.lookup(aten.add.Tensor) is packet
    assert table.lookup(aten.add) is packet

    @table.implements(aten.add.Tensor)
    def exact(self: Any, other: Any, *, alpha: Any = 1) -> Any: ...

    assert table.lookup(aten.add.Tensor) is exact
    assert table.lookup(aten.add.out) is packet


@pytest.mark.parametrize(
    "key", [aten.mm.default, torch.ops.aten.mm.default, "aten::mm", "aten.mm.default"]
)
def test_keys_are_handles_overloads_and_names(key: Any) -> None:
    table = HandlerTable()

    @table.implements(key)
    def mm(self: Any, mat2: Any) -> Any: ...

    assert table.lookup(torch.ops.aten.mm.default) is mm
    assert table.lookup(aten.mm.default) is mm
    assert table.lookup("aten::mm") is mm


@pytest.mark.parametrize("packet", [aten.add, torch.ops.aten.add])
def test_packets_of_ours_and_torchs(packet: Any) -> None:
    table = HandlerTable()
    handler = table.implements(packet)(general("any"))  # type: ignore[no-untyped-call]
    assert table.lookup(aten.add.Scalar) is handler


def test_one_handler_for_several_operators() -> None:
    table = HandlerTable()

    @table.implements(aten.sin.default, aten.cos.default)
    def unary(self: Any) -> Any: ...

    assert table.lookup(aten.sin.default) is table.lookup(aten.cos.default) is unary


def test_rule_by_predicate_gets_the_handle() -> None:
    table = HandlerTable()
    handler = table.implements_where(predicate=lambda handle: handle.facts.view)(general("views"))
    assert table.lookup(aten.t.default) is handler
    assert table.lookup(aten.mm.default) is None


def test_of_several_conditions_all_must_hold() -> None:
    table = HandlerTable()
    handler = table.implements_where(tag="core", predicate=lambda handle: handle.facts.view)(
        general("core views")
    )
    assert table.lookup(aten.view.default) is handler
    assert table.lookup(aten.mm.default) is None
    assert table.lookup(aten.swapaxes.default) is None


def test_last_rule_that_fits_counts() -> None:
    table = HandlerTable()
    table.implements_where(tag="pointwise")(general("first"))
    last = table.implements_where(predicate=lambda handle: True)(general("last"))
    assert table.lookup(aten.sin.default) is last


def test_rule_knows_operators_that_the_specs_do_not_have() -> None:
    with torch.library._scoped_library("tabletest", "DEF") as library:
        library.define("thing(Tensor x) -> Tensor", tags=(torch.Tag.pointwise,))
        table = HandlerTable()
        handler = table.implements_where(tag="pointwise")(general("rule"))
        assert table.lookup(torch.ops.tabletest.thing.default) is handler


def test_registering_later_is_seen_by_what_was_looked_up_before() -> None:
    class Child(Tabled):
        pass

    assert Child.table.lookup(aten.mm.default) is None
    handler = Tabled.table.implements(aten.mm)(general("late"))
    try:
        assert Child.table.lookup(aten.mm.default) is handler
    finally:
        Tabled.table._packets.clear()
        Tabled.table.implements(aten.neg)(general("other"))
        Tabled.table._packets.clear()


def test_higher_order_operator_can_be_a_key() -> None:
    table = HandlerTable()

    @table.implements(ops.higher_order.cond)
    def cond(pred: Any, true_fn: Any, false_fn: Any, operands: Any) -> Any: ...

    assert table.lookup(torch.ops.higher_order.cond) is cond


# ── mistakes ────────────────────────────────────────────────────────────────────────────────────


def test_unknown_tag_names_near_ones() -> None:
    with pytest.raises(TableError, match="no tag 'pointwize'; did you mean pointwise"):
        HandlerTable().implements_where(tag="pointwize")


def test_unknown_family_names_near_ones() -> None:
    with pytest.raises(TableError, match="no family 'reduction'; did you mean reductions"):
        HandlerTable().implements_where(family="reduction")


def test_rule_without_condition() -> None:
    with pytest.raises(TableError, match="needs a tag, a family or a predicate"):
        HandlerTable().implements_where()


def test_no_operator() -> None:
    with pytest.raises(TableError, match="at least one operator"):
        HandlerTable().implements()


def test_unknown_policy() -> None:
    with pytest.raises(TableError, match="'error', 'decompose' or 'next', not 'unwrap'"):
        HandlerTable(missing="unwrap")  # type: ignore[arg-type]


def test_misspelt_operator() -> None:
    with pytest.raises(UnknownOperatorError, match="did you mean"):
        HandlerTable().implements("aten::ad")


# ── whose entries ───────────────────────────────────────────────────────────────────────────────


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


# ── running ─────────────────────────────────────────────────────────────────────────────────────


def test_handler_gets_named_complete_arguments() -> None:
    class Slices(Tabled):
        table = HandlerTable()

    got: list[tuple[Any, ...]] = []

    @Slices.table.implements(aten.slice.Tensor)
    def _(self: Any, dim: Any = 0, start: Any = None, end: Any = None, step: Any = 1) -> Any:
        got.append((dim, start, end, step))
        return run_plain(torch.ops.aten.slice.Tensor, self, dim, start, end, step)

    x = tabled([0, 1, 2, 3], Slices)
    x[::2], x[0:2], x[1:]
    assert [(dim, step) for dim, _, _, step in got] == [(0, 2), (0, 1), (0, 1)]
    assert [start for _, start, _, _ in got] == [0, 0, 1]


def test_handler_gets_the_default_that_torch_left_out_and_keeps_what_it_did_not() -> None:
    class Adds(Tabled):
        table = HandlerTable()

    got: list[Any] = []

    @Adds.table.implements(aten.add.Tensor)
    def _(self: Any, other: Any, *, alpha: Any = 1) -> Any:
        got.append(alpha)
        return run_plain(torch.add, self, other, alpha=alpha)

    x = tabled([1.0], Adds)
    torch.add(x, x, alpha=1), torch.add(x, x), torch.add(x, x, alpha=1.0), torch.add(x, x, alpha=2)
    assert [(type(alpha), alpha) for alpha in got] == [(int, 1), (int, 1), (float, 1.0), (int, 2)]


@pytest.mark.parametrize("style", ["func first", "as __torch_dispatch__"])
def test_general_handler_may_be_written_either_way(style: str) -> None:
    class Any_(Tabled):
        table = HandlerTable()

    if style == "func first":

        @Any_.table.fallback
        def _(func: Any, *args: Any, **kwargs: Any) -> Any:
            return run_plain(func, *args, **kwargs)

    else:

        @Any_.table.fallback
        def _(func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            assert types == (Any_,)
            return run_plain(func, *args, **kwargs)

    assert torch.add(tabled([1.0], Any_), 2, alpha=3).tolist() == [7.0]


def test_frames_carry_the_operators_name() -> None:
    class Fails(Tabled):
        table = HandlerTable()

    @Fails.table.implements(aten.sin.default)
    def _(self: Any) -> Any:
        raise ValueError

    @Fails.table.implements(aten.cos.default)
    def my_cos(self: Any) -> Any:
        raise ValueError

    for call, name in ((torch.sin, "aten::sin"), (torch.cos, "my_cos[aten::cos]")):
        with pytest.raises(ValueError) as caught:  # noqa: PT011  # it has no text
            call(tabled([1.0], Fails))
        frames = traceback.extract_tb(caught.value.__traceback__)
        assert name in [frame.name for frame in frames]


def test_decorated_function_itself_stays_as_it_was() -> None:
    table = HandlerTable()

    def sin(self: Any) -> Any:
        return self

    assert table.implements(aten.sin.default)(sin) is sin
    assert table.lookup(aten.sin.default) is sin
    assert sin.__code__.co_name == "sin"


def test_renamed_handler_sees_its_closure_and_keyword_defaults() -> None:
    class Closes(Tabled):
        table = HandlerTable()

    offset = [1.0]

    @Closes.table.implements(aten.add.Tensor)
    def _(self: Any, other: Any, *, alpha: Any = 1) -> Any:
        return run_plain(torch.add, self, other, alpha=alpha) + offset[0]

    x = tabled([1.0], Closes)
    assert (x + x).tolist() == [3.0]
    offset[0] = 2.0
    assert (x + x).tolist() == [4.0]


# ── methods ─────────────────────────────────────────────────────────────────────────────────────


def test_class_and_static_methods_are_handlers_and_stay_methods() -> None:
    class Base(Tabled):
        table = HandlerTable()
        asked: list[Any] = []  # noqa: RUF012  # of this test alone

        @table.implements(aten.sin.default)  # type: ignore[arg-type]  # mypy sees the parameter cls
        @classmethod
        def my_sin(cls, self: Any) -> Any:
            cls.asked.append(cls)
            return run_plain(torch.cos, self)

        @table.implements(aten.exp.default)
        @staticmethod
        def my_exp(self: Any) -> Any:
            return run_plain(torch.log, self)

        @table.fallback  # type: ignore[type-var]  # mypy sees the parameter cls
        @classmethod
        def anything(cls, func: Any, *args: Any, **kwargs: Any) -> Any:
            cls.asked.append(func)
            return run_plain(func, *args, **kwargs)

    class Child(Base):
        pass

    x, y = tabled([1.0], Base), tabled([1.0], Child)
    cosine = torch.ones(1).cos()
    assert torch.equal(x.sin(), cosine)
    assert torch.equal(y.sin(), cosine)
    assert y.exp().item() == 0
    assert (x + 1).item() == 2
    assert Base.asked == [Base, Child, torch.ops.aten.add.Tensor]
    assert Base.my_exp(torch.ones(1)).item() == 0
    assert Base.table.lookup(aten.sin) == Base.anything
    assert Child.table.lookup(aten.sin.default) == Child.my_sin


def test_bound_method_is_a_handler_and_its_frame_is_named() -> None:
    class Scales(DispatchMode):
        def __init__(self, scale: float) -> None:
            super().__init__(HandlerTable(missing="next"))
            self.scale = scale
            self.table.implements(aten.sin.default)(self.sin)

        def sin(mode, self: Any) -> Any:
            if mode.scale < 0:
                raise ValueError
            return self * mode.scale

    x = torch.ones(1)
    with Scales(2.0), Scales(3.0):
        assert x.sin().item() == 3
    with Scales(-1.0), pytest.raises(ValueError) as caught:  # noqa: PT011  # it has no text
        x.sin()
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert "sin[aten::sin]" in [frame.name for frame in frames]


def test_method_that_is_not_bound_is_told_from_one_with_other_parameters() -> None:
    def mm(mode: Any, self: Any, mat2: Any) -> Any:
        raise AssertionError

    with pytest.raises(HandlerSignatureError) as caught:
        HandlerTable().implements(aten.mm.default)(mm)  # type: ignore[arg-type]  # as it should
    assert caught.value.differences == (
        "'mode' is not an argument of the operator: register the bound method, or make it a "
        "classmethod or staticmethod",
    )


# ── missing ─────────────────────────────────────────────────────────────────────────────────────


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


def test_index_put_with_a_subclass_among_the_indices_is_handled_once() -> None:
    class Index(Tabled):
        table = HandlerTable()

    seen: list[str] = []

    @Index.table.fallback
    def _(func: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(str(func))
        return args[0]

    x = torch.zeros(3)
    x.index_put_((torch.tensor(0).as_subclass(Index),), torch.tensor(5.0))
    assert seen == ["aten.index_put_.default"]


@pytest.mark.parametrize("name", ["empty", "ones", "rand", "randn", "zeros", "full", "randint"])
def test_factory_like_a_subclass_gives_what_its_handler_gives(name: str) -> None:
    class Makes(Tabled):
        table = HandlerTable()

    @Makes.table.fallback
    def _(func: Any, *args: Any, **kwargs: Any) -> Any:
        return tabled([3.0], Makes)

    x = tabled([2.0], Makes)
    more = {"full": (1.0,), "randint": (3,)}.get(name, ())
    assert type(getattr(torch, f"{name}_like")(x, *more)) is Makes
    assert type(x.new_ones(3)) is Makes


def test_handler_may_answer_several_results_by_list_or_tuple() -> None:
    class Pairs(Tabled):
        table = HandlerTable()

    kind: list[Any] = [list]

    @Pairs.table.implements(aten.max.dim)
    def _(self: Any, dim: Any, keepdim: Any = False) -> Any:
        return kind[0](run_plain(torch.max, self, dim, keepdim))

    for kind[0] in (list, tuple):
        values, indices = torch.max(tabled([1.0, 3.0], Pairs), 0)
        assert (values.item(), indices.item()) == (3.0, 1)


def test_none_stands_for_a_tensor_that_is_not_there() -> None:
    class Nothing(Tabled):
        table = HandlerTable()

    @Nothing.table.fallback
    def _(func: Any, *args: Any, **kwargs: Any) -> Any:
        if func == aten.add.Scalar or func == aten.add.Tensor:
            return None
        return run_plain(func, *args, **kwargs).as_subclass(Nothing)

    x = tabled([0.5], Nothing)
    assert x + 2 is None
    out = x.requires_grad_().acos().sum()  # whose backward adds, then goes on
    with pytest.raises(RuntimeError, match="but got None"):
        out.backward()


def test_handler_errors_nest_without_wrapping_each_other() -> None:
    class Nested(Tabled):
        table = HandlerTable()

    @Nested.table.implements(aten.sin.default)
    def _(self: Any) -> Any:
        raise TypeError("deep")

    @Nested.table.implements(aten.cos.default)
    def _(self: Any) -> Any:
        return self.sin()

    with pytest.raises(HandlerError) as caught:
        tabled([1.0], Nested).cos()
    assert caught.value.overload == aten.sin.default


# ── what the subclass layer asks ────────────────────────────────────────────────────────────────


def test_entries_are_one_mapping_that_follows_registrations() -> None:
    class Followed(Tabled):
        table = HandlerTable()

    sin: Any = torch.ops.aten.sin.default
    entries = entries_of(Followed.table)
    missing = entries[sin]
    assert (missing.kind, missing.handler) == ("missing", None)
    assert entries[sin] is missing

    @Followed.table.implements(aten.sin.default)
    def _(self: Any) -> Any:
        return self

    assert entries_of(Followed.table) is entries
    assert entries[sin].kind == "exact"
    assert entries[sin] is not missing


@pytest.mark.parametrize("way", ["exact", "packet", "rule", "fallback"])
def test_table_with_a_handler_is_told_from_one_without(way: str) -> None:
    class Above(Tabled):
        table = HandlerTable()

    class Below(Above):
        pass

    register: dict[str, Callable[[], Callable[[Any], Any]]] = {
        "exact": lambda: Above.table.implements(aten.sin.default),
        "packet": lambda: Above.table.implements(aten.sin),
        "rule": lambda: Above.table.implements_where(tag="pointwise"),
        "fallback": lambda: Above.table.fallback,
    }

    def exact(self: Any) -> Any:
        return self

    assert not has_handlers(Below.table)
    register[way]()(exact if way == "exact" else general(way))
    assert has_handlers(Above.table)
    assert has_handlers(Below.table)
