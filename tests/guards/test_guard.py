from __future__ import annotations

import copy
import dataclasses
import functools
import logging
import pickle
import traceback
import weakref
from typing import Any

import guards
import pytest
from guards import (
    DuplicateInputs,
    DuplicateSourceError,
    ExportInfoError,
    Guard,
    GuardBuilder,
    GuardBuilderBase,
    GuardEnvExpr,
    GuardSource,
    GuardsSet,
    LocalSource,
    ShapeGuard,
    SLoc,
    Source,
    StorageOverlap,
    UnsupportedGuardError,
    compile_guards,
)
from hypothesis import given, settings
from hypothesis import strategies as st

LAW = settings(deadline=None)


class Builder(GuardBuilderBase):
    def TYPE_MATCH(self, guard: Guard) -> Any:
        return ("type", self, guard)

    def HASATTR(self, guard: Guard, attr: str) -> Any:
        return ("hasattr", attr)

    def BROKEN(self, guard: Guard) -> Any:
        raise ZeroDivisionError("of the front end")


class Callable_:
    def __call__(self, builder: Any, guard: Guard) -> None:
        raise NotImplementedError


# ── SLoc, ShapeGuard ──


@pytest.mark.parametrize(
    ("framework", "user", "text"),
    [
        ("frame.py:3", "user.py:7 in f", "user.py:7 in f (frame.py:3)"),
        ("frame.py:3", None, "(frame.py:3)"),
        (None, "user.py:7 in f", "user.py:7 in f ()"),
        (None, None, "()"),
        (traceback.FrameSummary("frame.py", 3, "guard"), None, "(frame.py:3 in guard)"),
        (traceback.FrameSummary("frame.py", 3, "guard"), "u", "u (frame.py:3 in guard)"),
    ],
)
def test_sloc_text(framework: Any, user: str | None, text: str) -> None:
    location = SLoc(framework, user)
    assert str(location) == text
    with pytest.raises(dataclasses.FrozenInstanceError):
        location.maybe_user_loc = "other"  # type: ignore[misc]


def test_shape_guard_is_a_tuple() -> None:
    location = SLoc("f", None)
    guard = ShapeGuard("s0 < 4", location, size_oblivious=False)
    assert guard == ("s0 < 4", location, False)
    assert ShapeGuard._fields == ("expr", "sloc", "size_oblivious")


# ── Equality and hash ──


def test_fields_of_a_new_guard(local: Any) -> None:
    guard = Guard(local("x"), Builder.TYPE_MATCH)
    for name in ("guard_types", "code_list", "obj_weakref", "guarded_class_weakref", "stack",
                 "user_stack", "_hash"):  # fmt: skip
        assert getattr(guard, name) is None
    assert guard._unserializable is False
    with pytest.raises(AttributeError):
        guard.other = 1  # type: ignore[attr-defined]
    assert not hasattr(guard, "__dict__")


def test_name_and_source(style: Any) -> None:
    guard = Guard(style.Attr(style.Local("x", GuardSource.GLOBAL), "a"), Builder.TYPE_MATCH)
    assert guard.name == "L['x'].a"
    assert guard.source is GuardSource.GLOBAL


def test_stacks_and_export_info_take_no_part_in_equality(style: Any) -> None:
    made = []
    for i in range(3):
        guard = style.Local("x").make_guard(Builder.TYPE_MATCH)
        GuardsSet().add(guard)
        guard.user_stack = traceback.StackSummary.from_list([("f.py", i, "f", "")])
        guard.set_export_info(str(i), weakref.ref(int), [str(i)], None)
        made.append(guard)
    assert made[0] == made[1] == made[2]
    assert len(set(made)) == 1


def test_another_place_kind_or_function_makes_another_guard(style: Any) -> None:
    fn = functools.partial(Builder.HASATTR, attr="a")
    same = functools.partial(Builder.HASATTR, attr="a")
    guards = [
        Guard(style.Local("x"), Builder.TYPE_MATCH),
        Guard(style.Local("y"), Builder.TYPE_MATCH),
        Guard(style.Local("x", GuardSource.GLOBAL), Builder.TYPE_MATCH),
        Guard(style.Local("x"), fn),
        Guard(style.Local("x"), same),
    ]
    assert len(set(guards)) == len(guards)
    assert Guard(style.Local("x"), fn) == guards[3]
    assert guards[0] != "guard"


def test_hash_is_computed_once() -> None:
    asked = []

    class Counting(Source):
        def name(self) -> str:
            asked.append("name")
            return "x"

        def guard_source(self) -> GuardSource:
            return GuardSource.LOCAL

    guard = Guard(Counting(), Builder.TYPE_MATCH)
    assert hash(guard) == hash(guard) == guard._hash
    assert asked == ["name"]


