"""Sizes that the compiler treats as unknown."""

from __future__ import annotations

from typing import Any

import torch

from tests.guards.fidelity.record import Record


def automatic(r: Record) -> None:
    f = r.compile(lambda x: x * x.shape[0])
    for n in (3, 4, 5, 6, 1, 0, 2):
        r.call(f, torch.ones(n))


def automatic_int(r: Record) -> None:
    f = r.compile(lambda x, n: x[:n] + n)
    for n in (3, 4, 5, 1, 0):
        r.call(f, torch.ones(8), n)


def everything_dynamic(r: Record) -> None:
    f = r.compile(lambda x, y: torch.cat([x, y]) * x.shape[0], dynamic=True)
    for n, m in ((3, 4), (5, 5), (1, 4), (2, 9)):
        r.call(f, torch.ones(n), torch.ones(m))


def branch_on_a_size(r: Record) -> None:
    def f(x: Any) -> Any:
        if x.shape[0] > 4:
            return x + x.shape[0]
        if x.shape[0] % 2 == 0:
            return x - 1
        return x

    f = r.compile(f, dynamic=True)
    for n in (3, 5, 7, 4, 2, 8, 9):
        r.call(f, torch.ones(n))


def marked_dynamic(r: Record) -> None:
    f = r.compile(lambda x: x.sum(0) + x.shape[0])
    x = torch.ones(3, 2)
    torch._dynamo.mark_dynamic(x, 0)
    r.call(f, x)
    for n in (4, 9):
        r.call(f, torch.ones(n, 2))


def marked_dynamic_but_specialized(r: Record) -> None:
    def f(x: Any) -> Any:
        return x.reshape(3, -1) if x.shape[0] == 3 else x

    x = torch.ones(3, 2)
    torch._dynamo.mark_dynamic(x, 0)
    r.call(r.compile(f), x)


def marked_dynamic_with_bounds(r: Record) -> None:
    f = r.compile(lambda x: x * 2 if x.shape[0] < 100 else x)
    x = torch.ones(3, 2)
    torch._dynamo.mark_dynamic(x, 0, min=2, max=8)
    r.call(f, x)
    for n in (8, 9):
        r.call(f, torch.ones(n, 2))


def marked_static_and_maybe_dynamic(r: Record) -> None:
    f = r.compile(lambda x: x * 2, dynamic=True)
    for n in (3, 4):
        x = torch.ones(n, n)
        torch._dynamo.mark_static(x, 1)
        torch._dynamo.maybe_mark_dynamic(x, 0)
        r.call(f, x)


def marked_unbacked(r: Record) -> None:
    f = r.compile(lambda x: x * x.shape[0])
    x = torch.ones(1, 2)
    torch._dynamo.decorators.mark_unbacked(x, 0)
    r.call(f, x)
    r.call(f, torch.ones(5, 2))


def equal_and_related_sizes(r: Record) -> None:
    f = r.compile(lambda x, y: x + y if x.shape[0] * 2 != y.shape[0] else x, dynamic=True)
    for n, m in ((3, 3), (4, 4), (2, 4), (4, 8), (5, 5)):
        r.call(f, torch.ones(n), torch.ones(m))


def item_and_data_dependent(r: Record) -> None:
    def f(x: Any) -> Any:
        n = x.sum().int().item()
        torch._check(n >= 0)
        return torch.zeros(n + 1)

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        f = r.compile(f)
        for n in (2, 3):
            r.call(f, torch.ones(n))
        r.call(
            r.compile(lambda x: x + 1 if x.sum().item() > 2 else x, fullgraph=True), torch.ones(3)
        )
    g = r.compile(lambda x: x + 1 if x.sum().item() > 2 else x)
    r.call(g, torch.ones(3))
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        r.call(r.compile(lambda x: x.nonzero() * 2), torch.tensor([0.0, 1.0, 2.0]))
