"""Make at run time, from a schema, the dispatch stub that codegen writes for known operators."""

from __future__ import annotations

import functools
import keyword
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from dispatch_core._errors import BindError
from dispatch_core._schema import Schema, Unpassed

__all__ = ["accept_schema_names", "make_stub", "parameter_names"]

Stub = Callable[..., dict[str, Any]]


class _UnpassedDefault(tuple[Any, ...]):
    """What a signature shows for an Unpassed list: an object of its own, as () is not."""


def is_refused(name: str) -> bool:
    """Say whether Python takes the name for no parameter: a keyword, or `__debug__`."""
    return keyword.iskeyword(name) or name == "__debug__"


def parameter_names(names: Sequence[str]) -> list[str]:
    """Name parameters as Python takes them: 'from' becomes 'from_', or 'from__' beside a 'from_'.

    The rule of codegen, whose stubs and handler types have these names.
    """
    taken = set(names)
    found = []
    for name in names:
        if is_refused(name):
            while name in taken:
                name += "_"
            taken.add(name)
        found.append(name)
    return found


def make_stub(schema: Schema) -> Stub:
    """Make the function that binds arguments to this schema.

    It has the schema's own signature, so CPython's argument parser does the work. A schema whose
    arguments have no names of their own gets a function that raises BindError.
    """
    names = [argument.name for argument in schema.arguments]
    if schema.variadic or len(set(names)) < len(names):
        return _refuse(schema)
    scope: dict[str, Any] = {"_unpassed": Unpassed}
    signature: list[str] = []
    items: list[str] = []
    starred = False
    # A positional-only marker lets a keyword of Python's be a parameter all the same.
    last_renamed = max(
        (i for i, a in enumerate(schema.arguments) if is_refused(a.name)), default=-1
    )
    spelled = parameter_names(names)
    for index, (argument, name) in enumerate(zip(schema.arguments, spelled, strict=True)):
        if argument.kwarg_only and not starred:
            signature.append("*")
            starred = True
        value = name
        if argument.has_default:
            default = argument.default
            if isinstance(default, list):
                value = f"[*{name}] if {name}.__class__ is tuple else {name}"
                if isinstance(default, Unpassed):
                    default = _UnpassedDefault(default)
                    value = f"_unpassed({name}) if {name} is _default_{index} else {value}"
                else:
                    default = tuple(default)
            scope[f"_default_{index}"] = default
            signature.append(f"{name}=_default_{index}")
        else:
            signature.append(name)
        items.append(f"{argument.name!r}: {value}")
        if index == last_renamed and not argument.kwarg_only:
            signature.append("/")
    source = f"def stub({', '.join(signature)}):\n    return {{{', '.join(items)}}}\n"
    exec(compile(source, f"<dispatch stub of {schema.qualified_name}>", "exec"), scope)
    made: Stub = scope["stub"]
    made.__name__ = made.__qualname__ = schema.base
    made.__doc__ = schema.text
    return made


def accept_schema_names(stub: Stub, schema: Schema) -> Stub:
    """Wrap a stub that renames parameters, so that it takes and gives the schema's names.

    A schema without keywords of Python among its names gets its stub back.
    """
    names = [argument.name for argument in schema.arguments]
    spelled = parameter_names(names)
    renamed = {name: own for name, own in zip(names, spelled, strict=True) if name != own}
    if not renamed:
        return stub
    last = max(names.index(name) for name in renamed)
    leading = [argument for argument in schema.arguments[: last + 1] if not argument.kwarg_only]

    @functools.wraps(stub)
    def bind(*args: Any, **kwargs: Any) -> dict[str, Any]:
        if any(own in kwargs for own in renamed.values()):
            raise TypeError("unexpected keyword argument")
        positional = list(args)
        # Everything up to the last renamed one may be positional-only in the stub.
        for argument in leading[len(args) :]:
            if argument.name in kwargs:
                positional.append(kwargs.pop(argument.name))
            elif argument.has_default:
                default = argument.default
                positional.append(copy(default) if isinstance(default, list) else default)
            else:
                raise TypeError("missing argument")
        return stub(*positional, **{renamed.get(name, name): kwargs[name] for name in kwargs})

    return bind


def _refuse(schema: Schema) -> Stub:
    reason = (
        "takes any number of unnamed arguments"
        if schema.variadic
        else "names two of its arguments alike"
    )

    def stub(*args: Any, **kwargs: Any) -> dict[str, Any]:
        raise BindError(
            f"{schema.qualified_name}: arguments cannot be bound by name, because the operator "
            f"{reason}: {schema.text}",
            qualified_name=schema.qualified_name,
            argument=None,
            problem="unsupported",
        )

    return stub
