"""Guards, sources and the context of a trace, for whoever caches what a trace gave.

A *guard* is an assumption of a trace that must hold again before its result is used again; a
*source* says where the guarded value came from; a *tracing context* keeps what the parts of a
running trace need.
"""

from guards._compile_id import CompileId, TraceId
from guards._errors import (
    CompileIdError,
    DuplicateSourceError,
    ExportInfoError,
    FakeModeMismatchError,
    GuardError,
    NoContextError,
    SnapshotError,
    UnknownAttributeError,
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

__all__ = [
    "ChainedSource",
    "Checkpointable",
    "CompileContext",
    "CompileId",
    "CompileIdError",
    "DuplicateInputs",
    "DuplicateSourceError",
    "ExportInfoError",
    "FakeModeMismatchError",
    "GlobalContext",
    "GlobalContextCheckpointState",
    "Guard",
    "GuardBuilderBase",
    "GuardEnvExpr",
    "GuardError",
    "GuardSource",
    "GuardsCheckpointState",
    "GuardsContext",
    "GuardsSet",
    "HopDispatchSetCache",
    "HopSubgraphCache",
    "InvokeSubgraphCache",
    "ModuleContext",
    "ModuleContextCheckpointState",
    "NoContextError",
    "SLoc",
    "ShapeGuard",
    "SnapshotError",
    "Source",
    "StorageOverlap",
    "TraceId",
    "TracingContext",
    "UnknownAttributeError",
    "__version__",
    "active_fake_mode",
    "compile_context",
    "detect_fake_mode",
    "guard_source_of",
    "name_of",
    "register_duplicate_input",
    "register_fsdp_guard_skip",
    "tracing",
]
