"""Read a schema's text as torch prints it: arguments, defaults, alias annotations, returns.

The text is all that is needed, so an operator whose types torch cannot parse in this process
(a custom class of a library that is not loaded) is read like any other.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

__all__ = [
    "DTYPES",
    "LAYOUTS",
    "MEMORY_FORMATS",
    "Argument",
    "Schema",
    "Unpassed",
    "gives_view",
    "is_shortened",
    "read_schema",
    "split_name",
    "split_types",
]

# `Tensor(a!)`, `Tensor(a -> *)`, `Tensor(a|b)`; but not the element types of `Dict(str, int)`.
_ALIAS = re.compile(
    r"(?<!Dict)(?<!Tuple)(?<!Future)(?<!RRef)(?<!Await)(?<!Union)"
    r"\(((?:\*|[a-z]\w*)(?:\|\w+)*!?(?: ?-> ?[^)]*)?)\)"
)


def _members(names: str) -> tuple[object, ...]:
    """Give torch's members of a C++ enum in the order of their numbers, None for a missing one."""
    return tuple(getattr(torch, name, None) for name in names.split())


# A default of an enum's type prints as the member's number in C++.
DTYPES = _members(
    "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool "
    "qint8 quint8 qint32 bfloat16 quint4x2 quint2x4 bits1x8 bits2x4 bits4x2 bits8 bits16 "
    "float8_e5m2 float8_e4m3fn float8_e5m2fnuz float8_e4m3fnuz uint16 uint32 uint64 "
    "uint1 uint2 uint3 uint4 uint5 uint6 uint7 int1 int2 int3 int4 int5 int6 int7 "
    "float8_e8m0fnu float4_e2m1fn_x2"
)
LAYOUTS = _members("strided sparse_coo sparse_csr _mkldnn sparse_csc sparse_bsr sparse_bsc jagged")
MEMORY_FORMATS = _members("contiguous_format preserve_format channels_last channels_last_3d")
_SIZED_LIST = re.compile(r"\[(\d+)\]$")
_ALIAS_SETS = re.compile(r"\w+(?:\|\w+)+")
_ENUM_LIST = re.compile(r"(ScalarType|MemoryFormat|Layout)\[\d*\]$")
_ENUMS: dict[str, tuple[object, ...]] = {
    "ScalarType": DTYPES,
    "MemoryFormat": MEMORY_FORMATS,
    "Layout": LAYOUTS,
}


class Unpassed(list[Any]):
    """A list that stands for a default which, for torch, equals no list that a caller passes.

    Its class tells it from those. The default of `int[2]? x=1` is the number 1 to torch, and that
    of `ScalarType[] x=[]` a list of numbers, while a caller's is one of enums.
    """


@dataclass(frozen=True)
class Argument:
    """One argument of a schema. `type` has no alias annotation; a list default is a list.

    `written_default` is another object than `default` only where torch holds something that
    equals nothing a caller passes. Where the schema gives an int for a float
    (`float? correction=1`), torch holds the int, and `default` is a float of its own, to be told
    from others by identity; so with a device for `Device?`, of which torch holds the text. Where
    it is about a list, `default` is an Unpassed.
    """

    name: str
    type: str
    alias: str | None
    has_default: bool
    default: object
    written_default: object
    kwarg_only: bool


@dataclass(frozen=True)
class Schema:
    """What the text of one schema says. `overload` is '' for the default overload."""

    text: str = field(compare=False)  # the same schema can be written in two ways
    namespace: str
    base: str
    overload: str
    arguments: tuple[Argument, ...]
    returns: tuple[str, ...]
    variadic: bool

    @property
    def qualified_name(self) -> str:
        """Give 'aten::addmv.out'."""
        dot = "." if self.overload else ""
        return f"{self.namespace}::{self.base}{dot}{self.overload}"


def _ordered(text: str) -> str:
    """Put alias sets in order: torch prints `Tensor(a|b)` as (a|b) or (b|a), as it happens."""
    return _ALIAS_SETS.sub(lambda sets: "|".join(sorted(sets[0].split("|"))), text)


def _sets(alias: str) -> frozenset[str]:
    """Give the alias sets of an annotation: of 'a|b', 'a!' or 'a -> *'."""
    return frozenset(alias.partition("->")[0].rstrip("! ").split("|"))


def gives_view(schema: Schema) -> bool:
    """Say whether a result may share memory with an argument that is not written."""
    aliases = [argument.alias for argument in schema.arguments if argument.alias is not None]
    written = {name for alias in aliases if "!" in alias for name in _sets(alias)}
    results = [found.group(1) for found in map(_ALIAS.search, schema.returns) if found]
    return any("!" not in alias and _sets(alias) - written for alias in results)


