"""keep_composite over torch's own list: the results and gradients of every composite operator."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from dispatch_core import DispatchMode, handle_of, keep_composite

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # torch's list calls much that is deprecated
]

PART = 10  # every tenth operator in the normal run


def op_infos() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return [info for info in op_db if torch.float64 in info.dtypes and info.supports_autograd]


class Seen(DispatchMode):
    """Notes the overloads that arrive."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: set[Any] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.ops.add(func)
        return func(*args, **kwargs)


def composites() -> tuple[Any, ...]:
    """Give every composite operator of aten that works on tensors alone."""
    found = []
    for name in torch._C._dispatch_get_all_op_names():
        if name.startswith("aten::") and torch._C._dispatch_has_kernel_for_dispatch_key(
            name, "CompositeImplicitAutograd"
        ):
            found.append(handle_of(name).torch_op)
    return tuple(found)


def samples(info: Any, most: int) -> Iterator[Any]:
    torch.manual_seed(0)
    try:
        generator = info.sample_inputs("cpu", torch.float64, requires_grad=True)
        for _, sample in zip(range(most), generator, strict=False):
            yield sample
    except (RuntimeError, NotImplementedError, ImportError) as error:
        pytest.skip(f"torch cannot make samples of {info.name} here: {error}")


def differentiable(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value] if value.requires_grad else []
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in differentiable(item)]
    return []


def leaves_of(sample: Any) -> list[torch.Tensor]:
    found = differentiable([sample.input, *sample.args, *sample.kwargs.values()])
    return list({id(tensor): tensor for tensor in found}.values())


def run(info: Any, sample: Any, scope: Any) -> list[Any]:
    """Give the results, their gradients, and the gradients of those."""
    fresh = sample.transform(
        lambda value: (
            value.detach().clone().requires_grad_(value.requires_grad)
            if isinstance(value, torch.Tensor)
            else value
        )
    )
    torch.manual_seed(1)
    with scope:
        results = differentiable(info.op(fresh.input, *fresh.args, **fresh.kwargs))
        leaves = leaves_of(fresh)
        if not results or not leaves:
            return results
        total: Any = sum((value.abs() ** 2).sum() for value in results)
        again = info.supports_gradgrad
        first = torch.autograd.grad(total, leaves, create_graph=again, allow_unused=True)
        second: list[Any] = []
        if again:
            square: Any = sum((g.abs() ** 2).sum() for g in first if g is not None)
            if isinstance(square, torch.Tensor) and square.requires_grad:
                second = list(torch.autograd.grad(square, leaves, allow_unused=True))
    return [*results, *first, *second]


def zero_for_none(values: list[Any]) -> list[Any]:
    return [torch.zeros(()) if value is None else value.detach() for value in values]


def compare(info: Any, most: int) -> None:
    kept = composites()
    for sample in samples(info, most):
        try:
            expected = run(info, sample, contextlib.nullcontext())
        except RuntimeError:
            continue  # no gradient without it either
        with keep_composite(*kept), Seen() as seen:
            found = run(info, sample, contextlib.nullcontext())
        assert seen.ops
        for want, got in zip(zero_for_none(expected), zero_for_none(found), strict=True):
            got = got.expand_as(want) if got.dim() == 0 else got
            torch.testing.assert_close(got, want, equal_nan=True)


def tensors_of(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in tensors_of(item)]
    return []


def gradient_of_one(info: Any, sample: Any, position: int, *, write: bool) -> Any:
    """Give the gradient of one argument; the others need none, and may be written before it."""
    fresh = sample.transform(
        lambda value: value.detach().clone() if isinstance(value, torch.Tensor) else value
    )
    given = tensors_of([fresh.input, fresh.args, fresh.kwargs])
    leaf = [tensor for tensor in given if tensor.is_floating_point()][position].requires_grad_()
    torch.manual_seed(1)
    results = differentiable(info.op(fresh.input, *fresh.args, **fresh.kwargs))
    if not results or any(tensor.layout is not torch.strided for tensor in (*given, *results)):
        return None
    if write:
        with torch.no_grad():
            for tensor in given:
                if tensor is not leaf:
                    tensor.fill_(1)
    total: Any = sum(value.abs().sum() for value in results)
    return torch.autograd.grad(total, leaf, allow_unused=True)[0]


def compare_after_writes(info: Any, most: int) -> None:
    kept = composites()
    for sample in samples(info, most):
        for position in range(2):
            try:
                want = gradient_of_one(info, sample, position, write=False)
            except (RuntimeError, IndexError):
                continue  # no gradient without it either
            if want is None:
                continue
            try:
                with keep_composite(*kept), Seen():
                    found = gradient_of_one(info, sample, position, write=True)
            except RuntimeError as error:
                if "modified by an inplace operation" not in str(error):
                    raise
            else:
                torch.testing.assert_close(found, want, equal_nan=True)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test the operators that its run has time for."""
    infos = op_infos()
    if metafunc.function.__name__.startswith("test_some_"):
        infos = infos[::PART]
    metafunc.parametrize("info", infos, ids=[info.full_name for info in infos])


def test_some_operators_have_their_gradients(info: Any) -> None:
    compare(info, 1)


@pytest.mark.long
def test_all_operators_have_their_gradients(info: Any) -> None:
    compare(info, 3)


def test_some_writes_after_the_call_are_noticed_or_do_no_harm(info: Any) -> None:
    compare_after_writes(info, 1)


@pytest.mark.long
def test_all_writes_after_the_call_are_noticed_or_do_no_harm(info: Any) -> None:
    compare_after_writes(info, 3)
