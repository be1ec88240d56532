"""The context of a trace, and of the compilation that it belongs to.

Both are thread-local: what is set in one thread is not seen in another. They are not local to
an asyncio task or a generator, so a ``with`` of this module must not contain an ``await`` or
``yield`` during which code of another trace runs in the same thread.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import CodeType, TracebackType
from typing import Any, ClassVar, TypeVar

from torch.utils.weak import WeakTensorKeyDictionary

from guards._arguments import need
from guards._compile_id import CompileId, TraceId
from guards._current import current, user_stack
from guards._errors import NoContextError, UnknownAttributeError
from guards._snapshots import GlobalContext, GuardsContext, ModuleContext
from guards._subgraph_caches import HopDispatchSetCache

__all__ = ["CompileContext", "TracingContext", "compile_context", "tracing"]

C = TypeVar("C", bound="CompileContext | None")
T = TypeVar("T", bound="TracingContext | None")


class CompileContext:
    """What belongs to one compilation, through all restarts of its analysis.

    Each restart has a fresh :class:`TracingContext` and counts ``attempt`` up.

    Attributes:
        shape_env_guards: the guards on shapes as text, for people who debug.

    Raises:
        WrongArgumentError: ``compile_id`` is neither a CompileId nor None.
    """

    def __init__(self, compile_id: CompileId | None) -> None:
        known = compile_id is None or isinstance(compile_id, CompileId)
        remedy = "CompileId.from_string reads one from text"
        need(known, "CompileContext", "compile_id", "a CompileId or None", compile_id, remedy)
        self.compile_id = compile_id
        self.attempt = 0
        self.shape_env_guards: list[str] = []

    @staticmethod
    def get() -> CompileContext:
        """Give the context of this thread's compilation.

        Raises:
            NoContextError: none is set.
        """
        context = current.compile_context
        if context is None:
            raise NoContextError(
                "CompileContext.get() must be called within an ongoing compilation: "
                "no compile_context is set in this thread"
            )
        return context

    @staticmethod
    def try_get() -> CompileContext | None:
        return current.compile_context

    @staticmethod
    def current_compile_id() -> CompileId | None:
        context = current.compile_context
        return None if context is None else context.compile_id

    @staticmethod
    def current_trace_id() -> TraceId | None:
        context = current.compile_context
        if context is None or context.compile_id is None:
            return None
        return TraceId(context.compile_id, context.attempt)


class TracingContext:
    """The one place where a trace keeps what many parts need, so that nobody has to pass it on.

    Attributes:
        guards_context, module_context, global_context: what a snapshot can bring back.
        fake_mode: the fake mode in which the trace computes, or None.
        frame_summary_stack: the user's frames that called the current one, outermost first.
        loc_in_frame: file, line and function in the current frame, or None.
        loc_in_frame_positions: its ``dis.Positions``, where known.
        traced_code: the code objects that have been inlined so far.
        tensor_to_context: weak on its keys, the tensors.
        output_strides: where a backend reports strides, see :meth:`report_output_strides`.
    """

    _guards_context: ClassVar[type[GuardsContext]] = GuardsContext
    _hop_dispatch_set_cache: ClassVar[type[HopDispatchSetCache]] = HopDispatchSetCache

    def __init__(self, fake_mode: Any) -> None:
        self.guards_context = self._guards_context()
        self.module_context = ModuleContext()
        self.global_context = GlobalContext()
        self.previously_inlined_functions: dict[Any, Any] = {}
        self.previously_cleaned_instructions: dict[Any, Any] = {}
        self.fake_mode = fake_mode
        self.frame_summary_stack: list[traceback.FrameSummary] = []
        self.loc_in_frame: tuple[str, int, str] | None = None
        self.loc_in_frame_positions: Any = None
        self.fw_metadata: Any = None
        self.ddp_optimizer_ctx: Any = None
        self.aot_graph_name: list[str] | None = None
        self.params_flat: list[Any] | None = None
        self.params_flat_unwrap_subclasses: list[Any] | None = None
        self.params_unwrapped_to_flat_index: list[Any] | None = None
        self.output_strides: list[tuple[int, ...] | None] | None = None
        self.force_unspec_int_unbacked_size_like = False
        self.tensor_to_context = WeakTensorKeyDictionary()
        self.fakify_first_call = False
        self.hop_dispatch_set_cache = self._hop_dispatch_set_cache()
        self.traced_code: list[CodeType] = []

    @staticmethod
    def get() -> TracingContext:
        """Give the context of this thread's trace.

        Raises:
            NoContextError: no trace runs.
        """
        context = current.tracing_context
        if context is None:
            raise NoContextError(
                "TracingContext.get() must be called within an ongoing trace: "
                "no `with tracing(...)` is open in this thread"
            )
        return context

    @staticmethod
    def try_get() -> TracingContext | None:
        return current.tracing_context

    def clear(self) -> None:
        """Forget the global state and what was inlined and cleaned before."""
        self.global_context.global_state = {}
        self.previously_inlined_functions.clear()
        self.previously_cleaned_instructions.clear()

    @staticmethod
    def patch(**attributes: Any) -> AbstractContextManager[None]:
        """Set attributes of the current context for the length of a ``with``.

        Raises:
            UnknownAttributeError: on entering, before anything is set.
            NoContextError: on entering, when no trace runs.
        """
        return _Patch(attributes)

    @staticmethod
    def set_current_loc(filename: str, lineno: int, frame_name: str, positions: Any = None) -> None:
        """Say which line of the user's the trace is at; cheap, for it is called for each line.

        Raises:
            NoContextError: no trace runs.
        """
        context = current.tracing_context
        if context is None:
            context = TracingContext.get()  # raises
        context.loc_in_frame = (filename, lineno, frame_name)
        context.loc_in_frame_positions = positions

    @staticmethod
    def extract_stack() -> traceback.StackSummary:
        """Give the user's frames and the current location; empty when no trace runs."""
        return user_stack()

    def user_stack(self) -> traceback.StackSummary:
        """Give the frames and the location of this context, whether it is current or not."""
        frames = self.frame_summary_stack
        if self.loc_in_frame is not None:
            filename, lineno, frame_name = self.loc_in_frame
            columns: dict[str, Any] = {}
            if sys.version_info >= (3, 11) and self.loc_in_frame_positions is not None:
                columns["colno"] = self.loc_in_frame_positions.col_offset
                columns["end_colno"] = self.loc_in_frame_positions.end_col_offset
            here = traceback.FrameSummary(
                filename, lineno, frame_name, lookup_line=False, **columns
            )
            frames = [*frames, here]
        return traceback.StackSummary.from_list(frames)

    @staticmethod
    def current_frame(
        frame_summary: traceback.FrameSummary | None,
    ) -> AbstractContextManager[None]:
        """Enter a frame that the current one calls, for the length of a ``with``.

        The current location is unknown until the callee sets its own. An exception that passes
        through gets the user's stack of that moment as ``real_stack``, unless it has one; None
        as a frame does only this.

        Raises:
            NoContextError: on entering, when no trace runs.
        """
        known = frame_summary is None or isinstance(frame_summary, traceback.FrameSummary)
        where, wanted = "TracingContext.current_frame", "a traceback.FrameSummary or None"
        need(known, where, "frame_summary", wanted, frame_summary)
        return _CurrentFrame(frame_summary)

    @staticmethod
    def clear_frame() -> AbstractContextManager[None]:
        """Run code that belongs to no frame of the user's, for the length of a ``with``.

        The stack is empty within, and an exception that passes through gets None as
        ``real_stack``, unless it has one: no frame further out is to be blamed for it.

        Raises:
            NoContextError: on entering, when no trace runs.
        """
        return _ClearFrame()

    @staticmethod
    def report_output_strides() -> AbstractContextManager[list[tuple[int, ...] | None] | None]:
        """Give the list into which a backend puts the strides of each output.

        None when no trace runs. The list of an enclosing ``with`` is put back.
        """
        return _ReportOutputStrides()

    @staticmethod
    def get_traced_code() -> list[CodeType] | None:
        """Give the code objects inlined so far, None when no trace runs."""
        context = current.tracing_context
        return None if context is None else context.traced_code


