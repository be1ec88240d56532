"""Render the dispatch stubs: one Python function for each overload of a family."""

from __future__ import annotations

from collections.abc import Sequence

from opspec.model import Default, EnumDefault, Operator, Schema, Type, base_name
from opspec.render.layout import LINE_LENGTH, bracketed, comment_header, literal, string
from opspec.render.naming import function_names, parameter_names

__all__ = ["default_text", "render_stubs"]

_TAKEN = ("stub", "torch", "tuple")


def _is_torch_value(type_: Type, value: Default) -> bool:
    if isinstance(value, tuple):
        return any(_is_torch_value(type_, item) for item in value)
    if isinstance(value, str):
        return base_name(type_) == "Device"
    return isinstance(value, EnumDefault)


def default_text(type_: Type, value: Default) -> str:
    """Write a default as a Python expression; enums and devices are torch's own values."""
    if isinstance(value, EnumDefault):
        return f"torch.{value.attribute}"
    if isinstance(value, tuple):
        items = ", ".join(default_text(type_, item) for item in value)
        return f"({items},)" if len(value) == 1 else f"({items})"
    if isinstance(value, str) and base_name(type_) == "Device":
        return f"torch.device({string(value)})"
    return literal(value)


def _signature(schema: Schema, names: Sequence[str]) -> list[str]:
    items = []
    star = False
    for parameter, name in zip(schema.parameters, names, strict=True):
        if parameter.kwarg_only and not star:
            items.append("*")
            star = True
        if parameter.has_default:
            name += f"={default_text(parameter.type, parameter.default)}"
        items.append(name)
    return items


def _render_stub(operator: Operator, function: str) -> str:
    schema = operator.schema
    parameters = schema.parameters
    names = parameter_names(schema)
    arguments = [string(schema.torch_text())]
    if operator.tags:
        arguments.append(f"tags={string(' '.join(sorted(operator.tags)))}")
    if operator.composite != "no":
        arguments.append(f"composite={string(operator.composite)}")
    if operator.random:
        arguments.append("random=True")
    if operator.reads_data != "no":
        arguments.append(f"reads_data={string(operator.reads_data)}")
    if operator.output_shape != "static":
        arguments.append(f"output_shape={string(operator.output_shape)}")
    if operator.also_writes:
        arguments.append(f"also_writes={string(' '.join(operator.also_writes))}")

    # An argument may itself be called tuple.
    tuple_class = "().__class__" if "tuple" in names else "tuple"
    fresh = ""
    entries = []
    for parameter, name in zip(parameters, names, strict=True):
        entry = f"{string(parameter.name)}: {name}"
        if isinstance(parameter.default, tuple):
            inline = f"{string(parameter.name)}: [*{name}] if {name}.__class__ is {tuple_class}"
            inline += f" else {name}"
            if len(inline) + len("        ,") <= LINE_LENGTH:
                entry = inline
            else:
                copy = bracketed(f"{name} = [", [f"*{name}"], "]", indent="        ")
                fresh += f"    if {name}.__class__ is {tuple_class}:\n{copy}\n"
        entries.append(entry)
    decorator = bracketed("@stub(", arguments, ")")
    head = bracketed(f"def {function}(", _signature(schema, names), "):")
    body = bracketed("return {", entries, "}", indent="    ")
    return f"\n\n{decorator}\n{head}\n{fresh}{body}\n"


def render_stubs(operators: Sequence[Operator], sources: str) -> str:
    """Render the module of one family. `operators` are sorted, `sources` names the spec files."""
    names = function_names(operators, _TAKEN)
    stubs = "".join(map(_render_stub, operators, names))
    needs_torch = any(
        _is_torch_value(parameter.type, parameter.default)
        for operator in operators
        for parameter in operator.schema.parameters
    )
    exported = bracketed("__all__ = [", [string(name) for name in sorted(names)], "]")
    imports = "import torch\n\n" if needs_torch else ""
    return (
        f"{comment_header(sources)}"
        f"{imports}from dispatch_core._stub import stub\n\n{exported}\n{stubs}"
    )
