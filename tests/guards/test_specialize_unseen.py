"""What a run reads or does besides running operators is guarded, or makes it no record at all."""

from __future__ import annotations

import collections.abc
import contextlib
import enum
import io
import operator
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
import torch
from guards import facts, specialize
from guards._understood import UNSEEN, reads_unseen
from torch import nn

from tests.guards.twins import first_number

ONE = torch.ones(2)


class Settings:
    scale = 2


class Level(enum.Enum):
    LOW = 1


def helper(x: torch.Tensor) -> torch.Tensor:
    return x


class Layer(nn.Module):
    factor = 3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Put back what the tests of this file change."""
    yield
    Settings.scale = 2
    for owner, names in ((Settings, ("last", "late")), (Layer, ("__call__",)), (helper, ("k",))):
        for name in names:
            with contextlib.suppress(AttributeError):
                delattr(owner, name)
    Level.LOW.__dict__.pop("k", None)


# ── reads ────────────────────────────────────────────────────────────────────────────────────────


def by_pattern(x: torch.Tensor) -> torch.Tensor:
    match Settings():
        case Settings(scale=2):
            return x
        case _:
            return x + 1


def by_attrgetter(x: torch.Tensor) -> Any:
    return x * operator.attrgetter("scale")(Settings)


def by_mapped_getattr(x: torch.Tensor) -> Any:
    return x * next(map(getattr, [Settings], ["scale"]))


def by_format(x: torch.Tensor) -> torch.Tensor:
    return x * int("{0.scale}".format(Settings))  # noqa: UP030, UP032  # what is tested


def by_mapped_format(x: torch.Tensor) -> Any:
    return x * int(next(map("{0.scale}".format, [Settings])))


@pytest.mark.parametrize(
    "function", [by_pattern, by_attrgetter, by_mapped_getattr, by_format, by_mapped_format]
)
def test_attribute_that_is_read_by_other_means(function: Callable[..., Any]) -> None:
    special = specialize(function)
    for scale in (2, 7, 2):
        Settings.scale = scale
        assert first_number(special, ONE) == first_number(function, ONE)
    assert special.refusals


def test_attribute_of_a_function() -> None:
    def function(x: torch.Tensor) -> Any:
        return helper(x) * getter(helper)

    def getter(f: Any) -> Any:
        try:
            return f.k
        except AttributeError:
            return 1

    special = specialize(function)
    found = [first_number(special, ONE), first_number(special, ONE)]
    for value in (2, 2, 5):
        helper.k = value  # type: ignore[attr-defined]
        found.append(first_number(special, ONE))
    assert found == [1, 1, 2, 2, 5]
    assert special.stats.hits == 2
    assert special.refusals == []


def test_attribute_of_a_member_of_an_enum() -> None:
    def function(x: torch.Tensor) -> Any:
        return x * Level.LOW.k  # type: ignore[attr-defined]

    special = specialize(function)
    for value in (2, 5):
        Level.LOW.k = value  # type: ignore[attr-defined]
        assert first_number(special, ONE) == value
    assert special.refusals[0].endswith("has attributes of its own: k")


def test_attribute_that_a_class_gets_later() -> None:
    def function(x: torch.Tensor) -> Any:
        try:
            return x * Settings.late  # type: ignore[attr-defined]
        except AttributeError:
            return x

    special = specialize(function)
    assert first_number(special, ONE) == first_number(special, ONE) == 1
    Settings.late = 5  # type: ignore[attr-defined]
    assert str(special.explain_miss(ONE)[0]) == (
        "each class: expected the attributes that they had, found "
        f"G[{__name__!r}]['Settings'] has other ones: late"
    )
    assert first_number(special, ONE) == 5


def test_special_method_that_a_class_gets_later() -> None:
    special = specialize(lambda x, layer: layer(x))
    layer = Layer()
    assert first_number(special, ONE, layer) == first_number(special, ONE, layer) == 3
    assert special.stats.hits == 1
    setattr(Layer, "__call__", lambda self, x: x * 11)  # noqa: B010  # mypy refuses the other form
    assert first_number(special, ONE, layer) == 11


@pytest.mark.parametrize(
    "ask",
    [
        lambda x: x._is_view(),
        lambda x: x.data.dim() == 1,
        lambda x: x.is_leaf,
        lambda x: x.output_nr == 0,
        lambda x: x.untyped_storage() is None,
    ],
)
def test_what_no_guard_holds_fast_of_a_tensor(ask: Callable[..., Any]) -> None:
    special = specialize(lambda x: x + 1 if ask(x) else x + 2)
    special(torch.ones(3))
    special(torch.ones(6)[:3])
    assert special.stats.hits == 0
    assert len(special.refusals) == 2


def test_data_is_no_detached_copy() -> None:
    def function(w: torch.Tensor) -> torch.Tensor:
        y = (w * w).sum()
        w.data.mul_(0.5)
        return y

    special = specialize(function)
    for _ in range(3):
        w = torch.ones(2, requires_grad=True)
        special(w).backward()
        assert w.grad is not None


def test_classes_that_are_registered_with_abstract_ones() -> None:
    class Kind:
        pass

    def function(x: torch.Tensor, kind: Any) -> torch.Tensor:
        return x * 2 if isinstance(kind, collections.abc.Sequence) else x * 3

    special = specialize(function)
    kind = Kind()
    assert first_number(special, ONE, kind) == first_number(special, ONE, kind) == 3
    assert first_number(special, ONE, [1]) == first_number(special, ONE, [1]) == 2
    assert (special.stats.hits, special.refusals) == (2, [])
    collections.abc.Sequence.register(Kind)
    assert "abc.get_cache_token()" in str(special.explain_miss(ONE, kind)[0])
    assert first_number(special, ONE, kind) == 2


# ── operators that read memory where no mode sees it ─────────────────────────────────────────────


def test_composites_that_read_memory_themselves() -> None:
    def split(x: torch.Tensor, at: torch.Tensor) -> Any:
        return x.tensor_split(at)

    def pad(x: torch.Tensor, sizes: torch.Tensor) -> Any:
        return torch._VF._pad_packed_sequence(x, sizes, False, 0.0, -1)[0]

    special = specialize(split)
    x = torch.arange(6)
    for places in ([1, 2], [3, 4]):
        found = special(x, torch.tensor(places))
        assert [len(part) for part in found] == [places[0], places[1] - places[0], 6 - places[1]]
    special = specialize(pad)
    assert special(torch.ones(4, 3), torch.tensor([2, 2])).shape == (2, 2, 3)
    assert special(torch.ones(4, 3), torch.tensor([3, 1])).shape == (2, 3, 3)


def test_split_at_numbers_is_repeated() -> None:
    def function(x: torch.Tensor, at: Any) -> Any:
        return x.tensor_split(at), x.tensor_split(3, 0)

    special = specialize(function)
    x = torch.arange(6)
    for at in (2, 2, (1, 2), [1, 2], torch.tensor([1]), torch.tensor([2]), torch.tensor(2), 2):
        for found, wanted in zip(special(x, at)[0], x.tensor_split(at), strict=True):
            assert torch.equal(found, wanted)
    assert special.stats.hits == 2
    assert set(special.refusals) == {"tensor_split reads what its arguments hold"}
    assert torch._C._len_torch_function_stack() == 0


class Scale:
    by: ClassVar = [2.0, 3.0]


def of_constants(x: torch.Tensor) -> Any:
    made = torch.tensor(Scale.by, dtype=torch.float64)
    made.add_(1)
    return x * made, made, torch.tensor([[1, x.shape[0]]]), x[torch.tensor([0])], x.new_tensor(2)


def by_map(x: torch.Tensor) -> Any:
    made = next(map(torch.tensor, [2.0]))
    return x * made.add_(1)


def of_tensors(x: torch.Tensor) -> Any:
    return torch.tensor([x[0], 1.0]), torch.tensor([[x[1]]])


@pytest.mark.parametrize(("function", "hits"), [(of_constants, 3), (by_map, 3), (of_tensors, 0)])
def test_tensors_made_within(
    function: Callable[..., Any], hits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    special = specialize(function)

    def both(x: torch.Tensor) -> None:
        for found, wanted in zip(special(x), function(x), strict=True):
            assert torch.equal(found, wanted)

    for number in range(4):
        both(ONE * number)
    assert special.stats.hits == hits
    monkeypatch.setattr(Scale, "by", [7.0, 8.0])
    both(ONE)


@pytest.mark.parametrize("name", ["cholesky", "eigh", "eig", "solve", "qr", "inv"])
def test_function_of_linalg(name: str) -> None:
    def function(x: torch.Tensor) -> Any:
        if name == "solve":
            return torch.linalg.solve(x, ONE)
        return asked(x)

    asked = getattr(torch.linalg, name)
    special = specialize(function)
    for number in range(1, 4):
        x = torch.eye(2) * number
        found, wanted = special(x), function(x)
        assert all(map(torch.equal, found, wanted))
    assert (special.stats.hits, special.refusals) == (2, [])


def test_data_that_makes_no_tensor() -> None:
    def function(x: torch.Tensor) -> Any:
        try:
            return torch.tensor(["text"])
        except ValueError:
            return x * 2

    special = specialize(function)
    for _ in range(2):
        assert special(ONE)[0] == 2
    assert torch._C._len_torch_function_stack() == 0


def test_what_reads_unseen_is_asked_of_the_facts() -> None:
    assert all(map(reads_unseen, ("tensor_split", "_pad_packed_sequence", "ctc_loss", "lstm")))
    assert not any(map(reads_unseen, ("item", "where", "add", "no_such_operator")))
    assert facts("aten::tensor_split.tensor_indices_or_sections").reads_data == "always"


# ── effects ──────────────────────────────────────────────────────────────────────────────────────


def test_gradients_are_let_go_every_time() -> None:
    model = nn.Linear(2, 2)

    def function(x: torch.Tensor) -> Any:
        model.zero_grad()
        return model(x)

    special = specialize(function)
    for _ in range(3):
        model.weight.grad = torch.ones(2, 2)
        special(ONE)
        assert model.weight.grad is None


def on_a_class(size: int) -> None:
    Settings.last = size  # type: ignore[attr-defined]


def on_a_module(size: int) -> None:
    nn.functional.last = size  # type: ignore[attr-defined]


def on_a_function(size: int) -> None:
    helper.last = size  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("write", "owner"),
    [(on_a_class, Settings), (on_a_module, nn.functional), (on_a_function, helper)],
)
def test_attribute_that_was_not_there_is_set_every_time(
    write: Callable[[int], None], owner: Any
) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        write(x.shape[0])
        return x * 2

    special = specialize(function)
    try:
        for size in (3, 5, 3):
            special(torch.ones(size))
            assert owner.last == size
    finally:
        del owner.last


def by_type(x: torch.Tensor) -> torch.Tensor:
    type.__setattr__(Settings, "last", x.shape[0])
    return x


def test_attribute_that_is_set_through_type() -> None:
    special = specialize(by_type)
    for size in (3, 5, 3):
        special(torch.ones(size))
        assert Settings.last == size  # type: ignore[attr-defined]


def test_functions_of_c_that_functions_of_c_call() -> None:
    clock = specialize(lambda x: x * next(iter(time.perf_counter, None)))
    x = torch.ones(1, dtype=torch.float64)
    assert len({clock(x).item() for _ in range(3)}) == 3
    printing = specialize(lambda x: (list(map(print, ["text"])), x)[1])
    with contextlib.redirect_stdout(io.StringIO()) as out:
        for _ in range(3):
            printing(ONE)
    assert out.getvalue() == "text\n" * 3


def now() -> float:
    return time.perf_counter()


def test_function_of_c_that_one_function_calls_and_another_hands_on() -> None:
    def function(x: torch.Tensor, call: bool, other: Any) -> Any:
        return x * (now() if call else other())

    special = specialize(function)
    x = torch.ones(1, dtype=torch.float64)
    results = {
        special(x, False, lambda: next(iter(time.perf_counter, None))).item() for _ in range(3)
    }
    assert len(results) == 3
    assert special.stats.hits == 0
    for _ in range(2):  # what is named to be called, and is not called, is no hindrance
        special(x, False, once)
    # Code does not say before Python 3.11 what it calls.
    assert special.stats.hits == (1 if sys.version_info >= (3, 11) else 0)


def once() -> int:
    return 1


# ── results ──────────────────────────────────────────────────────────────────────────────────────


def test_results_that_contain_themselves_or_are_there_twice() -> None:
    def endless(x: torch.Tensor) -> Any:
        result: list[Any] = [x]
        result.append(result)
        return result

    def deep(x: torch.Tensor) -> Any:
        result: Any = x
        for _ in range(5000):
            result = [result]
        return result

    def twice(x: torch.Tensor) -> Any:
        result = [x]
        return result, result

    special = specialize(endless)
    for _ in range(2):
        result = special(ONE)
        assert result[1] is result
    assert type(specialize(deep)(ONE)) is list
    special = specialize(twice)
    for _ in range(3):
        first, second = special(ONE)
        assert first is second


# ── the lists ────────────────────────────────────────────────────────────────────────────────────


def test_members_of_tensors_are_refused_unless_they_are_understood() -> None:
    assert {"grad", "data", "is_leaf", "_version", "backward", "tolist", "numpy"} <= UNSEEN
    assert not {"shape", "dtype", "add", "add_", "view", "T", "float"} & UNSEEN