def test_a_replaced_function_gives_a_new_hash(local: Any) -> None:
    guard = Guard(local("x"), Builder.TYPE_MATCH)
    hash(guard)
    other = dataclasses.replace(guard, create_fn=Builder.BROKEN)
    assert other == Guard(local("x"), Builder.BROKEN)
    assert hash(other) == hash(Guard(local("x"), Builder.BROKEN))


def test_copies_leave_the_hash_behind() -> None:
    guard = Guard(Source(), len, guard_types=["t"])  # type: ignore[arg-type]
    guard._hash = 12345  # what another process might have computed
    guard._unserializable = True
    for other in (pickle.loads(pickle.dumps(guard)), copy.copy(guard), copy.deepcopy(guard)):
        assert [getattr(other, f.name) for f in dataclasses.fields(other) if not f.init] == [
            f.default for f in dataclasses.fields(Guard) if not f.init
        ]
        assert other.create_fn is len
        assert other.guard_types == ["t"]
        assert other._unserializable is True


# ── Functions ──


def test_create_fn_may_be_a_partial(local: Any) -> None:
    partial = functools.partial(Builder.HASATTR, attr="a")
    guard = Guard(local("x"), partial)
    assert guard.inner_create_fn() is Builder.HASATTR
    assert guard.create_fn_name() == "HASATTR"
    plain = Guard(local("x"), Builder.TYPE_MATCH)
    assert plain.inner_create_fn() is Builder.TYPE_MATCH
    assert plain.create_fn_name() == "TYPE_MATCH"
    assert Guard(local("x"), Callable_()).create_fn_name() == "Callable_"


def test_create_gives_what_the_function_gives(local: Any) -> None:
    builder = Builder()
    guard = Guard(local("x"), Builder.TYPE_MATCH)
    assert guard.create(builder) == ("type", builder, guard)
    assert Guard(local("x"), functools.partial(Builder.HASATTR, attr="a")).create(builder) == (
        "hasattr",
        "a",
    )


def test_create_logs_the_guard_and_raises_the_same_exception(
    local: Any, caplog: pytest.LogCaptureFixture
) -> None:
    guard = Guard(local("x"), Builder.BROKEN)
    with caplog.at_level(logging.ERROR), pytest.raises(ZeroDivisionError, match="front end"):
        guard.create(Builder())
    assert [r.getMessage() for r in caplog.records] == [
        f"Error while creating guard:\n{str(guard).rstrip()}"
    ]
    assert caplog.records[0].exc_info is None  # the exception is on its way to the caller


def test_what_compile_guards_refuses_is_raised_and_not_logged_besides(
    caplog: pytest.LogCaptureFixture,
) -> None:
    guards = [Guard(LocalSource("x"), GuardBuilder.NONE_MATCH)]
    with caplog.at_level(logging.DEBUG), pytest.raises(UnsupportedGuardError):
        compile_guards(guards, {"x": 1})
    assert caplog.records == []


