"""Each kind of guard takes what it was made from and refuses each kind of difference."""

from __future__ import annotations

import gc
import re
import weakref
from typing import Any

import pytest
import torch
from guards import (
    AttrSource,
    CheckFunction,
    GetItemSource,
    Guard,
    GuardBuilder,
    LocalSource,
    MissingValueError,
    UnsupportedGuardError,
    compile_guards,
    dumps,
    loads,
)

from tests.guards.kinds import STATES, Case, Color, Point, X, cases, state_guard

each_case = pytest.mark.parametrize("case", cases(), ids=str)


@each_case
def test_guard_holds_of_what_it_was_made_from(case: Case) -> None:
    check = compile_guards([case.guard()], case.scope(case.value))
    assert check(case.scope(case.value)) is True
    assert check.explain(case.scope(case.value)) is None


@each_case
def test_guard_takes_what_it_says_nothing_about(case: Case) -> None:
    check = compile_guards([case.guard()], case.scope(case.value))
    for value in case.taken:
        assert check(case.scope(value)), (value, str(check.explain(case.scope(value))))
        assert check.explain(case.scope(value)) is None


@each_case
def test_guard_refuses_each_difference_and_says_why(case: Case) -> None:
    check = compile_guards([case.guard()], case.scope(case.value))
    for value in case.refused:
        assert check(case.scope(value)) is False, value
        found = check.explain(case.scope(value))
        assert found is not None, value
        assert found.code in (case.kind, "EQUALS_MATCH", "ID_MATCH")
        assert found.expected != found.actual
        assert not re.search(r"0x[0-9a-f]{6}", str(found)), "an address says nothing"


@each_case
def test_guard_refuses_a_missing_value(case: Case) -> None:
    check = compile_guards([case.guard()], case.scope(case.value))
    scopes: list[Any] = [{}, {"y": 1}, None, 3]
    for scope in scopes:
        assert check(scope) is False
    assert check.explain({}) is not None


@each_case
def test_guard_says_the_same_among_many(case: Case) -> None:
    """Checks of one kind that are made together give the verdict that they give alone."""
    names = [f"k{i}" for i in range(300)]
    if case.source is not X or case.options.get("source_b") or case.more:
        pytest.skip("a guard about several values is always made alone")
    guards = [Guard(LocalSource(name), case.guard().create_fn) for name in names]
    same: dict[str, Any] = dict.fromkeys(names, case.value)
    check = compile_guards(guards, same)
    assert check(same)
    for number, value in enumerate(case.refused):
        changed = {**same, names[number * 20 % 300]: value}
        assert check(changed) is False, value
        assert check.explain(changed) is not None
    for value in case.taken:
        assert check({**same, "k7": value, "k299": value})
    del same["k150"]
    assert check(same) is False


@pytest.mark.parametrize(("kind", "change"), STATES, ids=[kind for kind, _ in STATES])
def test_guard_on_torch_state_refuses_another_state(kind: str, change: Any) -> None:
    check = compile_guards([state_guard(kind)], {})
    assert check({})
    with change():
        assert not check({})
        explained = check.explain({})
        assert explained is not None
        assert explained.code == kind
        inside = compile_guards([state_guard(kind)], {})
        assert inside({})
    assert check({})
    assert not inside({})


def test_guard_on_default_dtype() -> None:
    check = compile_guards([state_guard("DEFAULT_DTYPE")], {})
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        assert not check({})
        assert str(check.explain({})) == (
            "default dtype: expected torch.float32, found torch.float64"
        )
    finally:
        torch.set_default_dtype(before)
    assert check({})


def test_guard_on_deterministic_algorithms() -> None:
    check = compile_guards([state_guard("DETERMINISTIC_ALGORITHMS")], {})
    try:
        # What torch.use_deterministic_algorithms does, which also loads torch._inductor.
        torch._C._set_deterministic_algorithms(True, warn_only=True)
        assert not check({})
        assert str(check.explain({})) == (
            "deterministic algorithms: expected enabled off, warn_only off, "
            "found enabled on, warn_only on"
        )
    finally:
        torch._C._set_deterministic_algorithms(False)
    assert check({})


def test_autocast_that_is_on_or_off() -> None:
    off = compile_guards([state_guard("AUTOCAST_STATE")], {})
    with torch.autocast("cpu"):
        on = compile_guards([state_guard("AUTOCAST_STATE")], {})
        assert str(off.explain({})) == "autocast: expected cpu off, found cpu torch.bfloat16"
    assert str(on.explain({})) == "autocast: expected cpu torch.bfloat16, found cpu off"
    with torch.autocast("cpu", cache_enabled=False):
        assert str(on.explain({})) == "autocast: expected cache on, found cache off"