def compile_context(context: C) -> AbstractContextManager[C]:
    """Make ``context`` this thread's compilation for the length of a ``with``."""
    known = context is None or isinstance(context, CompileContext)
    need(known, "compile_context", "context", "a CompileContext or None", context)
    return _Compiling(context)


def tracing(context: T) -> AbstractContextManager[T]:
    """Make ``context`` this thread's trace for the length of a ``with``; None means no trace.

    An exception that passes through gets the user's stack as ``real_stack``, unless it has one.
    On the way out, ``cleanup()`` of the fake mode's shape environment is called.
    """
    known = context is None or isinstance(context, TracingContext)
    need(known, "tracing", "context", "a TracingContext or None", context)
    return _Tracing(context)


# The scopes behind the functions above are classes: contextlib.contextmanager sets attributes on
# an exception that passes through, and some exceptions (frozen dataclasses) refuse that.
class _Scope:
    """Set something, and put it back afterwards; may be entered again, also within itself."""

    def __init__(self) -> None:
        self._saved: list[Any] = []

    def __enter__(self) -> Any:
        value, saved = self._set()
        self._saved.append(saved)
        return value

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._reset(self._saved.pop(), error)

    def _set(self) -> tuple[Any, Any]:
        """Set it; give the value of the ``with`` and what _reset needs."""
        raise NotImplementedError

    def _reset(self, saved: Any, error: BaseException | None) -> None:
        """Put it back; ``error`` is what is passing through."""
        raise NotImplementedError


