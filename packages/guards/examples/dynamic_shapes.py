"""Compile a function with make_fx for sizes that may change, under guards on what tracing assumed.

Sizes and strides become symbols. What the trace asks of them comes back as relations, and a call
that breaks one is traced anew.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from guards import (
    GlobalStateSource,
    Guard,
    GuardBuilder,
    GuardedCache,
    LocalSource,
    TensorPropertySource,
    compile_guards,
)
from torch.fx.experimental.proxy_tensor import make_fx

STATES = (GuardBuilder.GRAD_MODE, GuardBuilder.AUTOCAST_STATE, GuardBuilder.DEFAULT_DTYPE)


class Compiled:
    """A function of tensors and constants that keeps one graph for each set of assumptions."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.cache: GuardedCache[Callable[..., Any]] = GuardedCache(limit=8)
        self._names = list(inspect.signature(function).parameters)

    def __call__(self, *args: Any) -> Any:
        """Run a graph whose guards hold, tracing one where there is none."""
        L = dict(zip(self._names, args, strict=True))
        graph = self.cache.lookup(L)
        if graph is None:
            graph, guards = self._trace(L)
            self.cache.insert(compile_guards(guards, L), graph)
        return graph(*args)

    def _trace(self, L: dict[str, Any]) -> tuple[Callable[..., Any], list[Guard]]:
        graph = make_fx(self.function, tracing_mode="symbolic")(*L.values())
        inputs = [n.meta.get("val") for n in graph.graph.nodes if n.op == "placeholder"]
        guards = [Guard(GlobalStateSource(), state) for state in STATES]
        symbols: dict[str, TensorPropertySource] = {}
        relations: list[Any] = []
        for name, fake in zip(L, inputs, strict=True):
            source = LocalSource(name)
            if isinstance(fake, torch.Tensor):
                guards.append(self._tensor(source, fake, symbols, relations))
                relations += [entry.expr for entry in fake.fake_mode.shape_env.guards]  # type: ignore[attr-defined]
            else:
                guards.append(Guard(source, GuardBuilder.EQUALS_MATCH))
        # The trace takes it that a size which is a symbol is neither 0 nor 1.
        more_than_one = partial(GuardBuilder.RANGE_MATCH, low=2)
        guards += [Guard(size, more_than_one) for name, size in symbols.items() if name[0] == "s"]
        for relation in dict.fromkeys(map(str, relations)):
            holds = partial(GuardBuilder.SHAPE_RELATION, relation=relation, symbols=symbols)
            guards.append(Guard(GlobalStateSource(), holds))
        return graph, guards

    def _tensor(
        self, source: LocalSource, fake: Any, symbols: dict[str, Any], relations: list[Any]
    ) -> Guard:
        dynamic: dict[str, list[int]] = {"size": [], "stride": []}
        for prop, dims in dynamic.items():
            for dim, value in enumerate(getattr(fake, prop)()):
                if isinstance(value, int):
                    continue  # a number here is one that the trace relied on
                dims.append(dim)
                place = TensorPropertySource(source, prop, dim)
                text = str(value)
                if text in symbols or not text.isidentifier():
                    own = f"t{len(symbols)}"  # the same symbol twice, or a product of symbols
                    symbols[own] = place
                    relations.append(f"{own} == {text}")
                else:
                    symbols[text] = place
        match = partial(
            GuardBuilder.TENSOR_MATCH,
            dynamic_sizes=dynamic["size"],
            dynamic_strides=dynamic["stride"],
        )
        return Guard(source, match)


def scores(x: torch.Tensor, y: torch.Tensor, scale: float) -> torch.Tensor:
    """Be the function that is compiled: what it does depends on sizes."""
    z = x @ y
    if z.shape[0] > 4:
        z = z.relu()
    return z.reshape(-1) * scale


if __name__ == "__main__":
    compiled = Compiled(scores)
    for rows, columns in ((2, 5), (3, 7), (9, 5), (6, 2)):
        x, y = torch.randn(rows, 3), torch.randn(3, columns)
        assert torch.equal(compiled(x, y, 0.5), scores(x, y, 0.5))
    print(
        f"{len(compiled.cache)} graphs for {compiled.cache.stats.hits + len(compiled.cache)} calls"
    )
    for explanation in compiled.cache.explain_miss({"x": torch.ones(3, 3), "y": y.t(), "scale": 1}):
        print(explanation)
