"""Which constants are one object, what enums say of themselves, and what classes come from."""

from __future__ import annotations

import collections
import copy
import enum
import gc
import operator
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from guards import specialize

from tests.guards.twins import first_number

ONE = torch.ones(2)


def check(function: Callable[..., Any], calls: list[tuple[Any, ...]], hits: int) -> None:
    """Compare with the plain function, call by call, of which so many repeat a record."""
    special = specialize(function)
    found = [first_number(special, ONE, *arguments) for arguments in calls]
    assert found == [first_number(function, ONE, *arguments) for arguments in calls]
    assert (special.stats.hits, special.refusals) == (hits, [])


# ── constants that are told by their identity ────────────────────────────────────────────────────

AUTO = ("auto", 2)
A_LIST = [1, 2]
NAN = float("nan")


def another(value: Any) -> Any:
    """Give an equal constant that is another object."""
    if type(value) is float:
        return float(str(value))
    return (*value,) if type(value) is tuple else "".join([*value])


def by_default(x: torch.Tensor, size: Any = AUTO) -> torch.Tensor:
    return x * 2 if size is AUTO else x * 3


def within_a_list(x: torch.Tensor, sizes: Any) -> torch.Tensor:
    return x * sum(2 if size is AUTO else 3 for size in sizes)


def by_operator(x: torch.Tensor, size: Any) -> torch.Tensor:
    return x * 2 if operator.is_(size, AUTO) else x * 3


def by_operator_of_another_name(x: torch.Tensor, size: Any) -> torch.Tensor:
    return x * 2 if same(size, AUTO) else x * 3


def by_operator_that_is_asked_for(x: torch.Tensor, size: Any) -> torch.Tensor:
    return x * 2 if getattr(operator, "is_")(size, AUTO) else x * 3  # noqa: B009  # what is tested


def by_operator_in_a_dict(x: torch.Tensor, size: Any) -> torch.Tensor:
    return x * 3 if WAYS["other"](size, AUTO) else x * 2


def by_operator_as_a_default(x: torch.Tensor, size: Any, same: Any = operator.is_) -> torch.Tensor:
    return x * 2 if same(size, AUTO) else x * 3


def by_operator_that_others_call(x: torch.Tensor, size: Any) -> torch.Tensor:
    return x * (3 - sum(map(same, [size], [AUTO])))


same = operator.is_
WAYS = {"other": operator.is_not}


def as_a_key(x: torch.Tensor, table: Any) -> torch.Tensor:
    return x * sum(5 if key is AUTO else 7 for key in table)


def of_the_code(x: torch.Tensor, word: Any) -> torch.Tensor:
    mode = "an automatic one"
    return x * 2 if word is mode else x * 3


@pytest.mark.parametrize(
    ("function", "wrap", "value"),
    [
        (by_default, lambda v: v, AUTO),
        (within_a_list, lambda v: [v], AUTO),
        (within_a_list, lambda v: (v, v), AUTO),
        (by_operator, lambda v: v, AUTO),
        (as_a_key, lambda v: {v: 1}, AUTO),
        (as_a_key, lambda v: {v: ONE}, AUTO),
        (as_a_key, lambda v: collections.OrderedDict({v: ONE}), AUTO),
        (by_operator_of_another_name, lambda v: v, AUTO),
        (by_operator_that_is_asked_for, lambda v: v, AUTO),
        (by_operator_in_a_dict, lambda v: v, AUTO),
        (by_operator_as_a_default, lambda v: v, AUTO),
        (by_operator_that_others_call, lambda v: v, AUTO),
        (of_the_code, lambda v: v, of_the_code.__code__.co_consts[1]),
    ],
)
def test_constant_that_is_told_from_an_equal_one(
    function: Any, wrap: Callable[[Any], Any], value: Any
) -> None:
    other = another(value)
    assert other == value
    assert other is not value
    check(function, [(wrap(v),) for v in (value, value, other, other, value)], hits=3)


