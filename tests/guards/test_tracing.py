"""The context of a trace and of a compilation: what it holds, how scopes open and close."""

from __future__ import annotations

import traceback
import weakref
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from guards import (
    CompileContext,
    GlobalContext,
    GuardsContext,
    HopDispatchSetCache,
    ModuleContext,
    NoContextError,
    TraceId,
    TracingContext,
    UnknownAttributeError,
    compile_context,
    tracing,
)

from tests.guards.traces import ID, frame, functions

# ── A compilation ──


def test_no_compilation() -> None:
    assert CompileContext.try_get() is None
    assert CompileContext.current_compile_id() is None
    assert CompileContext.current_trace_id() is None
    with pytest.raises(NoContextError, match="ongoing compilation"):
        CompileContext.get()


def test_a_compilation() -> None:
    context = CompileContext(ID)
    assert (context.compile_id, context.attempt, context.shape_env_guards) == (ID, 0, [])
    with compile_context(context) as entered:
        assert entered is context
        assert CompileContext.get() is CompileContext.try_get() is context
        assert CompileContext.current_compile_id() is ID
        assert str(CompileContext.current_trace_id()) == "3/1"
        context.attempt += 2
        assert CompileContext.current_trace_id() == TraceId(ID, 2)
        with compile_context(None):
            assert CompileContext.try_get() is None
        with compile_context(CompileContext(None)):
            assert CompileContext.current_compile_id() is None
            assert CompileContext.current_trace_id() is None
        assert CompileContext.get() is context
    assert CompileContext.try_get() is None


def test_compile_context_is_put_back_on_error() -> None:
    with compile_context(CompileContext(ID)) as outer:
        with pytest.raises(ZeroDivisionError), compile_context(CompileContext(None)):
            raise ZeroDivisionError
        assert CompileContext.get() is outer


def test_a_compilation_is_named_by_a_compile_id() -> None:
    with pytest.raises(TypeError, match=r"CompileId\.from_string"):
        CompileContext("3/1")  # type: ignore[arg-type]


def test_a_compilation_outlives_restarts_of_the_analysis() -> None:
    with compile_context(CompileContext(ID)):
        for attempt in range(3):
            with tracing(TracingContext(None)):
                CompileContext.get().attempt = attempt
            assert TracingContext.try_get() is None
        assert str(CompileContext.current_trace_id()) == "3/1_2"


# ── A trace ──


def test_no_trace() -> None:
    assert TracingContext.try_get() is None
    assert TracingContext.get_traced_code() is None
    assert TracingContext.extract_stack() == traceback.StackSummary()
    assert isinstance(TracingContext.extract_stack(), traceback.StackSummary)
    with TracingContext.report_output_strides() as strides:
        assert strides is None


@pytest.mark.parametrize(
    "use",
    [
        TracingContext.get,
        lambda: TracingContext.set_current_loc("f.py", 1, "f"),
        lambda: TracingContext.patch(fw_metadata=1).__enter__(),
        lambda: TracingContext.current_frame(None).__enter__(),
        lambda: TracingContext.clear_frame().__enter__(),
    ],
)
def test_what_needs_a_trace_says_so(use: Callable[[], object]) -> None:
    with pytest.raises(RuntimeError, match="must be called within an ongoing trace"):
        use()


def test_a_new_trace() -> None:
    mode = SimpleNamespace()
    context = TracingContext(mode)
    assert isinstance(context.guards_context, GuardsContext)
    assert isinstance(context.module_context, ModuleContext)
    assert isinstance(context.global_context, GlobalContext)
    assert isinstance(context.hop_dispatch_set_cache, HopDispatchSetCache)
    assert context.fake_mode is mode
    for name in ("previously_inlined_functions", "previously_cleaned_instructions"):
        assert getattr(context, name) == {}
    for name in ("frame_summary_stack", "traced_code"):
        assert getattr(context, name) == []
    for name in ("loc_in_frame", "fw_metadata", "ddp_optimizer_ctx", "aot_graph_name",
                 "params_flat", "params_flat_unwrap_subclasses",
                 "params_unwrapped_to_flat_index", "output_strides"):  # fmt: skip
        assert getattr(context, name) is None
    assert context.force_unspec_int_unbacked_size_like is False
    assert context.fakify_first_call is False


def test_tensor_to_context_is_weak(context: TracingContext) -> None:
    tensor = torch.ones(1)
    context.tensor_to_context[tensor] = "dynamic"
    assert context.tensor_to_context[tensor] == "dynamic"
    ref = weakref.ref(tensor)
    del tensor
    assert ref() is None
    assert len(context.tensor_to_context) == 0


def test_tracing_nests() -> None:
    with tracing(TracingContext(None)) as outer:
        assert TracingContext.get() is TracingContext.try_get() is outer
        with tracing(None) as nothing:
            assert nothing is TracingContext.try_get() is None
        with tracing(TracingContext(None)) as inner:
            assert TracingContext.get() is inner
        with pytest.raises(ZeroDivisionError), tracing(TracingContext(None)):
            raise ZeroDivisionError
        assert TracingContext.get() is outer
    assert TracingContext.try_get() is None


def test_one_scope_may_be_entered_twice() -> None:
    scope = tracing(TracingContext(None))
    with scope as outer, tracing(None), scope:
        assert TracingContext.get() is outer
    assert TracingContext.try_get() is None
    with scope:
        assert TracingContext.get() is outer
    assert TracingContext.try_get() is None


class ShapeEnv:
    def __init__(self, error: Exception | None = None) -> None:
        self.cleaned = 0
        self.error = error

    def cleanup(self) -> None:
        self.cleaned += 1
        if self.error:
            raise self.error


