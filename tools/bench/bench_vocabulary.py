"""What a trace does over and over with the vocabulary of guards, against torch's own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import guards
import torch._guards as torchs
from guards import AttrSource, GuardsSet, LocalSource, Source

from tools.bench.row import Row, at_most
from tools.bench.timing import Statement, alternate, alternate_slow

COUNT = 10_000
DEPTH = 400


def check(builder: object, guard: object) -> None:
    """Stand for a create function."""


def seconds(work: Callable[[], object]) -> float:
    """Give the processor time of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def adding(module: Any, count: int, times: int = 1) -> Callable[[], float]:
    """Time adding guards on so many sources, without stacks, to as many new sets."""

    def add() -> float:
        made: Any = [
            [module.Guard(LocalSource(f"x{i}"), check) for i in range(count)] for _ in range(times)
        ]

        def work() -> None:
            for batch in made:
                guards_set = module.GuardsSet()
                for guard in batch:
                    guards_set.add(guard, collect_debug_stack=False)

        return seconds(work)

    return add


def chain(depth: int) -> list[Source]:
    """Give all links of a chain, the innermost first."""
    links: list[Source] = [LocalSource("x")]
    while len(links) < depth:
        links.append(AttrSource(links[-1], "a"))
    return links


def chained(depth: int, times: int = 1) -> Callable[[], float]:
    """Time adding a guard on each link of so many chains and dropping them by their root."""

    def add() -> float:
        chains = [chain(depth) for _ in range(times)]
        made = [(links, [link.make_guard(check) for link in links]) for links in chains]

        def work() -> None:
            for links, batch in made:
                guards_set = GuardsSet()
                for guard in batch:
                    guards_set.add(guard, collect_debug_stack=False)
                guards_set.remove_guards_with_source(links[0])

        return seconds(work)

    return add


def rows() -> Iterator[Row]:
    """Compare with torch, and a large number with as many in small portions."""
    code = "locate('user.py', 17, 'forward')"
    with guards.tracing(guards.TracingContext(None)), torchs.tracing(torchs.TracingContext(None)):
        ours, theirs = alternate(
            Statement(code, {"locate": guards.TracingContext.set_current_loc}),
            Statement(code, {"locate": torchs.TracingContext.set_current_loc}),
        )
    yield Row("set_current_loc", "torch._guards", ours, theirs, at_most(1))
    yield Row("set_current_loc", "0.3 µs", ours, 0.3e-6, at_most(1))

    ours, portions = alternate_slow(adding(guards, COUNT), adding(guards, COUNT // 10, 10))
    yield Row(f"add {COUNT:,} guards", "ten portions", ours, portions, at_most(1.5))

    ours, portions = alternate_slow(chained(DEPTH), chained(DEPTH // 4, 4))
    yield Row(f"guards on a chain of {DEPTH}", "four short chains", ours, portions, at_most(2))