def test_lists_within_one_argument_that_are_the_same() -> None:
    def function(x: torch.Tensor, table: Any) -> torch.Tensor:
        return x * 2 if table["a"] is table["b"] else x * 3

    same = {"a": A_LIST, "b": A_LIST}
    apart = {"a": [1, 2], "b": [1, 2]}
    check(function, [(same,), (same,), (apart,), (apart,), (same,)], hits=3)


def test_lists_that_a_deep_copy_keeps_one() -> None:
    def function(x: torch.Tensor, table: Any) -> torch.Tensor:
        mine = copy.deepcopy(table)
        mine["a"].append(3)
        return x * len(mine["b"])

    same = {"a": A_LIST, "b": A_LIST}
    apart = {"a": [1, 2], "b": [1, 2]}
    check(function, [(same,), (same,), (apart,), (apart,), (same,)], hits=3)


def test_identity_is_asked_for_where_code_tells_by_it_alone() -> None:
    def function(x: torch.Tensor, size: Any, mask: Any = None) -> torch.Tensor:
        return x * 2 if size == AUTO and mask is None else x * 3

    check(function, [(AUTO,), (another(AUTO),), (AUTO,)], hits=2)


def test_nan_is_found_in_a_container_by_its_identity() -> None:
    def function(x: torch.Tensor, value: Any, values: Any) -> torch.Tensor:
        return x * 2 if value in values else x * 3

    other = another(NAN)
    check(
        function,
        [(NAN, [NAN]), (NAN, [NAN]), (NAN, [other]), (other, [NAN]), (NAN, (NAN,)), (NAN, [NAN])],
        hits=3,
    )


def test_nan_as_a_key_is_found_by_its_identity() -> None:
    def function(x: torch.Tensor, value: Any, table: Any) -> Any:
        return x * table.get(value, 5)

    other = another(NAN)
    check(function, [(NAN, {NAN: 2}), (NAN, {NAN: 2}), (other, {NAN: 2}), (NAN, {NAN: 2})], hits=2)


@pytest.mark.parametrize(
    ("function", "first", "second", "place"),
    [
        (by_default, AUTO, another(AUTO), "L['size']"),
        (within_a_list, [1, AUTO], [1, another(AUTO)], "L['sizes']"),
        (as_a_key, {AUTO: ONE}, {another(AUTO): ONE}, "L['table']"),
    ],
)
def test_reason_names_the_constant(function: Any, first: Any, second: Any, place: str) -> None:
    special = specialize(function)
    special(ONE, first)
    (why,) = special.explain_miss(ONE, second)
    assert str(why) == (
        "the constants that are reached: expected the same ones to be one object, and others not, "
        f"found {place} is, or holds, another one than it was"
    )
    assert special.explain_miss(ONE, first) == []


# ── enums ────────────────────────────────────────────────────────────────────────────────────────


class Level(enum.Enum):
    LOW = 2
    HIGH = 3


class Ranks(enum.IntEnum):
    FIRST = 1
    LAST = 2


class Rows(enum.Enum):
    SHORT = [1, 2]  # noqa: RUF012  # a value that may change is what is tested


@pytest.fixture
def enums_as_before() -> Iterator[None]:
    tables = ("_member_names_", "_member_map_", "_value2member_map_")
    before = {
        (cls, table): getattr(cls, table).copy() for cls in (Level, Ranks, Rows) for table in tables
    }
    yield
    for (cls, table), value in before.items():
        now = getattr(cls, table)
        now.clear()
        now.extend(value) if type(now) is list else now.update(value)
    Level.LOW._value_, Level.HIGH._value_ = 2, 3
    Level.LOW._name_ = "LOW"
    Rows.SHORT._value_[:] = [1, 2]


def by_value_of_global(x: torch.Tensor) -> torch.Tensor:
    return x * Level.LOW.value


