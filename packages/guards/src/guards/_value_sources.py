"""The sources that can be evaluated: locals, globals, and what is reached from them.

Every source here prints as the Python expression for its value over ``L``, the locals, and ``G``,
the globals.
"""

from __future__ import annotations

import keyword
import types
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from guards import _fetch
from guards._constants import obstacle, spell
from guards._emit import Emitter, is_kept_anyway
from guards._errors import UnsupportedGuardError
from guards._evaluation import ChainedValueSource, Scope, ValueSource
from guards._fetch import MISSING, is_a, plain_type
from guards._source import GuardSource

__all__ = [
    "AttrSource",
    "CellContentsSource",
    "ChainedValueSource",
    "ConstDictKeySource",
    "ConstantSource",
    "DefaultsSource",
    "GetItemSource",
    "GlobalSource",
    "GlobalStateSource",
    "LengthSource",
    "LocalSource",
    "ParamBufferSource",
    "TensorPropertySource",
    "TypeSource",
    "ValueSource",
]


_MOST_PARTS = 1000


def _need(what: str, cls: type, got: object) -> None:
    """Refuse a field of another class than exactly this one: fields are written into code.

    Raises:
        UnsupportedGuardError: it is of another class, or a number that no index can be.
    """
    if type(got) is not cls:
        wanted = {str: "a string", bool: "True or False", int: "a whole number"}[cls]
        raise UnsupportedGuardError(f"{what} is told by {wanted}, got {spell(got, 60)}")
    if type(got) is int and got.bit_length() > 63:
        raise UnsupportedGuardError(f"{what} is told by a number of 64 bits, got {spell(got, 60)}")


def _member(base: str, name: str) -> str:
    return f"{base}.{name}" if _is_written_plainly(name) else f"getattr({base}, {name!r})"


def _is_written_plainly(name: str) -> bool:
    # Python reads other letters as their plain forms: 'ﬁ' as 'fi'.
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name)


# ── roots ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class LocalSource(ValueSource):
    """A local variable or an input: ``L['x']``."""

    local_name: str

    def __post_init__(self) -> None:
        _need("a local variable", str, self.local_name)

    def _spell(self, base: str) -> str:
        return f"L[{self.local_name!r}]"

    def guard_source(self) -> GuardSource:
        return GuardSource.LOCAL

    def start(self, L: Scope, G: Scope) -> Any:
        try:
            return L[self.local_name]
        except Exception:
            return MISSING

    def table(self, example: Any) -> tuple[str, Any] | None:
        return "L", self.local_name


@dataclass(frozen=True, eq=False)
class GlobalSource(ValueSource):
    """A global variable: ``G['x']``."""

    global_name: str

    def __post_init__(self) -> None:
        _need("a global variable", str, self.global_name)

    def _spell(self, base: str) -> str:
        return f"G[{self.global_name!r}]"

    def guard_source(self) -> GuardSource:
        return GuardSource.GLOBAL

    def start(self, L: Scope, G: Scope) -> Any:
        try:
            return G[self.global_name]
        except Exception:
            return MISSING

    def table(self, example: Any) -> tuple[str, Any] | None:
        return "G", self.global_name


@dataclass(frozen=True, eq=False)
class ConstantSource(ValueSource):
    """A constant; it needs no guard, and other sources may be reached through it."""

    value: Any

    def _spell(self, base: str) -> str:
        return _spell_index(self.value)

    def guard_source(self) -> GuardSource:
        return GuardSource.CONSTANT

    def start(self, L: Scope, G: Scope) -> Any:
        return self.value


@dataclass(frozen=True, eq=False)
class GlobalStateSource(ValueSource):
    """No value at all: the place for guards on torch's own state, such as GRAD_MODE."""

    def _spell(self, base: str) -> str:
        return "torch"

    def guard_source(self) -> GuardSource:
        return GuardSource.GLOBAL

    def start(self, L: Scope, G: Scope) -> Any:
        return torch


