"""After any nesting of scopes, successes and failures, everything is as it was before."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
from guards import CompileContext, CompileId, TracingContext, compile_context, tracing
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

PATCHES: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.sampled_from(["fw_metadata", "params_flat", "frame_summary_stack", "output_strides"]),
    st.builds(list),
    max_size=3,
)


class Failure(Exception):
    pass


class Scopes(RuleBasedStateMachine):
    """Enter and leave scopes as a program would, and keep a model of what must come back."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[tuple[str, Any, Any]] = []
        self.count = 0

    def state(self) -> Any:
        context = TracingContext.try_get()
        if context is None:
            return CompileContext.try_get(), None
        values = {
            name: list(value) if name == "frame_summary_stack" else id(value)
            for name, value in vars(context).items()
            if name not in ("loc_in_frame", "loc_in_frame_positions")
        }
        return CompileContext.try_get(), context, values, context.loc_in_frame

    def enter(self, kind: str, scope: Any) -> None:
        before = self.state()
        scope.__enter__()
        self.open.append((kind, scope, before))

    @precondition(lambda self: len(self.open) < 12)
    @rule(nothing=st.booleans())
    def trace(self, nothing: bool) -> None:
        self.enter("tracing", tracing(None if nothing else TracingContext(None)))

    @precondition(lambda self: len(self.open) < 12)
    @rule(number=st.integers(0, 9))
    def compilation(self, number: int) -> None:
        compile_id = CompileId(frame_id=number, frame_compile_id=0)
        self.enter("compile", compile_context(CompileContext(compile_id)))

    @precondition(lambda self: TracingContext.try_get() is not None and len(self.open) < 12)
    @rule(known=st.booleans())
    def frame(self, known: bool) -> None:
        self.count += 1
        summary = traceback.FrameSummary("u.py", self.count, "f", lookup_line=False)
        self.enter("frame", TracingContext.current_frame(summary if known else None))

    @precondition(lambda self: TracingContext.try_get() is not None and len(self.open) < 12)
    @rule()
    def no_frame(self) -> None:
        self.enter("clear", TracingContext.clear_frame())

    @precondition(lambda self: TracingContext.try_get() is not None and len(self.open) < 12)
    @rule(attributes=PATCHES)
    def patch(self, attributes: dict[str, Any]) -> None:
        self.enter("patch", TracingContext.patch(**attributes))

    @precondition(lambda self: len(self.open) < 12)
    @rule()
    def strides(self) -> None:
        self.enter("strides", TracingContext.report_output_strides())

    @precondition(lambda self: TracingContext.try_get() is not None)
    @rule(line=st.integers(1, 99))
    def location(self, line: int) -> None:
        TracingContext.set_current_loc("u.py", line, "f")

    @precondition(lambda self: TracingContext.try_get() is not None)
    @rule()
    def refused_patch(self) -> None:
        before = self.state()
        with pytest.raises(AttributeError):
            TracingContext.patch(fw_metadata=1, nonsense=2).__enter__()
        assert self.state() == before

    @precondition(lambda self: bool(self.open))
    @rule(fails=st.booleans(), times=st.integers(1, 4))
    def leave(self, fails: bool, times: int) -> None:
        error = Failure() if fails else None
        for _ in range(min(times, len(self.open))):
            kind, scope, before = self.open.pop()
            context = TracingContext.try_get()
            expected = getattr(error, "real_stack", "unset")
            if error is not None and expected == "unset" and context is not None:
                if kind in ("tracing", "frame"):
                    expected = TracingContext.extract_stack()
                elif kind == "clear":
                    expected = None
            handled = scope.__exit__(type(error) if error else None, error, None)
            assert not handled
            assert getattr(error, "real_stack", "unset") == expected
            after = self.state()
            if kind in ("frame", "clear", "tracing"):
                assert after == before
            else:  # these leave the location alone
                assert after[:3] == before[:3]

    @invariant()
    def stack_is_frames_and_location(self) -> None:
        context = TracingContext.try_get()
        stack = TracingContext.extract_stack()
        if context is None:
            assert stack == []
        else:
            here = context.loc_in_frame
            expected = list(context.frame_summary_stack)
            assert list(stack)[: len(expected)] == expected
            assert len(stack) == len(expected) + (here is not None)

    def teardown(self) -> None:
        while self.open:
            _, scope, before = self.open.pop()
            scope.__exit__(None, None, None)
            assert self.state()[:2] == before[:2]
        assert TracingContext.try_get() is None
        assert CompileContext.try_get() is None


@pytest.mark.slow
def test_scopes_restore_everything() -> None:
    run_state_machine_as_test(
        Scopes, settings=settings(deadline=None, max_examples=60, stateful_step_count=30)
    )
