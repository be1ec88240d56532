"""Binding the arguments of one call, against what torch and the standard library offer."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from dispatch_core import Handle, handle_of
from torch.fx.operator_schemas import normalize_function

from tools.bench.calls import CALLS
from tools.bench.row import Row, faster
from tools.bench.timing import Statement, alternate


def signature_of(handle: Handle[Any]) -> inspect.Signature:
    """Make the signature that a handle describes."""
    keyword, either = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature(
        [
            inspect.Parameter(
                param.name,
                keyword if param.kwarg_only else either,
                default=inspect.Parameter.empty if param.required else param.default,
            )
            for param in handle.params
        ]
    )


def rows() -> Iterator[Row]:
    """Compare `Handle.bind` with `normalize_function` and with `inspect.Signature.bind`."""
    for name, (args, kwargs) in CALLS.items():
        handle = handle_of(name)
        signature = signature_of(handle)
        names: dict[str, object] = {
            "args": args,
            "kwargs": kwargs,
            "bind": handle.bind,
            "signature_bind": signature.bind,
            "normalize": normalize_function,
            "op": handle.torch_op,
        }
        normalized = normalize_function(
            handle.torch_op, args, kwargs, normalize_to_only_use_kwargs=True
        )
        if normalized is None:
            raise RuntimeError(f"normalize_function refuses the call of {name}")
        ours, by_fx, by_signature = alternate(
            Statement("bind(args, kwargs)", names),
            Statement("normalize(op, args, kwargs, normalize_to_only_use_kwargs=True)", names),
            Statement("b = signature_bind(*args, **kwargs); b.apply_defaults()", names),
        )
        yield Row(f"bind {name}", "normalize_function", ours, by_fx, faster(30))
        yield Row(f"bind {name}", "inspect.Signature.bind", ours, by_signature, faster(12))
