"""What makes a function be compiled again."""

from __future__ import annotations

import collections
import enum
from types import SimpleNamespace
from typing import Any

import torch

from tests.guards.fidelity.record import Record

X = torch.arange(6.0)


def shape(r: Record) -> None:
    f = r.compile(lambda x: x * 2, dynamic=False)
    for n in (3, 3, 4, 3, 5):
        r.call(f, torch.ones(n))


def rank_and_dtype_and_stride(r: Record) -> None:
    f = r.compile(lambda x: x + 1, dynamic=False)
    for x in (X, X.double(), X.int(), X.view(2, 3), X.view(3, 2).t(), X.view(2, 3), X[::2]):
        r.call(f, x)


def requires_grad(r: Record) -> None:
    f = r.compile(lambda x: (x * 3).sum())
    for flag in (False, True, False, True):
        x = X.clone().requires_grad_(flag)
        y = r.call(f, x)
        if flag:
            y.backward()
            r.note(x.grad)


def grad_mode_and_autocast(r: Record) -> None:
    f: Any = r.compile(lambda x: (x @ x.t()) * 2)
    x = torch.ones(2, 3, requires_grad=True)
    r.note(f(x).requires_grad)
    with torch.no_grad():
        r.note(f(x).requires_grad)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        r.call(f, x)
    r.call(f, x)
    with torch.inference_mode():
        r.call(f, torch.ones(2, 3))


def default_dtype_and_deterministic(r: Record) -> None:
    f = r.compile(lambda x: x + torch.ones(2))
    x = torch.ones(2)
    r.call(f, x)
    torch.set_default_dtype(torch.float64)
    try:
        r.call(f, x)
    finally:
        torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(True)
    try:
        r.call(f, x)
    finally:
        torch.use_deterministic_algorithms(False)
    r.call(f, x)


_scale: Any = 2
_names = ["a", "b"]


def global_variable(r: Record) -> None:
    global _scale

    def f(x: Any) -> Any:
        return x * _scale + len(_names)

    f = r.compile(f)
    for value in (2, 3, 2, 2.5, torch.tensor(4.0), "no"):
        _scale = value
        r.call(f, X)
    _scale = 2
    _names.append("c")
    r.call(f, X)
    _names.pop()


def closure(r: Record) -> None:
    factor: Any = 2

    def f(x: Any) -> Any:
        return x * factor

    f = r.compile(f)
    for value in (2, 3, True, torch.ones(())):
        factor = value
        r.call(f, X)


def default_argument_and_keyword(r: Record) -> None:
    def f(x: Any, scale: Any = 2, *, flag: Any = None) -> Any:
        return x * scale if flag is None else x - scale

    g = r.compile(f)
    for args, kwargs in (((X,), {}), ((X, 3), {}), ((X,), {"flag": 1}), ((X,), {"scale": 2.5})):
        r.call(g, *args, **kwargs)
    f.__defaults__ = (7,)
    r.call(g, X)


def dictionary(r: Record) -> None:
    @r.compile
    def f(x: Any, options: Any) -> Any:
        for key, value in options.items():
            x = x * value if key == "mul" else x + value
        return x

    for options in (
        {"mul": 2, "add": 3},
        {"mul": 2, "add": 3},
        {"add": 3, "mul": 2},
        {"mul": 2},
        {"mul": 4, "add": 3},
        collections.OrderedDict(mul=2),
        {"mul": X},
        {},
    ):
        r.call(f, X, options)


def dictionary_of_a_global(r: Record) -> None:
    def f(x: Any) -> Any:
        return x + _table.get("a", 10) + ("b" in _table)

    f = r.compile(f)
    for change in ({"a": 1}, {"a": 2}, {"b": 5}, {"a": 2, "b": 5}):
        _table.clear()
        _table.update(change)
        r.call(f, X)


_table: dict[str, int] = {}


def attribute(r: Record) -> None:
    @r.compile
    def f(x: Any, o: Any) -> Any:
        if hasattr(o, "bias"):
            x = x + o.bias
        return x * o.scale

    o = SimpleNamespace(scale=2)
    r.call(f, X, o)
    o.scale = 3
    r.call(f, X, o)
    o.bias = 1
    r.call(f, X, o)
    del o.bias
    r.call(f, X, o)
    r.call(f, X, SimpleNamespace(scale=X))
    r.call(f, X, None)


def containers(r: Record) -> None:
    @r.compile
    def f(x: Any, items: Any) -> Any:
        return x + sum(items)

    for items in ([1, 2], (1, 2), [1, 2], [1, 2, 3], [1, 2.5], {1, 2}, range(3), [X, X], [X]):
        r.call(f, X, items)


class _Color(enum.Enum):
    RED = 1
    BLUE = 2


def constants(r: Record) -> None:
    @r.compile
    def f(x: Any, c: Any) -> Any:
        if c is None:
            return x.clone()
        if isinstance(c, str):
            return x + len(c)
        if isinstance(c, _Color):
            return x * c.value
        return x * c

    for c in (None, "ab", "abc", _Color.RED, _Color.BLUE, True, 1, 1.0, 0.5, float("nan"), "ab"):
        r.call(f, X, c)


class _Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(6, 2)
        self.dropout = torch.nn.Dropout(0.5)
        self.scale = 2

    def forward(self, x: Any) -> Any:
        return self.dropout(self.inner(x)) * self.scale


def module(r: Record) -> None:
    net = _Net()
    f = r.compile(net)
    r.call(f, X)
    net.eval()
    r.call(f, X)
    net.scale = 3
    r.call(f, X)
    net.inner = torch.nn.Linear(6, 3)
    r.call(f, X)
    net.double()
    r.call(f, X.double())
    net.inner.register_forward_hook(lambda m, i, o: o + 1)
    r.call(f, X.double())


def function_and_class_objects(r: Record) -> None:
    def f(x: Any, g: Any) -> Any:
        return g(x)

    f = r.compile(f)
    for g in (torch.sin, torch.cos, lambda x: x + 1, lambda x: x + 2, torch.nn.ReLU(), torch.sin):
        r.call(f, X, g)


def functions_with_the_same_code(r: Record) -> None:
    for factor in (1, 2, 3):

        def f(x: Any) -> Any:
            return x * factor  # noqa: B023

        r.call(r.compile(f), X)
