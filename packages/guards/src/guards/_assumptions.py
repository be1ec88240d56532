"""What a function may read: every value that it can reach, and the guards that hold it fast.

The walk starts from the arguments and from the function itself: its code, its closure, its
defaults, and the globals that its code names; from there on through containers, modules, plain
objects and further functions. What it cannot follow it refuses, with a reason.
"""

from __future__ import annotations

import builtins
import dis
import enum
import functools
import os
import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import torch

from guards import _fetch
from guards._builder import GuardBuilder
from guards._constants import is_constant, spell, type_name
from guards._emit import is_heap_type
from guards._evaluation import ValueSource
from guards._fetch import MISSING, Absent, is_a
from guards._guard import Guard
from guards._reached_checks import bare_tensors, distinct_objects, whole_classes
from guards._understood import (
    UNSEEN,
    is_pure_builtin,
    is_understood,
    is_understood_class,
    reads_unseen,
    words,
)
from guards._value_sources import (
    AttrSource,
    CellContentsSource,
    DefaultsSource,
    GetItemSource,
    GlobalSource,
    GlobalStateSource,
    LocalSource,
    ParamBufferSource,
    TypeSource,
)

__all__ = ["TORCH_FOLDER", "Assumptions", "CannotSpecialize", "is_of_torch"]

TORCH_FOLDER = os.path.dirname(torch.__file__) + os.sep
_MOST = 50_000


# Modules of the standard library whose functions give the same for the same arguments.
_PURE_MODULES = words(
    "builtins cmath collections collections.abc dataclasses enum functools itertools math numbers "
    "operator types typing abc __future__"
)
_UNSEEN_WHEN_SET = words("data requires_grad names __class__")
_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)


class CannotSpecialize(Exception):
    """A run that cannot be written down; the text says why."""


def is_of_torch(code: types.CodeType) -> bool:
    """Tell whether code belongs to torch itself."""
    return code.co_filename.startswith(TORCH_FOLDER)


