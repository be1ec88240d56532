"""Sources that can be evaluated: from a local or a global, link by link, to a value.

Every source here prints as the Python expression for its value over ``L``, the locals, and ``G``,
the globals. ``get(L, G)`` evaluates it link by link, without ``eval`` and without running code of
the values' classes, unless ``allow_call`` asks for that. Equal sources are the same dict key.

Write a source of your own by subclassing :class:`ValueSource` for a root, or
:class:`ChainedValueSource` for a link: ``_spell`` gives the expression, ``read`` the value.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, cast

import torch

from guards import _fetch
from guards._constants import constant_key, is_constant, spell
from guards._emit import Emitter
from guards._errors import MissingValueError, UnsupportedGuardError
from guards._fetch import MISSING, REFUSED, Absent, is_a, plain_type
from guards._source import ChainedSource, GuardSource, Source, guard_source_of

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

Scope = Mapping[str, Any]
_EMPTY: Scope = {}


@dataclass(frozen=True, eq=False)
class ValueSource(Source):
    """A source that can be evaluated. Equal ones have equal fields, link by link."""

    remedy: ClassVar[str] = ""

    def name(self) -> str:
        """Give the expression that stands for the value."""
        known = self.__dict__.get("_name")
        if known is not None:
            return cast(str, known)
        links = _links_without(self, "_name")
        text = links[-1].base.name() if isinstance(links[-1], ChainedValueSource) else ""
        for link in reversed(links):
            text = link._spell(text)
            link.__dict__["_name"] = text
        return text

    def _spell(self, base: str) -> str:
        raise NotImplementedError(f"{type(self).__name__} must say how it is written")

    def start(self, L: Scope, G: Scope) -> Any:
        """Give the value of a root from the two scopes, or an absence."""
        raise NotImplementedError(f"{type(self).__name__} must say how its value is found")

    def lookup(
        self, L: Scope, G: Scope | None = None, known: dict[Source, Any] | None = None
    ) -> Any:
        """Evaluate the source; an absence (MISSING, REFUSED) where the value is not to be had.

        ``known`` holds what was evaluated before over the same scopes, and takes what is new.
        """
        known = {} if known is None else known
        links: list[ChainedValueSource] = []
        link: Source = self
        while link not in known and isinstance(link, ChainedValueSource):
            links.append(link)
            link = link.base
        if link not in known:
            if not isinstance(link, ValueSource):
                raise UnsupportedGuardError(
                    f"{type(link).__name__}, at the root of {self.name()}, cannot be evaluated: "
                    "derive it from guards.ValueSource and give it start()"
                )
            known[link] = link.start(L, _EMPTY if G is None else G)
        value = known[link]
        for chained in reversed(links):
            value = known[chained] = value if type(value) is Absent else chained.read(value)
        return value

    def first_absent(self, L: Scope, G: Scope | None = None) -> ValueSource:
        """Give the first link that is not there, of a source whose value is absent."""
        known: dict[Source, Any] = {}
        link: ValueSource = self
        while isinstance(link, ChainedValueSource) and isinstance(link.base, ValueSource):
            if type(link.base.lookup(L, G, known)) is not Absent:
                break
            link = link.base
        return link

    def get(self, L: Scope, G: Scope | None = None) -> Any:
        """Evaluate the source over locals and globals.

        Raises:
            MissingValueError: some link is not there, or only code of a class could tell.
        """
        value = self.lookup(L, G)
        if type(value) is Absent:
            raise MissingValueError(self._why_absent(L, G, value), self.name())
        return value

    def _why_absent(self, L: Scope, G: Scope | None, value: Absent) -> str:
        link = self.first_absent(L, G)
        text = f"{link.name()} is {value!r}"
        return f"{text}: {link.remedy}" if value is REFUSED and link.remedy else text

    def table(self, example: Any) -> tuple[str, Any] | None:
        """Say in which table, and under which key, the value lies; None where in no table.

        ``example`` is what the base held when the guards were made. The tables: ``"L"``,
        ``"G"``; ``"items"`` of a dict, list or tuple; ``"_parameters"``, ``"_buffers"``,
        ``"_modules"`` and ``"children"``, by position, of a module. Values of one table are
        fetched together.
        """
        return None

    def emit(self, base: str, emitter: Emitter, example: Any) -> str:
        """Give Python that fetches the value from the variable ``base``.

        ``example`` is what ``base`` held when the guards were made. The code may raise an
        Exception where the value is absent; it must never evaluate to an absence.
        """
        return emitter.fetch(self, base)

    def __hash__(self) -> int:
        known = self.__dict__.get("_hash")
        if known is not None:
            return cast(int, known)
        links = _links_without(self, "_hash")
        value = hash(links[-1].base) if isinstance(links[-1], ChainedValueSource) else 0
        for link in reversed(links):
            value = hash((type(link), link._own(), value))
            link.__dict__["_hash"] = value
        return value

    def __eq__(self, other: object) -> bool:
        mine: Source = self
        if type(other) is not type(self) or hash(self) != hash(other):
            return False
        while mine is not other:
            if not isinstance(mine, ValueSource):
                return mine == other
            if type(mine) is not type(other) or mine._own() != other._own():
                return False
            if not isinstance(mine, ChainedValueSource):
                return True
            mine, other = mine.base, cast(ChainedValueSource, other).base
        return True

    def _own(self) -> tuple[object, ...]:
        own = _own_fields(cast(Any, type(self)))
        return tuple([constant_key(getattr(self, name)) for name in own])

    def __str__(self) -> str:
        return self.name()

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(frozen=True, eq=False)
class ChainedValueSource(ValueSource, ChainedSource):
    """A link: a source that is reached through ``base``."""

    def read(self, base: Any) -> Any:
        """Give the value from the base's value, or an absence; must not raise."""
        raise NotImplementedError(f"{type(self).__name__} must say how its value is found")

    def guard_source(self) -> GuardSource:
        return cast(GuardSource, guard_source_of(self.get_base()))

    def get_base(self) -> Source:
        root = self.__dict__.get("_root")
        if root is None:
            base = self.base
            root = base.__dict__.get("_root") if isinstance(base, ChainedValueSource) else base
            root = super().get_base() if root is None else root
            self.__dict__["_root"] = root
        return cast(Source, root)

    def is_dict_key(self) -> bool:
        return self.get_base().is_dict_key()

    def is_ephemeral(self) -> bool:
        return self.get_base().is_ephemeral()


