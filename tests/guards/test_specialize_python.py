"""Ways of Python's own to read, to find and to make things: repeated where that is safe."""

from __future__ import annotations

import builtins
import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import operator
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from guards import _user_code, specialize
from torch import nn

from tests.guards.twins import first_number

ONE = torch.ones(2)


# ── getattr and its like, with names that stand in the code ──────────────────────────────────────


class Options:
    gain = 2

    def __init__(self) -> None:
        self.bias = 0


class Layer(nn.Module):
    gain: Any

    def forward(self, x: torch.Tensor) -> Any:
        x = x * getattr(self, "gain", 3)
        return x + getattr(self, "bias", torch.zeros(2))


OPTIONS, LAYER, MODULE = Options(), Layer(), types.ModuleType("options")


def with_default(x: Any) -> Any:
    return x * getattr(OPTIONS, "extra", 3)


def with_none(x: Any) -> Any:
    return x * getattr(Options, "gain")  # noqa: B009  # what is tested


def by_hasattr(x: Any) -> Any:
    return x * 7 if hasattr(OPTIONS, "extra") else x * 3


def of_module_of_layers(x: Any) -> Any:
    return LAYER(x)


def of_python_module(x: Any) -> Any:
    return x * getattr(MODULE, "extra", 3)


def of_tensor(x: Any) -> Any:
    return x * getattr(x, "extra", 3)


def of_torch(x: Any) -> Any:
    return x * getattr(torch, "extra", 3)


def method_of_tensor(x: Any) -> Any:
    return getattr(x, "mul")(2)  # noqa: B009  # what is tested


def set_on_a_new_one(x: Any) -> Any:
    options = Options()
    setattr(options, "extra", 4)  # noqa: B010  # what is tested
    delattr(options, "bias")
    return x * (options.extra if not hasattr(options, "bias") else 9)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("function", "owner", "name", "values"),
    [
        (with_default, OPTIONS, "extra", (7, 8)),
        (with_default, Options, "extra", (7, 8)),
        (with_none, Options, "gain", (7, 8)),
        (by_hasattr, OPTIONS, "extra", (7, 7)),
        (by_hasattr, Options, "extra", (7, 7)),
        (of_module_of_layers, LAYER, "gain", (7, 8)),
        (of_module_of_layers, Layer, "gain", (7, 8)),
        (of_module_of_layers, LAYER, "bias", (torch.ones(2), torch.ones(2) * 5)),
        (of_python_module, MODULE, "extra", (7, 8)),
        (of_tensor, torch.Tensor, "extra", (7, 8)),
        (of_torch, torch, "extra", (7, 8)),
        (method_of_tensor, torch.Tensor, "mul", (lambda x, _: x + 7, lambda x, _: x + 8)),
    ],
)
def test_attribute_that_is_asked_for_by_a_name_in_the_code(
    function: Any, owner: Any, name: str, values: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    special = specialize(function)
    before = first_number(function, ONE)
    assert first_number(special, ONE) == first_number(special, ONE) == before
    assert (special.stats.hits, special.refusals) == (1, [])
    with monkeypatch.context() as patch:
        for value in values:
            patch.setattr(owner, name, value, raising=False)
            wanted = first_number(function, ONE)
            assert wanted != before
            assert first_number(special, ONE) == first_number(special, ONE) == wanted
    assert first_number(special, ONE) == before


def test_attribute_that_is_set_on_a_new_object() -> None:
    special = specialize(set_on_a_new_one)
    assert [first_number(special, ONE) for _ in range(2)] == [4, 4]
    assert (special.stats.hits, special.refusals) == (1, [])


def test_getattr_where_code_does_not_say_what_it_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_user_code, "_called_at_once", lambda code: set())  # as in Python 3.10
    special = specialize(with_default)
    assert [first_number(special, ONE) for _ in range(2)] == [3, 3]
    assert (special.stats.hits, special.refusals) == (1, [])


NAMES = ["gain", "bias"]
another_getattr = getattr


def by_name_of_global(x: Any) -> Any:
    return x * getattr(Options(), NAMES[0])


def by_other_name(x: Any) -> Any:
    return x * another_getattr(Options, "gain") * getattr(Options, "gain")  # noqa: B009


def by_builtins(x: Any) -> Any:
    return x * builtins.getattr(Options, "gain")  # noqa: B009


