"""Attributes that code asks for by name: those of classes, of modules and of functions."""

from __future__ import annotations

import collections
import enum
import functools
import types
from typing import Any

import torch

from guards import _fetch
from guards._builder import GuardBuilder
from guards._class_names import find_class, importable_name
from guards._constants import is_constant, type_name
from guards._emit import is_heap_type
from guards._enum_members import TABLES
from guards._evaluation import ValueSource
from guards._fetch import MISSING, Absent, is_a
from guards._trust import is_of_torch, is_trusted_class, is_trusted_module, path_in_torch
from guards._understood import is_understood, is_understood_class, words
from guards._value_sources import AttrSource, GetItemSource, TypeSource
from guards._walk import Walk

__all__ = ["NamedAttributes"]

_FUNCTIONS = (types.FunctionType, staticmethod, classmethod, property)
_CONSTRUCTION = words("__init__ __new__ __post_init__")
_SELDOM_RUN = words(
    "__repr__ __str__ __reduce__ __reduce_ex__ __getstate__ __setstate__ __del__ __copy__ "
    "__deepcopy__ __init_subclass__ __class_getitem__ __sizeof__ __dir__"
)
_NO_MEMBERS = words("__dict__ __weakref__ __slots__")
_ENTRY_OF_TUPLE = type(collections.namedtuple("_One", "entry").entry)  # type: ignore[attr-defined]
# What the interpreter keeps of functions and classes themselves, and what any code may change.
_OF_FUNCTIONS = words(
    "__name__ __qualname__ __module__ __doc__ __annotations__ __defaults__ __kwdefaults__"
)
_OF_CLASSES = words("__name__ __qualname__ __module__ __doc__ __annotations__")


