"""Whatever is given that cannot be taken is refused at once, by an error of the package's own."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import guards
import pytest
import torch
from guards import (
    AttrSource,
    CellContentsSource,
    Check,
    CompileContext,
    CompileId,
    ConstDictKeySource,
    DefaultsSource,
    DuplicateInputs,
    GetItemSource,
    GlobalContext,
    GlobalContextCheckpointState,
    GlobalSource,
    Guard,
    GuardBuilder,
    GuardedCache,
    GuardError,
    GuardsCheckpointState,
    GuardsContext,
    GuardsSet,
    LengthSource,
    LocalSource,
    ModuleContext,
    ModuleContextCheckpointState,
    ParamBufferSource,
    SLoc,
    StorageOverlap,
    TensorPropertySource,
    TracingContext,
    TypeSource,
    WrongArgumentError,
    compile_context,
    compile_guards,
    dumps,
    facts,
    guard_source_of,
    inspect,
    loads,
    name_of,
    register_duplicate_input,
    register_fsdp_guard_skip,
    saveable,
    specialize,
    tracing,
    verify,
)

X, Y = LocalSource("x"), LocalSource("y")
GUARD = Guard(X, GuardBuilder.TYPE_MATCH)
CHECK = compile_guards([GUARD], {"x": 1})
FRAME = traceback.FrameSummary("shop.py", 12, "price", lookup_line=False)


def plain(a: Any, b: int = 2) -> Any:
    return a


KINDS: dict[str, Any] = {
    "None": None,
    "True": True,
    "int": 3,
    "float": 2.5,
    "nan": float("nan"),
    "str": "z",
    "list": [1],
    "dict": {1: 2},
    "object": object(),
    "function": plain,
    "class": int,
    "guard": GUARD,
    "source": Y,
    "tensor": torch.ones(2),
}


@dataclass
class Call:
    """A call that works; and of each argument, which other kinds of things it takes."""

    function: Callable[..., Any]
    good: dict[str, Any]
    takes: dict[str, str] = field(default_factory=dict)
    name: str = ""

    def wrong(self) -> Iterator[tuple[str, str]]:
        for argument in self.good:
            for kind in KINDS:
                if kind not in self.takes.get(argument, "").split():
                    yield argument, kind


def inspect_or_compile(compiled_fn: Any) -> Any:
    return inspect(torch.compile(plain, backend="eager") if compiled_fn == "good" else compiled_fn)


def kind_of(create: Callable[..., Any], value: Any, **options: Any) -> Callable[..., Any]:
    """Compile a guard of one kind with options."""

    def compile(**given: Any) -> Any:
        return compile_guards([Guard(X, partial(create, **{**options, **given}))], {"x": value})

    return compile


def chained(cls: Any, takes: str = "", **fields: Any) -> Call:
    own = dict.fromkeys(fields, takes) | {"allow_call": "True"}
    return Call(cls, {"base": X, **fields}, {"base": "source", **own})


CALLABLE = "function class"
MAPPING = "dict"
CALLS = [
    Call(LocalSource, {"local_name": "x"}, {"local_name": "str"}),
    Call(GlobalSource, {"global_name": "x"}, {"global_name": "str"}),
    chained(AttrSource, "str", member="a", allow_call=False),
    chained(LengthSource, allow_call=False),
    chained(ConstDictKeySource, "int", index=0),
    chained(TypeSource),
    chained(CellContentsSource, "str", freevar="a"),
    chained(DefaultsSource, "str int", index=0),
    chained(ParamBufferSource, "str", param_name="weight"),
    Call(
        GetItemSource,
        {"base": X, "index": 0, "allow_call": False},
        {
            "base": "source",
            "index": "None True int float nan str list dict class",
            "allow_call": "True",
        },
    ),
    Call(
        TensorPropertySource,
        {"base": X, "prop": "size", "idx": 0},
        {"base": "source", "idx": "int"},
    ),
    Call(
        Guard,
        {"originating_source": X, "create_fn": GuardBuilder.TYPE_MATCH},
        {"originating_source": "source", "create_fn": CALLABLE},
    ),
    Call(
        Guard(X, GuardBuilder.TYPE_MATCH).set_export_info,
        {"guard_type": "T", "guarded_class": None, "code_list": [], "obj_weakref": None},
        {
            "guard_type": " ".join(KINDS),
            "guarded_class": " ".join(KINDS),
            "code_list": "list",
            "obj_weakref": " ".join(KINDS),
        },
    ),
    Call(X.make_guard, {"fn": GuardBuilder.TYPE_MATCH}, {"fn": CALLABLE}),
    Call(X.get, {"L": {"x": 1}, "G": {}}, {"L": "", "G": "None dict"}),
    Call(
        SLoc,
        {"framework_loc": None, "maybe_user_loc": None},
        {"framework_loc": "None str", "maybe_user_loc": "None str"},
    ),
    Call(
        DuplicateInputs,
        {"input_source_a": X, "input_source_b": LocalSource("b")},
        {"input_source_a": "source", "input_source_b": "source"},
    ),
    Call(
        StorageOverlap,
        {"overlapping_sources": [X], "non_overlapping_sources": [Y]},
    ),
    Call(GuardsSet, {"inner": [GUARD]}, {"inner": "None"}),
    Call(GuardsSet().add, {"guard": GUARD}, {"guard": "guard"}),
    Call(GuardsSet().remove_guards_with_source, {"source": X}, {"source": "source"}),
    Call(lambda others: GuardsSet().update(others), {"others": [GUARD]}, name="GuardsSet.update"),
    Call(GuardsCheckpointState, {"dynamo_guards": [], "aotautograd_guards": []}),
    Call(ModuleContextCheckpointState, {"nn_modules": {}}, {"nn_modules": "dict"}),
    Call(GlobalContextCheckpointState, {"global_states": {}}),
    Call(GuardsContext().copy_graphstate().diff, {"other": GuardsContext().copy_graphstate()}),
    Call(ModuleContext().copy_graphstate().diff, {"other": ModuleContext().copy_graphstate()}),
    Call(GlobalContext().copy_graphstate().diff, {"other": GlobalContext().copy_graphstate()}),
    Call(GuardsContext().restore_graphstate, {"state": GuardsContext().copy_graphstate()}),
    Call(ModuleContext().restore_graphstate, {"state": ModuleContext().copy_graphstate()}),
    Call(
        CompileId,
        {"frame_id": 1, "frame_compile_id": 2, "compiled_autograd_id": None},
        {"frame_id": "int", "frame_compile_id": "int", "compiled_autograd_id": "None int"},
    ),
    Call(CompileId.from_string, {"compile_id": "3/1"}, {"compile_id": "None"}),
    Call(CompileContext, {"compile_id": None}, {"compile_id": "None"}),
    Call(compile_context, {"context": None}, {"context": "None"}),
    Call(tracing, {"context": None}, {"context": "None"}),
    Call(TracingContext.current_frame, {"frame_summary": FRAME}, {"frame_summary": "None"}),
    Call(register_duplicate_input, {"predicate": lambda guard: False}, {"predicate": CALLABLE}),
    Call(register_fsdp_guard_skip, {"switch": lambda: False}, {"switch": CALLABLE}),
    Call(name_of, {"source": X}, {"source": "source guard tensor"}),
    Call(guard_source_of, {"source": X}, {"source": "source"}),
    Call(
        compile_guards,
        {"guards": [GUARD], "L": {"x": 1}, "G": {}},
        {"L": "", "G": "None dict"},
    ),
    Call(GuardBuilder, {"L": {}, "G": {}}, {"L": "dict", "G": "None dict"}),
    Call(GuardBuilder({"x": 1, "y": 1}).source, {"guard": GUARD}, {"guard": "guard"}),
    Call(GuardBuilder({"x": 1, "y": 1}).value, {"guard": GUARD}, {"guard": "guard"}),
    Call(GuardBuilder({"x": 1, "y": 1}).lookup, {"source": X}, {"source": "source"}),
    Call(
        GuardBuilder({"x": 1}).add,
        {"guard": GUARD, "check": CHECK.checks[0][1]},
        {"guard": "guard"},
    ),
    Call(
        kind_of(GuardBuilder.RANGE_MATCH, 2),
        {"low": 1, "high": 3},
        {"low": "None", "high": "None int float"},
        "RANGE_MATCH",
    ),
    Call(
        kind_of(GuardBuilder.HASATTR, plain),
        {"attr": "__name__"},
        {"attr": "None"},
        "HASATTR",
    ),
    Call(kind_of(GuardBuilder.NOT_PRESENT, plain), {"attr": "z"}, {"attr": "str"}, "NOT_PRESENT"),
    Call(kind_of(GuardBuilder.DICT_KEYS_MATCH, {}), {"ordered": True}, {"ordered": "True"}, "KEYS"),
    Call(
        kind_of(GuardBuilder.TENSOR_MATCH, torch.ones(2, 3)),
        {"dynamic_sizes": [0], "dynamic_strides": ()},
        {"dynamic_sizes": "None True list dict", "dynamic_strides": "None True list dict"},
        "TENSOR_MATCH",
    ),
    Call(
        kind_of(GuardBuilder.DUPLICATE_INPUT, 1),
        {"source_b": X},
        name="DUPLICATE_INPUT",
    ),
    Call(
        kind_of(GuardBuilder.STORAGE_OVERLAP, torch.ones(2)),
        {"overlapping": (), "non_overlapping": [X]},
        name="STORAGE_OVERLAP",
    ),
    Call(
        kind_of(GuardBuilder.SHAPE_RELATION, 2),
        {"relation": "s == 2", "symbols": {"s": X}},
        {"relation": "True"},
        name="SHAPE_RELATION",
    ),
    Call(GuardedCache, {"limit": 8, "on_limit": "evict"}, {"limit": "int"}),
    Call(GuardedCache().insert, {"check": CHECK, "value": 1}, {"value": " ".join(KINDS)}),
    Call(GuardedCache().lookup, {"L": {}}, {"L": "dict"}),
    Call(GuardedCache().explain_miss, {"L": {}}, {"L": "dict"}),
    Call(dumps, {"guards": CHECK}),
    Call(loads, {"text": dumps(CHECK)}),
    Call(verify, {"text": dumps(CHECK), "L": {"x": 1}, "G": {}}, {"L": "dict", "G": "None dict"}),
    Call(saveable, {"cls": Check}),
    Call(facts, {"op": "aten::add.Tensor"}),
    Call(inspect_or_compile, {"compiled_fn": "good"}, name="inspect"),
    Call(
        specialize,
        {"function": plain, "limit": 8, "patience": 8},
        {"function": "function", "limit": "int", "patience": "int"},
    ),
]
for call in CALLS:
    call.name = call.name or getattr(call.function, "__qualname__", "?")
CASES = [(call, argument, kind) for call in CALLS for argument, kind in call.wrong()]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_what_fits_is_taken(call: Call) -> None:
    call.function(**call.good)


@pytest.mark.parametrize(
    ("call", "argument", "kind"), CASES, ids=[f"{c.name}-{a}-{k}" for c, a, k in CASES]
)
def test_what_does_not_fit_is_refused_by_name(call: Call, argument: str, kind: str) -> None:
    with pytest.raises(GuardError) as raised:
        call.function(**{**call.good, argument: KINDS[kind]})
    assert str(raised.value)
    assert " at 0x" not in str(raised.value)


# What takes no arguments, any argument at all, or is made by the package alone.
TAKES_ALL = """
    MISSING REFUSED __version__ active_fake_mode detect_fake_mode Checkpointable ShapeGuard TraceId
    ChainedSource ChainedValueSource ConstantSource GlobalStateSource GuardBuilderBase GuardEnvExpr
    GuardSource GlobalContext HopDispatchSetCache HopSubgraphCache
    InvokeSubgraphCache OpFacts Specialized
    CacheStats Check CheckFunction EntryReport EntryReports Explanation GuardReport
