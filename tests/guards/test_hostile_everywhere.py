"""A hostile object in any place: every kind of guard on every source answers, and runs no code."""

from __future__ import annotations

import collections
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from guards import CheckFunction
from guards._understood import words
from torch import nn

from tests.guards import test_saving_sources as everything
from tests.guards.kinds import Point

RAN: list[str] = []
SPECIAL = words(
    "__eq__ __ne__ __hash__ __len__ __bool__ __iter__ __getitem__ __contains__ __getattr__ "
    "__repr__ __str__ __format__ __lt__ __le__ __gt__ __ge__ __int__ __float__ __index__ __call__ "
    "__instancecheck__ __subclasscheck__ __reversed__ __missing__ __next__ __dir__"
)
PROPERTIES = words(
    "__class__ __dict__ __code__ __closure__ __defaults__ a training shape count layer _parameters "
    "_modules _buffers"
)


def trap(name: str) -> Any:
    def ran(*args: Any, **kwargs: Any) -> Any:
        RAN.append(name)
        raise RuntimeError(f"foreign {name} was run")

    return ran


def traps() -> dict[str, Any]:
    return {
        **{name: trap(name) for name in SPECIAL},
        **{name: property(trap(name)) for name in PROPERTIES},
    }


class Meta(type):
    for _name in ("__eq__", "__hash__", "__instancecheck__", "__getattribute__", "__repr__",
                  "__len__", "__bool__", "__call__", "__iter__", "__getitem__"):  # fmt: skip
        locals()[_name] = trap(f"meta {_name}")


BASES: list[tuple[type, tuple[Any, ...]]] = [
    (object, ()), (int, (3,)), (str, ("abc",)), (float, (2.5,)), (tuple, ((1, 2),)), (list, ()),
    (dict, ()), (set, ()), (collections.OrderedDict, ()),
]  # fmt: skip


def hostile_objects() -> Iterator[Any]:
    for number, (base, arguments) in enumerate(BASES):
        namespace = traps()
        if number % 2:
            namespace["__getattribute__"] = trap("__getattribute__")
        cls = type.__new__(Meta if number % 3 == 0 else type, "Hostile", (base,), namespace)
        made: Any = base.__new__(cls, *arguments)
        if base is dict:
            dict.update(made, {"b": 1, "k": 2, "late": 3})
        if base is list:
            list.extend(made, [1, (2.0, None), {"k": 4}])
        yield made
    yield type.__new__(Meta, "HostileClass", (), traps())
    slots = type.__new__(type, "HostileSlots", (), {**traps(), "__slots__": ("z",)})
    yield object.__new__(slots)
    members = {k: v for k, v in traps().items() if k not in ("__dict__", "__class__", "__hash__")}
    module = nn.Module()
    module.__class__ = type("HostileModule", (nn.Module,), members)
    yield module
    members["__torch_function__"] = classmethod(trap("__torch_function__"))
    cls = type("HostileTensor", (torch.Tensor,), members)
    yield torch.Tensor._make_subclass(cls, torch.zeros(3, 4))
    lazy: Any = types.ModuleType("lazy")
    lazy.__getattr__ = trap("__getattr__")
    yield lazy
    endless: list[Any] = []
    endless.append(endless)
    yield endless
    keyed: dict[str, Any] = {}
    keyed["k"] = keyed["late"] = keyed
    yield keyed


def scopes_with(hostile: Any) -> Iterator[dict[str, Any]]:
    """Give what the sources reach, with a hostile object in one place after the other."""
    names = list(everything.world()[0])
    for name in names:
        yield {**everything.world()[0], name: hostile}
    L = everything.world()[0]
    yield {**L, "items": [hostile, (hostile, hostile), {"k": hostile}]}
    yield {**L, "function": everything.function(hostile, hostile, hostile)}
    point, net = Point(), everything.Net()
    point.a = hostile
    net.__dict__["training"] = net._modules["layer"] = net._buffers["count"] = hostile
    yield {**L, "point": point, "net": net}


def may_run(check: CheckFunction) -> bool:
    """Tell whether a source asked for foreign code to be run, with ``allow_call``."""
    return ".twice" in check.guards[0].name or "L['sized']" in check.guards[0].name


@pytest.mark.slow
@pytest.mark.parametrize("number", range(sum(1 for _ in hostile_objects())))
def test_hostile_object_anywhere(number: int) -> None:
    hostile = list(hostile_objects())[number]
    checks = [check for check in everything.checks() if not may_run(check)]
    refused = 0
    for scope in scopes_with(hostile):
        everything.GLOBALS.clear()
        everything.GLOBALS.update(everything.world()[1])
        RAN.clear()
        for check in checks:
            holds = check(scope)
            if not holds:
                refused += 1
                explanation = check.explain(scope)
                assert explanation is not None, everything.kind_of(check)
                explanation.to_json()
                assert str(explanation)
            assert not RAN, (everything.kind_of(check), RAN)
    assert refused > len(checks) // 2
