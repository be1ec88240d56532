"""Write the Python of a check function: each source fetched once, each check one line.

Values that lie side by side, in one dict or one module, are fetched together, and checks of one
kind on many values are made together, by comparing addresses. A value that one check alone is about
is fetched in the middle of that check.
"""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from guards import _fetch, _trees
from guards import _torch_private as private
from guards._checks import Check, TypeCheck
from guards._constants import same_constant
from guards._emit import AbsentValueError, Emitter, is_kept_anyway, may_change
from guards._fetch import Absent, is_a
from guards._plan import WORTH_FETCHING_TOGETHER, Group, Member, plan
from guards._source import Source
from guards._trees import Leaf, Table
from guards._value_sources import ChainedValueSource, ValueSource

if TYPE_CHECKING:
    from guards._builder import GuardBuilder

__all__ = ["Writer"]

# Reading the addresses of a tuple pays above so many values; below, each is compared by itself.
_MOST_ONE_BY_ONE = 12

_TABLES_OF_MODULES = ("_parameters", "_buffers", "_modules")
_REFUSES_UNLESS = re.compile(r"if not \((.*)\): return False")

# A condition that begins like this reads ``v`` there first, unless something in it is put off.
_READS_FIRST = ("v is ", "(v is ", "type(v) is ", "(type(v) is ", "tree_check(")
_PUTS_OFF = re.compile(r"\b(?:if|for|lambda)\b|:=")
_V = re.compile(r"\bv\b")


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
        self._bases: dict[Source, None] = {}
        self._uses: Counter[Source] = Counter()
        self._with_others: dict[Source, None] = {}
        self._siblings: dict[tuple[Source | None, str], list[ValueSource]] = {}
        self._lines: list[str] = []
        self._tensors_seen: Counter[int] = Counter()
        self._kept: dict[int, bool] = {}  # by id: the builder's values keep their classes

    def write(self, checks: Sequence[Check]) -> str:
        """Give the definition of the function ``check``."""
        self._survey(checks)
        can_be_node = self._can_be_node if _trees.can_be_made() else None
        alone, groups = plan(
            checks, self._bases.__contains__, self._place_of, self._turn_of_tensor, can_be_node
        )
        alone, tables = self._divide(alone)
        for check in alone:
            self._write_alone(check)
        for table in tables:
            self._write_table(table)
        for group in groups:
            if can_be_node is not None and group.kind in ("tensors", "nodes"):
                self._write_tree(group)
            else:
                getattr(self, f"_write_{group.kind}")(group, self._values(group))
        last = self._lines and self._in_the_end(self._lines.pop())
        body = "\n        ".join([*self._lines, last]) if last else "pass"
        first = [*self.emitter.used_often(body), *self.emitter.take_first()]
        often = "".join(f"    {line}\n" for line in first)
        return (
            f"def check(L):\n{often}"
            "    try:\n"
            f"        {body}\n"
            "    except Exception:\n"
            "        return False\n"
            + ("" if body.splitlines()[-1].strip().startswith("return ") else "    return True\n")
        )

    def _in_the_end(self, line: str) -> str:
        """Give what the last condition tells as the answer, where it is True or False."""
        found = _REFUSES_UNLESS.fullmatch(line)
        if found is None or not self._tells_truth(ast.parse(found[1], mode="eval").body):
            return line
        return f"return {found[1]}"

    def _tells_truth(self, condition: ast.expr) -> bool:
        if isinstance(condition, ast.BoolOp):
            return all(map(self._tells_truth, condition.values))
        if isinstance(condition, ast.Compare):
            return all(isinstance(op, (ast.Is, ast.IsNot)) for op in condition.ops)
        if isinstance(condition, ast.UnaryOp):
            return isinstance(condition.op, ast.Not)
        called = condition.func if isinstance(condition, ast.Call) else None
        return isinstance(called, ast.Name) and called.id in self.emitter.truths

    def _place_of(self, source: ValueSource) -> tuple[Source | None, str, Any] | None:
        if source in self._bases:
            return None
        place = source.table(self._example_of_base(source))
        return None if place is None else (_base_of(source), *place)

    def _turn_of_tensor(self, source: ValueSource) -> int:
        value = self._builder.lookup(source)
        if not is_a(value, torch.Tensor):
            return 1  # of guards that were saved, which have a tensor of their own
        tensor = id(value)
        self._tensors_seen[tensor] += 1
        return self._tensors_seen[tensor]

    def _values(self, group: Group) -> str:
        """Write the tuple of a group's values."""
        if not group.one_table:
            return f"({', '.join(self._value(m.source) for m in group.members)},)"
        return self._get([member.source for member in group.members])

    def _get(self, sources: Sequence[ValueSource]) -> str:
        """Write the tuple of several values of one table."""
        base, example = _base_of(sources[0]), self._example_of_base(sources[0])
        variable = "" if base is None else self._variable(base)  # type: ignore[arg-type]
        places: list[Any] = [source.table(example) for source in sources]
        keys = [key for _, key in places]
        get = self.emitter.constant(operator.itemgetter(*keys), f"get_{len(keys)}_items")
        return f"{get}({self._table(base, variable, places[0][0], example)})"

    def _refuse_unless(self, condition: str) -> None:
        self._lines.append(f"if not ({condition}): return False")

    # ── fetching ────────────────────────────────────────────────────────────────────────────────

    def _survey(self, checks: Sequence[Check]) -> None:
        """Find out which sources others are reached through."""
        seen: set[Source] = set()
        for check in checks:
            for source in check.sources:
                self._uses[source] += 1
                if len(check.sources) > 1:
                    self._with_others[source] = None
                link: Source = source
                while link not in seen and isinstance(link, ChainedValueSource):
                    seen.add(link)
                    self._bases[link.base] = None
                    link = link.base
        for needed in {**self._bases, **self._with_others}:
            if isinstance(needed, ValueSource):
                place = needed.table(self._example_of_base(needed))
                if place is not None:
                    self._siblings.setdefault((_base_of(needed), place[0]), []).append(needed)

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
        place = source.table(self._example_of_base(source))
        siblings = [] if place is None else self._siblings.get((_base_of(source), place[0]), [])
        if len(siblings) >= WORTH_FETCHING_TOGETHER and source in siblings:
            for part in _in_parts(siblings):
                values = self._get(part)
                names = [self._new_variable(sibling) for sibling in part]
                self._lines.append(f"{', '.join(names)}, = {values}")
            return
        code = self._code_of(source)
        self._lines.append(f"{self._new_variable(source)} = {code}")

    def _code_of(self, source: ValueSource) -> str:
        """Write how to fetch a value whose base has been fetched."""
        example = self._example_of_base(source)
        base = "" if _base_of(source) is None else self._variables[_base_of(source)]  # type: ignore[index]
        place = source.table(example)
        if place is None:
            return source.emit(base, self.emitter, example)
        kind, key = place
        return f"{self._table(_base_of(source), base, kind, example)}[{key!r}]"

    def _used_once(self, source: ValueSource) -> bool:
        return self._uses[source] == 1 and source not in self._bases

    def _value(self, source: ValueSource) -> str:
        """Write the value: its variable, or how to fetch what is used in one place only."""
        if not self._used_once(source):
            return self._variable(source)
        base = _base_of(source)
        if base is not None:
            self._variable(base)  # type: ignore[arg-type]
        return self._code_of(source)

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
        if kind in _TABLES_OF_MODULES:
            self._refuse_unless(emitter.is_type(name, dict))
        return name

    # ── checking ────────────────────────────────────────────────────────────────────────────────

    def _divide(self, alone: list[Check]) -> tuple[list[Check], list[_Table]]:
        """Set apart the checks whose values are side by side with those of many others."""
        tables: dict[tuple[Source | None, str], _Table] = {}
        rest = []
        for check in alone:
            source = check.sources[0] if len(check.sources) == 1 else None
            place = None
            if source is not None and source not in self._with_others:
                place = self._place_of(source)
            if source is None or place is None:
                rest.append(check)
            else:
                tables.setdefault(place[:2], {}).setdefault(source, []).append(check)
        many = []
        for table in tables.values():
            checks = [check for checks in table.values() for check in checks]
            # A test such as ``L['x'] is True`` needs no variable, which the others do.
            short = all((check.pattern() or ("", None))[0] == "identity" for check in checks)
            if len(table) >= WORTH_FETCHING_TOGETHER * (2 if short else 1):
                many.append(table)
            else:
                rest += checks
        return rest, many

    def _write_table(self, table: _Table) -> None:
        """Fetch the values of one table and check each."""
        for part in _in_parts([*table]):
            names = [f"w{number}" for number in range(len(part))]
            self._lines.append(f"{', '.join(names)}, = {self._get(part)}")
            for name, source in zip(names, part, strict=True):
                for check in table[source]:
                    self._write_condition(check, [name])

    def _write_condition(self, check: Check, names: list[str]) -> None:
        condition = check.condition(names, self.emitter)
        self._lines += self.emitter.take_statements()
        if condition != "True":
            self._refuse_unless(condition)

    def _write_alone(self, check: Check) -> None:
        if len(check.sources) == 1 and self._used_once(check.sources[0]):
            self._write_in_passing(check, self._value(check.sources[0]))
            return
        names = [self._variable(source) for source in check.sources]
        self._write_condition(check, names)
        if isinstance(check, TypeCheck):
            cls = check.cls()
            if cls is not None:
                self.emitter.prove_type(names[0], cls)

    def _write_in_passing(self, check: Check, value: str) -> None:
        """Write a check of a value that nothing else is about; ``v`` names it, if need be."""
        condition = check.condition(["v"], self.emitter)
        statements = self.emitter.take_statements()
        plain = condition.startswith(_READS_FIRST) and not _PUTS_OFF.search(condition)
        if statements or not plain:
            self._lines += [f"v = {value}", *statements]
            if condition != "True":
                self._refuse_unless(condition)
            return
        if len(_V.findall(condition)) > 1:
            value = f"v := {value}" if "(v) " in condition[:12] else f"(v := {value})"
        self._refuse_unless(_V.sub(lambda _: value, condition, 1))

    def _write_same(self, group: Group, values: str) -> None:
        emitter = self.emitter
        objects = group.expected("identity", "single")
        scalars = group.expected("constant")
        others = group.expected("immutable")
        self._lines.append(f"values = {values}")
        same = emitter.same_objects(group.expected(), "objects")
        if not scalars and not others:
            self._refuse_unless(same)
            return
        # Constants are most often the very same objects; else they are compared by value.
        self._lines.append(f"if not ({same}):")
        within = len(self._lines)
        if objects:
            self._lines.append(f"same = values[:{len(objects)}]")
            self._refuse_unless(emitter.same_objects(objects, "objects", "same"))
        if scalars:
            end = len(objects) + len(scalars)
            self._lines.append(f"equal = values[{len(objects)}:{end}]")
            self._lines.append("types = (*map(type, equal),)")
            known = emitter.same_objects(tuple(map(type, scalars)), "constant_types", "types")
            self._refuse_unless(f"{known} and equal == {emitter.constant(scalars, 'expected')}")
        if others:
            equal = emitter.constant(same_constant, "same_constant")
            rest = f"values[{len(group.members) - len(others)}:]"
            expected = emitter.constant(others, "expected")
            self._refuse_unless(f"all(map({equal}, {rest}, {expected}))")
        self._lines[within:] = [f"    {line}" for line in self._lines[within:]]

    def _write_type(self, group: Group, values: str) -> None:
        self._lines.append(f"types = (*map(type, {values}),)")
        self._refuse_unless(self.emitter.same_objects(group.expected(), "known_types", "types"))

    def _write_keys(self, group: Group, values: str) -> None:
        emitter = self.emitter
        # All first keys, all second keys, and so on; an error where a dict has more or fewer.
        columns = tuple(zip(*group.expected(), strict=True))
        names = [f"keys_{number}" for number in range(len(columns))]
        self._lines += [f"values = {values}", "types = (*map(type, values),)"]
        self._refuse_unless(
            emitter.same_objects((dict,) * len(group.members), "known_types", "types")
        )
        self._lines.append(f"{', '.join(names)}, = zip(*values, strict=True)")
        tests = [
            emitter.same_objects(column, "known_keys", name)
            for name, column in zip(names, columns, strict=True)
        ]
        checks = [member.check for member in group.members]
        apart = emitter.constant(functools.partial(_hold_each, checks), "have_keys")
        self._refuse_unless(f"{' and '.join(tests)} or {apart}(values)")

    def _write_tree(self, group: Group) -> None:
        """Write checks that one of torch's trees of guards makes together."""
        parts: list[Leaf | Table] = []
        asked: list[str] = []
        again: list[list[Member]] = []  # the members of each part
        place_of: dict[tuple[str, str], int] = {}
        unsure: dict[str, None] = {}
        for member in group.members:
            leaf = Leaf(member.check, self._example_of(member))
            entry = self._entry_of(member.source) if self._used_once(member.source) else None
            if entry is not None and entry.place not in place_of:
                place_of[entry.place] = len(parts)
                parts.append(Table({}, entry.cls, entry.place[1]))
                asked.append(entry.place[0])
                again.append([])
                if entry.unless_sure:
                    unsure[entry.unless_sure] = None
            place = -1 if entry is None else place_of[entry.place]
            table = parts[place] if entry is not None else leaf
            if entry is None or isinstance(table, Leaf) or entry.key in table.leaves:
                parts.append(leaf)
                asked.append(self._value(member.source))
                again.append([member])
            else:
                table.leaves[entry.key] = leaf
                again[place].append(member)
        value = asked[0] if len(asked) == 1 else f"({', '.join(asked)})"
        tree, by_address = _trees.tree_of(parts)
        test = self.emitter.ask_tree(tree, group.kind, value)
        for known in by_address:
            self.emitter.ends_with(known, self.emitter.name_of_tree(tree, group.kind))
        if group.kind == "nodes":
            plain = dict.fromkeys(
                self.emitter.still_plain(member.expected, member.check.reads)
                for member in group.members
                if member.expected is not None
            )
            test = " and ".join([*filter(None, plain), test])
        if unsure or group.kind == "nodes":
            checks = [member.check for members in again for member in members]
            each = self.emitter.truth(functools.partial(_hold_each, checks), "hold_one_by_one")
            look_up = functools.partial(_look_up, [m.source for members in again for m in members])
            values = f"{self.emitter.constant(look_up, 'look_up')}(L, G)"
            # torch looks into a dict alone; into another mapping Python does, value by value.
            sure = f"not ({' and '.join(unsure)}) and " if group.kind == "tensors" else ""
            test += f" or {sure}{each}({values})"
        self._refuse_unless(test)

    def _write_tensors(self, group: Group, values: str) -> None:
        """Write the check of tensors in torch's check of many, where there can be no tree."""
        emitter = self.emitter
        checks = [member.check for member in group.members]
        tensors = [self._example_of(member) for member in group.members]
        guards = private.tensor_guards(
            tensors, [c.sizes for c in checks], [c.strides for c in checks]
        )
        together = emitter.constant(guards.check, "tensors_check")
        apart = emitter.constant(functools.partial(_hold_one_by_one, checks), "tensors_one_by_one")
        each = emitter.constant(functools.partial(_hold_each, checks), "tensors_each")
        modes = f"{emitter.constant(private.torch_function_modes, 'function_modes')}()"
        classes = list(dict.fromkeys(map(type, tensors)))
        self._lines.append(f"values = {values}")
        if len(tensors) > _MOST_ONE_BY_ONE:
            same = emitter.same_objects(tuple(tensors), "tensors", vital=False)
        else:
            known = [emitter.weakly(tensor, "tensor") for tensor in tensors]
            same = " and ".join(f"values[{i}] is {ref}" for i, ref in enumerate(known))
        others = " and ".join(
            emitter.is_type("value", cls).replace(" is ", " is not ") for cls in classes
        )
        # Of other tensors one may be nested, and torch's check of many would end the process.
        self._lines += [
            f"if not ({same} and {together}(*values)):",
            f"    if {modes}:",
            f"        if not {each}(values): return False",
            "    else:",
            "        for value in values:",
            f"            if {others} or value.is_nested: return False",
            f"        if not ({together}(*values) or {apart}(values)): return False",
        ]

    def _example_of(self, member: Member) -> Any:
        """Give the value that a check was made for, or one like it."""
        own = getattr(member.check, "example", None)
        return self._builder.lookup(member.source) if own is None else own

    def _can_be_node(self, cls: type | None) -> bool:
        """Tell whether a tree may know a class by its address."""
        if cls is None:
            return True
        changing = filter(may_change, type.__dict__["__mro__"].__get__(cls))
        return self._is_kept(cls) and all(map(self._is_kept, changing))

    def _entry_of(self, source: ValueSource) -> _Entry | None:
        """Say in which dict a value lies, and under which key."""
        base, example = _base_of(source), self._example_of_base(source)
        place = source.table(example)
        if place is None:
            return None
        kind, key = place
        known = self._tables.get((base, kind))
        emitter, cls = self.emitter, type(example)
        if kind in _TABLES_OF_MODULES and base is not None:
            if known is None and self._is_kept(cls):
                owner = self._variable(base)  # type: ignore[arg-type]
                return _Entry((owner, kind), key, cls, emitter.is_type(owner, cls))
        elif kind == "children" or (kind == "items" and cls is not dict):
            return None
        owner = "" if base is None else self._variable(base)  # type: ignore[arg-type]
        table = self._table(base, owner, kind, example)
        sure = kind in _TABLES_OF_MODULES or emitter.has_type(table, dict)
        return _Entry((table, ""), key, None, "" if sure else emitter.is_type(table, dict))

    def _is_kept(self, cls: type) -> bool:
        known = self._kept.get(id(cls))
        if known is None:
            known = self._kept[id(cls)] = is_kept_anyway(cls)
        return known