def by_choice(x: Any) -> Any:
    return x * getattr(Options, "gain" if x.dim() else "bias")


def set_outside(x: Any) -> Any:
    setattr(OPTIONS, "bias", OPTIONS.bias + 1)  # noqa: B010
    return x * OPTIONS.bias


def unseen_of_tensor(x: Any) -> Any:
    return x * getattr(x, "_version")  # noqa: B009


def data_of_tensor(x: Any) -> Any:
    y = x * 1
    setattr(y, "data", x * 2)  # noqa: B010
    return y


@pytest.mark.parametrize(
    "function",
    [
        by_name_of_global,
        by_other_name,
        by_builtins,
        by_choice,
        set_outside,
        unseen_of_tensor,
        data_of_tensor,
    ],
)
def test_attribute_that_is_asked_for_in_other_ways(function: Callable[..., Any]) -> None:
    special = specialize(function)
    OPTIONS.bias = 0
    found = [first_number(special, ONE) for _ in range(3)]
    OPTIONS.bias = 0
    assert found == [first_number(function, ONE) for _ in range(3)]
    assert special.stats.hits == 0
    OPTIONS.bias = 0


# ── contexts, containers, generators ─────────────────────────────────────────────────────────────


def stacked(x: Any) -> Any:
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        factor = stack.enter_context(contextlib.nullcontext(2))
        return x * factor


@contextlib.contextmanager
def without_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


@without_grad()
def decorated(x: Any) -> Any:
    return x * 2


def queued(x: Any) -> Any:
    queue = collections.deque([x], maxlen=2)
    queue.append(x * 2)
    queue.append(x * 3)
    return queue.popleft() + queue[0]


def sent(x: Any) -> Any:
    def steps() -> Any:
        factor = yield x
        yield x * factor

    generator = steps()
    next(generator)
    found = generator.send(4)
    generator.close()
    return found


class Pair(typing.NamedTuple):
    left: Any
    right: Any = 2


def of_named_tuples(x: Any) -> Any:
    pair = Pair(x)._replace(right=3)
    return Pair.left.__get__(pair) * pair.right * len(Pair._fields) + len(pair._asdict())


@dataclasses.dataclass(frozen=True)
class Size:
    rows: int = 1
    names: tuple[str, ...] = ("a", "b")


def of_dataclasses(x: Any) -> Any:
    told = dataclasses.asdict(Size())
    count = len(dataclasses.fields(Size)) + len(dataclasses.astuple(Size(4)))
    return x * told["rows"] * count * dataclasses.is_dataclass(Size) * {Size(2): 3}[Size(2)]


second = operator.itemgetter(1)


def of_itemgetter(x: Any) -> Any:
    return x * second([1, 5]) + typing.cast(Any, 1)


TABLE = types.MappingProxyType({"a": 2})


def of_proxy(x: Any) -> Any:
    return x * TABLE["a"]


def copied(x: Any) -> Any:
    given = {"a": [1, 2]}
    deep, flat = copy.deepcopy(given), copy.copy(given)
    deep["a"].append(3)
    return x * len(deep["a"]) + len(flat["a"])


@pytest.mark.parametrize(
    "function",
    [
        stacked,
        decorated,
        queued,
        sent,
        of_named_tuples,
        of_dataclasses,
        of_itemgetter,
        of_proxy,
        copied,
    ],
)
def test_way_of_pythons_that_is_repeated(function: Callable[..., Any]) -> None:
    special = specialize(function)
    for number in (1.0, 2.0, 3.0):
        x = torch.full((2,), number, requires_grad=True)
        found, wanted = special(x), function(x)
        assert torch.equal(found, wanted)
        assert found.requires_grad == wanted.requires_grad
    assert (special.stats.hits, special.refusals) == (2, [])


def test_entry_of_a_named_tuple_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    special = specialize(lambda x: x * Pair(2, 3).left)
    assert first_number(special, ONE) == first_number(special, ONE) == 2
    monkeypatch.setattr(Pair, "left", property(lambda pair: pair[1]))
    assert first_number(special, ONE) == 3
    assert special.stats.hits == 1