@functools.lru_cache(maxsize=256)
def _own_fields(cls: type[Any]) -> tuple[str, ...]:
    return tuple(f.name for f in fields(cls) if f.name != "base")


def _links_without(source: ValueSource, cached: str) -> list[Any]:
    links: list[Any] = [source]
    while isinstance(source, ChainedValueSource):
        base = source.base
        if not isinstance(base, ValueSource) or cached in base.__dict__:
            break
        links.append(base)
        source = base
    return links


def _member(base: str, name: str) -> str:
    return f"{base}.{name}" if name.isidentifier() else f"getattr({base}, {name!r})"


# ── roots ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class LocalSource(ValueSource):
    """A local variable or an input: ``L['x']``."""

    local_name: str

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
        return spell(self.value)

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

    def _spell(self, base: str) -> str:
        return _member(base, self.member)

    def read(self, base: Any) -> Any:
        return _fetch.attribute(base, self.member, self.allow_call)

    def table(self, example: Any) -> tuple[str, Any] | None:
        return _module_entry(example, ("_parameters", "_buffers", "_modules"), self.member)

    def emit(self, base: str, emitter: Emitter, example: Any) -> str:
        cls = type(example)
        plain = type(cls) is type and not is_a(example, (type, torch.Tensor))
        if plain and self.member.isidentifier():
            found = _fetch.class_attribute(cls, self.member)
            own = _fetch.instance_dict(example)
            in_dict = own is not None and self.member in own and found is MISSING
            if _fetch.reads_plainly(cls) and in_dict:
                return emitter.if_type(base, cls, f"{base}.{self.member}", self, self.member)
        return emitter.fetch(self, base)


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
        if not is_constant(self.index):
            raise UnsupportedGuardError(
                f"{self.base.name() if isinstance(self.base, ValueSource) else self.base!r}"
                f"[…]: the key, {spell(self.index)}, is no constant; "
                "reach it by its position with ConstDictKeySource"
            )

    def _spell(self, base: str) -> str:
        return f"{base}[{_spell_index(self.index)}]"

    def read(self, base: Any) -> Any:
        return _fetch.item(base, self.index, self.allow_call)

    def table(self, example: Any) -> tuple[str, Any] | None:
        cls = plain_type(example)
        if cls in (list, tuple):
            return ("items", self.index) if type(self.index) is int else None
        if cls is dict:
            return ("items", self.index) if type(self.index) in (int, str) else None
        children = _fetch.module_children(example)
        plain = children is not None and type(self.index) is int
        return ("children", self.index) if plain else None


def _spell_index(index: Any) -> str:
    if type(index) is slice:
        start, stop, step = ("" if p is None else spell(p) for p in _slice_parts(index))
        return f"{start}:{stop}" + (f":{step}" if step else "")
    return spell(index, 1000)


def _slice_parts(index: slice) -> tuple[Any, Any, Any]:
    return index.start, index.stop, index.step


@dataclass(frozen=True, eq=False)
class ConstDictKeySource(ChainedValueSource):
    """The key at a position of a dict, in the order of insertion; for keys that are objects."""

    index: int

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
    import types

    if is_a(value, types.MethodType):
        value = value.__func__
    return value if is_a(value, types.FunctionType) else None


@dataclass(frozen=True, eq=False)
class ParamBufferSource(ChainedValueSource):
    """A parameter or a buffer of a module; ``name`` may go through submodules: ``layer.weight``."""

    param_name: str

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
            with torch._C.DisableTorchFunctionSubclass():
                if self.prop == "storage_offset":
                    return torch.Tensor.storage_offset(base)
                return getattr(torch.Tensor, self.prop)(base, self.idx)
        except Exception:
            return MISSING

    def emit(self, base: str, emitter: Emitter, example: Any) -> str:
        if type(example) is torch.Tensor or type(example) is torch.nn.Parameter:
            idx = "" if self.idx is None else self.idx
            return emitter.if_type(base, type(example), f"{base}.{self.prop}({idx})", self)
        return emitter.fetch(self, base)