class _Entry(NamedTuple):
    """A key in a dict: the variable of the dict, or of a module and the dict's name there.

    Unless ``unless_sure`` holds, the dict or the module may be one of another class.
    """

    place: tuple[str, str]
    key: Any
    cls: type | None
    unless_sure: str


_Table = dict[ValueSource, list[Check]]


def _in_parts(sources: list[ValueSource], most: int = 100) -> list[list[ValueSource]]:
    """Divide what is fetched together: reading a local beyond the first 256 costs more."""
    size = -(-len(sources) // -(-len(sources) // most))
    return [sources[start : start + size] for start in range(0, len(sources), size)]


def _base_of(source: Source) -> Source | None:
    return source.base if isinstance(source, ChainedValueSource) else None


def _hold_each(checks: Sequence[Any], values: Sequence[object]) -> bool:
    return all(check.holds(value) for check, value in zip(checks, values, strict=True))


def _look_up(sources: Sequence[ValueSource], L: Any, G: Any) -> list[object]:
    known: dict[Source, Any] = {}
    return [source.lookup(L, G, known) for source in sources]


def _hold_one_by_one(checks: Sequence[Any], tensors: Sequence[object]) -> bool:
    """Test tensors of which two may be the same object, which torch's common check refuses."""
    return len({*map(id, tensors)}) < len(tensors) and _hold_each(checks, tensors)


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
