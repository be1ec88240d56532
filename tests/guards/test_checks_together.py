"""Checks that are made together in one step give the verdicts that they give one by one."""

from __future__ import annotations

import collections
import ctypes
import functools
import gc
import importlib
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from guards import (
    AttrSource,
    CheckFunction,
    GetItemSource,
    Guard,
    GuardBuilder,
    LocalSource,
    ParamBufferSource,
    Source,
    compile_guards,
)
from guards import _torch_private as private

from tests.guards.kinds import NAN, Point

CALLS: list[str] = []


class Hostile:
    """An object whose special methods are written down, and lie."""

    def __eq__(self, other: object) -> bool:
        CALLS.append("__eq__")
        return True

    def __hash__(self) -> int:
        CALLS.append("__hash__")
        return hash("k1")

    def __len__(self) -> int:
        CALLS.append("__len__")
        return 5

    def __getattr__(self, name: str) -> Any:
        CALLS.append(name)
        return None


class HostileDict(dict[Any, Any]):
    def __getitem__(self, key: object) -> Any:
        CALLS.append("__getitem__")
        return super().__getitem__(key)

    def __iter__(self) -> Any:
        CALLS.append("__iter__")
        return super().__iter__()

    def __len__(self) -> int:
        CALLS.append("__len__")
        return super().__len__()

    __contains__ = keys = values = items = get = None  # type: ignore[assignment]


class ChildDict(dict[Any, Any]):
    pass


