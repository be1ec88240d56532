"""Where in the user's program an exception was raised that leaves a trace."""

from __future__ import annotations

import contextlib
import dataclasses
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from guards import (
    CompileContext,
    TracingContext,
    compile_context,
    tracing,
)

from tests.guards.traces import ID, frame, functions


def raised(*scopes: Any, error: Exception | None = None) -> Any:
    """Raise inside these scopes, and give what came out."""
    error = error or ZeroDivisionError()

    def nested(*scopes: Any) -> None:
        if not scopes:
            raise error
        with scopes[0]() if callable(scopes[0]) else scopes[0]:
            nested(*scopes[1:])

    with pytest.raises(type(error)) as caught:
        nested(*scopes)
    assert caught.value is error
    return error


def located(name: str) -> Callable[[], Any]:
    def scope() -> Any:
        TracingContext.set_current_loc("user.py", 5, name)
        return contextlib.nullcontext()

    return scope


def test_tracing_gives_the_stack_of_the_moment() -> None:
    error = raised(tracing(TracingContext(None)), located("f"))
    assert functions(error.real_stack) == ["f"]
    assert isinstance(error.real_stack, traceback.StackSummary)


def test_without_a_trace_there_is_no_stack() -> None:
    assert not hasattr(raised(tracing(None)), "real_stack")
    assert not hasattr(raised(compile_context(CompileContext(None))), "real_stack")


def test_current_frame_gives_the_stack_of_the_innermost_frame(context: TracingContext) -> None:
    for outermost in (None, frame("a")):
        error = raised(
            TracingContext.current_frame(outermost),
            TracingContext.current_frame(frame("b")),
            located("c"),
        )
        assert functions(error.real_stack) == ["a"] * (outermost is not None) + ["b", "c"]
    assert context.frame_summary_stack == []


def test_clear_frame_keeps_frames_further_out_from_being_blamed(context: TracingContext) -> None:
    error = raised(TracingContext.current_frame(frame("a")), TracingContext.clear_frame())
    assert error.real_stack is None


def test_a_stack_inside_clear_frame_is_respected(context: TracingContext) -> None:
    error = raised(
        TracingContext.current_frame(frame("a")),
        TracingContext.clear_frame(),
        TracingContext.current_frame(frame("b")),
    )
    assert functions(error.real_stack) == ["b"]


def test_patch_and_strides_leave_the_stack_to_others(context: TracingContext) -> None:
    error = raised(TracingContext.patch(fw_metadata=1), TracingContext.report_output_strides())
    assert not hasattr(error, "real_stack")


def test_a_stack_that_is_there_stays(context: TracingContext) -> None:
    for own in (None, ["own"]):
        error = ZeroDivisionError()
        error.real_stack = own  # type: ignore[attr-defined]
        raised(TracingContext.current_frame(frame("a")), located("b"), error=error)
        assert error.real_stack is own  # type: ignore[attr-defined]


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    text: str = "frozen"


class Slotted(Exception):
    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(name)


class Hostile(Exception):
    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)


@pytest.mark.parametrize("kind", [Frozen, Slotted, Hostile])
def test_an_exception_that_takes_no_attributes_passes_through(kind: type[Exception]) -> None:
    context = TracingContext(None)
    raised(
        compile_context(CompileContext(ID)),
        tracing(context),
        lambda: TracingContext.current_frame(frame("a")),
        lambda: TracingContext.clear_frame(),
        lambda: TracingContext.patch(fw_metadata=1),
        lambda: TracingContext.report_output_strides(),
        error=kind(),
    )
    assert TracingContext.try_get() is None
    assert CompileContext.try_get() is None
    assert context.frame_summary_stack == []
    assert (context.fw_metadata, context.output_strides) == (None, None)


def test_stop_iteration_passes_through(context: TracingContext) -> None:
    raised(TracingContext.current_frame(frame("a")), error=StopIteration("inner"))


def test_a_keyboard_interrupt_gets_no_stack(context: TracingContext) -> None:
    with pytest.raises(KeyboardInterrupt) as caught, TracingContext.current_frame(frame("a")):
        raise KeyboardInterrupt
    assert not hasattr(caught.value, "real_stack")
    assert context.frame_summary_stack == []
