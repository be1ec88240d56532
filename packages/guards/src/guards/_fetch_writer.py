"""Write how the values of a check are fetched: each source once, those side by side together."""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from guards import _fetch
from guards._checks import Check, TypeCheck
from guards._emit import AbsentValueError, Emitter, is_kept_anyway
from guards._fetch import Absent
from guards._plan import WORTH_FETCHING_TOGETHER, Group
from guards._source import Source
from guards._value_sources import AttrSource, ChainedValueSource, ValueSource

if TYPE_CHECKING:
    from guards._builder import GuardBuilder

__all__ = ["Entry", "FetchWriter", "base_of", "in_parts"]

_TABLES_OF_MODULES = ("_parameters", "_buffers", "_modules")


class FetchWriter:
    """Write the lines that fetch values.

    Attributes:
        emitter: what the function refers to.
    """

    def __init__(self, builder: GuardBuilder) -> None:
        self.emitter = Emitter()
        self.emitter.namespace["G"] = builder.G
        self._builder = builder
        self._variables: dict[Source, str] = {}
        self._serial = 0  # of the next variable
        self._tables: dict[tuple[Source | None, str], str] = {}
        self._bases: dict[Source, None] = {}
        self._uses: Counter[Source] = Counter()
        self._with_others: dict[Source, None] = {}
        self._siblings: dict[tuple[Source | None, str], list[ValueSource]] = {}
        self._lines: list[str] = []
        self._types: dict[Source, TypeCheck] = {}  # to be made as soon as the value is fetched
        self._named: dict[Source, dict[str, None]] = {}  # attributes that lie in tables of modules
        self._named_in_trees: dict[Source, set[str]] = {}
        self._types_made: dict[int, TypeCheck] = {}
        self._kept: dict[int, bool] = {}  # by id: the builder's values keep their classes
        # By id too, since the checks keep their sources: what each base held, and its table.
        self._examples: dict[int, Any] = {}
        self._places: dict[int, tuple[str, Any] | None] = {}

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
                    self._note_named(link)
                    link = link.base
        for needed in {**self._bases, **self._with_others}:
            if isinstance(needed, ValueSource):
                place = self._table_of(needed)
                if place is not None:
                    self._siblings.setdefault((base_of(needed), place[0]), []).append(needed)
        for check in checks:
            several = not all(map(self._used_once, check.sources))
            if several and isinstance(check, TypeCheck) and check.cls() is not None:
                self._types.setdefault(check.sources[0], check)

    def _note_named(self, link: ChainedValueSource) -> None:
        """Note an attribute of a module that its tables hold: something else may hide it later."""
        if type(link) is AttrSource:
            place = self._table_of(link)
            if place is not None and place[0] in _TABLES_OF_MODULES:
                self._named.setdefault(link.base, {})[link.member] = None

    def _make_sure_of_names(self, source: ValueSource) -> None:
        """Write the test that nothing hides what is read from the tables of a module.

        Where something may, every check is made by itself, as `explain` makes it.
        """
        named = self._named.get(source)
        if named is None:
            return
        name, emitter = self._variables[source], self.emitter
        cls, members = type(self._builder.lookup(source)), list(named)
        apart = self._hold_apart()
        of_class = "" if emitter.has_type(name, cls) else emitter.is_type(name, cls)
        emitter.prove_type(name, cls)
        own = emitter.local("own")
        if len(members) > 2:
            known = emitter.constant(frozenset(members), "names_in_tables")
            tests, hidden = (
                [emitter.lacks(name, cls, members)],
                [f"{own}.keys().isdisjoint({known})"],
            )
        else:
            tests = [emitter.is_plain(name, cls, member) for member in members]
            hidden = [f"{member!r} not in {own}" for member in members]
        of_dict = f"type({own} := {name}.__dict__) is {emitter.constant(dict, 'type_dict')}"
        if plain := " and ".join(filter(None, tests)):
            before = " and ".join(filter(None, [of_class, plain]))
            self._lines.append(f"if not ({before}): return {apart}(L, G)")
        elif of_class:
            emitter.forget_type(name)  # a tree makes that test too
        test = " and ".join(filter(None, ["" if plain else of_class, of_dict, *hidden]))
        self._lines.append(_NamesLine(f"if not ({test}): return {apart}(L, G)"))
        self._lines[-1].owner = source  # type: ignore[attr-defined]

    def _hold_apart(self) -> str:
        look_up = [(check, check.sources) for _, check in self._builder.checks]
        name = self.emitter.constant_of(self, functools.partial(_hold_apart, look_up), "hold_apart")
        self.emitter.truths.add(name)
        return name

    def _told_by_tree(self, source: ValueSource, entry: Entry) -> bool:
        """Note what a tree tells of an attribute, and say whether something may hide it."""
        if type(source) is not AttrSource or entry.cls is None:
            return False
        self._named_in_trees.setdefault(source.base, set()).add(source.member)
        return True

    def _without_what_trees_tell(self, lines: Sequence[str]) -> list[str]:
        """Leave out the tests of names that trees make."""
        return [
            line
            for line in lines
            if type(line) is not _NamesLine
            or not self._named_in_trees.get(line.owner, set()).issuperset(self._named[line.owner])
        ]

    def _place_of(self, source: ValueSource) -> tuple[Source | None, str, Any] | None:
        if source in self._bases:
            return None
        place = self._table_of(source)
        return None if place is None else (base_of(source), *place)

    def _values(self, group: Group) -> str:
        """Write the tuple of a group's values."""
        if not group.one_table:
            return f"({', '.join(self._value(m.source) for m in group.members)},)"
        return self._get([member.source for member in group.members])

    def _get(self, sources: Sequence[ValueSource]) -> str:
        """Write the tuple of several values of one table."""
        base, example = base_of(sources[0]), self._example_of_base(sources[0])
        variable = "" if base is None else self._variable(base)  # type: ignore[arg-type]
        places: list[Any] = [self._table_of(source) for source in sources]
        keys = [key for _, key in places]
        get = self.emitter.constant(operator.itemgetter(*keys), f"get_{len(keys)}_items")
        return f"{get}({self._table(base, variable, places[0][0], example)})"

    def _refuse_unless(self, condition: str) -> None:
        self._lines.append(f"if not ({condition}): return False")

    def _example_of_base(self, source: ValueSource) -> Any:
        base = base_of(source)
        if base is None:
            return None
        known = self._examples.get(id(base), self)
        if known is self:
            known = self._examples[id(base)] = self._builder.lookup(base)
        return known

    def _table_of(self, source: ValueSource) -> tuple[str, Any] | None:
        if id(source) not in self._places:
            self._places[id(source)] = source.table(self._example_of_base(source))
        return self._places[id(source)]

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
        name = self._variables[source] = f"v{self._serial}"
        self._serial += 1
        return name

    def _fetch(self, source: ValueSource) -> None:
        place = self._table_of(source)
        siblings = [] if place is None else self._siblings.get((base_of(source), place[0]), [])
        if len(siblings) >= WORTH_FETCHING_TOGETHER and source in siblings:
            for part in in_parts(siblings):
                values = self._get(part)
                names = [self._new_variable(sibling) for sibling in part]
                self._lines.append(f"{', '.join(names)}, = {values}")
                for sibling in part:
                    self._make_sure_of_type(sibling)
                    self._make_sure_of_names(sibling)
            return
        code = self._code_of(source)
        self._lines.append(f"{self._new_variable(source)} = {code}")
        self._make_sure_of_type(source)
        self._make_sure_of_names(source)

    def _make_sure_of_type(self, source: ValueSource) -> None:
        """Write the check of a value's class, if there is one; what follows may rely on it."""
        check = self._types.pop(source, None)
        cls = None if check is None else check.cls()
        if check is not None and cls is not None:
            self._types_made[id(check)] = check
            name = self._variables[source]
            self._refuse_unless(check.condition([name], self.emitter))
            self.emitter.prove_type(name, cls)

    def _code_of(self, source: ValueSource) -> str:
        """Write how to fetch a value whose base has been fetched."""
        example = self._example_of_base(source)
        base = "" if base_of(source) is None else self._variables[base_of(source)]  # type: ignore[index]
        place = self._table_of(source)
        if place is None:
            code = self._in_own_dict(source, base, example)
            return code or source.emit(base, self.emitter, example)
        kind, key = place
        return f"{self._table(base_of(source), base, kind, example)}[{key!r}]"

    def _in_own_dict(self, source: ValueSource, base: str, example: Any) -> str:
        """Write how to fetch an attribute from an object's dict, if that is fetched anyhow.

        Asking the object takes longer where its class has a ``__getattr__``, as modules do.
        """
        if type(source) is not AttrSource or not source.lies_in_own_dict(example):
            return ""
        own = self._own_dict(source.base, base, example)
        if not own:
            return ""
        key, test = repr(source.member), self.emitter.is_plain(base, type(example), source.member)
        known = f"{test} and {key} in {own}" if test else f"{key} in {own}"
        return f"({own}[{key}] if {known} else {self.emitter.fetch(source, base)})"

    def _own_dict(self, owner: Source, base: str, example: Any) -> str:
        """Name the dict of an object whose class has a ``__getattr__``, if it is fetched anyhow."""
        cls = type(example)
        if not self.emitter.has_type(base, cls) or not isinstance(owner, ValueSource):
            return ""
        source = AttrSource(owner, "__dict__")
        if source not in self._uses and source not in self._bases:
            return ""
        if _fetch.class_attribute(cls, "__getattr__") is _fetch.MISSING:
            return ""
        if not _fetch.has_plain_dict(cls):
            return ""
        return self._table(source, self._variable(source), "items", _fetch.instance_dict(example))

    def _used_once(self, source: ValueSource) -> bool:
        return self._uses[source] == 1 and source not in self._bases

    def _value(self, source: ValueSource) -> str:
        """Write the value: its variable, or how to fetch what is used in one place only."""
        if not self._used_once(source):
            return self._variable(source)
        base = base_of(source)
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
        else:
            slow = f"{emitter.constant(_module_table, 'module_table')}({base}, {kind!r})"
            own = self._own_dict(owner, base, example)
            test = emitter.is_plain(base, cls, kind)
            fast = f"{own}[{kind!r}]" if own else f"{base}.{kind}"
            test = " and ".join(filter(None, [test, own and f"{kind!r} in {own}"]))
            code = f"{fast} if {test} else {slow}" if test else fast
        name = self._tables[owner, kind] = f"{base}_{kind.strip('_')}"
        self._lines.append(f"{name} = {code}")
        if kind in _TABLES_OF_MODULES:
            self._refuse_unless(emitter.is_type(name, dict))
        return name

    def _entry_of(self, source: ValueSource) -> Entry | None:
        """Say in which dict a value lies, and under which key."""
        base, example = base_of(source), self._example_of_base(source)
        place = self._table_of(source)
        if place is None:
            return None
        kind, key = place
        known = self._tables.get((base, kind))
        emitter, cls = self.emitter, type(example)
        if kind in _TABLES_OF_MODULES and base is not None:
            if known is None and self._is_kept(cls):
                owner = self._variable(base)  # type: ignore[arg-type]
                sure = emitter.has_type(owner, cls)
                return Entry((owner, kind), key, cls, "" if sure else emitter.is_type(owner, cls))
        elif kind == "children" or (kind == "items" and cls is not dict):
            return None
        if base is None:  # Python looks a key up in any mapping as a tree does
            return Entry((kind, ""), key, None, "", of_any_mapping=True)
        owner = self._variable(base)  # type: ignore[arg-type]
        table = self._table(base, owner, kind, example)
        sure = kind in _TABLES_OF_MODULES or emitter.has_type(table, dict)
        return Entry((table, ""), key, None, "" if sure else emitter.is_type(table, dict))

    def _is_kept(self, cls: type) -> bool:
        known = self._kept.get(id(cls))
        if known is None:
            known = self._kept[id(cls)] = is_kept_anyway(cls)
        return known


