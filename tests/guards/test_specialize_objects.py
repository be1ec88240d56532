"""Objects that a specialized function reaches: slots, partials, enums, super, recurrent modules."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from guards import specialize
from torch import nn

from tests.guards.twins import Twins

ONE = torch.ones(2)

# ── what a function reaches ──────────────────────────────────────────────────────────────────────


class Settings:
    __slots__ = ("__hidden", "late", "scale")

    def __init__(self, scale: float) -> None:
        self.scale = scale
        self.__hidden = 1

    def hidden(self) -> int:
        return self.__hidden

    def set_hidden(self, value: int) -> None:
        self.__hidden = value


def by_slots(x: torch.Tensor, settings: Settings) -> torch.Tensor:
    x = x * settings.scale + settings.hidden()
    try:
        return x + settings.late  # type: ignore[attr-defined,no-any-return]
    except AttributeError:
        return x


def test_slots_are_guarded_whether_set_or_not() -> None:
    special = specialize(by_slots)
    settings = Settings(2.0)

    def both() -> None:
        assert torch.equal(special(ONE, settings), by_slots(ONE, settings))

    both()
    both()
    assert special.stats.hits == 1
    settings.scale = 3.0
    both()
    settings.set_hidden(5)
    both()
    settings.late = 7  # type: ignore[attr-defined]
    both()
    both()
    assert special.stats.hits == 2
    assert special.refusals == []


def test_slot_that_is_set_within_is_an_effect() -> None:
    def function(x: torch.Tensor, settings: Settings) -> torch.Tensor:
        settings.late = x.shape[0]  # type: ignore[attr-defined]
        return x * 2

    special = specialize(function)
    for _ in range(3):
        settings = Settings(1.0)
        special(ONE, settings)
        assert settings.late == 2  # type: ignore[attr-defined]
    assert special.stats.hits == 0


def scaled(x: torch.Tensor, by: float, shift: float = 0) -> torch.Tensor:
    return x * by + shift


doubled = functools.partial(scaled, by=2.0)


def by_partial(x: torch.Tensor) -> torch.Tensor:
    return doubled(x, shift=1.0)


def test_partial_is_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    special = specialize(by_partial)
    assert special(ONE)[0] == special(ONE)[0] == 3
    doubled.keywords["by"] = 5.0
    try:
        assert special(ONE)[0] == special(ONE)[0] == 6
    finally:
        doubled.keywords["by"] = 2.0
    monkeypatch.setitem(globals(), "doubled", functools.partial(scaled, by=4.0))
    assert special(ONE)[0] == 5
    monkeypatch.setitem(globals(), "doubled", functools.partial(torch.add, alpha=1))
    with pytest.raises(TypeError):
        special(ONE)
    assert special.stats.hits == 2
    assert special.refusals == []


def test_partial_itself_is_specialized() -> None:
    special = specialize(functools.partial(scaled, by=2.0))
    assert special(ONE)[0] == special(ONE)[0] == 2
    assert special(ONE, by=3.0)[0] == 3
    assert special(ONE, shift=1.0)[0] == 3
    assert special.stats.hits == 1
    assert special.refusals == []


def test_method_of_c_that_is_another_later() -> None:
    method: Any = torch.Tensor.exp

    def called(x: torch.Tensor) -> Any:
        return method(x)

    def mapped(x: torch.Tensor) -> Any:
        return next(map(method, [x]))

    for function in (called, mapped):
        method = torch.Tensor.exp
        special = specialize(function)
        assert torch.equal(special(ONE), ONE.exp())
        assert torch.equal(special(ONE), ONE.exp())
        method = torch.Tensor.sin
        assert torch.equal(special(ONE), ONE.sin())
        assert (special.stats.hits, special.refusals) == (1, [])
        method = torch.Tensor.tolist
        for x in (ONE, ONE * 2):
            assert special(x) == x.tolist()
        assert special.stats.hits == 1


class Level(enum.Enum):
    LOW = 1
    HIGH = 2

    @property
    def twice(self) -> int:
        return self.value * 2


FACTORS = {Level.LOW: 3, Level.HIGH: 5}


def by_level(x: torch.Tensor, level: Level) -> Any:
    if level is Level["LOW"] and level in FACTORS:
        x = x + 1
    number = x * level.value * FACTORS[level] * Level(level.value).twice * len(Level)
    return number, [each.name for each in Level]


def test_members_of_enums_are_asked() -> None:
    special = specialize(by_level)
    for level in (Level.LOW, Level.LOW, Level.HIGH, Level.HIGH, Level.LOW):
        found, wanted = special(ONE, level), by_level(ONE, level)
        assert torch.equal(found[0], wanted[0])
        assert found[1] == wanted[1]
    assert (special.stats.hits, special.refusals) == (3, [])


def test_enum_that_is_made_within_is_another_each_time() -> None:
    special = specialize(lambda x: enum.Enum("Made", "A B"))
    assert special(ONE) is not special(ONE)
    assert special.stats.hits == 0


# ── super() ──────────────────────────────────────────────────────────────────────────────────────


class Base(nn.Module):
    factor = 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


class Side(nn.Module):
    factor = 5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - 1


class Middle(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + super().factor


class Leaf(Middle, Side):
    factor = 3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super(Middle, self).forward(x) * 2 + super().forward(x)


class OwnLinear(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * 2


@pytest.mark.parametrize("cls", [Middle, Leaf], ids=lambda c: c.__name__)
def test_method_that_super_finds(cls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = cls()
    special = specialize(module)

    def both() -> None:
        assert torch.equal(special(ONE), module(ONE))

    both()
    both()
    assert (special.stats.hits, special.refusals) == (1, [])
    monkeypatch.setattr(Base, "factor", 7)
    both()
    monkeypatch.setattr(Base, "forward", lambda self, x: x * 13)
    both()
    both()
    assert special.stats.hits == 2
    monkeypatch.undo()
    both()
    assert special.stats.hits == 3
    assert special.refusals == []


def test_method_of_torch_that_super_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    module = OwnLinear(2, 2)
    special = specialize(module)
    for _ in range(2):
        assert torch.equal(special(ONE), module(ONE))
    assert special.stats.hits == 1
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: x * 13)
    assert torch.equal(special(ONE), ONE * 26)


# ── recurrent modules ────────────────────────────────────────────────────────────────────────────


class Recurrent(nn.Module):
    def __init__(self, cls: Any, **options: Any) -> None:
        super().__init__()
        self.inner = cls(3, 4, **options)

    def forward(self, x: torch.Tensor, state: Any = None) -> Any:
        return self.inner(x, state)


@pytest.mark.slow
@pytest.mark.parametrize("cls", [nn.LSTM, nn.GRU, nn.RNN], ids=lambda c: c.__name__)
@pytest.mark.parametrize(
    "options",
    [{}, {"num_layers": 2, "bidirectional": True, "dropout": 0.3, "batch_first": True}],
    ids=["", "all"],
)
def test_recurrent_module(cls: Any, options: dict[str, Any]) -> None:
    twins = Twins(lambda: Recurrent(cls, **options))
    for training in (True, False):
        twins.plain.train(training)
        twins.inner.train(training)
        for shape in ((2, 5, 3), (2, 5, 3)):
            twins.call(lambda shape=shape: (torch.randn(shape),), seed=len(shape))  # type: ignore[misc]
        twins.call(lambda: (torch.randn(2, 5, 3, requires_grad=True),))
    assert twins.counts == (2, 0), twins.special.refusals
    for module in (twins.plain, twins.inner):  # the list of weights, and weak references to them
        with torch.no_grad():
            module.inner.weight_ih_l0.mul_(2)
        module.inner.bias_hh_l0 = nn.Parameter(torch.ones_like(module.inner.bias_hh_l0))
    for _ in range(3):  # the first one renews what the module keeps of its weights
        twins.call(lambda: (torch.randn(2, 5, 3),))
    assert twins.counts == (4, 1), twins.special.refusals


def test_packed_sequences_are_left_alone() -> None:
    module = nn.LSTM(3, 4)
    special = specialize(module)
    x = torch.randn(4, 2, 3)
    for lengths in ([4, 2], [3, 3], [4, 1]):
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor(lengths))
        assert torch.equal(special(packed)[0].data, module(packed)[0].data)
    assert special.stats.hits == 0
    assert special.refusals


# ── arguments of classes that derive from containers ─────────────────────────────────────────────


class Batch(NamedTuple):
    x: Any
    factor: int = 2


class Rows(list[Any]):
    pass


class Table(dict[str, Any]):
    extra = 3


class Twisted(list[Any]):
    def __getitem__(self, index: Any) -> Any:
        return 5


def of_batch(batch: Any) -> Any:
    x, factor = batch
    return x * factor * batch.factor + len(batch)


def of_rows(rows: Any) -> Any:
    return sum(rows) * len(rows)


def of_table(table: Any) -> Any:
    return sum(table.values()) * table.extra


@pytest.mark.parametrize(
    ("function", "given", "hits"),
    [
        (of_batch, [Batch(ONE), Batch(ONE), Batch(ONE, 3), Batch(ONE + 1)], 2),
        (of_rows, [Rows([ONE]), Rows([ONE]), Rows([ONE, ONE]), [ONE], Rows([ONE])], 2),
        (of_table, [Table(a=ONE), Table(a=ONE), Table(b=ONE), Table(a=ONE, b=ONE)], 1),
    ],
)
def test_argument_that_derives_from_a_container(
    function: Callable[..., Any], given: list[Any], hits: int
) -> None:
    special = specialize(function)
    for argument in given:
        assert torch.equal(special(argument), function(argument))
    assert (special.stats.hits, special.refusals) == (hits, [])


def test_attribute_of_an_argument_that_derives_from_a_dict() -> None:
    special, table = specialize(of_table), Table(a=ONE)
    assert [special(table)[0].item() for _ in range(2)] == [3, 3]
    table.extra = 5
    assert special(table)[0].item() == 5
    table["a"] = ONE * 2
    assert special(table)[0].item() == 10
    assert (special.stats.hits, special.refusals) == (2, [])


def test_container_that_reads_in_its_own_way_is_refused() -> None:
    special = specialize(lambda rows: ONE * rows[0])
    for number in (1.0, 1.0, 2.0):
        assert special(Twisted([number])).tolist() == [5, 5]
    assert special.stats.hits == 0
    assert "L['rows'][0] is only to be had by running code of its class" in special.refusals[0]


def test_container_that_is_given_back_is_the_very_same() -> None:
    special, batch = specialize(lambda batch: (batch, batch._replace(factor=batch.x))), Batch(ONE)
    for _ in range(2):
        same, other = special(batch)
        assert same is batch
        assert type(other) is Batch
        assert other.factor is batch.x
    assert special.stats.hits == 1


class Thing:
    pass


def test_text_that_says_an_address_is_left_to_the_function() -> None:
    special = specialize(lambda x, thing: (x * 2, {"name": str(thing)}))
    things = [Thing() for _ in range(3)]
    assert [special(ONE, thing)[1]["name"] for thing in things] == [*map(str, things)]
    assert special.refusals[0] == "it gives a text that says the address of an object"
