"""Leave out of a call what torch leaves out before a handler sees it.

torch drops the longest suffix of positional arguments that equal their defaults, and every
keyword-only argument that does, after converting all values to the schema's types. Equal means
of the same type and `==`; symbolic numbers are equal to nothing, so no comparison guards.

At the first use of an overload a function is written for it, without loops over arguments:

    def elide(values):
        try:
            v0 = values['self']
            v1 = values['dim']
            v2 = values['keepdim']
        except (LookupError, TypeError):
            raise wrong_names(values) from None
        if len(values) != 3:
            raise wrong_names(values)
        if type(v1) is list:
            for item in v1:
                if type(item) not in items1:
                    v1 = convert1(v1)
                    break
        elif type(v1) not in exact1:
            v1 = convert1(v1)
        if type(v2) not in exact2:
            v2 = convert2(v2)
        kwargs = {}
        if v2 is not False:
            return (v0, v1, v2), kwargs
        return (v0, v1), kwargs
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dispatch_core import _torch_private as private
from dispatch_core._convert import Converter, converter
from dispatch_core._describe import an
from dispatch_core._errors import BindError
from dispatch_core._schema import Argument, Schema, Unpassed

__all__ = ["Elide", "make_elide"]

Elide = Callable[[Mapping[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]


def make_elide(schema: Schema) -> Elide:
    """Write the function that gives args and kwargs as a handler would see them."""
    positional = [argument for argument in schema.arguments if not argument.kwarg_only]
    keyword = [argument for argument in schema.arguments if argument.kwarg_only]
    numbers = private.numbers_as_tensors(schema.base)
    scope: dict[str, Any] = {
        "same_list": _same_list,
        "wrong_names": lambda values: _wrong_names(schema, values),
    }
    takes: list[str] = []
    conversions: list[str] = []
    for index, argument in enumerate([*positional, *keyword]):
        takes.append(f"    v{index} = values[{argument.name!r}]")
        how = _knowing_default(argument, converter(argument.type, number_tensors=numbers))
        if isinstance(argument.default, list) and how.unequal is not None:
            scope[f"unequal{index}"] = how.unequal
            conversions.append(f"keep{index} = False")
        conversions += _conversion(index, how, scope)
    lines = [
        "def elide(values):",
        *_names_check(takes, len(schema.arguments)),
        *conversions,
        "kwargs = {}",
        *(
            line
            for index, argument in enumerate(keyword, len(positional))
            for line in _keyword(index, argument, scope)
        ),
        *_suffix(positional, scope),
    ]
    source = "\n    ".join(lines)
    exec(compile(source, f"<elide of {schema.qualified_name}>", "exec"), scope)
    made: Elide = scope["elide"]
    return made


def _names_check(takes: list[str], count: int) -> list[str]:
    wrong = "raise wrong_names(values)"
    check = [f"if len(values) != {count}:", f"    {wrong}"]
    if not takes:
        return check
    return ["try:", *takes, "except (LookupError, TypeError):", f"    {wrong} from None", *check]


def _conversion(index: int, how: Converter, scope: dict[str, Any]) -> list[str]:
    if how.exact is None:
        return []
    value, exact, items = f"v{index}", f"exact{index}", f"items{index}"
    convert = f"{value} = convert{index}({value})"
    if f"unequal{index}" in scope:
        convert = f"keep{index} = unequal{index}({value}); {convert}"
    scope |= {exact: how.exact, items: how.items, f"convert{index}": how.convert}
    if not how.items:
        return [f"if type({value}) not in {exact}:", f"    {convert}"]
    return [
        f"if type({value}) is list:",
        f"    for item in {value}:",
        f"        if type(item) not in {items}:",
        f"            {convert}",
        "            break",
        f"elif type({value}) not in {exact}:",
        f"    {convert}",
    ]


def _keyword(index: int, argument: Argument, scope: dict[str, Any]) -> list[str]:
    differs = _differs(index, argument, scope)
    take = f"kwargs[{argument.name!r}] = v{index}"
    return [take] if differs is None else [f"if {differs}:", f"    {take}"]


def _suffix(positional: list[Argument], scope: dict[str, Any]) -> list[str]:
    """Return with the arguments up to the last one that differs from its default."""
    lines: list[str] = []
    for count in range(len(positional), 0, -1):
        result = f"return ({' '.join(f'v{index},' for index in range(count))}), kwargs"
        differs = _differs(count - 1, positional[count - 1], scope)
        if differs is None:
            return [*lines, result]
        lines += [f"if {differs}:", f"    {result}"]
    return [*lines, "return (), kwargs"]


def _differs(index: int, argument: Argument, scope: dict[str, Any]) -> str | None:
    """Write the condition that a value is not the default; None for what is always kept."""
    default = argument.written_default
    if not argument.has_default or default != default:  # nan equals nothing
        return None
    value, name = f"v{index}", f"default{index}"
    if default is None or isinstance(default, bool):
        return f"{value} is not {default}"
    scope[name] = default
    if isinstance(default, list):
        keep = f"keep{index} or " if f"unequal{index}" in scope else ""
        return (
            f"{keep}type({value}) is not list or len({value}) != {len(default)} "
            f"or not same_list({value}, {name})"
        )
    if isinstance(default, (int, float, complex, str)):
        return f"type({value}) is not {type(default).__name__} or {value} != {name}"
    return f"{value} != {name}"  # an enum


def _knowing_default(argument: Argument, plain: Converter) -> Converter:
    """Make a converter that tells a default from an equal value, where torch does."""
    default, written = argument.default, argument.written_default
    if default is written:
        return plain
    convert = plain.convert
    if isinstance(default, Unpassed):

        def convert_list(value: Any) -> Any:
            if type(value) is not Unpassed:
                return convert(value)
            return [*written] if isinstance(written, list) else written

        return Converter(frozenset(), frozenset(), convert_list, _is_passed)
    return Converter(
        frozenset(), frozenset(), lambda value: written if value is default else convert(value)
    )


def _is_passed(value: Any) -> bool:
    return type(value) is not Unpassed


def _same_list(value: list[Any], default: list[Any]) -> bool:
    # Types first, in full: comparing a symbolic number would guard.
    for item, other in zip(value, default, strict=True):
        if type(item) is not type(other):
            return False
    return value == default


def _wrong_names(schema: Schema, values: Mapping[str, Any]) -> BindError:
    if not isinstance(values, Mapping):
        return BindError(
            f"{schema.qualified_name}: elide takes a mapping of names to values, as bind gives, "
            f"not {an(type(values).__name__)}",
            qualified_name=schema.qualified_name,
            argument=None,
            problem="unsupported",
        )
    names = [argument.name for argument in schema.arguments]
    missing = [name for name in names if name not in values]
    unknown = [name for name in values if name not in names]
    faults = []
    if missing:
        faults.append(f"without a value for {', '.join(map(repr, missing))}")
    if unknown:
        faults.append(f"with a value for {', '.join(map(repr, unknown))}, unknown to it")
    return BindError(
        f"{schema.qualified_name}: cannot elide values {' and '.join(faults)}; "
        f"the schema is {schema.text}",
        qualified_name=schema.qualified_name,
        argument=(missing or unknown)[0],
        problem="missing" if missing else "unknown",
    )
