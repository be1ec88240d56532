"""Check functions: one generated Python function that tests a whole set of guards."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from guards import _torch_private as private
from guards._builder import GuardBuilder
from guards._checks import Check, TypeCheck
from guards._constants import type_name
from guards._emit import Death, Emitter, is_heap_type
from guards._explanation import Explanation, explain_failure
from guards._fetch import Absent
from guards._guard import Guard
from guards._source import Source
from guards._tensor_checks import TensorCheck
from guards._value_sources import ChainedValueSource, ValueSource

__all__ = ["CheckFunction", "compile_guards", "test_of"]

Scope = Mapping[str, Any]


class CheckFunction(functools.partial[bool]):
    """Tell whether guards hold: ``check(L)`` is True or False, and never raises.

    It is a ``functools.partial`` of the generated function, which costs less per call than a
    method would.

    Attributes:
        guards: the guards, in the order in which ``explain`` looks at them.
        checks: what each guard was turned into, pairs of guard and check.
        source: the generated Python.
    """

    guards: tuple[Guard, ...]
    checks: tuple[tuple[Guard, Check], ...]
    source: str

    def explain(self, L: Scope, *, all: bool = False) -> Explanation | None:
        """Say which guard fails first and why; None exactly where the check holds.

        With ``all`` every guard is looked at, and ``failures`` lists those that do not hold.
        """
        G = self._globals
        values: dict[Source, Any] = {}
        failures: list[Explanation] = []
        for guard, check in self.checks:
            found = [_lookup(source, L, G, values) for source in check.sources]
            if not test_of(check)(L, G, found):
                failures.append(explain_failure(guard, check, found, L, G))
                if not all:
                    break
        if not failures:
            if self(L):
                return None
            failures.append(
                Explanation("CHECK", "all guards together", "to hold", "they hold only one by one")
            )
        first = failures[0]
        return first if not all else _with_failures(first, tuple(failures))

    @property
    def death(self) -> Death:
        """Tell when an object died without which the guards can never hold again."""
        emitter: Emitter = self.__dict__["_emitter"]
        return emitter.death

    @property
    def _globals(self) -> Scope:
        scope: Scope = self.func.__globals__["G"]
        return scope

    def __repr__(self) -> str:
        return f"<CheckFunction of {len(self.guards)} guards>"

    def __reduce__(self) -> Any:
        raise TypeError("a check function cannot be pickled: save its guards with guards.dumps")


def _with_failures(first: Explanation, failures: tuple[Explanation, ...]) -> Explanation:
    return Explanation(
        first.code, first.expression, first.expected, first.actual, first.user_location, failures
    )


def _lookup(source: ValueSource, L: Scope, G: Scope, known: dict[Source, Any]) -> Any:
    links: list[ChainedValueSource] = []
    link: Source = source
    while link not in known and isinstance(link, ChainedValueSource):
        links.append(link)
        link = link.base
    if link not in known:
        known[link] = link.lookup(L, G) if isinstance(link, ValueSource) else None
    value = known[link]
    for chained in reversed(links):
        value = value if isinstance(value, Absent) else chained.read(value)
        known[chained] = value
    return value


def test_of(check: Check) -> Callable[[Scope, Scope, Sequence[Any]], bool]:
    """Give a function that tests one check by itself on values that were fetched already."""
    known = check.__dict__.get("_test")
    if known is not None:
        return known  # type: ignore[no-any-return]
    emitter = Emitter()
    names = [f"v{i}" for i in range(len(check.sources))]
    condition = check.condition(names, emitter)
    lines = [*emitter.take_statements(), f"return bool({condition})"]
    body = "\n    ".join(lines)
    parameters = ", ".join(["L", "G", *names])
    function = emitter.compile(f"def test({parameters}):\n    {body}\n", "test", "<guard>")

    def test(L: Scope, G: Scope, values: Sequence[Any]) -> bool:
        if any(isinstance(value, Absent) for value in values):
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
    """
    builder = GuardBuilder(L, G)
    for guard in sorted(dict.fromkeys(guards)):
        guard.create(builder)
        guard._checks = tuple(check for made, check in builder.checks if made is guard)
    return assemble(builder)


