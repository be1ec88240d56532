"""What is handed over by mistake is named, with how to mend it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from dispatch_core import (
    BindError,
    DispatchError,
    DispatchMode,
    HandlerTable,
    NotAnOperatorError,
    TableError,
    handle_of,
    keep_composite,
    ops,
    propagate_modes,
)

aten = ops.aten
addmv = aten.addmv.default
TAKES: list[Callable[[Any], object]] = [
    handle_of,
    keep_composite,
    HandlerTable().implements,
    HandlerTable().lookup,
]


@pytest.mark.parametrize("takes", TAKES)
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "not an int: 3"),
        (None, "not a NoneType: None"),
        (["aten::add"], "not a list: ['aten::add']; give several operators as arguments of their"),
        (torch.add, "torch.Tensor object"),
        (aten, "not an OpNamespace: <OpNamespace aten>; name an operator of this namespace"),
        (torch.ops.aten, "from 'torch.ops'>; name an operator of this namespace"),
        (torch.nn.functional.relu, "; the operator of that name is ops.aten.relu"),
        (torch.Tensor.add_, "; the operator of that name is ops.aten.add_"),
        (pytest.raises, "not a function: <function raises"),
    ],
    ids=str,
)
def test_what_is_no_operator_is_named(
    takes: Callable[[Any], object], value: Any, text: str
) -> None:
    with pytest.raises(NotAnOperatorError) as caught:
        takes(value)
    message = str(caught.value)
    assert message.startswith("expected an operator of torch.ops or its name, not ")
    if value is torch.add:
        text = "; the operator of that name is ops.aten.add"
    assert text in message
    assert caught.value.value is value
    assert isinstance(caught.value, DispatchError)
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("value", [3, None, ("core",)], ids=str)
@pytest.mark.parametrize("what", ["tag", "family"])
def test_rule_for_what_is_no_name_is_refused(what: str, value: Any) -> None:
    if value is None:
        text = "needs a tag, a family or a predicate"
    else:
        text = f"{'torch has no tag' if what == 'tag' else 'the specs have no family'} {value!r}"
    with pytest.raises(TableError) as caught:
        HandlerTable().implements_where(**{what: value})
    assert text in str(caught.value)


def test_mode_with_a_dict_for_a_table_is_refused() -> None:
    wrong: Any = {}
    with pytest.raises(TableError, match=r"^a DispatchMode takes a HandlerTable, not \{\}$"):
        DispatchMode(wrong)

    class ByDict(DispatchMode):
        table = wrong

    with pytest.raises(TableError) as caught, ByDict():
        pass
    assert str(caught.value) == (
        "a DispatchMode answers from "
        "test_mode_with_a_dict_for_a_table_is_refused.<locals>.ByDict.table, a HandlerTable, "
        "not {}"
    )


def test_mode_that_answers_by_itself_may_call_anything_its_table() -> None:
    anything: Any = {}

    class ByHand(DispatchMode):
        table = anything

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return anything.get(func, func)(*args, **(kwargs or {}))

    with ByHand():
        assert torch.ones(1).cos().item() != 0


@pytest.mark.parametrize(
    ("args", "kwargs", "got"),
    [
        (3, None, "int and dict"),
        (torch.ones(2), None, "Tensor and dict"),
        ((1, 2, 3), 5, "tuple and int"),
    ],
    ids=str,
)
def test_bind_given_something_else_than_a_sequence_and_a_mapping(
    args: Any, kwargs: Any, got: str
) -> None:
    with pytest.raises(BindError) as caught:
        addmv.bind(args, kwargs)
    assert str(caught.value) == (
        "aten::addmv: bind takes the positional arguments in a sequence and those by name in a "
        f"mapping, bind((x, y), {{'dim': 0}}), not {got}; the schema is {addmv.schema}"
    )


@pytest.mark.parametrize("handle", [addmv, aten.rand_like.default, aten.empty.memory_format])
@pytest.mark.parametrize(
    ("values", "got"), [(None, "a NoneType"), ([1], "a list"), (torch.ones(1), "a Tensor")], ids=str
)
def test_elide_given_something_else_than_a_mapping(handle: Any, values: Any, got: str) -> None:
    with pytest.raises(BindError) as caught:
        handle.elide(values)
    assert str(caught.value) == (
        f"{handle.qualified_name}: elide takes a mapping of names to values, as bind gives, "
        f"not {got}"
    )


def test_what_cannot_be_run_is_refused_before_there_is_a_thread() -> None:
    wrong: Any = 3
    with pytest.raises(TypeError, match="propagate_modes takes the function to run with them"):
        propagate_modes(wrong)
