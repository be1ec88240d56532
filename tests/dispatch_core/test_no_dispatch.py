"""no_dispatch: plain computing, and an error instead of a crash where there is no memory."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from dispatch_core import (
    DispatchMode,
    HandlerTable,
    MemorylessError,
    enable_python_mode,
    no_dispatch,
    propagate_modes,
)

from tests.dispatch_core.wrapping import Direct, Wrapped

ROOT = Path(__file__).parents[2]


class Logging(DispatchMode):
    """Notes what it sees, and passes it on."""

    table = HandlerTable()

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


USES: dict[str, Callable[[Any], object]] = {
    "binary": lambda w: w + 1,
    "plain first": lambda w: torch.ones(3) * w,
    "list": lambda w: torch.cat([torch.ones(3), w]),
    "optional list": lambda w: torch.ones(3)[w],
    "keyword": lambda w: torch.abs(torch.ones(3), out=w),
    "write": lambda w: w.fill_(1),
    "copy from": lambda w: torch.ones(3).copy_(w),
    "view": lambda w: w.view(-1),
    "detach": lambda w: w.detach(),
    "reduce": lambda w: w.sum(),
    "matmul": lambda w: w @ w,
    "item": lambda w: w[0].item(),
    "foreach": lambda w: torch._foreach_add_([w], 1),
    "composite": lambda w: torch.nn.functional.linear(w, w),
    "comparison": lambda w: w == 1,
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(
    "options", [{}, {"storage_offset": 5, "strides": (1,)}, {"strides": (0,)}, {"size": (10**12,)}]
)
def test_wrapper_is_refused(use: str, options: dict[str, Any]) -> None:
    w = Wrapped(torch.ones(3), **options)
    with no_dispatch(), pytest.raises(MemorylessError):
        USES[use](w)


def test_error_names_operator_argument_class_and_remedy() -> None:
    with no_dispatch(), pytest.raises(MemorylessError) as caught:
        torch.ones(3) + Wrapped(torch.ones(3))
    assert str(caught.value) == (
        "aten::add.Tensor: argument 'other' is a Wrapped, which wraps a tensor and has no memory "
        "of its own, and no_dispatch() turned its __torch_dispatch__ off. Pass the tensor that it "
        "wraps, or leave no_dispatch() for this operator."
    )
    assert caught.value.overload is torch.ops.aten.add.Tensor
    assert caught.value.argument == "other"
    assert caught.value.cls is Wrapped


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_wrapper_of_another_layout_is_refused(layout: torch.layout) -> None:
    w = Wrapped(torch.ones(2, 2), layout=layout)
    with no_dispatch(), pytest.raises(MemorylessError):
        w + 1


def test_wrapper_that_requires_grad_is_refused() -> None:
    w = Wrapped(torch.ones(3), requires_grad=True)
    with no_dispatch(), pytest.raises(MemorylessError):
        (w * 2).sum().backward()


def test_subclass_with_memory_computes() -> None:
    d = torch.tensor([1.0, -2.0]).as_subclass(Direct)
    with no_dispatch():
        result = d.abs()
    assert type(result) is torch.Tensor
    assert result.tolist() == [1, 2]


def test_complex_subclass_with_memory_computes() -> None:
    plain = torch.tensor([1 + 2j, -1j])
    x = plain.as_subclass(Direct)
    assert torch.equal(x.conj().exp(), plain.conj().exp())


def test_gradients_are_recorded_as_without() -> None:
    x = torch.ones(2, requires_grad=True)
    with no_dispatch():
        (x * 3).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3, 3]


def test_mode_outside_sees_nothing() -> None:
    with Logging() as mode, no_dispatch():
        torch.ones(2)
    assert mode.seen == []


def test_mode_inside_sees_the_operators_and_passes_them_on_plain() -> None:
    d = torch.ones(2).as_subclass(Direct)
    with Logging() as outer, no_dispatch(), Logging() as inner:
        result = d + 1
    assert inner.seen == ["aten.add.Tensor"]
    assert outer.seen == []
    assert type(result) is torch.Tensor


def test_wrapper_under_a_mode_inside_is_refused() -> None:
    with no_dispatch(), Logging(), pytest.raises(MemorylessError):
        Wrapped(torch.ones(2)) + 1


def test_nested_and_left_by_an_exception() -> None:
    def look_and_fail() -> None:
        assert type(torch.ones(1)) is torch.Tensor
        raise KeyError

    with enable_python_mode(Wrapped):
        with pytest.raises(KeyError), no_dispatch(), no_dispatch():
            look_and_fail()
        assert type(torch.ones(1)) is Wrapped


def test_the_same_object_may_be_entered_twice() -> None:
    off = no_dispatch()
    with enable_python_mode(Wrapped), off:
        with off:
            pass
        assert type(torch.ones(1)) is torch.Tensor


def test_error_of_an_operator_passes_and_dispatch_comes_back() -> None:
    with enable_python_mode(Wrapped):
        with pytest.raises(RuntimeError, match="must match"), no_dispatch():
            torch.ones(2) + torch.ones(3)
        assert type(torch.ones(1)) is Wrapped


def test_other_thread_is_not_affected() -> None:
    types: list[type] = []

    def work() -> None:
        with enable_python_mode(Wrapped):
            types.append(type(torch.ones(1)))

    with no_dispatch():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert types == [Wrapped]


def test_carried_to_another_thread() -> None:
    errors: list[Exception] = []

    def work() -> None:
        try:
            Wrapped(torch.ones(1)) + 1
        except MemorylessError as error:
            errors.append(error)

    with no_dispatch():
        thread = threading.Thread(target=propagate_modes(work))
        thread.start()
        thread.join()
    assert len(errors) == 1


def test_decorated_generator_is_off_only_while_it_runs() -> None:
    @no_dispatch()
    def plain_ones() -> Iterator[Any]:
        for _ in range(2):
            yield torch.ones(1)

    with enable_python_mode(Wrapped):
        made = []
        for value in plain_ones():
            made.append((type(value), type(torch.ones(1))))
    assert made == [(torch.Tensor, Wrapped)] * 2


def test_generator_that_holds_it_open_may_end_out_of_order() -> None:
    def plain_ones() -> Generator[Any]:
        with no_dispatch():
            yield torch.ones(1)

    with Logging() as outer:
        generator = plain_ones()
        next(generator)
        with Logging() as inner:
            generator.close()  # leaves no_dispatch while another mode is above it
            torch.ones(1)
        torch.ones(1)
    assert (len(inner.seen), len(outer.seen)) == (1, 2)


def test_empty_wrapper_computes_because_nothing_is_read() -> None:
    with no_dispatch():
        assert Wrapped(torch.ones(0)).sum().item() == 0


def test_meta_wrapper_computes_because_nothing_is_read() -> None:
    with no_dispatch():
        assert (Wrapped(torch.ones(2, device="meta")) + 1).is_meta


@pytest.mark.slow
def test_no_use_ends_the_process() -> None:
    program = """
        import torch
        from dispatch_core import no_dispatch
        from tests.dispatch_core.test_no_dispatch import USES
        from tests.dispatch_core.wrapping import Wrapped

        refused = 0
        for use in USES.values():
            with no_dispatch():
                try:
                    use(Wrapped(torch.ones(3)))
                except RuntimeError:
                    refused += 1
        print(refused, len(USES))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.split()) == (0, [str(len(USES))] * 2), done.stderr
