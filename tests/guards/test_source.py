from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import guards
import pytest
from guards import ChainedSource, Guard, GuardSource, Source, guard_source_of, name_of
from guards._source import ReachedThrough

MEMBERS = """
    LOCAL GLOBAL LOCAL_SPECIALIZED_NN_MODULE GLOBAL_SPECIALIZED_NN_MODULE CONSTANT RANDOM_VALUE
    SHAPE_ENV LOCAL_FSDP_MODULE GLOBAL_FSDP_MODULE BACKWARD_STATE EPHEMERAL SYNTHETIC_LOCAL
    LOCAL_UNSPECIALIZED_NN_MODULE GLOBAL_UNSPECIALIZED_NN_MODULE
    LOCAL_UNSPECIALIZED_BUILTIN_NN_MODULE GLOBAL_UNSPECIALIZED_BUILTIN_NN_MODULE TEMP_LOCAL
"""
PREDICATES = {
    "is_fsdp_module": "LOCAL_FSDP_MODULE GLOBAL_FSDP_MODULE",
    "is_specialized_nn_module": "LOCAL_SPECIALIZED_NN_MODULE GLOBAL_SPECIALIZED_NN_MODULE",
    "is_unspecialized_nn_module": (
        "LOCAL_UNSPECIALIZED_NN_MODULE GLOBAL_UNSPECIALIZED_NN_MODULE "
        "LOCAL_UNSPECIALIZED_BUILTIN_NN_MODULE GLOBAL_UNSPECIALIZED_BUILTIN_NN_MODULE"
    ),
    "is_unspecialized_builtin_nn_module": (
        "LOCAL_UNSPECIALIZED_BUILTIN_NN_MODULE GLOBAL_UNSPECIALIZED_BUILTIN_NN_MODULE"
    ),
    "is_local": (
        "LOCAL LOCAL_SPECIALIZED_NN_MODULE LOCAL_FSDP_MODULE LOCAL_UNSPECIALIZED_NN_MODULE "
        "LOCAL_UNSPECIALIZED_BUILTIN_NN_MODULE"
    ),
}


def test_members_have_the_values_that_order_guards() -> None:
    assert [(member.name, member.value) for member in GuardSource] == [
        (name, value) for value, name in enumerate(MEMBERS.split())
    ]


@pytest.mark.parametrize("predicate", sorted(PREDICATES))
def test_predicate_holds_for_its_members_and_no_other(predicate: str) -> None:
    holds = {member.name for member in GuardSource if getattr(member, predicate)()}
    assert holds == set(PREDICATES[predicate].split())


def test_fsdp_modules_count_as_specialized_where_a_switch_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    skip = False
    monkeypatch.setattr("guards._front_end._fsdp_guard_skip", [])
    switch = guards.register_fsdp_guard_skip(lambda: skip)
    assert guards.register_fsdp_guard_skip(switch) is switch
    assert not GuardSource.LOCAL_FSDP_MODULE.is_specialized_nn_module()
    skip = True
    assert GuardSource.LOCAL_FSDP_MODULE.is_specialized_nn_module()
    assert GuardSource.GLOBAL_FSDP_MODULE.is_specialized_nn_module()
    assert GuardSource.LOCAL_SPECIALIZED_NN_MODULE.is_specialized_nn_module()
    assert not GuardSource.LOCAL.is_specialized_nn_module()


def test_base_source_leaves_everything_to_its_kinds() -> None:
    source = Source()
    for call in (source.name, source.guard_source, lambda: source.reconstruct(None)):
        with pytest.raises(NotImplementedError):
            call()
    assert source.is_dict_key() is False
    assert source.is_ephemeral() is False
    assert source == Source()


def test_either_style_is_read(style: Any) -> None:
    source = style.Attr(style.Local("m", GuardSource.LOCAL_SPECIALIZED_NN_MODULE), "weight")
    assert name_of(source) == "L['m'].weight"
    assert guard_source_of(source) is GuardSource.LOCAL_SPECIALIZED_NN_MODULE
    assert source.is_specialized_nn_module() is True
    assert style.Local("x").is_specialized_nn_module() is False