class Assumptions:
    """Everything that a function may read from outside, for one call.

    Attributes:
        guards: what holds it fast.
        places: each value that was reached, with where it is; for tensors, the first place.
        codes: the code of every function of the user's that is reached, with why it must not run,
            or an empty text.
    """

    def __init__(self, L: dict[str, Any], G: dict[str, Any], function: Any, name: str) -> None:
        self._L, self._G = L, G
        self.guards: list[Guard] = []
        self.places: dict[int, tuple[ValueSource, Any]] = {}
        self.codes: dict[types.CodeType, str] = {}
        self._names: set[str] = {"forward"}
        self._todo: list[tuple[ValueSource, Any]] = [
            *((LocalSource(key), value) for key, value in L.items()),
            (GlobalSource(name), function),
        ]
        self._by_name: list[tuple[ValueSource, Any, set[str]]] = []
        self._globals_seen: set[tuple[int, str]] = set()
        self._classes_seen: set[int] = set()
        self._class_places: dict[ValueSource, type] = {}
        # What code may set attributes of, with those that are there.
        self._namespaces: dict[int, tuple[Any, dict[str, Any]]] = {}
        self._handed_on: set[str] = set()  # names that code uses otherwise than in calling them
        # Functions of C that only a call which is seen may call, with the names they go by.
        self._not_understood: list[tuple[ValueSource, str | None]] = []
        self._walk()

    def tensors(self) -> Iterator[tuple[ValueSource, torch.Tensor]]:
        """Give all tensors that were reached."""
        for source, value in self.places.values():
            if is_a(value, torch.Tensor):
                yield source, value

    def namespaces_are_as_they_were(self) -> bool:
        """Tell whether functions, classes and modules have the attributes that they had."""
        for owner, before in self._namespaces.values():
            now = owner.__dict__
            if len(now) != len(before) or any(
                now.get(name, MISSING) is not value for name, value in before.items()
            ):
                return False
        return True

    def _remember(self, owner: Any) -> None:
        if id(owner) not in self._namespaces:
            self._namespaces[id(owner)] = (owner, dict(owner.__dict__))

    # ── the walk ────────────────────────────────────────────────────────────────────────────────

    def _walk(self) -> None:
        while self._todo:
            while self._todo:
                source, value = self._todo.pop()
                self._visit(source, value)
                if len(self.guards) > _MOST:
                    raise CannotSpecialize(f"it reaches more than {_MOST:,} values")
            # The names that code uses say which attributes of classes and modules matter.
            for source, owner, done in self._by_name:
                for name in sorted(self._names - done):
                    done.add(name)
                    self._visit_attribute(source, owner, name)
        for source, called in self._not_understood:
            if called is None or called in self._handed_on:
                self._refuse(source, "may be called unseen, by other functions of C")
        distinct = [source for source, _ in self.places.values()]
        self._guard(GlobalStateSource(), distinct_objects, sources=distinct)
        classes = list(self._class_places)
        self._guard(GlobalStateSource(), whole_classes, sources=classes)
        tensors = [source for source, _ in self.tensors()]
        self._guard(GlobalStateSource(), bare_tensors, sources=tensors)

    def _guard(self, source: ValueSource, create: Callable[..., Any], **options: Any) -> None:
        made = functools.partial(create, **options) if options else create
        self.guards.append(Guard(source, made))

    def _refuse(self, source: ValueSource, why: str) -> None:
        raise CannotSpecialize(f"{source.name()} {why}")

    def _visit(self, source: ValueSource, value: Any) -> None:
        if is_a(value, type) and not is_understood_class(value):
            self._refuse(source, f"is {spell(value)}, which looks names up that cannot be seen")
        if is_a(value, type) and not is_constant_like(value):
            self._guard(source, GuardBuilder.ID_MATCH)
            self._visit_class(source, value)
            return
        if is_a(value, enum.Enum):
            self._visit_member_of_enum(source, value)
            return
        if is_constant_like(value) or (type(value) is tuple and _holds_only_constants(value)):
            self._guard(source, GuardBuilder.CONSTANT_MATCH)
            return
        known = self.places.get(id(value))
        if known is not None:
            self._guard(source, GuardBuilder.DUPLICATE_INPUT, source_b=known[0])
            return
        self.places[id(value)] = (source, value)
        if _holds_only_constants(value):
            self._guard(source, GuardBuilder.EQUALS_MATCH)
        elif is_a(value, torch.Tensor):
            self._visit_tensor(source, value)
        elif is_a(value, torch.nn.Module):
            self._visit_module(source, value)
        elif is_a(value, types.ModuleType):
            self._guard(source, GuardBuilder.ID_MATCH)
            if type(value) is types.ModuleType:
                self._remember(value)
            self._by_name.append((source, value, set()))
        else:
            self._visit_other(source, value)

    def _visit_other(self, source: ValueSource, value: Any) -> None:
        cls = type(value)
        if cls in (list, tuple) or (cls in (dict, OrderedDict)):
            self._visit_container(source, value)
        elif cls is set and is_constant(value):
            self._guard(source, GuardBuilder.SET_MATCH)
        elif cls is types.FunctionType:
            self._visit_function(source, value)
        elif cls is types.MethodType:
            self._guard(source, GuardBuilder.TYPE_MATCH)
            self._todo.append((AttrSource(source, "__func__"), value.__func__))
            self._todo.append((AttrSource(source, "__self__"), value.__self__))
        elif cls is types.BuiltinFunctionType:
            owner = value.__self__
            if owner is not None and not is_a(owner, (type, types.ModuleType)):
                self._refuse(source, f"is {spell(value)} of an object that cannot be seen")
            if not is_understood(value):
                name = getattr(source, "index", None)
                self._not_understood.append((source, name if type(name) is str else None))
            self._guard(source, GuardBuilder.ID_MATCH)
        elif cls in (torch._ops.OpOverloadPacket, torch._ops.OpOverload):
            self._guard(source, GuardBuilder.ID_MATCH)
        elif cls in (types.MethodDescriptorType, types.WrapperDescriptorType):
            self._guard(source, GuardBuilder.TYPE_MATCH)
        else:
            self._visit_object(source, value)

    def _visit_member_of_enum(self, source: ValueSource, member: enum.Enum) -> None:
        self._guard(source, GuardBuilder.CONSTANT_MATCH)
        if id(member) in self.places:
            return
        own = _fetch.instance_dict(member) or {}
        extra = {name: value for name, value in own.items() if name not in _OF_ENUMS}
        self.places[id(member)] = (source, member)
        if extra:
            self._refuse(source, f"has attributes of its own: {', '.join(extra)}")
        self._remember(member)

    def _visit_tensor(self, source: ValueSource, tensor: torch.Tensor) -> None:
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            self._refuse(source, f"is a {type_name(type(tensor))}, a subclass of Tensor")
        if tensor.__dict__:
            self._refuse(source, f"has attributes of its own: {', '.join(tensor.__dict__)}")
        if tensor.layout is not torch.strided:
            self._refuse(source, f"has layout {tensor.layout}")
        self._guard(source, GuardBuilder.TENSOR_MATCH)

    def _visit_container(self, source: ValueSource, value: Any) -> None:
        self._guard(source, GuardBuilder.TYPE_MATCH)
        if is_a(value, dict):
            if not all(map(is_constant, value)):
                self._refuse(source, "has keys that are objects")
            self._guard(source, GuardBuilder.DICT_KEYS_MATCH)
            parts: Any = value.items()
        else:
            self._guard(source, GuardBuilder.SEQUENCE_LENGTH)
            parts = enumerate(value)
        self._todo += [(GetItemSource(source, key), part) for key, part in parts]

    def _visit_module(self, source: ValueSource, module: torch.nn.Module) -> None:
        self._guard(source, GuardBuilder.TYPE_MATCH)
        self._visit_class(TypeSource(source), type(module))
        own = _fetch.instance_dict(module)
        if own is None:
            self._refuse(source, "keeps its attributes in a way of its own")
            return
        if any(own.get(hooks) for hooks in _HOOKS):
            self._refuse(source, "has hooks")
        self._guard(AttrSource(source, "__dict__"), GuardBuilder.DICT_KEYS_MATCH)
        for hooks in _HOOKS:
            if hooks in own:
                self._guard(AttrSource(source, hooks), GuardBuilder.SEQUENCE_LENGTH)
        for table in ("_parameters", "_buffers", "_modules"):
            entries = own[table]
            self._guard(AttrSource(source, table), GuardBuilder.DICT_KEYS_MATCH)
            for name, entry in entries.items():
                plain = "." not in name
                link: ValueSource = (
                    ParamBufferSource(source, name)
                    if plain and table != "_modules"
                    else GetItemSource(AttrSource(source, table), name)
                )
                self._todo.append((link, entry))
        self._visit_own(source, {k: v for k, v in own.items() if not _is_plumbing(k)})

    def _visit_object(self, source: ValueSource, value: Any) -> None:
        cls = type(value)
        own = _fetch.instance_dict(value)
        simple = all(
            base is object or _fetch.class_attribute(base, "__slots__") is MISSING
            for base in cls.__mro__
        )
        made_in_python = is_heap_type(cls) and cls.__basicsize__ <= object.__basicsize__ + 16
        if own is None or not simple or not made_in_python or not _fetch.reads_plainly(cls):
            self._refuse(source, f"is {spell(value)}, which cannot be looked into")
            return
        self._guard(source, GuardBuilder.TYPE_MATCH)
        self._visit_class(TypeSource(source), cls)
        self._guard(AttrSource(source, "__dict__"), GuardBuilder.DICT_KEYS_MATCH)
        self._visit_own(source, own)

    def _visit_own(self, source: ValueSource, own: dict[str, Any]) -> None:
        for name, value in own.items():
            place = GetItemSource(AttrSource(source, "__dict__"), name)
            self._todo.append((place, value))

    # ── code ────────────────────────────────────────────────────────────────────────────────────

    def _visit_function(self, source: ValueSource, function: types.FunctionType) -> None:
        self._guard(source, GuardBuilder.FUNCTION_MATCH)
        for name, cell in zip(
            function.__code__.co_freevars, function.__closure__ or (), strict=True
        ):
            try:
                self._todo.append((CellContentsSource(source, name), cell.cell_contents))
            except ValueError:
                self._refuse(source, f"closes over {name}, which is not set yet")
        self._remember(function)
        if is_of_torch(function.__code__):
            self._refuse_higher_order(source, function)
            return
        self._guard(AttrSource(source, "__dict__"), GuardBuilder.DICT_KEYS_MATCH)
        self._by_name.append((source, function, set()))
        for index, value in enumerate(function.__defaults__ or ()):
            self._todo.append((DefaultsSource(source, index), value))
        for key, value in (function.__kwdefaults__ or {}).items():
            self._todo.append((DefaultsSource(source, key), value))
        namespace = self._namespace(source, function)
        for code in _all_code(function.__code__):
            self.codes[code] = self._read_code(code, namespace, function.__globals__)

    def _namespace(self, source: ValueSource, function: types.FunctionType) -> ValueSource:
        """Give a place under which the globals of a function are found again."""
        name = str(function.__globals__.get("__name__", "?"))
        while self._G.setdefault(name, function.__globals__) is not function.__globals__:
            name += "'"
        # The function must go on having these globals; its code alone does not say so.
        if "__name__" in function.__globals__:
            own_name = GetItemSource(AttrSource(source, "__globals__"), "__name__")
            self._guard(own_name, GuardBuilder.EQUALS_MATCH)
        return GlobalSource(name)

    def _read_code(self, code: types.CodeType, namespace: ValueSource, scope: Any) -> str:
        problem = ""
        called = _called_at_once(code)
        for instruction in dis.get_instructions(code):
            operation, name = instruction.opname, instruction.argval
            if operation in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                problem = f"sets the global {name}"
            elif operation == "IMPORT_NAME":
                problem = f"imports {name} while it runs"
            elif operation in ("STORE_ATTR", "DELETE_ATTR"):
                if name in _UNSEEN_WHEN_SET or _is_dunder(name):
                    problem = f"sets .{name}, which cannot be seen"
            elif operation == "MATCH_CLASS":
                problem = "matches patterns of classes, whose reading cannot be seen"
            elif operation in ("LOAD_GLOBAL", "LOAD_NAME"):
                if instruction.offset not in called:
                    self._handed_on.add(name)
                    problem = self._handing_on(name, scope) or problem
                problem = self._visit_global(name, namespace, scope) or problem
            elif operation == "LOAD_ATTR" and instruction.offset not in called:
                self._handed_on.add(name)
                if name in ("format", "format_map") or reads_unseen(name):
                    problem = f"hands .{name} on, whose calls cannot be seen"
        unseen = UNSEEN.intersection(code.co_names)
        if unseen:
            problem = f"uses .{min(unseen)}, which cannot be seen"
        self._names.update(code.co_names)
        return problem

    def _handing_on(self, name: str, scope: Any) -> str:
        found = getattr(builtins, name, None)
        if name in scope or not is_a(found, types.BuiltinFunctionType) or is_pure_builtin(found):
            return ""
        return f"hands {name} on, whose calls cannot be seen"

    def _visit_global(self, name: str, namespace: ValueSource, scope: Any) -> str:
        place = GetItemSource(namespace, name)
        if (id(scope), name) in self._globals_seen:
            return ""
        self._globals_seen.add((id(scope), name))
        if name in scope:
            self._todo.append((place, scope[name]))
        elif hasattr(builtins, name):
            self._guard(place, GuardBuilder.NOT_PRESENT)
        else:
            return f"names {name}, which is not defined"
        return ""

    def _visit_class(self, source: ValueSource, cls: type) -> None:
        if id(cls) in self._classes_seen:
            return
        self._classes_seen.add(id(cls))
        if is_heap_type(type(cls)) and not _is_known_metaclass(type(cls)):
            self._refuse(source, f"is a class made by {type_name(type(cls))}")
        for base in cls.__mro__:
            if is_heap_type(base):
                self._remember(base)
        users = [base for base in cls.__mro__ if not _is_trusted_class(base)]
        # What makes an instance matters only where the class itself is at hand.
        skipped = _SELDOM_RUN | (_CONSTRUCTION if is_a(source, TypeSource) else frozenset())
        if users or issubclass(cls, torch.nn.Module):
            self._names.update(
                name
                for base in users
                for name, member in vars(base).items()
                if name.startswith("__") and is_a(member, _FUNCTIONS) and name not in skipped
            )
            self._by_name.append((source, cls, set()))
            self._class_places[source] = cls

    def _visit_attribute(self, source: ValueSource, owner: Any, name: str) -> None:
        if is_a(owner, types.ModuleType):
            self._visit_module_attribute(source, owner, name)
            return
        if type(owner) is types.FunctionType:
            if name in owner.__dict__:
                place: ValueSource = GetItemSource(AttrSource(source, "__dict__"), name)
                self._todo.append((place, owner.__dict__[name]))
            return
        if name in _NO_MEMBERS or _fetch.class_attribute(owner, name) is MISSING:
            return
        trusted = _is_trusted_class(next(b for b in owner.__mro__ if name in vars(b)))
        place = AttrSource(source, name)
        found = _fetch.attribute(owner, name)
        if is_a(found, types.MethodType):
            place, found = AttrSource(place, "__func__"), found.__func__
        if is_a(found, property):
            if not trusted and found.fget is not None:
                self._todo.append((AttrSource(place, "fget"), found.fget))
        elif trusted:
            if is_a(found, types.FunctionType):
                self._guard(place, GuardBuilder.FUNCTION_MATCH)
        elif type(found) is Absent:
            self._refuse(place, "is made by a descriptor")
        elif not is_a(found, (types.MemberDescriptorType, types.GetSetDescriptorType)):
            self._todo.append((place, found))

    def _visit_module_attribute(
        self, source: ValueSource, module: types.ModuleType, name: str
    ) -> None:
        namespace = types.ModuleType.__getattribute__(module, "__dict__")
        of_torch = _is_trusted_module(module)
        if name.startswith("__"):
            return
        if name not in namespace:
            if not of_torch and "__getattr__" in namespace:
                self._refuse(source, f"makes its attribute {name} when it is asked")
            return
        value = namespace[name]
        place = GetItemSource(AttrSource(source, "__dict__"), name)
        if not of_torch:
            self._todo.append((place, value))
        elif is_a(value, types.ModuleType):
            if _is_trusted_module(value):
                self._todo.append((place, value))
        elif is_a(value, type):
            if not is_understood_class(value):
                self._refuse(place, "looks names up that cannot be seen")
            if is_heap_type(value):
                self._remember(value)
        elif is_a(value, (types.FunctionType, types.BuiltinFunctionType)):
            if is_a(value, types.BuiltinFunctionType) and not is_understood(value):
                self._not_understood.append((place, name))
            if is_a(value, types.FunctionType):
                self._remember(value)
            self._refuse_higher_order(place, value)
            self._guard(place, GuardBuilder.FUNCTION_MATCH)
        elif is_constant(value):
            self._guard(place, GuardBuilder.CONSTANT_MATCH)

    def _refuse_higher_order(self, source: ValueSource, function: Any) -> None:
        # These trace what they are given, and fail for some of it while a mode is open.
        inner = getattr(function, "_torchdynamo_orig_callable", function)  # Dynamo wraps some
        code = getattr(inner, "__code__", None)
        if code is None or not is_of_torch(code):
            return
        path = code.co_filename[len(TORCH_FOLDER) :].replace(os.sep, "/")
        traces = path == "jit/_trace.py" and code.co_name.startswith("trace")
        if traces or path.startswith("_higher_order_ops/"):
            self._refuse(source, "traces functions")