def by_values_of_all(x: torch.Tensor) -> torch.Tensor:
    for level in Level:
        x = x * 2 + level.value
    return x


def by_number(x: torch.Tensor) -> torch.Tensor:
    try:
        return x * Level(7).value
    except ValueError:
        return x


def by_name(x: torch.Tensor) -> torch.Tensor:
    try:
        return x * Level["TOP"].value
    except KeyError:
        return x


def by_count(x: torch.Tensor) -> torch.Tensor:
    return x * len(Ranks)


def by_length_of_name(x: torch.Tensor) -> torch.Tensor:
    return x * len(Level.LOW.name)


def by_list_that_is_a_value(x: torch.Tensor) -> torch.Tensor:
    return x * Rows.SHORT.value[0]


def change_value() -> None:
    Level.LOW._value_ = 9


def change_name() -> None:
    Level.LOW._name_ = "LOWEST"


def change_order() -> None:
    Level._member_names_.reverse()


def add_number() -> None:
    Level._value2member_map_[7] = Level.HIGH


def add_name() -> None:
    Level._member_map_["TOP"] = Level.HIGH


def add_member() -> None:
    Ranks._member_names_.append("LAST")


def change_list() -> None:
    Rows.SHORT.value[0] = 8


@pytest.mark.parametrize(
    ("function", "change"),
    [
        (by_value_of_global, change_value),
        (by_values_of_all, change_value),
        (by_values_of_all, change_order),
        (by_name, add_name),
        (by_count, add_member),
        (by_length_of_name, change_name),
        (by_list_that_is_a_value, change_list),
    ],
)
@pytest.mark.usefixtures("enums_as_before")
def test_enum_that_changes(function: Callable[..., Any], change: Callable[[], None]) -> None:
    special = specialize(function)
    before = first_number(special, ONE)
    assert first_number(special, ONE) == before
    assert (special.stats.hits, special.refusals) == (1, [])
    change()
    after = first_number(function, ONE)
    assert after != before
    assert first_number(special, ONE) == after


@pytest.mark.usefixtures("enums_as_before")
def test_number_that_an_enum_gets_later() -> None:
    special = specialize(by_number)
    found = [first_number(special, ONE) for _ in range(2)]
    add_number()
    assert [*found, first_number(special, ONE)] == [1, 1, 3]


@pytest.mark.parametrize("wrap", [lambda m: m, lambda m: [m], lambda m: {m: 0}, lambda m: {m}])
@pytest.mark.usefixtures("enums_as_before")
def test_member_of_an_enum_in_an_argument_that_changes(wrap: Callable[[Any], Any]) -> None:
    def function(x: torch.Tensor, given: Any) -> torch.Tensor:
        for level in given if type(given) in (list, dict, set) else [given]:
            x = x * level.value
        return x

    special = specialize(function)
    found = [first_number(special, ONE, wrap(Level.LOW)) for _ in range(2)]
    change_value()
    assert [*found, first_number(special, ONE, wrap(Level.LOW))] == [2, 2, 9]
    assert (special.stats.hits, special.refusals) == (1, [])