class NamedAttributes:
    """Follow the attributes of what has many, of which only those that code names matter."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._owners: list[tuple[ValueSource, Any, set[str], set[str]]] = []
        self._classes: dict[int, type] = {}
        self.class_places: dict[ValueSource, type] = {}

    def add_owner(self, source: ValueSource, owner: Any) -> None:
        """Follow the attributes of a module or a function as they are named."""
        self._owners.append((source, owner, set(), set()))

    def reaches_class(self, cls: type) -> bool:
        """Tell whether a guard holds fast which class this is, or nothing can change it."""
        if not is_heap_type(cls) or self._classes.get(id(cls)) is cls:
            return True
        return is_trusted_class(cls) and find_class(importable_name(cls)) is cls

    def visit_names(self) -> None:
        """Visit what the names that code uses stand for, as far as that was not done."""
        names = self._walk.names
        for source, owner, done, done_in_bases in self._owners:
            for name in sorted(names - done):
                done.add(name)
                self._visit_attribute(source, owner, name)
            if "super" in names and is_a(owner, type):
                for name in sorted(names - done_in_bases - _NO_MEMBERS):
                    done_in_bases.add(name)
                    self._visit_in_bases(source, owner, name)

    def _visit_in_bases(self, source: ValueSource, cls: type, name: str) -> None:
        """Visit what ``super()`` may find: an attribute of bases that another one hides."""
        mro = cls.__mro__
        having = [n for n, base in enumerate(mro) if name in vars(base) and is_heap_type(base)]
        for number in having[1:]:
            place = GetItemSource(AttrSource(source, "__mro__"), number)
            self._visit_attribute(place, mro[number], name)

    def visit_class(self, source: ValueSource, cls: type) -> None:
        """Follow the attributes of a class, as code may ask an object of it for them."""
        if id(cls) in self._classes:
            return
        self._classes[id(cls)] = cls
        if is_heap_type(type(cls)) and not is_trusted_class(type(cls)):
            self._walk.refuse(source, f"is a class made by {type_name(type(cls))}")
        for base in cls.__mro__:
            if is_heap_type(base):
                self._walk.remember(base)
        users = [base for base in cls.__mro__ if not is_trusted_class(base)]
        # What makes an instance matters only where the class itself is at hand.
        skipped = _SELDOM_RUN | (_CONSTRUCTION if is_a(source, TypeSource) else frozenset())
        if users or issubclass(cls, torch.nn.Module):
            self._walk.names.update(
                name
                for base in users
                for name, member in vars(base).items()
                if name.startswith("__") and is_a(member, _FUNCTIONS) and name not in skipped
            )
            self.add_owner(source, cls)
            self.class_places[source] = cls
            if issubclass(cls, torch.nn.Module):
                self._visit_what_torch_reads(source, cls, users)

    def _visit_what_torch_reads(
        self, source: ValueSource, cls: type[torch.nn.Module], users: list[type]
    ) -> None:
        """Visit attributes of the user's classes that code of torch's bases names."""
        if not users:
            return
        read = frozenset().union(*(_names_in(b) for b in cls.__mro__ if b not in users))
        for name in sorted({name for base in users for name in vars(base)} & read):
            found = _fetch.class_attribute(cls, name)
            if not name.startswith("__") and not is_a(found, _FUNCTIONS):
                self._visit_attribute(source, cls, name)

    def _visit_attribute(self, source: ValueSource, owner: Any, name: str) -> None:
        if is_a(owner, types.ModuleType):
            self._visit_module_attribute(source, owner, name)
            return
        if type(owner) is types.FunctionType:
            if name in _OF_FUNCTIONS:
                self._walk.todo.append((AttrSource(source, name), getattr(owner, name)))
            elif name in owner.__dict__:
                place: ValueSource = GetItemSource(AttrSource(source, "__dict__"), name)
                self._walk.todo.append((place, owner.__dict__[name]))
            else:
                self._walk.absent.append((owner, name))
            return
        if name in _OF_CLASSES:
            told = AttrSource(source, name)
            self._walk.todo.append((told, told.read(owner)))
            return
        if name in TABLES and issubclass(owner, enum.Enum):
            return  # whoever finds the class follows them
        if name in _NO_MEMBERS or _fetch.class_attribute(owner, name) is MISSING:
            return
        trusted = is_trusted_class(next(b for b in owner.__mro__ if name in vars(b)))
        place = AttrSource(source, name)
        found = _fetch.attribute(owner, name)
        if is_a(found, types.MethodType):
            place, found = AttrSource(place, "__func__"), found.__func__
        if is_a(found, property):
            if not trusted and found.fget is not None:
                self._walk.todo.append((AttrSource(place, "fget"), found.fget))
        elif trusted:
            if is_a(found, types.FunctionType):
                self._walk.guard(place, GuardBuilder.FUNCTION_MATCH)
            elif type(found) is not Absent and _was_put_there(found):
                self._walk.todo.append((place, found))
        elif is_a(_fetch.class_attribute(owner, name), functools.cached_property):
            # Its code runs where an object has no value yet, which is seen and refused then.
            number = next(n for n, base in enumerate(owner.__mro__) if name in vars(base))
            base = GetItemSource(AttrSource(source, "__mro__"), number)
            member = GetItemSource(AttrSource(base, "__dict__"), name)
            self._walk.guard(member, GuardBuilder.ID_MATCH)
        elif type(_fetch.class_attribute(owner, name)) is _ENTRY_OF_TUPLE:
            self._walk.noted.append((next(b for b in owner.__mro__ if name in vars(b)), name))
        elif type(found) is Absent:
            kind = type_name(type(_fetch.class_attribute(owner, name)))
            self._walk.refuse(place, f"is made by a descriptor, {kind}: call what it gives itself")
        elif not is_a(found, (types.MemberDescriptorType, types.GetSetDescriptorType)):
            self._walk.todo.append((place, found))

    def _visit_module_attribute(
        self, source: ValueSource, module: types.ModuleType, name: str
    ) -> None:
        namespace = types.ModuleType.__getattribute__(module, "__dict__")
        of_torch = is_trusted_module(module)
        if name.startswith("__") and (of_torch or name not in namespace):
            return
        if name not in namespace:
            if not of_torch and "__getattr__" in namespace:
                self._walk.refuse(source, f"makes its attribute {name} when it is asked")
            self._walk.absent.append((module, name))
            self._walk.absent.append((module, "__getattr__"))  # may make it, if there comes one
            return
        value = namespace[name]
        place = GetItemSource(AttrSource(source, "__dict__"), name)
        if not of_torch or is_a(value, types.ModuleType):
            self._walk.todo.append((place, value))
        elif is_a(value, type):
            if not is_trusted_class(value) and is_heap_type(value):
                self._walk.todo.append((place, value))
                return
            if not is_understood_class(value):
                self._walk.refuse(place, "looks names up that cannot be seen: write `x.name`")
            if is_heap_type(value):
                self._walk.remember(value)
        elif is_a(value, (types.FunctionType, types.BuiltinFunctionType)):
            if is_a(value, types.BuiltinFunctionType):
                self._walk.functions_of_c.append(value)
                if not is_understood(value):
                    self._walk.not_understood.append((place, name))
            if is_a(value, types.FunctionType):
                self._walk.remember(value)
                self.add_owner(place, value)
            self.refuse_higher_order(place, value)
            self._walk.guard(place, GuardBuilder.FUNCTION_MATCH)
        elif is_constant(value):
            self._walk.guard(place, GuardBuilder.CONSTANT_MATCH)
        elif _was_put_there(value):
            self._walk.todo.append((place, value))

    def refuse_higher_order(self, source: ValueSource, function: Any) -> None:
        """Refuse functions of torch that take functions and trace them."""
        # These trace what they are given, and fail for some of it while a mode is open.
        inner = getattr(function, "_torchdynamo_orig_callable", function)  # Dynamo wraps some
        code = getattr(inner, "__code__", None)
        if code is None or not is_of_torch(code):
            return
        path = path_in_torch(code)
        traces = path == "jit/_trace.py" and code.co_name.startswith("trace")
        if traces or path.startswith("_higher_order_ops/"):
            self._walk.refuse(source, "traces functions")


@functools.lru_cache(maxsize=512)
def _names_in(cls: type) -> frozenset[str]:
    """Give the names that the methods of a class of torch's use."""
    functions = [f for f in vars(cls).values() if is_a(f, types.FunctionType)]
    return frozenset(name for f in functions for name in f.__code__.co_names)


def _was_put_there(value: Any) -> bool:
    """Tell whether an attribute of torch's may be the user's: a constant, or of a foreign class."""
    return is_constant(value) or not is_trusted_class(type(value))
