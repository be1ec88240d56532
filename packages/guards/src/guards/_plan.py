"""Plan a check function: which checks are made alone, and which together in one step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from guards._checks import Check
from guards._emit import is_kept_anyway
from guards._source import Source
from guards._value_sources import ValueSource

__all__ = ["WORTH_FETCHING_TOGETHER", "Group", "plan"]

# Checking values together has a price for the group, and saves something for each value: what a
# group is worth, in nanoseconds, so that one of less than nothing is not made.
_PRICE = {
    "tensors": 130,
    "nodes": 150,
    "same": 170,
    "type": 300,
    "keys": 800,
    "set": 800,
    "frozenset": 800,
}
_SAVES = {
    "tensors": 70,
    "nodes": 24,
    "contents": 19,
    "identity": 20,
    "single": 8,
    "constant": 9,
    "immutable": 9,
    "type": 0,
    "type made at run time": 14,
    "keys": 20,
    "set": 20,
    "frozenset": 20,
}
_GROUP_OF = {
    "contents": "nodes",
    "identity": "same",
    "single": "same",
    "constant": "same",
    "immutable": "same",
    "type made at run time": "type",
}

# What a tree can check beside what it is made for; so many are checked faster without it.
_NODES = ("identity", "single", "constant", "type")
_WORTH_A_GROUP_BESIDE_A_TREE = 48

# So many dicts have their keys compared faster column by column than in a tree.
_WORTH_COLUMNS = 300

# Fetching values of one table together is worth while from so many on; fewer are checked with
# those of other tables.
WORTH_FETCHING_TOGETHER = 10
_WORTH_A_TABLE = 8
_WORTH_A_TABLE_OF_TENSORS = 5

Place = tuple["Source | None", str, Any]


class Member(NamedTuple):
    """A check of a group: its pattern's kind, where its value comes from, what it expects."""

    kind: str
    check: Any
    source: ValueSource
    expected: Any


class Group:
    """Checks that are made together; ``one_table`` where their values lie in one."""

    def __init__(self, kind: str, one_table: bool) -> None:
        self.kind = kind
        self.one_table = one_table
        self.members: list[Member] = []

    def expected(self, *kinds: str) -> tuple[Any, ...]:
        """Give what the checks expect, each in its place; only of some kinds, if need be."""
        return tuple(m.expected for m in self.members if not kinds or m.kind in kinds)

    def is_worth_it(self) -> bool:
        """Tell whether checking them together costs less than checking each alone."""
        return sum(_SAVES[m.kind] for m in self.members) > _PRICE[self.kind]

    def sort(self) -> None:
        """Bring together what is compared in the same way."""
        self.members.sort(key=lambda m: (*_SAVES,).index(m.kind))


def plan(
    checks: Sequence[Check],
    is_base: Callable[[Source], bool],
    place_of: Callable[[ValueSource], Place | None],
    turn_of: Callable[[ValueSource], int],
    can_be_node: Callable[[type | None], bool] | None,
    is_used_once: Callable[[ValueSource], bool],
) -> tuple[list[Check], list[Group]]:
    """Sort the checks into those that are made alone and those that are made together.

    Together go checks of one kind on values without parts to check: best on values of one table,
    which are fetched together too, or else on values from anywhere.

    ``turn_of`` counts how often a tensor has come up: torch's check of many takes each tensor
    once, so a second check of one and the same tensor goes into another call.

    ``can_be_node`` tells of a class whether a tree can check its objects by what else it has. It is
    None where there are no trees; else all tensors go into one, and so do other such checks,
    wherever the values lie, and a few others of the same table, if ``is_used_once`` says that
    nothing else is about their values.
    """
    alone: list[Check] = []
    by_table: dict[Any, Group] = {}
    dicts = sum((check.pattern() or ("",))[0] == "keys" for check in checks)
    keys_in_tree = can_be_node is not None and dicts < _WORTH_COLUMNS
    for check in checks:
        pattern = check.pattern()
        if pattern is None or (pattern[0] != "tensors" and is_base(check.sources[0])):
            alone.append(check)
            continue
        kind, expected = pattern
        in_tree = kind == "keys" and keys_in_tree
        group_kind = "nodes" if in_tree else _GROUP_OF.get(kind, kind)
        cls = None if in_tree else expected
        if group_kind == "nodes" and (can_be_node is None or not can_be_node(cls)):
            alone.append(check)
            continue
        if kind == "identity" and is_kept_anyway(expected):
            kind = "single"
        elif kind == "type" and not is_kept_anyway(expected):
            kind = "type made at run time"
        source = check.sources[0]
        turn = 0
        if can_be_node is not None and group_kind in ("tensors", "nodes"):
            place = None
        else:
            place = place_of(source)
            turn = turn_of(source) if kind == "tensors" else 0
        if group_kind != "nodes":
            group_kind = _GROUP_OF.get(kind, kind)  # of what it is by now
        if kind in ("keys", "set", "frozenset") and not in_tree:
            turn = len(expected)
        key = (group_kind, turn, *((None, None) if place is None else place[:2]))
        group = by_table.setdefault(key, Group(group_kind, place is not None))
        group.members.append(Member(kind, check, source, expected))
    if can_be_node is not None:
        _put_into_tree(by_table, place_of, is_used_once)
    scattered: dict[tuple[str, int], Group] = {}
    groups: list[Group] = []
    for (kind, turn, *_), group in by_table.items():
        table = _WORTH_A_TABLE_OF_TENSORS if kind == "tensors" else _WORTH_A_TABLE
        if group.one_table and len(group.members) >= table and group.is_worth_it():
            groups.append(group)
        else:
            rest = scattered.setdefault((kind, turn), Group(kind, False))
            rest.members += group.members
    for group in scattered.values():
        if group.is_worth_it():
            groups.append(group)
        else:
            alone += [member.check for member in group.members]
    for group in groups:
        group.sort()
    order = {id(check): number for number, check in enumerate(checks)}
    alone.sort(key=lambda check: order[id(check)])
    return alone, groups


def _put_into_tree(
    by_table: dict[Any, Group],
    place_of: Callable[[ValueSource], Place | None],
    is_used_once: Callable[[ValueSource], bool],
) -> None:
    """Let the tree of tensors make a few checks of values beside them, instead of their groups.

    In the midst of Python's own steps a call of a tree takes longer, by as much as three of them.
    """
    # Not a tree of nodes: where that fails, each of its checks is made once more.
    tree = next((g for g in by_table.values() if g.kind == "tensors" and g.is_worth_it()), None)
    if tree is None:
        return
    tables = {place[:2] for m in tree.members if (place := place_of(m.source)) is not None}
    beside: dict[Any, dict[int, Member]] = {}  # by id: what they expect may not be compared
    for group in by_table.values():
        for member in group.members:
            place = place_of(member.source) if member.kind in _NODES else None
            if place is not None and place[:2] in tables and is_used_once(member.source):
                beside.setdefault(place[:2], {})[id(member)] = member
    for few in beside.values():
        if len(few) < _WORTH_A_GROUP_BESIDE_A_TREE:
            for group in by_table.values():
                group.members = [m for m in group.members if id(m) not in few]
            tree.members += few.values()