_OF_ENUMS = words("_value_ _name_ __objclass__ _sort_order_ _inverted_")
_FUNCTIONS = (types.FunctionType, staticmethod, classmethod, property)
_CONSTRUCTION = words("__init__ __new__ __post_init__")
_SELDOM_RUN = words(
    "__repr__ __str__ __reduce__ __reduce_ex__ __getstate__ __setstate__ __del__ __copy__ "
    "__deepcopy__ __init_subclass__ __class_getitem__ __sizeof__ __dir__"
)
_NO_MEMBERS = words("__dict__ __weakref__ __doc__ __module__ __annotations__ __slots__")


def is_constant_like(value: Any) -> bool:
    """Tell whether a value is an immutable constant, or a class of C without attributes."""
    if is_a(value, type):
        return not is_heap_type(value)
    return type(value) in (frozenset, torch.Size, slice, range) or (
        is_constant(value) and type(value) not in (list, dict, set, tuple, types.CodeType)
    )


def _holds_only_constants(value: Any) -> bool:
    if type(value) in (list, tuple, set):
        return all(is_constant_like(part) or _holds_only_constants(part) for part in value)
    if type(value) is dict:
        return _holds_only_constants(list(value)) and _holds_only_constants(list(value.values()))
    return False


def _all_code(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _all_code(constant)


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _called_at_once(code: types.CodeType) -> set[int]:
    """Give where code loads what it calls, or asks for an attribute of, at once.

    Before Python 3.11 code does not say what is called.
    """
    found: set[int] = set()
    if sys.version_info < (3, 11):
        return found
    marked, last = False, -1
    for instruction in dis.get_instructions(code):
        operation, mark = instruction.opname, bool((instruction.arg or 0) & 1)
        if operation == "LOAD_GLOBAL":
            marked = mark  # a name that is called, or whose attribute is
            if marked:
                found.add(instruction.offset)
        elif operation == "LOAD_ATTR":
            found.add(last)  # its attribute is asked for
            if marked or (sys.version_info >= (3, 12) and mark):
                found.add(instruction.offset)
        else:
            if operation == "PUSH_NULL" and sys.version_info >= (3, 13):
                found.add(last)
            marked = False
        last = instruction.offset
    return found


def _is_plumbing(name: str) -> bool:
    return name in ("_parameters", "_buffers", "_modules") or (
        name.startswith("_") and name.endswith(("hooks", "_hooks_with_kwargs", "_always_called"))
    )


def _is_trusted_module(module: types.ModuleType) -> bool:
    name = module.__name__
    return name in _PURE_MODULES or name == "torch" or name.startswith("torch.")


def _is_trusted_class(cls: type) -> bool:
    module = sys.modules.get(cls.__module__)
    return module is not None and _is_trusted_module(module)


def _is_known_metaclass(metaclass: type) -> bool:
    return _is_trusted_class(metaclass)
