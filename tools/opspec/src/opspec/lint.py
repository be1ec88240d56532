"""Rules that a schema may break and still be read.

torch's own registry breaks most of them somewhere: a breach is a note in namespaces that were
imported, and an error in namespaces of one's own. What torch itself refuses is an error always.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from opspec.diagnostics import Diagnostic, near_matches
from opspec.grammar import Parser
from opspec.model import (
    Alias,
    Default,
    DictOf,
    EnumDefault,
    Generic_,
    ListOf,
    Named,
    Optional_,
    Parameter,
    Schema,
    TupleOf,
    Type,
    aliases_of,
    base_name,
    strip_optional,
)
from opspec.schema_text import SchemaText

__all__ = ["RESERVED_WORDS", "TORCH_TYPES", "lint_namespaces", "lint_schema"]

_TORCH_WORDS = (
    "Ellipsis False None NoneType True and as assert break class continue def del elif else for "
    "global if import in is not or pass raise return while with"
)
RESERVED_WORDS = frozenset(_TORCH_WORDS.split())
"""Words that torch's own schema parser takes for something else, so that no name can be one."""

_TYPE_NAMES = (
    "Tensor Scalar int SymInt float bool SymBool str complex number Device DeviceIndex Layout "
    "MemoryFormat ScalarType QScheme Generator Storage Stream Quantizer ConstQuantizerPtr Capsule "
    "Dimname Any"
)
TORCH_TYPES = frozenset(_TYPE_NAMES.split())
"""The types that an operator may have, beside custom classes."""

_TAKEN = RESERVED_WORDS | frozenset((*keyword.kwlist, "__debug__"))
_NOT_DEFINABLE = {
    "number": "only TorchScript has the type number",
    "Dimname": "torch reads no schema with the type Dimname",
}
_PACKET_NAMES = frozenset(("_base", "_namespace", "overloads", "qualified_name", "torch_packet"))

_TYPE_EXAMPLES = ", ".join(_TYPE_NAMES.split()[:8]) + ", …"
_TYPE_VARIABLE = re.compile(r"t(\d+|Val)?")
_SCRIPT_TYPES = frozenset(
    ("AnyClassType", "AnyEnumType", "NoneType", "PyObject", "list", "tuple", "dict")
)
_NO_NAMESPACES = {
    "prim": "torch keeps it for itself",
    "torchscript": "the folder of that name holds what only TorchScript has",
}

_Part: TypeAlias = str  # namespace, name, overload, type, argument, default or return


@dataclass(frozen=True, slots=True)
class _Breach:
    """A rule that is broken. `index` counts the arguments or the results."""

    part: _Part
    message: str
    remedy: str
    index: int = 0
    always: bool = False


def lint_schema(
    schema: Schema, text: SchemaText, *, imported: bool, partial: bool = False
) -> list[Diagnostic]:
    """Check the rules of a schema that was read from `text`.

    Of a schema that is only `partial`, because there are faults in its text, names and types are
    checked.
    """
    if not partial and _is_plain(schema) and ("::" not in text.text or imported):
        return []
    breaches = [
        *_check_names(schema, text.text, imported=imported),
        *_check_types(schema, imported=imported),
    ]
    if not partial:
        breaches += _check_rules(schema)
    return _place(breaches, text, imported=imported)


def _is_plain(schema: Schema) -> bool:
    """Say at a glance that nothing can be wrong: so it is with nearly all schemas.

    A False means nothing. A test holds this to the rules themselves.
    """
    name, overload = schema.name, schema.overload
    if name in _TAKEN or overload in _TAKEN or name[:2] == "__" or overload[:2] == "__":
        return False
    if overload in _PACKET_NAMES or name == "_name":
        return False
    names = set()
    optional = False  # an argument with a default came by
    written = written_by_name = False
    shared: set[str] = set()
    for parameter in schema.parameters:
        facts = _facts(parameter.type)
        names.add(parameter.name)
        if facts.unknown or facts.not_definable:
            return False
        if facts.aliases:
            written = written or facts.written
            written_by_name = written_by_name or (facts.written and parameter.kwarg_only)
            shared |= facts.names
        if parameter.name == "out" and not (facts.written and parameter.kwarg_only):
            return False
        if parameter.has_default:
            optional = True
            default = parameter.default
            if default is None:
                continue
            if default is True or default is False:
                if "SymBool" in str(parameter.type):
                    return False
                continue
            if isinstance(default, int):
                if isinstance(parameter.type, Optional_):
                    return False
            elif not isinstance(default, EnumDefault):
                return False
        elif optional and not parameter.kwarg_only:
            return False
    if len(names) != len(schema.parameters) or not _TAKEN.isdisjoint(names):
        return False
    if (name[-1] == "_" and not written) or (overload[-3:] == "out" and not written_by_name):
        return False
    for result in schema.returns:
        facts = _facts(result.type)
        if (
            result.name is not None
            or facts.unknown
            or facts.not_definable
            or not facts.names <= shared
        ):
            return False
    return overload != "default"


