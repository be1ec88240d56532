"""The vocabulary in the form that the installed torch expects of ``torch._guards``.

Code that was written against ``torch._guards``, torch.compile above all, runs on it:
:func:`install` puts it in that module's place. Where the forms differ, the classes here derive
from those of :mod:`guards`, so that all of the package works on torch's sources and contexts.
What a newer torch has and these lack is filled in from the installed one.

``guards`` itself does not import this module.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import torch._guards as _installed

from guards import (
    Checkpointable,
    CompileContext,
    CompileId,
    DuplicateInputs,
    GlobalContext,
    GlobalContextCheckpointState,
    Guard,
    GuardBuilderBase,
    GuardEnvExpr,
    GuardsCheckpointState,
    GuardSource,
    ModuleContext,
    ModuleContextCheckpointState,
    ShapeGuard,
    SLoc,
    StorageOverlap,
    TraceId,
    active_fake_mode,
    register_duplicate_input,
    register_fsdp_guard_skip,
    tracing,
)
from guards._current import current as _TLS
from guards.torch_guards._contexts import (
    GuardsContext,
    GuardsSet,
    InlinedCodeCache,
    TracingContext,
    compile_context,
    detect_fake_mode,
)
from guards.torch_guards._merge import TooLateError, complete, merge, put_in_place
from guards.torch_guards._sources import ChainedSource, Source, dataclass_with_cached_hash
from guards.torch_guards._subgraph_caches import (
    HopDispatchSetCache,
    HopSubgraphCache,
    InvokeSubgraphCache,
    InvokeSubgraphReuseCondition,
    InvokeSubgraphReuseEntry,
)

__all__ = [
    "ChainedSource",
    "Checkpointable",
    "CompileContext",
    "CompileId",
    "DuplicateInputs",
    "GlobalContext",
    "GlobalContextCheckpointState",
    "Guard",
    "GuardBuilderBase",
    "GuardEnvExpr",
    "GuardSource",
    "GuardsCheckpointState",
    "GuardsContext",
    "GuardsSet",
    "HopDispatchSetCache",
    "HopSubgraphCache",
    "InlinedCodeCache",
    "InvokeSubgraphCache",
    "InvokeSubgraphReuseCondition",
    "InvokeSubgraphReuseEntry",
    "ModuleContext",
    "ModuleContextCheckpointState",
    "SLoc",
    "ShapeGuard",
    "Source",
    "StorageOverlap",
    "TooLateError",
    "TraceId",
    "TracingContext",
    "active_fake_mode",
    "compile_context",
    "dataclass_with_cached_hash",
    "detect_fake_mode",
    "install",
    "merged",
    "tracing",
]

_NAMES: dict[str, Any] = {
    name: globals()[name] for name in __all__ if name not in ("TooLateError", "install", "merged")
} | {"_TLS": _TLS}


@register_duplicate_input
def _is_duplicate_input_of_dynamo(guard: Guard) -> bool:
    dynamo: Any = sys.modules.get("torch._dynamo.guards")
    builder = getattr(dynamo, "GuardBuilder", None)  # None while Dynamo is being loaded
    return builder is not None and guard.inner_create_fn() is builder.DUPLICATE_INPUT


@register_fsdp_guard_skip
def _dynamo_skips_fsdp_guards() -> bool:
    config: Any = sys.modules.get("torch._dynamo.config")
    return bool(getattr(config, "_unsafe_skip_fsdp_module_guards", False))


_merged = merge(_NAMES, _installed)
_filled_in = complete(_NAMES, _installed, vars(_merged))


def merged() -> types.ModuleType:
    """Give a module with all names of ``torch._guards``: ours, and the installed for the rest."""
    return _merged


def install() -> types.ModuleType:
    """Put :func:`merged` in the place of ``torch._guards``, for the rest of the process.

    Call it right after ``import torch``.

    Raises:
        TooLateError: torch._dynamo is loaded already.
    """
    if sys.modules[_installed.__name__] is not _merged:
        put_in_place(_merged, _installed)
    return _merged
