"""What a LoggingTensor does, and the exact lines that a capture of it holds."""

from __future__ import annotations

import copy
import io
import logging
from typing import Any

import pytest
import torch
from dispatch_core import enable_python_mode, handle_of, keep_composite, no_dispatch
from subclass_utils import LoggingTensor, MemorylessError, ResizeError, capture_logs, log_input
from torch import tensor

aten = torch.ops.aten


def test_square_and_its_gradient_give_six_lines() -> None:
    with capture_logs() as logs:
        x = LoggingTensor(tensor([3.0]), requires_grad=True)
        log_input("x", x)
        y = x * x
        saved = y.grad_fn._saved_self  # type: ignore[union-attr]
        grad_y = LoggingTensor(tensor([1.0]))
        log_input("grad_y", grad_y)
        (g,) = torch.autograd.grad((y,), (x,), (grad_y,))
    assert logs == [
        "$0 = input('x')",
        "$1 = torch._ops.aten.mul($0, $0)",
        "$2 = input('grad_y')",
        "$3 = torch._ops.aten.mul($2, $0)",
        "$4 = torch._ops.aten.mul($2, $0)",
        "$5 = torch._ops.aten.add($4, $3)",
    ]
    assert isinstance(g, LoggingTensor)
    assert g.elem.item() == 6
    assert torch.equal(saved.elem, x.elem)
    assert saved._version == x._version
    with torch.no_grad():
        x.add_(2)
    assert torch.equal(saved.elem, x.elem)
    assert saved._version == x._version


def test_out_argument_is_named_by_its_first_number_and_the_result_anew() -> None:
    with capture_logs() as logs:
        x, y = LoggingTensor(tensor([-1.0])), LoggingTensor(tensor([0.0]))
        log_input("x", x)
        log_input("y", y)
        torch.abs(x, out=y)
    assert logs[2:] == ["$2 = torch._ops.aten.abs($0, out=$1)"]
    assert y.elem.item() == 1


def test_keyword_arguments_at_their_default_are_not_in_the_call() -> None:
    with capture_logs() as logs:
        x, y, z = (LoggingTensor(torch.ones(*size)) for size in ((2,), (2, 3), (3,)))
        torch.addmv(x, y, z)
        torch.addmv(x, y, z, beta=1)
        torch.addmv(x, y, z, beta=2)
        torch.addmv(x, y, z, alpha=2)
        torch.addmv(x, y, z, beta=2, alpha=2)
    assert logs == [
        "$3 = torch._ops.aten.addmv($0, $1, $2)",
        "$4 = torch._ops.aten.addmv($0, $1, $2)",
        "$5 = torch._ops.aten.addmv($0, $1, $2, beta=2)",
        "$6 = torch._ops.aten.addmv($0, $1, $2, alpha=2)",
        "$7 = torch._ops.aten.addmv($0, $1, $2, beta=2, alpha=2)",
    ]


def test_kept_composite_gives_one_line_a_call() -> None:
    x, y = LoggingTensor(torch.rand(2)), LoggingTensor(torch.rand(2))
    kl_div = aten.kl_div
    with capture_logs() as logs, keep_composite(kl_div):
        kl_div(x, y)
        kl_div(x, y, 2)
        kl_div(x, y, log_target=True)
        kl_div(x, y, 2, log_target=True)
    assert logs == [
        "$2 = torch._ops.aten.kl_div($0, $1)",
        "$3 = torch._ops.aten.kl_div($0, $1, 2)",
        "$4 = torch._ops.aten.kl_div($0, $1, log_target=True)",
        "$5 = torch._ops.aten.kl_div($0, $1, 2, log_target=True)",
    ]


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_composite_arrives_in_parts_in_every_mode(mode: Any) -> None:
    x, y = LoggingTensor(torch.rand(2)), LoggingTensor(torch.rand(2))
    with capture_logs() as logs, mode():
        aten.kl_div(x, y)
    assert [line.split("(")[0].split(".")[-1] for line in logs] == ["mul", "xlogy", "sub", "mean"]


def test_several_results_print_as_a_tuple_or_a_list() -> None:
    with capture_logs() as logs:
        x = LoggingTensor(torch.ones(2, 2))
        torch.max(x, 0)
        torch.split(x, 1)
        torch.cat([x, x], 1)
    assert logs == [
        "($1, $2) = torch._ops.aten.max($0, 0)",
        "[$3, $4] = torch._ops.aten.split($0, 1)",
        "$5 = torch._ops.aten.cat([$0, $0], 1)",
    ]