# ── links ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class AttrSource(ChainedValueSource):
    """An attribute: from the instance's dict, its slots, or its class.

    ``allow_call`` lets it run a property, ``__getattr__`` or ``__getattribute__`` of the class.
    """

    member: str
    allow_call: bool = False

    remedy: ClassVar[str] = "AttrSource(…, allow_call=True) runs that code"

    def __post_init__(self) -> None:
        super().__post_init__()
        _need("an attribute", str, self.member)
        _need("allow_call", bool, self.allow_call)

    def _spell(self, base: str) -> str:
        return _member(base, self.member)

    def read(self, base: Any) -> Any:
        return _fetch.attribute(base, self.member, self.allow_call)

    def table(self, example: Any) -> tuple[str, Any] | None:
        return _module_entry(example, ("_parameters", "_buffers", "_modules"), self.member)

    def emit(self, base: str, emitter: Emitter, example: Any) -> str:
        cls = type(example)
        of_tensor = is_a(example, torch.Tensor)
        if cls is type:
            return self._emit_of_class(base, emitter, example)
        if self.member == "__dict__" and _fetch.has_plain_dict(cls) and not of_tensor:
            return emitter.if_type(base, cls, f"{base}.__dict__", self)
        if _is_written_plainly(self.member) and self.lies_in_own_dict(example):
            return emitter.if_type(base, cls, f"{base}.{self.member}", self, self.member)
        return emitter.fetch(self, base)

    def lies_in_own_dict(self, example: Any) -> bool:
        """Tell whether the dict of an object holds the attribute, and nothing of its class."""
        cls = type(example)
        if type(cls) is not type or is_a(example, (type, torch.Tensor)):
            return False
        own = _fetch.instance_dict(example)
        hidden = _fetch.class_attribute(cls, self.member) is not MISSING
        return own is not None and self.member in own and not hidden and _fetch.reads_plainly(cls)

    def _emit_of_class(self, base: str, emitter: Emitter, cls: type) -> str:
        """Write how to fetch a function of a class."""
        slow = emitter.fetch(self, base)
        of_meta = _fetch.class_attribute(type, self.member)
        found = type.__dict__["__dict__"].__get__(cls).get(self.member)
        if of_meta is not MISSING or not is_a(found, types.FunctionType):
            return slow
        if not is_kept_anyway(cls):
            return slow
        member, names = emitter.local("member"), emitter.names_of(cls)
        function = emitter.constant(types.FunctionType, "function")
        fast = f"type({member} := {names}.get({self.member!r})) is {function}"
        return f"({member} if {emitter.is_same_class(base, cls)} and {fast} else {slow})"


@dataclass(frozen=True, eq=False)
class GetItemSource(ChainedValueSource):
    """An entry of a builtin container, by a constant key or index.

    ``allow_call`` lets it run ``__getitem__`` of a foreign class.

    Raises:
        UnsupportedGuardError: the key is no constant; a dict key that is an object is reached by
            its position, with :class:`ConstDictKeySource`.
    """

    index: Any
    allow_call: bool = False

    remedy: ClassVar[str] = "GetItemSource(…, allow_call=True) runs that code"

    def __post_init__(self) -> None:
        super().__post_init__()
        _need("allow_call", bool, self.allow_call)
        why_not = obstacle(self.index)
        if why_not is not None:
            raise UnsupportedGuardError(
                f"{self.base.name() if isinstance(self.base, ValueSource) else self.base!r}"
                f"[…]: the key, {spell(self.index)}, is no constant: {why_not}; "
                "reach it by its position with ConstDictKeySource"
            )

    def _spell(self, base: str) -> str:
        return f"{base}[{_spell_index(self.index)}]"

    def read(self, base: Any) -> Any:
        return _fetch.item(base, self.index, self.allow_call)

    def table(self, example: Any) -> tuple[str, Any] | None:
        if not (type(self.index) is str or _is_short(self.index)):
            return None  # it is written into the code as a literal
        cls = plain_type(example)
        if cls in (list, tuple):
            return ("items", self.index) if type(self.index) is int else None
        if cls is dict:
            return "items", self.index
        children = _fetch.module_children(example)
        plain = children is not None and type(self.index) is int
        return ("children", self.index) if plain else None


