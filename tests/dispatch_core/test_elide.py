"""elide: the rules one by one, symbolic numbers, and what torch's C++ passes explicitly.

That they hold for every overload is in test_elide_against_torch.py.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from dispatch_core import BindError, Handle, handle_of, ops
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._python_dispatch import TorchDispatchMode


def elide(handle: Handle[Any], *args: Any, **kwargs: Any) -> Any:
    return handle.elide(handle.bind(args, kwargs))


class Level(enum.IntEnum):
    ONE = 1


X = torch.ones(2)


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "want_args", "want_kwargs"),
    [
        # Keyword-only ones equal to their default go, each on its own; the others stay in order.
        ("aten::addmv", (X, X, X), {"beta": 1}, (X, X, X), {}),
        ("aten::addmv", (X, X, X), {"alpha": 2, "beta": 1}, (X, X, X), {"alpha": 2}),
        ("aten::addmv", (X, X, X), {"alpha": 2, "beta": 3}, (X, X, X), {"beta": 3, "alpha": 2}),
        # Positional ones stay positional; the longest suffix of defaults goes.
        ("aten::addmv", (), {"vec": X, "mat": X, "self": X}, (X, X, X), {}),
        ("aten::slice.Tensor", (X, 0, None, None, 1), {}, (X,), {}),
        ("aten::slice.Tensor", (X,), {"step": 2}, (X, 0, None, None, 2), {}),
        ("aten::slice.Tensor", (X, 0, 0, 2, 1), {}, (X, 0, 0, 2), {}),
        # Equal is of the same type: a Scalar keeps its own.
        ("aten::addmv", (X, X, X), {"beta": 1.0}, (X, X, X), {"beta": 1.0}),
        ("aten::addmv", (X, X, X), {"beta": True}, (X, X, X), {"beta": True}),
        ("aten::addmv", (X, X, X), {"beta": 1 + 0j}, (X, X, X), {"beta": 1 + 0j}),
        # Comparison comes after conversion.
        (
            "aten::layer_norm",
            (X, [2], None, None, np.float32(1)),
            {},
            (X, [2], None, None, 1.0),
            {},
        ),
        ("aten::uniform_", (X, 0, 1), {}, (X,), {}),
        ("aten::uniform_", (X, -0.0, True), {}, (X,), {}),
        ("aten::sum.dim_IntList", (X, [0], 0), {}, (X, [0]), {}),
        ("aten::slice.Tensor", (X, False, None, None, Level.ONE), {}, (X,), {}),
        ("aten::slice.Tensor", (X, np.int64(1)), {}, (X, 1), {}),
        # A number for a sized list stands for all of it; elsewhere it does not.
        ("aten::avg_pool2d", (X, 2), {"padding": 0}, (X, [2, 2]), {}),
        ("aten::avg_pool2d", (X, (3, 3), (), [0, 0]), {}, (X, [3, 3]), {}),
        ("aten::avg_pool2d", (X, [3], [], [0]), {}, (X, [3], [], [0]), {}),
        ("aten::zeros", (torch.Size([2, 3]),), {}, ([2, 3],), {}),
        ("aten::zeros", (np.array([2, 3]),), {}, ([2, 3],), {}),
        # Enums compare as what they are; None only equals None.
        ("aten::randint", (3, [2]), {"dtype": torch.int64}, (3, [2]), {}),
        ("aten::randint", (3, [2]), {"dtype": 4}, (3, [2]), {}),
        ("aten::randint", (3, [2]), {"dtype": None}, (3, [2]), {"dtype": None}),
        ("aten::contiguous", (X,), {"memory_format": torch.contiguous_format}, (X,), {}),
        ("aten::zeros", ([1],), {"device": "cpu"}, ([1],), {"device": torch.device("cpu")}),
        # Strings by value; numbers for tensors as numbers.
        ("aten::gelu", (X,), {"approximate": "no" + "ne"}, (X,), {}),
        ("aten::add.Tensor", (X, np.int64(2)), {}, (X, 2), {}),
    ],
)
def test_elide_follows_the_rules_of_torch(
    name: str, args: Any, kwargs: Any, want_args: Any, want_kwargs: Any
) -> None:
    got_args, got_kwargs = elide(handle_of(name), *args, **kwargs)
    assert len(got_args) == len(want_args)
    for got, want in zip(got_args, want_args, strict=True):
        assert type(got) is type(want)
        assert got is want or got == want
    assert list(got_kwargs.items()) == list(want_kwargs.items())
    assert list(map(type, got_kwargs.values())) == list(map(type, want_kwargs.values()))


def test_nan_is_never_left_out() -> None:
    nan = float("nan")
    args, _ = elide(ops.aten.nan_to_num.default, X, nan)
    assert args[1] is nan


def test_a_default_written_as_int_for_a_float_is_told_from_an_equal_value() -> None:
    handle = handle_of("prims::var")
    assert elide(handle, X, [0]) == ((X, [0]), {})
    assert elide(handle, X, [0], 1) == ((X, [0], 1.0), {})
    assert elide(handle, X, [0], 1.0) == ((X, [0], 1.0), {})
    assert handle.bind((X, [0]))["correction"] == 1


def test_elide_gives_values_of_a_wrong_type_back_unchanged() -> None:
    """torch refuses them; a proxy of a tracer, say, has to pass."""

    class Proxy:
        def __int__(self) -> int:
            raise RuntimeError("not a number yet")

        __float__ = __bool__ = __index__ = __int__

        def __iter__(self) -> Any:
            raise RuntimeError("not a list yet")

    proxy = Proxy()
    handle = ops.aten.avg_pool2d.default
    assert elide(handle, proxy, proxy, proxy, proxy, proxy, proxy, proxy) == ((proxy,) * 7, {})
    assert elide(ops.aten.slice.Tensor, X, "a", 1.5) == ((X, "a", 1.5), {})
    assert elide(ops.aten.uniform_.default, X, "a") == ((X, "a"), {})


def test_elide_does_not_change_what_it_was_given() -> None:
    handle = ops.aten.avg_pool2d.default
    values = handle.bind((X, 2))
    before = dict(values)
    handle.elide(values)
    assert values == before


@pytest.mark.parametrize(
    ("values", "text", "argument", "problem"),
    [
        ({"self": 1}, "without a value for 'other'", "other", "missing"),
        (
            {"self": 1, "other": 2, "alpha": 1},
            "with a value for 'alpha', unknown to it",
            "alpha",
            "unknown",
        ),
        (
            {"self": 1, "othr": 2},
            "without a value for 'other' and with a value for 'othr', unknown to it",
            "other",
            "missing",
        ),
        ({}, "without a value for 'self', 'other'", "self", "missing"),
    ],
)
def test_names_that_no_call_has_are_an_error(
    values: dict[str, Any], text: str, argument: str, problem: str
) -> None:
    with pytest.raises(BindError) as caught:
        ops.aten.mul.Tensor.elide(values)
    assert str(caught.value) == (
        f"aten::mul.Tensor: cannot elide values {text}; "
        "the schema is aten::mul.Tensor(Tensor self, Tensor other) -> Tensor"
    )
    assert (caught.value.argument, caught.value.problem) == (argument, problem)


def test_values_in_another_order_are_taken_by_name() -> None:
    values = {"other": 2, "self": X}
    assert ops.aten.mul.Tensor.elide(values) == ((X, 2), {})


# ── symbolic numbers ────────────────────────────────────────────────────────────────────────────


def symbolic(kind: str, env: ShapeEnv) -> Any:
    """Make a symbol whose hint is 1, the most common default."""
    source = ConstantSource(kind)
    if kind == "float":
        symbol = env.create_unspecified_symbol(1.0, source=source, dynamic_dim=DimDynamic.DYNAMIC)
        return env.create_symfloatnode(symbol, hint=1.0, source=source)
    symbol = env.create_symbol(1, source=source, dynamic_dim=DimDynamic.DYNAMIC)
    number = env.create_symintnode(symbol, hint=1, source=source)
    return number == 1 if kind == "bool" else number


@pytest.mark.slow  # the first one imports what symbols need
@pytest.mark.parametrize("kind", ["int", "float", "bool"])
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("aten::slice.Tensor", lambda s: ((X, 0, None, None, s), {})),
        ("aten::slice.Tensor", lambda s: ((X, s, s, s, s), {})),
        ("aten::addmv", lambda s: ((X, X, X), {"beta": s, "alpha": s})),
        ("aten::add.Tensor", lambda s: ((X, s), {"alpha": s})),
        ("aten::avg_pool2d", lambda s: ((X, [s, 1], [s], [s, s]), {})),
        ("aten::avg_pool2d", lambda s: ((X, s, s, s, s, s, s), {})),
        ("aten::zeros", lambda s: (([s, 2],), {"pin_memory": s})),
        ("aten::uniform_", lambda s: ((X, s, s), {})),
        ("aten::layer_norm", lambda s: ((X, [s], None, None, s, s), {})),
        ("aten::convolution", lambda s: ((X, X, None, [s], [s], [s], s, [s], s), {})),
        ("aten::cumsum", lambda s: ((X, s), {"dtype": s})),
        ("prims::var", lambda s: ((X, [s], s), {})),
    ],
)
def test_symbols_are_kept_without_a_guard(
    kind: str, name: str, call: Callable[[Any], tuple[tuple[Any, ...], dict[str, Any]]]
) -> None:
    env = ShapeEnv(specialize_zero_one=False, duck_shape=False)
    symbol = symbolic(kind, env)
    before = (len(env.guards), len(env.deferred_runtime_asserts), dict(env.replacements))
    args, kwargs = call(symbol)
    got_args, got_kwargs = elide(handle_of(name), *args, **kwargs)
    assert (len(env.guards), len(env.deferred_runtime_asserts), dict(env.replacements)) == before
    assert len(got_args) == len(args)
    assert got_kwargs.keys() == kwargs.keys()

    def symbols(value: Any) -> list[Any]:
        if isinstance(value, (list, tuple)):
            return [found for item in value for found in symbols(item)]
        return [value] if isinstance(value, type(symbol)) else []

    kept = symbols([*got_args, *got_kwargs.values()])
    assert len(kept) == len(symbols([*args, *kwargs.values()]))
    assert all(found is symbol for found in kept)


# ── what arrives from C++ ───────────────────────────────────────────────────────────────────────


class Record(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append((func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))


def recorded(call: Callable[[], object]) -> list[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    mode = Record()
    with mode:
        call()
    return mode.calls


def test_explicit_arguments_of_factories_bind_to_the_same_values() -> None:
    [(func, args, kwargs)] = recorded(lambda: torch.zeros(2))
    assert kwargs == {"device": torch.device("cpu"), "pin_memory": False}
    values = handle_of(func).bind(args, kwargs)
    assert values == {
        "size": [2],
        "dtype": None,
        "layout": None,
        "device": torch.device("cpu"),
        "pin_memory": False,
    }
    assert handle_of(func).elide(values) == (args, kwargs)


def test_an_undefined_tensor_of_c_plus_plus_binds_to_none() -> None:
    weight, indices = torch.ones(2, 3), torch.tensor([[0, 1]])
    calls = recorded(lambda: torch.nn.functional.embedding_bag(indices, weight))
    func, args, kwargs = next(call for call in calls if None in call[1][3:])
    assert (args[6:], kwargs) == ((None,), {})  # which a caller's None would not be
    handle = handle_of(func)
    values = handle.bind(args, kwargs)
    assert values == handle.bind(args[:6])
    assert len(handle.elide(values)[0]) < len(args)


def test_handler_indexes_arguments_that_the_caller_left_out() -> None:
    """x[::2] arrives with five arguments and x[0:2] with four; bound they look alike."""
    x = torch.arange(4)
    lengths = []
    for index in (slice(None, None, 2), slice(0, 2)):
        for func, args, kwargs in recorded(lambda index=index: x[index]):  # type: ignore[misc]
            if func is torch.ops.aten.slice.Tensor:
                lengths.append(len(args))
                values = handle_of(func).bind(args, kwargs)
                assert list(values) == ["self", "dim", "start", "end", "step"]
                assert handle_of(func).elide(values) == (args, kwargs)
    assert lengths == [5, 4]
