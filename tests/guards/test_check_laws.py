"""Laws of check functions, over random values; torch's own guard tree is the other opinion."""

from __future__ import annotations

import functools
import json
import re
from typing import Any

import pytest
import torch
from guards import Guard, GuardBuilder, LocalSource, compile_guards
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.guards.kinds import Case, Point, X, cases

KINDS = cases()
quick = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.0, -0.0, 1.0, float("nan"), 2.5]),
    st.sampled_from(["a", "b", "", b"a"]),
    st.sampled_from([torch.float32, torch.float64, ..., int, Point, len]),
)
tensors = st.builds(
    lambda shape, dtype, grad, turn: (
        torch.zeros(shape, dtype=dtype)
        .requires_grad_(grad and dtype.is_floating_point)
        .permute([*range(len(shape))][:: -1 if turn else 1])
    ),
    st.lists(st.integers(0, 3), max_size=3),
    st.sampled_from([torch.float32, torch.int64]),
    st.booleans(),
    st.booleans(),
)
values = st.recursive(
    st.one_of(scalars, tensors, st.builds(Point, st.integers(0, 2))),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.sampled_from(["a", "b", 1]), inner, max_size=3),
    ),
    max_leaves=5,
)


@st.composite
def guard_sets(draw: st.DrawFn) -> tuple[list[Guard], dict[str, Any], list[Case]]:
    """Draw guards on several locals, with the values that they are made from."""
    chosen = draw(st.lists(st.sampled_from(range(len(KINDS))), min_size=1, max_size=6))
    guards, scope, kinds = [], {}, []
    for number, index in enumerate(chosen):
        case = KINDS[index]
        if case.more or type(case.source) is not LocalSource:
            continue
        name = f"x{number}"
        guards.append(Guard(LocalSource(name), case.guard().create_fn))
        scope[name] = case.value
        kinds.append(case)
    return guards, scope, kinds


@pytest.mark.slow
@quick
@given(data=st.data())
def test_check_is_false_exactly_where_explain_says_why(data: st.DataObject) -> None:
    guards, scope, kinds = data.draw(guard_sets())
    check = compile_guards(guards, scope)
    assert check(scope)
    changed = dict(scope)
    for name, case in zip(scope, kinds, strict=True):
        how = data.draw(st.sampled_from(["keep", "other", "random", "drop"]))
        if how == "other":
            changed[name] = data.draw(st.sampled_from([*case.refused, *case.taken, case.value]))
        elif how == "random":
            changed[name] = data.draw(values)
        elif how == "drop":
            del changed[name]
    verdict = check(changed)
    explained = check.explain(changed, all=True)
    assert (explained is None) is verdict
    alone = [compile_guards([guard], scope)(changed) for guard in guards]
    assert all(alone) is verdict
    if explained is not None:
        first = check.explain(changed)
        assert first is not None
        assert str(first) == str(explained)
        # Never a guard that holds, and each that fails once.
        named = [re.findall(r"'x\d+'", failure.expression)[0] for failure in explained.failures]
        pairs = zip(guards, alone, strict=True)
        failing = [re.findall(r"'x\d+'", guard.name)[0] for guard, holds in pairs if not holds]
        assert sorted(named) == sorted(failing)
        assert json.loads(explained.to_json())["failures"][0]["code"] == explained.code
        again = check.explain(changed, all=True)
        assert again is not None
        assert again.to_json() == explained.to_json()


@pytest.mark.slow
@quick
@given(value=values, other=values)
def test_any_kind_that_can_be_made_takes_its_value(value: Any, other: Any) -> None:
    for kind in ("TYPE_MATCH", "EQUALS_MATCH", "CONSTANT_MATCH", "ID_MATCH", "SEQUENCE_LENGTH",
                 "DICT_KEYS_MATCH", "TENSOR_MATCH", "HASATTR"):  # fmt: skip
        guard = Guard(LocalSource("x"), getattr(GuardBuilder, kind))
        try:
            check = compile_guards([guard], {"x": value})
        except ValueError:
            continue
        assert check({"x": value})
        assert check({"x": other}) is (check.explain({"x": other}) is None)


# ── torch's own opinion ──────────────────────────────────────────────────────────────────────────


def tree_of(kind: str, value: Any) -> Any:
    """Make torch's own guard tree with one leaf of this kind on ``L['x']``."""
    from torch._C._dynamo.guards import RootGuardManager
    from torch._dynamo.guards import GuardManagerType

    root: Any = RootGuardManager()
    node = root.dict_getitem_manager("x", "L['x']", value, GuardManagerType.GUARD_MANAGER)
    if kind == "TENSOR_MATCH":
        keys = torch._C._dispatch_keys(value)
        sizes = [list(value.size()), list(value.stride())]
        node.add_tensor_match_guard(value, *sizes, "x", ["x"], None, type(value), keys)
    elif kind == "TYPE_MATCH":
        node.add_type_match_guard(id(type(value)), ["x"], None)
    elif kind == "ID_MATCH":
        node.add_id_match_guard(id(value), ["x"], None)
    elif kind == "EQUALS_MATCH":
        node.add_equals_match_guard(value, ["x"], None)
    elif kind == "SEQUENCE_LENGTH":
        node.add_length_check_guard(len(value), ["x"], None)
    else:
        node.add_none_match_guard(["x"], None)
    return root


