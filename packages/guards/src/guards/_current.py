"""What is current in this thread."""

from __future__ import annotations

import threading
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from guards._tracing import CompileContext, TracingContext

__all__ = ["current", "user_stack"]


class _Current(threading.local):
    # Class attributes, so that a thread that has set nothing reads None.
    tracing_context: TracingContext | None = None
    compile_context: CompileContext | None = None


current = _Current()


def user_stack() -> traceback.StackSummary:
    """Give the user's frames and the current location; empty when no trace runs."""
    context = current.tracing_context
    return traceback.StackSummary() if context is None else context.user_stack()
