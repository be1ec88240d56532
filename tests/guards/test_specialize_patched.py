"""What is put in the place of names, classes and functions that a record relied on is noticed."""

from __future__ import annotations

import builtins
import dataclasses
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from guards import specialize
from torch import nn
from torch.nn import functional

from tests.guards.twins import first_number

ONE = torch.ones(2)


# ── names and globals ────────────────────────────────────────────────────────────────────────────


def first(x: torch.Tensor) -> torch.Tensor:
    return x


def second(x: torch.Tensor) -> torch.Tensor:
    return x


GAINS = {"first": 2, "second": 3}


def test_functions_of_equal_code_that_go_by_other_names() -> None:
    special = specialize(lambda x, act: act(x) * GAINS[act.__name__])
    assert [first_number(special, ONE, act) for act in (first, second, first)] == [2, 3, 2]
    assert (special.stats.hits, special.refusals) == (1, [])


def test_functions_of_equal_code_that_have_other_globals() -> None:
    text = "def act(x): return x * K"
    spaces = [{"K": 2, "__name__": "plugin"}, {"K": 3, "__name__": "plugin"}]
    for space in spaces:
        exec(text, space)
    special = specialize(lambda x, act: act(x))
    found = [first_number(special, ONE, space["act"]) for space in (*spaces, *spaces)]
    assert found == [2, 3, 2, 3]
    assert (special.stats.hits, special.refusals) == (2, [])


def test_name_of_a_class() -> None:
    class Kind:
        pass

    special = specialize(lambda x, kind: x * len(kind.__name__))
    assert first_number(special, ONE, Kind) == first_number(special, ONE, Kind) == 4
    Kind.__name__ = "K"
    assert first_number(special, ONE, Kind) == 1
    assert (special.stats.hits, special.refusals) == (1, [])


def test_name_that_a_module_has_of_itself() -> None:
    module = types.ModuleType("module")
    vars(module)["__version__"] = "1"
    special = specialize(lambda x: x * int(module.__version__))
    assert first_number(special, ONE) == first_number(special, ONE) == 1
    vars(module)["__version__"] = "3"
    assert first_number(special, ONE) == 3
    assert (special.stats.hits, special.refusals) == (1, [])


# ── classes ──────────────────────────────────────────────────────────────────────────────────────


class OfRows(nn.Softmax):
    dim = 1

    def __init__(self) -> None:
        nn.Module.__init__(self)


Made = dataclasses.make_dataclass("Made", [("n", int, 2)])
layer = nn.Identity()
WEIGHT = nn.Parameter(torch.ones(2))


@pytest.mark.parametrize(
    ("owner", "name", "values", "function"),
    [
        (Made, "n", (2, 3), lambda x: x * Made.n),  # type: ignore[attr-defined]
        (nn.Identity, "gain", (2, 5), lambda x: layer(x) * layer.gain),
        (torch.Tensor, "gain", (2, 5), lambda x: x * x.gain),
        (torch, "gain", (2, 5), lambda x: x * torch.gain),  # type: ignore[attr-defined]
        (torch, "kept", (Made(2), Made(3)), lambda x: x * torch.kept.n),  # type: ignore[attr-defined]
        (builtins, "GAIN", (2, 5), lambda x: x * GAIN),  # type: ignore[name-defined]  # noqa: F821
    ],
)
def test_attribute_that_is_put_where_it_is_trusted(
    owner: Any,
    name: str,
    values: tuple[Any, Any],
    function: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owner, name, values[0], raising=False)
    special = specialize(function)
    assert first_number(special, ONE) == first_number(special, ONE) == 2
    assert (special.stats.hits, special.refusals) == (1, [])
    monkeypatch.setattr(owner, name, values[1])
    assert first_number(special, ONE) == first_number(function, ONE)


PLUGIN = types.ModuleType("plugin")


def of_tensor(x: Any) -> Any:
    try:
        return x * x.later
    except AttributeError:
        return x


def of_parameter(x: Any) -> Any:
    try:
        return WEIGHT * WEIGHT.later  # type: ignore[attr-defined]
    except AttributeError:
        return x


def of_module(x: Any) -> Any:
    try:
        return x * PLUGIN.later
    except AttributeError:
        return x


def of_torch(x: Any) -> Any:
    try:
        return x * torch.later  # type: ignore[attr-defined]
    except AttributeError:
        return x


def of_function_of_torch(x: Any) -> Any:
    try:
        return x * functional.softmax.later  # type: ignore[attr-defined]
    except AttributeError:
        return x