class HostileText(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        CALLS.append("__eq__")
        return True

    __hash__ = str.__hash__


@pytest.fixture(autouse=True)
def no_foreign_code_is_run() -> Any:
    CALLS.clear()
    yield
    assert CALLS == []


def guarded(scope: dict[str, Any], **kinds: Any) -> CheckFunction:
    """Guard each local by the kind that the first letter of its name stands for."""
    return compile_guards([Guard(LocalSource(k), kinds[k[0]]) for k in scope], scope)


def first_failure(check: CheckFunction, scope: dict[str, Any]) -> str:
    explained = check.explain(scope)
    return "" if explained is None else explained.expression


# ── identities and constants, all of which are compared by address first ─────────────────────────

SAME = {
    "i": GuardBuilder.ID_MATCH,
    "b": GuardBuilder.BOOL_MATCH,
    "n": GuardBuilder.NONE_MATCH,
    "c": GuardBuilder.EQUALS_MATCH,
}


def same_scope() -> dict[str, Any]:
    scope: dict[str, Any] = {}
    for number in range(12):
        scope |= {f"i{number}": Point(number), f"b{number}": number % 2 == 0, f"n{number}": None}
        scope |= {f"c{number}_int": 1000 + number, f"c{number}_text": f"text {number}"}
        scope |= {f"c{number}_tuple": (number, "x", (0.0, NAN)), f"c{number}_float": NAN}
    return scope


def test_same_takes_constants_that_are_equal_but_not_the_same() -> None:
    scope = same_scope()
    check = guarded(scope, **SAME)
    assert "values[" in check.source, "these are checked together"
    fresh = {
        key: int(str(value))
        if type(value) is int
        else "".join(list(value))
        if type(value) is str
        else (value[0], "x", (0.0, float("nan")))
        if type(value) is tuple
        else float("nan")
        if type(value) is float
        else value
        for key, value in scope.items()
    }
    assert fresh["c3_int"] is not scope["c3_int"]
    assert check(fresh)
    assert check.explain(fresh) is None


@pytest.mark.parametrize("fresh", [False, True], ids=["the same", "equal"])
def test_same_refuses_each_one_that_differs(fresh: bool) -> None:
    scope = same_scope()
    check = guarded(scope, **SAME)
    now = {**scope, "c5_int": int("1005")} if fresh else scope
    for key, value in scope.items():
        others: list[Any] = [Hostile(), Hostile, HostileText("text 3"), HostileDict(), 1, True, 0.5]
        others += [None, False, float(value) if type(value) is int else ..., (value,)]
        for other in others:
            if other is value or (type(other) is type(value) and other == value):
                continue
            changed = {**now, key: other}
            assert check(changed) is False, (key, other)
        assert first_failure(check, {**now, key: Hostile()}).startswith(f"L['{key}']")
        missing = {k: v for k, v in now.items() if k != key}
        assert check(missing) is False


@pytest.mark.slow  # collects garbage
def test_same_never_holds_again_once_one_object_is_dead() -> None:
    scope = same_scope()
    check = guarded(scope, **SAME)
    assert check(scope)
    del scope["i7"]
    gc.collect()
    assert check.death.happened
    for other in [None, *(Point(7) for _ in range(200))]:
        assert not check({**scope, "i7": other})


@pytest.mark.slow  # collects garbage
def test_one_identity_never_holds_again_once_the_object_is_dead() -> None:
    scope = {"i": Point()}
    check = guarded(scope, **SAME)
    assert check(scope)
    scope.clear()
    gc.collect()
    assert not check({"i": None})
    assert not check({"i": Point()})


# ── types ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow  # collects garbage
@pytest.mark.parametrize("count", [3, 40, 300])
@pytest.mark.parametrize("made_now", [False, True], ids=["of a module", "made at run time"])
def test_types_of_many_values(count: int, made_now: bool) -> None:
    class Meta(type):
        def __eq__(cls, other: object) -> bool:
            CALLS.append("__eq__")
            return True

        __hash__ = type.__hash__

    def make() -> type:
        class Local(metaclass=Meta):
            pass

        return Local if made_now else Point

    cls = make()
    scope = {f"t{i}": cls() for i in range(count)}
    check = guarded(scope, t=GuardBuilder.TYPE_MATCH)
    assert check({k: cls() for k in scope})
    other = type("Other", (cls,), {})()
    for place in ("t0", f"t{count // 2}", f"t{count - 1}"):
        for value in (other, Hostile(), cls, None):
            assert check({**scope, place: value}) is False
        assert first_failure(check, {**scope, place: other}).startswith(f"L['{place}']")
    if made_now:
        del cls, scope, other, value
        gc.collect()
        assert check.death.happened


# ── keys of dicts ────────────────────────────────────────────────────────────────────────────────


def with_keys(count: int, keys: int) -> dict[str, Any]:
    return {f"d{i}": {f"k{n}": n for n in range(keys)} for i in range(count)}


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("keys", [1, 2, 9, 20])
@pytest.mark.parametrize("count", [1, 60])
def test_keys_of_many_dicts(count: int, keys: int, ordered: bool) -> None:
    scope = with_keys(count, keys)
    kind = functools.partial(GuardBuilder.DICT_KEYS_MATCH, ordered=ordered)
    check = guarded(scope, d=kind)
    assert check(scope)
    assert check(with_keys(count, keys)), "keys that are equal, but other objects"
    values = {key: {k: Hostile() for k in value} for key, value in scope.items()}
    assert check(values)
    names = [f"k{n}" for n in range(keys)]
    for place in {"d0", f"d{count // 2}", f"d{count - 1}"}:
        refused: list[Any] = [
            dict.fromkeys(names[1:]),
            dict.fromkeys([*names, "more"]),
            dict.fromkeys([*names[1:], "other"]),
            dict.fromkeys([*names[1:], HostileText(names[0])]),
            {**dict.fromkeys(names[1:]), 1: 0},
            HostileDict(dict.fromkeys(names)),
            collections.OrderedDict.fromkeys(names),
            names,
            Hostile(),
            None,
            {},
        ]
        CALLS.clear()  # of making them
        for value in refused:
            assert check({**scope, place: value}) is False, value
            assert first_failure(check, {**scope, place: value}).startswith(f"L['{place}']")
        turned = {**scope, place: dict.fromkeys(reversed(names))}
        assert check(turned) is (keys == 1 or not ordered)
        del turned[place]
        assert check(turned) is False


def test_keys_with_the_hash_of_a_key() -> None:
    scope = with_keys(60, 3)
    check = guarded(scope, d=GuardBuilder.DICT_KEYS_MATCH)
    hostile = {"k0": 0, Hostile(): 1, "k2": 2}
    CALLS.clear()
    assert check({**scope, "d30": hostile}) is False
    assert check.explain({**scope, "d30": hostile}) is not None


def test_keys_that_moved_from_one_dict_to_the_next() -> None:
    scope = with_keys(60, 2)
    check = guarded(scope, d=GuardBuilder.DICT_KEYS_MATCH)
    moved = {**scope, "d7": {"k0": 0}, "d8": {"k1": 1, "k0": 0, "k2": 1}}
    assert check(moved) is False


def test_keys_of_several_kinds() -> None:
    keys = [1, "a", None, (1, 2), 2.5, int]
    scope = {f"d{i}": dict.fromkeys(keys[: 1 + i % 6]) for i in range(120)}
    check = guarded(scope, d=GuardBuilder.DICT_KEYS_MATCH)
    assert check(scope)
    assert check({**scope, "d2": {1: 0, "a": 0, None: 0}})
    assert not check({**scope, "d2": {True: 0, "a": 0, None: 0}})
    assert not check({**scope, "d4": dict.fromkeys([1, "a", None, (1, True), 2.5])})


# ── sets ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("cls", [set, frozenset])
@pytest.mark.parametrize("count", [0, 1, 5, 40])
def test_members_in_any_order(cls: Callable[..., Any], count: int) -> None:
    names = [f"k{n}" for n in range(count)]
    scope = {f"s{i}": cls(names) for i in range(3)}
    check = guarded(scope, s=GuardBuilder.SET_MATCH)
    assert check(scope)
    assert check({k: cls(["".join(list(n)) for n in reversed(names)]) for k in scope})
    grown = set(map(str, range(1000)))  # of another size within
    grown.clear()
    grown |= set(names)
    assert check({**scope, "s1": cls(grown) if cls is frozenset else grown})
    other = frozenset if cls is set else set
    hostile = {*names[1:], Hostile()}
    CALLS.clear()
    for value in (other(names), cls([*names, "more"]), cls(hostile), names, Hostile(), None):
        CALLS.clear()  # of copying the set
        assert check({**scope, "s1": value}) is False
        assert CALLS == []


# ── tensors ──────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(params=["in a row", pytest.param("in a tree", marks=pytest.mark.slow)])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let tensors be checked without and with the part of torch that a tree of them needs."""
    if request.param == "in a tree":
        importlib.import_module("torch._dynamo.guards")
    else:
        monkeypatch.setattr(private, "kind_of_node", lambda: None)
    return str(request.param)


def test_tensors_are_checked_in_that_way(way: str) -> None:
    scope = {f"t{i}": torch.zeros(2) for i in range(3)}
    source = guarded(scope, t=GuardBuilder.TENSOR_MATCH).source
    assert ("tree_of_tensors" in source) is (way == "in a tree")
    assert ("tensors_check(" in source) is (way == "in a row")


@pytest.mark.parametrize("count", [2, 4, 5, 8, 9, 12, 13, 17, 24, 25, 40])
def test_tensors_in_one_call_or_several(way: str, count: int) -> None:
    scope = {f"t{i}": torch.zeros(i + 1, 2) for i in range(count)}
    check = guarded(scope, t=GuardBuilder.TENSOR_MATCH)
    assert check({k: v.clone() for k, v in scope.items()})
    for number in range(count):
        for value in (torch.zeros(number + 1, 3), None, Hostile()):
            changed = {**scope, f"t{number}": value}
            assert check(changed) is False
        assert first_failure(check, changed).startswith(f"L['t{number}']")
    del scope[f"t{count - 1}"]
    assert check(scope) is False


@pytest.mark.parametrize("count", [1, 2, 20])
@pytest.mark.parametrize("kind", [types.MappingProxyType, collections.UserDict, ChildDict])
def test_tensors_of_another_mapping(way: str, kind: Callable[..., Any], count: int) -> None:
    scope: dict[str, Any] = {f"t{i}": torch.zeros(2) for i in range(count)}
    check = guarded(scope, t=GuardBuilder.TENSOR_MATCH)
    last = f"t{count - 1}"
    assert check(kind(scope))
    assert check(kind({**scope, last: torch.zeros(2)}))
    for wrong in (torch.zeros(3), None, torch.zeros(2, requires_grad=True)):
        assert check(kind({**scope, last: wrong})) is False
    assert check(kind({})) is False
    assert check(None) is False  # type: ignore[arg-type]


@pytest.mark.usefixtures("way")
def test_tensors_of_two_classes_from_dicts_and_lists_of_several_depths() -> None:
    def made(columns: int = 4) -> dict[str, Any]:
        return {
            "d": {"a": torch.zeros(1), 3: torch.nn.Parameter(torch.zeros(2))},
            "l": [torch.zeros(3), (torch.zeros(2, columns), {"b": torch.zeros(5)})],
            "t": torch.zeros(6),
        }

    d, pair = LocalSource("d"), GetItemSource(LocalSource("l"), 1)
    sources = [
        GetItemSource(d, "a"),
        GetItemSource(d, 3),
        GetItemSource(LocalSource("l"), 0),
        GetItemSource(pair, 0),
        GetItemSource(GetItemSource(pair, 1), "b"),
        LocalSource("t"),
    ]
    check = compile_guards([Guard(s, GuardBuilder.TENSOR_MATCH) for s in sources], made())
    assert check(made())
    assert check.explain(made()) is None
    assert first_failure(check, made(5)).startswith("L['l'][1][0]")
    changes: list[Callable[[dict[str, Any]], Any]] = [
        lambda scope: scope["d"].pop("a"),
        lambda scope: scope["d"].update({3: torch.zeros(2)}),
        lambda scope: scope["l"].pop(),
        lambda scope: scope.update(d=HostileDict(scope["d"]), t=None),
        lambda scope: scope.update(l=tuple(scope["l"]), t=None),
        lambda scope: scope["l"][1][1].clear(),
        lambda scope: scope.update(d=None),
    ]
    for change in changes:
        scope = made()
        change(scope)
        assert check(scope) is False
        assert check.explain(scope) is not None
    scope = made()
    scope["l"] = tuple(scope["l"])
    assert check(scope), "a tuple has the same entries"


@pytest.mark.usefixtures("way")
def test_two_checks_of_one_parameter() -> None:
    layer = torch.nn.Linear(2, 3)
    m = LocalSource("m")

    def guard(source: Source, **options: Any) -> Guard:
        return Guard(source, functools.partial(GuardBuilder.TENSOR_MATCH, **options))

    attr, parameter = AttrSource(m, "weight"), ParamBufferSource(m, "weight")
    guards = [
        guard(attr, dynamic_sizes=[0]),
        guard(attr, dynamic_sizes=[1], dynamic_strides=[0]),
    ]
    other = [guard(parameter), guard(parameter, dynamic_sizes=[0])]
    for both in (guards, [guards[0], other[0]], [guards[1], other[1], other[0]]):
        check = compile_guards(both, {"m": layer})
        assert check({"m": layer})
        assert check({"m": torch.nn.Linear(2, 3)})
        for wrong in (torch.nn.Linear(2, 4), torch.nn.Linear(4, 3)):
            assert check({"m": wrong}) is (check.explain({"m": wrong}) is None) is False


@pytest.mark.parametrize("count", [2, 9, 12, 20])
def test_one_tensor_in_several_places(way: str, count: int) -> None:
    scope = {f"t{i}": torch.zeros(2) for i in range(count)}
    check = guarded(scope, t=GuardBuilder.TENSOR_MATCH)
    assert check(dict.fromkeys(scope, torch.zeros(2)))
    assert check.explain(dict.fromkeys(scope, torch.zeros(2))) is None
    assert not check(dict.fromkeys(scope, torch.zeros(3)))
    assert not check({**dict.fromkeys(scope, torch.zeros(2)), "t1": torch.zeros(3)})


# ── modules ──────────────────────────────────────────────────────────────────────────────────────


def check_of_parameters(model: torch.nn.Module) -> CheckFunction:
    modules = AttrSource(LocalSource("m"), "_modules")
    guards = []
    for name, layer in model._modules.items():
        assert layer is not None
        for key in layer._parameters:
            source = AttrSource(GetItemSource(modules, name), key)
            guards.append(Guard(source, GuardBuilder.TENSOR_MATCH))
    return compile_guards(guards, {"m": model})


@pytest.mark.usefixtures("way")
def test_parameters_of_a_layer_of_another_class() -> None:
    model = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(3)))
    check = check_of_parameters(model)
    model[1] = Trained(2, 2)
    assert check({"m": model})
    model[1] = torch.nn.Linear(2, 3)
    assert not check({"m": model})
    model[1] = Trained(2, 3)
    assert not check({"m": model})
    model[1] = torch.nn.Bilinear(2, 2, 2)
    assert not check({"m": model})


