"""Wrappers under the features of torch: a test for each cell of the table in the README."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from subclass_utils import LoggingTensor, WrapperTensor, capture_logs
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.parameter import Parameter

from tests.subclass_utils.wrappers import Measured, Scaled, ScaledOnPlain, Unit, scaled

aten = torch.ops.aten


def metre(*size: int, requires_grad: bool = False) -> Measured:
    torch.manual_seed(3)
    return Measured(torch.randn(*size), Unit.METRE, requires_grad=requires_grad)


def linear() -> nn.Module:
    torch.manual_seed(0)
    module = nn.Linear(4, 4)
    for name, parameter in list(module.named_parameters()):
        setattr(module, name, Parameter(Measured(parameter.detach().clone(), Unit.METRE)))
    return module


def plain_linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(4, 4)


# ── modes ───────────────────────────────────────────────────────────────────────────────────────


def test_autocast_casts_outside_and_inside() -> None:
    x = metre(4, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x
    assert y.dtype is y.elem.dtype is torch.bfloat16  # type: ignore[attr-defined]
    assert y.unit is Unit.METRE  # type: ignore[attr-defined]


def test_hooks_see_wrappers() -> None:
    x = metre(2, requires_grad=True)
    seen: list[type] = []

    def double(gradient: Any) -> Any:
        seen.append(type(gradient))
        return gradient * 2

    x.register_hook(double)  # type: ignore[no-untyped-call]
    x.register_post_accumulate_grad_hook(lambda tensor: seen.append(type(tensor)))  # type: ignore[no-untyped-call]
    (x * 3).sum().backward()
    assert x.grad is not None
    assert x.grad.elem.tolist() == [6.0, 6.0]  # type: ignore[attr-defined]
    assert seen == [Measured, Measured]


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoint_gives_the_gradient_of_the_plain_run(use_reentrant: bool) -> None:
    x = metre(3, requires_grad=True)
    torch.utils.checkpoint.checkpoint(
        lambda a: (a * a).sum(), x, use_reentrant=use_reentrant
    ).backward()
    assert x.grad is not None
    assert torch.equal(x.grad.elem, 2 * x.elem)  # type: ignore[attr-defined]


# ── modules ─────────────────────────────────────────────────────────────────────────────────────


def test_module_moves_and_keeps_class_and_metadata() -> None:
    module: Any = linear().to(torch.float64)
    assert isinstance(module.weight, Parameter)
    assert type(module.weight) is Measured  # type: ignore[comparison-overlap]
    assert module.weight.dtype is module.weight.elem.dtype is torch.float64
    assert module.weight.unit is Unit.METRE


@pytest.mark.parametrize("assign", [False, True])
def test_state_dict_loads_into_a_module(assign: bool) -> None:
    source: Any = linear()
    target: Any = copy.deepcopy(source)
    with torch.no_grad():
        target.weight.zero_()
    state = source.state_dict()
    assert type(state["weight"]) is Measured
    target.load_state_dict(state, assign=assign)
    assert type(target.weight) is Measured
    assert target.weight.unit is Unit.METRE
    assert torch.equal(target.weight.elem, source.weight.elem)


def test_plain_state_loads_into_wrappers_and_wrapped_into_plain() -> None:
    wrapped: Any = linear()
    plain: Any = plain_linear()
    with torch.no_grad():
        wrapped.weight.zero_()
    wrapped.load_state_dict(plain.state_dict())
    assert type(wrapped.weight) is Measured
    assert torch.equal(wrapped.weight.elem, plain.weight)
    plain.load_state_dict(wrapped.state_dict())
    assert type(plain.weight) is Parameter


def test_swap_tensors_swaps_everything() -> None:
    a, b = Measured(torch.ones(2), Unit.METRE), Measured(torch.zeros(3), Unit.SECOND)
    torch.utils.swap_tensors(a, b)
    assert (a.shape, a.unit, b.shape, b.unit) == ((3,), Unit.SECOND, (2,), Unit.METRE)
    assert a.elem.tolist() == [0.0, 0.0, 0.0]


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "AdamW": lambda p: torch.optim.AdamW(p, foreach=False),
    "AdamW foreach": lambda p: torch.optim.AdamW(p, foreach=True),
    "AdamW fused": lambda p: torch.optim.AdamW(p, fused=True),
    "SGD": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, foreach=False),
    "SGD foreach": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, foreach=True),
    "SGD fused": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, fused=True),
    "RMSprop foreach": lambda p: torch.optim.RMSprop(p, foreach=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_steps_equal_those_of_plain_parameters(name: str) -> None:
    states = []
    for module in (plain_linear(), linear()):
        parameters = list(module.parameters())
        optimizer = OPTIMIZERS[name](parameters)
        versions = [p._version for p in parameters]
        for _ in range(3):
            optimizer.zero_grad()
            sum((p * p).sin().sum() for p in parameters).backward()  # type: ignore[union-attr]
            optimizer.step()
        writes = [p._version - before for p, before in zip(parameters, versions, strict=True)]
        states.append((parameters, writes))
    (plain, plain_writes), (wrapped, wrapped_writes) = states
    for one, other in zip(plain, wrapped, strict=True):
        assert type(other) is Measured  # type: ignore[comparison-overlap]
        assert torch.equal(other.elem, one.detach())
    assert wrapped_writes == plain_writes


def test_gradients_are_clipped_as_those_of_plain_parameters() -> None:
    norms = []
    for module in (plain_linear(), linear()):
        parameters = list(module.parameters())
        sum((p * p).sum() for p in parameters).backward()  # type: ignore[union-attr]
        norms.append(nn.utils.clip_grad_norm_(parameters, 1.0))
    assert norms[0].item() == norms[1].item()


# ── torch.func ──────────────────────────────────────────────────────────────────────────────────


def test_func_grad_gives_wrappers() -> None:
    x = metre(3)
    gradient = torch.func.grad(lambda a: (a * a).sum())(x)
    assert type(gradient) is Measured
    assert torch.equal(gradient.elem, 2 * x.elem)


def test_func_vmap_gives_wrappers() -> None:
    x = metre(2, 3)
    result = torch.func.vmap(lambda a: a * 2)(x)
    assert type(result) is Measured
    assert torch.equal(result.elem, 2 * x.elem)


# torch compiles its own decompositions with torch.jit.script, which warns.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_func_jvp_and_vjp_give_wrappers() -> None:
    x = metre(3)
    value, tangent = torch.func.jvp(lambda a: a * a, (x,), (x,))  # type: ignore[misc]
    assert type(value) is type(tangent) is Measured
    (gradient,) = torch.func.vjp(lambda a: a * a, x)[1](x)
    assert torch.equal(gradient.elem, tangent.elem)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")  # for any tensor
@pytest.mark.parametrize("wrap", [Measured, ScaledOnPlain.from_plain])
def test_func_linearize_gives_a_function_of_the_tangent(wrap: Any) -> None:
    x, tangent = torch.tensor([0.5, 1.0]), torch.tensor([1.5, -2.0])
    value, push = torch.func.linearize(lambda x: x * x, wrap(x))
    pushed = push(wrap(tangent))
    assert type(pushed) is type(value)
    for got, want in ((value, x * x), (pushed, 2 * x * tangent)):
        torch.testing.assert_close(getattr(got, "elem", got), want)


@pytest.mark.parametrize("wrap", [Measured, ScaledOnPlain.from_plain])
def test_make_fx_takes_a_wrapper_from_outside_for_a_constant(wrap: Any) -> None:
    other = wrap(torch.tensor([2.0, 4.0]))

    def function(x: Any) -> Any:
        return torch.cat([x.sin(), other * other]) * other[0]

    graph = make_fx(function)(wrap(torch.zeros(2)))
    x = wrap(torch.tensor([0.5, 1.0]))
    got, want = graph(x), function(x)
    assert type(got) is type(want)
    torch.testing.assert_close(getattr(got, "elem", got), getattr(want, "elem", want))


def test_functional_call_takes_wrapped_parameters() -> None:
    x = metre(2, 4)
    plain: Any = plain_linear()
    got = torch.func.functional_call(plain, dict(linear().named_parameters()), (x,))
    assert torch.equal(got.elem, plain(x.elem))


# ── torch.compile ───────────────────────────────────────────────────────────────────────────────


def compiled(function: Any, **options: Any) -> Any:
    return torch.compile(function, backend="aot_eager", **options)


@pytest.mark.slow
def test_compiled_function_gives_wrappers_with_metadata() -> None:
    x = metre(3, 4)

    def function(a: Any, b: Any) -> Any:
        return (a * b).sum(0) + a.t().sum(1)

    result = compiled(function, fullgraph=True)(x, x)
    assert type(result) is Measured
    assert result.unit is Unit.METRE
    assert torch.equal(result.elem, function(x.elem, x.elem))


@pytest.mark.slow
def test_compiled_module_trains_as_the_plain_one() -> None:
    torch.manual_seed(1)
    inputs = torch.randn(2, 4)
    gradients = []
    for module, x in ((plain_linear(), inputs), (linear(), Measured(inputs, Unit.METRE))):
        compiled(module)(x).sum().backward()
        gradients.append([p.grad for p in module.parameters()])
    for plain, wrapped in zip(*gradients, strict=True):
        assert type(wrapped) is Measured
        assert torch.allclose(wrapped.elem, plain)


@pytest.mark.slow
def test_compiled_function_writes_its_argument() -> None:
    x = Measured(torch.zeros(3))

    def function(a: Any) -> Any:
        a.add_(1)
        return a.view(-1) * 2

    result = compiled(function)(x)
    assert x.elem.tolist() == [1.0, 1.0, 1.0]
    assert result.elem.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.slow
def test_compiled_function_takes_other_sizes() -> None:
    function = compiled(lambda a: a * 2 + 1, dynamic=True)
    for size in (3, 5, 7):
        assert function(metre(size)).shape == (size,)


@pytest.mark.slow
def test_compiled_function_is_traced_again_for_other_metadata() -> None:
    function = compiled(lambda a: a * 2)
    for unit in Unit:
        assert function(Measured(torch.ones(2), unit)).unit is unit


@pytest.mark.slow
def test_compiled_calls_of_a_logging_tensor_leave_no_traced_lines() -> None:
    x = LoggingTensor(torch.ones(2))
    with capture_logs() as logs:
        result = compiled(lambda a: a * 2 + 1)(x)
    assert type(result) is LoggingTensor
    assert logs == []


@pytest.mark.slow
def test_compiled_function_takes_a_class_whose_outside_differs() -> None:
    x = Scaled.from_plain(torch.eye(2))
    result = compiled(lambda a, b: torch.mm(a, b))(torch.ones(2, 2), x)
    assert result.tolist() == [[1.0, 1.0], [1.0, 1.0]]


class Weighted(nn.Module):
    """Has wrappers for a parameter and a buffer."""

    scale: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = Parameter(Measured(torch.arange(8.0).view(2, 4), Unit.METRE))
        self.register_buffer("scale", Measured(torch.tensor([2.0, 3.0]), Unit.METRE))

    def forward(self, x: Any) -> Any:
        return torch.nn.functional.linear(x, self.weight).relu() * self.scale


@pytest.mark.slow
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("wrap", [Measured, lambda x: x])
def test_exported_module_gives_what_the_module_gives(wrap: Any, strict: bool) -> None:
    x = wrap(torch.ones(3, 4))
    module = Weighted()
    exported = torch.export.export(module, (x,), strict=strict).module()
    got, want = exported(x), module(x)
    assert isinstance(want, Measured)
    assert torch.equal(getattr(got, "elem", got), want.elem)


def test_flatten_and_unflatten_are_each_others_inverse() -> None:
    wrappers = metre(2, 3).t(), scaled(1.0, 2.0), metre(1).requires_grad_(), Parameter(scaled(1.0))
    for wrapper in wrappers:
        names, context = wrapper.__tensor_flatten__()  # type: ignore[attr-defined]
        inner = {name: getattr(wrapper, name) for name in names}
        again = type(wrapper).__tensor_unflatten__(inner, context, wrapper.size(), wrapper.stride())  # type: ignore[attr-defined]
        assert type(again) is type(wrapper)
        assert (again.size(), again.stride(), again.dtype) == (
            wrapper.size(),
            wrapper.stride(),
            wrapper.dtype,
        )
        assert again.requires_grad == wrapper.requires_grad
        assert not any(isinstance(part, torch.Tensor) for part in context)


def test_deepcopy_of_a_module_keeps_parameters() -> None:
    module: Any = copy.deepcopy(linear())
    assert isinstance(module.weight, Parameter)
    assert type(module.weight) is Measured  # type: ignore[comparison-overlap]


def test_is_traceable() -> None:
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    assert is_traceable_wrapper_subclass(metre(1))
    assert isinstance(metre(1), WrapperTensor)
