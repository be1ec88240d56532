"""Read the guards of a function that ``torch.compile`` has compiled, and say why they fail.

Everything here asks torch's own cache of compilations, through names that torch keeps private;
where the installed torch has others, an error says so.
"""

from __future__ import annotations

import inspect as python_inspect
import json
import re
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from guards import _torch_private as private
from guards._constants import spell, type_name
from guards._errors import NotCompiledError
from guards._explanation import Explanation
from guards._fetch import is_a
from guards._tensor_checks import tensor_facts

__all__ = ["EntryReport", "GuardReport", "inspect"]

_ADDRESS_ARGUMENT = re.compile(r",? ?\b\d{6,}\b")
_USER_LINE = re.compile(
    r"\s+#\s(?P<text>.*?)\s+#\s(?P<place>\S+:\d+ in \S+)(?P<hint> \(HINT.*\))?$"
)
_FRAMEWORK_LINE = re.compile(r"\s+#\s(?P<place>\S+:\d+ in \S+)\s*$")
_TYPE_TEST = re.compile(r"___check_type_id\((?P<what>.*?)\), type=<class '(?P<type>[^']+)'>")
_IDENTITY_TEST = re.compile(
    r"___check_obj_id\((?P<what>.*?)\)(?:, type=<class '(?P<type>[^']+)'>)?"
)
_TENSOR_TEST = re.compile(
    r"check_tensor\((?P<what>.*?), (?P<cls>\w+), DispatchKeySet\((?P<keys>[^)]*)\), "
    r"torch\.(?P<dtype>\w+), device=(?P<device>[^,]+), requires_grad=(?P<grad>\w+), "
    r"size=(?P<size>\[[^]]*\]), stride=(?P<stride>\[[^]]*\])"
)
_STATE_TEST = re.compile(r"___check_global_state\(\) against (?P<state>\{.*\})")


@dataclass(frozen=True)
class GuardReport:
    """One guard of a compilation.

    Attributes:
        code: torch's name for its kind.
        source: the expression that is guarded, over ``L`` and ``G``; empty for torch's own state.
        expression: what must hold, as a person would write it.
        user_location: the user's line that caused it, where torch recorded one.
    """

    code: str
    source: str
    expression: str
    user_location: str | None
    _leaf: Any = field(repr=False, compare=False, default=None)
    _text: str = field(repr=False, compare=False, default="")

    def __str__(self) -> str:
        where = f" ({self.user_location})" if self.user_location else ""
        return f"{self.expression}{where}"


@dataclass(frozen=True)
class EntryReport:
    """One compilation that torch keeps for a function, and may use again.

    Attributes:
        function: the function that was compiled, or the part of it behind a graph break.
        compile_id: which compilation it is, as torch's logs call it.
        guards: what must hold for it to be used again.
    """

    function: str
    compile_id: str
    guards: tuple[GuardReport, ...]
    _entry: Any = field(repr=False, compare=False)
    _bind: Callable[..., dict[str, Any]] = field(repr=False, compare=False)

    def explain(self, *args: Any, **kwargs: Any) -> Explanation | None:
        """Say why this compilation would not be used for a call; None where it would be.

        ``failures`` of the answer lists every guard that does not hold.

        Raises:
            TypeError: the function takes no such arguments, or is the part behind a graph break,
                which is not called by the user; give its locals to ``explain_locals``.
        """
        return self.explain_locals(self._bind(*args, **kwargs))

    def explain_locals(self, L: Mapping[str, Any]) -> Explanation | None:
        """Say the same for a mapping of the local variables at the function's entry."""
        manager = self._entry.guard_manager
        verdict = manager.check_verbose(dict(L))
        if verdict.result:
            return None
        first = [_without_padding(part) for part in verdict.verbose_code_parts]
        failures = [
            _explain(guard, L, manager) for guard in self.guards if not _holds(guard, L, manager)
        ]
        if not failures:
            failures = [
                Explanation("GUARD", _clean(part), "to hold", "it does not", _user_location(part))
                for part in first or ["a guard"]
            ]
        top = failures[0]
        return Explanation(
            top.code, top.expression, top.expected, top.actual, top.user_location, tuple(failures)
        )

    def __str__(self) -> str:
        """List the guards, one a line."""
        lines = [f"{self.function}, compilation {self.compile_id}: {len(self.guards)} guards"]
        lines += [f"  {guard}" for guard in self.guards]
        return "\n".join(lines)


def inspect(compiled_fn: Any) -> list[EntryReport]:
    """Read what ``torch.compile`` keeps for a function, a method or a module.

    Returns one report for each compilation, the function's own first, in the order in which torch
    tries them, then those of the parts behind graph breaks. An empty list says that it has not
    been called yet.

    Raises:
        NotCompiledError: it was not given to ``torch.compile``.
        UnsupportedTorchError: the installed torch keeps its compilations in another way.
    """
    original, owner = _original(compiled_fn)
    entries_of = private.cache_entries()
    reports = []
    for number, code in enumerate(_codes(original)):
        bind = _binder(original, owner) if number == 0 else _no_binder(code)
        reports += [_report(entry, code, bind) for entry in entries_of(code)]
    return reports