@pytest.mark.usefixtures("way")
def test_parameters_in_a_table_of_another_class() -> None:
    model = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(3)))
    check = check_of_parameters(model)
    assert check({"m": model})
    layer = model[1]
    table = layer._parameters
    others: list[Any] = [HostileDict(table), collections.OrderedDict(table), None, Hostile(), {}]
    for wrong in others:
        layer.__dict__["_parameters"] = wrong
        CALLS.clear()
        assert check({"m": model}) is False
        assert check.explain({"m": model}) is not None
    layer.__dict__["_parameters"] = table
    assert check({"m": model})
    model._modules["1"] = Hostile()  # type: ignore[assignment]
    assert check({"m": model}) is False


class Trained(torch.nn.Linear):
    pass


def test_training_flag_behind_a_property_made_later() -> None:
    model = Trained(2, 2)
    check = compile_guards([Guard(LocalSource("m"), GuardBuilder.MODULE_TRAINING)], {"m": model})
    assert check({"m": model})
    assert check({"m": torch.nn.Linear(3, 3)}), "of another class"
    assert not check({"m": Trained(2, 2).eval()})
    del model.__dict__["training"]
    assert not check({"m": model})
    model.training = True
    try:
        Trained.training = property(lambda self: CALLS.append("training") or True)  # type: ignore[assignment, func-returns-value]
        assert check({"m": model}) is (check.explain({"m": model}) is None)
    finally:
        del Trained.training


