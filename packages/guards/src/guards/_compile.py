"""Check functions: one generated Python function that tests a whole set of guards."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, cast, runtime_checkable

from guards._arguments import each_of, need_scope
from guards._builder import GuardBuilder
from guards._checks import Check
from guards._emit import Death, Emitter
from guards._errors import GuardError, UnsupportedGuardError
from guards._explanation import Explanation, explain_failure
from guards._fetch import Absent
from guards._guard import Guard
from guards._source import Source
from guards._writer import Writer

__all__ = ["CheckFunction", "compile_guards", "test_of"]

Scope = Mapping[str, Any]


@runtime_checkable
class CheckFunction(Protocol):
    """Tell whether guards hold: ``check(L)`` is True or False, and never raises.

    It is a plain Python function, which is what the interpreter calls fastest, and carries these
    attributes.

    Attributes:
        guards: the guards, in the order in which ``explain`` looks at them.
        checks: what each guard was turned into, pairs of guard and check.
        source: the generated Python.
        death: tells when an object died without which the guards can never hold again.
    """

    guards: tuple[Guard, ...]
    checks: tuple[tuple[Guard, Check], ...]
    source: str
    death: Death

    def __call__(self, L: Scope, /) -> bool: ...

    def explain(self, L: Scope, *, all: bool = False) -> Explanation | None:
        """Say which guard fails first and why; None exactly where the check holds.

        With ``all`` every guard is looked at, and ``failures`` lists those that do not hold.
        """


class _Explain:
    """The method ``explain`` of one check function."""

    def __init__(self, holds: Callable[[Scope], bool], builder: GuardBuilder) -> None:
        self._holds, self._G, self._checks = holds, builder.G, tuple(builder.checks)

    def __call__(self, L: Scope, *, all: bool = False) -> Explanation | None:
        G = self._G
        values: dict[Source, Any] = {}
        failures: list[Explanation] = []
        for guard, check in self._checks:
            found = [source.lookup(L, G, values) for source in check.sources]
            if not test_of(check)(L, G, found):
                failures.append(explain_failure(guard, check, found, L, G))
                if not all:
                    break
        if not failures:
            if self._holds(L):
                return None
            failures.append(
                Explanation("CHECK", "all guards together", "to hold", "they hold only one by one")
            )
        first = failures[0]
        return first if not all else dataclasses.replace(first, failures=tuple(failures))


def test_of(check: Check) -> Callable[[Scope, Scope, Sequence[Any]], bool]:
    """Give a function that tests one check by itself on values that were fetched already."""
    known = check.__dict__.get("_test")
    if known is not None:
        return known  # type: ignore[no-any-return]
    emitter = Emitter()
    names = [f"v{i}" for i in range(len(check.sources))]
    condition = check.condition(names, emitter)
    lines = [*emitter.take_first(), *emitter.take_statements(), f"return bool({condition})"]
    body = "\n    ".join(lines)
    parameters = ", ".join(["L", "G", *names])
    function = emitter.compile(f"def test({parameters}):\n    {body}\n", "test", "<guard>")

    def test(L: Scope, G: Scope, values: Sequence[Any]) -> bool:
        if any(type(value) is Absent for value in values):
            return False
        try:
            return bool(function(L, G, *values))
        except Exception:
            return False

    test.__dict__["emitter"] = emitter  # it holds the weak references
    check.__dict__["_test"] = test
    return test


test_of.__test__ = False  # type: ignore[attr-defined]  # not for pytest


def compile_guards(guards: Iterable[Guard], L: Scope, G: Scope | None = None) -> CheckFunction:
    """Make the function that tells whether all of ``guards`` hold again.

    ``L`` and ``G`` are the locals and globals that the guards are made from: what they hold now
    is what the guards will expect. ``G`` stays the globals of the check.

    Raises:
        UnsupportedGuardError: a guard cannot be made of the value it finds.
        MissingValueError: a source leads nowhere.
        WrongArgumentError: ``guards`` are no guards, or ``L`` or ``G`` no mapping.
    """
    need_scope("compile_guards", "L", L)
    if G is not None:
        need_scope("compile_guards", "G", G)
    builder = GuardBuilder(L, G)
    remedy = "make one with Guard(source, GuardBuilder.…)"
    given = dict.fromkeys(each_of(Guard, guards, "compile_guards", "guards", "guards", remedy))
    for guard in sorted(given, key=Guard.sort_key):
        made = len(builder.checks)
        _create(guard, builder)
        guard._checks = tuple(check for _, check in builder.checks[made:])
    return assemble(builder)


def _create(guard: Guard, builder: GuardBuilder) -> None:
    """Let a guard be turned into checks; what cannot be made is raised, and not logged besides."""
    try:
        guard.create_fn(builder, guard)
    except GuardError:
        raise
    except Exception as error:
        called = error.__traceback__ and error.__traceback__.tb_next
        if type(error) is TypeError and called is None:  # it does not take what it is given
            raise UnsupportedGuardError(
                f"{guard.create_fn_name()} on {guard.name} cannot be called with the builder, the "
                f"guard, and what its partial gives: {error}"
            ) from None
        guard.log_failure()
        raise


def assemble(builder: GuardBuilder) -> CheckFunction:
    """Make the check function of what a builder has collected."""
    writer = Writer(builder)
    source = writer.write([check for _, check in builder.checks])
    function = writer.emitter.compile(source, "check", "<guards>")
    guards = tuple(dict.fromkeys(guard for guard, _ in builder.checks))
    # Python names it so where it is called with more or less than L.
    function.__qualname__ = f"check(L) of {len(guards)} guards, with the G given to compile_guards"
    function.__dict__.update(
        guards=guards,
        checks=tuple(builder.checks),
        source=source,
        death=writer.emitter.death,
        explain=_Explain(function, builder),
        _emitter=writer.emitter,  # it holds the weak references
    )
    return cast(CheckFunction, function)
