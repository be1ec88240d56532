"""Ways of writing that many share: lists as indices, contexts, parametrizations, caches."""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from guards import specialize
from guards._index_lists import indexes_by_constants
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize

from tests.guards.twins import Twins

X = torch.arange(12.0).reshape(3, 4)
ROWS = [0, 2]


def repeats(function: Callable[..., Any], *arguments: Any, refused: int = 0) -> Any:
    """Call it four times beside the plain function; all but the first watched one are repeated."""
    twins = Twins(lambda: function)
    for _ in range(4):
        twins.call(lambda: tuple(copy.deepcopy(a) for a in arguments))
    assert twins.counts == (3 - refused, refused), twins.special.refusals
    return twins.special


# ── lists as indices ─────────────────────────────────────────────────────────────────────────────


class Holder:
    rows = (1, 0)

    def __init__(self) -> None:
        self.columns = [3, 1]


HOLDER = Holder()


def writes(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[[0, 1]] = 5.0
    y[:, [2, -1]] = y[:, [0, 1]]
    return y


def adds(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y[[2]] += 1
    rows = [1]
    y[rows, 1:] *= 2
    return y


def names_a_list(x: torch.Tensor) -> torch.Tensor:
    rows = [row for row in range(3) if row != 1]
    return x[rows]


def depends_on_shape(x: torch.Tensor) -> torch.Tensor:
    last = x.shape[0] - 1
    return x[[0, last]]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[[0, 1]],
        lambda x: x[[0, 1, 2, 0]],
        lambda x: x[:, [0, -1]],
        lambda x: x[..., [1], None],
        lambda x: x[[0, 1], [2, 3]],
        lambda x: x[ROWS],
        lambda x: x[ROWS, 1:],
        lambda x: x[:, HOLDER.columns],
        lambda x: x[[True, False, True]],
        lambda x: x[[]],
        writes,
        adds,
        names_a_list,
        depends_on_shape,
    ],
    ids=range(14),
)
def test_list_as_an_index_is_repeated(function: Callable[..., Any]) -> None:
    repeats(function, X.clone().requires_grad_())


def test_list_as_an_index_is_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x[ROWS]

    special = specialize(function)
    for rows in ([0, 2], [0, 2], [1], [1, 1]):
        monkeypatch.setitem(globals(), "ROWS", rows)
        assert torch.equal(special(X), X[rows])
    assert special.stats.hits == 1


def test_mask_of_values_is_not_taken_for_a_list_of_bools() -> None:
    special = specialize(lambda x: x[x > 3])
    for x in (X, X + 1, X * 0):
        assert torch.equal(special(x), x[x > 3])
    assert special.stats.hits == 0


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x[:, [i, 0]],
        lambda x, i: x[[[i, 0], [1, 1]],],
        lambda x, i: x[:, [n + 0 for n in (i, 0)]],
        lambda x, i: x[:, [0, i] if x.shape[0] == 3 else [0, 1]],
        lambda x, i: x[:, (lambda: [i, 0])()],
    ],
    ids=range(5),
)
def test_list_that_holds_tensors_is_read_every_time(function: Callable[..., Any]) -> None:
    special = specialize(function)
    for number in (0, 1, 2, 1):
        i = torch.tensor(number)
        assert torch.equal(special(X, i), function(X, i))
    assert special.stats.hits == 0
    assert "reads unseen what the list holds" in special.refusals[0]


class Spy:
    """Say of each index whether it is known to be made of constants."""

    def __getitem__(self, index: object) -> bool | None:
        frame = sys._getframe(1)
        return indexes_by_constants(frame)

    def __call__(self, index: object) -> bool | None:
        return indexes_by_constants(sys._getframe(1))