@pytest.mark.parametrize(
    ("owner", "function"),
    [
        (torch.Tensor, of_tensor),
        (torch.Tensor, of_parameter),
        (nn.Parameter, of_parameter),
        (PLUGIN, of_module),
        (torch, of_torch),
        (functional.softmax, of_function_of_torch),
    ],
)
def test_attribute_that_comes_later_and_is_missed_by_an_error(
    owner: Any, function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    special = specialize(function)
    assert first_number(special, ONE) == first_number(special, ONE) == 1
    monkeypatch.setattr(owner, "unrelated", 7, raising=False)
    assert first_number(special, ONE) == first_number(special, ONE) == 1
    assert (special.stats.hits, special.refusals) == (3, [])
    for value in (5, 6):
        monkeypatch.setattr(owner, "later", value, raising=False)
        assert first_number(special, ONE) == value
    monkeypatch.delattr(owner, "later")
    assert first_number(special, ONE) == 1


def asks(x: Any) -> Any:
    return x * getattr(PLUGIN, "later", 1)


@pytest.mark.parametrize("function", [of_module, asks])
def test_module_that_makes_attributes_later(
    function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    special = specialize(function)
    assert first_number(special, ONE) == first_number(special, ONE) == 1
    monkeypatch.setattr(PLUGIN, "__getattr__", lambda name: 5, raising=False)
    assert first_number(special, ONE) == first_number(function, ONE) == 5


class OtherModule(types.ModuleType):
    gain = property(lambda self: 5)


def test_module_that_gets_another_class() -> None:
    module: Any = types.ModuleType("module")
    module.gain = 2
    special = specialize(lambda x: x * module.gain)
    assert first_number(special, ONE) == first_number(special, ONE) == 2
    assert special.stats.hits == 1
    module.__class__ = OtherModule
    assert first_number(special, ONE) == 5


def test_attribute_that_a_function_of_torch_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functional.softmax, "later", 2, raising=False)
    special = specialize(of_function_of_torch)
    assert first_number(special, ONE) == first_number(special, ONE) == 2
    monkeypatch.setattr(functional.softmax, "later", 3)
    assert first_number(special, ONE) == 3
    assert (special.stats.hits, special.refusals) == (1, [])


def test_attribute_of_a_class_that_code_of_torch_alone_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = OfRows()
    special = specialize(module)
    x = torch.arange(6.0).view(2, 3)
    assert torch.equal(special(x), special(x))
    assert (special.stats.hits, special.refusals) == (1, [])
    monkeypatch.setattr(OfRows, "dim", 0)
    assert torch.equal(special(x), module(x))


# ── functions of torch and of Python ─────────────────────────────────────────────────────────────

relu = nn.Sequential(nn.ReLU())
attention = nn.MultiheadAttention(2, 1, batch_first=True).requires_grad_(False)


def attend(x: torch.Tensor) -> torch.Tensor:
    y = x.view(1, 1, 2)
    return attention(y, y, y, need_weights=False)[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("owner", "name", "new", "function"),
    [
        (functional, "relu", lambda x, inplace=False: x * 7, relu),
        (functional, "scaled_dot_product_attention", lambda q, k, v, *_, **__: v * 9, attend),
        (nn.Module, "__call__", lambda self, x: x * 7, lambda x: relu(x)),
        (nn.Module, "_call_impl", lambda self, x: x * 7, lambda x: relu(x)),
        (torch.Tensor, "relu", lambda x: x * 7, lambda x: x.relu()),
        (builtins, "sum", lambda _: 77, lambda x: x * sum([1, 2])),
        (torch.Tensor, "__add__", lambda x, _: x * 7, lambda x: x + 1),
        (torch.Tensor, "__radd__", lambda x, _: x * 7, lambda x: sum([x, x])),
        (torch.Tensor, "__neg__", lambda x: x * 7, lambda x: -x),
        (torch.Tensor, "__len__", lambda _: 7, lambda x: x * len(x)),
        (nn.Parameter, "relu", lambda x: x * 7, lambda _: WEIGHT.relu()),
        (nn.Parameter, "__mul__", lambda x, _: x + 7, lambda _: WEIGHT * 2),
    ],
)
def test_function_that_is_replaced(
    owner: Any,
    name: str,
    new: Callable[..., Any],
    function: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    special = specialize(function)
    assert torch.equal(special(ONE), special(ONE))
    assert (special.stats.hits, special.refusals) == (1, [])
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, new, raising=False)
        found, wanted = special(ONE), function(ONE)
    assert torch.equal(found, wanted)
    assert torch.equal(special(ONE), function(ONE))
    assert special.stats.hits == 2


def test_dtype_that_autocast_takes() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu"):
            return x @ x

    special = specialize(function)
    x = torch.ones(2, 2)
    before = torch.get_autocast_dtype("cpu")
    assert special(x).dtype == special(x).dtype == before
    assert (special.stats.hits, special.refusals) == (1, [])
    torch.set_autocast_dtype("cpu", torch.float16)
    try:
        assert str(special.explain_miss(x)[0]) == (
            "functions of torch and of Python: expected what they were, "
            "found other ones: autocast dtype of cpu"
        )
        assert special(x).dtype == torch.float16
    finally:
        torch.set_autocast_dtype("cpu", before)


# ── the order of sets ────────────────────────────────────────────────────────────────────────────


def test_order_of_a_set() -> None:
    def function(x: torch.Tensor, numbers: Any) -> torch.Tensor:
        for number in numbers:
            x = x * 2 + number
        return x

    special = specialize(function)
    one, other = {0, 8}, {8}
    other.add(0)
    assert one == other
    assert [*one] != [*other]
    for make in (set.copy, frozenset):
        for numbers in (one, other, one):
            given = numbers if make is set.copy else make(numbers)
            assert torch.equal(special(ONE, given), function(ONE, given))
    assert special.refusals == []


def test_builtins_of_a_functions_own_are_refused_where_it_names_them() -> None:
    scope: dict[str, Any] = {"__builtins__": {**vars(builtins), "OWN": 2}, "FACTOR": 3}
    exec("def own(x): return x * OWN\ndef common(x): return x * FACTOR", scope)
    x = torch.ones(1)
    special = specialize(scope["own"])
    for value in (2, 5):
        scope["__builtins__"]["OWN"] = value
        assert special(x).item() == value
    assert "names OWN, which it takes from builtins of its own" in special.refusals[0]
    special = specialize(scope["common"])
    assert (special(x).item(), special(x).item(), special.stats.hits) == (3, 3, 1)


class EqualToAll:
    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, x: torch.Tensor, inplace: bool = False) -> torch.Tensor:
        return x * 7

    def __eq__(self, other: object) -> bool:
        self.asked += 1
        return True

    __hash__ = None  # type: ignore[assignment]


