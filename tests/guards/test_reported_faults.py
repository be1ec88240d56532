"""Stale results that users of torch.compile have reported: a specialized function gives none.

Each way is one that a report describes; those are of github.com/pytorch/pytorch.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from guards import (
    Guard,
    GuardBuilder,
    LocalSource,
    Specialized,
    compile_guards,
    dumps,
    loads,
    specialize,
)
from torch import nn

from tests.guards.twins import equal, facts_of

Wrap = Callable[[Any], Any]
ONE = torch.ones(4)
MARKED: list[Any] = []


def reported(where: str, hits: int) -> Callable[[Any], Any]:
    """Take a way into the tests: where it was reported, and how many calls repeat a record."""

    def mark(steps: Any) -> Any:
        MARKED.append(pytest.param(steps, hits, id=f"{steps.__name__}-{where}"))
        return steps

    return mark


@reported("issues/197859", 3)
def entry_of_a_module_that_hides_its_layer(wrap: Wrap) -> Iterator[Any]:
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4, bias=False)
            nn.init.eye_(self.layer.weight)

        def forward(self, x: torch.Tensor) -> Any:
            return self.layer(x)

    holder, other = Holder(), nn.Linear(4, 4, bias=False)
    nn.init.constant_(other.weight, 5.0)
    call = wrap(holder)
    yield from (call(ONE), call(ONE))
    object.__setattr__(holder, "layer", other)
    yield from (call(ONE), call(ONE))
    del holder.__dict__["layer"]
    yield call(ONE)


@reported("issues/197860", 1)
def code_of_methods_that_is_replaced(wrap: Wrap) -> Iterator[Any]:
    class Thing:
        def method(self, x: Any) -> Any:
            return x * 2

        @classmethod
        def of_class(cls, x: Any) -> Any:
            return x * 2

        @property
        def factor(self) -> int:
            return 2

    thing = Thing()
    call = wrap(lambda x: thing.method(x) + thing.of_class(x) * thing.factor)
    yield from (call(ONE), call(ONE))
    Thing.method.__code__ = (lambda self, x: x * 9).__code__
    yield call(ONE)
    vars(Thing)["of_class"].__func__.__code__ = (lambda cls, x: x * 9).__code__
    yield call(ONE)
    vars(Thing)["factor"].fget.__code__ = (lambda self: 9).__code__
    yield call(ONE)


@reported("issues/176851", 2)
def attribute_of_a_class(wrap: Wrap) -> Iterator[Any]:
    class State:
        factor = 1.0

    call = wrap(lambda x: x * State.factor)
    for factor in (1.0, 1.0, 10.0, 1.0):
        State.factor = factor
        yield call(ONE)


@reported("issues/111522", 1)
def attribute_of_a_class_that_goes(wrap: Wrap) -> Iterator[Any]:
    class State:
        factor = 2

    call = wrap(lambda x, state: x * state.factor)
    yield from (call(ONE, State()), call(ONE, State()))
    del State.factor
    try:
        call(ONE, State())
    except AttributeError as error:
        yield str(error)


@reported("issues/111785", 3)
def buffer_that_is_a_part_of_another_one(wrap: Wrap) -> Iterator[Any]:
    class Cache(nn.Module):
        whole: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("whole", torch.zeros(3, 4))
            self.current = self.whole

        def forward(self, x: torch.Tensor) -> Any:
            self.current.copy_(x)
            return self.whole + 0

    cache: Any = Cache()
    call = wrap(cache)
    for row in (0, 1, 2, 0):
        cache.current = cache.whole[row : row + 1]
        yield call(ONE + row)
        yield cache.whole


@reported("issues/178365", 2)
def default_of_a_function_of_the_same_code(wrap: Wrap) -> Iterator[Any]:
    def make(offset: int) -> Any:
        def shift(x: Any, offset: int = offset) -> Any:
            return x + offset

        return shift

    call = wrap(lambda x, function: function(x))
    for offset in (1, 2, 1, 2):
        yield call(ONE, make(offset))


@reported("issues/139789", 3)
def arguments_that_share_memory_later(wrap: Wrap) -> Iterator[Any]:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x + y

    call = wrap(function)
    yield from (call(ONE.clone(), ONE.clone()), call(ONE.clone(), ONE.clone()))
    for _ in range(2):
        whole = torch.arange(8.0)
        yield call(whole[:4], whole[2:6])
        yield whole


@reported("issues/196173", 2)
def object_that_is_another_one_later(wrap: Wrap) -> Iterator[Any]:
    class Holder:
        left, right = object(), object()
        current = left

    call = wrap(lambda x: x * 2 if Holder.current is Holder.left else x * 3)
    for current in (Holder.left, Holder.left, Holder.right, Holder.left):
        Holder.current = current
        yield call(ONE)


@reported("issues/198189", 0)
def order_that_the_function_changes(wrap: Wrap) -> Iterator[Any]:
    recent = collections.OrderedDict(a=1, b=2)

    def function(x: torch.Tensor) -> torch.Tensor:
        recent.move_to_end("a")
        return x + 1

    call = wrap(function)
    for _ in range(3):
        yield call(ONE)
        yield [*recent]
        recent.move_to_end("b")


@reported("issues/139476", 2)
def parameters_that_are_frozen(wrap: Wrap) -> Iterator[Any]:
    torch.manual_seed(0)
    layer = nn.Linear(4, 2)
    call = wrap(layer)
    for on in (True, True, False, True):
        layer.requires_grad_(on)
        yield call(ONE)


@reported("issues/119715", 1)
def class_that_is_no_class_later(wrap: Wrap) -> Iterator[Any]:
    scope: dict[str, Any] = {}
    exec(
        "class Made:\n    def __init__(self, n): self.n = n\ndef function(x): return x + Made(5).n",
        scope,
    )
    call = wrap(scope["function"])
    yield from (call(ONE), call(ONE))
    scope["Made"] = 5
    try:
        call(ONE)
    except TypeError as error:
        yield str(error)


NUMBERS = [1, 2, 3]


@reported("pull/120861", 1)
def list_that_is_a_global_too(wrap: Wrap) -> Iterator[Any]:
    call = wrap(lambda x, numbers: x + NUMBERS[-1] + numbers[-1])
    for numbers in (NUMBERS, NUMBERS, [3, 2, 1], [1, 2]):
        yield call(ONE, numbers)
    NUMBERS.append(9)
    yield call(ONE, NUMBERS)
    yield call(ONE, [*NUMBERS])
    NUMBERS.pop()


@reported("issues/175858", 0)
def entry_that_the_function_adds(wrap: Wrap) -> Iterator[Any]:
    def function(state: Any) -> Any:
        state["loss"] = state["seen"] * 2
        return state

    call, state = wrap(function), {"seen": ONE}
    for _ in range(3):
        yield call(state) is state
        yield state
    yield call({"seen": ONE + 1})


@reported("issues/175953", 2)
def device_that_is_the_default_later(wrap: Wrap) -> Iterator[Any]:
    call = wrap(lambda x: torch.zeros(x.shape))
    yield from (call(ONE), call(ONE))
    torch.set_default_device("meta")
    try:
        yield call(ONE).device
    finally:
        torch.set_default_device(None)
    with torch.device("meta"):
        yield call(ONE).device
    yield call(ONE)


@reported("issues/124717", 3)
def flag_of_a_module(wrap: Wrap) -> Iterator[Any]:
    class Adapted(nn.Module):
        disabled = False

        def forward(self, x: torch.Tensor) -> Any:
            return x * x if self.disabled else x * x + 1

    module = Adapted()
    call = wrap(module)
    for disabled in (False, False, True, False, True):
        module.disabled = disabled
        yield call(ONE)


@pytest.mark.parametrize(("steps", "hits"), MARKED)
def test_result_is_never_stale(steps: Callable[[Wrap], Iterator[Any]], hits: int) -> None:
    made: list[Specialized[Any]] = []

    def wrap(function: Any) -> Any:
        made.append(specialize(function))
        return made[0]

    wanted = [facts_of(value) for value in steps(lambda function: function)]
    found = [facts_of(value) for value in steps(wrap)]
    assert len(found) == len(wanted)
    assert all(map(equal, found, wanted))
    assert made[0].stats.hits == hits


# ── constants: pull/192604 ───────────────────────────────────────────────────────────────────────

NAN = float("nan")


@pytest.mark.parametrize(
    ("value", "others"),
    [
        (0.0, [-0.0, 0, False, 0j]),
        (complex(5, NAN), [complex(7, NAN), complex(NAN, 5), complex(NAN, NAN), complex(-5, NAN)]),
        (complex(NAN, 0.0), [complex(NAN, -0.0), complex(0.0, NAN)]),
        (complex(0.0, -0.0), [0j, complex(-0.0, -0.0), complex(-0.0, 0.0)]),
        ((0.0, [NAN]), [(-0.0, [NAN]), (0.0, [0.0]), [0.0, [NAN]]]),
        ({"a": 1}, [{"a": True}, {"a": 1.0}, collections.OrderedDict(a=1)]),
        (frozenset([1]), [frozenset([True]), frozenset([1.0]), {1}]),
    ],
)
def test_constant_is_told_from_those_that_only_equal_it(value: Any, others: list[Any]) -> None:
    guard = Guard(LocalSource("x"), GuardBuilder.EQUALS_MATCH)
    check = compile_guards([guard], {"x": value})
    again = compile_guards(loads(dumps(check)), {"x": value})
    for holds in (check, again):
        assert holds({"x": value})
        assert [holds({"x": other}) for other in others] == [False] * len(others)
        assert all(holds.explain({"x": other}) is not None for other in others)


def test_tensors_that_share_memory_later_are_told_apart() -> None:
    x, y = LocalSource("x"), LocalSource("y")
    kind = functools.partial(GuardBuilder.STORAGE_OVERLAP, overlapping=[], non_overlapping=[x, y])
    check = compile_guards([Guard(x, kind)], {"x": torch.ones(4), "y": torch.ones(4)})
    whole = torch.ones(8)
    given = [(whole[:4], whole[4:]), (whole[:4], whole[2:6]), (whole[:4], whole[:4])]
    assert [check({"x": a, "y": b}) for a, b in given] == [True, False, False]
