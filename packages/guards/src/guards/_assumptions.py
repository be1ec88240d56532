"""What a function may read: every value that it can reach, and the guards that hold it fast.

The walk starts from the arguments and from the function itself: its code, its closure, its
defaults, and the globals that its code names; from there on through containers, modules, plain
objects and further functions. What it cannot follow it refuses, with a reason.
"""

from __future__ import annotations

import builtins
import contextlib
import enum
import functools
import gc
import operator
import re
import sys
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, cast

import torch

from guards import _fetch
from guards._builder import GuardBuilder
from guards._constants import is_constant, spell, type_name
from guards._emit import is_heap_type
from guards._enum_members import EnumMembers
from guards._evaluation import ValueSource
from guards._fetch import MISSING, is_a
from guards._named_attributes import NamedAttributes
from guards._patchable import Patchable, not_patched
from guards._plain_objects import layout_of, slot_values
from guards._reached_checks import (
    ItemsSource,
    ProxiedSource,
    ReferentSource,
    bare_tensors,
    distinct_objects,
    whole_classes,
)
from guards._reached_constants import (
    any_of,
    holds_only_constants,
    holds_sets,
    is_constant_like,
    leaves,
    same_identities,
    same_order,
)
from guards._settings import CACHES_PARAMETRIZATIONS, SettingSource
from guards._source import GuardSource
from guards._stack_reading import MAKERS, read_stack
from guards._trust import is_of_torch
from guards._understood import (
    ASK_BY_NAME,
    CODE_OF_CLASSES,
    OF_DATACLASSES,
    is_pure_builtin,
    is_understood,
    is_understood_class,
    words,
)
from guards._user_code import all_code, catches_errors, operators_in, read_code
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
from guards._walk import CannotSpecialize, Walk

__all__ = ["ORDER_OF_SETS", "Assumptions", "CannotSpecialize"]

_MOST = 50_000
_FOLLOWED = (object, tuple, list, dict, OrderedDict)  # classes that objects may derive from
ORDER_OF_SETS = (
    "goes through a set that it makes, whose order may depend on addresses: sort it, or take "
    "dict.fromkeys(…) for it"
)
_COPIES = words("deepcopy asdict astuple")
_TELLS_OF_MODES = re.compile(
    "torch_dispatch_mode|dispatch_mode_stack|torch_dispatch_stack|current_dispatch_mode"
)
_ASK_BY_NAME = {function.__name__ for function in ASK_BY_NAME}
_OPERATORS_OF_SETS = tuple(
    getattr(operator, name) for name in words("and_ or_ sub xor iand ior isub ixor")
)
_TELL_OF_WATCHING = (
    *(sys.getprofile, sys.setprofile),
    *(gc.isenabled, gc.get_count, gc.get_stats, gc.get_objects),
)

_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)


