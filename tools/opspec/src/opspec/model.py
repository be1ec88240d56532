"""What specs become when they have been read: frozen dataclasses, filled once.

Locations take no part in equality, so a schema from a file equals the same schema from torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from opspec.enums import EnumDefault
from opspec.printer import default_text, schema_text, torch_schema_text
from opspec.types import (
    Alias,
    DictOf,
    Generic_,
    ListOf,
    Named,
    Optional_,
    TupleOf,
    Type,
    aliases_of,
    base_name,
    is_symbolic,
    strip_optional,
    without_aliases,
)

__all__ = [
    "NOWHERE",
    "Alias",
    "Composite",
    "Default",
    "DictOf",
    "EnumDefault",
    "Generic_",
    "ListOf",
    "Location",
    "Named",
    "Operator",
    "Optional_",
    "OutputShape",
    "Parameter",
    "ReadsData",
    "Return",
    "Schema",
    "SpecTree",
    "TupleOf",
    "Type",
    "aliases_of",
    "base_name",
    "is_symbolic",
    "strip_optional",
    "without_aliases",
]


class Location(NamedTuple):
    """A place in a file; line and column count from 1, columns in characters."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


NOWHERE = Location("<schema>", 1, 1)

# A default as a Python value. A list is a tuple, and a sized list with one value for all of its
# elements (`int[2] padding=0`) is expanded to (0, 0), as torch does it.
Default: TypeAlias = "bool | int | float | complex | str | EnumDefault | tuple[Default, ...] | None"

Composite = Literal["implicit", "explicit", "no"]
ReadsData = Literal["no", "always", "by_argument"]
OutputShape = Literal["static", "dynamic"]


@dataclass(frozen=True, slots=True, eq=False)
class Parameter:
    """One argument of a schema.

    Two parameters are equal when torch cannot tell them apart: `Scalar alpha=1` differs from
    `Scalar alpha=1.0`, although the Python values are equal.
    """

    name: str
    type: Type
    default: Default = None
    has_default: bool = False
    kwarg_only: bool = False
    location: Location = NOWHERE

    def __str__(self) -> str:
        if not self.has_default:
            return f"{self.type} {self.name}"
        return f"{self.type} {self.name}={default_text(self.type, self.default)}"

    def _key(self) -> tuple[object, ...]:
        default = default_text(self.type, self.default) if self.has_default else None
        return self.name, self.type, default, self.kwarg_only

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Parameter):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


@dataclass(frozen=True, slots=True)
class Return:
    """One result of a schema; most have no name."""

    name: str | None
    type: Type

    def __str__(self) -> str:
        return f"{self.type}" if self.name is None else f"{self.type} {self.name}"


@dataclass(frozen=True, slots=True)
class Schema:
    """The typed signature of one overload.

    `namespace` is empty where none was written and the reader was not told one; `overload` is
    empty for the default overload. `vararg` and `varret` say that `...` ends the list.
    """

    namespace: str
    name: str
    overload: str
    parameters: tuple[Parameter, ...]
    returns: tuple[Return, ...]
    vararg: bool = False
    varret: bool = False
    location: Location = field(default=NOWHERE, compare=False)

    @property
    def base(self) -> str:
        """The name without its overload: `aten::addmv`."""
        return f"{self.namespace}::{self.name}" if self.namespace else self.name

    @property
    def qualified_name(self) -> str:
        """The name with its overload: `aten::addmv.out`; the default overload is `aten::addmv`."""
        return f"{self.base}.{self.overload}" if self.overload else self.base

    def __str__(self) -> str:
        """Give the house form: floats at their shortest, enums by name, `padding=0`."""
        return schema_text(self)

    def torch_text(self) -> str:
        """Give exactly what torch prints for this schema.

        Only an alias set with several names may differ: torch's order depends on its hashes.
        """
        return torch_schema_text(self)

    def func_text(self) -> str:
        """Give the house form without the namespace, as `func:` in a spec file has it."""
        text = schema_text(self)
        return text[len(self.namespace) + 2 :] if self.namespace else text


@dataclass(frozen=True, slots=True)
class Operator:
    """One overload with everything that the specs know about it.

    `family` is the stem of the file that it stands in. `imported` says that its namespace came
    from torch's registry, `scripted` that only TorchScript has the operator: torch's dispatcher
    does not know it. The overlay's part is already in it, and so are tags that go without saying.
    """

    schema: Schema
    family: str
    tags: frozenset[str] = frozenset()
    composite: Composite = "no"
    random: bool = False
    reads_data: ReadsData = "no"
    output_shape: OutputShape = "static"
    also_writes: tuple[str, ...] = ()
    doc: str | None = None
    imported: bool = False
    scripted: bool = False
    location: Location = field(default=NOWHERE, compare=False)

    @property
    def qualified_name(self) -> str:
        """The schema's qualified name: `aten::addmv.out`."""
        return self.schema.qualified_name

    @property
    def written(self) -> tuple[str, ...]:
        """The arguments that are written to, whether or not the schema says so."""
        return tuple(
            parameter.name
            for parameter in self.schema.parameters
            if parameter.name in self.also_writes
            or any(alias.write for alias in aliases_of(parameter.type))
        )


@dataclass(frozen=True, slots=True)
class SpecTree:
    """All operators of a run, sorted by namespace, family and qualified name."""

    operators: tuple[Operator, ...]
    namespaces: tuple[str, ...]
    torch_version: str | None = None
