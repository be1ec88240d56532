"""Read a value's parts without running code of the value's class.

Python's own ``x.a``, ``x[k]`` and ``len(x)`` may run a property, ``__getattr__``, ``__getitem__``
or ``__len__`` of a foreign class. A guard must not: such code may be slow, may have effects, may
raise, and may answer differently the second time. The functions here look where the interpreter
looks, in the same order, and stop where code of the class would begin. What they cannot find
that way is :data:`MISSING`; what only foreign code could tell is :data:`REFUSED`.
"""

from __future__ import annotations

import collections
import gc
import types
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast, final

import torch

if TYPE_CHECKING:
    from typing import TypeGuard

T = TypeVar("T")

__all__ = [
    "MISSING",
    "REFUSED",
    "Absent",
    "attribute",
    "class_attribute",
    "has_plain_dict",
    "instance_dict",
    "is_a",
    "item",
    "key_at",
    "length",
    "module_children",
    "module_table",
    "plain_type",
    "reads_plainly",
]


@final
class Absent:
    """The two ways in which a value can fail to be there."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def __bool__(self) -> bool:
        return False


MISSING: Final = Absent("missing")
REFUSED: Final = Absent("only to be had by running code of its class")


def is_a(value: object, cls: type[T] | tuple[type[T], ...]) -> TypeGuard[T]:
    """Tell whether a value is of a class by its true type.

    ``isinstance`` would also ask ``__class__``, which a foreign class may make a property.
    """
    return issubclass(type(value), cls)


class _Foreign:
    """Stands for every class whose metaclass is not ``type``."""


def plain_type(value: object) -> type:
    """Give a value's class, to be looked up among known ones.

    A class that a metaclass of its own made is known by a stand-in: looking it up could run the
    metaclass's ``__hash__`` and ``__eq__``.
    """
    cls = type(value)
    return cls if type(cls) is type else _Foreign


_class_dict = type.__dict__["__dict__"].__get__
_class_mro = type.__dict__["__mro__"].__get__
_module_getattr = torch.nn.Module.__getattr__

_FIXED_PLACE = (types.MemberDescriptorType, types.GetSetDescriptorType)
_METHOD_OF_C = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.BuiltinFunctionType,
)
# Instance attribute lookups that are C code and do what this module does.
_PLAIN_LOOKUPS = (
    object.__getattribute__,
    types.ModuleType.__getattribute__,
    *(c.__getattribute__ for c in (dict, list, set, tuple)),  # which do what that of object does
)


def class_attribute(cls: type, name: str) -> Any:
    """Find ``name`` in a class or its bases, as the interpreter does; MISSING where none has it."""
    for base in _class_mro(cls):
        namespace = _class_dict(base)
        if name in namespace:
            return namespace[name]
    return MISSING


def instance_dict(obj: object) -> dict[str, Any] | None:
    """Give the dict that holds an object's own attributes; None where there is none to be had."""
    place: Any = class_attribute(type(obj), "__dict__")
    if plain_type(place) in _FIXED_PLACE:
        namespace = place.__get__(obj, type(obj))
        if type(namespace) is dict or not is_a(namespace, dict):
            return namespace if type(namespace) is dict else None
        # Objects read one of a subclass as a dict, whatever code of its own that has.
        return {key: dict.__getitem__(namespace, key) for key in dict.__iter__(namespace)}
    return None


def reads_plainly(cls: type) -> bool:
    """Tell whether ``x.a`` on an instance runs none of the class's own lookup code.

    ``__getattr__`` of torch.nn.Module counts as torch's, not as foreign.
    """
    lookup = class_attribute(cls, "__getattribute__")
    fallback = class_attribute(cls, "__getattr__")
    return (
        lookup in _PLAIN_LOOKUPS
        and (fallback is MISSING or fallback is _module_getattr)
        and type(class_attribute(cls, "__dict__")) in (*_FIXED_PLACE, Absent)
    )


