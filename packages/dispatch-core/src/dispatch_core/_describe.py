"""Name operators and handlers in messages."""

from __future__ import annotations

from typing import Any

__all__ = ["an", "describe_handler", "op_name"]


def an(noun: str) -> str:
    """Give 'a str', 'an int'."""
    return f"{'an' if noun[:1].lower() in 'aeio' else 'a'} {noun}"


def op_name(func: Any) -> str:
    """Give 'aten::add.Tensor', or 'higher_order::cond'."""
    name: str = func.name()
    return name if "::" in name else f"higher_order::{name}"


def describe_handler(handler: Any) -> str:
    """Name a function with the place where it was written."""
    inner = getattr(handler, "__func__", handler)
    while not hasattr(inner, "__code__") and hasattr(inner, "func"):  # a partial
        inner = inner.func
    name = getattr(inner, "__qualname__", None) or repr(handler)
    code = getattr(inner, "__code__", None)
    return name if code is None else f"{name} ({code.co_filename}:{code.co_firstlineno})"
