from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from guards import (
    Checkpointable,
    DuplicateInputs,
    GlobalContext,
    GlobalContextCheckpointState,
    Guard,
    GuardsCheckpointState,
    GuardsContext,
    ModuleContext,
    ModuleContextCheckpointState,
    SnapshotError,
)
from hypothesis import given, settings
from hypothesis import strategies as st

NAMES = ["autocast_cache_enabled", "autocast_cpu_dtype", "autocast_cpu_enabled",
         "autocast_enabled", "autocast_gpu_dtype", "grad_enabled"]  # fmt: skip


def check(builder: Any, guard: Guard) -> None:
    raise NotImplementedError


def test_checkpointable_is_abstract() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Checkpointable()  # type: ignore[abstract]
    for context in (GuardsContext(), ModuleContext(), GlobalContext()):
        assert isinstance(context, Checkpointable)


# ── Guards ──


def filled(local: Any, *names: str) -> GuardsContext:
    context = GuardsContext()
    for name in names:
        context.dynamo_guards.add(local(name).make_guard(check), collect_debug_stack=False)
    context.aotautograd_guards.append(DuplicateInputs(local("p"), local("q")))
    return context


def test_a_snapshot_of_guards_is_a_copy(local: Any) -> None:
    context = filled(local, "a")
    state = context.copy_graphstate()
    context.dynamo_guards.add(local("b").make_guard(check))
    context.aotautograd_guards.append(DuplicateInputs(local("r"), local("s")))
    assert [g.name for g in state.dynamo_guards] == ["L['a']"]
    assert list(state.aotautograd_guards) == [DuplicateInputs(local("p"), local("q"))]


def test_restoring_guards_brings_back_both_kinds_any_number_of_times(local: Any) -> None:
    context = filled(local, "a")
    state = context.copy_graphstate()
    for _ in range(2):
        context.dynamo_guards.add(local("b").make_guard(check))
        context.aotautograd_guards.clear()
        context.restore_graphstate(state)
        assert [g.name for g in context.dynamo_guards] == ["L['a']"]
        assert context.aotautograd_guards == [DuplicateInputs(local("p"), local("q"))]
        assert isinstance(context.aotautograd_guards, list)
    assert context.copy_graphstate() == state


def test_difference_of_guards_is_one_sided(local: Any) -> None:
    small, large = filled(local, "a").copy_graphstate(), filled(local, "b", "a").copy_graphstate()
    assert small.diff(large) is None
    assert large.diff(small) == {local("b").make_guard(check)}
    extra = GuardsCheckpointState(small.dynamo_guards, [DuplicateInputs(local("r"), local("s"))])
    assert extra.diff(small) == {DuplicateInputs(local("r"), local("s"))}
    assert GuardsCheckpointState([]).diff(GuardsCheckpointState([])) is None


def test_equality_of_guards_is_of_the_content(local: Any) -> None:
    ab, ba = filled(local, "a", "b").copy_graphstate(), filled(local, "b", "a").copy_graphstate()
    a = filled(local, "a").copy_graphstate()
    assert ab == ba
    assert a != ab
    assert ab != a
    assert a != GuardsCheckpointState(a.dynamo_guards)
    assert a != ModuleContextCheckpointState({})
    assert a != "state"


# ── Modules ──


def test_a_snapshot_of_modules_is_a_copy() -> None:
    context = ModuleContext()
    context.nn_modules["a"] = module = torch.nn.Linear(1, 1)
    state = context.copy_graphstate()
    context.nn_modules["b"] = module
    assert state.nn_modules == {"a": module}
    for _ in range(2):
        context.restore_graphstate(state)
        assert context.nn_modules == {"a": module}
        context.nn_modules.clear()


def test_difference_and_equality_of_modules() -> None:
    a, b = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
    state = ModuleContextCheckpointState
    assert state({"x": a, "y": b}).diff(state({"x": b})) == {"y"}
    assert state({"x": a}).diff(state({"x": b, "y": a})) is None
    assert state({"x": a}) == state({"x": a})
    assert state({"x": a}) != state({"x": b})
    assert state({"x": a}) != state({"x": a, "y": b})
    assert state({"x": a, "y": b}) != state({"x": a})
    tensor = torch.ones(2)
    assert state({"x": tensor}) == state({"x": tensor})
    assert state({"x": tensor}) != state({"x": torch.ones(2)})