def test_the_shape_environment_is_cleaned_up_on_the_way_out() -> None:
    env = ShapeEnv()
    with tracing(TracingContext(SimpleNamespace(shape_env=env))):
        assert env.cleaned == 0
    assert env.cleaned == 1
    with pytest.raises(ZeroDivisionError), tracing(TracingContext(SimpleNamespace(shape_env=env))):
        raise ZeroDivisionError
    assert env.cleaned == 2
    with tracing(TracingContext(SimpleNamespace(shape_env=None))):
        pass


def test_a_cleanup_that_fails_leaves_no_trace_behind() -> None:
    mode = SimpleNamespace(shape_env=ShapeEnv(KeyError("cleanup")))
    with tracing(TracingContext(None)) as outer:
        with pytest.raises(KeyError, match="cleanup"), tracing(TracingContext(mode)):
            pass
        assert TracingContext.get() is outer


def test_clear(context: TracingContext) -> None:
    context.global_context.global_state = {"grad_enabled": (torch.set_grad_enabled, True)}
    context.previously_inlined_functions["f"] = 1
    context.previously_cleaned_instructions["f"] = 1
    context.traced_code.append(test_clear.__code__)
    context.clear()
    assert context.global_context.global_state == {}
    assert context.previously_inlined_functions == {}
    assert context.previously_cleaned_instructions == {}
    assert TracingContext.get_traced_code() == [test_clear.__code__]


# ── patch ──


def test_patch_puts_all_back(context: TracingContext) -> None:
    context.fw_metadata = "before"
    with TracingContext.patch(fw_metadata="within", params_flat=[1]):
        assert (context.fw_metadata, context.params_flat) == ("within", [1])
        context.fw_metadata = "changed by the body"
        with TracingContext.patch(fw_metadata="deeper"):
            assert context.fw_metadata == "deeper"
        assert context.fw_metadata == "changed by the body"
    assert (context.fw_metadata, context.params_flat) == ("before", None)
    with pytest.raises(ZeroDivisionError), TracingContext.patch(fw_metadata="within"):
        raise ZeroDivisionError
    assert context.fw_metadata == "before"


@pytest.mark.parametrize("name", ["metadata", "get", "clear", "__class__"])
def test_patch_of_an_unknown_attribute_sets_nothing(context: TracingContext, name: str) -> None:
    before = dict(vars(context))
    with pytest.raises(AttributeError, match=name) as caught:
        TracingContext.patch(**{"fw_metadata": 1, name: 2}).__enter__()
    assert isinstance(caught.value, UnknownAttributeError)
    assert caught.value.names == (name,)
    assert vars(context) == before


def test_patch_puts_back_in_the_context_that_it_changed(context: TracingContext) -> None:
    with TracingContext.patch(fw_metadata=1):
        scope = tracing(TracingContext(None))
        scope.__enter__()
    assert context.fw_metadata is None
    assert TracingContext.get().fw_metadata is None
    scope.__exit__(None, None, None)


# ── Locations and frames ──


def test_the_stack_is_the_frames_and_the_current_location(context: TracingContext) -> None:
    assert functions(TracingContext.extract_stack()) == []
    TracingContext.set_current_loc("user.py", 7, "outer")
    assert context.loc_in_frame == ("user.py", 7, "outer")
    assert context.frame_summary_stack == []
    with TracingContext.current_frame(frame("outer")):
        assert context.loc_in_frame is None
        assert functions(TracingContext.extract_stack()) == ["outer"]
        TracingContext.set_current_loc("user.py", 9, "inner")
        stack = TracingContext.extract_stack()
        assert isinstance(stack, traceback.StackSummary)
        assert [(f.filename, f.lineno, f.name) for f in stack] == [
            ("user.py", 1, "outer"),
            ("user.py", 9, "inner"),
        ]
    assert context.loc_in_frame == ("user.py", 7, "outer")
    assert functions(TracingContext.extract_stack()) == ["outer"]


def test_setting_a_location_makes_no_frame_summary(
    context: TracingContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traceback, "FrameSummary", None)
    TracingContext.set_current_loc("user.py", 7, "outer")
    assert context.loc_in_frame == ("user.py", 7, "outer")


def test_a_location_may_have_columns(context: TracingContext) -> None:
    positions = SimpleNamespace(col_offset=4, end_col_offset=9)
    TracingContext.set_current_loc("user.py", 7, "outer", positions)
    (summary,) = TracingContext.extract_stack()
    assert getattr(summary, "colno", 4) == 4
    assert getattr(summary, "end_colno", 9) == 9
    with TracingContext.current_frame(None):
        assert context.loc_in_frame_positions is None
    assert context.loc_in_frame_positions is positions


def test_clear_frame_hides_the_frames(context: TracingContext) -> None:
    with TracingContext.current_frame(frame("outer")):
        TracingContext.set_current_loc("user.py", 7, "outer")
        stack = context.frame_summary_stack
        with TracingContext.clear_frame():
            assert functions(TracingContext.extract_stack()) == []
            TracingContext.set_current_loc("user.py", 1, "compiled")
            assert functions(TracingContext.extract_stack()) == ["compiled"]
        assert context.frame_summary_stack is stack
        assert functions(TracingContext.extract_stack()) == ["outer", "outer"]


def test_output_strides(context: TracingContext) -> None:
    with TracingContext.report_output_strides() as outer:
        assert outer == []
        assert context.output_strides is outer
        with TracingContext.report_output_strides() as inner:
            context.output_strides.append((1,))
            assert inner == [(1,)]
        assert context.output_strides is outer
        with pytest.raises(ZeroDivisionError), TracingContext.report_output_strides():
            raise ZeroDivisionError
        assert context.output_strides is outer == []
    assert context.output_strides is None