def test_which_indices_are_followed() -> None:
    spy, one, tensor = Spy(), 1, torch.ones(1)
    chosen = [1, tensor]
    assert spy[[0, 1]] is True
    assert spy[one] is True
    assert spy[1:one, [one, 2, 3], None, ...] is True
    assert spy[HOLDER.columns] is True
    assert spy[HOLDER.rows] is True
    assert spy[[-one]] is True
    assert spy[[tensor]] is False
    assert spy[chosen] is False
    assert spy[:, [0, tensor]] is False
    assert spy[[0, 1] if one else [tensor]] is False
    assert spy[[tensor] if one else [0, 1]] is False
    assert spy[sorted({0, 1})] is False  # a call, which is not followed
    assert spy[[0, one + one]] is False
    assert spy[(one := one)] is False
    assert spy([0, 1]) is None


# ── contexts made of generators ──────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def scaled(factor: int) -> Iterator[int]:
    yield factor * 2


@contextlib.contextmanager
def without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


@contextlib.contextmanager
def finishing() -> Iterator[None]:
    try:
        yield
    finally:
        torch.zeros(())


def in_contexts(x: torch.Tensor) -> Any:
    with scaled(3) as factor, without_gradients():
        y = x * factor
    with finishing():
        z = x * 2
    return y, z


def writes_in_a_context(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    with scaled(1) as factor:
        y.mul_(factor)
    return y


@pytest.mark.parametrize("function", [in_contexts, writes_in_a_context])
def test_context_of_a_generator_is_repeated(function: Callable[..., Any]) -> None:
    repeats(function, X.clone().requires_grad_())


def test_generator_of_a_context_is_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    special = specialize(in_contexts)
    special(X)

    @contextlib.contextmanager
    def other(factor: int) -> Iterator[int]:
        yield factor * 7

    monkeypatch.setitem(globals(), "scaled", other)
    assert torch.equal(special(X)[0], X * 21)
    assert torch.equal(special(X)[0], X * 21)
    assert special.stats.hits == 1


def test_context_that_swallows_errors_still_does() -> None:
    table = torch.ones(3, 2)

    @contextlib.contextmanager
    def forgiving() -> Iterator[None]:
        with contextlib.suppress(IndexError):
            yield

    def function(x: torch.Tensor) -> torch.Tensor:
        with forgiving():
            return F.embedding(x, table)
        return table * 0

    special = specialize(function)
    for index in (1, 7, 2, 9):
        x = torch.tensor([index])
        assert torch.equal(special(x), function(x))


def test_effect_within_a_context_happens_every_time() -> None:
    seen: list[int] = []

    @contextlib.contextmanager
    def noting() -> Iterator[None]:
        seen.append(1)
        yield

    def function(x: torch.Tensor) -> torch.Tensor:
        with noting():
            return x * 2

    special = specialize(function)
    for _ in range(3):
        special(X)
    assert len(seen) == 3


# ── parametrizations ─────────────────────────────────────────────────────────────────────────────


class Symmetric(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.triu() + x.triu(1).mT


def symmetric() -> nn.Module:
    module = nn.Linear(4, 4)
    parametrize.register_parametrization(module, "weight", Symmetric())
    return module


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        symmetric,
        lambda: parametrizations.weight_norm(nn.Linear(4, 4)),
        lambda: parametrizations.spectral_norm(nn.Linear(4, 4)),
        lambda: parametrizations.spectral_norm(nn.Linear(4, 4)).eval(),
        lambda: parametrizations.orthogonal(nn.Linear(4, 4)),
        lambda: nn.Sequential(symmetric(), nn.ReLU(), symmetric()),
    ],
    ids=["own", "weight_norm", "spectral_norm", "spectral_norm-eval", "orthogonal", "two"],
)
def test_parametrization_is_repeated(make: Callable[[], nn.Module]) -> None:
    twins = Twins(make)
    for _ in range(4):
        twins.call(lambda: (X.clone(),))
    assert twins.counts == (3, 0), twins.special.refusals
    with torch.no_grad():
        for module in (twins.plain, twins.inner):
            for parameter in module.parameters():
                parameter.mul_(0.5)
    twins.call(lambda: (X.clone(),))
    assert twins.counts == (4, 0)