def _original(compiled_fn: Any) -> tuple[types.FunctionType, Any]:
    """Find the Python function behind what torch.compile gave, and the object it is bound to."""
    if is_a(compiled_fn, torch.nn.Module):
        module = getattr(compiled_fn, "_orig_mod", None)
        if module is None and getattr(compiled_fn, "_compiled_call_impl", None) is not None:
            module = compiled_fn  # compiled in place, by Module.compile()
        if module is None:
            raise _not_compiled(compiled_fn)
        return type(module).forward, module  # type: ignore[return-value]
    function = compiled_fn.__func__ if is_a(compiled_fn, types.MethodType) else compiled_fn
    owner = compiled_fn.__self__ if is_a(compiled_fn, types.MethodType) else None
    inner = getattr(function, "_torchdynamo_orig_callable", None)
    if inner is None:
        raise _not_compiled(compiled_fn)
    while getattr(inner, "_torchdynamo_orig_callable", None) is not None:
        inner = inner._torchdynamo_orig_callable
    if is_a(inner, types.MethodType):
        inner, owner = inner.__func__, inner.__self__
    if not is_a(inner, types.FunctionType):
        raise _not_compiled(compiled_fn)
    return inner, owner


def _not_compiled(value: object) -> NotCompiledError:
    return NotCompiledError(
        f"{spell(value)} was not given to torch.compile: pass what torch.compile returned"
    )


def _codes(function: types.FunctionType) -> list[types.CodeType]:
    """Give a function's code, and that of the parts behind its graph breaks."""
    found = [function.__code__]
    for code in found:
        found += [part for part in private.resume_codes(code) if part not in found]
    return found


def _binder(function: types.FunctionType, owner: Any) -> Callable[..., dict[str, Any]]:
    signature = python_inspect.signature(function)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))

    def bind(*args: Any, **kwargs: Any) -> dict[str, Any]:
        given = args if owner is None else (owner, *args)
        bound = signature.bind(*given, **kwargs)
        bound.apply_defaults()
        closed_over = {}
        for name, cell in cells.items():
            try:
                closed_over[name] = cell.cell_contents
            except ValueError:  # the cell is empty
                continue
        return {**closed_over, **bound.arguments}

    return bind


def _no_binder(code: types.CodeType) -> Callable[..., dict[str, Any]]:
    def bind(*args: Any, **kwargs: Any) -> dict[str, Any]:
        raise TypeError(
            f"{code.co_name} is the part of a function behind a graph break; "
            "give its local variables to explain_locals"
        )

    return bind


def _report(entry: Any, code: types.CodeType, bind: Callable[..., dict[str, Any]]) -> EntryReport:
    guards = tuple(_guards(entry.guard_manager.root))
    name = getattr(code, "co_qualname", code.co_name)
    return EntryReport(name, str(entry.compile_id), guards, entry, bind)


def _guards(manager: Any, source: str = "") -> Iterator[GuardReport]:
    for leaf in manager.get_leaf_guards():
        for part in leaf.verbose_code_parts():
            code = type(leaf).__name__
            yield GuardReport(code, source, _clean(part), _user_location(part), leaf, part)
    for child in manager.get_child_managers():
        yield from _guards(child, child.get_source())
    for leaf in getattr(manager, "get_epilogue_lambda_guards", list)():
        for part in leaf.verbose_code_parts():
            yield GuardReport("SHAPE_ENV", "", _clean(part), _user_location(part), leaf, part)


def _without_padding(part: str) -> str:
    return re.sub(r"\s+#", "  #", part)


def _clean(part: str) -> str:
    """Rewrite one of torch's texts as a person would put it: no addresses, no inner names."""
    text = _FRAMEWORK_LINE.sub("", _USER_LINE.sub("", part)).rstrip()
    found = _TYPE_TEST.search(text)
    if found:
        return f"type({_without_address(found['what'])}) is {found['type']}"
    found = _IDENTITY_TEST.search(text)
    if found:
        kind = f": {found['type']}" if found["type"] else ""
        return f"{_without_address(found['what'])} is the same object{kind}"
    found = _TENSOR_TEST.search(text)
    if found:
        facts = ", ".join(f"{k} {v}" for k, v in _tensor_expected(found).items())
        return f"{found['what']} is a tensor: {facts}"
    if _STATE_TEST.search(text):
        return "torch's global state is as it was"
    return text.replace("___", "")


def _without_address(what: str) -> str:
    return _ADDRESS_ARGUMENT.sub("", what)