def test_detach_gives_one_line() -> None:
    x = LoggingTensor(torch.ones(1), requires_grad=True)
    with capture_logs() as logs:
        x.detach()
    assert logs == ["$1 = torch._ops.aten.detach($0)"]


def test_resizing_what_came_from_data_raises_and_changes_nothing() -> None:
    x = LoggingTensor(torch.ones(2))
    y = x.data
    assert type(y) is LoggingTensor
    with pytest.raises(ResizeError, match=r"aten::resize_: this tensor came from `.data`"):
        y.resize_(4)
    for wrapper in (x, y):
        assert wrapper.shape == wrapper.elem.shape == (2,)


def test_resizing_keeps_outside_and_inside_equal() -> None:
    x = LoggingTensor(torch.ones(2))
    x.resize_(4)
    assert x.shape == x.elem.shape == (4,)
    y = x.detach()
    y.resize_(3, 3)
    assert y.shape == y.elem.shape == (3, 3)  # type: ignore[attr-defined]
    assert y.stride() == y.elem.stride() == (3, 1)  # type: ignore[attr-defined]


def test_storage_raises_and_names_the_way_out() -> None:
    with pytest.raises(RuntimeError, match=r"Use tensor.elem.untyped_storage\(\)"):
        LoggingTensor(torch.ones(1)).storage()


def test_wrapper_of_a_tensor_without_memory_takes_none() -> None:
    wrapper = LoggingTensor(torch.empty(10**12, device="meta"))
    assert wrapper.shape == (10**12,)


def test_detach_shares_the_version_and_data_does_not() -> None:
    x = LoggingTensor(torch.ones(2))
    outer, inner = x._version, x.elem._version
    x.detach().add_(2)
    assert (x._version, x.elem._version) == (outer + 1, inner + 1)
    x.data.add_(2)
    assert (x._version, x.elem._version) == (outer + 1, inner + 1)
    assert x.elem.tolist() == [5.0, 5.0]


@pytest.mark.parametrize("write", [str, repr, lambda tensor: f"{tensor}"])
def test_text_is_the_class_around_the_inner_tensor(write: Any) -> None:
    assert write(LoggingTensor(torch.ones(1))) == "LoggingTensor(tensor([1.]))"


def test_format_of_a_number_is_the_number() -> None:
    assert f"{LoggingTensor(torch.ones(3)).sum():.2f}" == "3.00"