def test_what_says_it_is_equal_is_noticed_and_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    special = specialize(nn.ReLU())
    assert (special(ONE).tolist(), special(ONE).tolist(), special.stats.hits) == ([1, 1], [1, 1], 1)
    replaced = EqualToAll()
    monkeypatch.setattr(functional, "relu", replaced)
    assert special(ONE).tolist() == [7, 7]
    assert replaced.asked == 0


# ── again and again: a namespace is looked at anew whenever it has changed ───────────────────────


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(x) * 2


def test_function_of_torch_that_is_replaced_and_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    special, relu = specialize(Scaled()), functional.relu
    for _ in range(3):
        assert first_number(special, ONE) == 2
    for number in range(3):
        monkeypatch.setattr(functional, "relu", lambda x: x * 5)
        assert first_number(special, ONE) == 10, number
        monkeypatch.setattr(functional, "relu", relu)
        monkeypatch.setattr(functional, "some_other_name", number, raising=False)
        hits = special.stats.hits
        assert first_number(special, ONE) == 2
        assert special.stats.hits == hits + 1


def test_class_of_torch_that_gets_an_attribute_and_loses_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    special = specialize(Scaled())
    for _ in range(3):
        assert first_number(special, ONE) == 2
    for name in ("__bool__", "__float__"):
        with monkeypatch.context() as patch:
            patch.setattr(nn.Module, name, lambda self: True, raising=False)
            assert special.explain_miss(ONE)
            assert first_number(special, ONE) == 2
        hits = special.stats.hits
        assert first_number(special, ONE) == 2
        assert special.stats.hits == hits + 1


@pytest.mark.parametrize("name", ["max", "min", "sorted", "enumerate"])
def test_builtin_that_is_replaced_by_one_that_fails(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: Any, **options: Any) -> Any:
        raise ValueError(arguments)

    special = specialize(lambda x: x * 2)
    monkeypatch.setattr(builtins, name, fails)
    found = special(ONE)
    monkeypatch.undo()
    assert torch.equal(found, ONE * 2)
    assert torch.equal(special(ONE), ONE * 2)
