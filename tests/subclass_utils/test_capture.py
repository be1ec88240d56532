"""Captures: several at once, in threads, across exceptions, their options, what they keep."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
import torch
from dispatch_core import propagate_modes
from subclass_utils import LoggingTensor, capture_logs, log_input


def test_two_captures_number_for_themselves() -> None:
    x = LoggingTensor(torch.ones(1))
    with capture_logs() as outer:
        y = x + 1
        with capture_logs() as inner:
            y * x
    assert outer == ["$1 = torch._ops.aten.add($0, 1)", "$2 = torch._ops.aten.mul($1, $0)"]
    assert inner == ["$2 = torch._ops.aten.mul($0, $1)"]


def test_nothing_is_written_outside_of_a_capture() -> None:
    x = LoggingTensor(torch.ones(1))
    with capture_logs() as logs:
        pass
    x + 1
    log_input("x", x)
    assert logs == []


def test_operator_that_raised_leaves_no_line_and_takes_no_number() -> None:
    x, y = LoggingTensor(torch.ones(2)), LoggingTensor(torch.ones(3))
    with capture_logs() as logs:
        with pytest.raises(RuntimeError, match="must match"):
            x + y
        y + 1
    assert logs == ["$1 = torch._ops.aten.add($0, 1)"]


def test_capture_closes_on_an_exception() -> None:
    x = LoggingTensor(torch.ones(1))
    logs: list[str] = []

    def raise_inside() -> None:
        nonlocal logs
        with capture_logs() as logs:
            x + 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        raise_inside()
    x + 2
    assert len(logs) == 1


def test_number_is_never_given_again() -> None:
    with capture_logs() as logs:
        for _ in range(3):
            LoggingTensor(torch.ones(1)) * 2
            gc.collect()
    assert logs == [f"${2 * n + 1} = torch._ops.aten.mul(${2 * n}, 2)" for n in range(3)]


def test_log_keeps_no_tensor_alive() -> None:
    with capture_logs(all_tensors=True) as logs:
        x = LoggingTensor(torch.ones(1))
        y = x + torch.ones(1)
        seen = [weakref.ref(x.elem), weakref.ref(y.elem)]  # type: ignore[attr-defined]
        del x, y
        gc.collect()
        assert [ref() for ref in seen] == [None, None]
    assert len(logs) == 1


def test_in_place_result_is_numbered_anew_and_the_tensor_keeps_its_number() -> None:
    x = LoggingTensor(torch.ones(1))
    with capture_logs() as logs:
        x.add_(1)
        x.mul_(2)
    assert logs == ["$1 = torch._ops.aten.add_($0, 1)", "$2 = torch._ops.aten.mul_($0, 2)"]


def test_plain_tensor_is_written_as_itself_unless_all_are_asked_for() -> None:
    x, y = LoggingTensor(torch.ones(1)), torch.zeros(1)
    with capture_logs() as logs, capture_logs(all_tensors=True) as numbered:
        x + y
    assert logs == ["$1 = torch._ops.aten.add($0, tensor([0.]))"]
    assert numbered == ["$2 = torch._ops.aten.add($0, $1)"]


def test_options_write_overloads_and_types() -> None:
    x = LoggingTensor(torch.ones(1))
    with capture_logs(overloads=True, types=True) as logs:
        log_input("x", x)
        torch.mul(x, x)
        x.to(torch.bfloat16).view(1, 1)
    assert logs == [
        "$0: f32[1] = input('x')",
        "$1: f32[1] = torch._ops.aten.mul.Tensor($0: f32[1], $0: f32[1])",
        "$2: bf16[1] = torch._ops.aten._to_copy.default($0: f32[1], dtype=torch.bfloat16)",
        "$3: bf16[1, 1] = torch._ops.aten.view.default($2: bf16[1], [1, 1])",
    ]


def test_option_stacks_names_the_place_of_the_call() -> None:
    x = LoggingTensor(torch.ones(1))
    with capture_logs(stacks=True) as logs:
        x + 1
    line, _, stack = logs[0].partition("  # ")
    assert line == "$1 = torch._ops.aten.add($0, 1)"
    assert stack.startswith(f"{__file__}:")
    assert " in test_option_stacks_names_the_place_of_the_call" in stack


def test_each_of_eight_threads_has_its_own_capture() -> None:
    found: dict[int, list[str]] = {}

    def work(count: int) -> None:
        with capture_logs() as logs:
            x = LoggingTensor(torch.ones(1))
            for _ in range(count):
                x = x + 1  # type: ignore[assignment]
        found[count] = list(logs)

    threads = [threading.Thread(target=work, args=(count,)) for count in range(8)]
    with capture_logs() as own:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert own == []
    assert found == {
        count: [f"${n + 1} = torch._ops.aten.add(${n}, 1)" for n in range(count)]
        for count in range(8)
    }


def test_propagated_thread_writes_to_the_capture_that_started_it() -> None:
    x = LoggingTensor(torch.ones(1))
    with capture_logs() as logs:
        thread = threading.Thread(target=propagate_modes(lambda: x + 1))
        thread.start()
        thread.join()
    assert logs == ["$1 = torch._ops.aten.add($0, 1)"]


def test_foreach_in_place_gives_nothing_back() -> None:
    xs = [LoggingTensor(torch.ones(1)), LoggingTensor(torch.ones(1))]
    with capture_logs() as logs:
        torch._foreach_add_(xs, 1)  # type: ignore[arg-type]
    assert logs == ["None = torch._ops.aten._foreach_add_([$0, $1], 1)"]


def test_types_of_arguments_are_those_before_the_call() -> None:
    x = LoggingTensor(torch.ones(2, 3))
    out = LoggingTensor(torch.empty(0))
    with capture_logs(types=True) as lines:
        x.t_()
        x.unsqueeze_(0)
        torch.neg(x, out=out)
        torch._foreach_add_([x], 1)
    assert lines == [
        "$1: f32[3, 2] = torch._ops.aten.t_($0: f32[2, 3])",
        "$2: f32[1, 3, 2] = torch._ops.aten.unsqueeze_($0: f32[3, 2], 0)",
        "$4: f32[1, 3, 2] = torch._ops.aten.neg($0: f32[1, 3, 2], out=$3: f32[0])",
        "None = torch._ops.aten._foreach_add_([$0: f32[1, 3, 2]], 1)",
    ]
