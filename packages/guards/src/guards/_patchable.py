"""What torch's Python code and the builtins were when a call was watched: either may be replaced.

Torch's own code is trusted, not walked. That it still is what ran is known by the entries that it
was reached through: those of the builtins, of torch's modules, of its classes, and of Tensor. So is
what no guard of a value can say: what a module or a member of an enum lacks, and may get later.
"""

from __future__ import annotations

import builtins
import enum
import operator
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from guards._builder import GuardBuilder
from guards._checks import Check
from guards._constants import HeldWeakly, spell
from guards._emit import Emitter, is_kept_anyway
from guards._fetch import MISSING, is_a
from guards._guard import Guard
from guards._namespaces import VERSION_OF_DICT, dict_behind
from guards._trust import is_of_torch, is_trusted_module
from guards._user_code import operators_in

__all__ = ["Patchable", "not_patched"]

_SIZE = "…"  # stands for the number of attributes
_AUTOCAST = "amp/autocast_mode.py"
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type)
_members_of_tensors = frozenset(dir(torch.Tensor))


class Patchable:
    """Entries of namespaces, each with what it was; added to while a call is watched."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[Any, Mapping[str, Any], dict[str, Any]]] = {}
        self._readers: dict[str, tuple[Callable[[], Any], Any]] = {}
        # What need not live as long as the process, each with what gives it while it lives.
        self._weak: dict[int, tuple[Callable[[], Any], dict[str, Any]]] = {}
        self._whole: dict[int, dict[str, Any]] = {}
        self._size = 0
        self._ready: list[tuple[Any, Any, Any, frozenset[str], list[Any], Any]] = []

    def note(self, owner: Any, names: Iterable[str]) -> None:
        """Note what entries of a module, a class or the like are, or that there are none."""
        own = vars(owner)
        if _may_die(owner):
            entries = self._weak_entries(owner)
        else:
            _, _, entries = self._entries.setdefault(id(owner), (owner, own, {}))
        for name in names:
            entries.setdefault(name, own.get(name, MISSING))
        self._ready = []

    def note_whole(self, owner: Any) -> None:
        """Note that an object gets no further attributes."""
        own = vars(owner)
        if _may_die(owner):
            self._weak_entries(owner).setdefault(_SIZE, len(own))
        elif id(own) not in self._whole:
            self._whole[id(own)] = own
            self._size += len(own)

    def _weak_entries(self, owner: Any) -> dict[str, Any]:
        of_enum = is_a(owner, (type, enum.Enum))
        get = HeldWeakly(owner).get if of_enum else weakref.ref(owner)
        return self._weak.setdefault(id(owner), (get, {}))[1]

    def note_names(self, names: Iterable[str], *, absent: bool = False) -> None:
        """Note what names mean that are asked of a tensor; those too that mean nothing yet."""
        known = _members_of_tensors.union(vars(torch.Tensor), vars(torch.nn.Parameter))
        wanted = names if absent else known.intersection(names)
        self.note(torch.Tensor, wanted)
        self.note(torch.nn.Parameter, wanted)

    def note_torch_code(self, frame: types.FrameType, path: str) -> None:
        """Note what a function of torch is reached through, and what it names."""
        code, scope = frame.f_code, frame.f_globals
        used = code.co_names
        self._note_globals(scope, used)
        if code.co_varnames and code.co_argcount:
            owner = type(frame.f_locals.get(code.co_varnames[0]))
            for base in owner.__mro__:
                mine = [
                    name
                    for name, member in vars(base).items()
                    if is_a(member, types.FunctionType) and member.__code__ is code
                ]
                if mine:
                    self.note(base, mine)
        self.note_names([*used, *operators_in(code)])
        if path == _AUTOCAST:
            for device in ("cpu", "cuda"):
                read = _dtype_reader(device)
                self._readers.setdefault(f"autocast dtype of {device}", (read, read()))

    def _note_globals(self, scope: dict[str, Any], used: Sequence[str]) -> None:
        module = _module_of(scope)
        if module is None:
            return
        of_python = vars(builtins)
        known = [n for n in used if is_a(scope.get(n), _FUNCTIONS) or n in of_python]
        self.note(module, known)
        self.note(builtins, [n for n in known if n not in scope])
        todo = [scope[n] for n in known if is_a(scope.get(n), types.ModuleType)]
        seen: set[int] = {id(module)}
        while todo:
            other = todo.pop()
            if id(other) in seen or not is_trusted_module(other):
                continue
            seen.add(id(other))
            own = vars(other)
            self.note(other, [n for n in used if is_a(own.get(n), _FUNCTIONS)])
            todo += [own[n] for n in used if is_a(own.get(n), types.ModuleType)]

    def hold(self) -> bool:
        """Tell whether everything is what it was."""
        version = VERSION_OF_DICT
        for own, give, wanted, absent, last, namespace in self._ready or self._prepare():
            number = None if version is None else version(namespace)
            if number is not None and number == last[2]:
                continue
            try:
                if not all(map(operator.is_, give(own), wanted)):
                    return False
            except KeyError:
                return False
            # What is new in a namespace comes last.
            if absent and (len(own) != last[0] or next(reversed(own), None) is not last[1]):
                now = len(own), next(reversed(own), None)
                if not own.keys().isdisjoint(absent):
                    return False
                last[:2] = now
            last[2] = number
        whole = self._whole
        if whole and sum(map(len, whole.values())) != self._size:
            return False
        if self._weak and self._changed_weakly():
            return False
        readers = self._readers
        return not readers or all(read() is value for read, value in readers.values())

    def _changed_weakly(self) -> list[str]:
        """Name what has changed of what need not live as long as the process."""
        found = []
        for get, entries in self._weak.values():
            owner = get()
            if owner is None:
                return ["something that is dead"]
            own = vars(owner)
            for name, value in entries.items():
                now = len(own) if name is _SIZE else own.get(name, MISSING)
                if now is not value and (name is not _SIZE or now != value):
                    found.append(f"{_name_of(owner)}.{name}")
        return found

    def _prepare(self) -> list[Any]:
        ready = []
        for _, own, entries in self._entries.values():
            there = {name: value for name, value in entries.items() if value is not MISSING}
            absent = frozenset(entries.keys() - there.keys())
            names = [*there]
            give = operator.itemgetter(*names, names[0]) if names else _nothing
            wanted = (*there.values(), there[names[0]]) if names else ()
            ready.append((own, give, wanted, absent, [-1, None, None], dict_behind(own)))
        self._ready = ready
        return ready

    def changed(self) -> str:
        """Name what is not what it was."""
        found = [
            f"{_name_of(owner)}.{name}"
            for owner, own, entries in self._entries.values()
            for name, value in entries.items()
            if own.get(name, MISSING) is not value
        ]
        found += self._changed_weakly()
        if sum(map(len, self._whole.values())) != self._size:
            found.append("attributes of members of enums")
        found += [name for name, (read, value) in self._readers.items() if read() is not value]
        return ", ".join(found)


def _may_die(owner: Any) -> bool:
    """Tell whether something may die before the process ends."""
    if is_a(owner, enum.Enum):
        return not is_kept_anyway(type(owner))
    if is_a(owner, type):
        return not is_kept_anyway(owner)
    if is_a(owner, types.ModuleType):
        return sys.modules.get(owner.__name__) is not owner
    return not is_of_torch(owner.__code__)


def _name_of(owner: Any) -> str:
    named = is_a(owner, (types.FunctionType, types.ModuleType, type))
    return str(owner.__name__) if named else spell(owner)


def _nothing(_: Any) -> tuple[Any, ...]:
    return ()


def _dtype_reader(device: str) -> Callable[[], Any]:
    return lambda: torch.get_autocast_dtype(device)


def _module_of(scope: dict[str, Any]) -> types.ModuleType | None:
    module = sys.modules.get(scope.get("__name__", ""))
    return module if is_a(module, types.ModuleType) and vars(module) is scope else None


class PatchCheck(Check):
    """Functions of torch and the builtins are what they were."""

    code = "NOT_PATCHED"

    def __init__(self, patchable: Patchable) -> None:
        self.patchable = patchable

    def condition(self, names: Sequence[str], emitter: Emitter) -> str:
        return f"{emitter.constant(self.patchable.hold, 'not_patched')}()"

    def expected(self) -> str:
        return "what they were"

    def actual(self, values: Sequence[Any]) -> str:
        changed = self.patchable.changed()
        return f"other ones: {changed}" if changed else "what they were"

    def expression(self) -> str:
        return "functions of torch and of Python"


def not_patched(builder: GuardBuilder, guard: Guard, patchable: Patchable) -> None:
    """Guard on functions of torch and the builtins being those that ran."""
    builder.add(guard, PatchCheck(patchable))