def test_a_chain_asks_its_base(style: Any) -> None:
    @dataclass(frozen=True)
    class Key(style.Local):  # type: ignore[misc]
        def is_dict_key(self) -> bool:
            return True

        def is_ephemeral(self) -> bool:
            return True

    @dataclass(frozen=True)
    class Plain(ChainedSource):
        pass

    for base, yes in ((Key("k"), True), (style.Local("x"), False)):
        chain = Plain(style.Attr(Plain(base), "a"))
        assert chain.is_dict_key() is yes
        assert chain.is_ephemeral() is yes
        assert chain.get_base() is base
        assert guard_source_of(chain) is GuardSource.LOCAL


def test_subguards_are_refused_on_synthetic_locals_only(style: Any) -> None:
    refused = [kind for kind in GuardSource if not style.Local("x", kind).subguards_allowed()]
    assert refused == [GuardSource.SYNTHETIC_LOCAL]


def test_make_guard(style: Any) -> None:
    def check(builder: object, guard: Guard) -> None:
        raise NotImplementedError

    source = style.Local("x")
    guard = source.make_guard(check)
    assert type(guard) is Guard
    assert guard.originating_source is source
    assert guard.create_fn is check
    with pytest.raises(NotImplementedError, match="constant"):
        style.Local("x", GuardSource.CONSTANT).make_guard(check)


def test_reached_through(style: Any) -> None:
    x, y = style.Local("x"), style.Local("y")
    a = style.Attr(x, "a")
    sources = [x, y, a, style.Attr(a, "b"), style.Attr(style.Attr(style.Local("x"), "a"), "c"),
               style.Attr(style.Attr(x, "b"), "a"), style.Attr(y, "a")]  # fmt: skip

    def reached(target: Source) -> list[str]:
        links = ReachedThrough(target)
        return [name_of(source) for source in sources if source in links]

    assert reached(style.Local("x")) == [
        "L['x']", "L['x'].a", "L['x'].a.b", "L['x'].a.c", "L['x'].b.a"
    ]  # fmt: skip
    assert reached(style.Attr(style.Local("x"), "a")) == ["L['x'].a", "L['x'].a.b", "L['x'].a.c"]
    assert reached(style.Attr(y, "b")) == []


def test_reached_through_a_chain_deeper_than_the_recursion_limit() -> None:
    @dataclass(frozen=True, eq=False)
    class Link(ChainedSource):
        pass

    @dataclass(frozen=True, eq=False)
    class OtherLink(ChainedSource):
        pass

    @dataclass(frozen=True)
    class Root(Source):
        def guard_source(self) -> GuardSource:
            return GuardSource.GLOBAL

        def is_ephemeral(self) -> bool:
            return True

    root = Root()
    chain: Source = root
    for _ in range(5000):
        chain = Link(chain)
    assert chain in ReachedThrough(root)
    assert chain in ReachedThrough(Link(root))
    assert chain not in ReachedThrough(OtherLink(root))
    assert isinstance(chain, ChainedSource)
    assert chain.get_base() is root
    assert chain.guard_source() is GuardSource.GLOBAL
    assert chain.is_ephemeral() is True
    assert chain.is_dict_key() is False


def test_a_link_may_decide_for_those_above_it(style: Any) -> None:
    @dataclass(frozen=True)
    class Module(ChainedSource):
        def guard_source(self) -> GuardSource:
            return GuardSource.LOCAL_SPECIALIZED_NN_MODULE

        def is_dict_key(self) -> bool:
            return True

    @dataclass(frozen=True)
    class Plain(ChainedSource):
        pass

    chain = Plain(Plain(Module(style.Attr(style.Local("x"), "a"))))
    assert chain.guard_source() is GuardSource.LOCAL_SPECIALIZED_NN_MODULE
    assert chain.is_dict_key() is True
    assert chain.is_ephemeral() is False