def test_printing_inside_handler_mode_and_capture_adds_no_line() -> None:
    printed = []

    class Printing(LoggingTensor):
        @classmethod
        def __torch_dispatch__(  # type: ignore[override]
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            printed.append(f"{args[0]!r} {args[0]}")
            return super().__torch_dispatch__(func, types, args, kwargs)

    x = Printing(torch.ones(1))
    with capture_logs() as logs, enable_python_mode(Printing):
        x + 1
        repr(x), str(x)
    assert logs == ["$1 = torch._ops.aten.add($0, 1)"]
    assert printed == ["Printing(tensor([1.])) Printing(tensor([1.]))"]


def test_custom_function_sees_wrappers_forward_and_backward() -> None:
    saved = []

    class Pow(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            assert isinstance(x, LoggingTensor)
            ctx.save_for_backward(x)
            return torch.pow(x, 2)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            (grad_output,) = gradients
            assert isinstance(grad_output, LoggingTensor)
            (x,) = ctx.saved_tensors
            saved.append(x)
            return grad_output * 2 * x

    with capture_logs() as logs:
        x = LoggingTensor(torch.ones(1), requires_grad=True)
        log_input("x", x)
        x.grad = LoggingTensor(torch.zeros(1))
        log_input("x.grad", x.grad)
        y = Pow.apply(x)  # type: ignore[no-untyped-call]
        grad_y = LoggingTensor(torch.ones(1))
        log_input("grad_y", grad_y)
        torch.autograd.backward((y,), (grad_y,))
    assert logs == [
        "$0 = input('x')",
        "$1 = input('x.grad')",
        "$2 = torch._ops.aten.pow($0, 2)",
        "$3 = input('grad_y')",
        "$4 = torch._ops.aten.mul($3, 2)",
        "$5 = torch._ops.aten.mul($4, $0)",
        "$6 = torch._ops.aten.add_($1, $5)",
    ]
    assert saved[0] is x
    assert saved[0]._version == x._version


def test_plain_subclass_of_a_wrapper_is_refused() -> None:
    class Plain(torch.Tensor):
        pass

    x = LoggingTensor(torch.ones(1))
    for make in (
        lambda: torch.Tensor._make_subclass(Plain, x),
        lambda: x.as_subclass(Plain),
        lambda: Plain(x),
    ):
        with pytest.raises(RuntimeError, match="already associated"):
            make()  # type: ignore[no-untyped-call]


def test_wrapper_of_a_class_without_handler_is_refused() -> None:
    class Plain(torch.Tensor):
        pass

    with pytest.raises(TypeError, match="must define __torch_dispatch__"):
        torch.Tensor._make_wrapper_subclass(Plain, (2,))


def test_outside_has_place_and_strides_of_the_inner_tensor() -> None:
    inner = torch.randn(4, 6).t().diagonal(offset=2)
    wrapper = LoggingTensor(inner)
    for ask in (torch.Tensor.size, torch.Tensor.stride, torch.Tensor.storage_offset):
        assert ask(wrapper) == ask(inner)


def test_saved_and_loaded_with_default_arguments() -> None:
    x = LoggingTensor(torch.randn(2))
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    loaded = torch.load(file)
    assert type(loaded) is LoggingTensor
    assert loaded is not x
    assert torch.equal(loaded.elem, x.elem)


def test_deepcopy_is_another_of_the_same() -> None:
    x = LoggingTensor(torch.randn(2))
    other = copy.deepcopy(x)
    assert type(other) is LoggingTensor
    assert other.elem is not x.elem
    assert torch.equal(other.elem, x.elem)


def test_python_mode_makes_factories_and_plain_operators_give_wrappers() -> None:
    x, y = torch.ones(2), torch.ones(2)
    with enable_python_mode(LoggingTensor):
        assert type(torch.empty([])) is LoggingTensor
        total = x + y
        with no_dispatch():
            assert type(torch.ones([2, 3])) is torch.Tensor
    assert isinstance(total, LoggingTensor)
    assert total.elem.tolist() == [2.0, 2.0]


def test_storage_of_the_mode_can_be_set() -> None:
    with enable_python_mode(LoggingTensor):
        storage = torch.UntypedStorage()
        wrapper = LoggingTensor(torch.empty([]))
        wrapper.set_(storage)
    assert wrapper.shape == wrapper.elem.shape == (0,)


@pytest.mark.parametrize("method", ["tolist", "numpy"])
def test_conversion_is_refused_as_not_supported(method: str) -> None:
    with pytest.raises(MemorylessError, match="is not supported for tensor subclasses"):
        getattr(LoggingTensor(torch.ones(2)), method)()


def test_inner_graph_is_the_inner_tensors_own() -> None:
    inner = torch.ones(2, requires_grad=True)
    out = LoggingTensor(inner) + 2
    assert not out.requires_grad
    assert out.grad_fn is None
    assert out.elem.requires_grad  # type: ignore[attr-defined]
    assert out.elem.grad_fn is not None  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="does not require grad"):
        out.sum().backward()
    out.elem.sum().backward()  # type: ignore[attr-defined]
    assert inner.grad is not None
    assert inner.grad.tolist() == [1.0, 1.0]


def test_wrapper_that_requires_grad_has_a_detached_inner_tensor() -> None:
    inner = torch.ones(2, requires_grad=True)
    wrapper = LoggingTensor(inner, requires_grad=True)
    assert wrapper.requires_grad
    assert wrapper.is_leaf
    assert not wrapper.elem.requires_grad


def test_capture_works_beside_configured_logging(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), capture_logs() as logs:
        LoggingTensor(torch.ones(1)) * 2
    assert logs == ["$1 = torch._ops.aten.mul($0, 2)"]
    assert caplog.records == []


def test_default_elision_agrees_with_the_handle() -> None:
    handle = handle_of("aten::addmv")
    values = handle.bind((1, 2, 3), {"beta": 1, "alpha": 2})
    assert handle.elide(values) == ((1, 2, 3), {"alpha": 2})
