"""Functions that are repeated, and functions that do or read more than a record can hold."""

from __future__ import annotations

import copy
import gc
import pickle
import random
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from guards import UnsupportedGuardError, specialize
from torch import nn
from torch.nn import functional as F

from tests.guards.twins import Twins, mlp

SCALE = 2


def in_place(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    x[0] = 5
    return x


def views(x: torch.Tensor) -> Any:
    a, b = x.chunk(2)
    a.mul_(2)
    return {"whole": x, "first": a, "turned": [x.t(), b.view(-1)]}


def with_no_grad(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    with torch.no_grad():
        z = y * 3
    return y + z.detach() + y.detach()


def random_numbers(x: torch.Tensor) -> torch.Tensor:
    noise = torch.rand_like(x) + torch.randn(x.shape)
    return F.dropout(x, 0.3) + noise.bernoulli_(0.5)


def many_results(x: torch.Tensor) -> Any:
    values, places = x.sort()
    return values, places, x.max(dim=0), 3, "text", None


def factories(x: torch.Tensor) -> torch.Tensor:
    return x + torch.arange(x.shape[0]) + torch.ones(x.shape[0], dtype=x.dtype)


def autocast_inside(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x.reshape(2, -1) @ x.reshape(-1, 2)


def picks(x: torch.Tensor) -> torch.Tensor:
    return x[torch.arange(2)] * torch.where(x[:2] > 0, 1.0, 2.0)


def same_twice(x: torch.Tensor) -> Any:
    y = x.exp()
    return [y, y]


def named_results(x: torch.Tensor) -> Any:
    return x.max(dim=0), x.sort(), x.shape, x.topk(2).values


REPEATED = [
    in_place, views, with_no_grad, random_numbers, factories, picks, same_twice, autocast_inside,
    named_results,
]  # fmt: skip


@pytest.mark.parametrize("function", REPEATED, ids=lambda f: f.__name__)
@pytest.mark.parametrize("grad", [False, True], ids=["", "grad"])
def test_function_is_repeated(function: Callable[..., Any], grad: bool) -> None:
    twins = Twins(lambda: function)
    if grad and function in (in_place, views):
        pytest.skip("a leaf that requires grad cannot be written")
    for seed in range(4):
        shape = (4, 2) if function is views else (4,)
        twins.call(lambda shape=shape: (torch.randn(shape, requires_grad=grad),), seed)  # type: ignore[misc]
    assert twins.counts == (3, 0), twins.special.refusals


def by_value(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.sum() > 0 else x - 1


def by_item(x: torch.Tensor) -> torch.Tensor:
    return x * x[0].item()


def by_list(x: torch.Tensor) -> Any:
    return x * x.tolist()[0]


def by_new_tensor(x: torch.Tensor) -> torch.Tensor:
    return x + torch.tensor([x[0], x[1], 1.0])


def by_numpy(x: torch.Tensor) -> torch.Tensor:
    return x * float(x.numpy()[0])


def by_mask(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].sum() + x.nonzero().shape[0]


def by_python_random(x: torch.Tensor) -> torch.Tensor:
    return x * random.random()


def by_time(x: torch.Tensor) -> torch.Tensor:
    return x * 0 + (time.time() - time.time()) * 0


def by_address(x: torch.Tensor) -> torch.Tensor:
    return x + (id(x) * 0)


def by_version(x: torch.Tensor) -> torch.Tensor:
    return x + x._version


def by_seed(x: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(3)
    return x + torch.rand(3)


def by_gradient(x: torch.Tensor) -> torch.Tensor:
    y = x.detach().clone().requires_grad_()
    return torch.autograd.grad((y * y).sum(), y)[0]


class Doubling(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g * 100


def by_own_gradient(x: torch.Tensor) -> Any:
    return Doubling.apply(x)  # type: ignore[no-untyped-call]


def by_local_import(x: torch.Tensor) -> torch.Tensor:
    import math as m

    return x * m.pi


def by_input_itself(x: torch.Tensor, out: list[Any] | None = None) -> Any:
    return [x] if out is None else out


def by_offset(x: torch.Tensor) -> Any:
    return x + x.storage_offset()


def by_getattr(x: torch.Tensor) -> Any:
    return getattr(x, ["exp"][0])()


def by_detaching_in_place(x: torch.Tensor) -> torch.Tensor:
    y = x.requires_grad_() * 2
    return y.detach_()


def by_python_for_each_number(x: torch.Tensor) -> torch.Tensor:
    return x.clone().apply_(lambda number: number + 1).map_(x, lambda a, b: a * b)


def by_other_default(x: torch.Tensor) -> torch.Tensor:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    y = torch.ones(3)
    torch.set_default_dtype(before)
    return x + y


def by_attribute_set(x: torch.Tensor) -> torch.Tensor:
    x.mark = 1  # type: ignore[attr-defined]
    return x * 2


def by_branches(x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))


def by_trace(x: torch.Tensor) -> Any:
    return torch.jit.trace(lambda y: y * 2, (x,))(x)


def by_collector(x: torch.Tensor) -> Any:
    return x * 2, gc.isenabled()


def by_generator(x: torch.Tensor) -> torch.Tensor:
    return sum(part * SCALE for part in x.unbind())  # type: ignore[return-value]


REFUSED = [
    by_value, by_item, by_list, by_new_tensor, by_numpy, by_mask, by_python_random, by_time,
    by_address, by_version, by_seed, by_gradient, by_own_gradient, by_local_import, by_offset,
    by_getattr, by_detaching_in_place, by_python_for_each_number, by_other_default,
    by_attribute_set, by_collector,
    pytest.param(by_branches, marks=pytest.mark.slow),  # it loads torch._dynamo
    pytest.param(by_trace, marks=pytest.mark.filterwarnings("ignore")),  # it is deprecated
]  # fmt: skip


@pytest.mark.parametrize("function", REFUSED, ids=lambda f: getattr(f, "__name__", None))
def test_function_that_reads_more_than_its_inputs_is_left_alone(
    function: Callable[..., Any],
) -> None:
    twins = Twins(lambda: function, patience=2)
    for sign in (1, -1, 1):
        twins.call(lambda sign=sign: (sign * torch.tensor([3.0, 1.0, 2.0]),))  # type: ignore[misc]
    assert twins.counts == (0, 2), twins.special.refusals


def test_generator_expression_is_repeated() -> None:
    twins = Twins(lambda: by_generator)
    for seed in range(3):
        twins.call(lambda: (torch.randn(3),), seed)
    assert twins.counts == (2, 0), twins.special.refusals


def test_garbage_collection_in_the_middle_is_not_the_functions_doing() -> None:
    calls = []

    def callback(phase: str, info: dict[str, int]) -> None:
        calls.append(time.perf_counter())

    twins = Twins(mlp)
    thresholds = gc.get_threshold()
    gc.callbacks.append(callback)
    gc.set_threshold(1, 1, 1)  # collect all the time
    try:
        for seed in range(3):
            twins.call(lambda: (torch.randn(2, 3),), seed)
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(callback)
    assert calls
    assert twins.counts == (2, 0), twins.special.refusals


def test_list_that_is_given_back_is_that_very_list() -> None:
    special = specialize(by_input_itself)
    x, out = torch.ones(2), [torch.zeros(1)]
    for _ in range(3):
        assert special(x, out) is out
        assert special(x) is not special(x)
    assert special(x)[0] is x


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.last: Any = None
        self.log: list[int] = []

    def forward(self, x: torch.Tensor, how: str) -> torch.Tensor:
        if how == "count":
            self.calls += 1
        elif how == "keep":
            self.last = x
        elif how == "log":
            self.log.append(1)
        elif how == "global":
            TOTALS["n"] += 1
        return x * 2


TOTALS = {"n": 0}


@pytest.mark.parametrize("how", ["count", "keep", "log", "global"])
def test_effects_on_python_state_happen_every_time(how: str) -> None:
    model = Counter()
    special = specialize(model)
    before = TOTALS["n"]
    for number in range(1, 4):
        x = torch.ones(2) * number
        assert torch.equal(special(x, how), x * 2)
        assert model.calls == (number if how == "count" else 0)
        assert len(model.log) == (number if how == "log" else 0)
        assert TOTALS["n"] - before == (number if how == "global" else 0)
        assert model.last is (x if how == "keep" else None)
    assert special.stats.hits == 0


def test_nonlocal_is_an_effect() -> None:
    calls = 0

    def counting(x: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return x + calls

    special = specialize(counting)
    assert [special(torch.zeros(())) for _ in range(3)] == [1, 2, 3]


def test_attribute_of_a_result_is_not_lost() -> None:
    def tagged(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        y.tag = 5  # type: ignore[attr-defined]
        return y

    special = specialize(tagged)
    assert [special(torch.zeros(2)).tag for _ in range(3)] == [5, 5, 5]  # type: ignore[attr-defined]


def test_exception_of_the_function_comes_through() -> None:
    def failing(x: torch.Tensor) -> torch.Tensor:
        return x.view(7)

    special = specialize(failing)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="shape '\\[7\\]' is invalid"):
            special(torch.zeros(3))
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        special()
    assert special(torch.zeros(7)).shape == (7,)


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_copy_knows_no_records(copied: Callable[[Any], Any]) -> None:
    original, x = specialize(doubled, limit=1, patience=3), torch.ones(2)
    original(x)
    made = copied(original)
    assert (made.stats.hits, made.function) == (0, doubled)
    assert torch.equal(made(x), doubled(x))
    assert torch.equal(made(x), doubled(x))
    assert (made.stats.hits, original.stats.hits) == (1, 0)


def test_copy_of_a_module_that_has_a_specialized_attribute() -> None:
    module: Any = nn.Linear(2, 2)
    module.forward = specialize(module.forward)
    x = torch.ones(1, 2)
    module(x)
    other = copy.deepcopy(module)
    with torch.no_grad():
        other.weight.zero_()
        other.bias.zero_()
    assert torch.equal(other(x), torch.zeros(1, 2))
    assert not torch.equal(module(x), torch.zeros(1, 2))


@pytest.mark.slow  # compiles
def test_compiled_as_the_plain_function() -> None:
    special = specialize(lambda x: doubled(x) + 1)
    x = torch.ones(2)
    assert torch.equal(torch.compile(special, backend="eager", fullgraph=True)(x), x * 2 + 1)

    def uses(x: torch.Tensor) -> torch.Tensor:
        return special(x) * 3

    assert torch.equal(torch.compile(uses, backend="eager", fullgraph=True)(x), uses(x))


def test_scripted_module_is_refused() -> None:
    class Scripted(nn.Linear):
        forward: Any = torch.tensor  # no Python function

    with pytest.raises(UnsupportedGuardError, match="takes a Python function, a method or a mod"):
        specialize(Scripted(2, 2))


AUTO = object()


def with_how(x: torch.Tensor, how: Any = AUTO) -> torch.Tensor:
    return x * 2 if how is AUTO else x * 3


def test_object_that_stands_for_nothing_said() -> None:
    special, x = specialize(with_how), torch.ones(1)
    for how in (AUTO, AUTO, object(), AUTO):
        assert torch.equal(special(x, how), with_how(x, how))
    assert special.stats.hits == 2
