"""Guards, sources and the context of a trace, for whoever caches what a trace gave.

A *guard* is an assumption of a trace that must hold again before its result is used again; a
*source* says where the guarded value came from; a *tracing context* keeps what the parts of a
running trace need.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from guards._compile_id import CompileId, TraceId
from guards._errors import (
    CacheLimitError,
    CompileIdError,
    DuplicateSourceError,
    ExportInfoError,
    FakeModeMismatchError,
    GuardError,
    MissingValueError,
    NoContextError,
    SavedGuardsError,
    SnapshotError,
    UnknownAttributeError,
    UnknownOperatorError,
    UnsupportedGuardError,
)
from guards._fake_mode import active_fake_mode, detect_fake_mode
from guards._front_end import register_duplicate_input, register_fsdp_guard_skip
from guards._guard import (
    DuplicateInputs,
    Guard,
    GuardBuilderBase,
    GuardEnvExpr,
    ShapeGuard,
    SLoc,
    StorageOverlap,
)
from guards._guards_set import GuardsSet
from guards._snapshots import (
    Checkpointable,
    GlobalContext,
    GlobalContextCheckpointState,
    GuardsCheckpointState,
    GuardsContext,
    ModuleContext,
    ModuleContextCheckpointState,
)
from guards._source import ChainedSource, GuardSource, Source, guard_source_of, name_of
from guards._subgraph_caches import HopDispatchSetCache, HopSubgraphCache, InvokeSubgraphCache
from guards._tracing import CompileContext, TracingContext, compile_context, tracing
from guards._version import __version__

if TYPE_CHECKING:
    from guards._builder import GuardBuilder
    from guards._cache import CacheStats, GuardedCache
    from guards._checks import Check
    from guards._compile import CheckFunction, compile_guards
    from guards._explanation import Explanation
    from guards._op_facts import OpFacts, facts
    from guards._saving import dumps, loads, saveable, verify
    from guards._value_sources import (
        AttrSource,
        CellContentsSource,
        ChainedValueSource,
        ConstantSource,
        ConstDictKeySource,
        DefaultsSource,
        GetItemSource,
        GlobalSource,
        GlobalStateSource,
        LengthSource,
        LocalSource,
        ParamBufferSource,
        TensorPropertySource,
        TypeSource,
        ValueSource,
    )

__all__ = [
    "AttrSource",
    "CacheLimitError",
    "CacheStats",
    "CellContentsSource",
    "ChainedSource",
    "ChainedValueSource",
    "Check",
    "CheckFunction",
    "Checkpointable",
    "CompileContext",
    "CompileId",
    "CompileIdError",
    "ConstDictKeySource",
    "ConstantSource",
    "DefaultsSource",
    "DuplicateInputs",
    "DuplicateSourceError",
    "Explanation",
    "ExportInfoError",
    "FakeModeMismatchError",
    "GetItemSource",
    "GlobalContext",
    "GlobalContextCheckpointState",
    "GlobalSource",
    "GlobalStateSource",
    "Guard",
    "GuardBuilder",
    "GuardBuilderBase",
    "GuardEnvExpr",
    "GuardError",
    "GuardSource",
    "GuardedCache",
    "GuardsCheckpointState",
    "GuardsContext",
    "GuardsSet",
    "HopDispatchSetCache",
    "HopSubgraphCache",
    "InvokeSubgraphCache",
    "LengthSource",
    "LocalSource",
    "MissingValueError",
    "ModuleContext",
    "ModuleContextCheckpointState",
    "NoContextError",
    "OpFacts",
    "ParamBufferSource",
    "SLoc",
    "SavedGuardsError",
    "ShapeGuard",
    "SnapshotError",
    "Source",
    "StorageOverlap",
    "TensorPropertySource",
    "TraceId",
    "TracingContext",
    "TypeSource",
    "UnknownAttributeError",
    "UnknownOperatorError",
    "UnsupportedGuardError",
    "ValueSource",
    "__version__",
    "active_fake_mode",
    "compile_context",
    "compile_guards",
    "detect_fake_mode",
    "dumps",
    "facts",
    "guard_source_of",
    "loads",
    "name_of",
    "register_duplicate_input",
    "register_fsdp_guard_skip",
    "saveable",
    "tracing",
    "verify",
]

# What a front end needs once it turns guards into checks is loaded when it is first asked for:
# a program that only traces should not wait for it.
_LOADED_ON_USE = {
    "_builder": "GuardBuilder",
    "_cache": "CacheStats GuardedCache",
    "_checks": "Check",
    "_compile": "CheckFunction compile_guards",
    "_explanation": "Explanation",
    "_op_facts": "OpFacts facts",
    "_saving": "dumps loads saveable verify",
    "_value_sources": (
        "AttrSource CellContentsSource ChainedValueSource ConstantSource ConstDictKeySource "
        "DefaultsSource GetItemSource GlobalSource GlobalStateSource LengthSource LocalSource "
        "ParamBufferSource TensorPropertySource TypeSource ValueSource"
    ),
}
_MODULE_OF = {name: module for module, names in _LOADED_ON_USE.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