def test_autocast_guard_names_what_differs() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        check = compile_guards([state_guard("AUTOCAST_STATE")], {})
    with torch.autocast("cpu", dtype=torch.float16):
        assert str(check.explain({})) == (
            "autocast: expected cpu torch.bfloat16, found cpu torch.float16"
        )
    assert "found cpu off" in str(check.explain({}))


class Hostile:
    """An object all of whose special methods count calls, lie and raise."""

    calls = 0

    def _called(self, *args: Any) -> Any:
        Hostile.calls += 1
        raise RuntimeError("foreign code was run")

    __eq__ = __ne__ = __len__ = __getattr__ = __getattribute__ = _called
    __getitem__ = __iter__ = __bool__ = __repr__ = __str__ = __contains__ = _called
    __instancecheck__ = __call__ = __index__ = __float__ = __int__ = _called
    __lt__ = __le__ = __gt__ = __ge__ = __format__ = __reduce_ex__ = _called
    __hash__ = object.__hash__

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self._called()


class HostileKey:
    """A dict key that would collide with 'a'."""

    def __hash__(self) -> int:
        return hash("a")

    def __eq__(self, other: object) -> bool:
        Hostile.calls += 1
        raise RuntimeError("foreign code was run")


@each_case
def test_no_code_of_the_value_is_run(case: Case) -> None:
    check = compile_guards([case.guard()], case.scope(case.value))
    Hostile.calls = 0
    assert check(case.scope(Hostile())) is (case.kind == "NOT_PRESENT" and "attr" in case.options)
    check.explain(case.scope(Hostile()))
    assert Hostile.calls == 0


def test_guards_on_a_hostile_object_can_be_made() -> None:
    Hostile.calls = 0
    hostile = Hostile()
    check = compile_guards(
        [Guard(X, GuardBuilder.TYPE_MATCH), Guard(X, GuardBuilder.ID_MATCH)], {"x": hostile}
    )
    assert check({"x": hostile})
    assert not check({"x": Hostile()})
    assert check.explain({"x": Hostile()}) is not None
    assert Hostile.calls == 0


def test_property_is_run_only_if_allowed() -> None:
    class Counting:
        count = 0

        @property
        def value(self) -> int:
            Counting.count += 1
            return 5

    scope = {"x": Counting()}
    with pytest.raises(MissingValueError, match=r"AttrSource\(…, allow_call=True\) runs that code"):
        compile_guards([Guard(AttrSource(X, "value"), GuardBuilder.EQUALS_MATCH)], scope)
    assert Counting.count == 0
    allowed = Guard(AttrSource(X, "value", allow_call=True), GuardBuilder.EQUALS_MATCH)
    check = compile_guards([allowed], scope)
    before = Counting.count
    assert check(scope)
    assert Counting.count == before + 1


def check_of_things_that_die() -> tuple[CheckFunction, list[weakref.ref[Any]]]:
    class Local:
        t: torch.Tensor

    inside = Local()
    inside.t = torch.zeros(3)
    function = eval("lambda: 0")
    guards = [
        Guard(LocalSource("f"), GuardBuilder.FUNCTION_MATCH),
        Guard(LocalSource("o"), GuardBuilder.ID_MATCH),
        Guard(LocalSource("o"), GuardBuilder.TYPE_MATCH),
        Guard(AttrSource(LocalSource("o"), "t"), GuardBuilder.TENSOR_MATCH),
        Guard(LocalSource("d"), GuardBuilder.DICT_KEYS_MATCH),
    ]
    scope: Any = {"o": inside, "f": function, "d": {inside: 1}}
    check = compile_guards(guards, scope)
    if not check(scope) or check.explain({}, all=True) is None:
        raise AssertionError("the guards must hold of what they were made from, and not of {}")
    return check, [weakref.ref(value) for value in (inside, function, inside.t, Local)]


@pytest.mark.slow  # collects garbage
def test_nothing_guarded_is_kept_alive() -> None:
    check, references = check_of_things_that_die()
    gc.collect()
    assert [reference() for reference in references] == [None] * 4
    assert check.death.happened