def has_plain_dict(cls: type) -> bool:
    """Tell whether ``x.__dict__`` on an instance is its own dict, read by C code."""
    return type(cls) is type and reads_plainly(cls) and bool(class_attribute(cls, "__dict__"))


def attribute(obj: object, name: str, allow_call: bool = False) -> Any:
    """Give attribute ``name`` of ``obj``: from its dict, its slots, or its class.

    With ``allow_call`` what these cannot tell is asked of the object itself, exceptions giving
    MISSING. Without, a property or another descriptor written in Python gives REFUSED.
    """
    value = _attribute_of_class(obj, name) if is_a(obj, type) else _attribute(obj, name)
    if type(value) is Absent and allow_call:
        try:
            return getattr(obj, name)
        except Exception:
            return MISSING
    return value


def _attribute(obj: object, name: str) -> Any:
    cls = type(obj)
    found = class_attribute(cls, name)
    if found is not MISSING and _is_data_descriptor(found):
        return _from_fixed_place(found, obj)
    namespace = instance_dict(obj)
    if namespace is not None and name in namespace:
        return namespace[name]
    if found is not MISSING:
        return _bound(found, obj, cls)
    for table in ("_parameters", "_buffers", "_modules"):
        entries = module_table(obj, table) or {}
        if name in entries:
            return entries[name]
    return MISSING


def _attribute_of_class(cls: type, name: str) -> Any:
    meta = type(cls)
    of_meta = class_attribute(meta, name)
    if of_meta is not MISSING and _is_data_descriptor(of_meta):
        return _from_fixed_place(of_meta, cls)
    found = class_attribute(cls, name)
    if found is MISSING:
        return MISSING if of_meta is MISSING else _bound(of_meta, cls, meta)
    if is_a(found, (staticmethod, classmethod)):
        return _bound(found, None, cls)
    if is_a(found, (types.FunctionType, property, *_FIXED_PLACE)):
        return found
    if is_a(found, types.ClassMethodDescriptorType):
        return found.__get__(None, cls)
    return REFUSED if _has(found, "__get__") and not is_a(found, _METHOD_OF_C) else found


def _is_data_descriptor(value: object) -> bool:
    return _has(value, "__set__") or _has(value, "__delete__")


def _has(value: object, name: str) -> bool:
    return class_attribute(type(value), name) is not MISSING


def _from_fixed_place(place: Any, obj: object) -> Any:
    """Read a slot, or an attribute that C code computes for a class of C."""
    if plain_type(place) not in _FIXED_PLACE:
        return REFUSED
    # Tensor's own would hand the question to __torch_function__ of a subclass.
    of_tensor = is_a(obj, torch.Tensor) and type(place) is types.GetSetDescriptorType
    known = type(obj) is torch.Tensor or type(obj) is torch.nn.Parameter
    if of_tensor and not known:
        return REFUSED
    try:
        return place.__get__(obj, type(obj))
    except Exception:
        return MISSING


def _bound(found: Any, obj: object, cls: type) -> Any:
    kind = plain_type(found)
    if kind is types.FunctionType:
        return types.MethodType(found, obj)
    if kind is staticmethod:
        return found.__func__
    if kind is classmethod:
        inner = found.__func__
        return types.MethodType(inner, cls) if type(inner) is types.FunctionType else REFUSED
    if kind in _METHOD_OF_C:
        return found.__get__(obj, cls) if _has(found, "__get__") else found
    return REFUSED if _has(found, "__get__") else found


def item(obj: object, key: object, allow_call: bool = False) -> Any:
    """Give ``obj[key]`` of a builtin container, or of a subclass that reads as its base does."""
    cls = type(obj)
    read: Any = class_attribute(cls, "__getitem__")
    if read is dict.__getitem__:
        # Not through __getitem__, which would run __missing__.
        try:
            return dict.get(cast("dict[Any, Any]", obj), key, MISSING)
        except Exception:  # a slice has no hash; a key with the same one may fail to compare
            return MISSING
    if read is _PROXY_GETITEM:
        return item(gc.get_referents(obj)[0], key, allow_call)  # as the mapping behind tells
    if read in _PLAIN_GETITEM:
        try:
            return read(obj, key)
        except Exception:
            return MISSING
    if is_a(obj, _MODULE_CONTAINERS) and read in _MODULE_GETITEM:
        return _submodule(obj, key)
    if not allow_call:
        return REFUSED if read is not MISSING else MISSING
    try:
        return cast(Any, obj)[key]
    except Exception:
        return MISSING


