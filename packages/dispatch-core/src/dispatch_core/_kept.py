"""Which composite operators this thread, or what it carried along, keeps whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

__all__ = ["is_kept", "kept_scopes", "nothing_kept"]

kept_scopes: ContextVar[tuple[tuple[object, frozenset[Any]], ...]] = ContextVar("kept", default=())
"""Each `keep_composite` that is open, and its operators."""


def is_kept(op: Any) -> bool:
    """Say whether `keep_composite` holds an overload together in this thread."""
    scopes = kept_scopes.get()
    return bool(scopes) and any(op in ops for _, ops in scopes)


@contextmanager
def nothing_kept() -> Iterator[None]:
    """Let every composite operator go on to its parts."""
    token = kept_scopes.set(())
    try:
        yield
    finally:
        kept_scopes.reset(token)
