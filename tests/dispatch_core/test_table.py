"""HandlerTable: which of its handlers answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from dispatch_core import HandlerTable, TableError, UnknownOperatorError, ops
from dispatch_core._for_subclass_utils import entries_of, has_handlers

from tests.dispatch_core.wrapping import Tabled, general

aten = ops.aten


# ── lookup ────────────────────────────────────────────────────────────────────────────────────────


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


# ── mistakes ──────────────────────────────────────────────────────────────────────────────────────


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


# ── what the subclass layer asks ──────────────────────────────────────────────────────────────────


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