@pytest.mark.parametrize("wrap", [lambda m: m, lambda m: [m]])
def test_attribute_that_a_member_of_an_enum_gets_later(
    wrap: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def function(x: torch.Tensor, given: Any) -> Any:
        level = given[0] if type(given) is list else given
        return x * getattr(level, "extra", 3) * Level.LOW.value

    special = specialize(function)
    before = [first_number(special, ONE, wrap(Level.HIGH)) for _ in range(2)]
    assert (before, special.stats.hits, special.refusals) == ([6, 6], 1, [])
    monkeypatch.setattr(Level.HIGH, "extra", 4, raising=False)
    assert "attributes of members of enums" in str(special.explain_miss(ONE, wrap(Level.HIGH))[0])
    assert first_number(special, ONE, wrap(Level.HIGH)) == 8


def test_member_within_a_set_whose_value_may_change_is_refused() -> None:
    special = specialize(lambda x, rows: x * len(rows))
    special(ONE, {Rows.SHORT})
    assert special.refusals == [
        "L['rows'] holds Rows.SHORT, whose value may change",
    ]


# ── bases ────────────────────────────────────────────────────────────────────────────────────────


class Plain:
    gain = 2


class Loud:
    gain = 5


class Thing(Plain):
    pass


THING = Thing()


def by_attribute_of_base(x: torch.Tensor) -> torch.Tensor:
    return x * THING.gain


def by_base(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if isinstance(THING, Plain) else x * 3


@pytest.mark.parametrize("function", [by_attribute_of_base, by_base])
def test_bases_that_are_assigned(function: Callable[..., Any]) -> None:
    special = specialize(function)
    before = [first_number(special, ONE) for _ in range(2)]
    assert (before, special.stats.hits) == ([2, 2], 1)
    Thing.__bases__ = (Loud,)
    try:
        assert first_number(special, ONE) == first_number(function, ONE) != 2
    finally:
        Thing.__bases__ = (Plain,)
    assert first_number(special, ONE) == 2
    assert special.refusals == []


def test_reason_names_the_class_whose_bases_are_others() -> None:
    special = specialize(by_base)
    special(ONE)
    Thing.__bases__ = (type("Plain", (), {"gain": 2}),)
    try:
        assert "has other bases" in str(special.explain_miss(ONE)[0])
    finally:
        Thing.__bases__ = (Plain,)


# ── what is looked at is not kept alive ──────────────────────────────────────────────────────────


def an_enum() -> Any:
    return enum.Enum("Local", {"LOW": 2})


def an_enum_of_numbers() -> Any:
    return enum.IntEnum("Local", {"LOW": 2})


def a_named_tuple() -> Any:
    return collections.namedtuple("Local", "LOW")


def a_module() -> Any:
    module = types.ModuleType("local")
    vars(module)["LOW"] = 2
    return module


def ask(x: torch.Tensor, owner: Any) -> Any:
    return x * 2 if getattr(owner, "extra", 2) == 2 and owner.LOW is not None else x * 3


@pytest.mark.slow  # a whole collection of garbage is
@pytest.mark.parametrize("make", [an_enum, an_enum_of_numbers, a_named_tuple, a_module])
def test_what_is_looked_at_may_die(make: Callable[[], Any]) -> None:
    special, owner = specialize(ask), make()
    assert [first_number(special, ONE, owner) for _ in range(2)] == [2, 2]
    assert (special.stats.hits, special.refusals) == (1, [])
    owner.extra = 5
    assert first_number(special, ONE, owner) == 3
    reference = weakref.ref(owner)
    del owner
    gc.collect()
    assert reference() is None
    assert first_number(special, ONE, make()) == 2


@pytest.mark.slow  # a whole collection of garbage is
@pytest.mark.parametrize("make", [an_enum, an_enum_of_numbers])
def test_member_of_an_enum_that_may_die_is_looked_at(make: Callable[[], Any]) -> None:
    special = specialize(lambda x, level: x * level.value * getattr(level, "extra", 1))
    local = make()
    found = [first_number(special, ONE, local.LOW) for _ in range(2)]
    local.LOW.extra = 5
    found.append(first_number(special, ONE, local.LOW))
    del local.LOW.extra
    local.LOW._value_ = 3
    found.append(first_number(special, ONE, local.LOW))
    assert found == [2, 2, 10, 3]
    reference = weakref.ref(local)
    del local
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize("value", [NAN, AUTO, 1000.5])
def test_constant_that_is_given_back_is_the_callers(value: Any) -> None:
    special = specialize(lambda x, size, sizes: [size, sizes["a"], x])
    for size in (value, another(value), another(value)):
        found = special(ONE, size, {"a": size, "b": ONE})
        assert found[0] is found[1] is size
    assert (special.stats.hits, special.refusals) == (2, [])
