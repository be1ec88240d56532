"""Operators that take a function: branches, loops, checkpoints, regions compiled once."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from tests.guards.fidelity.record import Record


def cond(r: Record) -> None:
    @r.compile
    def f(x: Any) -> Any:
        return torch.cond(x.sum() > 2, lambda x: x.sin(), lambda x: x.cos(), (x,))

    for x in (torch.ones(4), torch.zeros(4), torch.ones(5), -torch.ones(6)):
        r.call(f, x)


def cond_with_gradient_and_closure(r: Record) -> None:
    w = torch.ones(4, requires_grad=True)
    scale = 3

    @r.compile
    def f(x: Any) -> Any:
        return torch.cond(x.sum() > 2, lambda x: x * w * scale, lambda x: x - w, (x,)).sum()

    for x in (torch.ones(4), torch.zeros(4)):
        y = r.call(f, x)
        y.backward()
        r.note(w.grad)
    scale = 5
    r.call(f, torch.ones(4))


def cond_that_cannot(r: Record) -> None:
    @r.compile(fullgraph=True)
    def f(x: Any) -> Any:
        return torch.cond(x.sum() > 2, lambda x: x.sin(), lambda x: x[0], (x,))

    r.call(f, torch.ones(4))


def while_loop(r: Record) -> None:
    from torch._higher_order_ops import while_loop

    @r.compile
    def f(n: Any, x: Any) -> Any:
        return while_loop(lambda n, x: n > 0, lambda n, x: (n - 1, x * 2), (n, x))

    for n, size in ((3, 2), (0, 2), (2, 3), (1, 4)):
        r.call(f, torch.tensor(n), torch.ones(size))


def activation_checkpoint(r: Record) -> None:
    w = torch.full((4,), 2.0, requires_grad=True)

    def block(x: Any) -> Any:
        return (x * w).sin()

    @r.compile
    def f(x: Any) -> Any:
        return checkpoint(block, checkpoint(block, x, use_reentrant=False), use_reentrant=False)

    for n in (4, 4):
        y = r.call(f, torch.ones(n))
        y.sum().backward()
        r.note(w.grad)
    w.requires_grad_(False)
    r.call(f, torch.ones(4))


def nested_compile_region(r: Record) -> None:
    @torch.compiler.nested_compile_region
    def layer(x: Any, y: Any) -> Any:
        return (x * y).sin()

    @r.compile
    def f(x: Any, y: Any) -> Any:
        for _ in range(3):
            x = layer(x, y)
        return layer(x, x)

    for n in (3, 4, 5):
        x = torch.ones(n, requires_grad=True)
        y = r.call(f, x, torch.ones(n))
        r.call(y.sum().backward)  # which torch refuses with the backend eager
        r.note(x.grad)


class _Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    @torch.compiler.nested_compile_region
    def forward(self, x: Any) -> Any:
        return self.linear(x).relu()


def nested_compile_region_of_modules(r: Record) -> None:
    first = _Layer()
    net = torch.nn.Sequential(first, _Layer(), _Layer())
    f = r.compile(net)
    for n in (2, 3):
        y = r.call(f, torch.ones(n, 4))
        r.call(y.sum().backward)  # which torch refuses with the backend eager
        r.note(first.linear.weight.grad)


def map_and_scan(r: Record) -> None:
    from torch._higher_order_ops import scan
    from torch._higher_order_ops.map import map as map_

    @r.compile
    def f(x: Any, y: Any) -> Any:
        return map_(lambda x, y: x + y, x, y)

    r.call(f, torch.ones(3, 2), torch.ones(2))

    @r.compile
    def g(x: Any) -> Any:
        return scan(lambda c, x: (c + x, c * x), torch.zeros(2), x)

    r.call(g, torch.ones(3, 2))


def vmap_and_grad(r: Record) -> None:
    @r.compile
    def f(x: Any) -> Any:
        return torch.func.vmap(torch.func.grad(lambda x: x.sin()))(x)

    for n in (3, 4):
        r.call(f, torch.ones(n))


def autograd_function(r: Record) -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.saved_tensors[0]

    double: Any = Double
    f = r.compile(lambda x: double.apply(x).sum())
    x = torch.ones(3, requires_grad=True)
    r.call(f, x).backward()
    r.note(x.grad)
