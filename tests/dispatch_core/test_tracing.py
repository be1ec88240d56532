"""Handles in compiled functions: found, made and called within one graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dispatch_core._ops
import dispatch_core._registry
import pytest
import torch
from dispatch_core import Handle, handle_of
from dispatch_core._ops import Ops

pytestmark = [
    pytest.mark.slow,
    # torch's own, from importing or using Dynamo
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.cpp_extension:UserWarning"),
]

ops: Any = Ops()
kept: Any = None


@pytest.fixture(autouse=True)
def _nothing_used_yet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    global ops
    torch._dynamo.reset()
    ops = Ops()
    monkeypatch.setattr(dispatch_core._ops, "ops", ops)
    monkeypatch.setattr(dispatch_core._registry, "_handles", {})
    monkeypatch.setattr(dispatch_core._registry, "_by_op", {})
    yield
    torch._dynamo.reset()


def in_one_graph(fn: Callable[..., Any], *args: Any) -> tuple[Any, list[Any]]:
    """Run a function compiled as one graph twice; give its result and what the graph calls."""
    graphs: list[Any] = []

    def keep(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    compiled = torch.compile(fn, backend=keep, fullgraph=True)
    compiled(*args)
    result = compiled(*args)
    assert len(graphs) <= 1
    called = [
        node.target for graph in graphs for node in graph.graph.nodes if node.op == "call_function"
    ]
    return result, called


X = torch.tensor([0.5, 0.25])


def call_overload(x: Any) -> Any:
    return ops.aten.cos.default(x)


def call_overload_by_keyword(x: Any) -> Any:
    return ops.aten.add.Tensor(x, other=x, alpha=2)


def call_handle_of_a_name(x: Any) -> Any:
    return handle_of("aten::mul.Tensor")(x, x)


def call_handle_of_an_operator(x: Any) -> Any:
    return handle_of(torch.ops.aten.tanh.default)(x)


def call_handle_of_a_handle(x: Any) -> Any:
    return handle_of(ops.aten.tanh.default)(x)


def call_the_operator_of_a_handle(x: Any) -> Any:
    return ops.aten.atan.default.torch_op(x)


def call_another_namespace(x: Any) -> Any:
    return ops.prims.sin.default(x)


@pytest.mark.parametrize(
    ("fn", "name"),
    [
        (call_overload, "aten::cos"),
        (call_overload_by_keyword, "aten::add.Tensor"),
        (call_handle_of_a_name, "aten::mul.Tensor"),
        (call_handle_of_an_operator, "aten::tanh"),
        (call_handle_of_a_handle, "aten::tanh"),
        (call_the_operator_of_a_handle, "aten::atan"),
        (call_another_namespace, "prims::sin"),
    ],
)
def test_operator_first_used_in_a_compiled_function_is_in_its_graph(fn: Any, name: str) -> None:
    result, called = in_one_graph(fn, X)
    assert torch.equal(result, fn(X))
    assert [op.name() for op in called] == [name]


def test_packet_first_used_in_a_compiled_function_is_in_its_graph() -> None:
    def fn(x: Any) -> Any:
        return ops.aten.add(x, x, alpha=3)

    result, called = in_one_graph(fn, X)
    assert torch.equal(result, X * 4)
    assert called == [torch.ops.aten.add]


def test_higher_order_operator_first_used_in_a_compiled_function() -> None:
    def fn(x: Any) -> Any:
        return ops.higher_order.cond(x.sum() > 0, lambda a: a + 1, lambda a: a - 1, (x,))

    assert torch.equal(in_one_graph(fn, X)[0], X + 1)


def test_handle_of_outside_that_nobody_has_called() -> None:
    global kept
    kept = ops.aten.asinh.default
    result, called = in_one_graph(lambda x: kept(x), X)
    assert torch.equal(result, X.asinh())
    assert [op.name() for op in called] == ["aten::asinh"]


def reads_facts(handle: Handle[Any]) -> object:
    return handle.facts.mutates, handle.facts.view, handle.facts.random


def reads_params(handle: Handle[Any]) -> object:
    return [(p.name, p.type, p.required, p.kwarg_only) for p in handle.params]


def reads_texts(handle: Handle[Any]) -> object:
    return handle.schema, handle.qualified_name, handle.drift, handle.from_spec, handle.returns


def binds(handle: Handle[Any]) -> object:
    return handle.bind((1, 2), {"to": 3})


def elides(handle: Handle[Any]) -> object:
    return handle.elide(handle.bind((1, 2), {"to": 3}))


READERS = [reads_facts, reads_params, reads_texts, binds, elides]


@pytest.mark.parametrize("read", READERS)
def test_what_a_handle_says_can_be_read_in_a_compiled_function(read: Any) -> None:
    def fn(x: Any) -> Any:
        return x + 1, read(getattr(ops.aten.random, "from"))

    result, _ = in_one_graph(fn, X)
    assert result[1] == read(getattr(ops.aten.random, "from"))


@pytest.mark.parametrize("read", READERS)
def test_a_handle_of_outside_can_be_read_in_a_compiled_function(read: Any) -> None:
    global kept
    kept = getattr(ops.aten.random, "from")
    result, _ = in_one_graph(lambda x: (x + 1, read(kept)), X)
    assert result[1] == read(kept)


def test_what_is_not_there_can_be_asked_for() -> None:
    def fn(x: Any) -> Any:
        return x + 1 if hasattr(ops.aten, "nonsense") or hasattr(ops, "nothing") else x - 1

    assert torch.equal(in_one_graph(fn, X)[0], X - 1)


@pytest.mark.parametrize("fullgraph", [False, True])
def test_misspelt_operator_is_named(fullgraph: bool) -> None:
    def fn(x: Any) -> Any:
        return ops.aten.misspelt(x)

    with pytest.raises(Exception, match="aten has no operator 'misspelt'") as raised:
        torch.compile(fn, backend="eager", fullgraph=fullgraph)(X)
    assert isinstance(raised.value, torch._dynamo.exc.Unsupported) is fullgraph


def test_misspelt_name_given_to_handle_of_is_named() -> None:
    def fn(x: Any) -> Any:
        return handle_of("aten::misspelt")(x)

    with pytest.raises(torch._dynamo.exc.Unsupported, match="aten has no operator 'misspelt'"):
        in_one_graph(fn, X)


def test_operator_taken_back_and_registered_anew_is_the_new_one() -> None:
    def fn(x: Any) -> Any:
        return ops.tracing_tests.grow.default(x)

    compiled = torch.compile(fn, backend="eager", fullgraph=True)
    for step in (1, 2):
        library = torch.library.Library("tracing_tests", "FRAGMENT")
        try:
            library.define("grow(Tensor x) -> Tensor")
            library.impl("grow", lambda x, step=step: x + step, "CompositeImplicitAutograd")
            assert torch.equal(compiled(X), X + step)
            assert torch.equal(compiled(X), X + step)
        finally:
            library._destroy()


def test_export_finds_the_operators() -> None:
    class Module(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return ops.aten.erf.default(x) + ops.aten.exp2(x)

    for strict in (False, True):
        exported = torch.export.export(Module(), (X,), strict=strict)
        called = [node.target for node in exported.graph.nodes if node.op == "call_function"]
        assert [str(op) for op in called] == [
            "aten.erf.default",
            "aten.exp2.default",
            "aten.add.Tensor",
        ]
