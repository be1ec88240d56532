"""Render which arguments of an overload hold tensors, and what each result is made of.

An argument is written as its name with `?` for an optional, `[]` for a list (`indices?[]` is a
list of optional tensors) and `!` for one that is written. A result is `new`, a fresh tensor;
`=arg`, that argument itself; `~arg`, a tensor that may share its memory; each with `[]` behind it
for a list; or `-`, no tensor.
"""

from __future__ import annotations

from collections.abc import Sequence

from opspec.model import (
    Alias,
    DictOf,
    Generic_,
    ListOf,
    Named,
    Operator,
    Optional_,
    Schema,
    TupleOf,
    Type,
    aliases_of,
)
from opspec.render.layout import bracketed, comment_header, string

__all__ = ["render_roles", "roles_of"]


def _shape(type_: Type) -> str | None:
    """Give the marks behind the name of what holds tensors: '', '?', '[]', …; None for others."""
    if isinstance(type_, Named):
        return "" if type_.name == "Tensor" else None
    if isinstance(type_, Optional_):
        inner = _shape(type_.element)
        return None if inner is None else f"{inner}?"
    if isinstance(type_, ListOf):
        inner = _shape(type_.element)
        return None if inner is None else f"{inner}[]"
    parts: tuple[Type, ...] = ()
    if isinstance(type_, TupleOf):
        parts = type_.elements
    elif isinstance(type_, DictOf):
        parts = (type_.key, type_.value)
    elif isinstance(type_, Generic_):
        parts = type_.args
    return "{}" if any(_shape(part) is not None for part in parts) else None


def _names(aliases: Sequence[Alias]) -> set[str]:
    return {name for alias in aliases for name in alias.before if name != "*"}


def roles_of(schema: Schema) -> tuple[str, str] | None:
    """Give the arguments that hold tensors and the results, or None where there are no tensors."""
    arguments = []
    owners: list[tuple[str, set[str]]] = []
    wildcards = []
    for parameter in schema.parameters:
        shape = _shape(parameter.type)
        if shape is None:
            continue
        aliases = list(aliases_of(parameter.type))
        written = any(alias.write for alias in aliases)
        arguments.append(f"{parameter.name}{shape}{'!' if written else ''}")
        owners.append((parameter.name, _names(aliases)))
        if any("*" in (*alias.before, *(alias.after or ())) for alias in aliases):
            wildcards.append(parameter.name)
    results = []
    for result in schema.returns:
        shape = _shape(result.type)
        if shape is None:
            results.append("-")
            continue
        aliases = list(aliases_of(result.type))
        names = _names(aliases)
        owner = next((name for name, theirs in owners if names & theirs), None)
        if owner is None and any("*" in alias.before for alias in aliases) and wildcards:
            owner = wildcards[0]
        if owner is None:
            results.append(f"new{shape}")
        else:
            itself = any(alias.write for alias in aliases)
            results.append(f"{'=' if itself else '~'}{owner}{shape}")
    if not arguments and all(result == "-" for result in results):
        return None
    return " ".join(arguments), " ".join(results)


def render_roles(operators: Sequence[Operator], sources: str) -> str:
    """Render the table of one family. `operators` are sorted, `sources` names the spec files."""
    entries = []
    for operator in operators:
        roles = roles_of(operator.schema)
        if roles is None:
            continue
        key = string(operator.qualified_name)
        row = bracketed(f"{key}: (", [string(text) for text in roles], "),", indent="    ")
        entries.append(f"{row}\n")
    body = f"{{\n{''.join(entries)}}}" if entries else "{}"
    return (
        f"{comment_header(sources)}"
        '__all__ = ["ROLES"]\n\n'
        f"ROLES: dict[str, tuple[str, str]] = {body}\n"
    )
