"""A specialized function gives what the plain one gives: bit for bit, call after call."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from guards import GuardError, Specialized, UnsupportedGuardError, specialize
from torch import nn
from torch.nn import functional as F

from tests.guards.twins import Twins, mlp


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(),
        nn.Linear(16, 2),
    )


def transformer() -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)


MODELS: dict[str, tuple[Callable[[], nn.Module], list[tuple[int, ...]]]] = {
    "mlp": (mlp, [(5, 3), (1, 3), (3,), (2, 2, 3)]),
    "convolutions": (convolutions, [(2, 1, 6, 6), (3, 1, 6, 6), (2, 1, 7, 7)]),
    "transformer": (transformer, [(2, 3, 8), (2, 5, 8), (1, 3, 8)]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_model_with_changing_shapes_modes_and_dtypes(name: str) -> None:
    make, shapes = MODELS[name]
    twins = Twins(make)

    def both(change: Callable[[Any], Any]) -> None:
        change(twins.plain)
        change(twins.inner)

    for training in (True, False, True):
        both(lambda m, training=training: m.train(training))  # type: ignore[misc]
        for shape in shapes:
            twins.call(lambda shape=shape: (torch.randn(shape),), seed=len(shape))  # type: ignore[misc]
            twins.call(lambda shape=shape: (torch.randn(shape),), seed=7)  # type: ignore[misc]
    with torch.no_grad():
        for seed in range(3):
            twins.call(lambda: (torch.randn(shapes[0]),), seed)
    both(lambda m: m.double())
    for seed in range(2):
        twins.call(lambda: (torch.randn(shapes[0], dtype=torch.float64),), seed)
    hits, refusals = twins.counts
    assert hits >= 3 * len(shapes)
    assert refusals == 0, twins.special.refusals


def test_transformer_where_query_and_key_become_one_tensor() -> None:
    twins = Twins(lambda: nn.MultiheadAttention(8, 2, batch_first=True).eval())

    def three() -> tuple[Any, ...]:
        return tuple(torch.randn(2, 3, 8) for _ in range(3))

    def one() -> tuple[Any, ...]:
        return (torch.randn(2, 3, 8),) * 3

    for make in (three, three, one, one, three):
        twins.call(make)
    assert twins.counts == (3, 0)


def test_parameters_are_those_of_the_day() -> None:
    twins = Twins(mlp)
    twins.call(lambda: (torch.randn(2, 3),))
    for model in (twins.plain, twins.inner):
        with torch.no_grad():
            model[0].weight.mul_(2)
        model[3].weight = nn.Parameter(torch.ones(2, 4))
    twins.call(lambda: (torch.randn(2, 3),))
    assert twins.counts == (1, 0)


SCALE = 2


def scaled(x: torch.Tensor) -> torch.Tensor:
    return helper(x) * SCALE


def helper(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.shape[0] > 2 else x - 1


def test_globals_are_guarded_through_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    twins = Twins(lambda: scaled)
    for scale in (2, 3):
        monkeypatch.setitem(globals(), "SCALE", scale)
        for size in (2, 4, 2):
            twins.call(lambda size=size: (torch.randn(size),))  # type: ignore[misc]
    monkeypatch.setitem(globals(), "helper", lambda x: x * 7)
    twins.call(lambda: (torch.randn(4),))
    assert twins.counts == (2, 0)


def test_builtin_that_is_hidden_by_a_global(monkeypatch: pytest.MonkeyPatch) -> None:
    def count(x: torch.Tensor) -> torch.Tensor:
        return x * len(x)

    special = specialize(count)
    x = torch.ones(3)
    assert special(x)[0] == special(x)[0] == 3
    monkeypatch.setitem(globals(), "len", lambda x: 50)
    assert special(x)[0] == 50


def test_closures_and_defaults_are_guarded() -> None:
    factor = 2

    def times(x: torch.Tensor, shift: float = 0.5, *, sign: int = 1) -> torch.Tensor:
        return sign * (x * factor + shift)

    special = specialize(times)
    x = torch.randn(3)
    assert torch.equal(special(x), times(x))
    assert torch.equal(special(x), times(x))
    factor = 5
    assert torch.equal(special(x), x * 5 + 0.5)
    times.__defaults__ = (0.25,)
    assert torch.equal(special(x, sign=-1), times(x, sign=-1))
    assert special.refusals == []
    assert special.stats.hits == 1


@dataclasses.dataclass
class Config:
    scale: float = 2.0
    names: tuple[str, ...] = ("a",)
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def double(self) -> float:
        return self.scale * 2


class Net(nn.Module):
    shared = 3

    def __init__(self) -> None:
        super().__init__()
        self.seen: Any
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        self.config = Config()
        self.register_buffer("seen", torch.zeros(()))

    def block(self, x: torch.Tensor, layer: nn.Module) -> torch.Tensor:
        return F.relu(layer(x)) * self.config.double

    def forward(self, x: torch.Tensor, *, skip: bool = False) -> torch.Tensor:
        self.seen += 1
        for layer in self.layers:
            x = self.block(x, layer) if not skip else x
        return x * self.shared


def test_module_of_the_users_own() -> None:
    twins = Twins(Net)
    for _ in range(3):
        twins.call(lambda: (torch.randn(2, 3),))
    # `self.seen += 1` sets the attribute to the same tensor, which is no change.
    assert twins.counts == (2, 0), twins.special.refusals
    for change in (
        lambda m: setattr(m.config, "scale", 1.5),
        lambda m: m.config.extra.update(a=1),
        lambda m: setattr(m, "shared", 4),
        lambda m: m.layers.append(nn.Identity()),
        lambda m: setattr(m, "block", lambda x, layer: x),
    ):
        change(twins.plain)
        change(twins.inner)
        twins.call(lambda: (torch.randn(2, 3),))
    assert twins.counts == (2, 0)


def test_method_replaced_on_the_class(monkeypatch: pytest.MonkeyPatch) -> None:
    twins = Twins(Net)
    twins.call(lambda: (torch.randn(2, 3),))
    monkeypatch.setattr(Net, "block", lambda self, x, layer: x * 11)
    twins.call(lambda: (torch.randn(2, 3),))
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: x * 13)
    monkeypatch.undo()
    twins.call(lambda: (torch.randn(2, 3),))
    assert twins.counts == (1, 0)


def test_method_of_torch_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    twins = Twins(mlp)
    twins.call(lambda: (torch.randn(2, 3),))
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: x[..., :2].sum() * self.weight)
    for model in (twins.plain, twins.inner):
        model[3] = nn.Identity()
    twins.call(lambda: (torch.randn(2, 3),))


def test_hook_added_later_is_run() -> None:
    twins = Twins(mlp)
    twins.call(lambda: (torch.randn(2, 3),))
    for model in (twins.plain, twins.inner):
        model[1].register_forward_hook(lambda module, args, out: out * 2)
    twins.call(lambda: (torch.randn(2, 3),))
    assert twins.special.refusals[0].endswith("has hooks")


def test_surroundings_that_take_part_are_left_to_the_plain_function() -> None:
    special = specialize(mlp().eval())
    x = torch.randn(2, 3)
    for _ in range(2):
        expected = special.function(x)
        assert torch.equal(special(x), expected)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert special(x).dtype is torch.bfloat16
    with torch.inference_mode():
        assert special(x).is_inference()
        assert special(x).is_inference()
    with torch.device("meta"):
        assert specialize(lambda: torch.ones(2))().device.type == "meta"
    batched = torch.func.vmap(special)(torch.stack([x, x]))
    assert torch.allclose(batched[0], expected)


def test_default_dtype_is_guarded() -> None:
    special = specialize(lambda: torch.ones(2))
    assert special().dtype is special().dtype is torch.float32
    try:
        torch.set_default_dtype(torch.float64)
        assert special().dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert special().dtype is torch.float32


def test_subclass_and_sparse_inputs_are_left_alone() -> None:
    class Mine(torch.Tensor):
        pass

    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    special = specialize(double)
    for x in (torch.ones(2).as_subclass(Mine), torch.eye(2).to_sparse()):
        assert type(special(x)) is type(x)
        assert special(x).layout is x.layout
    assert special.stats.hits == 0


def test_explain_miss_says_what_changed() -> None:
    special = specialize(helper)
    special(torch.ones(3))
    assert special.explain_miss(torch.ones(3)) == []
    (miss,) = special.explain_miss(torch.ones(4))
    assert (miss.expected, miss.actual) == ("size [3]", "size [4]")
    assert repr(special) == "<specialized helper, 1 records>"


def test_records_are_limited() -> None:
    special = specialize(helper, limit=2)
    for size in range(3, 9):
        special(torch.ones(size))
    assert special.stats.evictions == 4
    assert repr(special) == "<specialized helper, 2 records>"


def test_what_is_no_python_function_is_refused() -> None:
    for value in (torch.relu, 3, type):
        with pytest.raises(UnsupportedGuardError, match="takes a Python function"):
            specialize(value)  # type: ignore[arg-type]
    assert issubclass(UnsupportedGuardError, GuardError)


def test_specialized_method_of_an_object() -> None:
    class Owner:
        factor = 3

        @specialize
        def times(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor

    owner = Owner()
    x = torch.ones(2)
    assert torch.equal(owner.times(x), x * 3)
    assert torch.equal(owner.times(x), x * 3)
    owner.factor = 4
    assert torch.equal(owner.times(x), x * 4)
    bound = specialize(Config(scale=2.0).__class__.__init__)
    assert isinstance(bound, Specialized)
