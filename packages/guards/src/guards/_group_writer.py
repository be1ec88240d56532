"""Write checks that are made together: by comparing addresses, or in one of torch's trees."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from guards import _fetch, _trees
from guards import _torch_private as private
from guards._checks import Check
from guards._constants import same_constant
from guards._emit import CompiledLater, may_change
from guards._fetch import is_a
from guards._fetch_writer import FetchWriter
from guards._plan import Group, Member
from guards._source import Source
from guards._trees import Leaf, Table
from guards._value_sources import ValueSource

if TYPE_CHECKING:
    from guards._builder import GuardBuilder

__all__ = ["GroupWriter"]

# Reading the addresses of a tuple pays above so many values; below, each is compared by itself.
_MOST_ONE_BY_ONE = 12


class GroupWriter(FetchWriter):
    """Write the lines of groups of checks."""

    def __init__(self, builder: GuardBuilder) -> None:
        super().__init__(builder)
        self._tensors_seen: Counter[int] = Counter()

    def _turn_of_tensor(self, source: ValueSource) -> int:
        value = self._builder.lookup(source)
        if not is_a(value, torch.Tensor):
            return 1  # of guards that were saved, which have a tensor of their own
        tensor = id(value)
        self._tensors_seen[tensor] += 1
        return self._tensors_seen[tensor]

    def _can_be_node(self, cls: type | None) -> bool:
        """Tell whether a tree may know a class by its address."""
        if cls is None:
            return True
        changing = filter(may_change, type.__dict__["__mro__"].__get__(cls))
        return self._is_kept(cls) and all(map(self._is_kept, changing))

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

    def _write_set(self, group: Group, values: str) -> None:
        self._write_keys(group, values, set)

    def _write_frozenset(self, group: Group, values: str) -> None:
        self._write_keys(group, values, frozenset)

    def _write_keys(self, group: Group, values: str, cls: type = dict) -> None:
        emitter = self.emitter
        # All first keys, all second keys, and so on; an error where a dict has more or fewer.
        columns = tuple(zip(*group.expected(), strict=True))
        names = [f"keys_{number}" for number in range(len(columns))]
        self._lines += [f"values = {values}", "types = (*map(type, values),)"]
        self._refuse_unless(
            emitter.same_objects((cls,) * len(group.members), "known_types", "types")
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
        classes: list[type | None] = []  # of which each part must be, for the tree to tell
        for member in group.members:
            leaf = Leaf(member.check, self._example_of(member))
            entry = self._entry_of(member.source) if self._used_once(member.source) else None
            if entry is not None and entry.place not in place_of:
                place_of[entry.place] = len(parts)
                parts.append(Table({}, entry.cls, entry.place[1], entry.of_any_mapping, []))
                asked.append(entry.place[0])
                again.append([])
                classes.append((entry.cls or dict) if entry.unless_sure else None)
                if entry.unless_sure:
                    unsure[entry.unless_sure] = None
            place = -1 if entry is None else place_of[entry.place]
            table = parts[place] if entry is not None else leaf
            if entry is None or isinstance(table, Leaf) or entry.key in table.leaves:
                parts.append(leaf)
                asked.append(self._value(member.source))
                again.append([member])
                classes.append(None)
            else:
                table.leaves[entry.key] = leaf
                if self._told_by_tree(member.source, entry):
                    table.bare.append(entry.key)
                again[place].append(member)
        value = asked[0] if len(asked) == 1 else f"({', '.join(asked)})"
        sure = " and ".join(unsure)
        if len(unsure) > _MOST_ONE_BY_ONE:
            variable = self.emitter.local("asked")
            self._lines.append(f"{variable} = {self._as_fetched_last(asked) or value}")
            of_classes = self.emitter.truth(functools.partial(_are_of, classes), "are_of_classes")
            value, sure = variable, f"{of_classes}({variable})"
        tree, by_address = _trees.tree_of(parts)
        test = self.emitter.ask_tree(tree, group.kind, value)
        for known in {id(known): known for known in by_address}.values():
            self.emitter.ends_with(known, self.emitter.name_of_tree(tree, group.kind))
        vital = [m.expected for m in group.members if m.kind in ("identity", "type")]
        for each_vital in {id(expected): expected for expected in vital}.values():
            self.emitter.is_vital(each_vital)
        if group.kind == "nodes":
            plain = dict.fromkeys(
                self.emitter.still_plain(member.expected, member.check.reads)
                for member in group.members
                if member.check.reads is not None
            )
            test = " and ".join([*filter(None, plain), test])
        if group.kind == "nodes":
            test += f" or {self._written_apart([member.check for member in group.members])}(L)"
        elif unsure:
            checks = [member.check for members in again for member in members]
            each = self.emitter.truth(functools.partial(_hold_each, checks), "hold_one_by_one")
            look_up = functools.partial(_look_up, [m.source for members in again for m in members])
            values = f"{self.emitter.constant(look_up, 'look_up')}(L, G)"
            # torch looks into a dict alone; into another mapping Python does, value by value.
            test += f" or not ({sure}) and {each}({values})"
        bare = [tuple(part.bare) if isinstance(part, Table) else () for part in parts]
        if any(bare):
            hide = self.emitter.truth(functools.partial(_hide_any, bare), "hide_any")
            given = value if len(asked) > 1 else f"({value},)"
            test += f" or {hide}({given}) and {self._hold_apart()}(L, G)"
        self._refuse_unless(test)

    def _written_apart(self, checks: Sequence[Check]) -> str:
        """Name a function that makes checks one by one, for where a tree does not hold."""
        kept = self._lines, self._variables, self._tables, self._types
        self._lines, self._variables, self._tables, self._types = [], {}, {}, {}
        name = self.emitter.local("one_by_one")
        with self.emitter.apart():
            for check in checks:
                self._write_alone(check)
            text = self._function(name, self._lines)
        self._lines, self._variables, self._tables, self._types = kept
        made = CompiledLater(text, name, self.emitter.namespace)
        return self.emitter.truth(made, "hold_one_by_one")

    def _write_alone(self, check: Check) -> None:
        raise NotImplementedError

    def _function(self, name: str, lines: Sequence[str]) -> str:
        raise NotImplementedError

    def _as_fetched_last(self, names: Sequence[str]) -> str:
        """Take back the line before, and give what it fetched, where that was just these names."""
        into = f"{', '.join(names)}, = "
        if not self._lines or not self._lines[-1].startswith(into):
            return ""
        known = dict.fromkeys(names)
        self._variables = {s: name for s, name in self._variables.items() if name not in known}
        return self._lines.pop().removeprefix(into)

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


def _hide_any(bare: Sequence[Sequence[str]], values: Sequence[Any]) -> bool:
    """Tell whether a module has an entry of its own that hides one of its tables."""
    for names, value in zip(bare, values, strict=True):
        own = _fetch.instance_dict(value) if names else None
        if own is None and names:
            return True  # let the checks by themselves tell
        if own is not None and any(name in own for name in names):
            return True
    return False


def _hold_each(checks: Sequence[Any], values: Sequence[object]) -> bool:
    return all(check.holds(value) for check, value in zip(checks, values, strict=True))


def _are_of(classes: Sequence[type | None], values: Sequence[object]) -> bool:
    return all(
        cls is None or type(value) is cls for cls, value in zip(classes, values, strict=True)
    )


def _look_up(sources: Sequence[ValueSource], L: Any, G: Any) -> list[object]:
    known: dict[Source, Any] = {}
    return [source.lookup(L, G, known) for source in sources]


def _hold_one_by_one(checks: Sequence[Any], tensors: Sequence[object]) -> bool:
    """Test tensors of which two may be the same object, which torch's common check refuses."""
    return len({*map(id, tensors)}) < len(tensors) and _hold_each(checks, tensors)
