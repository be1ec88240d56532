"""Programs drawn at random, on wrappers and on plain tensors: both see the same writes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from subclass_utils import ResizeError, ViewError, WrapperTensor

from tests.subclass_utils.test_exchanged import Scaled
from tests.subclass_utils.test_shared_data import NonZero, Numbers, NumbersInParts

Step = Callable[[list[Any]], list[Any]]
CLASSES = [Scaled, Numbers, NumbersInParts, NonZero]


def _assign(x: Any, y: Any) -> list[Any]:
    _check_kinds(x, y)
    x.data = y
    return []


def _set(x: Any, y: Any) -> list[Any]:
    _check_kinds(x, y)
    x.set_(y)
    return []


def _check_kinds(x: Any, y: Any) -> None:
    """End a program that gives a wrapper the data of a plain result, which can be but its value."""
    if isinstance(x, WrapperTensor) is not isinstance(y, WrapperTensor):
        raise ViewError("these cannot share data")


def _drawn(draw: random.Random, tensors: list[torch.Tensor]) -> tuple[str, Step]:
    """Draw a step, of which all choices are made by the plain tensors."""
    i, j = (draw.randrange(len(tensors)) for _ in range(2))
    x = tensors[i]
    dim = draw.randrange(x.dim()) if x.dim() else 0
    start = draw.randrange(x.size(dim)) if x.dim() and x.size(dim) else 0
    number = draw.choice([-2.0, 3.0, 0.5])
    steps: dict[str, Step] = {
        "detach": lambda t: [t[i].detach()],
        "data": lambda t: [t[i].data],
        "view_as": lambda t: [t[i].view_as(t[i])],
        "state_dict": lambda t: [torch.nn.Parameter(t[i], requires_grad=False).detach()],
        "slice": lambda t: [t[i][start:]],
        "step": lambda t: [t[i][::2]],
        "t": lambda t: [t[i].t()],
        "flat": lambda t: [t[i].view(-1)],
        "as_strided": lambda t: [t[i].as_strided((2,), (1,))],
        "clone": lambda t: [t[i].clone()],
        "add_": lambda t: [t[i].add_(number)][1:],
        "mul_": lambda t: [t[i].mul_(number)][1:],
        "zero_": lambda t: [t[i][start:].zero_()][1:],
        "copy_": lambda t: [t[i].copy_(t[j].clone())][1:],
        "set_": lambda t: _set(t[i], t[j]),
        "data =": lambda t: _assign(t[i], t[j]),
        "foreach add": lambda t: [torch._foreach_add_([t[i], t[j]], number)][1:],
        "foreach mul": lambda t: [torch._foreach_mul_([t[i], t[j]], number)][1:],
        "out": lambda t: [torch.mul(t[j].clone(), number, out=t[i])][1:],
    }
    if not x.numel():  # where it lies nothing is, and as it grows it takes place behind the whole
        del steps["out"]
    name = draw.choice([*steps])
    return f"{name}({i}, {j}, dim={dim}, start={start}, number={number})", steps[name]


def _close(got: Any, wanted: torch.Tensor) -> bool:
    plain = got.to_plain() if isinstance(got, WrapperTensor) else got
    if plain.size() != wanted.size():
        return False
    largest = float(wanted.abs().max()) if wanted.numel() else 0.0
    return torch.allclose(plain, wanted, rtol=2e-2, atol=2e-2 * largest + 0.05)


def _run(cls: Any, seed: int) -> list[str] | None:
    """Run a program; give its steps where the wrappers came to other values than plain tensors."""
    draw, log = random.Random(seed), []
    plain: list[Any] = [torch.arange(6.0).view(2, 3) - 2, torch.arange(3.0)]
    wrapped: list[Any] = [cls.from_plain(each) for each in plain]
    plain = [each.clone() for each in plain]
    for _ in range(12):
        name, step = _drawn(draw, plain)
        log.append(name)
        try:
            made = step(wrapped)
        except (ViewError, ResizeError):
            return None
        except RuntimeError:
            made = None
        try:
            wanted = step(plain)
        except RuntimeError:
            return None
        if made is None or any(float(each.abs().max()) > 1e4 for each in plain if each.numel()):
            return None if made is not None else log
        wrapped += made
        plain += wanted
        try:
            for index, pair in enumerate(zip(wrapped, plain, strict=True)):
                if not _close(*pair):
                    return [*log, f"{index}: {pair}"]
        except ViewError:
            return None
    return None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("cls", CLASSES)
def test_program_gives_what_it_gives_with_plain_tensors(cls: Any) -> None:
    for seed in range(50):
        assert _run(cls, seed) is None


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("cls", CLASSES[1:])
def test_many_programs(cls: Any) -> None:
    end = time.monotonic() + 60
    seed = 1000
    while time.monotonic() < end:
        assert _run(cls, seed) is None, seed
        seed += 1
