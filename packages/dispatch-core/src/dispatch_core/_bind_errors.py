"""Say which argument of a call does not fit a schema, after Python refused the call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dispatch_core._errors import BindError, near_matches

if TYPE_CHECKING:
    from dispatch_core._handle import Handle

__all__ = ["explain"]


def explain(
    handle: Handle[Any], args: Sequence[Any], kwargs: Mapping[str, Any], error: TypeError
) -> BindError:
    """Make the error that names the argument at fault."""
    if isinstance(error, BindError):
        return error
    name = handle.qualified_name

    def fault(argument: str | None, problem: str, text: str) -> BindError:
        return BindError(
            f"{name}: {text}; the schema is {handle.schema}",
            qualified_name=name,
            argument=argument,
            problem=problem,
        )

    if not isinstance(args, list | tuple) or not isinstance(kwargs, Mapping):
        got = f"{type(args).__name__} and {type(kwargs).__name__}"
        return fault(
            None,
            "unsupported",
            "bind takes the positional arguments in a sequence and those by name in a mapping, "
            f"bind((x, y), {{'dim': 0}}), not {got}",
        )
    params = handle.params
    positional = [param for param in params if not param.kwarg_only]
    known = {param.name for param in params}
    for key in kwargs:
        if key not in known:
            near = near_matches(str(key), known)
            hint = f", did you mean {' or '.join(map(repr, near))}?" if near else ""
            return fault(str(key), "unknown", f"unknown argument {key!r}{hint}")
    if len(args) > len(positional):
        keyword_only = [param.name for param in params if param.kwarg_only]
        takes = f"takes {len(positional)} positional arguments, got {len(args)}"
        hint = f" (by keyword only: {', '.join(keyword_only)})" if keyword_only else ""
        return fault(None, "surplus", takes + hint)
    for param in positional[: len(args)]:
        if param.name in kwargs:
            return fault(
                param.name, "duplicate", f"argument {param.name!r} given by position and by name"
            )
    given = {param.name for param in positional[: len(args)]} | set(kwargs)
    missing = [param.name for param in params if param.required and param.name not in given]
    if missing:
        plural = "arguments" if len(missing) > 1 else "argument"
        return fault(missing[0], "missing", f"missing {plural} {', '.join(map(repr, missing))}")
    return fault(None, "unsupported", f"arguments cannot be bound ({error})")
