"""The types of a schema: `Tensor(a!)`, `SymInt[2]`, `Scalar?`, `Dict(str, t)`, …

Every type prints (`str`) as torch prints it, and `parse_type` reads that text back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

__all__ = [
    "Alias",
    "DictOf",
    "Generic_",
    "ListOf",
    "Named",
    "Optional_",
    "TupleOf",
    "Type",
    "aliases_of",
    "base_name",
    "is_symbolic",
    "strip_optional",
    "without_aliases",
]


@dataclass(frozen=True, slots=True, eq=False)
class Alias:
    """One alias annotation: `(a)`, `(a!)`, `(a|b)`, `(a -> *)`, `(*)`.

    `before` and `after` keep the order as written; two annotations are equal when the same sets
    of names stand in them, because torch prints the sets in an order that means nothing.
    `after` is None where no arrow was written.
    """

    before: tuple[str, ...]
    after: tuple[str, ...] | None = None
    write: bool = False

    def __str__(self) -> str:
        after = "" if self.after is None else " -> " + "|".join(self.after)
        return f"({'|'.join(self.before)}{'!' if self.write else ''}{after})"

    def _key(self) -> tuple[object, ...]:
        before = frozenset(self.before)
        return before, before if self.after is None else frozenset(self.after), self.write

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Alias):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


@dataclass(frozen=True, slots=True)
class Named:
    """A type with a name: `Tensor`, `int`, `t`, `__torch__.torch.classes.c10d.Work`."""

    name: str
    alias: Alias | None = None

    def __str__(self) -> str:
        return self.name if self.alias is None else f"{self.name}{self.alias}"


@dataclass(frozen=True, slots=True)
class Optional_:
    """`element?`."""

    element: Type
    alias: Alias | None = None

    def __str__(self) -> str:
        return f"{self.element}?{self.alias or ''}"


@dataclass(frozen=True, slots=True)
class ListOf:
    """`element[]`, or `element[size]` for a list that a single value may stand for."""

    element: Type
    size: int | None = None
    alias: Alias | None = None

    def __str__(self) -> str:
        return f"{self.element}[{'' if self.size is None else self.size}]{self.alias or ''}"


@dataclass(frozen=True, slots=True)
class TupleOf:
    """`(first, second)`."""

    elements: tuple[Type, ...]
    alias: Alias | None = None

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.elements))}){self.alias or ''}"


@dataclass(frozen=True, slots=True)
class DictOf:
    """`Dict(key, value)`."""

    key: Type
    value: Type
    alias: Alias | None = None

    def __str__(self) -> str:
        return f"Dict({self.key}, {self.value}){self.alias or ''}"


@dataclass(frozen=True, slots=True)
class Generic_:
    """Any other type with arguments: `Future(t)`, `RRef(t)`, `Await(t)`, `Union(int, str)`."""

    name: str
    args: tuple[Type, ...]
    alias: Alias | None = None

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.args))}){self.alias or ''}"


Type: TypeAlias = Named | Optional_ | ListOf | TupleOf | DictOf | Generic_


def parts_of(type_: Type) -> tuple[Type, ...]:
    """Give the types that `type_` is made of, one level down."""
    match type_:
        case Named():
            return ()
        case Optional_(element=element) | ListOf(element=element):
            return (element,)
        case TupleOf(elements=elements):
            return elements
        case DictOf(key=key, value=value):
            return (key, value)
        case Generic_(args=args):
            return args


def aliases_of(type_: Type) -> Iterator[Alias]:
    """Yield the annotations of `type_` and of what it holds, innermost first."""
    for part in parts_of(type_):
        yield from aliases_of(part)
    if type_.alias is not None:
        yield type_.alias


def strip_optional(type_: Type) -> Type:
    """Give `T` for `T?` and every other type as it is."""
    return type_.element if isinstance(type_, Optional_) else type_


def base_name(type_: Type) -> str:
    """Give the name at the bottom of optionals and lists: `Tensor` for `Tensor(a!)[]?`."""
    while isinstance(type_, Optional_ | ListOf):
        type_ = type_.element
    if isinstance(type_, TupleOf):
        return "Tuple"
    return "Dict" if isinstance(type_, DictOf) else type_.name


def is_symbolic(type_: Type) -> bool:
    """Say whether the values may be symbolic: `SymInt`, `SymBool`, `SymInt[2]?`, …"""
    return base_name(type_).startswith("Sym")


def without_aliases(type_: Type) -> Type:
    """Give `type_` with every alias annotation taken off: `Tensor[]` for `Tensor(a!)[]`."""
    match type_:
        case Named(name=name):
            return Named(name)
        case Optional_(element=element):
            return Optional_(without_aliases(element))
        case ListOf(element=element, size=size):
            return ListOf(without_aliases(element), size)
        case TupleOf(elements=elements):
            return TupleOf(tuple(map(without_aliases, elements)))
        case DictOf(key=key, value=value):
            return DictOf(without_aliases(key), without_aliases(value))
        case Generic_(name=name, args=args):
            return Generic_(name, tuple(map(without_aliases, args)))
