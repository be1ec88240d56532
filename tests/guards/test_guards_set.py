from __future__ import annotations

import traceback
from typing import Any

import pytest
from guards import Guard, GuardSource, GuardsSet, Source, TracingContext, tracing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

# The fixtures only choose a style of class, so sharing them between examples is safe.
LAW = settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def check(builder: Any, guard: Guard) -> None:
    raise NotImplementedError


def other_check(builder: Any, guard: Guard) -> None:
    raise NotImplementedError


def names(guards: Any) -> list[str]:
    return [guard.name for guard in guards]


def test_order_length_and_truth(style: Any) -> None:
    guards = GuardsSet()
    assert not guards
    assert len(guards) == 0
    for name in "cab":
        guards.add(style.Local(name).make_guard(check), collect_debug_stack=False)
    guards.add(style.Local("a").make_guard(check), collect_debug_stack=False)
    assert names(guards) == ["L['c']", "L['a']", "L['b']"]
    assert len(guards) == 3
    assert guards
    assert style.Local("a").make_guard(check) in guards
    assert style.Local("a").make_guard(other_check) not in guards


def test_starting_from_a_set_copies_it(local: Any) -> None:
    a, b = local("a").make_guard(check), local("b").make_guard(check)
    start = {a}
    guards = GuardsSet(start)
    guards.add(b)
    start.clear()
    assert list(guards) == [a, b]
    assert a.stack is None
    assert b.stack is not None


def test_difference(local: Any) -> None:
    a, b, c = (local(name).make_guard(check) for name in "abc")
    left = GuardsSet([c, a, b])
    difference = left - GuardsSet([local("a").make_guard(check)])
    assert type(difference) is GuardsSet
    assert list(difference) == [c, b]
    assert len(left) == 3
    assert not left - left


def test_adding_again_keeps_the_first_guard_and_its_stacks(local: Any) -> None:
    first, second = local("a").make_guard(check), local("a").make_guard(check)
    guards = GuardsSet()
    guards.add(first)
    stack = first.stack
    guards.add(second)
    guards.add(first)
    assert [id(g) for g in guards] == [id(first)]
    assert first.stack is stack
    assert second.stack is None
    assert second.user_stack is None


def innermost(guard: Guard) -> str:
    stack: Any = guard.stack
    return str(stack.summary()[-1].name)


@pytest.mark.slow  # the first stack that torch makes readable takes seconds
def test_the_stack_ends_at_the_caller(local: Any) -> None:
    def caller(skip: int) -> Guard:
        guard: Guard = local("a").make_guard(check)
        GuardsSet().add(guard, skip=skip)
        return guard

    def updating() -> Guard:
        guard: Guard = local("a").make_guard(check)
        GuardsSet().update([guard])
        return guard

    assert innermost(caller(0)) == "caller"
    assert innermost(caller(1)) == "test_the_stack_ends_at_the_caller"
    assert innermost(updating()) == "updating"


def test_the_stack_is_wanted_or_not(local: Any) -> None:
    wanted, unwanted = local("a").make_guard(check), local("b").make_guard(check)
    guards = GuardsSet()
    guards.add(wanted)
    guards.add(unwanted, collect_debug_stack=False)
    assert wanted.stack is not None
    assert unwanted.stack is None
    assert wanted.user_stack == unwanted.user_stack == traceback.StackSummary()


def test_the_users_stack_comes_from_the_trace(local: Any) -> None:
    kept = traceback.StackSummary.from_list([("kept.py", 1, "kept", "")])
    traced, known = local("a").make_guard(check), local("b").make_guard(check)
    known.user_stack = kept
    with tracing(TracingContext(None)):
        TracingContext.set_current_loc("user.py", 7, "forward")
        guards = GuardsSet()
        guards.add(traced, collect_debug_stack=False)
        guards.add(known, collect_debug_stack=False)
    assert traced.user_stack is not None
    assert [(f.filename, f.lineno, f.name) for f in traced.user_stack] == [
        ("user.py", 7, "forward")
    ]
    assert known.user_stack is kept


def test_guards_reached_through_a_source_are_removed(style: Any) -> None:
    x, y = style.Local("x"), style.Local("y")
    guards = GuardsSet()
    for source in (
        x,
        style.Attr(x, "a"),
        y,
        style.Attr(style.Attr(x, "a"), "b"),
        style.Attr(y, "a"),
    ):
        guards.add(source.make_guard(check), collect_debug_stack=False)
    guards.remove_guards_with_source(style.Attr(style.Local("x"), "a"))
    assert names(guards) == ["L['x']", "L['y']", "L['y'].a"]
    guards.remove_guards_with_source(style.Local("x"))
    assert names(guards) == ["L['y']", "L['y'].a"]
    guards.remove_guards_with_source(Source())
    assert len(guards) == 2


class Counted(Source):
    """A source that counts how often its name is asked for."""

    asked = 0

    def __init__(self, text: str) -> None:
        object.__setattr__(self, "text", text)

    def name(self) -> str:
        Counted.asked += 1
        return str(vars(self)["text"])

    def guard_source(self) -> GuardSource:
        return GuardSource.LOCAL


def test_adding_asks_for_each_name_once() -> None:
    made = [Counted(str(i)).make_guard(check) for i in range(1000)]
    Counted.asked = 0
    guards = GuardsSet()
    for guard in made:
        guards.add(guard, collect_debug_stack=False)
    assert len(guards) == 1000
    assert Counted.asked == 1000
    guards.update(made)
    assert guards - GuardsSet(made[1:]) is not None
    assert Counted.asked == 1000


# ── Against a model: lists of (path, which function) without repetition ──

PATHS = st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map(tuple)
ENTRIES = st.tuples(PATHS, st.sampled_from([check, other_check]))


def unique(entries: Any) -> list[Any]:
    return list(dict.fromkeys(entries))


@pytest.fixture
def make(style: Any) -> Any:
    def source(path: tuple[str, ...]) -> Source:
        made: Source = style.Local(path[0])
        for member in path[1:]:
            made = style.Attr(made, member)
        return made

    def make_set(entries: Any) -> GuardsSet:
        guards = GuardsSet()
        for path, fn in entries:
            guards.add(Guard(source(path), fn), collect_debug_stack=False)
        return guards

    make_set.source = source  # type: ignore[attr-defined]
    return make_set


def entries_of(guards: GuardsSet) -> list[Any]:
    return [
        (tuple(g.name.replace("L['", "").replace("']", "").split(".")), g.create_fn) for g in guards
    ]


@pytest.mark.slow
@LAW
@given(left=st.lists(ENTRIES, max_size=8), right=st.lists(ENTRIES, max_size=8), path=PATHS)
def test_sets_behave_as_lists_without_repetition(
    make: Any, left: list[Any], right: list[Any], path: tuple[str, ...]
) -> None:
    assert entries_of(make(left)) == unique(left)
    assert entries_of(make(left) - make(right)) == [e for e in unique(left) if e not in right]
    joined = make(left)
    joined.update(make(right), make(left))
    assert entries_of(joined) == unique(left + right)
    joined.remove_guards_with_source(make.source(path))
    assert entries_of(joined) == [
        (p, fn) for p, fn in unique(left + right) if p[: len(path)] != path
    ]