class Slotted:
    __slots__ = ("a",)
    a: int


class Covered:
    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        CALLS.append("__dict__")
        return {"a": 1, "b": 1}


def test_attributes_of_objects_without_a_plain_dict() -> None:
    slotted, covered = Slotted(), Covered()
    slotted.a = 1
    there = functools.partial(GuardBuilder.HASATTR, attr="a")
    absent = functools.partial(GuardBuilder.NOT_PRESENT, attr="b")
    scope = {"h": slotted, "p": slotted, "q": covered}
    check = guarded(scope, h=there, p=absent, q=absent)
    assert check(scope)
    del slotted.a
    assert not check(scope)
    point = Point()
    plain = guarded({"h": point, "p": point}, h=there, p=absent)
    assert plain({"h": point, "p": point})
    assert plain({"h": point, "p": covered})
    assert not plain({"h": covered, "p": point})
    point.b = 1  # type: ignore[attr-defined]
    assert not plain({"h": point, "p": point})


# ── checks of one value each that a tree makes together ──────────────────────────────────────────

CODE = "def f{0}(x): return x + {0}"


def method_of_c(function: Any) -> Any:
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)
    return make(("PyInstanceMethod_New", ctypes.pythonapi))(function)


def functions(count: int) -> dict[str, Any]:
    """Make functions, each of a code object that only it refers to."""
    scope: dict[str, Any] = {}
    for number in range(count):
        exec(CODE.format(number), {}, scope)
    return scope


