"""Read the guards of a function that ``torch.compile`` has compiled, and say why they fail.

Everything here asks torch's own cache of compilations, through names that torch keeps private;
where the installed torch has others, an error says so.
"""

from __future__ import annotations

import dataclasses
import inspect as python_inspect
import json
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from guards import _compiled_reasons as reasons
from guards import _compiled_texts as texts
from guards import _torch_private as private
from guards._arguments import need_scope, wrong_call
from guards._compiled_identities import named_identities
from guards._constants import spell
from guards._errors import NotCompiledError
from guards._explanation import Explanation, nearest_first
from guards._fetch import is_a

__all__ = ["EntryReport", "EntryReports", "GuardReport", "inspect"]


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

    def to_dict(self) -> dict[str, Any]:
        """Give plain values, ready for JSON."""
        return {
            "code": self.code,
            "source": texts.with_plain_names(self.source),
            "expression": self.expression,
            "user_location": self.user_location,
        }


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
    _place: _Place = field(repr=False, compare=False)

    def explain(self, *args: Any, **kwargs: Any) -> Explanation | None:
        """Say why this compilation would not be used for a call; None where it would be.

        ``failures`` of the answer lists every guard that was found not to hold.

        Raises:
            WrongArgumentError: the function takes no such arguments, or is the part behind a graph
                break, which is not called by the user; give its locals to ``explain_locals``.
        """
        try:
            L = self._place.bind(*args, **kwargs)
        except TypeError as error:
            raise wrong_call(self.function, error, (args, kwargs)) from None
        return self.explain_locals(L)

    def explain_locals(self, L: Mapping[str, Any]) -> Explanation | None:
        """Say the same for a mapping of the local variables at the function's entry.

        Raises:
            WrongArgumentError: ``L`` is no mapping.
        """
        need_scope("explain_locals", "L", L)
        other = _other_backend(self._entry.backend, self._place.backend)
        if other is not None:
            return other
        manager = self._entry.guard_manager
        verdict = manager.check_verbose(dict(L))
        if verdict.result:
            return None
        scope = {**(manager.closure_vars or {}), "L": dict(L), "G": self._place.globals}
        failures = reasons.failures(self.guards, scope)
        if not failures:
            # A guard between several values, which torch cannot test by itself.
            parts = verdict.verbose_code_parts or ["the guards together"]
            failures = [reasons.of_part(p, self.guards, manager.root, scope) for p in parts]
        top = failures[0]
        return dataclasses.replace(top, failures=tuple(failures))

    def __str__(self) -> str:
        """List the guards, one a line."""
        lines = [f"{self.function}, compilation {self.compile_id}: {len(self.guards)} guards"]
        lines += [f"  {guard}" for guard in self.guards]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Give plain values, ready for JSON."""
        return {
            "function": self.function,
            "compile_id": self.compile_id,
            "guards": [guard.to_dict() for guard in self.guards],
        }

    def to_json(self) -> str:
        """Give the same as one line of JSON."""
        return json.dumps(self.to_dict())


class EntryReports(list[EntryReport]):
    """The compilations that torch keeps for one function, and for its parts behind graph breaks."""

    def explain_miss(self, *args: Any, **kwargs: Any) -> list[Explanation]:
        """Say why no compilation would be used for a call, the nearest one first.

        Empty where one would be used, and where there is none. The nearest one has the fewest
        guards that do not hold. Where the very same cause keeps all from being used, it is said
        once. Parts behind graph breaks are left out, as nobody calls them by themselves.

        Raises:
            WrongArgumentError: the function takes no such arguments.
        """
        found = [e.explain(*args, **kwargs) for e in self if not e._place.behind_break]
        whys = [why for why in found if why is not None]
        return nearest_first(whys) if len(whys) == len(found) else []


def inspect(compiled_fn: Any) -> EntryReports:
    """Read what ``torch.compile`` keeps for a function, a method or a module.

    Returns one report for each compilation, the function's own first, in the order in which torch
    tries them, then those of the parts behind graph breaks. An empty list says that torch has
    compiled nothing for it, as before the first call. Torch keeps compilations with the code, so
    that closures and methods of one code, and modules of one class, share theirs.

    A function that a compiled one calls has compilations of its own where torch could not take it
    into its caller's; give that function itself. Of a module of torch's own that is compiled in
    place, as by ``layer.compile()``, torch compiles nothing: it skips that code.

    Raises:
        NotCompiledError: it was not given to ``torch.compile``, nor compiled by the way.
        UnsupportedTorchError: the installed torch keeps its compilations in another way.
    """
    places = _places(compiled_fn)
    given = places is not None
    if places is None:
        places = _own_places(compiled_fn)
    else:
        backend = _backend(compiled_fn)
        places = [dataclasses.replace(place, backend=backend) for place in places]
    reports = _reports(places)
    if not (reports or given):
        raise _not_compiled(compiled_fn)
    return reports


def _reports(places: list[_Place]) -> EntryReports:
    entries_of = private.cache_entries()
    found: list[tuple[Any, _Place, list[_Part]]] = []
    try:
        for place in places:
            for number, code in enumerate(_codes(place.code)):
                here = (
                    place
                    if number == 0
                    else dataclasses.replace(
                        place, code=code, bind=_no_binder(code), shared=False, behind_break=True
                    )
                )
                for entry in entries_of(code):
                    found.append((entry, here, list(_parts(entry.guard_manager.root))))
        names = named_identities(part.text for _, _, parts in found for part in parts)
        reports = [_report(*each, names) for each in found]
    except AttributeError as error:
        raise private.UnsupportedTorchError(
            f"torch {torch.__version__} keeps its compilations in a way that guards.inspect does "
            f"not know ({error}); install a torch that this version of guards supports"
        ) from error
    return EntryReports(report for report in reports if report._place.takes(report.guards))


# ── which code torch has compiled ────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Place:
    """A code object for which torch keeps compilations, and how its locals come about."""

    code: types.CodeType
    globals: dict[str, Any]
    bind: Callable[..., dict[str, Any]]
    shared: bool = False  # by everything that has no code of its own that torch would compile
    backend: Any = None
    behind_break: bool = False

    def takes(self, guards: tuple[GuardReport, ...]) -> bool:
        """Tell whether guards may be about this callable, where many share one code."""
        if not self.shared:
            return True
        fn = self.bind()["fn"]
        whose = {"L['fn']": fn, "L['fn'].__code__": getattr(fn, "__code__", None)}
        kinds = ("TYPE_MATCH", "ID_MATCH")
        wanted = [g for g in guards if g.code in kinds and g.source in whose]
        return all(g._leaf(whose[g.source]) for g in wanted)


def _places(compiled_fn: Any) -> list[_Place] | None:
    """Find the code that stands for what torch.compile gave; None for what it did not give."""
    if is_a(compiled_fn, torch.nn.Module):
        return _places_of_module(compiled_fn)
    function, owner = _unbound(compiled_fn)
    inner = _unwrapped(function)
    if inner is function:
        return None
    if is_a(inner, torch.nn.Module):
        return _places_of_module(compiled_fn, inner)
    inner, bound_to = _unbound(inner)
    owner = bound_to if owner is None else owner
    return [_place_of(inner, owner)] if is_a(inner, types.FunctionType) else None


def _own_places(value: Any) -> list[_Place]:
    """Find the code of a plain function, method or module."""
    function, owner = _unbound(value.forward if is_a(value, torch.nn.Module) else value)
    return [_place_of(function, owner)] if is_a(function, types.FunctionType) else []


def _unbound(function: Any) -> tuple[Any, Any]:
    """Give the function behind a bound method, and what it is bound to."""
    if type(function) is types.MethodType:
        return function.__func__, function.__self__
    return function, None


def _unwrapped(function: Any) -> Any:
    """Take off what torch.compile has put around a callable, layer by layer."""
    while True:
        inner = getattr(function, "_torchdynamo_orig_callable", None)
        if inner is None:
            return function
        function = inner


def _backend(compiled_fn: Any) -> Any:
    """Find the backend with its options that torch.compile was given; None where it is not seen.

    Torch uses a compilation again only for an equal one.
    """
    found = compiled_fn
    if is_a(found, torch.nn.Module):
        context = getattr(found, "dynamo_ctx", None)
        callback = getattr(context, "callback", None)
        found = getattr(found, "_compiled_call_impl", None)
    else:
        callback = None
    function = _unbound(found)[0]
    if callback is None and is_a(function, types.FunctionType):
        callback = python_inspect.getclosurevars(function).nonlocals.get("callback")
    while (inner := getattr(callback, "_torchdynamo_orig_backend", None)) is not None:
        callback = inner
    return callback


def _other_backend(before: Any, now: Any) -> Explanation | None:
    if now is None or before is now:
        return None
    try:
        if before == now:  # as torch compares them
            return None
    except Exception:
        return None
    wanted, found = _backend_in_words(before), _backend_in_words(now)
    return Explanation(
        "BACKEND",
        "the backend and its options are the same",
        wanted,
        f"another one: {found}" if found == wanted else found,
        None,
    )


def _backend_in_words(backend: Any) -> str:
    name = getattr(backend, "compiler_name", None)
    # Torch names an object by its repr, which says where it is.
    named = type(name) is str and " at 0x" not in name
    text = str(name) if named else spell(getattr(backend, "compiler_fn", backend))
    options = [
        f"{option}={spell(value)}"
        for option in ("dynamic", "mode", "options", "kwargs", "config")
        if (value := getattr(backend, option, None))
    ]
    return f"{text} ({', '.join(options)})" if options else text


def _places_of_module(compiled: Any, module: Any = None) -> list[_Place] | None:
    """Find the code that stands for a module: its forward, or what torch calls in its place."""
    entry = compiled
    if module is None:
        module = getattr(compiled, "_orig_mod", None)
        if module is not None:
            entry = compiled.forward
        else:
            module, entry = compiled, getattr(compiled, "_compiled_call_impl", None)
        if entry is None:
            return None
    places = []
    # A module of torch's own is called through a function of torch's that all of them share.
    shared = entry
    while shared is not None:
        if _is_shared(shared):
            places.append(_shared_place(shared, module))
        shared = getattr(shared, "_torchdynamo_orig_callable", None)
    forward: Any = module.forward
    forward = getattr(forward, "__func__", forward)
    if is_a(forward, types.FunctionType):
        places.append(_place_of(forward, module))
    unique: dict[types.CodeType, _Place] = {}
    for place in places:
        unique.setdefault(place.code, place)
    return list(unique.values())[::-1]


def _shared_place(function: types.FunctionType, module: Any) -> _Place:
    def bind(*args: Any, **kwargs: Any) -> dict[str, Any]:
        return {"args": args, "kwargs": kwargs, "fn": module}

    return _Place(function.__code__, function.__globals__, bind, shared=True)


def _is_shared(function: Any) -> bool:
    """Tell whether this is the function of torch's through which it calls what has no own code."""
    code = getattr(function, "__code__", None)
    if code is None or code.co_name != "inner":
        return False
    return python_inspect.getclosurevars(function).nonlocals.get("fn") is not None