class _NamesLine(str):
    """A line that tests that a module's own dict hides none of its tables' entries."""

    owner: Source


class Entry(NamedTuple):
    """A key in a dict: the variable of the dict, or of a module and the dict's name there.

    Unless ``unless_sure`` holds, the dict or the module may be one of another class.
    """

    place: tuple[str, str]
    key: Any
    cls: type | None
    unless_sure: str
    of_any_mapping: bool = False


def in_parts(sources: list[ValueSource], most: int = 100) -> list[list[ValueSource]]:
    """Divide what is fetched together: reading a local beyond the first 256 costs more."""
    size = -(-len(sources) // -(-len(sources) // most))
    return [sources[start : start + size] for start in range(0, len(sources), size)]


def base_of(source: Source) -> Source | None:
    """Give the source that a source is reached through."""
    return source.base if isinstance(source, ChainedValueSource) else None


# ── the careful ways, where a value is not of the class that it was ──────────────────────────────


class _Items:
    """Read entries of any value as ``GetItemSource`` does."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __contains__(self, key: object) -> bool:
        return False

    def __getitem__(self, key: object) -> Any:
        found = _fetch.item(self._value, key)
        if type(found) is Absent:
            raise AbsentValueError
        return found


def _hold_apart(checks: Sequence[tuple[Check, Any]], L: Any, G: Any) -> bool:
    """Make every check by itself, on values that are fetched with care."""
    from guards._compile import test_of

    values: dict[Source, Any] = {}
    return all(
        test_of(check)(L, G, [source.lookup(L, G, values) for source in sources])
        for check, sources in checks
    )


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