@pytest.mark.slow  # collects garbage
def test_dead_object_fails_the_guard() -> None:
    point = Point()
    check = compile_guards([Guard(X, GuardBuilder.ID_MATCH)], {"x": point})
    del point
    gc.collect()
    others = [Point() for _ in range(1000)]  # one of them may well lie at the same address
    assert not any(check({"x": other}) for other in others)
    explained = check.explain({"x": others[0]})
    assert explained is not None
    kind = f"{Point.__module__}.Point"
    assert explained.expected == f"the same object: an object of type {kind}, which is dead"
    assert explained.expression == f"L['x'] is {explained.expected}"
    assert explained.actual == f"another object: an object of type {kind}"


@pytest.mark.slow  # collects garbage
def test_many_dead_objects_fail_the_guards() -> None:
    scope = {f"k{i}": Point(i) for i in range(50)}
    check = compile_guards([Guard(LocalSource(k), GuardBuilder.ID_MATCH) for k in scope], scope)
    assert check(scope)
    del scope["k3"]
    gc.collect()
    for _ in range(1000):
        scope["k3"] = Point()
        assert not check(scope)


@pytest.mark.parametrize("value", [1, "a", (1, 2), [1], {}, {1}, 1.5, 10**30], ids=repr)
def test_identity_of_what_takes_no_weak_reference_is_refused(value: Any) -> None:
    if isinstance(value, set):
        pytest.skip("sets take weak references")
    with pytest.raises(UnsupportedGuardError, match="takes no weak reference"):
        compile_guards([Guard(X, GuardBuilder.ID_MATCH)], {"x": value})


@pytest.mark.parametrize("single", [None, True, False, ..., NotImplemented], ids=repr)
def test_identity_of_a_singleton_can_be_saved(single: Any) -> None:
    check = compile_guards([Guard(X, GuardBuilder.ID_MATCH)], {"x": single})
    again = compile_guards(loads(dumps(check)), {"x": single})
    assert again({"x": single})
    assert not again({"x": 0})


@pytest.mark.parametrize(
    ("kind", "value", "options"),
    [
        ("EQUALS_MATCH", Point(), {}),
        ("EQUALS_MATCH", [Point()], {}),
        ("NONE_MATCH", 0, {}),
        ("BOOL_MATCH", 1, {}),
        ("SEQUENCE_LENGTH", Point(), {}),
        ("DICT_KEYS_MATCH", [1], {}),
        ("SET_MATCH", {Point()}, {}),
        ("SET_MATCH", [1], {}),
        ("HASATTR", Point(), {"attr": "missing"}),
        ("NOT_PRESENT", Point(), {"attr": "a"}),
        ("NOT_PRESENT", {"k": 1}, {"key": "k"}),
        ("TENSOR_MATCH", 3, {}),
        ("TENSOR_MATCH", torch.zeros(2), {"dynamic_sizes": [1]}),
        ("RANGE_MATCH", "a", {}),
        ("RANGE_MATCH", True, {}),
        ("RANGE_MATCH", 5, {"low": 6}),
        ("MODULE_TRAINING", Point(), {}),
        ("DUPLICATE_INPUT", Point(), {"source_b": GetItemSource(LocalSource("y"), 0)}),
        ("SHAPE_RELATION", torch.zeros(2), {"relation": "a == 3", "symbols": {"a": X}}),
        ("SHAPE_RELATION", torch.zeros(2), {"relation": "a ** 3", "symbols": {"a": X}}),
        ("SHAPE_RELATION", torch.zeros(2), {"relation": "__import__('os')", "symbols": {}}),
        ("SHAPE_RELATION", torch.zeros(2), {"relation": "a.b == 1", "symbols": {"a": X}}),
        ("SHAPE_RELATION", torch.zeros(2), {"relation": "a ==", "symbols": {"a": X}}),
        ("SHAPE_RELATION", torch.zeros(2), {"relation": "b == 1", "symbols": {"a": X}}),
        ("STORAGE_OVERLAP", torch.zeros(2), {"overlapping": [], "non_overlapping": []}),
    ],
)
def test_guard_that_cannot_be_made_is_refused(kind: str, value: Any, options: Any) -> None:
    case = Case(kind, value, [], options=options, more={"y": [1]})
    with pytest.raises(UnsupportedGuardError, match=kind):
        compile_guards([case.guard()], case.scope(value))


def test_enum_is_spelled_as_a_user_writes_it() -> None:
    check = compile_guards([Guard(X, GuardBuilder.EQUALS_MATCH)], {"x": Color.RED})
    assert str(check.explain({"x": Color.BLUE})) == (
        "L['x'] == Color.RED: expected Color.RED, found Color.BLUE"
    )
