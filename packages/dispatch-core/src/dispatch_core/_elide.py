"""Leave out of a call what torch leaves out before a handler sees it.

torch drops the longest suffix of positional arguments that equal their defaults, and every
keyword-only argument that does, after converting all values to the schema's types. Equal means
of the same type and `==`; symbolic numbers are equal to nothing, so no comparison guards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import takewhile
from operator import itemgetter
from typing import Any, NamedTuple

from dispatch_core import _torch_private as private
from dispatch_core._convert import Converter, converter
from dispatch_core._errors import BindError
from dispatch_core._schema import Argument, Schema

__all__ = ["Plan", "elide", "plan_for"]

_KEEP = object()  # stands for the default of an argument that is never left out


class Check(NamedTuple):
    """One argument whose value may need conversion."""

    place: int
    exact: frozenset[type]  # types that stay as they are
    items: frozenset[type]  # for a list: types of items that do; else empty
    convert: Callable[[Any], Any]


class Plan(NamedTuple):
    """What can be worked out beforehand about eliding one overload's arguments."""

    schema: Schema
    size: int
    get: Callable[[Mapping[str, Any]], Any]  # all values as a tuple, positional ones first
    checks: tuple[Check, ...]
    positional: int
    trailing: tuple[Any, ...]  # defaults of the positional ones, from the last on
    keyword: tuple[tuple[int, str, Any], ...]  # index, name and default of the others


def plan_for(schema: Schema) -> Plan:
    """Work out the plan for one overload."""
    positional = [argument for argument in schema.arguments if not argument.kwarg_only]
    keyword = [argument for argument in schema.arguments if argument.kwarg_only]
    ordered = positional + keyword
    numbers = private.numbers_as_tensors(schema.base)
    checks = []
    for index, argument in enumerate(ordered):
        how = _knowing_default(argument, converter(argument.type, number_tensors=numbers))
        if how.exact is not None:
            checks.append(Check(index, how.exact, how.items, how.convert))
    trailing = list(
        takewhile(lambda default: default is not _KEEP, map(_default, reversed(positional)))
    )
    return Plan(
        schema=schema,
        size=len(ordered),
        get=_getter([argument.name for argument in ordered]),
        checks=tuple(checks),
        positional=len(positional),
        trailing=tuple(trailing),
        keyword=tuple(
            (index, argument.name, _default(argument))
            for index, argument in enumerate(ordered)
            if argument.kwarg_only
        ),
    )


def elide(plan: Plan, values: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Give args and kwargs as a handler would see them."""
    schema, size, get, checks, end, trailing, keyword = plan
    try:
        got = get(values)
    except KeyError:
        raise _wrong_names(schema, values) from None
    if len(values) != size:
        raise _wrong_names(schema, values)
    for index, exact, items, convert in checks:
        value = got[index]
        kind = type(value)
        if kind in exact:
            continue
        if kind is list and items:
            for item in value:
                if type(item) not in items:
                    break
            else:
                continue
        converted = convert(value)
        if converted is not value:
            if type(got) is tuple:
                got = list(got)
            got[index] = converted
    for default in trailing:
        value = got[end - 1]
        if value is not default:
            kind = type(value)
            if kind is not type(default):
                break
            if kind is list:
                if not _same_list(value, default):
                    break
            elif value != default:
                break
        end -= 1
    kwargs = {}
    for index, name, default in keyword:
        value = got[index]
        if value is not default:
            kind = type(value)
            if (
                kind is not type(default)
                or (kind is list and not _same_list(value, default))
                or value != default
            ):
                kwargs[name] = value
    if end != size:
        got = got[:end]
    return (got if type(got) is tuple else tuple(got)), kwargs


def _wrong_names(schema: Schema, values: Mapping[str, Any]) -> BindError:
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


def _getter(names: list[str]) -> Any:
    """Make a function that takes these items out of a mapping, as a tuple."""
    if len(names) > 1:
        return itemgetter(*names)
    if names:
        only = names[0]
        return lambda values: (values[only],)
    return lambda values: ()


def _default(argument: Argument) -> Any:
    default = argument.written_default
    if not argument.has_default or default != default:  # nan equals nothing
        return _KEEP
    return default


def _knowing_default(argument: Argument, plain: Converter) -> Converter:
    """Make a converter that tells a default from an equal value, where torch does."""
    default, written = argument.default, argument.written_default
    if default is written:
        return plain
    convert = plain.convert
    return Converter(
        frozenset(), frozenset(), lambda value: written if value is default else convert(value)
    )


def _same_list(value: list[Any], default: list[Any]) -> bool:
    if len(value) != len(default):
        return False
    # Types first, in full: comparing a symbolic number would guard.
    for item, other in zip(value, default, strict=True):
        if type(item) is not type(other):
            return False
    return value == default