def test_what_compile_guards_does_not_expect_is_logged_with_its_guard(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(builder: Any, guard: Guard) -> None:
        raise ZeroDivisionError("front end")

    guard = Guard(LocalSource("x"), broken)
    with caplog.at_level(logging.DEBUG), pytest.raises(ZeroDivisionError, match="front end"):
        compile_guards([guard], {"x": 1})
    assert [r.getMessage() for r in caplog.records] == [
        f"Error while creating guard:\n{str(guard).rstrip()}"
    ]


@pytest.mark.slow  # the first traceback that torch makes readable takes seconds
def test_create_logs_four_frames_of_where_the_guard_was_made(
    local: Any, caplog: pytest.LogCaptureFixture
) -> None:
    guard = Guard(local("x"), Builder.BROKEN)
    GuardsSet().add(guard)
    with caplog.at_level(logging.ERROR), pytest.raises(ZeroDivisionError):
        guard.create(Builder())
    message = caplog.records[1].getMessage()
    assert message.startswith("Created at:\n")
    assert message.count('  File "') == 4
    assert "GuardsSet().add(guard)" in message


def test_create_of_a_guard_that_cannot_be_printed_raises_the_front_ends_exception(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR), pytest.raises(ZeroDivisionError):
        Guard(Source(), Builder.BROKEN).create(Builder())
    assert "BROKEN" in caplog.records[0].getMessage()


def test_guards_ask_their_source(style: Any) -> None:
    for kind in GuardSource:
        guard = Guard(style.Local("x", kind), Builder.TYPE_MATCH)
        assert guard.is_local() is kind.is_local()
        assert guard.is_fsdp_module() is kind.is_fsdp_module()
        assert guard.is_specialized_nn_module() is kind.is_specialized_nn_module()


# ── Order ──


FUNCTIONS: list[Any] = [Builder.TYPE_MATCH, Builder.HASATTR, Builder.BROKEN, Callable_(), len,
             functools.partial(Builder.HASATTR, attr="a")]  # fmt: skip


def is_duplicate(guard: Guard) -> bool:
    return guard.inner_create_fn() is Builder.HASATTR


def stated_key(guard: Guard) -> Any:
    code = getattr(guard.inner_create_fn(), "__code__", None)
    return (
        is_duplicate(guard),
        guard.source.value if guard.source else -1,
        len(guard.name),
        guard.name,
        code.co_firstlineno if code else -1,
    )


@dataclasses.dataclass(frozen=True)
class AnySource(Source):
    text: str
    kind: GuardSource | None

    def name(self) -> str:
        return self.text

    def guard_source(self) -> GuardSource | None:  # type: ignore[override]
        return self.kind


GUARDS = st.builds(
    Guard,
    st.builds(AnySource, st.text("abL", max_size=3), st.none() | st.sampled_from(GuardSource)),
    st.sampled_from(FUNCTIONS),
)


@pytest.fixture
def duplicate_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("guards._front_end._duplicate_input", [])
    assert guards.register_duplicate_input(is_duplicate) is is_duplicate
    guards.register_duplicate_input(is_duplicate)


@pytest.mark.slow
@LAW
@given(st.lists(GUARDS, max_size=12))
@pytest.mark.usefixtures("duplicate_input")
def test_guards_sort_as_stated(made: list[Guard]) -> None:
    assert [id(g) for g in sorted(made)] == [id(g) for g in sorted(made, key=stated_key)]


@pytest.mark.slow
@LAW
@given(GUARDS, GUARDS, GUARDS)
@pytest.mark.usefixtures("duplicate_input")
def test_order_is_total(a: Guard, b: Guard, c: Guard) -> None:
    assert (a < b) + (b < a) + (stated_key(a) == stated_key(b)) == 1
    if a < b and b < c:
        assert a < c
    if a == b:
        assert hash(a) == hash(b)
        assert not a < b


def test_without_a_front_end_no_guard_is_a_duplicate_input(
    local: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("guards._front_end._duplicate_input", [])
    assert Guard(local("x"), FUNCTIONS[-1]).sort_key()[0] is False


def test_duplicate_inputs_of_the_packages_builder_come_last(local: Any) -> None:
    create_fn = functools.partial(guards.GuardBuilder.DUPLICATE_INPUT, source_b=local("b"))
    duplicate = Guard(local("a"), create_fn)
    other = Guard(local("much longer", GuardSource.EPHEMERAL), guards.GuardBuilder.TYPE_MATCH)
    assert sorted([duplicate, other]) == [other, duplicate]


# ── Export info ──


class Guarded:
    pass


def test_export_info_is_collected(local: Any) -> None:
    guard = Guard(local("x"), Builder.TYPE_MATCH)
    obj, code = Guarded(), ["a"]
    guard.set_export_info("TYPE_MATCH", weakref.ref(Guarded), code, weakref.ref(obj))
    guard.set_export_info("ID_MATCH", weakref.ref(Guarded), ["b", "c"], weakref.ref(obj))
    assert guard.guard_types == ["TYPE_MATCH", "ID_MATCH"]
    assert guard.code_list == ["a", "b", "c"]
    assert code == ["a"]
    assert guard.obj_weakref == weakref.ref(obj)
    assert guard.guarded_class_weakref is weakref.ref(Guarded)
    guard.set_export_info("X", None, [], None)
    assert guard.guarded_class_weakref is weakref.ref(Guarded)
    assert guard.obj_weakref == weakref.ref(obj)


def test_export_info_of_another_class_or_object_changes_nothing(local: Any) -> None:
    guard = Guard(local("x"), Builder.TYPE_MATCH)
    obj, other = Guarded(), Guarded()
    guard.set_export_info("TYPE_MATCH", weakref.ref(Guarded), ["a"], weakref.ref(obj))
    before = [getattr(guard, f.name) for f in dataclasses.fields(guard)]
    with pytest.raises(ExportInfoError, match="another class") as caught:
        guard.set_export_info("T", weakref.ref(int), ["b"], weakref.ref(obj))
    assert caught.value.field == "guarded_class_weakref"
    with pytest.raises(ExportInfoError, match="another object") as caught:
        guard.set_export_info("T", weakref.ref(Guarded), ["b"], weakref.ref(other))
    assert caught.value.field == "obj_weakref"
    assert [getattr(guard, f.name) for f in dataclasses.fields(guard)] == before


def test_export_info_accepts_another_object_when_the_first_has_died(local: Any) -> None:
    guard = Guard(local("x"), Builder.TYPE_MATCH)
    guard.set_export_info("T", weakref.ref(Guarded), [], weakref.ref(Guarded()))
    other = Guarded()
    guard.set_export_info("T", weakref.ref(Guarded), [], weakref.ref(other))
    assert guard.obj_weakref == weakref.ref(other)


def test_export_info_never_compares_the_objects(local: Any) -> None:
    class Hostile:
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            raise AssertionError("compared")

    obj = Hostile()

    class Callback:  # a weak reference with a callback is not the one that is shared
        pass

    guard = Guard(local("x"), Builder.TYPE_MATCH)
    guard.set_export_info("T", weakref.ref(Hostile), [], weakref.ref(obj))
    guard.set_export_info("T", weakref.ref(Hostile), [], weakref.ref(obj, lambda _: None))
    with pytest.raises(ExportInfoError):
        guard.set_export_info("T", weakref.ref(Hostile), [], weakref.ref(Hostile_kept := Hostile()))
    assert Hostile_kept is not obj


# ── Text ──


class Config(dict[str, Any]):
    def __getattr__(self, name: str) -> Any:
        return self[name]  # KeyError, not AttributeError


def test_weakref_to_str(local: Any) -> None:
    obj: Any = Config()
    ref = weakref.ref(obj)
    assert Guard.weakref_to_str(ref) == f"<weakref at {id(ref):#x}; to 'Config' at {id(obj):#x}>"
    guard = Guard(local("x"), Builder.TYPE_MATCH, obj_weakref=ref)
    assert f"Object Weakref: {Guard.weakref_to_str(ref)}\n" in str(guard)
    assert Guard.weakref_to_str(ref) in repr(guard)
    del obj
    assert Guard.weakref_to_str(ref) == f"<weakref at {id(ref):#x}; dead>"
    assert Guard.weakref_to_str(None) == "None"
    assert Guard.weakref_to_str(17) == "17"


def test_text_of_a_guard(style: Any) -> None:
    guard = Guard(style.Local("x"), functools.partial(Builder.HASATTR, attr="a"))
    assert str(guard) == (
        "Name: \"L['x']\"\n"
        "    Source: local\n"
        "    Create Function: HASATTR\n"
        "    Guard Types: None\n"
        "    Code List: None\n"
        "    Object Weakref: None\n"
        "    Guarded Class Weakref: None\n"
    )
    guard.set_export_info("HASATTR", weakref.ref(Guarded), ["hasattr(x, 'a')"], None)
    for text in ("L['x']", "local", "HASATTR", "[\"hasattr(x, 'a')\"]", "Guarded"):
        assert text in str(guard)
        assert text in repr(guard)
    assert "\n" not in repr(guard)


def test_text_of_a_guard_without_a_kind_of_place() -> None:
    text = str(Guard(AnySource("", None), Builder.TYPE_MATCH))
    assert text.startswith("Name: ''\n    Source: \n")


def test_text_of_a_class_whose_metaclass_misbehaves(local: Any) -> None:
    class Meta(type):
        def __getattribute__(cls, name: str) -> Any:
            raise RuntimeError(name)

    class Odd(metaclass=Meta):
        pass

    guard = Guard(local("x"), Builder.TYPE_MATCH, guarded_class_weakref=weakref.ref(Odd))
    assert "Guarded Class Weakref: <weakref at 0x" in str(guard)


# ── Assumptions about several inputs ──


def test_duplicate_inputs_differ(style: Any) -> None:
    pair = DuplicateInputs(style.Local("x"), style.Local("y"))
    assert isinstance(pair, GuardEnvExpr)
    assert pair == DuplicateInputs(style.Local("x"), style.Local("y"))
    assert hash(pair) == hash(DuplicateInputs(style.Local("x"), style.Local("y")))
    with pytest.raises(DuplicateSourceError, match="two different sources") as caught:
        DuplicateInputs(style.Local("x"), style.Local("x"))
    assert caught.value.source == style.Local("x")
    with pytest.raises(dataclasses.FrozenInstanceError):
        pair.input_source_a = style.Local("z")  # type: ignore[misc]


def test_storage_overlap_hashes_whatever_it_is_given(style: Any) -> None:
    x, y = style.Local("x"), style.Local("y")
    overlap = StorageOverlap([x, y], [])
    assert isinstance(overlap, GuardEnvExpr)
    assert overlap.overlapping_sources == (x, y)
    assert overlap.non_overlapping_sources == ()
    assert {overlap: 1}[StorageOverlap((x, y), ())] == 1
    assert overlap != StorageOverlap([x], [y])
    with pytest.raises(dataclasses.FrozenInstanceError):
        overlap.overlapping_sources = ()  # type: ignore[misc]
