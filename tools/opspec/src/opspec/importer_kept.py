"""What a person added to an imported spec file, so that a new import can keep it."""

from __future__ import annotations

from dataclasses import dataclass

import yaml

from opspec.schema import parse_schema

__all__ = ["OWNED_KEYS", "Kept", "KeptFile", "read_kept"]

# The C parser is six times faster and not in every build of PyYAML.
_Loader: type[yaml.SafeLoader] | type[yaml.CSafeLoader] = getattr(
    yaml, "CSafeLoader", yaml.SafeLoader
)

OWNED_KEYS = frozenset({"func", "tags", "without_tags", "composite"})
"""The keys that an import writes. Everything else in an entry is a person's."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One entry of a file: what a person added, and its text as it stands.

    `above` are comment lines; `added` are the lines of further keys, indented by two; `whole` is
    the entry to the letter, for an operator that torch no longer has.
    """

    above: tuple[str, ...]
    added: tuple[str, ...]
    whole: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeptFile:
    """The entries of a file by qualified name, and the comments at its head and its end."""

    entries: dict[str, Kept]
    head: tuple[str, ...] = ()
    tail: tuple[str, ...] = ()


def read_kept(text: str, namespace: str) -> KeptFile:
    """Read what a person added to a file whose entries have no faults.

    `namespace` is that of entries which name none.
    """
    lines = text.splitlines()
    root = yaml.compose(text, Loader=_Loader)
    nodes = root.value if isinstance(root, yaml.SequenceNode) else []
    starts = [_first_line(node, lines) for node in nodes]
    head_end = next((i for i, line in enumerate(lines) if not _is_comment(line)), len(lines))
    entries: dict[str, Kept] = {}
    above_from = head_end
    for node, start, following in zip(nodes, starts, [*starts[1:], len(lines)], strict=True):
        end = _end(lines, start, following)
        above = [line.strip() for line in lines[above_from:start] if _is_comment(line)]
        asides, added = _keys(node, lines, end)
        name = _qualified_name(node, namespace)
        whole = _dedented(lines[start:end])
        entries[name] = Kept((*above, *asides), tuple(added), tuple(whole))
        above_from = end
    tail = [line.strip() for line in lines[above_from:] if _is_comment(line)]
    # The first line of a file is the import's own.
    return KeptFile(entries, tuple(lines[1:head_end]), tuple(tail))


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")


def _first_line(node: yaml.MappingNode, lines: list[str]) -> int:
    line: int = node.start_mark.line
    while line > 0 and not lines[line].lstrip().startswith("-"):
        line -= 1
    return line


def _end(lines: list[str], start: int, following: int) -> int:
    """Give the line behind an entry: the next entry's comments stand at its own margin."""
    margin = _indent(lines[start])
    end = start + 1
    for number in range(start + 1, following):
        line = lines[number]
        if line.startswith(("---", "...")):
            break
        if line.strip() and (_indent(line) > margin or not _is_comment(line)):
            end = number + 1
    return end


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _dedented(lines: list[str]) -> list[str]:
    margin = _indent(lines[0])
    return [line[min(margin, _indent(line)) :] for line in lines]


def _qualified_name(node: yaml.MappingNode, namespace: str) -> str:
    for key, value in node.value:
        if key.value == "func":
            return parse_schema(value.value, namespace=namespace).qualified_name
    raise ValueError("an entry without `func` must not come here")


def _keys(node: yaml.MappingNode, lines: list[str], end: int) -> tuple[list[str], list[str]]:
    """Give the comments beside the keys that an import writes, and the lines of all other keys."""
    asides: list[str] = []
    added: list[str] = []
    if node.flow_style:
        return asides, _flow_keys(node)
    pairs = node.value
    begins = [key.start_mark.line for key, _ in pairs]
    for (key, value), begin, stop in zip(pairs, begins, [*begins[1:], end], strict=True):
        own_end = _value_end(lines, key, value, stop)
        if key.value in OWNED_KEYS:
            mark = value.end_mark
            beside = lines[mark.line][mark.column :].strip() if mark.line < own_end else ""
            asides += [beside] if beside.startswith("#") else []
        else:
            column = key.start_mark.column
            added += [
                f"  {line[min(column, _indent(line)) if number else column :]}".rstrip()
                for number, line in enumerate(lines[begin:own_end])
            ]
        # Comment lines under a key belong to the key that follows.
        added += [f"  {line.strip()}" for line in lines[own_end:stop] if _is_comment(line)]
    return asides, added


def _value_end(lines: list[str], key: yaml.Node, value: yaml.Node, stop: int) -> int:
    """Give the line behind a value; in a block of text a line may start with `#`."""
    begin = key.start_mark.line
    if isinstance(value, yaml.ScalarNode) and value.style in ("|", ">"):
        margin = key.start_mark.column
        inside = [
            number
            for number in range(begin + 1, stop)
            if lines[number].strip() and _indent(lines[number]) > margin
        ]
        return max(inside, default=begin) + 1
    while stop > begin + 1 and (not lines[stop - 1].strip() or _is_comment(lines[stop - 1])):
        stop -= 1
    return stop


def _flow_keys(node: yaml.MappingNode) -> list[str]:
    added: list[str] = []
    for key, value in node.value:
        if key.value not in OWNED_KEYS:
            pair = yaml.MappingNode("tag:yaml.org,2002:map", [(key, value)], flow_style=False)
            text = yaml.serialize(pair, Dumper=yaml.SafeDumper, width=10**6)
            added += [f"  {line}" for line in text.splitlines()]
    return added