@pytest.mark.parametrize("count", [1, 6, 7, 30])
def test_functions_together(way: str, count: int) -> None:
    scope = functions(count)
    check = guarded(scope, f=GuardBuilder.FUNCTION_MATCH)
    assert ("tree_of_nodes" in check.source) is (way == "in a tree" and count > 6)
    assert check(scope)
    other = {k: types.FunctionType(f.__code__, {}) for k, f in scope.items()}
    assert check(other), "other functions of the same code"
    assert check(functions(count)), "equal code"
    assert check(types.MappingProxyType(other))
    last = f"f{count - 1}"
    bound = types.MethodType(scope[last], Point(1))
    assert check({**scope, last: bound}), "the function behind a method counts"
    of_c = method_of_c(scope[last])
    for way_to_it in (of_c, of_c.__get__(1)):
        assert check({**scope, last: way_to_it}), "also of one that C code made"
        assert check.explain({**scope, last: way_to_it}) is None
    twice = [types.MethodType(f, 1) for f in (of_c, bound)]
    another = functions(count + 1)[f"f{count}"]
    others = [method_of_c(another), method_of_c(len), types.MethodType(len, [])]
    for wrong in (*twice, *others, another, lambda x: x, len, None, Hostile()):
        assert check({**scope, last: wrong}) is False
        assert first_failure(check, {**scope, last: wrong}).startswith(f"L['{last}']")
    assert check({}) is False
    methods = {k: types.MethodType(f, Point(1)) for k, f in scope.items()}
    check = guarded(methods, f=GuardBuilder.FUNCTION_MATCH)
    assert "tree_of_nodes" not in check.source
    assert check(methods)
    assert check(scope)