def test_keys_and_views_that_change() -> None:
    special = specialize(lambda x, take, table: x * take([1, 5, 7]) * table["a"])
    inner = {"a": 2}
    table = types.MappingProxyType(inner)
    calls = [(operator.itemgetter(n), t) for n, t in ((1, table), (1, table), (2, table))]
    assert [first_number(special, ONE, *call) for call in calls] == [10, 10, 14]
    inner["a"] = 3
    assert first_number(special, ONE, *calls[0]) == 15
    assert (special.stats.hits, special.refusals) == (1, [])


def test_fields_of_a_dataclass_that_change() -> None:
    @dataclasses.dataclass
    class Made:
        rows: int = 1

    special = specialize(lambda x: x * len(dataclasses.fields(Made)))
    assert first_number(special, ONE) == first_number(special, ONE) == 1
    Made.__dataclass_fields__["more"] = Made.__dataclass_fields__["rows"]
    assert first_number(special, ONE) == 2
    assert special.stats.hits == 1


def test_error_that_a_stack_of_contexts_deals_with() -> None:
    def quiet(*_: object) -> bool:
        return True

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with contextlib.ExitStack() as stack:
            stack.push(quiet)
            x.add_(1)
            x.add_(y)
        return x

    special = specialize(function)
    for other in (torch.ones(2), torch.ones(2), torch.ones(3)):
        assert torch.equal(special(torch.ones(2), other), function(torch.ones(2), other))
    assert special.stats.hits == 0


# ── enums that are flags ─────────────────────────────────────────────────────────────────────────


class Parts(enum.Flag):
    HEAD = 1
    BODY = 2
    TAIL = 4


class Bits(enum.IntFlag):
    LOW = 1
    HIGH = 2


def by_part(x: Any, parts: Any) -> Any:
    return x * 2 if Parts.HEAD in parts else x * 3


def by_all_parts(x: Any, parts: Any) -> Any:
    return x * sum(part.value for part in Parts if part & parts)


def by_sum(x: Any, parts: Any) -> Any:
    return x * ((parts | Parts.BODY).value + (parts ^ Parts.HEAD).value + (~parts).value)


@pytest.mark.parametrize("function", [by_part, by_all_parts, by_sum])
def test_flags(function: Callable[..., Any]) -> None:
    special = specialize(function)
    given = [Parts.HEAD, Parts.TAIL, Parts.HEAD | Parts.BODY, Parts.HEAD | Parts.BODY | Parts.TAIL]
    for parts in given * 3:  # the sums of flags are made when they are first met
        assert torch.equal(special(ONE, parts), function(ONE, parts))
    assert special.stats.hits >= len(given)


def test_flags_that_are_numbers() -> None:
    special = specialize(lambda x, bits: x * 2 if bits & Bits.LOW else x * 3)
    found = [
        first_number(special, ONE, bits) for bits in (Bits.LOW, Bits.LOW | Bits.HIGH, Bits.HIGH) * 3
    ]
    assert found == [2, 2, 3] * 3
    assert special.stats.hits >= 2


# ── what is refused by its name ──────────────────────────────────────────────────────────────────


@functools.singledispatch
def dispatched(value: Any, x: Any) -> Any:
    return x * 2


class Methods(nn.Module):
    def base(self, x: Any, factor: int) -> Any:
        return x * factor

    by_partial = functools.partialmethod(base, factor=3)

    @functools.singledispatchmethod
    def by_class(self, value: Any, x: Any) -> Any:
        return x * 2

    @functools.cached_property
    def kept(self) -> int:
        return 3


LAST = Methods()


@functools.lru_cache
def cached(number: int) -> int:
    return number


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x: dispatched(1, x), "(functools.singledispatch), in a cache that no guard sees"),
        (lambda x: Methods().by_class(1, x), "functools.singledispatchmethod"),
        (lambda x: Methods().by_partial(x), "functools.partialmethod: call what it gives itself"),
        (lambda x: x * LAST.kept, "functools.cached_property for its first value"),
        (lambda x: x * collections.Counter([1])[1], "Counter.__init__ of Python's collections"),
        (lambda x: x * operator.attrgetter("gain")(Options), "cannot be seen: write `x.name`"),
        (lambda x: x * cached(2), "(functools.lru_cache), which no guard sees: call it before"),
    ],
)
def test_way_of_pythons_that_is_refused_by_its_name(function: Any, text: str) -> None:
    special = specialize(function)
    assert torch.equal(special(ONE), function(ONE))
    assert text in special.refusals[0]
