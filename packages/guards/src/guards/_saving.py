"""Guards as text: written in one process, read in another, there to accept and refuse the same.

The text is JSON with a version. Reading it imports nothing and runs no code of anybody's.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeVar, cast

from guards import (
    _checks,
    _code_check,
    _container_checks,
    _own_dict_checks,
    _relation_check,
    _scalar_checks,
    _state_checks,
    _tensor_checks,
)
from guards import _value_sources as value_sources
from guards._arguments import each_of, need, need_scope
from guards._builder import GuardBuilder
from guards._checks import Check
from guards._compile import CheckFunction, Scope, compile_guards
from guards._constants import holds_nan, same_constant, spell
from guards._errors import GuardError, SavedGuardsError, UnsupportedGuardError
from guards._fetch import is_a
from guards._guard import Guard
from guards._saved_constants import read_constant, write_constant
from guards._value_sources import ChainedValueSource, ValueSource

__all__ = ["dumps", "loads", "saveable", "verify"]

FORMAT = "guards"
VERSION = 2
_MAX_LINKS = 10_000

_SOURCES: dict[str, type[ValueSource]] = {}
_CHECKS: dict[str, type[Check]] = {}

T = TypeVar("T", bound="type[ValueSource] | type[Check]")


def saveable(cls: T) -> T:
    """Let a source or check class of your own take part in ``dumps`` and ``loads``.

    Register it under its class name, in the writing and in the reading process. A source must be
    a dataclass whose fields are constants; a check must have ``state`` and ``from_state``.
    """
    known = is_a(cls, type) and issubclass(cls, (ValueSource, Check))
    need(known, "saveable", "cls", "a class that derives from ValueSource or Check", cls)
    table: dict[str, Any] = _SOURCES if issubclass(cls, ValueSource) else _CHECKS
    other = table.setdefault(cls.__name__, cls)
    if other is not cls:
        raise UnsupportedGuardError(f"another class is already saved as {cls.__name__}: {other!r}")
    return cls


for _module in (
    _checks,
    _own_dict_checks,
    _container_checks,
    _code_check,
    _scalar_checks,
    _state_checks,
    _tensor_checks,
    _relation_check,
):
    for _name in _module.__all__:
        _found = getattr(_module, _name)
        if isinstance(_found, type) and issubclass(_found, Check) and _found is not Check:
            saveable(_found)
for _name in value_sources.__all__:
    if not _name.endswith("ValueSource"):
        saveable(getattr(value_sources, _name))


def dumps(guards: Iterable[Guard] | CheckFunction) -> str:
    """Write guards that were compiled as text.

    ``guards`` are those of a check function, or the function itself.

    Raises:
        UnsupportedGuardError: some guards cannot be saved; all of them are named, and are the
            ``guards`` of the error.
    """
    if isinstance(guards, CheckFunction):
        made: dict[Guard, list[Check]] = {}
        for guard, check in guards.checks:
            made.setdefault(guard, []).append(check)
    else:
        remedy = "give it what compile_guards gave"
        given = each_of(Guard, guards, "dumps", "guards", "guards", remedy)
        made = {guard: list(guard._checks) for guard in given}
    entries: list[dict[str, Any]] = []
    refusals: dict[Guard, str] = {}
    for guard, checks in made.items():
        try:
            entries.append(_write_guard(guard, checks))
        except UnsupportedGuardError as error:
            refusals[guard] = str(error)
    if refusals:
        raise UnsupportedGuardError("\n".join(refusals.values()), refusals)
    document = {"format": FORMAT, "version": VERSION, "guards": entries}
    return json.dumps(document, indent=1, allow_nan=False)


def _write_guard(guard: Guard, checks: list[Check]) -> dict[str, Any]:
    if not checks:
        raise UnsupportedGuardError(
            f"{guard.create_fn_name()} on {guard.name} expects nothing yet: "
            "compile it with compile_guards first"
        )
    entry: dict[str, Any] = {
        "kind": guard.create_fn_name(),
        "source": _write_source(guard.originating_source),
        "checks": [_write_check(check) for check in checks],
    }
    problem = _contradiction(entry, checks)
    if problem:
        raise UnsupportedGuardError(
            f"{entry['kind']} on {guard.name} cannot be saved: {problem}, as no {entry['kind']} of "
            "GuardBuilder's; give a create function of your own another name"
        )
    if guard.user_stack:
        frame = guard.user_stack[-1]
        entry["user"] = [frame.filename, frame.lineno, frame.name, frame.line or ""]
    return entry


_STATES = (
    "GRAD_MODE",
    "AUTOCAST_STATE",
    "DEFAULT_DTYPE",
    "DEFAULT_DEVICE",
    "DETERMINISTIC_ALGORITHMS",
)
# The checks that kinds of GuardBuilder make, one for each guard.
_CHECKS_OF_KINDS = {
    "TYPE_MATCH": "TypeCheck",
    "ID_MATCH": "IdentityCheck",
    "EQUALS_MATCH": "EqualsCheck",
    "CONSTANT_MATCH": "EqualsCheck IdentityCheck",
    "NONE_MATCH": "NoneCheck",
    "BOOL_MATCH": "BoolCheck",
    "RANGE_MATCH": "RangeCheck",
    "FUNCTION_MATCH": "CodeCheck IdentityCheck",
    "MODULE_TRAINING": "TrainingCheck",
    "HASATTR": "PresentCheck",
    "NOT_PRESENT": "AbsentCheck",
    "SEQUENCE_LENGTH": "LengthCheck",
    "DICT_KEYS_MATCH": "KeysCheck",
    "SET_MATCH": "SetCheck",
    "TENSOR_MATCH": "TensorCheck",
    "DUPLICATE_INPUT": "SameObjectCheck",
    "STORAGE_OVERLAP": "OverlapCheck",
    "SHAPE_RELATION": "RelationCheck",
    **dict.fromkeys(_STATES, "StateCheck"),
}
_OF_OTHER_SOURCES = ("STORAGE_OVERLAP", "SHAPE_RELATION", *_STATES)


def _contradiction(entry: dict[str, Any], checks: list[Check]) -> str:
    """Say what checks of a guard have that guards of this kind cannot have; nothing is good."""
    kind, saved = entry["kind"], entry["checks"]
    if kind not in _CHECKS_OF_KINDS:
        return ""
    if len(saved) != 1:
        return f"it has {len(saved)} checks, not one"
    (check,) = saved
    names = _CHECKS_OF_KINDS[kind].split()
    if check["check"] not in names:
        return f"its check is a {check['check']}, not a {' or a '.join(names)}"
    if kind in _STATES and check["state"]["code"] != kind:
        return f"its check is one of {check['state']['code']}"
    if kind not in _OF_OTHER_SOURCES and repr(check["sources"][0]) != repr(entry["source"]):
        return f"its check is about {_cut(checks[0].expression())}"
    return ""


def _cut(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:199]}…"


def _write_check(check: Check) -> dict[str, Any]:
    name = type(check).__name__
    if isinstance(check, _tensor_checks.ImpossibleCheck):
        name = "TensorCheck"
    elif _CHECKS.get(name) is not type(check):
        raise UnsupportedGuardError(f"{name} cannot be saved: register it with guards.saveable")
    if isinstance(check, _own_dict_checks.AbsentCheck) and check.key:
        _refuse_nan(check.expression(), check.key["key"], "DICT_KEYS_MATCH")
    state = {key: write_constant(value) for key, value in check.state().items()}
    sources = [check.guarded] if isinstance(check, _own_dict_checks.AbsentCheck) else check.sources
    return {"check": name, "sources": [_write_source(s) for s in sources], "state": state}


def _refuse_nan(what: str, key: object, remedy: str) -> None:
    """Refuse nan as a key, or within one: a dict knows it by its identity.

    Raises:
        UnsupportedGuardError: the key is or holds nan.
    """
    if holds_nan(key):
        raise UnsupportedGuardError(
            f"{what} cannot be saved: a dict finds nan by its identity, which means nothing in "
            f"another process; use {remedy}"
        )


def _write_source(source: Any) -> list[Any]:
    links: list[Any] = []
    while True:
        name = type(source).__name__
        if _SOURCES.get(name) is not type(source):
            raise UnsupportedGuardError(f"{name} cannot be saved: register it with guards.saveable")
        if isinstance(source, value_sources.GetItemSource):
            _refuse_nan(source.name(), source.index, "EQUALS_MATCH on the whole dict")
        own = {
            f.name: write_constant(getattr(source, f.name))
            for f in fields(source)
            if f.name != "base" and not same_constant(getattr(source, f.name), f.default)
        }
        links.append([name, own])
        if not isinstance(source, ChainedValueSource):
            return links[::-1]
        source = source.base


class _Restore:
    """A create function that gives a guard the checks it was saved with."""

    def __init__(self, kind: str, checks: list[Check]) -> None:
        self.__name__ = kind
        self.checks = checks

    def __call__(self, builder: GuardBuilder, guard: Guard) -> None:
        for check in self.checks:
            builder.add(guard, check)


def loads(text: str) -> list[Guard]:
    """Read guards from text; compile them with ``compile_guards``.

    They expect what they were saved with, whatever the values are that they are compiled on.

    Raises:
        SavedGuardsError: the text is no set of saved guards, is damaged, or is of a newer
            version.
    """
    try:
        document = json.loads(text, object_pairs_hook=_each_name_once)
    except (ValueError, RecursionError, TypeError) as error:
        raise SavedGuardsError(f"this is no JSON text: {error}") from None
    if type(document) is not dict or document.get("format") != FORMAT:
        raise SavedGuardsError('this is no set of saved guards: "format" must be "guards"')
    version = document.get("version")
    if version != VERSION or type(version) is not int:
        hint = ""
        if type(version) is int:
            newer = version > VERSION
            hint = ": update guards to read it" if newer else ": write them anew, with dumps"
        raise SavedGuardsError(
            f"saved guards of version {spell(version, 20)}; this package reads version {VERSION}"
            + hint
        )
    _no_more_than(("format", "version", "guards"), document, "the text")
    entries = _need(document.get("guards"), list, '"guards"')
    return [_read_guard(entry, f"guard {number}") for number, entry in enumerate(entries)]


def _each_name_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise SavedGuardsError(f"an object says {spell(twice, 40)} twice")
    return made


def _need(value: Any, cls: type, where: str) -> Any:
    if type(value) is not cls:
        wanted = {list: "a list", dict: "an object", str: "a string", int: "a number"}[cls]
        raise SavedGuardsError(f"{where} must be {wanted}, got {spell(value, 60)}")
    return value


def _no_more_than(known: tuple[str, ...], entry: dict[str, Any], where: str) -> None:
    unknown = sorted(set(entry) - set(known))
    if unknown:
        raise SavedGuardsError(f"{where}: there can be no {spell(unknown[0], 60)} here")


def _is_own(cls: type[Check]) -> bool:
    return cls.__module__.partition(".")[0] == "guards"


def _read_guard(entry: Any, where: str) -> Guard:
    entry = _need(entry, dict, where)
    _no_more_than(("kind", "source", "checks", "user"), entry, where)
    kind = _need(entry.get("kind"), str, f'{where}: "kind"')
    try:
        source = _read_source(entry.get("source"), where)
        checks = [
            _read_check(check, where)
            for check in _need(entry.get("checks"), list, f'{where}: "checks"')
        ]
    except SavedGuardsError as error:
        prefix = "" if str(error).startswith(where) else f"{where} ({spell(kind, 40)}): "
        raise SavedGuardsError(f"{prefix}{error}") from None
    if not checks:
        raise SavedGuardsError(f"{where}: it has no checks")
    problem = _contradiction(entry, checks)
    if problem:
        on = _cut(source.name())
        raise SavedGuardsError(f"{where}: {kind} on {on} contradicts itself: {problem}")
    guard = Guard(source, _Restore(kind, checks))
    guard._checks = tuple(checks)
    if "user" in entry:
        user = _need(entry["user"], list, f'{where}: "user"')
        if [type(part) for part in user] != [str, int, str, str]:
            raise SavedGuardsError(f'{where}: "user" must be file, line, function and text')
        frame = traceback.FrameSummary(user[0], user[1], user[2], lookup_line=False, line=user[3])
        guard.user_stack = traceback.StackSummary.from_list([frame])
    return guard


def _read_check(entry: Any, where: str) -> Check:
    entry = _need(entry, dict, f"{where}: a check")
    _no_more_than(("check", "sources", "state"), entry, where)
    name = _need(entry.get("check"), str, f'{where}: "check"')
    cls = _CHECKS.get(name)
    if cls is None:
        raise SavedGuardsError(f"{where}: no check is called {spell(name, 40)}")
    sources = [
        _read_source(source, where)
        for source in _need(entry.get("sources"), list, f'{where}: "sources"')
    ]
    saved = _need(entry.get("state"), dict, f'{where}: "state"')
    state = {key: read_constant(value) for key, value in saved.items()}
    try:
        check = cls.from_state(sources, state)
        if _is_own(cls):
            again = _write_check(check)
            for part in ("sources", "state"):
                if again[part] != entry[part] or repr(again[part]) != repr(entry[part]):
                    raise SavedGuardsError(
                        f"{where}: {name} has other {part} than it is written with: "
                        f"{spell(entry[part])}"
                    )
        return check
    except SavedGuardsError:
        raise
    except GuardError as error:
        raise SavedGuardsError(f"{where}: {error}") from None
    except Exception as error:
        raise SavedGuardsError(
            f"{where}: {name} cannot be made from {spell(state)}: {error}"
        ) from None


def _read_source(saved: Any, where: str) -> ValueSource:
    links = _need(saved, list, f"{where}: a source")
    if not 0 < len(links) <= _MAX_LINKS:
        raise SavedGuardsError(f"{where}: a source has from 1 to {_MAX_LINKS} links")
    source: ValueSource | None = None
    for link in links:
        if type(link) is not list or len(link) != 2:
            raise SavedGuardsError(f"{where}: a link of a source is written {spell(link, 60)}")
        name = _need(link[0], str, f"{where}: a link")
        own: Mapping[str, Any] = _need(link[1], dict, f"{where}: a link")
        cls = _SOURCES.get(name)
        if cls is None or issubclass(cls, ChainedValueSource) != (source is not None):
            raise SavedGuardsError(f"{where}: no link {spell(name, 40)} can stand here")
        values = {key: read_constant(value) for key, value in own.items()}
        try:
            make: Any = cls
            source = make(**values) if source is None else make(source, **values)
            source.name()
            if isinstance(source, value_sources.GetItemSource):
                _refuse_nan(source.name(), source.index, "another key")
        except GuardError as error:
            raise SavedGuardsError(f"{where}: {error}") from None
        except Exception as error:
            raise SavedGuardsError(
                f"{where}: no {name} is made from {spell(values)}: {error}"
            ) from None
    return cast(ValueSource, source)


def verify(text: str, L: Scope, G: Scope | None = None) -> list[str]:
    """Read saved guards and compare them with the values that they were made from.

    Returns a line for each guard that would be checked differently; empty is good.

    Raises:
        SavedGuardsError: the text cannot be read at all.
        WrongArgumentError: ``L`` or ``G`` is no mapping.
    """
    need_scope("verify", "L", L)
    if G is not None:
        need_scope("verify", "G", G)
    guards = loads(text)
    differences: list[str] = []
    if json.loads(dumps(guards)) != json.loads(text):
        differences.append("the guards are written differently when they are saved again")
    if compile_guards(guards, L, G)(L):
        return differences
    for guard in guards:
        check = compile_guards([guard], L, G)
        explanation = check.explain(L)
        if explanation is not None:
            differences.append(str(explanation))
    return differences