def _place_of(function: types.FunctionType, owner: Any) -> _Place:
    bind, shared = _binder(function, owner), _is_shared(function)
    return _Place(function.__code__, function.__globals__, bind, shared)


def _not_compiled(value: object) -> NotCompiledError:
    return NotCompiledError(
        f"{spell(value)} was not given to torch.compile: pass what torch.compile returned, or a "
        "function that it compiled by the way"
    )


def _codes(code: types.CodeType) -> list[types.CodeType]:
    """Give a function's code, and that of the parts behind its graph breaks."""
    found = [code]
    for part in found:
        found += [more for more in private.resume_codes(part) if more not in found]
    return found


def _binder(function: types.FunctionType, owner: Any) -> Callable[..., dict[str, Any]]:
    signature = python_inspect.signature(function, follow_wrapped=False)
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
            "it is the part of a function behind a graph break; "
            "give its local variables to explain_locals"
        )

    return bind


# ── their guards ─────────────────────────────────────────────────────────────────────────────────


class _Part(NamedTuple):
    """One text of one guard of torch's."""

    code: str
    source: str
    text: str
    leaf: Any


def _report(entry: Any, place: _Place, parts: list[_Part], names: Mapping[str, str]) -> EntryReport:
    guards = tuple(dict.fromkeys(_guard_report(part, names) for part in parts))
    name = getattr(place.code, "co_qualname", place.code.co_name)
    return EntryReport(name, str(entry.compile_id), guards, entry, place)


def _parts(root: Any) -> Iterator[_Part]:
    todo = [(root, "")]
    while todo:
        manager, source = todo.pop()
        # Those of a dict keep what is reached through its entries apart.
        entries: dict[int, Any] = getattr(manager, "get_key_value_managers", dict)()
        pairs = [part for _, pair in sorted(entries.items()) for part in pair if part is not None]
        for leaf in manager.get_leaf_guards():
            for part in leaf.verbose_code_parts():
                yield _Part(type(leaf).__name__, source, part, leaf)
        todo += [
            (child, child.get_source()) for child in [*manager.get_child_managers(), *pairs][::-1]
        ]
    for leaf in root.get_epilogue_lambda_guards():
        for part in leaf.verbose_code_parts():
            yield _Part("SHAPE_ENV", "", part, leaf)


def _guard_report(part: _Part, names: Mapping[str, str]) -> GuardReport:
    code, source, text, leaf = part
    expression = texts.in_words(text, names)
    return GuardReport(code, source, expression, texts.user_location(text), leaf, text)
