"""Guards, sources and the context of a trace, for whoever caches what a trace gave.

A *guard* is an assumption of a trace that must hold again before its result is used again; a
*source* says where the guarded value came from; a *tracing context* keeps what the parts of a
running trace need.
"""

from __future__ import annotations

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
    NotCompiledError,
    SavedGuardsError,
    SnapshotError,
    UnknownAttributeError,
    UnknownOperatorError,
    UnsupportedGuardError,
    WrongArgumentError,
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
from guards._on_use import load as _load
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
    from guards._compiled_entries import EntryReport, EntryReports, GuardReport, inspect
    from guards._evaluation import ChainedValueSource, ValueSource
    from guards._explanation import Explanation
    from guards._fetch import MISSING, REFUSED
    from guards._op_facts import OpFacts, facts
    from guards._saving import dumps, loads, saveable, verify
    from guards._specialize import Specialized, specialize
    from guards._value_sources import (
        AttrSource,
        CellContentsSource,
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
    )


def __getattr__(name: str) -> Any:
    value = globals()[name] = _load(name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "MISSING",
    "REFUSED",
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
    "EntryReport",
    "EntryReports",
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
    "GuardReport",
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
    "NotCompiledError",
    "OpFacts",
    "ParamBufferSource",
    "SLoc",
    "SavedGuardsError",
    "ShapeGuard",
    "SnapshotError",
    "Source",
    "Specialized",
    "StorageOverlap",
    "TensorPropertySource",
    "TraceId",
    "TracingContext",
    "TypeSource",
    "UnknownAttributeError",
    "UnknownOperatorError",
    "UnsupportedGuardError",
    "ValueSource",
    "WrongArgumentError",
    "__version__",
    "active_fake_mode",
    "compile_context",
    "compile_guards",
    "detect_fake_mode",
    "dumps",
    "facts",
    "guard_source_of",
    "inspect",
    "loads",
    "name_of",
    "register_duplicate_input",
    "register_fsdp_guard_skip",
    "saveable",
    "specialize",
    "tracing",
    "verify",
]