class _Compiling(_Scope):
    def __init__(self, context: CompileContext | None) -> None:
        super().__init__()
        self._context = context

    def _set(self) -> tuple[Any, Any]:
        former, current.compile_context = current.compile_context, self._context
        return self._context, former

    def _reset(self, saved: Any, error: BaseException | None) -> None:
        current.compile_context = saved


class _Tracing(_Scope):
    def __init__(self, context: TracingContext | None) -> None:
        super().__init__()
        self._context = context

    def _set(self) -> tuple[Any, Any]:
        former, current.tracing_context = current.tracing_context, self._context
        return self._context, former

    def _reset(self, saved: Any, error: BaseException | None) -> None:
        context = self._context
        try:
            if context is not None:
                _attach_real_stack(error, context.user_stack)
                shape_env = getattr(context.fake_mode, "shape_env", None)
                if shape_env is not None:
                    shape_env.cleanup()
        finally:
            current.tracing_context = saved


class _Patch(_Scope):
    def __init__(self, attributes: dict[str, Any]) -> None:
        super().__init__()
        self._attributes = attributes

    def _set(self) -> tuple[Any, Any]:
        context = TracingContext.get()
        known = vars(context)
        unknown = [name for name in self._attributes if name not in known]
        if unknown:
            raise UnknownAttributeError(
                f"a TracingContext has no attribute {', '.join(map(repr, unknown))}; it has "
                f"{', '.join(sorted(known))}",
                unknown,
            )
        saved = {name: known[name] for name in self._attributes}
        known.update(self._attributes)
        return None, (context, saved)

    def _reset(self, saved: Any, error: BaseException | None) -> None:
        context, attributes = saved
        vars(context).update(attributes)


class _CurrentFrame(_Scope):
    def __init__(self, frame_summary: traceback.FrameSummary | None) -> None:
        super().__init__()
        self._frame = frame_summary

    def _set(self) -> tuple[Any, Any]:
        context = TracingContext.get()
        saved = _place(context)
        if self._frame is not None:
            context.frame_summary_stack.append(self._frame)
        context.loc_in_frame = None
        context.loc_in_frame_positions = None
        return None, (context, saved, len(context.frame_summary_stack))

    def _reset(self, saved: Any, error: BaseException | None) -> None:
        context, place, depth = saved
        _attach_real_stack(error, context.user_stack)
        _put_back(context, place)
        del context.frame_summary_stack[depth - (self._frame is not None) :]


class _ClearFrame(_Scope):
    def _set(self) -> tuple[Any, Any]:
        context = TracingContext.get()
        saved = _place(context)
        _put_back(context, ([], None, None))
        return None, (context, saved)

    def _reset(self, saved: Any, error: BaseException | None) -> None:
        context, place = saved
        _attach_real_stack(error, lambda: None)
        _put_back(context, place)


class _ReportOutputStrides(_Scope):
    def _set(self) -> tuple[Any, Any]:
        context = current.tracing_context
        if context is None:
            return None, None
        saved, context.output_strides = context.output_strides, []
        return context.output_strides, (context, saved)

    def _reset(self, saved: Any, error: BaseException | None) -> None:
        if saved is not None:
            context, context.output_strides = saved


def _place(context: TracingContext) -> tuple[Any, Any, Any]:
    return context.frame_summary_stack, context.loc_in_frame, context.loc_in_frame_positions


def _put_back(context: TracingContext, place: tuple[Any, Any, Any]) -> None:
    context.frame_summary_stack, context.loc_in_frame, context.loc_in_frame_positions = place


def _attach_real_stack(error: BaseException | None, stack: Callable[[], object]) -> None:
    if not isinstance(error, Exception):
        return
    try:
        if not hasattr(error, "real_stack"):
            error.real_stack = stack()  # type: ignore[attr-defined]
    except Exception:
        # An exception that takes no attributes must reach its handler all the same.
        return