# ── Global state ──


class Setters:
    """Setters that write down how they are called."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def set(self, name: str, value: Any) -> None:
        self.calls.append((name, value))

    def state(self, **values: Any) -> dict[str, Any]:
        values = dict.fromkeys(NAMES, False) | values
        return {name: (functools.partial(self.set, name), v) for name, v in values.items()}


def test_restoring_global_state_calls_each_setter() -> None:
    setters, context = Setters(), GlobalContext()
    context.global_state = setters.state(grad_enabled=True)
    state = context.copy_graphstate()
    context.global_state["grad_enabled"] = (functools.partial(setters.set, "grad_enabled"), False)
    assert state.global_state["grad_enabled"][1] is True
    context.restore_graphstate(state)
    assert sorted(setters.calls) == [(name, name == "grad_enabled") for name in NAMES]
    assert context.copy_graphstate() == state
    context.global_state.clear()
    context.restore_graphstate(state)
    assert len(context.global_state) == len(NAMES)


def test_restoring_sets_torchs_own_state() -> None:
    context = GlobalContext()
    values = Setters().state()
    values["grad_enabled"] = (torch.set_grad_enabled, torch.is_grad_enabled())
    context.global_state = values
    state = context.copy_graphstate()
    with torch.no_grad():
        context.restore_graphstate(state)
        assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("change", "missing", "unknown"),
    [
        ({"drop": "grad_enabled"}, ["grad_enabled"], []),
        ({"add": "deterministic"}, [], ["deterministic"]),
        ({"drop": "grad_enabled", "add": "grad"}, ["grad_enabled"], ["grad"]),
    ],
)
def test_other_names_are_refused_before_anything_changes(
    change: dict[str, str], missing: list[str], unknown: list[str]
) -> None:
    setters, context = Setters(), GlobalContext()
    before = context.global_state = setters.state()
    values = setters.state()
    values.pop(change.get("drop", ""), None)
    if "add" in change:
        values[change["add"]] = (setters.set, 1)
    with pytest.raises(SnapshotError) as caught:
        context.restore_graphstate(GlobalContextCheckpointState(values))
    assert list(caught.value.missing) == missing
    assert list(caught.value.unknown) == unknown
    assert all(name in str(caught.value) for name in missing + unknown)
    assert context.global_state is before
    assert setters.calls == []


def test_difference_and_equality_of_global_state() -> None:
    setters = Setters()
    state = GlobalContextCheckpointState
    assert state(setters.state()) == state(setters.state())
    assert state(setters.state()) != state(setters.state(grad_enabled=True))
    assert state(setters.state()) != state(Setters().state())
    assert state(setters.state()).diff(state({})) == set(NAMES)
    assert state({}).diff(state(setters.state())) is None
    assert state({}) != state(setters.state())


# ── All of them ──

STATES: list[Any] = [
    GuardsCheckpointState([]),
    ModuleContextCheckpointState({}),
    GlobalContextCheckpointState({}),
]


@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
def test_states_do_not_hash(state: Any) -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(state)


@pytest.mark.parametrize("context", [GuardsContext(), ModuleContext(), GlobalContext()])
@pytest.mark.parametrize("state", [*STATES, None, {}], ids=lambda state: type(state).__name__)
def test_a_snapshot_of_something_else_is_refused(context: Any, state: Any) -> None:
    if type(context.copy_graphstate()) is type(state) and not isinstance(context, GlobalContext):
        context.restore_graphstate(state)
    else:
        with pytest.raises(SnapshotError):
            context.restore_graphstate(state)


MODULES = st.dictionaries(st.sampled_from("abc"), st.integers(0, 1))


@pytest.mark.slow
@settings(deadline=None)
@given(MODULES, MODULES)
def test_states_are_equal_exactly_when_neither_lacks_anything(
    left: dict[str, int], right: dict[str, int]
) -> None:
    a, b = ModuleContextCheckpointState(left), ModuleContextCheckpointState(right)
    assert (a == b) is (left == right)
    assert a.diff(b) == ((left.keys() - right.keys()) or None)
    if a == b:
        assert a.diff(b) is None
        assert b.diff(a) is None
