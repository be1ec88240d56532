"""propagate_modes and checkpoint: modes where torch would lose them."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from dispatch_core import (
    DispatchMode,
    HandlerTable,
    ModeStateError,
    Recorder,
    checkpoint,
    enable_python_mode,
    ops,
    propagate_modes,
)
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import checkpoint as torch_checkpoint

from tests.dispatch_core.wrapping import Wrapped

aten = ops.aten


def in_thread(work: Callable[[], object]) -> None:
    """Run something in a thread, and raise what it raises."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()


def names(recorder: Recorder) -> list[str]:
    return [event.name for event in recorder.events]


def stack() -> list[Any]:
    return list(torch.utils._python_dispatch._get_current_dispatch_mode_stack())


# ── threads ─────────────────────────────────────────────────────────────────────────────────────


def test_mode_does_not_follow_into_a_thread_by_itself() -> None:
    with Recorder() as recorder:
        in_thread(lambda: torch.ones(1))
    assert names(recorder) == []


def test_modes_are_carried_in_their_order() -> None:
    with Recorder() as recorder, enable_python_mode(Wrapped):
        types: list[type] = []
        in_thread(propagate_modes(lambda: types.append(type(torch.ones(1)))))
    assert types == [Wrapped]
    assert names(recorder) == ["aten::ones"]


def test_modes_are_those_of_the_moment_it_is_made() -> None:
    with Recorder() as recorder:
        work = propagate_modes(lambda: torch.ones(1))
    in_thread(work)
    work()  # type: ignore[no-untyped-call]
    assert names(recorder) == ["aten::ones"] * 2
    assert stack() == []


def test_arguments_result_and_errors_pass() -> None:
    def work(a: int, *, b: int) -> int:
        if b == 0:
            raise ZeroDivisionError
        return a + b

    with Recorder():
        carried = propagate_modes(work)
    assert carried(1, b=2) == 3
    with pytest.raises(ZeroDivisionError):
        carried(1, b=0)
    assert carried.__name__ == "work"
    assert stack() == []


def test_in_the_same_thread_nothing_is_seen_twice() -> None:
    with Recorder() as recorder:
        propagate_modes(lambda: torch.ones(1))()
    assert names(recorder) == ["aten::ones"]


def test_modes_that_are_open_at_the_call_stay() -> None:
    with Recorder() as outer:
        work = propagate_modes(lambda: torch.ones(1))
    with Recorder() as own:
        work()  # type: ignore[no-untyped-call]
        assert stack() == [own]
    assert names(outer) == names(own) == ["aten::ones"]


def test_context_variables_are_carried_and_not_given_back() -> None:
    variable = contextvars.ContextVar("variable", default=0)
    seen: list[int] = []

    def work() -> None:
        seen.append(variable.get())
        variable.set(2)

    token = variable.set(1)
    work_with_context = propagate_modes(work)
    in_thread(work_with_context)
    in_thread(work_with_context)
    variable.reset(token)
    assert seen == [1, 1]


def test_many_threads_at_once() -> None:
    with Recorder() as recorder:
        work = propagate_modes(lambda: [torch.ones(1) + i for i in range(50)])
        with ThreadPoolExecutor(4) as pool:
            for future in [pool.submit(work) for _ in range(8)]:
                future.result()
    assert len(recorder.events) == 8 * 100
    assert stack() == []


def test_generator_function_sees_the_modes_in_each_step_and_its_driver_does_not() -> None:
    def steps() -> Generator[torch.Tensor, float, str]:
        try:
            got = yield torch.ones(1)
            yield torch.full((1,), got)
        except KeyError:
            yield torch.zeros(1)
        return "done"

    with Recorder() as recorder:
        carried = propagate_modes(steps)
    generator = carried()
    next(generator)
    torch.rand(1)
    assert generator.send(3.0).item() == 3
    torch.rand(1)
    assert generator.throw(KeyError()).item() == 0
    with pytest.raises(StopIteration, match="done"):
        next(generator)
    assert names(recorder) == ["aten::ones", "aten::full", "aten::zeros"]
    carried().close()
    assert stack() == []


def test_what_a_generator_does_when_it_is_closed_is_seen_too() -> None:
    def steps() -> Generator[torch.Tensor]:
        try:
            yield torch.ones(1)
        finally:
            torch.zeros(1)

    with Recorder() as recorder:
        carried = propagate_modes(steps)
    generator = carried()
    next(generator)
    generator.close()
    assert names(recorder) == ["aten::ones", "aten::zeros"]
    assert stack() == []


# ── checkpoint ──────────────────────────────────────────────────────────────────────────────────