KNOWN_TO_TORCH = {"TENSOR_MATCH", "TYPE_MATCH", "ID_MATCH", "NONE_MATCH"}
SHARED = [
    case
    for case in KINDS
    if case.source is X
    and not case.options
    and (
        case.kind in KNOWN_TO_TORCH
        or (case.kind == "EQUALS_MATCH" and type(case.value) in (int, str, bool))
        or (case.kind == "SEQUENCE_LENGTH" and type(case.value) is list)
    )
]


@pytest.mark.slow  # the first one loads torch._dynamo
@pytest.mark.parametrize("case", SHARED, ids=str)
def test_same_verdict_as_torch(case: Case) -> None:
    root = tree_of(case.kind, case.value)
    check = compile_guards([case.guard()], {"x": case.value})
    for value in [case.value, *case.refused, *case.taken]:
        if case.kind == "SEQUENCE_LENGTH" and not isinstance(value, list | tuple):
            continue  # torch's asks sequences only
        assert check({"x": value}) is bool(root.check({"x": value})), value


@pytest.mark.slow
@quick
@given(value=tensors, other=st.one_of(tensors, scalars))
def test_same_verdict_as_torch_on_tensors(value: torch.Tensor, other: Any) -> None:
    check = compile_guards([Guard(LocalSource("x"), GuardBuilder.TENSOR_MATCH)], {"x": value})
    root = tree_of("TENSOR_MATCH", value)
    for found in (value, other):
        assert check({"x": found}) is bool(root.check({"x": found}))
    with torch.inference_mode():
        assert check({"x": value}) is bool(root.check({"x": value})) is False


# ── hostile values ───────────────────────────────────────────────────────────────────────────────


class LyingClass(type):
    def __eq__(cls, other: object) -> bool:
        raise RuntimeError("foreign code was run")

    def __hash__(cls) -> int:
        raise RuntimeError("foreign code was run")

    def __instancecheck__(cls, value: object) -> bool:
        raise RuntimeError("foreign code was run")


class Lying(metaclass=LyingClass):
    __class__ = int  # type: ignore[assignment]

    def __del__(self) -> None:
        DELETED.append(1)


DELETED: list[int] = []


def test_metaclass_with_its_own_equality() -> None:
    x = Lying()
    guards = [
        Guard(LocalSource("x"), kind) for kind in (GuardBuilder.TYPE_MATCH, GuardBuilder.ID_MATCH)
    ]
    check = compile_guards(guards, {"x": x})
    assert check({"x": x})
    other = Lying()
    assert not check({"x": other})
    assert check.explain({"x": other}) is not None
    assert not check({"x": 3})
    before = len(DELETED)
    del x
    assert len(DELETED) == before + 1
    assert not check({"x": other})


def test_keys_whose_hashes_collide() -> None:
    class Key:
        def __init__(self, name: str) -> None:
            self.name = name

        def __hash__(self) -> int:
            return hash("a")

        def __eq__(self, other: object) -> bool:
            raise RuntimeError("foreign code was run")

    for options in ({}, {"ordered": False}):
        case = Case("DICT_KEYS_MATCH", {"a": 1, "b": 2}, [], options=options)
        check = compile_guards([case.guard()], {"x": {"a": 1, "b": 2}})
        assert check({"x": {Key("k"): 1, "b": 2}}) is False
        assert check.explain({"x": {Key("k"): 1, "b": 2}}) is not None


def test_property_added_to_the_class_later() -> None:
    from guards import AttrSource

    class Late:
        def __init__(self) -> None:
            self.a = 5

    calls: list[int] = []
    x = Late()
    guard = Guard(AttrSource(LocalSource("x"), "a"), GuardBuilder.EQUALS_MATCH)
    check = compile_guards([guard], {"x": x})
    assert check({"x": x})
    Late.a = property(lambda self: calls.append(1) or 5)  # type: ignore[assignment,func-returns-value]
    verdict = check({"x": x})
    assert verdict is (check.explain({"x": x}) is None)
    assert not calls, "a property was run that nobody allowed"
    assert verdict is False


def test_check_in_many_threads() -> None:
    import threading

    scope: dict[str, Any] = {f"x{i}": torch.zeros(i % 5 + 1) for i in range(50)}
    guards = [Guard(LocalSource(name), GuardBuilder.TENSOR_MATCH) for name in scope]
    check = compile_guards(guards, scope)
    wrong = {**scope, "x7": torch.zeros(9)}
    answers: list[bool] = []

    def ask() -> None:
        for _ in range(200):
            answers.append(check(scope) is True and check(wrong) is False)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 800
    assert all(answers)


def test_memory_in_storages_that_start_at_different_places() -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.zeros(10, dtype="float32")
    whole, later = torch.from_numpy(array), torch.from_numpy(array[5:])
    sources = [LocalSource("a"), LocalSource("b")]
    apart = functools.partial(GuardBuilder.STORAGE_OVERLAP, overlapping=[], non_overlapping=sources)
    check = compile_guards([Guard(sources[0], apart)], {"a": whole[:4], "b": whole[5:]})
    # By their places within their storages these two do not meet.
    assert not check({"a": whole[5:8], "b": later[:3]})
    assert check({"a": whole[:5], "b": later})
    assert check({"a": whole[:4], "b": whole[4:]})
