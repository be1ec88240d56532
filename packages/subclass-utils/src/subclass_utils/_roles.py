"""What an overload's arguments and results mean for wrapping: tensors, writes, aliases."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

__all__ = ["Roles", "TensorArgument", "TensorResult", "roles_of"]


@dataclass(frozen=True)
class TensorArgument:
    """An argument that holds tensors. `position` is None for a keyword-only one."""

    name: str
    position: int | None
    is_list: bool
    written: bool


@dataclass(frozen=True)
class TensorResult:
    """A result: a fresh tensor, the argument itself, a view of it, or no tensor at all."""

    kind: Literal["new", "same", "view", "none"]
    is_list: bool = False
    source: str | None = None


@dataclass(frozen=True)
class Roles:
    """The roles of all of an overload's arguments and results."""

    arguments: tuple[TensorArgument, ...]
    results: tuple[TensorResult, ...]

    @property
    def writes(self) -> bool:
        """Say whether an argument is written."""
        return any(argument.written for argument in self.arguments)


def _result(
    type_: str, aliases: set[str], annotated: bool, write: bool, sources: dict[str, str]
) -> TensorResult:
    if "Tensor" not in type_:
        return TensorResult("none")
    is_list = type_.startswith("List[")
    source = next((sources[alias] for alias in sorted(aliases) if alias in sources), None)
    if source is None and annotated:
        # torch keeps the annotation of a list's elements to itself.
        source = next(iter(sources.values()), None)
    if source is None:
        return TensorResult("new", is_list)
    return TensorResult("same" if write else "view", is_list, source)


@cache
def roles_of(op: Any) -> Roles:
    """Find the roles of an overload, from its schema."""
    schema = op._schema
    arguments = []
    sources: dict[str, str] = {}
    for position, argument in enumerate(schema.arguments):
        type_ = str(argument.type)
        if "Tensor" not in type_:
            continue
        alias = argument.alias_info
        written = alias is not None and alias.is_write
        if alias is not None:
            for name in (alias.before_set | alias.after_set) - {"*"}:
                sources.setdefault(name, argument.name)
        arguments.append(
            TensorArgument(
                argument.name, None if argument.kwarg_only else position, "List[" in type_, written
            )
        )
    results = []
    for returned in schema.returns:
        alias = returned.alias_info
        aliases = set() if alias is None else set(alias.before_set) | set(alias.after_set)
        write = alias is not None and alias.is_write
        results.append(_result(str(returned.type), aliases, alias is not None, write, sources))
    return Roles(tuple(arguments), tuple(results))