def _is_short(index: Any) -> bool:
    return type(index) is int and index.bit_length() <= 512


def _spell_index(index: Any) -> str:
    if type(index) is slice:
        start, stop, step = ("" if p is None else _spell_index(p) for p in _slice_parts(index))
        return f"{start}:{stop}" + (f":{step}" if step else "")
    return spell(index, 1000, depth=100)


def _slice_parts(index: slice) -> tuple[Any, Any, Any]:
    return index.start, index.stop, index.step


@dataclass(frozen=True, eq=False)
class ConstDictKeySource(ChainedValueSource):
    """The key at a position of a dict, in the order of insertion; for keys that are objects."""

    index: int

    def __post_init__(self) -> None:
        super().__post_init__()
        _need("the position of a key", int, self.index)

    def _spell(self, base: str) -> str:
        return f"list({base})[{self.index}]"

    def is_dict_key(self) -> bool:
        return True

    def read(self, base: Any) -> Any:
        return _fetch.key_at(base, self.index)


@dataclass(frozen=True, eq=False)
class LengthSource(ChainedValueSource):
    """The number of entries of a builtin container; ``allow_call`` runs a foreign ``__len__``."""

    allow_call: bool = False

    remedy: ClassVar[str] = "LengthSource(…, allow_call=True) runs that code"

    def __post_init__(self) -> None:
        super().__post_init__()
        _need("allow_call", bool, self.allow_call)

    def _spell(self, base: str) -> str:
        return f"len({base})"

    def read(self, base: Any) -> Any:
        return _fetch.length(base, self.allow_call)


@dataclass(frozen=True, eq=False)
class TypeSource(ChainedValueSource):
    """The class of a value, as ``type`` tells it, whatever its ``__class__`` claims."""

    def _spell(self, base: str) -> str:
        return f"type({base})"

    def read(self, base: Any) -> Any:
        return type(base)

    def emit(self, base: str, emitter: Emitter, example: Any) -> str:
        return f"type({base})"


@dataclass(frozen=True, eq=False)
class CellContentsSource(ChainedValueSource):
    """A variable that a function closes over, by its name."""

    freevar: str

    def __post_init__(self) -> None:
        super().__post_init__()
        _need("a variable of a function", str, self.freevar)

    def _spell(self, base: str) -> str:
        if ".cell_contents" not in base:
            names = f"{base}.__code__.co_freevars"
            return f"{base}.__closure__[{names}.index({self.freevar!r})].cell_contents"
        # Naming the function twice would double the text with each level of nesting.
        return (
            f"(lambda f: f.__closure__[f.__code__.co_freevars.index({self.freevar!r})])({base})"
            ".cell_contents"
        )

    def read(self, base: Any) -> Any:
        function = _function_of(base)
        if function is None or not function.__closure__:
            return MISSING
        names = function.__code__.co_freevars
        if self.freevar not in names:
            return MISSING
        try:
            return function.__closure__[names.index(self.freevar)].cell_contents
        except (ValueError, IndexError):  # the cell is empty
            return MISSING


@dataclass(frozen=True, eq=False)
class DefaultsSource(ChainedValueSource):
    """A default of a function: by index into ``__defaults__``, or by keyword."""

    index: int | str

    def __post_init__(self) -> None:
        super().__post_init__()
        _need("a default", str if is_a(self.index, str) else int, self.index)

    def _spell(self, base: str) -> str:
        place = "__kwdefaults__" if isinstance(self.index, str) else "__defaults__"
        return f"{base}.{place}[{self.index!r}]"

    def read(self, base: Any) -> Any:
        function = _function_of(base)
        if function is None:
            return MISSING
        if isinstance(self.index, str):
            return _fetch.item(function.__kwdefaults__ or {}, self.index)
        return _fetch.item(function.__defaults__ or (), self.index)


def _function_of(value: Any) -> Any:
    if is_a(value, types.MethodType):
        value = value.__func__
    return value if is_a(value, types.FunctionType) else None