@pytest.mark.usefixtures("way")
@pytest.mark.slow  # collects garbage
def test_code_in_the_place_of_code_that_died() -> None:
    scope = functions(8)
    check = guarded(scope, f=GuardBuilder.FUNCTION_MATCH)
    dead = [weakref.ref(f.__code__) for f in scope.values()]
    kept = dict(scope)
    del kept["f3"]
    addresses = {id(f.__code__) for f in scope.values()}
    scope.clear()
    gc.collect()
    assert [ref() is None for ref in dead] == [k == 3 for k in range(8)], "nothing is kept alive"
    for _ in range(200):
        exec("def f3(x): return x - 1", {}, scope)
        assert check({**kept, **scope}) is False
        if id(scope["f3"].__code__) in addresses:
            break
    assert check(functions(8)), "of equal code"


class Block(torch.nn.Module):
    pass


@pytest.mark.parametrize("cls", [torch.nn.Identity, Block])
@pytest.mark.parametrize("count", [1, 6, 7, 30])
def test_training_flags_together(way: str, cls: type[torch.nn.Module], count: int) -> None:
    scope: dict[str, Any] = {f"m{i}": cls().train(i % 2 == 0) for i in range(count)}
    check = guarded(scope, m=GuardBuilder.MODULE_TRAINING)
    assert ("tree_of_nodes" in check.source) is (way == "in a tree" and count > 6)
    for _ in range(3):
        assert check(scope)
    for module in scope.values():
        module.train(not module.training)
        assert check(scope) is False
        module.train(not module.training)
        module.extra = 1  # the dict has another version
        assert check(scope)
    other: dict[str, Any] = {k: torch.nn.ReLU().train(m.training) for k, m in scope.items()}
    assert check(other), "modules of another class"
    assert check({**scope, "m0": other["m0"]})
    assert not check({**scope, "m0": other["m0"].train(not scope["m0"].training)})
    for wrong in (None, Hostile(), cls):
        assert check({**scope, "m0": wrong}) is False
    del scope["m0"].__dict__["training"]
    assert check(scope) is (check.explain(scope) is None) is False


