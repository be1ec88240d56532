"""Write the Python of a check function: each source fetched once, each check one line.

Two things make it fast. Values that lie side by side, in one dict or one module, are fetched
together, and checks of one kind on many values are made together, by comparing addresses.
"""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from guards import _fetch
from guards import _torch_private as private
from guards._checks import Check, TypeCheck
from guards._constants import same_constant
from guards._emit import AbsentValueError, Emitter
from guards._fetch import Absent
from guards._source import Source
from guards._tensor_checks import TensorCheck
from guards._value_sources import ChainedValueSource, ValueSource

if TYPE_CHECKING:
    from guards._builder import GuardBuilder

__all__ = ["Writer"]

# From so many values on it pays to check them together.
_WORTH_IT = {
    "tensors": 2,
    "identity": 8,
    "type": 256,
    "constant": 24,
    "immutable": 24,
    "length": 16,
}


# Fewer than this are fetched one by one, and checked with those of other tables.
_WORTH_A_TABLE = 8


class Writer:
    """Write one check function for what a builder has collected.

    Attributes:
        emitter: what the function refers to.
    """

    def __init__(self, builder: GuardBuilder) -> None:
        self.emitter = Emitter()
        self.emitter.namespace["G"] = builder.G
        self._builder = builder
        self._variables: dict[Source, str] = {}
        self._tables: dict[tuple[Source | None, str], str] = {}
        self._bases: set[Source] = set()
        self._lines: list[str] = []
        self._tensors_seen: Counter[int] = Counter()

    def write(self, checks: Sequence[Check]) -> str:
        """Give the definition of the function ``check``."""
        self._survey(checks)
        alone, groups = self._plan(checks)
        for check in alone:
            self._write_alone(check)
        for group in groups:
            getattr(self, f"_write_{group.kind}")(group, self._values(group))
        body = "\n        ".join(self._lines) or "pass"
        return (
            "def check(L):\n"
            "    try:\n"
            f"        {body}\n"
            "    except Exception:\n"
            "        return False\n"
            "    return True\n"
        )

    def _plan(self, checks: Sequence[Check]) -> tuple[list[Check], list[_Group]]:
        """Sort the checks into those that are made alone and those that are made together.

        Together go checks of one kind on values without parts to check: best on values of one
        table, which are fetched together too, or else on values from anywhere.
        """
        alone: list[Check] = []
        by_table: dict[Any, _Group] = {}
        for check in checks:
            pattern = check.pattern()
            if pattern is None or (check.sources[0] in self._bases and pattern[0] != "tensors"):
                alone.append(check)
                continue
            kind, expected = pattern
            place = self._place_of(check.sources[0])
            turn = self._turn(check) if kind == "tensors" else 0
            key = (kind, turn, *((None, None) if place is None else place[:2]))
            group = by_table.setdefault(key, _Group(kind, place is not None))
            group.members.append((check, check.sources[0], expected))
        scattered: dict[tuple[str, int], _Group] = {}
        groups: list[_Group] = []
        for (kind, turn, *_), group in by_table.items():
            if group.one_table and len(group.members) >= max(_WORTH_IT[kind], _WORTH_A_TABLE):
                groups.append(group)
            else:
                rest = scattered.setdefault((kind, turn), _Group(kind, False))
                rest.members += group.members
        for group in scattered.values():
            if len(group.members) >= _WORTH_IT[group.kind]:
                groups.append(group)
            else:
                alone += [check for check, _, _ in group.members]
        order = {id(check): number for number, check in enumerate(checks)}
        alone.sort(key=lambda check: order[id(check)])
        return alone, groups

    def _place_of(self, source: ValueSource) -> tuple[Source | None, str, Any] | None:
        if source in self._bases:
            return None
        place = source.table(self._example_of_base(source))
        return None if place is None else (_base_of(source), *place)

    def _turn(self, check: Check) -> int:
        # Torch's check of many tensors takes each tensor once, so a second check of one and the
        # same tensor goes into another call.
        tensor = id(self._builder.lookup(check.sources[0]))
        self._tensors_seen[tensor] += 1
        return self._tensors_seen[tensor]

    def _values(self, group: _Group) -> str:
        """Write the tuple of a group's values."""
        if not group.one_table:
            return f"({', '.join(self._variable(s) for _, s, _ in group.members)},)"
        first = group.members[0][1]
        base, example = _base_of(first), self._example_of_base(first)
        variable = "" if base is None else self._variable(base)  # type: ignore[arg-type]
        kind = first.table(example)[0]  # type: ignore[index]
        keys = [source.table(example)[1] for _, source, _ in group.members]  # type: ignore[index]
        get = self.emitter.constant(operator.itemgetter(*keys), f"get_{len(keys)}_items")
        return f"{get}({self._table(base, variable, kind, example)})"

    def _refuse_unless(self, condition: str) -> None:
        self._lines.append(f"if not ({condition}): return False")

    # ── fetching ────────────────────────────────────────────────────────────────────────────────

    def _survey(self, checks: Sequence[Check]) -> None:
        """Find out which sources others are reached through."""
        seen: set[Source] = set()
        for check in checks:
            for source in check.sources:
                link: Source = source
                while link not in seen and isinstance(link, ChainedValueSource):
                    seen.add(link)
                    self._bases.add(link.base)
                    link = link.base

    def _example_of_base(self, source: ValueSource) -> Any:
        base = _base_of(source)
        return None if base is None else self._builder.lookup(base)  # type: ignore[arg-type]

    def _variable(self, source: ValueSource) -> str:
        links: list[ValueSource] = []
        link: Source = source
        while link not in self._variables:
            links.append(link)  # type: ignore[arg-type]
            if not isinstance(link, ChainedValueSource):
                break
            link = link.base
        for link in reversed(links):
            self._fetch(link)
        return self._variables[source]

    def _new_variable(self, source: Source) -> str:
        name = self._variables[source] = f"v{len(self._variables)}"
        return name

    def _fetch(self, source: ValueSource) -> None:
        example = self._example_of_base(source)
        base = "" if _base_of(source) is None else self._variables[_base_of(source)]  # type: ignore[index]
        place = source.table(example)
        if place is None:
            code = source.emit(base, self.emitter, example)
            self._lines.append(f"{self._new_variable(source)} = {code}")
            return
        kind, key = place
        table = self._table(_base_of(source), base, kind, example)
        self._lines.append(f"{self._new_variable(source)} = {table}[{key!r}]")

    def _table(self, owner: Source | None, base: str, kind: str, example: Any) -> str:
        if owner is None:
            return kind  # L or G
        known = self._tables.get((owner, kind))
        if known is not None:
            return known
        cls = type(example)
        emitter = self.emitter
        if kind == "children":
            code = f"{emitter.constant(_children, 'children')}({base})"
        elif kind == "items":
            if emitter.has_type(base, cls):
                self._tables[owner, kind] = base
                return base
            slow = f"{emitter.constant(_Items, 'items')}({base})"
            code = f"{base} if {emitter.is_type(base, cls)} else {slow}"
        elif emitter.has_type(base, cls):
            code = f"{base}.{kind}"
        else:
            slow = f"{emitter.constant(_module_table, 'module_table')}({base}, {kind!r})"
            code = f"{base}.{kind} if {emitter.is_type(base, cls)} else {slow}"
        name = self._tables[owner, kind] = f"{base}_{kind.strip('_')}"
        self._lines.append(f"{name} = {code}")
        return name

    # ── checking ────────────────────────────────────────────────────────────────────────────────

    def _write_alone(self, check: Check) -> None:
        names = [self._variable(source) for source in check.sources]
        condition = check.condition(names, self.emitter)
        self._lines += self.emitter.take_statements()
        if condition != "True":
            self._refuse_unless(condition)
        if isinstance(check, TypeCheck):
            cls = check.cls()
            if cls is not None:
                self.emitter.prove_type(names[0], cls)

    def _write_identity(self, group: _Group, values: str) -> None:
        self._lines.append(f"values = {values}")
        self._refuse_unless(self.emitter.same_objects(group.expected(), "objects"))

    def _write_type(self, group: _Group, values: str) -> None:
        self._lines.append(f"types = (*map(type, {values}),)")
        self._refuse_unless(self.emitter.same_objects(group.expected(), "known_types", "types"))

    def _write_constant(self, group: _Group, values: str) -> None:
        emitter = self.emitter
        wanted = group.expected()
        self._lines.append(f"values = {values}")
        expected = emitter.constant(wanted, "expected")
        self._lines.append(f"if not ({emitter.same_objects(wanted, 'constants')}):")
        self._lines.append("    types = (*map(type, values),)")
        same_types = emitter.same_objects(tuple(map(type, wanted)), "constant_types", "types")
        self._lines.append(f"    if not ({same_types} and values == {expected}): return False")

    def _write_immutable(self, group: _Group, values: str) -> None:
        emitter = self.emitter
        wanted = group.expected()
        self._lines.append(f"values = {values}")
        same = emitter.same_objects(wanted, "constants")
        expected = emitter.constant(wanted, "expected")
        equal = f"all(map({emitter.constant(same_constant, 'same_constant')}, values, {expected}))"
        self._refuse_unless(f"{same} or {equal}")

    def _write_length(self, group: _Group, values: str) -> None:
        emitter = self.emitter
        kinds = tuple(cls for cls, _ in group.expected())
        lengths = tuple(length for _, length in group.expected())
        self._lines += [f"values = {values}", "types = (*map(type, values),)"]
        same_types = emitter.same_objects(kinds, "known_types", "types")
        expected = emitter.constant(lengths, "lengths")
        checks = [check for check, _, _ in group.members]
        apart = emitter.constant(functools.partial(_have_lengths, checks), "have_lengths")
        # Together where all are of the classes they were; ``len`` runs none of their code then.
        together = f"({same_types} and (*map(len, values),) == {expected})"
        self._refuse_unless(f"{together} or {apart}(values)")

    def _write_tensors(self, group: _Group, values: str) -> None:
        emitter = self.emitter
        checks = [check for check, _, _ in group.members]
        tensors = [self._builder.lookup(source) for _, source, _ in group.members]
        emitter.keep_watching(type(tensor) for tensor in tensors)
        guards = private.tensor_guards(
            tensors, [c.sizes for c in checks], [c.strides for c in checks]
        )
        together = emitter.constant(guards.check, "tensors_check")
        apart = emitter.constant(functools.partial(_hold_one_by_one, checks), "tensors_one_by_one")
        if group.one_table:
            self._lines.append(f"values = {values}")
            values = "*values"
        else:
            values = values.strip("(),")
        self._refuse_unless(f"{together}({values}) or {apart}({values})")