_MODULE_CONTAINERS = (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict)
_MODULE_GETITEM = tuple(c.__dict__["__getitem__"] for c in _MODULE_CONTAINERS)
_PLAIN_GETITEM = (
    list.__getitem__,
    tuple.__getitem__,
    str.__getitem__,
    bytes.__getitem__,
    range.__getitem__,
    collections.deque.__getitem__,
    torch.Size.__getitem__,
)
_PROXY_GETITEM = types.MappingProxyType.__getitem__


def module_table(module: object, name: str) -> dict[str, Any] | None:
    """Give a module's ``_parameters``, ``_buffers`` or ``_modules``; None where it has none."""
    own = instance_dict(module) if is_a(module, torch.nn.Module) else None
    table = None if own is None else own.get(name)
    return table if type(table) is dict else None


def module_children(value: object) -> list[Any] | None:
    """Give the children of a Sequential or ModuleList in their order; None for anything else."""
    if not is_a(value, (torch.nn.Sequential, torch.nn.ModuleList)):
        return None
    if class_attribute(type(value), "__getitem__") not in _MODULE_GETITEM:
        return None
    modules = module_table(value, "_modules")
    return None if modules is None else list(modules.values())


def _submodule(container: torch.nn.Module, key: object) -> Any:
    if is_a(container, torch.nn.ModuleDict):
        return (module_table(container, "_modules") or {}).get(key, MISSING)  # type: ignore[call-overload]
    if type(key) is not int:
        return REFUSED
    children = module_children(container) or []
    return children[key] if -len(children) <= key < len(children) else MISSING


_PLAIN_LEN: tuple[Any, ...] = (
    dict.__len__,
    list.__len__,
    tuple.__len__,
    set.__len__,
    frozenset.__len__,
    str.__len__,
    bytes.__len__,
    bytearray.__len__,
    range.__len__,
    collections.deque.__len__,
)
_PROXY_LEN = types.MappingProxyType.__len__
PLAIN_DICT_ITER = (dict.__iter__, collections.OrderedDict.__iter__)
_PROXY_ITER = types.MappingProxyType.__iter__


def length(obj: object, allow_call: bool = False) -> Any:
    """Give ``len(obj)`` of a builtin container, or of a subclass that counts as its base does."""
    count: Any = class_attribute(type(obj), "__len__")
    if count is _PROXY_LEN:
        return length(gc.get_referents(obj)[0], allow_call)  # as the mapping behind tells
    if count in _PLAIN_LEN:
        return count(obj)
    if is_a(obj, _MODULE_CONTAINERS) and count in _MODULE_LEN:
        modules = module_table(obj, "_modules")
        return MISSING if modules is None else len(modules)
    if count is MISSING:
        return MISSING
    if not allow_call:
        return REFUSED
    try:
        return len(cast(Any, obj))
    except Exception:
        return MISSING


_MODULE_LEN = tuple(c.__dict__["__len__"] for c in _MODULE_CONTAINERS)


def key_at(obj: object, position: int) -> Any:
    """Give the key at a position of a dict, in the order of insertion."""
    walk: Any = class_attribute(type(obj), "__iter__")
    if walk is _PROXY_ITER:
        return key_at(gc.get_referents(obj)[0], position)
    if walk not in PLAIN_DICT_ITER:
        return MISSING if walk is MISSING else REFUSED
    for index, key in enumerate(walk(obj)):
        if index == position:
            return key
    return MISSING
