"""Put the vocabulary in the place of ``torch._guards``."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import sys
import types
from collections.abc import Mapping
from typing import Any

import torch

from guards import GuardError

__all__ = ["TooLateError", "complete", "merge", "put_in_place"]

# What torch's classes have for their own use and ours do in another way.
_NOT_NEEDED = {"TracingContext._populate_loc_in_frame_summary"}

# Classes whose instances have a state, and what to make one of.
_STATEFUL: dict[str, tuple[Any, ...]] = {
    "CompileContext": (None,),
    "GlobalContext": (),
    "GuardsContext": (),
    "GuardsSet": (),
    "InvokeSubgraphCache": (),
    "ModuleContext": (),
    "TracingContext": (None,),
}


class TooLateError(GuardError, RuntimeError):
    """Somebody has already taken what it needs from the module that was to be replaced."""


def merge(names: Mapping[str, Any], installed: types.ModuleType) -> types.ModuleType:
    """Make a module of these names, and of what the installed one has besides."""
    merged = types.ModuleType(installed.__name__, installed.__doc__)
    merged.__dict__.update(vars(installed))
    merged.__dict__.update(names)
    return merged


def complete(
    names: Mapping[str, Any], installed: types.ModuleType, scope: dict[str, Any]
) -> list[str]:
    """Give our classes what the installed torch's have and they lack; say what that was.

    A method that takes fewer arguments than theirs counts as lacking. Functions are taken over so
    that they look names up in ``scope``: those of their own module share a thread-local state that
    is not ours. On the torch that this package was written for there is nothing to do.
    """
    added = []
    for name, ours in names.items():
        theirs = getattr(installed, name, None)
        if not isinstance(ours, type) or not isinstance(theirs, type) or ours is theirs:
            continue
        for attribute, value in vars(theirs).items():
            label = f"{name}.{attribute}"
            if attribute.startswith(("__", "_abc_")) or isinstance(value, (dict, list)):
                continue  # the machinery of classes, and defaults that would be shared
            if label in _NOT_NEEDED or _takes_all(ours, attribute, value):
                continue
            if isinstance(value, types.MemberDescriptorType):
                value = _Kept(attribute, theirs)
            setattr(ours, attribute, _rebound(value, scope))
            added.append(label)
        if name in _STATEFUL:
            added += [f"{name}().{a}" for a in _complete_state(ours, theirs, _STATEFUL[name])]
    return sorted(added)


class _Kept:
    """A field that their slotted dataclass has and ours lacks: kept in ``_more``, else default."""

    def __init__(self, name: str, theirs: Any) -> None:
        self.name = name
        found = [f for f in dataclasses.fields(theirs) if f.name == name]
        self.default = found[0].default if found else dataclasses.MISSING

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        value = (instance._more or {}).get(self.name, self.default)
        if value is dataclasses.MISSING:
            raise AttributeError(f"{self.name} is not set")
        return value

    def __set__(self, instance: Any, value: Any) -> None:
        instance._more = {**(instance._more or {}), self.name: value}


def _takes_all(cls: type, name: str, theirs: Any) -> bool:
    """Tell whether the class has this, and takes every argument that theirs takes."""
    if not hasattr(cls, name):
        return False
    ours = getattr(cls, name)
    theirs = getattr(theirs, "__func__", theirs)
    if not isinstance(theirs, types.FunctionType) or not isinstance(ours, types.FunctionType):
        return True
    their, our = (list(inspect.signature(f).parameters.values()) for f in (theirs, ours))
    if any(p.kind is p.VAR_KEYWORD for p in our):
        return True
    keywords = {p.name for p in their if p.kind is p.KEYWORD_ONLY}
    return len(our) >= len(their) and keywords <= {p.name for p in our}


def _complete_state(ours: Any, theirs: Any, arguments: tuple[Any, ...]) -> list[str]:
    missing = sorted(vars(theirs(*arguments)).keys() - vars(ours(*arguments)).keys())
    if missing:
        initialise = ours.__init__

        @functools.wraps(initialise)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            initialise(self, *args, **kwargs)
            state = vars(theirs(*args, **kwargs))
            for name in missing:
                setattr(self, name, state[name])

        ours.__init__ = __init__
    return missing


def _rebound(value: Any, scope: dict[str, Any]) -> Any:
    if isinstance(value, (staticmethod, classmethod)):
        return type(value)(_rebound(value.__func__, scope))
    if isinstance(value, property):
        return property(*(f and _rebound(f, scope) for f in (value.fget, value.fset, value.fdel)))
    if not isinstance(value, types.FunctionType):
        return value
    wrapped = getattr(value, "__wrapped__", None)
    if isinstance(wrapped, types.FunctionType):  # what contextmanager makes of a generator
        return contextlib.contextmanager(_rebound(wrapped, scope))
    function = types.FunctionType(
        value.__code__, scope, value.__name__, value.__defaults__, value.__closure__
    )
    function.__kwdefaults__ = value.__kwdefaults__
    return function


def put_in_place(merged: types.ModuleType, installed: types.ModuleType) -> None:
    """Make ``merged`` what torch finds as ``installed``, also where names were copied early.

    Raises:
        TooLateError: torch._dynamo is loaded, whose classes derive from those of the installed
            module. Nothing has been changed then.
    """
    if "torch._dynamo" in sys.modules:
        raise TooLateError(
            "torch._dynamo is loaded and has taken its classes from torch._guards: "
            "call guards.torch_guards.install() right after `import torch`"
        )
    replaced = {
        id(theirs): getattr(merged, name)
        for name, theirs in vars(installed).items()
        if isinstance(theirs, (type, types.FunctionType))
        and theirs.__module__ == installed.__name__
        and getattr(merged, name) is not theirs
    }
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "torch" or module is installed:
            continue
        for key, value in list(vars(module).items()):
            if id(value) in replaced:
                setattr(module, key, replaced[id(value)])
    sys.modules[installed.__name__] = merged
    torch._guards = merged