def test_parametrization_that_is_cached_is_left_alone() -> None:
    module = symmetric()
    special = specialize(module)
    special(X)
    special(X)
    assert special.stats.hits == 1
    with parametrize.cached():
        (why,) = special.explain_miss(X)
        assert "_cache_enabled" in str(why)
        special(X)
        with torch.no_grad():
            module.parametrizations.weight.original.zero_()  # type: ignore[union-attr,operator]
        assert torch.equal(special(X), module(X))  # as the cache has it
    assert special.stats.hits == 1
    assert torch.equal(special(X), module(X))
    assert special.stats.hits == 2


# ── results that are kept ────────────────────────────────────────────────────────────────────────


class Lazy:
    def __init__(self) -> None:
        self.factor = 2

    @functools.cached_property
    def double(self) -> int:
        return self.factor * 2


class Heir(Lazy):
    pass


@pytest.mark.parametrize("cls", [Lazy, Heir])
def test_property_that_keeps_its_value(cls: type[Lazy]) -> None:
    lazy = cls()

    def function(x: torch.Tensor) -> torch.Tensor:
        return x * lazy.double

    special = specialize(function)
    for _ in range(3):
        assert torch.equal(special(X), X * 4)
    assert (special.stats.hits, len(special.refusals)) == (1, 1)  # it is computed once, unseen
    del lazy.__dict__["double"]
    lazy.factor = 5
    assert torch.equal(special(X), X * 10)
    assert torch.equal(special(X), X * 10)


def test_property_that_hides_the_value_that_was_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    lazy = Lazy()

    def function(x: torch.Tensor) -> torch.Tensor:
        return x * lazy.double

    special = specialize(function)
    for _ in range(3):
        special(X)
    assert special.stats.hits == 1
    monkeypatch.setattr(Lazy, "double", property(lambda self: 7))
    assert torch.equal(special(X), X * 7)


@functools.lru_cache
def kept(number: int) -> int:
    return number * 2


def test_function_that_keeps_its_results_is_left_alone_with_a_reason() -> None:
    special = specialize(lambda x: x * kept(3))
    assert torch.equal(special(X), X * 6)
    assert special.refusals == [
        f"G['{__name__}']['kept'] keeps its results from call to call (functools.lru_cache), "
        "which no guard sees: call it before, and hand on what it gives"
    ]


# ── sequences ────────────────────────────────────────────────────────────────────────────────────


def test_loss_of_sequences_whose_lengths_are_numbers_is_repeated() -> None:
    long: Any = (5, 4)
    short: Any = (2, 1)

    def function(guesses: torch.Tensor, targets: torch.Tensor) -> Any:
        return [
            F.ctc_loss(guesses, targets, long, short, reduction=how, zero_infinity=True)
            for how in ("mean", "sum", "none")
        ]

    guesses = torch.randn(5, 2, 4).log_softmax(2).requires_grad_()
    repeats(function, guesses.detach().requires_grad_(), torch.tensor([[1, 2], [1, 3]]))


def test_loss_of_sequences_whose_lengths_are_tensors_is_left_alone() -> None:
    special = specialize(nn.CTCLoss())
    guesses, targets = torch.randn(5, 2, 4).log_softmax(2), torch.tensor([[1, 2], [1, 3]])
    for lengths in ([5, 5], [5, 4], [5, 5]):
        given = (guesses, targets, torch.tensor(lengths), torch.tensor([2, 1]))
        assert torch.equal(special(*given), nn.CTCLoss()(*given))
    assert special.stats.hits == 0
    assert special.refusals[0] == "ctc_loss reads what its arguments hold"


def test_padding_of_sequences_is_repeated() -> None:
    repeats(lambda a, b: nn.utils.rnn.pad_sequence([a, b]), torch.ones(3, 4), torch.ones(2, 4))


def test_packing_of_sequences_is_left_alone_with_a_reason() -> None:
    def function(x: torch.Tensor) -> Any:
        return nn.utils.rnn.pack_padded_sequence(x, [3, 2])

    special = specialize(function)
    for _ in range(2):
        assert torch.equal(special(torch.ones(3, 2, 4)).data, torch.ones(5, 4))
    assert special.refusals[0] == (
        "it packs sequences by lengths whose values are read: pack them before the call"
    )