def _check_rules(schema: Schema) -> list[_Breach]:
    return [
        *_check_order(schema),
        *_check_writing(schema),
        *_check_defaults(schema),
        *_check_results(schema),
    ]


def _place(breaches: list[_Breach], text: SchemaText, *, imported: bool) -> list[Diagnostic]:
    if not breaches:
        return []
    spans = _spans(text.text)
    found = []
    for breach in breaches:
        start, end = spans[breach.part, breach.index]
        fault = text.fault(start, end - start, breach.message, breach.remedy)
        if imported and not breach.always:
            fault = replace(fault, severity="note")
        found.append(fault)
    return found


def _spans(text: str) -> dict[tuple[str, int], tuple[int, int]]:
    parsed = Parser(text).schema()
    if parsed is None:
        raise ValueError(f"not a schema: {text}")
    spans: dict[tuple[str, int], tuple[int, int]] = {}
    for part, span in zip(("namespace", "name", "overload"), parsed.name_spans, strict=True):
        spans[part, 0] = span
    for index, parameter in enumerate(parsed.parameters):
        spans["type", index] = parameter.type_span
        spans["argument", index] = parameter.name_span
        spans["default", index] = parameter.default_span
    for index, span in enumerate(parsed.return_spans):
        spans["return", index] = span
    return spans


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _check_names(schema: Schema, text: str, *, imported: bool) -> Iterator[_Breach]:
    if not imported and "::" in text:
        for message, remedy in lint_namespaces([schema.namespace]).values():
            yield _Breach("namespace", message, remedy)
    for part, name in (("name", schema.name), ("overload", schema.overload)):
        if name in RESERVED_WORDS:
            what = "an operator" if part == "name" else "an overload"
            yield _Breach(
                part,
                f"{what} cannot be called {name}: torch reads it as a word of its own",
                f"call it {name}_ or find another name",
                always=True,
            )
    if keyword.iskeyword(schema.name) and schema.name not in RESERVED_WORDS:
        yield _Breach(
            "name",
            f"{schema.name} is a word of Python, so ops.{schema.namespace}.{schema.name} is no "
            "expression",
            "find another name",
        )
    if _is_dunder(schema.name):
        yield _Breach(
            "name",
            f"{schema.name}: names with two underscores at both ends belong to Python",
            "find another name",
        )
    if schema.overload == "default" or _is_dunder(schema.overload):
        yield _Breach(
            "overload",
            f"torch refuses the overload name {schema.overload}",
            "leave it out for the default overload"
            if schema.overload == "default"
            else "take the underscores away",
            always=True,
        )
    if schema.overload in _PACKET_NAMES:
        yield _Breach(
            "overload",
            f"ops.{schema.namespace}.{schema.name}.{schema.overload} is no overload: "
            "every operator has an attribute of that name",
            "find another name",
        )
    if schema.name == "_name":
        yield _Breach(
            "name",
            f"ops.{schema.namespace}._name is no operator: every namespace has an attribute of "
            "that name",
            "find another name",
        )
    names = [parameter.name for parameter in schema.parameters]
    if len(names) == len(set(names)) and _TAKEN.isdisjoint(names):
        return
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in RESERVED_WORDS:
            yield _Breach(
                "argument",
                f"an argument cannot be called {name}: torch reads it as a word of its own",
                f"call it {name}_ or find another name",
                index,
                always=True,
            )
        elif name in _TAKEN:
            yield _Breach(
                "argument",
                f"the argument name {name} is a word of Python: nobody can pass it by name",
                f"call it {name}_ or find another name",
                index,
            )
        if name in seen:
            yield _Breach(
                "argument", f"a second argument is called {name}", "rename one of the two", index
            )
        seen.add(name)


