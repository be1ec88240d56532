"""Operators on lists, with `out`, or with several results: as on plain tensors, to the version."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from subclass_utils import WrapperTensor

Wrap = Callable[[torch.Tensor], Any]


class Marked(WrapperTensor):
    """A transparent wrapper with metadata."""

    metadata = ("mark",)
    mark = "none"


def foreach_on_shared(wrap: Wrap) -> list[Any]:
    """Write two views of one tensor, and a tensor that stands twice in the list."""
    base, twice = wrap(torch.arange(6.0)), wrap(torch.ones(2))
    views = [base[:2], base[2:], twice, twice]
    torch._foreach_add_(views, 1.0)
    torch._foreach_mul_(views, [wrap(torch.full(v.size(), 2.0)) for v in views])
    return [base, *views]


def foreach_of_two_depths(wrap: Wrap) -> list[Any]:
    """Write tensors by the values of wrappers of wrappers."""
    values = [wrap(torch.arange(3.0)), wrap(torch.ones(2))]
    torch._foreach_mul_(values, [wrap(value.detach()) for value in values])
    return values


def foreach_new(wrap: Wrap) -> list[Any]:
    """Make new lists of one and of two."""
    a, b = wrap(torch.arange(4.0)), wrap(torch.ones(2, 2).t())
    return [*torch._foreach_mul([a, b], 2.0), *torch._foreach_add([a, b], [a, b], alpha=2)]


def out_that_fits(wrap: Wrap) -> list[Any]:
    """Write an out of the right size, also one that is an argument."""
    a, out = wrap(torch.arange(4.0)), wrap(torch.zeros(4))
    torch.mul(a, a, out=out)
    torch.add(out, a, alpha=3, out=out)
    torch.cumsum(a, 0, out=a)
    return [a, out]


def out_in_a_view(wrap: Wrap) -> list[Any]:
    """Write a part of a tensor."""
    base = wrap(torch.zeros(3, 4))
    column = base[:, 1]
    torch.sin(wrap(torch.arange(3.0)), out=column)
    return [base, column]


def out_that_is_resized(wrap: Wrap) -> list[Any]:
    """Write an out that has no memory yet."""
    a, out = wrap(torch.ones(3, 4)), wrap(torch.empty(0))
    torch.mm(a, a.t(), out=out)
    clamped = wrap(torch.empty(0))
    torch.clamp(out, None, wrap(torch.full((3, 3), 2.0)), out=clamped)
    return [out, out.t() + out, clamped]


def views(wrap: Wrap) -> list[Any]:
    """Split, and write a part."""
    base = wrap(torch.arange(12.0).view(3, 4).clone())
    parts = [*base.split(2), *base.unbind(1), *base.chunk(2, 1)]
    parts[1].add_(1)
    return [base, *parts]


def several(wrap: Wrap) -> list[Any]:
    """Give several results, of which some hold integers, with and without optional tensors."""
    a = wrap(torch.tensor([[3.0, 1.0, 2.0], [0.5, 4.0, 1.0]]))
    weight = wrap(torch.ones(3))
    with_both = torch.ops.aten.native_layer_norm.default(a, [3], weight, weight, 1e-5)
    without = torch.ops.aten.native_layer_norm.default(a, [3], None, None, 1e-5)
    return [*a.max(1), *a.sort(1), *with_both, *without]


def optional(wrap: Wrap) -> list[Any]:
    """Leave an optional tensor away, or give it."""
    image, filters = wrap(torch.ones(1, 1, 4, 4)), wrap(torch.ones(2, 1, 2, 2))
    conv = torch.nn.functional.conv2d
    return [conv(image, filters), conv(image, filters, wrap(torch.arange(2.0)))]


def joined(wrap: Wrap) -> list[Any]:
    """Join lists, also of mixed dtypes."""
    a, b = wrap(torch.arange(4.0)), wrap(torch.arange(4))
    return [torch.cat([a, b]), torch.stack([a, a], 1)]


def numbers(wrap: Wrap) -> list[Any]:
    """Write in place, with tensors and numbers."""
    a = wrap(torch.arange(1.0, 5.0))
    a.mul_(a).add_(2).div_(wrap(torch.full((4,), 2.0))).copy_(a.flip(0)).clamp_(min=1)
    return [a.addcmul_(a, a, value=2)]


CALLS = [
    foreach_on_shared,
    foreach_of_two_depths,
    foreach_new,
    out_that_fits,
    out_in_a_view,
    out_that_is_resized,
    views,
    several,
    optional,
    joined,
    numbers,
]


def told(value: Any) -> tuple[Any, ...]:
    """Say all that two tensors have to agree in."""
    plain = value.to_plain() if isinstance(value, WrapperTensor) else value
    version = None if value.is_inference() else value._version
    inner = None if plain.is_inference() else plain._version
    outside = (value.size(), value.stride(), value.storage_offset(), value.dtype)
    return (*outside, value.is_inference(), value._is_view(), version, inner, plain.tolist())


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
@pytest.mark.parametrize("mode", [nullcontext, torch.no_grad, torch.inference_mode])
def test_results_are_those_of_a_plain_run(
    call: Callable[[Wrap], list[Any]], mode: Callable[[], AbstractContextManager[Any]]
) -> None:
    with mode():
        wanted = [told(value) for value in call(lambda plain: plain)]
        got = call(lambda plain: Marked(plain, mark="seen"))
        assert all(type(value) is Marked for value in got)
        assert {value.mark for value in got} == {"seen"}
        assert [told(value) for value in got] == wanted


def test_lists_that_require_grad_are_differentiated_as_plain_ones() -> None:
    def run(wrap: Wrap) -> list[Any]:
        leaf = wrap(torch.arange(1.0, 5.0)).requires_grad_()
        first, second = (leaf * 1).split(2)
        joined = torch.cat(torch._foreach_mul([leaf * 2, leaf * 3], 2.0))
        copies = [leaf * 1, leaf * 2]
        torch._foreach_mul_(copies, 3.0)
        (joined.sum() + (first * second).sum() + sum(copies).sum()).backward()
        return [leaf.grad, *copies]

    got, wanted = run(Marked), run(lambda plain: plain)
    assert [value.tolist() for value in wanted[:1]] == [got[0].to_plain().tolist()]
    assert [value._version for value in got[1:]] == [value._version for value in wanted[1:]]


def test_inner_tensors_of_a_list_that_require_grad_keep_their_graph() -> None:
    inner = torch.arange(4.0, requires_grad=True)
    wrapped: Any = Marked(inner * 1)
    joined: Any = torch.cat([wrapped, wrapped])
    joined.elem.sum().backward()
    assert inner.grad is not None
    assert inner.grad.tolist() == [2.0] * 4


class WithHandler(Marked):
    """The same, with a handler, so that it is shown the parts of composite operators."""


@WithHandler.table.implements(torch.ops.aten.mm.default)
def _mm(self: Any, mat2: Any) -> Any:
    return WithHandler.run_without_handler(torch.ops.aten.mm.default, self, mat2)


RANKS: dict[str, Callable[..., Any]] = {
    "default": lambda x, out: torch.linalg.matrix_rank(x, out=out),
    "atol": lambda x, out: torch.linalg.matrix_rank(x, atol=0.1, rtol=0.1, out=out),
    "atol tensor": lambda x, out: torch.linalg.matrix_rank(x, atol=torch.tensor(0.1), out=out),
    "tol": lambda x, out: torch.linalg.matrix_rank(x, 0.1, out=out),
    "tol tensor": lambda x, out: torch.linalg.matrix_rank(x, torch.tensor(0.1), out=out),
}


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("cls", [Marked, WithHandler])
@pytest.mark.parametrize("name", RANKS)
def test_rank_is_written_to_out(name: str, cls: Any, watched: bool) -> None:
    from dispatch_core import Recorder

    for size in ((), (0,)):
        out: Any = cls(torch.full(size, 7), mark="out")
        with Recorder() if watched else nullcontext():
            given = RANKS[name](cls(torch.ones(3, 3)), out)
        assert given is out
        assert out.elem.tolist() == 1
        assert out.mark == "out"
    with pytest.raises(RuntimeError, match="dtype"):
        RANKS[name](cls(torch.ones(3, 3)), cls(torch.tensor(True)))
