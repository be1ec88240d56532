"""Render what guards want to know of an overload: only what is not the default."""

from __future__ import annotations

from collections.abc import Sequence

from opspec.model import Operator, Schema, aliases_of
from opspec.render.layout import bracketed, comment_header, literal, string

__all__ = ["facts_of", "gives_view", "render_facts"]


def facts_of(operator: Operator) -> dict[str, object]:
    """Give the facts of one overload that differ from the defaults, in the order of OpFacts."""
    schema = operator.schema
    mutates = operator.written
    facts: dict[str, object] = {}
    if gives_view(schema):
        facts["view"] = True
    # torch's own rule: what is written into is passed by keyword.
    out = any(p.kwarg_only and p.name in mutates for p in schema.parameters)
    if mutates and not out and _named_inplace(schema.name):
        facts["inplace"] = True
    if out:
        facts["out"] = True
    if mutates:
        facts["mutates"] = mutates
    if operator.composite != "no":
        facts["composite"] = operator.composite
    if operator.random:
        facts["random"] = True
    if operator.reads_data != "no":
        facts["reads_data"] = operator.reads_data
    if operator.output_shape != "static":
        facts["output_shape"] = operator.output_shape
    return facts


def gives_view(schema: Schema) -> bool:
    """Say whether a result may share memory with an argument that is not written."""
    aliases = [alias for parameter in schema.parameters for alias in aliases_of(parameter.type)]
    written = {name for alias in aliases if alias.write for name in alias.before}
    results = [alias for result in schema.returns for alias in aliases_of(result.type)]
    return any(not alias.write and set(alias.before) - written for alias in results)


def _named_inplace(name: str) -> bool:
    if name.startswith("__") and name.endswith("__"):
        return name[2:3] == "i"
    return name.endswith("_")


def render_facts(operators: Sequence[Operator], sources: str) -> str:
    """Render the table of one family. `operators` are sorted, `sources` names the spec files."""
    rows = []
    for operator in operators:
        entries = [f"{string(key)}: {literal(value)}" for key, value in facts_of(operator).items()]
        key = string(operator.qualified_name)
        rows.append(bracketed(f"{key}: {{", entries, "},", indent="    ") + "\n")
    body = f"{{\n{''.join(rows)}}}" if rows else "{}"
    return (
        f"{comment_header(sources)}"
        '__all__ = ["FACTS"]\n\n'
        f"FACTS: dict[str, dict[str, object]] = {body}\n"
    )