@pytest.mark.usefixtures("way")
@pytest.mark.slow  # collects garbage
def test_modules_and_tensors_of_a_tree_are_not_kept_alive() -> None:
    scope: dict[str, Any] = {f"m{i}": torch.nn.Linear(2, 2) for i in range(8)}
    parts = {"m": GuardBuilder.MODULE_TRAINING, "t": GuardBuilder.TENSOR_MATCH}
    scope |= {f"t{i}": torch.zeros(2) for i in range(8)}
    check = guarded(scope, **parts)
    assert check(scope)
    dead = [weakref.ref(value) for value in scope.values()]
    scope.clear()
    gc.collect()
    assert [ref() for ref in dead] == [None] * 16
    scope |= {f"m{i}": torch.nn.Linear(2, 2) for i in range(8)}
    assert check({**scope, **{f"t{i}": torch.zeros(2) for i in range(8)}})


@pytest.mark.slow
def test_property_that_a_class_in_a_tree_is_given_later(way: str) -> None:
    scope: dict[str, Any] = {f"m{i}": Block() for i in range(8)}
    check = guarded(scope, m=GuardBuilder.MODULE_TRAINING)
    assert check(scope)
    Block.training = property(lambda self: CALLS.append("training") or True)  # type: ignore[assignment, func-returns-value]
    try:
        assert check(scope) is (check.explain(scope) is None) is False
    finally:
        del Block.training
    assert check(scope)


# ── the function itself ──────────────────────────────────────────────────────────────────────────


def test_check_is_a_plain_function() -> None:
    check = guarded({"c": 1}, **SAME)
    assert isinstance(check, types.FunctionType)
    assert isinstance(check, CheckFunction)
    assert not isinstance(lambda L: True, CheckFunction)
    assert repr(check).startswith("<function check(L) of 1 guards")


def test_names_of_locals_are_none_of_the_names_in_the_code() -> None:
    names = ["type", "len", "v", "v0", "values", "the_type", "if", "L", "G", "check", "types"]
    scope: dict[str, Any] = {name: 1000 + i for i, name in enumerate(names)}
    kinds = (GuardBuilder.TYPE_MATCH, GuardBuilder.EQUALS_MATCH)
    check = compile_guards([Guard(LocalSource(n), kind) for n in scope for kind in kinds], scope)
    assert check(scope)
    for name in names:
        assert check({**scope, name: 1}) is False
    texts = {name: name for name in names}
    check = compile_guards([Guard(LocalSource(n), GuardBuilder.EQUALS_MATCH) for n in texts], texts)
    assert check(texts)
    for name in names:
        assert check({**texts, name: "v"}) is (name == "v")


def test_scope_that_is_no_dict() -> None:
    scope = same_scope()
    check = guarded(scope, **SAME)
    assert check(types.MappingProxyType(scope))
    assert check(collections.UserDict(scope))
    assert not check(collections.UserDict({**scope, "n3": 0}))


@pytest.mark.parametrize("count", [1, 5, 40])
def test_mapping_that_gives_less_from_one_look_to_the_next(count: int) -> None:
    class Fading(collections.UserDict[str, Any]):
        left = count - 1

        def __getitem__(self, key: str) -> Any:
            self.left -= 1
            if self.left < 0:
                raise RuntimeError("gone")
            return super().__getitem__(key)

    scope = {f"c{i}": i for i in range(count)}
    check = guarded(scope, **SAME)
    assert check(Fading(scope)) is False
