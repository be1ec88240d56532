"""Names of frames, for tests of traces."""

from __future__ import annotations

import traceback
from typing import Any

from guards import (
    CompileId,
)

ID = CompileId(frame_id=3, frame_compile_id=1)


def frame(name: str) -> traceback.FrameSummary:
    return traceback.FrameSummary("user.py", 1, name, lookup_line=False)


def functions(stack: Any) -> list[str]:
    return [summary.name for summary in stack]
