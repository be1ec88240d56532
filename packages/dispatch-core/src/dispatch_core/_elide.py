"""Leave out of a call what torch leaves out before a handler sees it.

torch drops the longest suffix of positional arguments that equal their defaults, and every
keyword-only argument that does, after converting all values to the schema's types. Equal means
of the same type and `==`; symbolic numbers are equal to nothing, so no comparison guards.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from dispatch_core import _torch_private as private
from dispatch_core._convert import converter
from dispatch_core._errors import BindError
from dispatch_core._schema import Argument, Schema

__all__ = ["Elision"]

_KEEP = object()  # stands for the default of an argument that is never left out


class Elision:
    """What can be worked out beforehand about eliding one overload's arguments."""

    __slots__ = ("_checks", "_count", "_get", "_keyword", "_positional", "_schema", "_trailing")

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        positional = [argument for argument in schema.arguments if not argument.kwarg_only]
        keyword = [argument for argument in schema.arguments if argument.kwarg_only]
        ordered = positional + keyword
        numbers = private.numbers_as_tensors(schema.base)
        converters = [converter(a.type, number_tensors=numbers) for a in ordered]
        self._count = len(ordered)
        self._positional = len(positional)
        self._get = _getter([argument.name for argument in ordered])
        self._checks = tuple(
            (index, exact, convert)
            for index, (exact, convert) in enumerate(converters)
            if exact is not None
        )
        defaults = [
            _default(argument, convert)
            for argument, (_, convert) in zip(ordered, converters, strict=True)
        ]
        trailing = []
        for default in reversed(defaults[: len(positional)]):
            if default is _KEEP:
                break
            trailing.append(default)
        self._trailing = tuple(trailing)
        self._keyword = tuple(
            (index, ordered[index].name, defaults[index])
            for index in range(len(positional), len(ordered))
        )

    def elide(self, values: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Give args and kwargs as a handler would see them."""
        try:
            got = self._get(values)
        except KeyError:
            raise self._wrong_names(values) from None
        if len(values) != self._count:
            raise self._wrong_names(values)
        for index, exact, convert in self._checks:
            value = got[index]
            if type(value) not in exact:
                converted = convert(value)
                if converted is not value:
                    if type(got) is tuple:
                        got = list(got)
                    got[index] = converted
        end = self._positional
        for default in self._trailing:
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
        for index, name, default in self._keyword:
            value = got[index]
            if value is not default:
                kind = type(value)
                if (
                    kind is not type(default)
                    or (kind is list and not _same_list(value, default))
                    or value != default
                ):
                    kwargs[name] = value
        return tuple(got[:end]), kwargs

    def _wrong_names(self, values: Mapping[str, Any]) -> BindError:
        schema = self._schema
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


def _default(argument: Argument, convert: Any) -> Any:
    if not argument.has_default:
        return _KEEP
    default = argument.default
    if default is not None:
        default = convert(default)
    if default != default:  # nan equals nothing
        return _KEEP
    return default


def _same_list(value: list[Any], default: list[Any]) -> bool:
    if len(value) != len(default):
        return False
    # Types first, in full: comparing a symbolic number would guard.
    for item, other in zip(value, default, strict=True):
        if type(item) is not type(other):
            return False
    return value == default
