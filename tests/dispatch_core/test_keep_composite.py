"""keep_composite: composite operators whole, with the gradients of their parts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import Any

import pytest
import torch
from dispatch_core import (
    DispatchMode,
    Recorder,
    UnknownOperatorError,
    keep_composite,
    no_dispatch,
    ops,
    propagate_modes,
)

from tests.dispatch_core.wrapping import Wrapped

aten = torch.ops.aten
KL_PARTS = ["mul.Tensor", "xlogy.Tensor", "sub.Tensor", "mean.default"]


class Names(DispatchMode):
    """Notes the names of the overloads it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.calls: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func).removeprefix("aten."))
        self.calls.append((func, args, kwargs))
        return func(*args, **(kwargs or {}))


def inputs(requires_grad: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    x, y = torch.rand(3).log(), torch.rand(3)
    return x.requires_grad_(requires_grad), y.requires_grad_(requires_grad)


def arrived(run: Callable[[], object]) -> list[str]:
    with Names() as names:
        run()
    return list(names.seen)


# ── what arrives ────────────────────────────────────────────────────────────────────────────────


def test_parts_arrive_without_it() -> None:
    x, y = inputs()
    assert arrived(lambda: aten.kl_div(x, y)) == KL_PARTS


def test_kept_operator_arrives_whole_with_what_the_caller_gave() -> None:
    x, y = inputs()
    with keep_composite(aten.kl_div), Names() as names:
        aten.kl_div(x, y)
        aten.kl_div(x, y, 2)
        aten.kl_div(x, y, log_target=True)
        aten.kl_div(x, y, 2, log_target=True)
    assert names.seen == ["kl_div.default"] * 4
    assert [(len(args), kwargs) for _, args, kwargs in names.calls] == [
        (2, {}),
        (3, {}),
        (2, {"log_target": True}),
        (3, {"log_target": True}),
    ]


def test_kept_operator_arrives_whole_at_a_subclass() -> None:
    x, y = inputs()
    Wrapped.arrived.clear()
    with keep_composite(aten.kl_div):
        result = aten.kl_div(Wrapped(x), Wrapped(y))
    assert Wrapped.arrived == [aten.kl_div.default]
    assert torch.equal(result.elem, aten.kl_div(x, y))


@pytest.mark.parametrize(
    "named", [aten.var, aten.var.dim, ops.aten.var, ops.aten.var.dim, "aten::var.dim"]
)
def test_takes_overloads_packets_handles_and_names(named: Any) -> None:
    x, _ = inputs()
    with keep_composite(named):
        assert arrived(lambda: aten.var.dim(x, [0])) == ["var.dim"]
    assert arrived(lambda: aten.var.dim(x, [0])) == ["var.correction"]


def test_overload_leaves_the_others_in_parts() -> None:
    x, _ = inputs()
    with keep_composite(aten.var.dim):
        assert arrived(lambda: aten.var.default(x)) == ["var.correction"]


def test_unknown_name_is_an_error() -> None:
    with pytest.raises(UnknownOperatorError, match="kl_div"):
        keep_composite("aten::kl_dib")


def test_operator_that_is_no_composite_arrives_whole_anyway() -> None:
    x, _ = inputs()
    with keep_composite(aten.exp, aten.kl_div):
        assert arrived(lambda: aten.exp(x)) == ["exp.default"]


def test_mode_outside_gets_the_operator_whole_too() -> None:
    x, y = inputs()
    with keep_composite(aten.kl_div), Names() as outer, Names() as inner:
        aten.kl_div(x, y)
    assert inner.seen == outer.seen == ["kl_div.default"]


def test_no_dispatch_inside_computes() -> None:
    x, y = inputs()
    with keep_composite(aten.kl_div), Names() as names, no_dispatch():
        result = aten.kl_div(x, y)
    assert names.seen == []
    assert torch.equal(result, aten.kl_div(x, y))


# ── scope ───────────────────────────────────────────────────────────────────────────────────────


def test_nests_also_for_the_same_operator() -> None:
    x, y = inputs()
    with keep_composite(aten.kl_div):
        with keep_composite(aten.kl_div, aten.var):
            assert arrived(lambda: aten.var.default(x)) == ["var.default"]
        assert arrived(lambda: aten.kl_div(x, y)) == ["kl_div.default"]
        assert arrived(lambda: aten.var.default(x)) == ["var.correction"]
    assert arrived(lambda: aten.kl_div(x, y)) == KL_PARTS


def test_the_same_object_may_be_entered_twice() -> None:
    x, y = inputs()
    keep = keep_composite(aten.kl_div)
    with keep:
        with keep:
            pass
        assert arrived(lambda: aten.kl_div(x, y)) == ["kl_div.default"]
    assert arrived(lambda: aten.kl_div(x, y)) == KL_PARTS


def registry(name: str) -> tuple[str, int]:
    return (
        torch._C._dispatch_dump_table(name),
        len(torch._C._dispatch_get_all_op_names()),
    )


def test_leaves_torch_as_it_was_also_after_errors() -> None:
    x, y = inputs()
    before = registry("aten::kl_div")

    def fail_twice() -> None:
        with pytest.raises(RuntimeError), Names():
            aten.kl_div(x, torch.ones(7))
        assert registry("aten::kl_div") != before
        raise KeyError

    with pytest.raises(KeyError), keep_composite(aten.kl_div):
        fail_twice()
    assert registry("aten::kl_div") == before
    assert arrived(lambda: aten.kl_div(x, y)) == KL_PARTS


def test_may_be_left_out_of_order() -> None:
    x, y = inputs()

    def hold() -> Generator[None]:
        with keep_composite(aten.kl_div):
            yield

    before = registry("aten::kl_div")
    generator = hold()
    next(generator)
    with keep_composite(aten.kl_div):
        generator.close()
        assert arrived(lambda: aten.kl_div(x, y)) == ["kl_div.default"]
    assert registry("aten::kl_div") == before


def test_only_the_entering_thread_is_affected() -> None:
    x, y = inputs()
    found: list[list[str]] = []

    def work() -> None:
        with Names() as names:
            aten.kl_div(x, y)
            with torch.inference_mode():
                aten.var.default(x)
        found.append(names.seen)

    with keep_composite(aten.kl_div, aten.var):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    # Under inference mode torch itself hands composite operators over whole.
    assert found == [[*KL_PARTS, "var.default"]]


def test_is_carried_by_propagate_modes() -> None:
    x, y = inputs()
    found: list[list[str]] = []
    with keep_composite(aten.kl_div):
        thread = threading.Thread(
            target=propagate_modes(lambda: found.append(arrived(lambda: aten.kl_div(x, y))))
        )
        thread.start()
        thread.join()
    assert found == [["kl_div.default"]]


def test_threads_may_keep_and_release_at_the_same_time() -> None:
    x, y = inputs()
    before = registry("aten::kl_div")
    found: list[list[str]] = []

    def work() -> None:
        for _ in range(20):
            with keep_composite(aten.kl_div):
                found.append(arrived(lambda: aten.kl_div(x, y)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [["kl_div.default"]] * 80
    assert registry("aten::kl_div") == before


@pytest.mark.parametrize("kept", [False, True])
def test_inside_inference_mode(kept: bool) -> None:
    x, y = inputs()
    Wrapped.arrived.clear()
    with torch.inference_mode(), keep_composite(*[aten.kl_div] * kept):
        result = aten.kl_div(Wrapped(x), Wrapped(y))
    assert torch.equal(result.elem, aten.kl_div(x, y))
    assert Wrapped.arrived == [aten.kl_div.default]


# ── gradients ───────────────────────────────────────────────────────────────────────────────────

CALLS: dict[str, tuple[Any, Callable[..., Any]]] = {
    "kl_div": (aten.kl_div, lambda x, y: aten.kl_div(x, y, 2)),
    "kl_div log_target": (aten.kl_div, lambda x, y: aten.kl_div(x, y, log_target=True)),
    "same tensor twice": (aten.kl_div, lambda x, y: aten.kl_div(x, x, log_target=True) + y.sum()),
    "one depends on the other": (aten.kl_div, lambda x, y: aten.kl_div(x, x.exp() * y)),
    "linear": (aten.linear, lambda x, y: aten.linear(x.view(1, 3), y.expand(2, 3), y[:2]).sum()),
    "matmul": (aten.matmul, lambda x, y: aten.matmul(x, y) ** 2),
    "list in": (aten.vstack, lambda x, y: (aten.vstack([x, y, x]) ** 3).sum()),
    "list out": (aten.chunk, lambda x, y: (aten.chunk(x * y, 3)[1] ** 3).sum()),
    "several results": (aten.var_mean, lambda x, y: sum(aten.var_mean.dim(x * y, [0])) ** 3),
    "integer result too": (
        aten.adaptive_max_pool1d,
        lambda x, y: (aten.adaptive_max_pool1d((x * y).view(1, 3), [1])[0] ** 3).sum(),
    ),
    "view": (aten.reshape, lambda x, y: (aten.reshape(x, [3, 1]) * y).pow(3).sum()),
    "input itself": (aten.contiguous, lambda x, y: (aten.contiguous(x) * y).pow(3).sum()),
    "in place": (aten.multiply_, lambda x, y: aten.multiply_.Tensor(x * 1, y).pow(2).sum()),
    "in place on what is used later": (
        aten.square_,
        lambda x, y: aten.square_(x * y).pow(2).sum(),
    ),
    "keyword tensor": (aten.clip, lambda x, y: (aten.clip.Tensor(x, max=-y) ** 3).sum()),
    "two kept, one in the other": (
        aten.cosine_similarity,
        lambda x, y: aten.cosine_similarity(x.view(1, 3), y.view(1, 3)).sum(),
    ),
}


def gradients(run: Callable[..., Any], x: Any, y: Any) -> list[torch.Tensor | None]:
    """Give the result, the gradients, and those of a function of the gradients."""
    value = run(x, y)
    first = torch.autograd.grad(value, (x, y), create_graph=True, allow_unused=True)
    total = sum((g**3).sum() for g in first if g is not None)
    second: Any = (None, None)
    if isinstance(total, torch.Tensor) and total.requires_grad:
        second = torch.autograd.grad(total, (x, y), allow_unused=True)
    return [value, *first, *second]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("kind", ["mode", "wrapper"])
def test_gradients_of_first_and_second_order_are_those_of_the_parts(name: str, kind: str) -> None:
    kept, run = CALLS[name]
    expected = gradients(run, *inputs(requires_grad=True))
    plain = inputs()
    with keep_composite(kept, aten.norm_except_dim):
        if kind == "mode":
            for tensor in plain:
                tensor.requires_grad_()
            with Names() as names:
                found = gradients(run, *plain)
            seen = names.seen
        else:
            Wrapped.arrived.clear()
            wrapped = [Wrapped(tensor, requires_grad=True) for tensor in plain]
            found = gradients(run, *wrapped)
            found = [Wrapped.unwrap(value) for value in found]
            seen = [str(op).removeprefix("aten.") for op in Wrapped.arrived]
    base = kept.__name__
    assert any(op.startswith(base + ".") for op in seen)
    for want, got in zip(expected, found, strict=True):
        torch.testing.assert_close(got, want)


def test_kept_operator_is_one_node_of_the_graph() -> None:
    x, y = inputs(requires_grad=True)
    with keep_composite(aten.kl_div), Names():
        result = aten.kl_div(x, y)
    assert result.grad_fn is not None
    leaves = [function.name() for function, _ in result.grad_fn.next_functions if function]
    assert leaves == ["torch::autograd::AccumulateGrad"] * 2


def test_backward_may_run_after_it_is_closed() -> None:
    x, y = inputs(requires_grad=True)
    with keep_composite(aten.kl_div), Names():
        result = aten.kl_div(x, y)
    result.backward()
    got = x.grad
    x.grad = None
    aten.kl_div(x, y).backward()
    torch.testing.assert_close(got, x.grad)


def test_no_graph_without_need() -> None:
    x, y = inputs(requires_grad=True)
    with keep_composite(aten.kl_div), Names(), torch.no_grad():
        assert aten.kl_div(x, y).grad_fn is None


def test_random_operator_draws_the_same_in_the_backward() -> None:
    x = torch.ones(100, requires_grad=True)
    torch.manual_seed(3)
    with keep_composite(aten.dropout), Names() as names:
        y = aten.dropout(x, 0.5, True)
    torch.rand(5)
    after = torch.get_rng_state()
    y.sum().backward()
    assert names.seen == ["dropout.default"]
    assert torch.equal(torch.get_rng_state(), after)
    torch.testing.assert_close(x.grad, y.detach())


@pytest.mark.slow
def test_running_statistics_are_updated_once() -> None:
    def run() -> tuple[torch.Tensor, Any]:
        norm = torch.nn.BatchNorm1d(3)
        x = torch.arange(12.0).view(4, 3).requires_grad_()
        (norm(x) ** 3).sum().backward()
        return norm.running_mean, x.grad  # type: ignore[return-value]

    expected = run()
    with keep_composite(aten.batch_norm), Names() as names:
        found = run()
    assert "batch_norm.default" in names.seen
    torch.testing.assert_close(found, expected)


def test_in_place_operator_counts_as_a_write() -> None:
    x = torch.ones(2)
    with keep_composite(aten.square_), Names():
        before = x._version
        aten.square_(x)
    assert x._version == before + 1


@pytest.mark.parametrize("wrapped", [False, True])
def test_kept_view_is_a_view_to_autograd(wrapped: bool) -> None:
    x: Any = torch.arange(6.0).view(2, 3).clone()
    if wrapped:
        x = Wrapped(x)
    with keep_composite(aten.reshape, aten.chunk), Names() as names:
        y = aten.reshape(x, [6])
        first, _ = aten.chunk(x, 2)
        copied = aten.reshape(x.t(), [6])
    assert names.seen == ["reshape.default", "chunk.default", "t.default", "reshape.default"]
    assert y._is_view()
    assert y._base is first._base is x
    assert not copied._is_view()
    before = x._version
    y.add_(1)
    assert x._version == y._version == first._version == before + 1
    copied.add_(1)
    assert x._version == before + 1


def test_writing_through_a_kept_view_brings_the_gradient_to_what_it_views() -> None:
    def run() -> Any:
        x = torch.arange(4.0)
        w = torch.ones(4, requires_grad=True)
        y = aten.reshape(x, [2, 2])
        y.mul_(w.view(2, 2))
        x.pow(2).sum().backward()
        return w.grad

    expected = run()
    with keep_composite(aten.reshape), Names():
        assert torch.equal(run(), expected)


def test_writing_through_a_kept_view_of_what_requires_grad_changes_the_graph() -> None:
    def run() -> Any:
        x, _ = inputs(requires_grad=True)
        z = x * 1
        y = aten.reshape(z, [3, 1])
        y.mul_(y.detach().clone())
        (first,) = torch.autograd.grad(z.pow(2).sum(), x, create_graph=True)
        return z._version, y.grad_fn, first, torch.autograd.grad(first.pow(2).sum(), x)[0]

    version, node, first, second = run()
    with keep_composite(aten.reshape), Names() as names:
        kept_version, kept_node, kept_first, kept_second = run()
    assert "reshape.default" in names.seen
    assert kept_version == version
    assert type(kept_node) is type(node)
    assert torch.equal(kept_first, first)
    assert torch.equal(kept_second, second)


def test_several_kept_views_have_torchs_own_refusal() -> None:
    def refusal() -> str:
        x, _ = inputs(requires_grad=True)
        first, *_ = aten.chunk(x * 1, 3)
        with pytest.raises(RuntimeError, match="returns multiple views") as caught:
            first.add_(1)
        return str(caught.value)

    with keep_composite(aten.chunk), Names() as names:
        kept = refusal()
    assert "chunk.default" in names.seen
    assert kept == refusal()


def test_argument_that_is_given_back_is_the_argument() -> None:
    x, y = inputs(requires_grad=True)
    with keep_composite(aten.contiguous, aten.dropout, aten.broadcast_tensors), Names() as names:
        assert aten.contiguous(x) is x
        assert aten.dropout(x, 0.5, False) is x
        assert aten.broadcast_tensors([x, y.new_ones(2, 1)])[0]._base is x
    assert names.seen[:2] == ["contiguous.default", "dropout.default"]
    assert names.seen[-1] == "broadcast_tensors.default"


def test_recorder_knows_a_kept_view_again() -> None:
    x, _ = inputs(requires_grad=True)
    with keep_composite(aten.reshape), Recorder() as recorder:
        aten.reshape(x, [3, 1]).neg()
    assert [event.sources for event in recorder.events] == [(), (0,)]


def test_kept_view_of_a_wrapper_that_requires_grad_can_be_written() -> None:
    arrived: list[Any] = []

    def run(x: Any) -> Any:
        z = x * 1
        y = aten.atleast_3d(aten.reshape(z, [3, 1]))
        arrived[:] = Wrapped.arrived  # a write makes torch run the view once more
        y.mul_(2)
        (z * z).sum().backward()
        return y

    plain, _ = inputs(requires_grad=True)
    run(plain)
    Wrapped.arrived.clear()
    x = Wrapped(plain.detach(), requires_grad=True)
    with keep_composite(aten.reshape, aten.atleast_3d):
        y = run(x)
    assert arrived == [aten.mul.Tensor, aten.reshape.default, aten.atleast_3d.default]
    assert type(y) is Wrapped
    assert torch.equal(Wrapped.unwrap(x.grad), plain.grad)  # type: ignore[arg-type]


def test_handler_that_answers_a_view_operator_with_a_copy_has_its_answer_kept() -> None:
    class Copies(DispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **kwargs)
            return result + 1 if func is aten.reshape.default else result

    x, _ = inputs(requires_grad=True)
    with keep_composite(aten.reshape), Copies():
        y = aten.reshape(x, [3, 1])
    assert torch.equal(y.view(3), x + 1)
    assert not y._is_view()
    y.mul_(2).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2, 2]


def test_handler_finds_the_grad_mode_of_the_caller() -> None:
    modes: list[bool] = []

    class Looks(DispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func.overloadpacket in kept:
                modes.append(torch.is_grad_enabled())
            return func(*args, **kwargs)

    kept = (aten.kl_div, aten.square_, aten.reshape)
    x, y = inputs(requires_grad=True)
    z = x * 1
    with keep_composite(*kept), Looks():
        aten.kl_div(x, y)
        aten.square_(z)
        aten.reshape(x, [3, 1])
        with torch.no_grad():
            aten.kl_div(x, y)
    assert modes == [True, True, True, False]  # as for operators that are no composites


# ── writes ──────────────────────────────────────────────────────────────────────────────────────


def view_made_without_grad(x: Any) -> Any:
    with torch.no_grad():
        return (x * 1)[:1]


REFUSED: dict[str, Callable[[Any], Any]] = {
    "leaf": lambda x: x,
    "view of a leaf": lambda x: x[:1],
    "one of several views": lambda x: (x * 1).chunk(3)[0],
    "view made without grad": view_made_without_grad,
}


@pytest.mark.parametrize("name", REFUSED)
def test_write_that_torch_refuses_is_refused_before_it_happens(name: str) -> None:
    def refusal() -> tuple[str, list[float]]:
        x, _ = inputs(requires_grad=True)
        target = REFUSED[name](x)
        values = target.tolist()
        try:
            aten.square_(target)
        except RuntimeError as error:
            assert target.tolist() == values
            return str(error), values
        return "", target.tolist()

    expected = refusal()
    with keep_composite(aten.square_), Names():
        assert refusal() == expected


def test_gradient_of_a_write_whose_other_argument_shares_its_memory() -> None:
    def run() -> torch.Tensor:
        x = torch.tensor([2.0, 3.0], requires_grad=True)
        z = x * 1
        aten.multiply_.Tensor(z, z.view(2))  # reads what it writes
        return torch.autograd.grad(z.sum(), x)[0]

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        run()  # torch itself has lost what the gradient needs
    with keep_composite(aten.multiply_), Names():
        assert run().tolist() == [4, 6]


def test_number_for_a_tensor_arrives_as_a_number() -> None:
    x, _ = inputs()
    expected = torch.subtract(x, 1.5)
    with keep_composite(aten.subtract), Names() as names:
        found = torch.subtract(x, 1.5)
    assert torch.equal(found, expected)
    assert names.seen == ["subtract.Tensor"]
    assert names.calls[0][1][1] == 1.5
    others: list[torch.Tensor] = []
    with keep_composite(aten.subtract):

        def work() -> None:
            with Names():
                others.append(torch.subtract(x, 1.5))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert torch.equal(others[0], expected)


def test_saved_argument_that_changes_later_is_an_error() -> None:
    x, y = inputs(requires_grad=True)
    z = x * 1
    with keep_composite(aten.kl_div), Names():
        result = aten.kl_div(z, y)
    z.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()


def test_out_with_gradients_is_refused_as_by_torch() -> None:
    x, y = inputs(requires_grad=True)
    with (
        keep_composite(aten.multiply),
        Names(),
        pytest.raises(RuntimeError, match="don't support automatic differentiation"),
    ):
        aten.multiply.out(x, y, out=torch.empty(3))


@pytest.mark.slow
def test_transforms_get_the_parts() -> None:
    x, y = inputs()
    expected = torch.func.grad(aten.kl_div)(x, y)
    with keep_composite(aten.kl_div), Names():
        torch.testing.assert_close(torch.func.grad(aten.kl_div)(x, y), expected)
        batched = torch.func.vmap(lambda a: aten.kl_div(a, y))(torch.stack([x, x]))
    torch.testing.assert_close(batched[0], aten.kl_div(x, y))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_forward_gradients_are_those_of_the_parts() -> None:
    x, y = inputs()

    def tangent() -> Any:
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, torch.ones(3))
            result = aten.kl_div(dual, y)
            found = torch.autograd.forward_ad.unpack_dual(result).tangent
            assert found is not None
            return found.clone()

    expected = tangent()
    with keep_composite(aten.kl_div), Names():
        torch.testing.assert_close(tangent(), expected)


def test_autocast_casts_as_without() -> None:
    x, w = torch.ones(2, 3), torch.ones(4, 3)
    with (
        keep_composite(aten.linear),
        Names() as names,
        torch.autocast("cpu", dtype=torch.bfloat16),
    ):
        result = torch.nn.functional.linear(x, w)
    assert result.dtype is torch.bfloat16
    assert "linear.default" in names.seen


def test_decorated_function_keeps() -> None:
    x, y = inputs()

    @keep_composite(aten.kl_div)
    def run() -> list[str]:
        return arrived(lambda: aten.kl_div(x, y))

    assert run() == ["kl_div.default"]
    assert arrived(lambda: aten.kl_div(x, y)) == KL_PARTS