def _names_in(type_: Type) -> Iterator[str]:
    match type_:
        case Named(name=name):
            yield name
        case Optional_(element=element) | ListOf(element=element):
            yield from _names_in(element)
        case TupleOf(elements=parts) | Generic_(args=parts):
            for part in parts:
                yield from _names_in(part)
        case DictOf(key=key, value=value):
            yield from _names_in(key)
            yield from _names_in(value)


class _TypeFacts(NamedTuple):
    """What the rules ask of a type: a registry asks it thousands of times of `Tensor`."""

    unknown: tuple[str, ...]
    not_definable: tuple[str, ...]
    aliases: tuple[Alias, ...]
    names: frozenset[str]  # of the aliases
    written: bool


# By identity: the schema parser gives the same object for the same text, and hashing a type takes
# longer than all the rest. The types are kept, so no other one can come to have their id.
_known_facts: dict[int, tuple[Type, _TypeFacts]] = {}


def _facts(type_: Type) -> _TypeFacts:
    known = _known_facts.get(id(type_))
    if known is not None:
        return known[1]
    if len(_known_facts) > 10_000:
        _known_facts.clear()
    words = dict.fromkeys(_names_in(type_))
    unknown = (word for word in words if word not in TORCH_TYPES and word[:10] != "__torch__.")
    aliases = tuple(aliases_of(type_))
    names = frozenset(
        name for alias in aliases for name in (*alias.before, *(alias.after or ())) if name != "*"
    )
    refused = tuple(word for word in words if word in _NOT_DEFINABLE)
    facts = _TypeFacts(
        tuple(unknown), refused, aliases, names, any(alias.write for alias in aliases)
    )
    _known_facts[id(type_)] = type_, facts
    return facts


def _check_types(schema: Schema, *, imported: bool) -> Iterator[_Breach]:
    for part, types in (
        ("type", [parameter.type for parameter in schema.parameters]),
        ("return", [result.type for result in schema.returns]),
    ):
        for index, type_ in enumerate(types):
            for name in _facts(type_).unknown:
                if imported and (name in _SCRIPT_TYPES or _TYPE_VARIABLE.fullmatch(name)):
                    continue
                message, remedy = f"unknown type {name}", "torch has " + _TYPE_EXAMPLES
                if near := near_matches(name, TORCH_TYPES):
                    remedy = f"did you mean {near[0]}?"
                elif _TYPE_VARIABLE.fullmatch(name):
                    message = f"{name} is a type variable, which only TorchScript has"
                yield _Breach(part, message, remedy, index, always=True)
            for name in () if imported else _facts(type_).not_definable:
                remedy = "write Scalar" if name == "number" else "write str"
                yield _Breach(part, _NOT_DEFINABLE[name], remedy, index)


def _check_order(schema: Schema) -> Iterator[_Breach]:
    default: str | None = None
    for index, parameter in enumerate(schema.parameters):
        if parameter.kwarg_only:
            break
        if parameter.has_default:
            default = default or parameter.name
        elif default is not None:
            yield _Breach(
                "argument",
                f"{parameter.name} has no default, but stands behind {default}, which has one",
                f"give {parameter.name} a default, move it, or put `*` in front of it",
                index,
                always=True,
            )


def _check_writing(schema: Schema) -> Iterator[_Breach]:
    written = [parameter for parameter in schema.parameters if _facts(parameter.type).written]
    in_place = schema.name.endswith("_") and not _is_dunder(schema.name)
    if in_place and not written and schema.parameters:
        first = schema.parameters[0]
        yield _Breach(
            "name",
            f"{schema.name} has the name of an in-place operator, but writes to no argument",
            f"mark what it writes, as in {_marked(first)}, or take the last underscore away",
        )
    is_out = schema.overload == "out" or schema.overload.endswith("_out")
    outs = [
        (index, parameter)
        for index, parameter in enumerate(schema.parameters)
        if parameter.name == "out" and base_name(parameter.type) == "Tensor"
    ]
    for index, parameter in outs:
        if not _facts(parameter.type).written:
            yield _Breach(
                "type",
                "the argument out is not marked as written",
                f"write {_marked(parameter)}",
                index,
            )
        if not parameter.kwarg_only:
            yield _Breach("argument", "out is passed by position", "put `*` in front of it", index)
    if is_out and not outs and not any(parameter.kwarg_only for parameter in written):
        yield _Breach(
            "overload",
            f"the overload {schema.overload} has no keyword-only argument that it writes to",
            "add `*, Tensor(a!) out`, or find another name",
        )