class Ones(DispatchMode):
    """Makes every random number 3."""

    table = HandlerTable(missing="next")


@Ones.table.implements(aten.rand_like)
def _(func: Any, *args: Any, **kwargs: Any) -> Any:
    return torch.full_like(args[0], 3.0)


def scaled(x: torch.Tensor) -> torch.Tensor:
    return (x * torch.rand_like(x)).sin()


def gradient(run: Callable[..., Any]) -> torch.Tensor:
    """Give the gradient where the mode is closed before the backward."""
    x = torch.ones(2, requires_grad=True)
    with Ones():
        y = run(scaled, x)
    y.sum().backward()
    assert x.grad is not None
    return x.grad


expected = torch.full((2,), 3 * torch.tensor(3.0).cos().item())


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_torchs_checkpoint_loses_the_mode(use_reentrant: bool) -> None:
    def run(fn: Any, x: Any) -> Any:
        return torch_checkpoint.checkpoint(fn, x, use_reentrant=use_reentrant)

    assert not torch.allclose(gradient(run), expected)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_our_checkpoint_keeps_the_mode(use_reentrant: bool) -> None:
    def run(fn: Any, x: Any) -> Any:
        return checkpoint(fn, x, use_reentrant=use_reentrant)

    torch.testing.assert_close(gradient(run), expected)
    assert stack() == []


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_propagate_modes_does_for_torchs_checkpoint(use_reentrant: bool) -> None:
    def run(fn: Any, x: Any) -> Any:
        return torch_checkpoint.checkpoint(propagate_modes(fn), x, use_reentrant=use_reentrant)

    torch.testing.assert_close(gradient(run), expected)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_backward_inside_the_mode_is_right_too(use_reentrant: bool) -> None:
    x = torch.ones(2, requires_grad=True)
    with Ones(), Recorder() as recorder:
        checkpoint(scaled, x, use_reentrant=use_reentrant).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, expected)
    assert names(recorder).count("aten::rand_like") == 2


def test_checkpoint_in_checkpoint() -> None:
    def run(fn: Any, x: Any) -> Any:
        return checkpoint(lambda a: checkpoint(fn, a).sin(), x)

    x = torch.ones(2, requires_grad=True)
    y = (x * 3).sin().sin()
    (want,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(gradient(run), want)


def test_selective_checkpoint_keeps_its_own_modes() -> None:
    context = torch_checkpoint.create_selective_checkpoint_contexts

    def run(fn: Any, x: Any) -> Any:
        return checkpoint(fn, x, context_fn=lambda: context([torch.ops.aten.rand_like.default]))  # type: ignore[no-untyped-call]

    torch.testing.assert_close(gradient(run), expected)


def test_error_in_the_recomputation_restores_the_stack() -> None:
    calls: list[int] = []

    def fails_later(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) > 1:
            raise KeyError
        return x.sin()

    x = torch.ones(1, requires_grad=True)
    with Recorder():
        y = checkpoint(fails_later, x)
    with pytest.raises(KeyError):
        y.backward()
    assert stack() == []


def test_mode_that_torch_refuses_leaves_the_stack_as_it_was() -> None:
    with FakeTensorMode() as fake:
        carried = propagate_modes(lambda: torch.ones(2))
    recorder = Recorder()
    with recorder, FakeTensorMode() as other:
        before = stack()
        with pytest.raises(ModeStateError, match="already exists"):
            carried()  # type: ignore[no-untyped-call]
        assert stack() == before
        torch.ones(1)
    assert fake is not other
    assert stack() == []
    assert type(carried()).__name__ == "FakeTensor"  # type: ignore[no-untyped-call]


def test_thread_that_outlives_the_mode() -> None:
    started, go_on = threading.Event(), threading.Event()
    recorder = Recorder()

    def work() -> None:
        started.set()
        go_on.wait(10)
        torch.ones(1)

    with recorder:
        thread = threading.Thread(target=propagate_modes(work))
        thread.start()
        started.wait(10)
    go_on.set()
    thread.join()
    assert names(recorder) == ["aten::ones"]


def test_modes_that_threads_leave_in_any_order_are_not_counted_as_open() -> None:
    def is_open() -> bool:
        flag: bool = torch.utils._python_dispatch.is_in_torch_dispatch_mode()
        return flag

    assert not is_open()
    inside, left = threading.Event(), threading.Event()

    def work() -> None:
        with DispatchMode():
            inside.set()
            left.wait(10)

    with ThreadPoolExecutor(1) as pool:
        with DispatchMode():
            running = pool.submit(work)
            assert inside.wait(10)
        left.set()
        running.result()
    assert not is_open()
