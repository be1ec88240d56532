"""Compare the signature of a handler with the schema of the operator it is registered for.

Torch leaves arguments out of a call that equal their default, passes every positional one
positionally and every keyword-only one by keyword. A function with the schema's own names, kinds
and defaults therefore gets complete arguments at the price of a plain call; any other one breaks
on some call, so the difference is reported when it is registered.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from dispatch_core._describe import describe_handler
from dispatch_core._errors import HandlerSignatureError
from dispatch_core._handle import Handle, Param
from dispatch_core._runtime_stub import parameter_names
from dispatch_core._scopes import called

__all__ = ["check_general_handler", "check_handlers", "takes_types"]

_EMPTY = inspect.Parameter.empty
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_MODE_STYLE = ("func", "types", "args", "kwargs")


def check_handlers(handles: Sequence[Handle[Any]], handler: Callable[..., Any]) -> None:
    """Check that a function takes what each of these overloads gives.

    Raises: HandlerSignatureError with all differences to all overloads, both signatures one
    above the other.
    """
    signature = _signature(handler, handles[0].qualified_name)
    reports: list[str] = []
    everything: list[str] = []
    for handle in handles:
        if handle.qualified_name.startswith("higher_order::"):
            continue  # it has no schema
        differences = _differences(handle.params, signature)
        if not differences:
            continue
        if _fits_as_method(handle.params, signature):
            first = next(iter(signature.parameters))
            differences = [
                f"{first!r} is not an argument of the operator: register the bound method, or "
                "make it a classmethod or staticmethod"
            ]
        everything += differences
        lines = [
            f"{handle.qualified_name}: handler {describe_handler(handler)} does not take what "
            "the operator gives",
            f"  operator: {_write(handle.params)}",
            f"  handler:  {_without_annotations(signature)}",
            *(f"  - {difference}" for difference in differences),
        ]
        reports.append("\n".join(lines))
    if reports:
        raise HandlerSignatureError(
            "\n".join(reports),
            qualified_name=handles[0].qualified_name,
            handler=handler,
            differences=tuple(everything),
        )


def check_general_handler(what: str, handler: Callable[..., Any]) -> None:
    """Check that a function can take just any operator: (func, *args, **kwargs).

    `what` names the registration in the error.
    """
    signature = _signature(handler, what)
    if takes_types(handler):
        return
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    first_is_positional = bool(kinds) and (
        kinds[0] in _POSITIONAL or kinds[0] is inspect.Parameter.VAR_POSITIONAL
    )
    differences = []
    if not first_is_positional:
        differences.append("there is no first parameter for the operator")
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        differences.append("there is no *args for the positional arguments")
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        differences.append("there is no **kwargs for the keyword arguments")
    if differences:
        raise HandlerSignatureError(
            f"{what}: handler {describe_handler(handler)} must take any operator\n"
            "  expected: (func, *args, **kwargs)\n"
            f"  handler:  {_without_annotations(signature)}\n"
            + "\n".join(f"  - {difference}" for difference in differences),
            qualified_name=what,
            handler=handler,
            differences=tuple(differences),
        )


def takes_types(handler: Callable[..., Any]) -> bool:
    """Say whether a function is written as `__torch_dispatch__`: (func, types, args, kwargs)."""
    return tuple(_signature(handler, "").parameters) == _MODE_STYLE


def _signature(handler: Callable[..., Any], what: str) -> inspect.Signature:
    if isinstance(handler, classmethod | staticmethod):
        handler = handler.__get__(None, object)
    code = called(handler)
    if inspect.iscoroutinefunction(code) or inspect.isasyncgenfunction(code):
        raise _unusable(handler, what, "is asynchronous, and an operator cannot wait")
    try:
        return inspect.signature(handler)
    except (TypeError, ValueError):
        reason = "has no signature" if callable(handler) else "cannot be called"
        raise _unusable(handler, what, reason) from None


def _unusable(handler: Callable[..., Any], what: str, reason: str) -> HandlerSignatureError:
    return HandlerSignatureError(
        f"{what}: handler {handler!r} {reason}; write a function around it",
        qualified_name=what,
        handler=handler,
        differences=(f"the handler {reason}",),
    )


def _differences(params: Sequence[Param], signature: inspect.Signature) -> list[str]:
    given = list(signature.parameters.values())
    positional = [parameter for parameter in given if parameter.kind in _POSITIONAL]
    by_keyword = {p.name: p for p in given if p.kind is inspect.Parameter.KEYWORD_ONLY}
    spelled = _spelled(params)
    wanted_positional = [param for param in params if not param.kwarg_only]
    wanted_by_keyword = {param.name: param for param in params if param.kwarg_only}
    found: list[str] = []
    for index, param in enumerate(wanted_positional):
        if index < len(positional):
            own = positional[index]
            if own.name not in (param.name, spelled[param.name]):
                misplaced = wanted_by_keyword.get(own.name)
                if misplaced is not None:
                    found.append(f"{own.name!r} must be keyword-only: write it after `*`")
                    found.append(f"{param.name!r} is missing")
                else:
                    found.append(
                        f"parameter {index + 1} is called {param.name!r}, not {own.name!r}"
                    )
            else:
                found += _default_differences(param, own)
        elif param.name in by_keyword:
            found.append(f"{param.name!r} is passed positionally: write it before `*`")
        else:
            found.append(f"{param.name!r} is missing")
    for own in positional[len(wanted_positional) :]:
        if own.name in wanted_by_keyword:
            found.append(f"{own.name!r} must be keyword-only: write it after `*`")
            found += _default_differences(wanted_by_keyword[own.name], own)
        else:
            found.append(f"the operator has no {own.name!r}")
    misplaced_names = {own.name for own in positional}
    for name, param in wanted_by_keyword.items():
        keyword_own = by_keyword.get(name)
        if keyword_own is not None:
            found += _default_differences(param, keyword_own)
        elif name not in misplaced_names:
            found.append(f"keyword-only {name!r} is missing")
    positional_names = {param.name for param in wanted_positional}
    for name in by_keyword:
        if name not in wanted_by_keyword and name not in positional_names:
            found.append(f"the operator has no {name!r}")
    return found


def _fits_as_method(params: Sequence[Param], signature: inspect.Signature) -> bool:
    """Say whether a function would fit if its first parameter were bound."""
    given = list(signature.parameters.values())
    if not given or given[0].kind not in _POSITIONAL or given[0].name in _spelled(params):
        return False
    return not _differences(params, signature.replace(parameters=given[1:]))


def _spelled(params: Sequence[Param]) -> dict[str, str]:
    """Give for each parameter the name that Python takes."""
    names = [param.name for param in params]
    return dict(zip(names, parameter_names(names), strict=True))


def _default_differences(param: Param, own: inspect.Parameter) -> list[str]:
    if param.required:
        return []
    if own.default is _EMPTY:
        return [f"{param.name!r} has no default; torch leaves it out when it is {param.default!r}"]
    if not _same(param.default, own.default):
        wanted, found = repr(param.default), repr(own.default)
        if wanted == found:  # a number or text of a subclass
            found = f"a {type(own.default).__qualname__} that looks alike"
        return [f"the default of {param.name!r} is {wanted}, not {found}"]
    return []


def _same(wanted: object, own: object) -> bool:
    if isinstance(wanted, list | tuple):
        return (
            isinstance(own, list | tuple)
            and len(wanted) == len(own)
            and all(map(_same, wanted, own))
        )
    if type(wanted) is not type(own):
        return False
    return wanted == own or (wanted != wanted and own != own)  # nan


def _write(params: Sequence[Param]) -> str:
    parts: list[str] = []
    starred = False
    spelled = _spelled(params)
    for param in params:
        if param.kwarg_only and not starred:
            parts.append("*")
            starred = True
        name = spelled[param.name]
        default = tuple(param.default) if isinstance(param.default, list) else param.default
        parts.append(name if param.required else f"{name}={default!r}")
    return f"({', '.join(parts)})"


def _without_annotations(signature: inspect.Signature) -> str:
    parameters = [p.replace(annotation=_EMPTY) for p in signature.parameters.values()]
    plain = signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty)
    return str(plain)
