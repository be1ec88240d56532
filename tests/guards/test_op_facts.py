"""What operators do, from the specs, and from torch where the specs are silent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from guards import OpFacts, facts
from guards._errors import UnknownOperatorError


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("aten::_int_mm", {}),
        ("aten::mm", {"composite": "explicit"}),
        ("aten::add.Tensor", {"composite": "explicit"}),
        ("aten::add_.Tensor", {"inplace": True, "mutates": ("self",)}),
        ("aten::add.out", {"out": True, "mutates": ("out",)}),
        ("aten::view", {"view": True}),
        ("aten::_local_scalar_dense", {"reads_data": "always"}),
        ("aten::nonzero", {"output_shape": "dynamic"}),
        ("aten::index.Tensor", {"output_shape": "dynamic", "reads_data": "by_argument"}),
        ("aten::bernoulli_.float", {"random": True, "inplace": True}),
        ("aten::linear", {"composite": "implicit"}),
    ],
)
def test_facts_from_the_specs(name: str, said: dict[str, Any]) -> None:
    found = facts(name)
    assert found.known
    assert found.family
    for field, value in said.items():
        assert getattr(found, field) == value, field
    if not said:
        plain = OpFacts(found.family, False, False, False, (), "no", False, "no", "static", True)
        assert found == plain


def test_all_ways_to_name_an_operator() -> None:
    overload = torch.ops.aten.add.Tensor
    handle = SimpleNamespace(qualified_name="aten::add.Tensor")
    assert facts(overload) == facts("aten::add.Tensor") == facts(handle)  # type: ignore[arg-type]
    assert facts("aten::relu") == facts("aten::relu.default") == facts(torch.ops.aten.relu.default)


def test_operator_outside_the_specs() -> None:
    with torch.library._scoped_library("guards_test", "FRAGMENT") as library:
        library.define("grow(Tensor(a!) x, Tensor y) -> ()", tags=(torch.Tag.dynamic_output_shape,))
        library.define("look(Tensor(a) x) -> Tensor(a)")
        library.define(
            "roll_(Tensor(a!) x) -> Tensor(a!)", tags=(torch.Tag.nondeterministic_seeded,)
        )
        grow, look = facts("guards_test::grow"), facts("guards_test::look")
        roll = facts(torch.ops.guards_test.roll_.default)
    assert (grow.known, grow.family, grow.mutates) == (False, "", ("x",))
    assert (grow.output_shape, grow.inplace, grow.view) == ("dynamic", False, False)
    assert look.view
    assert not look.mutates
    assert roll.random
    assert roll.inplace


def test_higher_order_operator() -> None:
    assert facts(torch.ops.higher_order.cond).family == "higher_order"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("aten::no_such_operator", "has no operator"),
        ("aten::add.no_such_overload", "has no operator"),
        ("add", "has no operator"),
        ("", "has no operator"),
        (torch.ops.aten.add, "overloads; name one of them"),
        (3, "an operator or its name was expected"),
        (torch.add, "an operator or its name was expected"),
    ],
    ids=range(7),
)
def test_what_is_no_operator(value: Any, message: str) -> None:
    with pytest.raises(UnknownOperatorError, match=message):
        facts(value)
