"""Print schemas: the house form for spec files, and torch's own text to the letter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opspec.enums import EnumDefault
from opspec.types import ListOf, Named, Type, base_name, strip_optional

if TYPE_CHECKING:
    from collections.abc import Callable

    from opspec.model import Default, Schema

__all__ = ["default_text", "schema_text", "torch_default_text", "torch_schema_text"]

_ESCAPES = {
    "\\": "\\\\",
    '"': '\\"',
    "\n": "\\n",
    "\t": "\\t",
    "\r": "\\r",
    "\f": "\\f",
    "\v": "\\v",
    "\a": "\\a",
    "\b": "\\b",
}


def _quoted(text: str, more: dict[str, str]) -> str:
    escaped = (
        more.get(char)
        or _ESCAPES.get(char)
        or (char if char.isprintable() else _numeric_escape(char))
        for char in text
    )
    return f'"{"".join(escaped)}"'


def _numeric_escape(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def default_text(type_: Type, value: Default) -> str:
    """Print a default in the house form: `1e-05`, `long`, `0` for `int[2]` and (0, 0)."""
    type_ = strip_optional(type_)
    if isinstance(value, tuple):
        element = type_.element if isinstance(type_, ListOf) else type_
        items = [default_text(element, item) for item in value]
        sized = isinstance(type_, ListOf) and type_.size == len(items)
        if sized and len(set(items)) == 1 and not isinstance(value[0], tuple):
            return items[0]
        return f"[{', '.join(items)}]"
    if isinstance(value, str):
        return _quoted(value, {})
    if isinstance(value, complex):
        imaginary = f"{value.imag!r}j"
        if not value.real:
            return imaginary
        return f"{value.real!r}{'' if imaginary[0] == '-' else '+'}{imaginary}"
    return str(value)


def _torch_float(value: float) -> str:
    # ostream with 17 digits, and a bare point behind what fits into an int64.
    if abs(value) < 2.0**63 and value == int(value):
        return f"{int(value)}."
    return f"{value:.17g}"


def torch_default_text(type_: Type, value: Default) -> str:
    """Print a default as torch does: `1.0000000000000001e-05`, `4`, `[0, 0]` for SymInt."""
    if isinstance(value, EnumDefault):
        return str(value.number)
    if isinstance(value, str):
        if strip_optional(type_) == Named("Device"):
            return value
        return _quoted(value, {"'": "\\'"})
    if isinstance(value, float):
        return _torch_float(value)
    if isinstance(value, complex):
        return f"{_torch_float(value.real)}+{_torch_float(value.imag)}j".replace("+-", "-")
    if isinstance(value, tuple):
        element = type_.element if isinstance(type_, ListOf) else type_
        items = [torch_default_text(element, item) for item in value]
        # torch's shorthand, with or without a size, and whatever the size says.
        if element == Named("int") and len(items) > 1 and len(set(items)) == 1:
            return items[0]
        return f"[{', '.join(items)}]"
    return str(value)


def _torch_type(type_: Type) -> str:
    # These two are plain ints once torch has read them.
    text = str(type_)
    if base_name(type_) in ("DeviceIndex", "ConstQuantizerPtr"):
        return text.replace(base_name(type_), "int")
    return text


def _render(
    schema: Schema, type_text: Callable[[Type], str], default: Callable[[Type, Default], str]
) -> str:
    parts = []
    star = False
    for parameter in schema.parameters:
        if parameter.kwarg_only and not star:
            parts.append("*")
            star = True
        text = f"{type_text(parameter.type)} {parameter.name}"
        if parameter.has_default:
            text += f"={default(parameter.type, parameter.default)}"
        parts.append(text)
    if schema.vararg:
        parts.append("...")
    results = [str(result) for result in schema.returns]
    if schema.varret:
        results.append("...")
    # A single result stands bare, unless it is a tuple, whose own parentheses would be read
    # as those of the list of results.
    if len(results) == 1 and not results[0].startswith("("):
        returns = results[0]
    else:
        returns = f"({', '.join(results)})"
    return f"{schema.qualified_name}({', '.join(parts)}) -> {returns}"


def schema_text(schema: Schema) -> str:
    """Print a schema in the house form."""
    return _render(schema, str, default_text)


def torch_schema_text(schema: Schema) -> str:
    """Print a schema exactly as torch prints it."""
    return _render(schema, _torch_type, torch_default_text)