@dataclass(frozen=True, eq=False)
class ParamBufferSource(ChainedValueSource):
    """A parameter or a buffer of a module; ``name`` may go through submodules: ``layer.weight``."""

    param_name: str

    def __post_init__(self) -> None:
        super().__post_init__()
        _need("a parameter or buffer", str, self.param_name)
        if self.param_name.count(".") > _MOST_PARTS:
            raise UnsupportedGuardError(f"a parameter lies at most {_MOST_PARTS} modules deep")

    def _spell(self, base: str) -> str:
        for part in self.param_name.split("."):
            # A submodule of a container may be called '0'.
            base = _member(base, part)
        return base

    def read(self, base: Any) -> Any:
        *path, last = self.param_name.split(".")
        for part in path:
            base = _entry(base, ("_modules",), part)
        return _entry(base, ("_parameters", "_buffers"), last)

    def table(self, example: Any) -> tuple[str, Any] | None:
        return _module_entry(example, ("_parameters", "_buffers"), self.param_name)


def _module_entry(example: Any, tables: tuple[str, ...], name: str) -> tuple[str, str] | None:
    """Say which of a module's tables holds a name, where reading it there runs no foreign code."""
    if not is_a(example, torch.nn.Module) or not _fetch.reads_plainly(type(example)):
        return None
    own = _fetch.instance_dict(example) or {}
    if name in own or _fetch.class_attribute(type(example), name) is not MISSING:
        return None
    for table in tables:
        hidden = _fetch.class_attribute(type(example), table) is not MISSING
        if not hidden and name in (_fetch.module_table(example, table) or {}):
            return table, name
    return None


def _entry(module: Any, tables: tuple[str, ...], name: str) -> Any:
    if not is_a(module, torch.nn.Module):
        return MISSING
    for table in tables:
        entries = _fetch.module_table(module, table) or {}
        if name in entries:
            return entries[name]
    return MISSING


@dataclass(frozen=True, eq=False)
class TensorPropertySource(ChainedValueSource):
    """A size or stride of a tensor by dimension, or its storage offset.

    Raises:
        UnsupportedGuardError: ``prop`` is none of 'size', 'stride' and 'storage_offset', or it
            lacks its dimension.
    """

    prop: str
    idx: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _need("a property of a tensor", str, self.prop)
        if self.idx is not None:
            _need("a dimension", int, self.idx)
        if self.prop not in ("size", "stride", "storage_offset"):
            raise UnsupportedGuardError(
                f"a tensor has no property {self.prop!r} that can be guarded; "
                "use 'size', 'stride' or 'storage_offset'"
            )
        if (self.idx is None) != (self.prop == "storage_offset"):
            wants = "no dimension" if self.prop == "storage_offset" else "a dimension"
            raise UnsupportedGuardError(f"{self.prop!r} takes {wants}, got {self.idx!r}")

    def _spell(self, base: str) -> str:
        return f"{base}.{self.prop}({'' if self.idx is None else self.idx})"

    def read(self, base: Any) -> Any:
        if not is_a(base, torch.Tensor):
            return MISSING
        try:
            with torch._C.DisableTorchFunction():
                if self.prop == "storage_offset":
                    return torch.Tensor.storage_offset(base)
                return getattr(torch.Tensor, self.prop)(base, self.idx)
        except Exception:
            return MISSING

    def emit(self, base: str, emitter: Emitter, example: Any) -> str:
        plain = type(example) is torch.Tensor or type(example) is torch.nn.Parameter
        with torch._C.DisableTorchFunction():  # a mode that is open is not asked
            plain = plain and not example.is_nested
        if plain:
            # Faster than asking for one dimension, and the same, but of nested tensors.
            read = {
                "size": f"{base}.shape[{self.idx!r}]",
                "stride": f"{base}.stride()[{self.idx!r}]",
                "storage_offset": f"{base}.storage_offset()",
            }[self.prop]
            quick = emitter.if_type(base, type(example), read, self)
            return f"({quick} if {emitter.no_modes()} else {emitter.fetch(self, base)})"
        return emitter.fetch(self, base)