def assemble(builder: GuardBuilder) -> CheckFunction:
    """Make the check function of what a builder has collected."""
    writer = _Writer(builder)
    for _, check in builder.checks:
        writer.write(check)
    source = writer.finish()
    function = writer.emitter.compile(source, "check", "<guards>")
    check_function = CheckFunction(function)
    check_function.source = source
    check_function.checks = tuple(builder.checks)
    check_function.guards = tuple(dict.fromkeys(guard for guard, _ in builder.checks))
    check_function.__dict__["_emitter"] = writer.emitter  # it holds the weak references
    return check_function


class _Writer:
    """Write the body of one check function: each source fetched once, each check one line."""

    def __init__(self, builder: GuardBuilder) -> None:
        self.emitter = Emitter()
        self.emitter.namespace["G"] = builder.G
        self._builder = builder
        self._variables: dict[Source, str] = {}
        self._lines: list[str] = []
        # Torch's check of many tensors takes each tensor once, so the second source of one and
        # the same tensor goes into another call.
        self._tensor_calls: list[dict[int, tuple[str, TensorCheck]]] = []
        self._classes_checked: set[str] = set()

    def write(self, check: Check) -> None:
        names = [self._variable(source) for source in check.sources]
        if isinstance(check, TensorCheck):
            self._collect(names[0], check)
            return
        condition = check.condition(names, self.emitter)
        self._lines += self.emitter.take_statements()
        if condition != "True":
            self._lines.append(f"if not ({condition}): return False")
        if isinstance(check, TypeCheck):
            cls = check.cls()
            if cls is not None:
                self.emitter.prove_type(names[0], cls)

    def _variable(self, source: ValueSource) -> str:
        links: list[ValueSource] = []
        link: Source = source
        while link not in self._variables:
            links.append(link)  # type: ignore[arg-type]
            if not isinstance(link, ChainedValueSource):
                break
            link = link.base
        for link in reversed(links):
            base, example = "", None
            if isinstance(link, ChainedValueSource):
                base = self._variables[link.base]
                example = self._builder.lookup(link.base)  # type: ignore[arg-type]
            name = f"v{len(self._variables)}"
            self._lines.append(f"{name} = {link.emit(base, self.emitter, example)}")
            self._variables[link] = name
        return self._variables[source]

    def _collect(self, name: str, check: TensorCheck) -> None:
        tensor = self._builder.lookup(check.sources[0])
        if is_heap_type(type(tensor)) and name not in self._classes_checked:
            # Torch compares the address of the class, which a later class could get.
            self._classes_checked.add(name)
            if type_name(type(tensor)) not in ("torch.Tensor", "torch.nn.parameter.Parameter"):
                test = self.emitter.is_type(name, type(tensor))
                self._lines.append(f"if not ({test}): return False")
        for call in self._tensor_calls:
            if id(tensor) not in call:
                call[id(tensor)] = (name, check)
                return
        self._tensor_calls.append({id(tensor): (name, check)})

    def finish(self) -> str:
        for call in self._tensor_calls:
            names = [name for name, _ in call.values()]
            checks = [check for _, check in call.values()]
            if len(names) == 1:
                condition = checks[0].condition(names, self.emitter)
            else:
                condition = self._call_for_many(names, checks)
            self._lines.append(f"if not {condition}: return False")
        body = "\n        ".join(self._lines) or "pass"
        return (
            "def check(L):\n"
            "    try:\n"
            f"        {body}\n"
            "    except Exception:\n"
            "        return False\n"
            "    return True\n"
        )

    def _call_for_many(self, names: list[str], checks: list[TensorCheck]) -> str:
        tensors = [self._builder.lookup(check.sources[0]) for check in checks]
        guards = private.tensor_guards(
            tensors, [check.sizes for check in checks], [check.strides for check in checks]
        )
        together = self.emitter.constant(guards.check, "tensors_check")
        one_by_one = functools.partial(_hold_one_by_one, checks)
        apart = self.emitter.constant(one_by_one, "tensors_one_by_one")
        arguments = ", ".join(names)
        return f"({together}({arguments}) or {apart}({arguments}))"


def _hold_one_by_one(checks: Sequence[TensorCheck], *tensors: object) -> bool:
    """Test tensors of which two may be the same object, which torch's common check refuses."""
    if len({id(tensor) for tensor in tensors}) == len(tensors):
        return False
    return all(check.holds(tensor) for check, tensor in zip(checks, tensors, strict=True))
