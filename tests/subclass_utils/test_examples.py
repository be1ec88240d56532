"""The examples of the package are short, do what they say, and one of them does everything."""

from __future__ import annotations

import importlib.util
import io
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from dispatch_core import NoHandlerError
from torch import nn
from torch.utils.data import DataLoader

EXAMPLES = Path(__file__).parents[2] / "packages/subclass-utils/examples"


def load(name: str) -> ModuleType:
    """Import an example once, as a module that pickle finds."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


quantised: Any = load("quantised_tensor")
block_masked: Any = load("block_masked_tensor")
units: Any = load("unit_tensor")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_example_is_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 120


# ── quantised ───────────────────────────────────────────────────────────────────────────────────


def quantise(*size: int) -> tuple[torch.Tensor, Any]:
    torch.manual_seed(0)
    plain = torch.randn(*size)
    return plain, quantised.QuantisedTensor.from_plain(plain)


def test_quantised_values_are_within_half_a_step() -> None:
    plain, q = quantise(5, 7)
    assert q.shape == plain.shape
    assert q.dtype is torch.float32
    assert (q.to_plain() - plain).abs().max() <= q.scale * 0.51


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t(),
        lambda x: x[1:3, ::2],
        lambda x: x.view(-1),
        lambda x: x.transpose(0, 1),
        lambda x: x.detach(),
        lambda x: x.clone(),
        lambda x: x.to("cpu", copy=True),
    ],
)
def test_quantised_views_and_copies_stay_quantised(view: Any) -> None:
    _, q = quantise(4, 6)
    result = view(q)
    assert type(result) is quantised.QuantisedTensor
    assert torch.equal(result.to_plain(), view(q.to_plain()))
    assert result.stride() == view(q.to_plain()).stride()


def test_quantised_weight_in_a_linear_layer() -> None:
    _, weight = quantise(3, 4)
    x, bias = torch.randn(2, 4), torch.randn(3)
    wanted = nn.functional.linear(x, weight.to_plain(), bias)
    assert torch.allclose(nn.functional.linear(x, weight, bias), wanted)
    with torch.inference_mode():
        assert torch.allclose(nn.functional.linear(x, weight, bias), wanted)


def test_quantised_copy_takes_plain_values() -> None:
    _, q = quantise(3)
    q.copy_(torch.tensor([1.0, 2.0, 3.0]))
    assert torch.allclose(q.to_plain(), torch.tensor([1.0, 2.0, 3.0]), atol=0.02)


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x[0:1].mul_(100),
        lambda x: x.__setitem__(slice(0, 1), 50.0),
        lambda x: x.view(4)[2:].zero_(),
        lambda x: x[0:1].copy_(torch.tensor([[500.0, 600.0]])),
        lambda x: x.t()[0].add_(1000.0),
        lambda x: x.detach()[1].fill_(-300.0),
    ],
)
def test_write_into_a_view_of_a_quantised_tensor_is_one_into_the_whole(write: Any) -> None:
    plain = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    q = quantised.QuantisedTensor.from_plain(plain)
    views = [q.t(), q.view(4)[1:], q.detach()]
    write(plain)
    write(q)
    for got, wanted in zip([q, *views], [plain, plain.t(), plain.view(4)[1:], plain], strict=True):
        assert (got.to_plain() - wanted).abs().max() <= q.scale * 1.1


# ── block-masked ────────────────────────────────────────────────────────────────────────────────


def block_matrix() -> tuple[torch.Tensor, Any]:
    torch.manual_seed(0)
    plain = torch.randn(6, 4)
    plain[2:4, 0:2] = 0
    plain[4:6, 2:4] = 0
    return plain, block_masked.masked(plain, 2)


def test_block_masked_product_equals_the_dense_one() -> None:
    plain, sparse = block_matrix()
    assert sparse.places == ((0, 0), (0, 1), (1, 1), (2, 0))
    assert torch.equal(sparse.to_plain(), plain)
    x = torch.randn(4, 3)
    assert torch.allclose(sparse @ x, plain @ x, atol=1e-6)
    assert type(sparse * 2) is block_masked.BlockMaskedTensor
    assert torch.equal(sparse + 1, plain + 1)


# ── units ───────────────────────────────────────────────────────────────────────────────────────


def distance(*values: float, **options: Any) -> Any:
    return units.UnitTensor(torch.tensor(values), units.METRE, **options)


def duration(*values: float) -> Any:
    return units.UnitTensor(torch.tensor(values), units.SECOND)


def test_units_multiply_and_divide() -> None:
    speed = distance(6.0) / duration(2.0)
    assert str(speed.unit) == "m·s^-1"
    assert speed.elem.item() == 3
    assert (speed * duration(2.0)).unit == units.METRE
    assert distance(1.0, 2.0).sum().unit == units.METRE


def test_units_that_do_not_fit_are_refused() -> None:
    with pytest.raises(units.UnitError, match="add: m and s do not fit"):
        distance(1.0) + duration(1.0)


class Slope(nn.Module):
    """A distance for each second: one parameter with a unit."""

    def __init__(self) -> None:
        super().__init__()
        start = units.UnitTensor(torch.zeros(1), units.METRE.times(units.SECOND, -1))
        self.speed = nn.Parameter(start)

    def forward(self, time: Any) -> Any:
        return self.speed * time


def train(module: nn.Module, forward: Any, loader: Any) -> list[float]:
    optimizer = torch.optim.SGD(module.parameters(), lr=0.02)
    losses = []
    for _ in range(15):
        for time, place in loader:
            optimizer.zero_grad()
            error = forward(time) - place
            loss = (error * error).sum()
            loss.backward()
            optimizer.step()
            losses.append(loss.elem.item())
    return losses


@pytest.mark.slow
def test_units_are_trained_compiled_saved_loaded_and_collated() -> None:
    data: Any = [(duration(float(i)), distance(3.0 * i)) for i in range(4)]
    module = Slope()
    compiled = torch.compile(module, backend="aot_eager")
    loader = DataLoader(data, batch_size=2, num_workers=2, persistent_workers=True)
    losses = train(module, compiled, loader)
    assert losses[-1] < 1e-3 < losses[1]
    speed: Any = module.speed
    assert isinstance(speed, nn.Parameter)
    assert type(speed) is units.UnitTensor
    assert str(speed.unit) == "m·s^-1"  # type: ignore[attr-defined]
    assert speed.elem.item() == pytest.approx(3.0, abs=0.02)  # type: ignore[attr-defined]

    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    other: Any = Slope()
    other.load_state_dict(torch.load(file))
    assert torch.equal(other.speed.elem, speed.elem)  # type: ignore[attr-defined]
    assert other.speed.unit == speed.unit  # type: ignore[attr-defined]
    assert other(duration(2.0)).unit == units.METRE


class Weighted(nn.Linear):
    """A layer whose weight is a wrapper."""

    def __init__(self, weight: Any, requires_grad: bool) -> None:
        super().__init__(weight.size(1), weight.size(0))
        self.weight = nn.Parameter(weight, requires_grad=requires_grad)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["block-masked", "quantised"])
def test_layer_is_trained_compiled_saved_and_loaded(kind: str) -> None:
    plain, weight = block_matrix() if kind == "block-masked" else quantise(6, 4)
    cls, trains = type(weight), kind == "block-masked"  # a quantised weight is kept as it is
    layer = Weighted(weight, trains)
    wanted = weight.to_plain() * (0.5 if trains else 1)
    data: Any = [(x, wanted @ x + 1) for x in torch.randn(8, 4)]
    compiled = torch.compile(layer, backend="aot_eager")
    optimizer = torch.optim.SGD(filter(lambda p: p.requires_grad, layer.parameters()), lr=0.1)
    losses = []
    for _ in range(60):
        for x, y in DataLoader(data, batch_size=4):
            optimizer.zero_grad()
            loss = ((compiled(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[-1] < losses[0] / 50
    assert isinstance(layer.weight, nn.Parameter)
    trained: Any = layer.weight
    assert type(trained) is cls
    if trains:
        assert trained.places == weight.places
        assert not trained.to_plain()[2:4, 0:2].any()

    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    state = torch.load(file)
    assert type(state["weight"]) is cls
    other = Weighted(cls.from_plain(torch.zeros_like(plain), weight), trains)
    other.load_state_dict(state)
    x = torch.randn(2, 4)
    assert torch.equal(other(x), layer(x))


@pytest.mark.slow
def test_block_masked_and_quantised_tensors_are_collated_by_workers() -> None:
    for item, batch_class in (
        (block_matrix()[1], torch.Tensor),
        (quantise(6, 4)[1], quantised.QuantisedTensor),
    ):
        data: Any = [item] * 4
        batches = [*DataLoader(data, batch_size=2, num_workers=2)]
        assert [type(batch) for batch in batches] == [batch_class] * 2
        values = batches[0] if batch_class is torch.Tensor else batches[0].to_plain()
        assert torch.allclose(values, torch.stack([item.to_plain()] * 2), atol=0.02)


def test_operator_without_a_handler_is_an_error_where_nothing_else_is_asked() -> None:
    class Silent(quantised.QuantisedTensor):  # type: ignore[misc]
        without_handler = "error"

    q = Silent(*(getattr(quantise(2)[1], name) for name in Silent.inner_tensors))
    with pytest.raises(NoHandlerError, match="Silent has no handler"):
        q.relu()
