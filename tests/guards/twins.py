"""The plain function and its specialized twin, and what must not tell them apart."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from guards import Specialized, specialize
from torch import nn


def facts_of(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return (
            type(value),
            value.dtype,
            value.shape,
            value.stride() if value.layout is torch.strided else value.layout,
            value.requires_grad,
            value.is_leaf,
            value.is_inference(),
            wide(value.detach()).clone(),
        )
    if isinstance(value, list | tuple):
        return type(value), [facts_of(part) for part in value]
    if isinstance(value, dict):
        return {key: facts_of(part) for key, part in value.items()}
    return value


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """Give a tensor in a form in which all operators work."""
    dense = tensor if tensor.layout is torch.strided else tensor.to_dense()
    return dense.to(torch.complex128 if dense.is_complex() else torch.float64)


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b) or torch.allclose(a, b, equal_nan=True)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    return bool(a == b)


def state_of(module: Any) -> Any:
    return facts_of(dict(module.state_dict())) if isinstance(module, nn.Module) else None


def first_number(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)[0].item()


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Dropout(0.5), nn.Linear(4, 2))


class Twins:
    """The plain function and its specialized twin, which must not be told apart.

    ``make`` gives the function anew, so that each twin has a module, a closure, a state of its own.
    """

    def __init__(self, make: Callable[[], Any], **options: Any) -> None:
        torch.manual_seed(0)
        self.plain = make()
        torch.manual_seed(0)
        self.inner = make()
        self.special: Specialized[Any] = specialize(self.inner, **options)

    def call(self, make_arguments: Callable[[], tuple[Any, ...]], seed: int = 1) -> None:
        outcomes = []
        for function, inner in ((self.plain, self.plain), (self.special, self.inner)):
            torch.manual_seed(seed)
            arguments = make_arguments()
            torch.manual_seed(seed + 1)
            random.seed(seed)
            result = function(*arguments)
            outcomes.append(
                (
                    facts_of(result),
                    facts_of(arguments),
                    state_of(inner),
                    torch.get_rng_state(),
                    gradients(result, arguments, inner),
                )
            )
        assert equal(*outcomes), self.special.refusals

    @property
    def counts(self) -> tuple[int, int]:
        """Give the number of calls that repeated a record, and of those refused."""
        return self.special.stats.hits, len(self.special.refusals)


def gradients(result: Any, arguments: Any, module: Any) -> Any:
    results = [result] if isinstance(result, torch.Tensor) else result
    if not isinstance(results, list | tuple):
        return None
    wanted = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
    leaves = [a for a in arguments if isinstance(a, torch.Tensor) and a.requires_grad]
    leaves += list(module.parameters()) if isinstance(module, nn.Module) else []
    if not wanted or not leaves:
        return None
    total: Any = sum(wide(r).abs().square().sum() for r in wanted)
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    return [None if g is None else wide(g).clone() for g in found]