"""


def test_every_public_name_was_thought_of() -> None:
    called = {call.name.partition(".")[0] for call in CALLS}
    errors = {n for n in guards.__all__ if n.endswith("Error")}
    assert set(guards.__all__) - called - errors == set(TAKES_ALL.split())


def test_arguments_of_calls_that_are_explained() -> None:
    fast = specialize(plain)
    with pytest.raises(WrongArgumentError) as raised:
        fast.explain_miss()
    assert str(raised.value) == "plain: missing 1 required positional argument: 'a'"

    def twice(a: torch.Tensor) -> torch.Tensor:
        return a * 2

    compiled = torch.compile(twice, backend="eager")
    compiled(torch.ones(2))
    entry = inspect(compiled)[0]
    with pytest.raises(WrongArgumentError) as raised:
        entry.explain(1, 2, 3)
    assert str(raised.value).endswith("<locals>.twice: too many positional arguments")
    with pytest.raises(WrongArgumentError, match="explain_locals: L must be a mapping"):
        entry.explain_locals(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: compile_guards(5, {}),  # type: ignore[arg-type]
            "compile_guards: guards must be an iterable of guards, got 5; "
            "make one with Guard(source, GuardBuilder.…)",
        ),
        (
            lambda: compile_guards(["x"], {}),  # type: ignore[list-item]
            "compile_guards: each of guards must be a guard, got 'x'; "
            "make one with Guard(source, GuardBuilder.…)",
        ),
        (
            lambda: compile_guards([], None),  # type: ignore[arg-type]
            "compile_guards: L must be a mapping from names to values, got None; "
            "such as a function's locals()",
        ),
        (
            lambda: GetItemSource("x", 1),  # type: ignore[arg-type]
            "GetItemSource: base must be a source, got 'x'; such as LocalSource('x')",
        ),
        (
            lambda: Guard(X, "TYPE_MATCH"),  # type: ignore[arg-type]
            "Guard: create_fn must be something that can be called, got 'TYPE_MATCH'; "
            "such as GuardBuilder.TYPE_MATCH",
        ),
        (
            lambda: kind_of(GuardBuilder.TYPE_MATCH, 1)(exact=1),
            "TYPE_MATCH on L['x'] cannot be called with the builder, the guard, and what its "
            "partial gives: GuardBuilder.TYPE_MATCH() got an unexpected keyword argument 'exact'",
        ),
        (
            lambda: kind_of(GuardBuilder.RANGE_MATCH, 2)(low="a"),
            "RANGE_MATCH on L['x']: a bound is an int, a float or None, got 'a'",
        ),
        (
            lambda: GuardedCache(limit=0),
            "GuardedCache: limit must be a whole number from 1 on, got 0",
        ),
        (
            lambda: dumps(3),  # type: ignore[arg-type]
            "dumps: guards must be an iterable of guards, got 3; give it what compile_guards gave",
        ),
        (
            lambda: GlobalContextCheckpointState({"grad_enabled": True}),  # type: ignore[dict-item]
            "GlobalContextCheckpointState: global_states['grad_enabled'] must be a setter and the "
            "value to call it with, got True",
        ),
    ],
)
def test_texts(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(GuardError) as raised:
        call()
    assert str(raised.value) == message


def test_the_error_has_its_facts_as_fields() -> None:
    with pytest.raises(WrongArgumentError) as raised:
        GuardedCache(limit=0)
    error = raised.value
    assert (error.function, error.argument, error.got) == ("GuardedCache", "limit", 0)


@pytest.mark.parametrize("given", [(), ({"x": 1}, {}), ({"x": 1}, {}, {})])
def test_a_check_called_with_globals_says_where_they_go(given: tuple[Any, ...]) -> None:
    check: Any = CHECK
    with pytest.raises(TypeError) as raised:
        check(*given)
    assert str(raised.value).startswith(
        "check(L) of 1 guards, with the G given to compile_guards() "
    )


def test_a_front_ends_own_source_need_not_derive_from_ours() -> None:
    class Duck:
        name = "L['x']"
        guard_source = X.guard_source()

    guard = Guard(Duck(), GuardBuilder.TYPE_MATCH)  # type: ignore[arg-type]
    assert (guard.name, guard.is_local()) == ("L['x']", True)


def test_the_error_of_a_source_of_ones_own_is_its_own() -> None:
    class Broken(guards.Source):
        @property
        def name(self) -> str:  # type: ignore[override]
            raise AttributeError("mine")

    with pytest.raises(AttributeError, match=r"^mine$"):
        name_of(Broken())
