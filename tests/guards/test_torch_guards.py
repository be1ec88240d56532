"""The vocabulary in the form of torch._guards: the names, sources, sets, contexts and caches."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import pickle
import types
from collections.abc import Callable
from typing import Any

import guards
import pytest
import torch
import torch._guards as installed
from guards import GuardSource, torch_guards
from guards._current import current
from guards.torch_guards import _merge

from tests.guards.torch_forms import Local, check


def own_names() -> list[str]:
    return sorted(
        name
        for name, value in vars(installed).items()
        if isinstance(value, (type, types.FunctionType))
        and value.__module__ == "torch._guards"
        and not name.startswith("_")
    )


# ── The names ──


@pytest.mark.parametrize("name", own_names())
def test_every_name_of_torch_is_presented(name: str) -> None:
    assert name in torch_guards.__all__
    assert getattr(torch_guards.merged(), name) is getattr(torch_guards, name)


def test_nothing_had_to_be_filled_in() -> None:
    if not torch.__version__.startswith("2.13."):
        pytest.skip("this torch may have names that the package does not know yet")
    assert torch_guards._filled_in == []


def test_other_names_come_from_the_installed_module() -> None:
    merged = torch_guards.merged()
    assert merged.__name__ == "torch._guards"
    assert merged.COMPILE_ID_PATTERN is installed.COMPILE_ID_PATTERN
    assert vars(merged).keys() >= vars(installed).keys()
    assert merged._TLS is current


def test_what_the_vocabulary_has_is_the_vocabularys() -> None:
    for name in torch_guards.__all__:
        ours, base = getattr(torch_guards, name), getattr(guards, name, None)
        if isinstance(base, type):
            assert issubclass(ours, base), name


@pytest.mark.parametrize("name", own_names())
def test_methods_take_what_torchs_take(name: str) -> None:
    theirs, ours = getattr(installed, name), getattr(torch_guards, name)
    pairs = [(theirs, ours)]
    if isinstance(theirs, type):
        pairs = [
            (getattr(theirs, attribute), getattr(ours, attribute, None))
            for attribute, value in vars(theirs).items()
            if isinstance(value, (types.FunctionType, staticmethod, classmethod))
            and not attribute.startswith("_")
        ]
    for their_function, our_function in pairs:
        if isinstance(their_function, (types.FunctionType, types.MethodType)):
            assert our_function is not None, their_function
            their, our = (
                list(inspect.signature(f).parameters.values())
                for f in (their_function, our_function)
            )
            for parameter, mine in zip(their, our, strict=False):
                assert mine.kind is parameter.kind, (their_function, parameter)
                if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
                    assert mine.default == parameter.default, (their_function, parameter)
            assert len(our) == len(their), (their_function, our_function)


def fields(cls: Any) -> list[str]:
    # What is cached is no business of a caller's: torch lets one pass a guard's hash.
    return [f.name for f in dataclasses.fields(cls) if f.init and f.name != "_hash"]


def test_fields_and_attributes_are_torchs() -> None:
    for name in ("CompileId", "Guard", "DuplicateInputs", "StorageOverlap", "SLoc",
                 "ChainedSource"):  # fmt: skip
        ours, theirs = getattr(torch_guards, name), getattr(installed, name)
        own = fields(ours)
        assert [field for field in fields(theirs) if field in own] == own
        # A newer torch may have more; those are filled in, with its defaults.
        assert all(field in own or hasattr(ours, field) for field in fields(theirs))
    for name, arguments in _merge._STATEFUL.items():
        theirs_made = getattr(installed, name)(*arguments)
        ours_made = getattr(torch_guards, name)(*arguments)
        assert vars(theirs_made).keys() <= vars(ours_made).keys(), name


@pytest.mark.parametrize("member", installed.GuardSource, ids=lambda m: m.name)
def test_predicates_agree_with_torch(member: Any) -> None:
    ours = GuardSource[member.name]
    assert ours.value == member.value
    for name in vars(installed.GuardSource):
        # is_specialized_nn_module of torch loads Dynamo; the fidelity test has it.
        if name.startswith("is_") and name != "is_specialized_nn_module":
            assert getattr(ours, name)() is getattr(member, name)(), name


@torch_guards.dataclass_with_cached_hash(frozen=True)
class Item(torch_guards.ChainedSource):
    index: Any
    other: Any = dataclasses.field(default=None, kw_only=True)

    @functools.cached_property
    def _name_template(self) -> str:
        return f"{{0}}[{self.index!r}]"


def test_a_template_is_the_name() -> None:
    source = Item(Item(Local("x"), 0), "k")
    assert source.name == "L['x'][0]['k']"
    assert guards.name_of(source) == "L['x'][0]['k']"
    assert guards.guard_source_of(source) is GuardSource.LOCAL
    assert source.guard_source is GuardSource.LOCAL
    assert source.get_base() == Local("x")
    assert source.make_guard(check).name == "L['x'][0]['k']"


def test_bases_leave_everything_to_their_kinds() -> None:
    source = torch_guards.Source()
    for read in (
        lambda: source.name,
        lambda: source.guard_source,
        lambda: source._name_template,
        lambda: source.reconstruct(None),
        lambda: source.reconstruct_pycode(None),
    ):
        with pytest.raises(NotImplementedError):
            read()


def test_a_chain_of_both_styles(style: Any) -> None:
    source = Item(style.Attr(style.Local("x", GuardSource.GLOBAL), "a"), 0)
    assert guards.name_of(source) == "L['x'].a[0]"
    assert guards.guard_source_of(source) is GuardSource.GLOBAL
    ours = style.Attr(Item(Local("x"), 0), "a")
    assert guards.guard_source_of(ours) is GuardSource.LOCAL


def test_get_value_evaluates_each_link_once() -> None:
    class Counting(dict[Any, Any]):
        def __getitem__(self, key: Any) -> Any:
            fetched.append(key)
            return super().__getitem__(key)

    fetched: list[Any] = []
    inner = Counting({0: {"k": 7, "j": 8}})
    scope = {"L": Counting(x=inner)}
    local: dict[str, Any] = {"_base": "in the way"}
    cache: dict[Any, Any] = {}
    base = Item(Local("x"), 0)
    assert Item(base, "k").get_value(scope, local, cache) == 7
    assert Item(base, "j").get_value(scope, local, cache) == 8
    assert fetched == ["x", 0]
    assert cache[Local("x")] is inner
    assert local == {"_base": "in the way"}


def test_clone_transforms_each_part() -> None:
    def rename(source: Any) -> Any:
        return Local(source.local + "'") if isinstance(source, Local) else source

    source = Item(Item(Local("x"), 0), "k", other=Local("y"))
    assert source.clone() == source
    assert source.clone(rename) == Item(Item(Local("x'"), 0), "k", other=Local("y'"))


def test_the_hash_is_computed_once_and_stays_out_of_copies() -> None:
    hashed = []

    class Key(str):
        __slots__ = ()

        def __hash__(self) -> int:
            hashed.append(str(self))
            return super().__hash__()

    source = Item(Local("x"), Key("k"))
    assert hash(source) == hash(source)
    assert hashed == ["k"]
    plain = Item(Local("x"), "k", other=3)
    hash(plain)
    fresh = Item(Local("x"), "k", other=3)
    assert pickle.dumps(plain) == pickle.dumps(fresh)
    for made in (pickle.loads(pickle.dumps(plain)), copy.copy(plain), copy.deepcopy(plain)):
        assert made == plain
        assert "_hash" not in vars(made)


# ── Sets and contexts ──


def test_guards_are_found_by_their_source() -> None:
    x, y = Local("x"), Local("y")
    made = torch_guards.GuardsSet([x.make_guard(check)])
    for guard in (x.make_guard(len), y.make_guard(check), x.make_guard(check)):
        made.add(guard)
    found = made.get_guards_for_source(Local("x"))
    assert [g.create_fn for g in found] == [check, len]
    found.clear()
    assert len(made.get_guards_for_source(x)) == 2
    assert made.get_guards_for_source(Item(x, 0)) == []
    made.remove_guards_with_source(x)
    assert made.get_guards_for_source(x) == []
    assert len(made.get_guards_for_source(y)) == 1
    assert isinstance(made - made, torch_guards.GuardsSet)
    made.clear()
    assert not made
    assert made.get_guards_for_source(y) == []


@pytest.mark.slow  # the first stack that torch makes readable takes seconds
def test_the_stack_ends_at_the_caller() -> None:
    added, updated = Local("x").make_guard(check), Local("y").make_guard(check)
    made = torch_guards.GuardsSet()
    made.add(added)
    made.update([updated])
    for guard in (added, updated):
        stack: Any = guard.stack
        assert stack.summary()[-1].name == "test_the_stack_ends_at_the_caller"


def test_a_context_can_be_told_to_take_no_guards() -> None:
    context = torch_guards.GuardsContext()
    assert context.skip_install is False
    with context.skip_guard_install():
        with context.skip_guard_install():
            assert context.skip_install is True
        assert context.skip_install is True
    with pytest.raises(ZeroDivisionError), context.skip_guard_install():
        raise ZeroDivisionError
    assert context.skip_install is False


def test_a_snapshot_keeps_the_form() -> None:
    context = torch_guards.GuardsContext()
    context.dynamo_guards.add(Local("x").make_guard(check))
    state = context.copy_graphstate()
    context.dynamo_guards.clear()
    context.restore_graphstate(state)
    assert isinstance(context.dynamo_guards, torch_guards.GuardsSet)
    assert len(context.dynamo_guards.get_guards_for_source(Local("x"))) == 1


def test_a_trace_is_the_vocabularys_trace() -> None:
    with torch_guards.tracing(torch_guards.TracingContext(None)) as context:
        assert guards.TracingContext.get() is context
        assert isinstance(context, torch_guards.TracingContext)
        assert isinstance(context.guards_context, torch_guards.GuardsContext)
        torch_guards.TracingContext.set_current_loc("f.py", 1, "f", positions=None)
        with torch_guards.TracingContext.patch(cudagraph_annotation=1):
            assert context.cudagraph_annotation == 1
        options: Any = {}
        context.inlined_code_cache["f"] = torch_guards.InlinedCodeCache([], {}, options)
        context.clear()
        assert context.inlined_code_cache == {}
    with torch_guards.compile_context(guards.CompileContext(None)) as compiling:
        assert guards.CompileContext.get() is compiling


def test_the_mode_of_the_trace_wins_unchecked() -> None:
    mode, other = types.SimpleNamespace(shape_env=None), object()
    with torch_guards.tracing(torch_guards.TracingContext(mode)):
        assert torch_guards.detect_fake_mode([other]) is mode
    assert torch_guards.detect_fake_mode([other]) is None


@pytest.mark.slow  # the first fake mode of a process takes seconds
def test_two_modes_are_an_assertion_error_as_in_torch() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    inputs = [FakeTensorMode().from_tensor(torch.ones(1)) for _ in range(2)]
    for detect in (torch_guards.detect_fake_mode, installed.detect_fake_mode):
        assert detect(inputs[:1]) is inputs[0].fake_mode
        with pytest.raises(AssertionError, match="fake mode"):
            detect(inputs)
    with pytest.raises(guards.FakeModeMismatchError):
        torch_guards.detect_fake_mode(inputs)


# ── Caches ──


@pytest.fixture
def cache() -> Any:
    caches = torch_guards.TracingContext(None).hop_dispatch_set_cache
    cache = caches.get_cache(torch.ops.higher_order.invoke_subgraph)
    assert isinstance(cache, torch_guards.InvokeSubgraphCache)
    assert isinstance(cache, torch_guards.HopSubgraphCache)
    return cache


def test_effects_must_not_change(cache: Any) -> None:
    assert cache.get_effects("x") is None
    cache.add_effects("x", {"print"})
    cache.add_effects("x", {"print"})
    assert cache.get_effects("x") == {"print"}
    with pytest.raises(AssertionError, match="effects of x"):
        cache.add_effects("x", set())


def test_schemas_and_submodules(cache: Any) -> None:
    assert cache.get_functionalize_schema_entry("k") is None
    cache.add_functionalize_schema_entry("k", "schema")
    assert cache.get_functionalize_schema_entry("k") == "schema"
    cache.add_dynamo_installed_submodule(check.__code__, "body")
    assert cache.get_dynamo_installed_submodules(check.__code__) == ["body"]


def test_the_body_found_last_is_tried_first(cache: Any) -> None:
    for name in "abc":
        cache.add_reuse_entry(check.__code__, f"when {name}", name)
    tried: list[str] = []

    def holds(wanted: str) -> Callable[[str, str], bool]:
        def evaluate(condition: str, entry: str) -> bool:
            tried.append(condition)
            return entry == wanted

        return evaluate

    assert cache.find_reuse_entry(check.__code__, holds("c")) == "c"
    assert cache.find_reuse_entry(check.__code__, holds("c")) == "c"
    assert tried == ["when a", "when b", "when c", "when c"]
    assert cache.find_reuse_entry(check.__code__, holds("d")) is None
    assert cache.find_reuse_entry(len.__name__, holds("a")) is None


def test_bodies_are_limited(cache: Any) -> None:
    for n in range(2):
        cache.add_reuse_entry("code", n, n, max_reuse_entries=2)
        cache.add_reuse_entry_by_key("code", n, n, max_reuse_entries=2)
    with pytest.raises(RuntimeError, match=r"exceeded maximum reuse entries \(2\)"):
        cache.add_reuse_entry("code", 2, 2, max_reuse_entries=2)
    with pytest.raises(RuntimeError, match=r"exceeded maximum reuse entries \(2\)"):
        cache.add_reuse_entry_by_key("code", 2, 2, max_reuse_entries=2)
    cache.add_reuse_entry_by_key("code", 1, "new", max_reuse_entries=2)
    assert cache.find_reuse_entry_by_key("code", 1) == "new"
    assert cache.find_reuse_entry_by_key("code", 2) is None
    assert cache.find_reuse_entry_by_key("other", 1) is None