class _Group:
    """Checks of one kind that are made together; ``one_table`` where their values lie in one."""

    def __init__(self, kind: str, one_table: bool) -> None:
        self.kind = kind
        self.one_table = one_table
        self.members: list[tuple[Any, ValueSource, Any]] = []

    def expected(self) -> tuple[Any, ...]:
        return tuple(expected for _, _, expected in self.members)


def _base_of(source: Source) -> Source | None:
    return source.base if isinstance(source, ChainedValueSource) else None


def _have_lengths(checks: Sequence[Any], values: Sequence[object]) -> bool:
    return all(check.holds(value) for check, value in zip(checks, values, strict=True))


def _hold_one_by_one(checks: Sequence[TensorCheck], *tensors: object) -> bool:
    """Test tensors of which two may be the same object, which torch's common check refuses."""
    if len({id(tensor) for tensor in tensors}) == len(tensors):
        return False
    return all(check.holds(tensor) for check, tensor in zip(checks, tensors, strict=True))


# ── the careful ways, where a value is not of the class that it was ──────────────────────────────


class _Items:
    """Read entries of any value as ``GetItemSource`` does."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __getitem__(self, key: object) -> Any:
        found = _fetch.item(self._value, key)
        if type(found) is Absent:
            raise AbsentValueError
        return found


def _module_table(value: object, name: str) -> dict[str, Any]:
    table = _fetch.module_table(value, name)
    if table is None:
        raise AbsentValueError
    return table


def _children(value: object) -> list[Any]:
    children = _fetch.module_children(value)
    if children is None:
        raise AbsentValueError
    return children