def split_name(qualified_name: str) -> tuple[str, str, str]:
    """Split 'aten::addmv.out' into namespace, base and overload; the overload may be ''."""
    namespace, _, rest = qualified_name.partition("::")
    base, _, overload = rest.partition(".")
    return namespace, base, overload


def _outside_quotes(text: str, start: int = 0) -> Iterator[tuple[int, str]]:
    """Give position and character of all that stands outside of quotes."""
    quote = ""
    position = start
    while position < len(text):
        character = text[position]
        if quote:
            if character == "\\":
                position += 1
            elif character == quote:
                quote = ""
        elif character in "\"'":
            quote = character
        else:
            yield position, character
        position += 1


def split_types(text: str) -> Iterator[str]:
    """Split at the commas outside of brackets and quotes."""
    depth = start = 0
    for position, character in _outside_quotes(text):
        if character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
        elif character == "," and not depth:
            yield text[start:position].strip()
            start = position + 1
    last = text[start:].strip()
    if last:
        yield last


def _closing(text: str, start: int) -> int:
    """Find the bracket that closes the one at `start`."""
    depth = 0
    for position, character in _outside_quotes(text, start):
        if character == "(":
            depth += 1
        elif character == ")":
            depth -= 1
            if not depth:
                return position
    raise ValueError(f"unclosed parenthesis in schema: {text}")


def _default(text: str, type_: str) -> object:
    value = _literal(text, type_)
    sized = _SIZED_LIST.search(type_)
    if sized is not None and not isinstance(value, list):
        return [value] * int(sized.group(1))  # `int[2] padding=0`
    return value


def _literal(text: str, type_: str) -> object:
    enum = _ENUMS.get(type_.rstrip("?"))
    if enum is not None and text != "None":
        if text.isdigit():
            return enum[int(text)] if int(text) < len(enum) else int(text)
        return getattr(torch, text.strip("\"'"), text)
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        pass
    try:
        return float(text)  # inf and nan, which Python does not read as literals
    except ValueError:
        return text


def _argument(text: str, kwarg_only: bool) -> Argument:
    # A default is the part after the first '=' outside of brackets; types have none.
    declaration, equals, default = text.partition("=")
    written_type, _, name = declaration.rpartition(" ")
    alias = _ALIAS.search(written_type)
    type_ = written_type
    if alias is not None:
        type_ = written_type[: alias.start()] + written_type[alias.end() :]
    written = value = _default(default, type_) if equals else None
    if type_ in ("float", "float?") and type(value) is int:
        value = float(value)
    elif type_ in ("Device", "Device?") and isinstance(value, str):
        value = _device(value)
        if type_ == "Device":
            written = value
    elif type_.endswith("]?") and value is not None and not isinstance(value, list):
        size = _SIZED_LIST.search(type_[:-1])
        value = Unpassed([value] * (int(size.group(1)) if size else 1))
    elif (found := _ENUM_LIST.match(type_)) and isinstance(value, list):
        written = [_literal(str(number), found.group(1)) for number in value]
        value = Unpassed(written)
    return Argument(
        name=name,
        type=type_,
        alias=_ordered(alias.group(1)) if alias else None,
        has_default=bool(equals),
        default=value,
        written_default=written,
        kwarg_only=kwarg_only,
    )


def _device(text: str) -> object:
    try:
        return torch.device(text)
    except RuntimeError:  # of a backend that is not loaded
        return text


def is_shortened(argument: Argument) -> bool:
    """Say whether the text has `int[] x=1`: so torch prints [1, 1] and [1, 1, 1] alike."""
    plain_list = argument.type.endswith("]") and argument.has_default
    return plain_list and not isinstance(argument.default, list)


def read_schema(text: str) -> Schema:
    """Read a schema as torch prints it.

    Raises: ValueError for text that torch would not print.
    """
    opening = text.index("(")
    namespace, base, overload = split_name(text[:opening])
    closing = _closing(text, opening)
    arguments: list[Argument] = []
    kwarg_only = variadic = False
    for part in split_types(text[opening + 1 : closing]):
        if part == "*":
            kwarg_only = True
        elif part == "...":
            variadic = True
        else:
            arguments.append(_argument(part, kwarg_only))
    returns = text[closing + 1 :].strip().removeprefix("->").strip()
    if returns.startswith("(") and _closing(returns, 0) == len(returns) - 1:
        returns = returns[1:-1]
    return Schema(
        text=text,
        namespace=namespace,
        base=base,
        overload=overload,
        arguments=tuple(arguments),
        returns=tuple(map(_ordered, split_types(returns))),
        variadic=variadic,
    )