def _user_location(part: str) -> str | None:
    found = _USER_LINE.search(part)
    return f"{found['place']}: {found['text'].strip()}" if found else None


def _tensor_expected(found: re.Match[str]) -> dict[str, str]:
    return {
        "class": found["cls"],
        "dtype": found["dtype"],
        "requires_grad": found["grad"],
        "ndim": str(len([d for d in found["size"].strip("[]").split(",") if d.strip()])),
        "size": found["size"].replace("None", "*"),
        "stride": found["stride"].replace("None", "*"),
    }


def _value(guard: GuardReport, L: Mapping[str, Any], manager: Any) -> Any:
    """Evaluate a guard's source as torch would, from its own text."""
    scope = {**(manager.closure_vars or {}), "L": L, "G": manager.global_scope or {}}
    return eval(guard.source, scope) if guard.source else dict(L)


def _holds(guard: GuardReport, L: Mapping[str, Any], manager: Any) -> bool:
    try:
        if guard.code == "SHAPE_ENV":
            scope = {**(manager.closure_vars or {}), "L": L, "G": manager.global_scope or {}}
            return bool(eval(guard.expression, scope))
        call = getattr(guard._leaf, "__call__", None)  # noqa: B004  # leaf classes differ in it
        return True if call is None else bool(call(_value(guard, L, manager)))
    except NotImplementedError:
        return True
    except Exception:
        return False


def _explain(guard: GuardReport, L: Mapping[str, Any], manager: Any) -> Explanation:
    expected, actual = guard.expression, "it does not hold"
    try:
        if guard.code == "GLOBAL_STATE":
            expected, actual = _state_difference(guard)
        elif guard.code == "SHAPE_ENV":
            actual = _shape_values(guard.expression, L, manager)
        else:
            expected, actual = _difference(guard, _value(guard, L, manager))
    except Exception as error:
        actual = (
            f"{guard.source or guard.expression} cannot be had: {type(error).__name__}: {error}"
        )
    return Explanation(guard.code, guard.expression, expected, actual, guard.user_location)


def _difference(guard: GuardReport, value: Any) -> tuple[str, str]:
    if guard.code == "TYPE_MATCH":
        found = _TYPE_TEST.search(guard._text)
        wanted = f"of type {found['type']}" if found else guard.expression
        return wanted, f"of type {type_name(type(value))}"
    if guard.code == "TENSOR_MATCH" and is_a(value, torch.Tensor):
        found = _TENSOR_TEST.search(guard._text)
        if found:
            return _tensor_difference(found, value)
    if guard.code == "DICT_LENGTH" or guard.code == "LENGTH_CHECK":
        return guard.expression, f"of length {len(value)}"
    text = guard.expression
    prefix = f"{guard.source} == "
    return text.removeprefix(prefix), spell(value)


def _tensor_difference(found: re.Match[str], value: torch.Tensor) -> tuple[str, str]:
    wanted = _tensor_expected(found)
    facts = tensor_facts(value)
    facts["class"] = type(value).__name__
    actual = {key: facts[key] for key in wanted}
    differ = [k for k in wanted if not _fits(wanted[k], actual[k])]
    if not differ:
        wanted, actual = {"dispatch keys": found["keys"]}, {"dispatch keys": _keys(value)}
        differ = ["dispatch keys"]
    return tuple(", ".join(f"{k} {side[k]}" for k in differ) for side in (wanted, actual))  # type: ignore[return-value]


def _keys(value: torch.Tensor) -> str:
    said = tensor_facts(value)["state"]
    keys = str(torch._C._dispatch_keys(value)).removeprefix("DispatchKeySet(").rstrip(")")
    return f"{keys} ({said})" if said else keys


def _fits(wanted: str, actual: str) -> bool:
    if not wanted.startswith("["):
        return wanted == actual
    parts, found = wanted.strip("[]").split(", "), actual.strip("[]").split(", ")
    return len(parts) == len(found) and all(
        w in ("*", a) for w, a in zip(parts, found, strict=True)
    )


def _state_difference(guard: GuardReport) -> tuple[str, str]:
    found = _STATE_TEST.search(guard._text)
    if found is None:
        return guard.expression, "it does not hold"
    before, now = json.loads(found["state"]), private.global_state()
    differ = sorted(k for k in {**before, **now} if before.get(k) != now.get(k))
    return tuple(  # type: ignore[return-value]
        ", ".join(f"{key} {side.get(key)}" for key in differ) or "as it was"
        for side in (before, now)
    )


def _shape_values(expression: str, L: Mapping[str, Any], manager: Any) -> str:
    scope = {**(manager.closure_vars or {}), "L": L, "G": manager.global_scope or {}}
    parts = sorted(set(re.findall(r"[LG]\[[^\s]+?\]\.(?:size|stride)\(\)\[\d+\]", expression)))
    return ", ".join(f"{part} is {eval(part, scope)}" for part in parts) or "it does not hold"