class Assumptions:
    """Everything that a function may read from outside, for one call.

    Attributes:
        guards: what holds it fast.
        places: each value that was reached, with where it is; for tensors, the first place.
        given: constants that the call is given, each with where it is: equal ones may be others.
        within: lists, dicts and sets within containers of constants, which have no place.
        patchable: functions of torch and of Python that must stay what they are.
        codes: the code of every function of the user's that is reached, with why it must not run,
            or an empty text.
    """

    def __init__(self, L: dict[str, Any], G: dict[str, Any], function: Any, name: str) -> None:
        self._L, self._G = L, G
        self._walk = Walk()
        self._named = NamedAttributes(self._walk)
        self.guards = self._walk.guards
        self.places: dict[int, tuple[ValueSource, Any]] = {}
        self.given: dict[int, tuple[ValueSource, Any]] = {}
        self.within: dict[int, Any] = {}
        self.patchable = Patchable()
        self._members = EnumMembers(self._walk, self.patchable)
        self.codes: dict[types.CodeType, str] = {}
        self._globals_seen: set[tuple[int, str]] = set()
        self._tells_constants = False  # by their identity: there may be several equal ones
        self._has_sets = self._makes_unseen = False  # of sets, others that no code says
        self._handed_on: set[str] = set()  # names that code uses otherwise than in calling them
        self._todo = self._walk.todo
        self._todo += [(LocalSource(key), value) for key, value in L.items()]
        self._todo.append((GlobalSource(name), function))
        self._visit_all()

    def tensors(self) -> Iterator[tuple[ValueSource, torch.Tensor]]:
        """Give all tensors that were reached."""
        for source, value in self.places.values():
            if is_a(value, torch.Tensor):
                yield source, value

    def namespaces_are_as_they_were(self) -> bool:
        """Tell whether functions, classes and modules have the attributes that they had."""
        return self._walk.namespaces_are_as_they_were()

    def reaches_class(self, cls: type) -> bool:
        """Tell whether a guard holds fast which class this is, or nothing can change it."""
        return self._named.reaches_class(cls)

    def _visit_all(self) -> None:
        while self._todo:
            while self._todo:
                source, value = self._todo.pop()
                self._visit(source, value)
                if len(self.guards) > _MOST:
                    raise CannotSpecialize(f"it reaches more than {_MOST:,} values")
            # The names that code uses say which attributes of classes and modules matter.
            self._named.visit_names()
        for source, called in self._walk.not_understood:
            if called is None or called in self._handed_on:
                self._refuse(source, "may be called unseen, by other functions of C")
        for name in sorted(filter(_TELLS_OF_MODES.search, self._walk.names)):
            raise CannotSpecialize(f"it names {name}, which may tell that a call is watched")
        self.operates = any(f in _OPERATORS_OF_SETS for f in self._walk.functions_of_c)
        readings = [read_stack(code) for code in self.codes]
        if (self._makes_unseen or any(found.makes_unseen for found in readings)) and (
            self._has_sets or any(found.makes for found in readings)
        ):
            raise CannotSpecialize(f"it may make sets unseen; whoever does {ORDER_OF_SETS}")
        # What lacks an attribute may be told from what has it by an error that code catches.
        catches = any(catches_errors(code) or read_stack(code).misses for code in self.codes)
        self.patchable.note_names(self._walk.names, absent=catches)
        for cls, name in self._walk.noted:
            self.patchable.note(cls, [name])
        for code in self.codes:
            self.patchable.note_names(operators_in(code))
        for owner, name in self._walk.absent if catches else ():
            self.patchable.note(owner, [name])
        self._guard(GlobalStateSource(), not_patched, patchable=self.patchable)
        distinct = [source for source, _ in self.places.values()]
        self._guard(GlobalStateSource(), distinct_objects, sources=distinct)
        classes = list(self._named.class_places)
        self._guard(GlobalStateSource(), whole_classes, sources=classes)
        tensors = [source for source, _ in self.tensors()]
        self._guard(GlobalStateSource(), bare_tensors, sources=tensors)
        # A deep copy has one object for what was one.
        self._tells_constants |= bool(_COPIES & self._walk.names)
        tell = (operator.is_, operator.is_not)
        self._tells_constants |= any(f in tell for f in self._walk.functions_of_c)
        self._guard(
            GlobalStateSource(),
            same_identities,
            constants=self._walk.constants,
            keyed=self._walk.keyed,
            fixed=[code.co_consts for code in self.codes],
            only_nan=not self._tells_constants,
        )

    def _guard(self, source: ValueSource, create: Callable[..., Any], **options: Any) -> None:
        self._walk.guard(source, create, **options)

    def _refuse(self, source: ValueSource, why: str) -> NoReturn:
        self._walk.refuse(source, why)

    # ── values ──────────────────────────────────────────────────────────────────────────────────

    def _visit(self, source: ValueSource, value: Any) -> None:
        if value is super:
            self._walk.names.add("super")
        if value is type and getattr(source, "member", "") != "__class__":
            self._makes_unseen = True  # it is called by another name
        if is_a(value, type) and not is_understood_class(value):
            self._refuse(
                source,
                f"is {spell(value)}, which looks names up that cannot be seen: write `x.name`",
            )
        if is_a(value, type) and issubclass(value, MAKERS):
            self._refuse(
                source,
                f"is the class {type_name(value)}: the order of a set may depend on addresses",
            )
        if is_a(value, type) and not is_constant_like(value):
            self._guard(source, GuardBuilder.ID_MATCH)
            self._named.visit_class(source, value)
            if issubclass(value, enum.Enum):
                self._members.visit_class(source, value)
            return
        if is_a(value, enum.Enum):
            self._visit_member_of_enum(source, value)
            return
        if is_constant_like(value) or (type(value) is tuple and holds_only_constants(value)):
            self._guard(source, GuardBuilder.CONSTANT_MATCH)
            self._visit_constant(source, value)
            if source.guard_source() is GuardSource.LOCAL and any_of(leaves(value)):
                self.given.setdefault(id(value), (source, value))
            return
        known = self.places.get(id(value))
        if known is not None:
            self._guard(source, GuardBuilder.DUPLICATE_INPUT, source_b=known[0])
            return
        self.places[id(value)] = (source, value)
        if holds_only_constants(value):
            self._guard(source, GuardBuilder.EQUALS_MATCH)
            self._visit_constant(source, value)
        elif is_a(value, torch.Tensor):
            self._visit_tensor(source, value)
        elif is_a(value, torch.nn.Module):
            self._visit_module(source, value)
        elif is_a(value, types.ModuleType):
            self._guard(source, GuardBuilder.ID_MATCH)
            self._guard(source, GuardBuilder.TYPE_MATCH)  # it may get another one
            if type(value) is types.ModuleType:
                self._walk.remember(value)
            self._named.add_owner(source, value)
        else:
            self._visit_other(source, value)

    def _visit_constant(self, source: ValueSource, value: Any) -> None:
        if holds_sets(value):
            self._has_sets = True
            self._guard(source, same_order)
        self._note_within(value)
        self._members.note(source, leaves(value))

    def _note_within(self, value: Any) -> None:
        """Note the lists, dicts and sets within a container of constants, which has one guard."""
        if type(value) in (list, tuple, dict):
            for part in value.values() if type(value) is dict else value:
                if type(part) in (list, dict, set):
                    self.within[id(part)] = part
                self._note_within(part)

    def _visit_other(self, source: ValueSource, value: Any) -> None:
        cls = type(value)
        if cls in (list, tuple) or (cls in (dict, OrderedDict)):
            self._visit_container(source, value)
        elif cls is set and is_constant(value):
            self._guard(source, GuardBuilder.SET_MATCH)
            self._visit_constant(source, value)
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
            if value in _TELL_OF_WATCHING:
                self._refuse(source, "may tell that a call is watched")
            if value in ASK_BY_NAME:
                self._refuse(
                    source, f"is {value.__name__} by another name, whose calls are not seen"
                )
            self._walk.functions_of_c.append(value)
            if not is_understood(value):
                name = getattr(source, "index", None)
                self._walk.not_understood.append((source, name if type(name) is str else None))
            self._guard(source, GuardBuilder.ID_MATCH)
        elif cls in (torch._ops.OpOverloadPacket, torch._ops.OpOverload):
            self._guard(source, GuardBuilder.ID_MATCH)
        elif cls in (types.MethodDescriptorType, types.WrapperDescriptorType):
            self._visit_method_of_c(source, value)
        elif cls is functools.partial:
            self._guard(source, GuardBuilder.TYPE_MATCH)
            self._guard(AttrSource(source, "__dict__"), GuardBuilder.DICT_KEYS_MATCH)
            self._visit_own(source, value.__dict__)
            for part in ("func", "args", "keywords"):
                self._todo.append((AttrSource(source, part), getattr(value, part)))
        elif cls is weakref.ref:
            self._guard(source, GuardBuilder.TYPE_MATCH)
            self._todo.append((ReferentSource(source), value()))
        elif cls is types.MappingProxyType:
            self._guard(source, GuardBuilder.TYPE_MATCH)
            self._todo.append((ProxiedSource(source), ProxiedSource(source).read(value)))
        elif cls is operator.itemgetter:
            self._guard(source, GuardBuilder.TYPE_MATCH)
            self._todo.append((ItemsSource(source), value.__reduce__()[1]))
        else:
            self._visit_object(source, value)

    def _visit_method_of_c(self, source: ValueSource, method: Any) -> None:
        if not is_understood(method):
            name = getattr(source, "index", None)
            self._walk.not_understood.append((source, name if type(name) is str else None))
        # It takes no weak reference; its class and its name tell which one it is.
        self._guard(source, GuardBuilder.TYPE_MATCH)
        self._guard(AttrSource(source, "__name__"), GuardBuilder.EQUALS_MATCH)
        self._guard(AttrSource(source, "__objclass__"), GuardBuilder.ID_MATCH)

    def _visit_member_of_enum(self, source: ValueSource, member: enum.Enum) -> None:
        self._guard(source, GuardBuilder.CONSTANT_MATCH)
        if id(member) not in self.places:
            self.places[id(member)] = (source, member)
            self._members.visit_member(source, member)

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
        self._visit_items(source, value, type(value))

    def _visit_items(self, source: ValueSource, value: Any, root: Any) -> None:
        """Follow what a container holds, as the class of C behind it keeps that."""
        if issubclass(root, dict):
            keys = tuple(root.__iter__(value))
            if not all(map(is_constant, keys)):
                self._refuse(source, "has keys that are objects")
            self._members.note(source, leaves(keys))
            self._guard(source, GuardBuilder.DICT_KEYS_MATCH)
            parts: Any = [(key, dict.__getitem__(value, key)) for key in keys]
        else:
            self._guard(source, GuardBuilder.SEQUENCE_LENGTH)
            parts = enumerate(root.__iter__(value))
        self._todo += [(GetItemSource(source, key), part) for key, part in parts]

    def _visit_module(self, source: ValueSource, module: torch.nn.Module) -> None:
        self._guard(source, GuardBuilder.TYPE_MATCH)
        self._named.visit_class(TypeSource(source), type(module))
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
        if "parametrizations" in own["_modules"]:
            self._guard(SettingSource(CACHES_PARAMETRIZATIONS), GuardBuilder.EQUALS_MATCH)
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
        if cls is _CACHED:
            self._refuse(
                source,
                "keeps its results from call to call (functools.lru_cache), which no guard sees: "
                "call it before, and hand on what it gives",
            )
        layout = layout_of(cls)
        if layout is None or layout.root not in _FOLLOWED or not _fetch.reads_plainly(cls):
            self._refuse(source, f"is {spell(value)}, which cannot be looked into")
        self._guard(source, GuardBuilder.TYPE_MATCH)
        self._named.visit_class(TypeSource(source), cls)
        own = _fetch.instance_dict(value)
        if own is not None:
            self._guard(AttrSource(source, "__dict__"), GuardBuilder.DICT_KEYS_MATCH)
            if cls is contextlib._GeneratorContextManager:
                # Who decorates makes it anew; whoever enters it itself changes it, which is seen.
                own = {name: part for name, part in own.items() if name != "gen"}
            self._visit_own(source, own)
        if layout.root is not object:
            self._visit_items(source, value, layout.root)
        for name, part in slot_values(value, layout).items():
            if type(_fetch.class_attribute(cls, name)) is not types.MemberDescriptorType:
                self._refuse(source, f"has a slot {name} that something else hides")
            if part is MISSING:
                self._guard(AttrSource(source, name), GuardBuilder.NOT_PRESENT)
            else:
                self._todo.append((AttrSource(source, name), part))

    def _visit_own(self, source: ValueSource, own: dict[str, Any]) -> None:
        for name, value in own.items():
            place = GetItemSource(AttrSource(source, "__dict__"), name)
            self._todo.append((place, value))

    # ── code ────────────────────────────────────────────────────────────────────────────────────

    def _visit_function(self, source: ValueSource, function: types.FunctionType) -> None:
        self._guard(source, GuardBuilder.FUNCTION_MATCH)
        if function.__code__ is _SINGLE_DISPATCH:
            self._refuse(
                source,
                "finds functions by the class of what it is given (functools.singledispatch), in a "
                "cache that no guard sees: call the function for that class itself",
            )
        if function.__code__ in CODE_OF_CLASSES and not function.__closure__:
            return
        for name, cell in zip(
            function.__code__.co_freevars, function.__closure__ or (), strict=True
        ):
            try:
                self._todo.append((CellContentsSource(source, name), cell.cell_contents))
            except ValueError:
                self._refuse(source, f"closes over {name}, which is not set yet")
        self._walk.remember(function)
        self._named.add_owner(source, function)
        if is_of_torch(function.__code__):
            self._named.refuse_higher_order(source, function)
            return
        self._guard(AttrSource(source, "__dict__"), GuardBuilder.DICT_KEYS_MATCH)
        for index, value in enumerate(function.__defaults__ or ()):
            self._todo.append((DefaultsSource(source, index), value))
        for key, value in (function.__kwdefaults__ or {}).items():
            self._todo.append((DefaultsSource(source, key), value))
        namespace = self._namespace(source, function)
        for code in all_code(function.__code__):
            self.codes[code] = self._read_code(code, namespace, function.__globals__)

    def _namespace(self, source: ValueSource, function: types.FunctionType) -> ValueSource:
        """Give a place under which the globals of a function are found again."""
        name = str(function.__globals__.get("__name__", "?"))
        while self._G.setdefault(name, function.__globals__) is not function.__globals__:
            name += "'"
        # The function must go on having these globals; its code alone does not say so.
        namespace = GlobalSource(name)
        own = AttrSource(source, "__globals__")
        self._guard(own, GuardBuilder.DUPLICATE_INPUT, source_b=namespace)
        return namespace

    def _read_code(self, code: types.CodeType, namespace: ValueSource, scope: Any) -> str:
        reading = read_code(code)
        problem = reading.problem
        for name, handed_on in reading.globals:
            # Before Python 3.11 code does not say what it calls, but here that is known.
            called = name in _ASK_BY_NAME and read_stack(code).asks_by_names_it_has
            if handed_on and not called:
                problem = problem or self._handing_on(name, scope)
            found = self._visit_global(name, namespace, scope)
            problem = problem or found
        if read_stack(code).follows_order:
            problem = problem or ORDER_OF_SETS
        for name in reading.told_by_identity:
            told = scope.get(name)
            self._tells_constants |= not name or (is_constant(told) and not is_a(told, type))
        self._handed_on |= reading.handed_on
        self._walk.names |= reading.names
        if OF_DATACLASSES & reading.names:
            self._walk.names.add("__dataclass_fields__")
        return problem

    def _handing_on(self, name: str, scope: Any) -> str:
        found = getattr(builtins, name, None)
        if name not in scope and found in (repr, ascii):
            return f"hands {name} on, whose texts may say the addresses of objects"
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
        elif not _has_common_builtins(scope):  # those of named tuples are empty, and name none
            return f"names {name}, which it takes from builtins of its own"
        elif hasattr(builtins, name):
            self._guard(place, GuardBuilder.NOT_PRESENT)
            self._visit_builtin(name)
        else:
            return f"names {name}, which is not defined"
        return ""

    def _visit_builtin(self, name: str) -> None:
        """Hold fast what a name of the builtins means, which may be the user's own."""
        value = getattr(builtins, name)
        of_python = is_a(value, types.BuiltinFunctionType) or value is NotImplemented
        if of_python or (is_a(value, type) and not is_heap_type(value)):
            self.patchable.note(builtins, [name])
            return
        namespace = "builtins"
        while self._G.setdefault(namespace, vars(builtins)) is not vars(builtins):
            namespace += "'"
        self._todo.append((GetItemSource(GlobalSource(namespace), name), value))


def _has_common_builtins(scope: dict[str, Any]) -> bool:
    # Where there are none when a function is made, Python gives it its own.
    given = scope.get("__builtins__", builtins)
    return given is builtins or given is vars(builtins)


_SINGLE_DISPATCH = cast(Any, functools.singledispatch(len)).__code__
_CACHED = type(functools.lru_cache(len))


def _is_plumbing(name: str) -> bool:
    return name in ("_parameters", "_buffers", "_modules") or (
        name.startswith("_") and name.endswith(("hooks", "_hooks_with_kwargs", "_always_called"))
    )
