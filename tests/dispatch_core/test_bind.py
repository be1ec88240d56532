"""bind: every parameter by its schema name, from any spelling; errors name op and argument."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from dispatch_core import BindError, DispatchError, handle_of, ops
from dispatch_core._runtime_stub import make_stub
from dispatch_core._schema import read_schema

ADDMV = "the schema is " + str(torch.ops.aten.addmv.default._schema)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((1, 2, 3), {"beta": 4}),
        ((1, 2), {"vec": 3, "beta": 4}),
        ((1,), {"beta": 4, "vec": 3, "mat": 2}),
        ((), {"beta": 4, "vec": 3, "mat": 2, "self": 1}),
        ([1, 2, 3], {"alpha": 1, "beta": 4}),
    ],
)
def test_bind_takes_any_spelling(args: Any, kwargs: Any) -> None:
    values = ops.aten.addmv.default.bind(args, kwargs)
    assert list(values.items()) == [("self", 1), ("mat", 2), ("vec", 3), ("beta", 4), ("alpha", 1)]


def test_bind_takes_none_for_no_keywords() -> None:
    want = {"self": 1, "other": 2}
    assert ops.aten.mul.Tensor.bind((1, 2)) == ops.aten.mul.Tensor.bind((1, 2), None) == want


def test_bind_without_arguments() -> None:
    assert handle_of("aten::_cufft_clear_plan_cache").bind((), {"device_index": 1}) == {
        "device_index": 1
    }
    handle = handle_of("profiler::_record_function_enter_new")
    assert handle.bind(("name",)) == {"name": "name", "args": None}


def test_bind_gives_a_fresh_list_for_a_default_each_time() -> None:
    handle = ops.aten.avg_pool2d.default
    first, second = handle.bind((1, 2)), handle.bind((1, 2))
    assert first["padding"] == second["padding"] == [0, 0]
    assert first["padding"] is not second["padding"]
    first["padding"].append(3)
    assert handle.bind((1, 2))["padding"] == [0, 0]
    assert handle.params[3].default == [0, 0]


def test_bind_keeps_the_caller_s_own_values() -> None:
    size = [2, 3]
    assert ops.aten.zeros.default.bind((size,))["size"] is size


def test_bind_takes_parameters_named_like_keywords_of_python() -> None:
    handle = handle_of("aten::random_.from")
    want = {"self": 1, "from": 2, "to": 3, "generator": None}
    for args, kwargs in [
        ((1, 2, 3), {}),
        ((1, 2), {"to": 3}),
        ((1,), {"from": 2, "to": 3}),
        ((), {"to": 3, "from": 2, "self": 1}),
    ]:
        values = handle.bind(args, kwargs)
        assert list(values.items()) == list(want.items())
    defaults = handle_of("aten::uniform").bind((1,), {"to": 0.5})
    assert defaults == {"self": 1, "from": 0.0, "to": 0.5, "generator": None}


@pytest.mark.parametrize(
    "name",
    [
        "args",
        "kwargs",
        "values",
        "self",
        "func",
        "types",
        "stub",
        "handle",
        "error",
        "name",
        "from",
    ],
)
@pytest.mark.parametrize("kwarg_only", [False, True])
def test_bind_and_elide_take_any_name_of_a_parameter(name: str, kwarg_only: bool) -> None:
    star = "*, " if kwarg_only else ""
    schema = read_schema(f"dc_names::f(Tensor x, {star}int {name}=1) -> Tensor")
    from dispatch_core._handle import Handle

    handle: Handle[Any] = Handle(schema.text)
    assert handle.bind((5,), {name: 2}) == {"x": 5, name: 2}
    assert handle.bind((), {name: 2, "x": 5}) == {"x": 5, name: 2}
    assert handle.bind((5,)) == {"x": 5, name: 1}
    assert handle.elide({"x": 5, name: 2}) == (((5,), {name: 2}) if kwarg_only else ((5, 2), {}))
    assert handle.elide({"x": 5, name: 1}) == ((5,), {})


# ── errors ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("args", "kwargs", "text", "argument", "problem"),
    [
        ((1, 2), {}, "missing argument 'vec'", "vec", "missing"),
        ((), {"vec": 1}, "missing arguments 'self', 'mat'", "self", "missing"),
        (
            (1, 2, 3),
            {"bta": 1},
            "unknown argument 'bta', did you mean 'beta'?",
            "bta",
            "unknown",
        ),
        ((1, 2, 3), {"zzz": 1}, "unknown argument 'zzz'", "zzz", "unknown"),
        (
            (1, 2, 3),
            {"mat": 1},
            "argument 'mat' given by position and by name",
            "mat",
            "duplicate",
        ),
        (
            (1, 2, 3, 4),
            {},
            "takes 3 positional arguments, got 4 (by keyword only: beta, alpha)",
            None,
            "surplus",
        ),
    ],
)
def test_misfit_names_operator_and_argument(
    args: Any, kwargs: Any, text: str, argument: str | None, problem: str
) -> None:
    with pytest.raises(BindError) as caught:
        ops.aten.addmv.default.bind(args, kwargs)
    assert str(caught.value) == f"aten::addmv: {text}; {ADDMV}"
    assert caught.value.qualified_name == "aten::addmv"
    assert caught.value.argument == argument
    assert caught.value.problem == problem
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, DispatchError)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.argument, again.problem) == (str(caught.value), argument, problem)


def test_the_renamed_spelling_of_a_keyword_is_unknown() -> None:
    with pytest.raises(BindError, match="unknown argument 'from_', did you mean 'from'"):
        handle_of("aten::random_.from").bind((1,), {"from_": 2, "to": 3})
    with pytest.raises(BindError, match="argument 'from' given by position and by name"):
        handle_of("aten::random_.from").bind((1, 2, 3), {"from": 2})
    with pytest.raises(BindError, match="missing argument 'from'"):
        handle_of("aten::random_.from").bind((1,), {"to": 3})


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ("dc::f(...) -> ...", "takes any number of unnamed arguments"),
        ("dc::f(float? a, float? a) -> Tensor", "names two of its arguments alike"),
    ],
)
def test_schema_without_names_of_its_own_says_so(schema: str, text: str) -> None:
    with pytest.raises(BindError) as caught:
        make_stub(read_schema(schema))(1)
    assert str(caught.value) == (
        f"dc::f: arguments cannot be bound by name, because the operator {text}: {schema}"
    )
    assert caught.value.problem == "unsupported"
