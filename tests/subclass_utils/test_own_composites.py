"""A handler of a composite operator, by its name, answers it in every mode."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from dispatch_core import Recorder, enable_python_mode, keep_composite, ops
from subclass_utils import WrapperTensor

from tests.subclass_utils.wrappers import Requantised

aten = torch.ops.aten

CONTEXTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "grad": nullcontext,
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "mode": Recorder,
    "python_mode": lambda: enable_python_mode(Whole),
}

COMPOSITES: dict[str, Callable[[Any], Any]] = {
    "chunk": lambda x: x.chunk(2)[0],
    "conv2d": lambda x: F.conv2d(x[None, None], x[None, None]),
    "dropout": lambda x: F.dropout(x, 0.0),
    "einsum": lambda x: torch.einsum("ij,jk->ik", x, x),
    "flatten": lambda x: x.flatten(),
    "layer_norm": lambda x: F.layer_norm(x, (4,)),
    "linear": lambda x: F.linear(x, x),
    "matmul": lambda x: x @ x,
    "max_pool1d": lambda x: F.max_pool1d(x, 2),
    "multiply": lambda x: torch.multiply(x, 2),  # a number for a tensor
    "reshape": lambda x: x.reshape(2, 8),
    "scaled_dot_product_attention": lambda x: F.scaled_dot_product_attention(*[x[None]] * 3),
    "square_": lambda x: (x * 1).square_(),
    "tensor_split": lambda x: torch.tensor_split(x, 2)[1],
    "true_divide": lambda x: torch.true_divide(x, x + 9),
}


class Plain(WrapperTensor):
    """Has no handlers."""


class Whole(WrapperTensor):
    """Notes the composite operators that arrive, and answers as without a handler."""

    metadata = ("place",)
    place: str = "here"
    elem: torch.Tensor


class Child(Whole):
    """Has no handlers of its own."""


seen: list[str] = []


@Whole.table.implements(*[getattr(aten, name) for name in COMPOSITES])
def _note(func: Any, *args: Any, **kwargs: Any) -> Any:
    seen.append(func._schema.name.partition("::")[2])
    return Whole.run_without_handler(func, *args, **kwargs)


class Tripled(Requantised):
    """Answers linear with three times its value."""


@Tripled.table.implements(ops.aten.linear.default)
def _linear(input: Any, weight: Any, bias: Any = None) -> Any:
    given = (input, weight, bias)
    return 3 * F.linear(*[t.to_plain() if isinstance(t, Tripled) else t for t in given])


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()


@pytest.mark.parametrize("cls", [Whole, Child])
@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS)
@pytest.mark.parametrize("name", COMPOSITES)
def test_operator_arrives_whole(name: str, context: Any, cls: Any) -> None:
    plain = torch.randn(4, 4)
    with context():
        x = cls(plain)
        seen.clear()
        got = COMPOSITES[name](x)
        assert seen[0] == name
        assert type(got) is cls
    assert torch.allclose(got.elem, COMPOSITES[name](plain), equal_nan=True)


@pytest.mark.parametrize("name", COMPOSITES)
def test_gradients_versions_and_views_are_those_of_the_parts(name: str) -> None:
    plain = torch.randn(4, 4, requires_grad=True)
    x: Any = Whole(plain.detach(), requires_grad=True)
    want, got = COMPOSITES[name](plain), COMPOSITES[name](x)
    assert got._version == want._version
    assert got._is_view() == want._is_view()
    first: Any = [
        torch.autograd.grad(y.pow(2).sum(), (of,), create_graph=True)[0]
        for y, of in ((want, plain), (got, x))
    ]
    assert torch.allclose(first[1].elem, first[0], atol=1e-4)
    try:
        (second,) = torch.autograd.grad(first[0].pow(2).sum(), (plain,))
    except RuntimeError:  # torch 2.14 has none of attention
        return
    of_wrapper: Any = torch.autograd.grad(first[1].pow(2).sum(), (x,))[0]
    assert torch.allclose(of_wrapper.elem, second, atol=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["linear", "scaled_dot_product_attention", "flatten", "square_"])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_operator_arrives_whole_in_a_compiled_function(name: str, requires_grad: bool) -> None:
    torch._dynamo.reset()
    plain = torch.randn(4, 4, requires_grad=requires_grad)
    x: Any = Whole(plain.detach(), requires_grad=requires_grad)
    want = COMPOSITES[name](plain)
    got: Any = torch.compile(COMPOSITES[name], backend="aot_eager", fullgraph=True)(x)
    assert seen[0] == name
    assert torch.allclose(got.elem, want)
    if requires_grad:
        (want_grad,) = torch.autograd.grad(want.pow(2).sum(), (plain,))
        got_grad: Any = torch.autograd.grad(got.pow(2).sum(), (x,))[0]
        assert torch.allclose(got_grad.elem, want_grad, atol=1e-4)


def test_plain_input_beside_a_wrapped_weight_in_every_mode() -> None:
    x, weight = torch.randn(2, 4, requires_grad=True), Tripled.from_plain(torch.randn(3, 4))
    want = 3 * F.linear(x, weight.to_plain())
    for context in (nullcontext, torch.no_grad, torch.inference_mode, Recorder):
        with context():
            assert torch.equal(F.linear(x, weight), want)
    with keep_composite(aten.linear):
        assert torch.equal(F.linear(x, weight), want)


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
def test_plain_input_beside_a_wrapped_weight_compiled(dynamic: bool) -> None:
    torch._dynamo.reset()
    x, weight = torch.randn(2, 4, requires_grad=True), Tripled.from_plain(torch.randn(3, 4))
    compiled = torch.compile(F.linear, backend="aot_eager", dynamic=dynamic, fullgraph=True)
    got = compiled(x, weight)
    assert torch.allclose(got, 3 * F.linear(x, weight.to_plain()))
    (grad,) = torch.autograd.grad(got.sum(), (x,))
    assert torch.allclose(grad, weight.to_plain().sum(0).expand(2, 4))  # by the parts


def test_autocast_comes_first() -> None:
    x, weight = torch.randn(2, 4), Tripled.from_plain(torch.randn(3, 4))
    with torch.autocast("cpu", torch.bfloat16):
        got = F.linear(x, weight)
    assert got.dtype is torch.bfloat16
    assert torch.allclose(got.float(), 3 * F.linear(x, weight.to_plain()), atol=0.2)


def test_other_classes_and_plain_tensors_see_the_parts() -> None:
    for x in (torch.eye(2, requires_grad=True), Plain(torch.eye(2), requires_grad=True)):
        with Recorder() as recorder:
            F.linear(x, x)
        assert [event.name for event in recorder.events] == ["aten::t", "aten::mm"]


@pytest.mark.parametrize("found", ["rule", "fallback"])
@pytest.mark.parametrize("context", [nullcontext, torch.no_grad, torch.inference_mode])
def test_what_is_not_named_gets_the_parts(found: str, context: Any) -> None:
    class Found(WrapperTensor):
        pass

    register = (
        Found.table.fallback
        if found == "fallback"
        else Found.table.implements_where(predicate=lambda handle: handle.facts.family == "blas")
    )

    @register
    def note(func: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(func.name())
        return Found.run_without_handler(func, *args, **kwargs)

    with context():
        x = Found(torch.eye(2))
        seen.clear()
        torch.matmul(x, x)
        assert seen == ["aten::mm"]


@pytest.mark.parametrize("context", [nullcontext, torch.no_grad, torch.inference_mode])
def test_wrapper_of_such_wrappers_takes_the_operator_apart(context: Any) -> None:
    with context():
        x = Plain(Whole(torch.eye(2)))
        for call in (F.linear(x, x), F.linear(x[None], x), F.max_pool1d(x, 2)):
            assert type(call) is Plain
        assert not {"linear", "max_pool1d"} & {*seen}


def test_fallback_of_a_child_hides_the_parent_s_handler() -> None:
    class Own(Whole):
        pass

    @Own.table.fallback
    def note(func: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(func.name())
        return Own.run_without_handler(func, *args, **kwargs)

    torch.matmul(Own(torch.eye(2)), Own(torch.eye(2)))
    assert seen == ["aten::mm"]


def test_wrappers_that_were_made_before_the_handler_are_answered_by_it() -> None:
    class Late(Requantised):
        pass

    class LateChild(Late):
        pass

    whole = Late.from_plain(torch.randn(3, 4))
    parameter = torch.nn.Parameter(Late.from_plain(torch.randn(3, 4)))
    with torch.inference_mode():
        inference = Late.from_plain(torch.randn(3, 4))
    many = [whole, whole.detach(), parameter, inference, LateChild.from_plain(torch.randn(3, 4))]
    many[1].add_(1)
    versions = [-1 if each.is_inference() else each._version for each in many]

    @Late.table.implements(ops.aten.linear.default)
    def linear(input: Any, weight: Any, bias: Any = None) -> Any:
        return torch.zeros(2, 3)

    with torch.no_grad():
        for each in many:
            assert not F.linear(torch.ones(2, 4), each).any()
    assert [-1 if each.is_inference() else each._version for each in many] == versions
    assert [each.is_inference() for each in many] == [False, False, False, True, False]
    assert (parameter.requires_grad, parameter.is_leaf) == (True, True)
    whole.add_(1)
    assert torch.equal(many[1].to_plain(), whole.to_plain())


def test_late_view_stays_one() -> None:
    class Late(WrapperTensor):
        pass

    whole: Any = Late(torch.randn(3, 4) * (1 + 1j))
    view = whole.t().conj()[1:]

    @Late.table.implements(ops.aten.matmul.default)
    def matmul(self: Any, other: Any) -> Any:
        return torch.zeros(2, 3)

    assert (view.is_conj(), view.shape, view.stride(), view.storage_offset()) == (
        True,
        (3, 3),
        (1, 4),
        1,
    )
    assert view._base is whole
    view.mul_(2)
    assert whole._version == view._version == 1
    assert not torch.matmul(view, view).any()


def test_handler_in_the_body_of_a_class_and_a_table_set_later() -> None:
    from dispatch_core import HandlerTable

    class Set(WrapperTensor):
        pass

    table = HandlerTable()

    @table.implements(ops.aten.matmul.default)
    def matmul(self: Any, other: Any) -> Any:
        return torch.zeros(1)

    x = Set(torch.eye(2))
    Set.table = table
    assert not torch.matmul(x, x).any()


def test_operator_of_a_library_arrives_whole() -> None:
    library = torch.library.Library("tests_own_composites", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x + x, "CompositeImplicitAutograd")

    class Own(WrapperTensor):
        elem: torch.Tensor

    @Own.table.implements(torch.ops.tests_own_composites.twice.default)
    def twice(x: Any) -> Any:
        return Own(x.elem * 5)

    x: Any = Own(torch.ones(2), requires_grad=True)
    got = torch.ops.tests_own_composites.twice(x)
    assert got.elem.tolist() == [5.0, 5.0]
    got.sum().backward()
    assert x.grad.elem.tolist() == [2.0, 2.0]
    library._destroy()


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # its own call
def test_transforms_of_torch_func_and_tangents_get_the_parts() -> None:
    x, weight = torch.randn(2, 4), Tripled.from_plain(torch.randn(3, 4))
    parts = F.linear(x, weight.to_plain())

    def call(x: Any) -> Any:
        return F.linear(x, weight)

    assert torch.allclose(torch.vmap(call)(x), parts)
    assert torch.allclose(torch.func.vjp(call, x)[0], parts)
    assert torch.allclose(torch.func.jvp(call, (x,), (x,))[0], parts)