def _marked(parameter: Parameter) -> str:
    text = str(parameter.type)
    if base_name(parameter.type) != "Tensor":
        return "Tensor(a!) self"
    return f"{text.replace('Tensor', 'Tensor(a!)', 1)} {parameter.name}"


def _check_defaults(schema: Schema) -> Iterator[_Breach]:
    for index, parameter in enumerate(schema.parameters):
        if not parameter.has_default or parameter.default is None:
            continue
        type_, default = parameter.type, parameter.default
        if isinstance(type_, ListOf) and isinstance(default, tuple):
            if type_.size is not None and len(default) != type_.size:
                yield _Breach(
                    "default",
                    f"the default of {type_} has {_values(len(default))}, not {type_.size}",
                    f"give {type_.size} of them, or write {type_.element}[]",
                    index,
                )
            if not _torch_reads_list(type_.element):
                yield _Breach(
                    "default",
                    f"torch cannot read a default of {type_}",
                    f"write {type_}? {parameter.name}=None",
                    index,
                )
        if isinstance(type_, Optional_) and base_name(type_) == "float" and type(default) is int:
            yield _Breach(
                "default",
                f"the default of float? is the int {default}, and torch hands it on as one",
                f"write {default}.0",
                index,
            )
        if base_name(type_) == "Device":
            yield _Breach(
                "default",
                "torch prints the default of a Device without quotes, and cannot read that back",
                f"write Device? {parameter.name}=None and let None stand for it",
                index,
            )
        if str(type_) == "int[]" and isinstance(default, tuple) and _is_shortened(default):
            yield _Breach(
                "default",
                f"torch prints this default as {default[0]}, and cannot read that back",
                f"write int[{len(default)}] {parameter.name}={default[0]}",
                index,
            )
        reason = _unreadable(default)
        if type_ == Named("SymBool"):
            reason = "a SymBool"
        if reason:
            optional = strip_optional(type_)
            yield _Breach(
                "default",
                f"torch cannot read {reason} in a default",
                f"write {optional}? {parameter.name}=None and let None stand for it",
                index,
            )


def _values(count: int) -> str:
    return f"{count} value" if count == 1 else f"{count} values"


def _is_shortened(default: tuple[Default, ...]) -> bool:
    return len(default) > 1 and len(set(default)) == 1


def _torch_reads_list(element: Type) -> bool:
    return isinstance(element, Named) and element.name in (
        "int", "SymInt", "float", "bool", "complex", "ScalarType"
    )  # fmt: skip


def _unreadable(default: Default) -> str | None:
    """Say what in a default torch's own parser cannot read."""
    if isinstance(default, tuple):
        return next(filter(None, map(_unreadable, default)), None)
    if isinstance(default, complex):
        return "a complex number"
    if isinstance(default, float) and not math.isfinite(default):
        return str(default)
    if isinstance(default, str) and not (default.isascii() and default.isprintable()):
        return "anything but plain ASCII"
    return None


def _check_results(schema: Schema) -> Iterator[_Breach]:
    if not any(result.name or _facts(result.type).aliases for result in schema.returns):
        return
    known = {name for item in schema.parameters for name in _facts(item.type).names}
    names: set[str] = set()
    for index, result in enumerate(schema.returns):
        if result.name is not None:
            if result.name in names:
                yield _Breach(
                    "return", f"a second result is called {result.name}", "rename it", index
                )
            names.add(result.name)
        for alias in _facts(result.type).aliases:
            unknown = [name for name in alias.before if name not in known and name != "*"]
            if unknown:
                yield _Breach(
                    "return",
                    f"no argument has the alias {unknown[0]} that this result has",
                    f"mark the argument that it shares memory with: Tensor({unknown[0]}) self",
                    index,
                )


def lint_namespaces(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Give what is wrong with the name of a namespace or family of one's own, and the remedy."""
    faults = {}
    for name in names:
        if not (name.isascii() and name.isidentifier()):
            faults[name] = (
                f"'{name}' is no name for a module",
                "use letters, digits and underscores",
            )
        elif keyword.iskeyword(name) or name in RESERVED_WORDS:
            faults[name] = (f"'{name}' is a word of Python", "find another name")
        elif _is_dunder(name) or name == "_index":
            faults[name] = (f"'{name}' is taken by the generated package", "find another name")
        elif name in _NO_NAMESPACES:
            faults[name] = (f"'{name}' is reserved: {_NO_NAMESPACES[name]}", "find another name")
    return faults
