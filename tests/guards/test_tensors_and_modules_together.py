"""Checks of tensors, functions and modules that are made together, as torch's trees make them."""

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

from tests.guards.hostile import CALLS, ChildDict, Hostile, HostileDict, first_failure, guarded
from tests.guards.kinds import Point

pytestmark = pytest.mark.usefixtures("no_foreign_code_is_run")


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


class Child(collections.OrderedDict[str, int]):
    pass


class Counted(collections.OrderedDict[str, int]):
    def __len__(self) -> int:
        raise AssertionError("never run")


@pytest.mark.parametrize("size", [0, 2])
@pytest.mark.parametrize("cls", [list, tuple, dict, set, str, collections.OrderedDict])
@pytest.mark.parametrize("count", [1, 7, 8, 30])
def test_lengths_together(way: str, cls: type, count: int, size: int) -> None:
    def of(cls: Any, size: int) -> Any:
        parts = [f"{i}" for i in range(size)]
        if cls is str:
            return "".join(parts)
        return cls(dict.fromkeys(parts, 0) if issubclass(cls, dict) else parts)

    scope: dict[str, Any] = {f"c{i}": of(cls, size) for i in range(count)}
    check = guarded(scope, c=GuardBuilder.SEQUENCE_LENGTH)
    assert ("tree_of_nodes" in check.source) is (way == "in a tree" and count > 7)
    assert check(scope)
    assert check(types.MappingProxyType(scope))
    assert check({**scope, "c0": of(cls, size)})
    assert check({**scope, "c0": range(size)}), "another class that counts as the builtins do"
    assert check({**scope, "c0": of(Child, size)})
    for wrong in (of(cls, size + 1), None, size, Hostile(), Counted(), cls):
        assert check({**scope, f"c{count - 1}": wrong}) is False


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("count", [1, 7, 8, 30])
def test_keys_together(way: str, count: int, ordered: bool) -> None:
    def keyed(*keys: Any, cls: Any = dict) -> Any:
        return cls(dict.fromkeys(keys))

    scope: dict[str, Any] = {f"d{i}": keyed("one", f"key {i}", 3) for i in range(count)}
    check = guarded(scope, d=functools.partial(GuardBuilder.DICT_KEYS_MATCH, ordered=ordered))
    assert ("tree_of_nodes" in check.source) is (way == "in a tree" and count > 7)
    last, own = f"d{count - 1}", f"key {count - 1}"
    assert check(scope)
    assert check({k: dict(d) for k, d in scope.items()})
    assert check(types.MappingProxyType(scope))
    assert check({**scope, last: keyed("".join(["o", "ne"]), f"key {count - 1}", 3)}), "equal keys"
    assert check({**scope, last: keyed(3, own, "one")}) is not ordered
    strange = Hostile()
    for wrong in (
        keyed("one", own),
        keyed("one", own, 3, 4),
        keyed("one", own, 4),
        keyed("one", own, 3.0),
        keyed("one", own, True),
        keyed("one", strange, 3),
        keyed("one", own, 3, cls=collections.OrderedDict),
        keyed("one", own, 3, cls=ChildDict),
        [*scope[last]],
        None,
        strange,
    ):
        CALLS.clear()
        assert check({**scope, last: wrong}) is False
        assert not CALLS
    scope[last].clear()
    assert check(scope) is False
    assert check.explain(scope) is not None


def refused_by(check: CheckFunction, scope: dict[str, Any]) -> str:
    assert not check(scope)
    explained = check.explain(scope)
    assert explained is not None
    return explained.code


def test_keys_and_more_of_dicts_and_modules_together(way: str) -> None:
    scope: dict[str, Any] = {"m": torch.nn.Sequential(*[torch.nn.Linear(2, 2) for _ in range(9)])}
    modules = AttrSource(LocalSource("m"), "_modules")
    guards = []
    for name in scope["m"]._modules:
        layer = GetItemSource(modules, name)
        own = AttrSource(layer, "__dict__")
        guards += [
            Guard(AttrSource(layer, "_parameters"), GuardBuilder.DICT_KEYS_MATCH),
            Guard(AttrSource(layer, "_forward_hooks"), GuardBuilder.SEQUENCE_LENGTH),
            Guard(GetItemSource(own, "training"), GuardBuilder.ID_MATCH),
            Guard(own, GuardBuilder.TYPE_MATCH),
            Guard(layer, GuardBuilder.TYPE_MATCH),
            Guard(layer, GuardBuilder.MODULE_TRAINING),
        ]
    check = compile_guards(guards, scope)
    assert check(scope), way
    layer = scope["m"][4]
    layer._parameters["extra"] = None
    assert refused_by(check, scope) == "DICT_KEYS_MATCH"
    del layer._parameters["extra"]
    layer._parameters = {"".join(["wei", "ght"]): layer.weight, "bias": layer.bias}
    assert check(scope)
    layer.register_forward_hook(print)
    assert refused_by(check, scope) == "SEQUENCE_LENGTH"
    layer._forward_hooks.clear()
    layer.eval()
    assert refused_by(check, scope) == "MODULE_TRAINING"
    layer.train()
    del layer.__dict__["_forward_hooks"]
    assert refused_by(check, scope) == "SEQUENCE_LENGTH"
    layer._buffers["_forward_hooks"] = {}
    assert check(scope), "found where torch's own look-up finds it"
    scope["m"]._modules["4"] = torch.nn.ReLU()
    assert not check(scope)


class Plain:
    at_class = 1


class Sly:
    @property
    def own(self) -> int:
        raise AssertionError("never run")


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("count", [1, 7, 8, 30])
def test_attributes_together(way: str, count: int, there: bool) -> None:
    def made(cls: Any, *names: str) -> Any:
        thing = cls()
        thing.__dict__.update(dict.fromkeys(names))
        return thing

    names = ("own", "other") if there else ("other",)
    scope: dict[str, Any] = {f"a{i}": made(Plain, *names) for i in range(count)}
    kind: Any = GuardBuilder.HASATTR if there else GuardBuilder.NOT_PRESENT
    check = guarded(scope, a=functools.partial(kind, attr="own"))
    assert ("tree_of_nodes" in check.source) is (way == "in a tree" and count > 7)
    last = f"a{count - 1}"
    assert check(scope)
    assert check({**scope, last: made(Block, *names)}), "another class"
    assert check({**scope, last: made(Sly, *names)}), "a property hides it, or is there itself"
    assert check({**scope, last: made(Sly)}), "the property alone"
    others = ("other",) if there else ("other", "own")
    for wrong in (made(Plain, *others), made(Block, *others)):
        assert check({**scope, last: wrong}) is False
    strange = {**scope, last: Hostile()}
    assert (check.explain(strange) is None) is check(strange)
    assert check({}) is False


def test_attributes_of_a_class_together(way: str) -> None:
    scope = {f"a{i}": Plain() for i in range(20)}
    check = guarded(scope, a=functools.partial(GuardBuilder.HASATTR, attr="at_class"))
    assert "tree_of_nodes" not in check.source, way
    assert check(scope)
    assert not check({**scope, "a3": Block()})


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
