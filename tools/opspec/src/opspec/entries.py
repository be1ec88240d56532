"""Read the entries of a spec file: check keys and values by the table in `opspec.keys`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from opspec.diagnostics import Diagnostic, near_matches
from opspec.keys import FOREIGN_KEYS, KEYS, TAGS, Key
from opspec.model import Location
from opspec.source import Source
from opspec.yaml_nodes import locator, place, place_of_item

__all__ = ["Entry", "Value", "read_entries", "read_mapping"]

_MERGE = "tag:yaml.org,2002:merge"
_CORE = "tag:yaml.org,2002:"
# What YAML itself makes of a text without a tag: `1`, `true`, `2020-01-01`, `=`.
_PLAIN_TAGS = frozenset(
    _CORE + name for name in ("str", "null", "bool", "int", "float", "timestamp", "value")
)
_NULL = "tag:yaml.org,2002:null"
_TRUE = ("true", "yes", "on")
_FALSE = ("false", "no", "off")
_MAX_MERGES = 100

Pairs = list[tuple[ScalarNode, Node]]


@dataclass(frozen=True, slots=True)
class Value:
    """The value of one key, and where it stands.

    `locate` gives the place of an offset in a text that is not simply on one line.
    """

    content: str | bool | tuple[str, ...]
    location: Location
    locate: Callable[[int], Location] | None = None


@dataclass(slots=True)
class Entry:
    """The keys of one entry that are ours, by name; `foreign` are torch's own.

    `attempted` has every key that is there in some way: with a wrong value, or misspelt.
    """

    location: Location
    values: dict[str, Value] = field(default_factory=dict)
    foreign: dict[str, Location] = field(default_factory=dict)
    attempted: set[str] = field(default_factory=set)


def _shown(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"


class _Reader:
    def __init__(self, source: Source, keys: Iterable[Key]) -> None:
        self.source = source
        self.keys = {key.name: key for key in keys}
        self.diagnostics: list[Diagnostic] = []
        self.merged: dict[int, Pairs] = {}

    def fault(self, node: Node, message: str, remedy: str | None = None) -> None:
        length = 1
        if isinstance(node, ScalarNode) and node.end_mark.line == node.start_mark.line:
            length = max(1, node.end_mark.column - node.start_mark.column)
        location = place(node, self.source)
        self.diagnostics.append(self.source.diagnostic(location, message, remedy, length))

    def pairs(self, node: MappingNode, entry: Entry) -> Pairs:
        """Give the keys and values of a mapping, with `<<` resolved."""
        own: Pairs = []
        merged: Pairs = []
        for key, value in node.value:
            if key.tag == _MERGE:
                merged += self._merged(value, {id(node)})
            elif not isinstance(key, ScalarNode):
                self.fault(key, "a key must be a word", f"the keys are {', '.join(self.keys)}")
                entry.attempted.update(self.keys)
            else:
                own.append((key, value))
        if merged:
            # Of several merged mappings the first one that has a key wins, and the entry over all.
            names = {key.value for key, _ in own}
            for key, value in merged:
                if key.value not in names:
                    names.add(key.value)
                    own.append((key, value))
        return own

    def _merged(self, node: Node, above: set[int]) -> Pairs:
        """Give what `<<: node` brings; `above` are the nodes that it stands in."""
        if id(node) in above or len(above) > _MAX_MERGES:
            self.fault(node, "`<<` merges a mapping into itself", "name another mapping")
            return []
        known = self.merged.get(id(node))
        if known is not None:  # an alias is the same node again, and costs nothing
            return known
        above = above | {id(node)}
        found: Pairs = []
        if isinstance(node, SequenceNode):
            for item in node.value:
                found += self._merged(item, above)
        elif isinstance(node, MappingNode):
            for key, value in node.value:
                if isinstance(key, ScalarNode) and key.tag != _MERGE:
                    found.append((key, value))
            for key, value in node.value:
                if key.tag == _MERGE:
                    found += self._merged(value, above)
        else:
            self.fault(node, "`<<` merges mappings only", "name an anchor of a mapping: `<<: *a`")
        # The first mapping that has a key wins.
        first = {key.value: (key, value) for key, value in reversed(found)}
        self.merged[id(node)] = list(reversed(first.values()))
        return self.merged[id(node)]

    def entry(self, node: MappingNode) -> Entry:
        """Read one mapping."""
        entry = Entry(place(node, self.source))
        first: dict[str, ScalarNode] = {}
        for key_node, value_node in self.pairs(node, entry):
            name = key_node.value
            if name in first:
                line = first[name].start_mark.line + 1
                self.fault(
                    key_node,
                    f"the key '{_shown(name)}' stands here for the second time",
                    f"it stands in line {line} already: take one out",
                )
                continue
            first[name] = key_node
            key = self.keys.get(name)
            if key is None:
                self._unknown(key_node, entry)
                continue
            entry.attempted.add(name)
            value = self.value(key, value_node)
            if value is not None:
                entry.values[name] = value
        return entry

    def _unknown(self, node: ScalarNode, entry: Entry) -> None:
        name = node.value
        if name in FOREIGN_KEYS and "func" in self.keys:
            entry.foreign[name] = place(node, self.source)
            return
        if any(key.name == name for key in KEYS):
            overlay = "specs/<namespace>/facts.yaml"
            here = name == "op"
            self.fault(
                node,
                f"{name} stands in overlays only" if here else f"{name} cannot stand in an overlay",
                f"put the entry into {overlay}" if here else "put it into the operator's own file",
            )
            entry.attempted.update(("func", "op"))
            return
        near = near_matches(name, self.keys)
        entry.attempted.update(near[:1])
        remedy = f"did you mean {near[0]}?" if near else f"the keys are {', '.join(self.keys)}"
        self.fault(node, f"unknown key '{_shown(name)}'", remedy)

    def value(self, key: Key, node: Node) -> Value | None:
        """Read the value of a key by the kind that the table says."""
        if not isinstance(node, ScalarNode):
            if key.kind in ("tags", "names"):
                return self._words(key, node)
            self.fault(node, f"{key.name} must be a single value", f"write {self._example(key)}")
            return None
        if node.tag not in _PLAIN_TAGS:
            tag = node.tag.replace(_CORE, "!!", 1)
            self.fault(node, f"the YAML tag '{_shown(tag)}' means nothing here", "take it out")
            return None
        text = node.value
        if not text.strip() or (node.tag == _NULL and not node.style):
            self.fault(node, f"{key.name} has no value", f"write {self._example(key)}")
            return None
        location = place(node, self.source)
        if key.kind in ("tags", "names"):
            return self._words(key, node)
        if key.kind == "bool":
            if text.lower() in _TRUE or text.lower() in _FALSE:
                return Value(text.lower() in _TRUE, location)
            self.fault(node, f"{key.name} must be true or false", f"write {self._example(key)}")
            return None
        if key.kind == "choice" and text not in key.choices:
            near = near_matches(text, key.choices)
            allowed = ", ".join(key.choices)
            self.fault(
                node,
                f"{key.name} cannot be '{_shown(text)}'",
                f"did you mean {near[0]}?" if near else f"it is one of {allowed}",
            )
            return None
        where = locator(node, self.source) if key.kind in ("schema", "name") else None
        return Value(text, location, where)

    def _example(self, key: Key) -> str:
        return f"{key.name}: {key.example}"

    def _words(self, key: Key, node: Node) -> Value | None:
        items = node.value if isinstance(node, SequenceNode) else [node]
        words: list[str] = []
        for item in items:
            if not isinstance(item, ScalarNode) or not item.value.strip():
                self.fault(item, f"{key.name} must be words", f"write {self._example(key)}")
            elif key.kind == "tags" and item.value not in TAGS:
                near = near_matches(item.value, TAGS)
                remedy = f"did you mean {near[0]}?" if near else f"torch has {', '.join(TAGS)}"
                self.fault(item, f"unknown tag '{_shown(item.value)}'", remedy)
            elif item.value in words:
                self.fault(item, f"'{item.value}' stands here twice", "take one out")
            else:
                words.append(item.value)
        return Value(tuple(words), place(node, self.source))


def read_entries(
    root: Node | None, source: Source, keys: Iterable[Key]
) -> tuple[list[Entry], list[Diagnostic]]:
    """Read a file whose root is a list of mappings."""
    reader = _Reader(source, keys)
    first = next(iter(reader.keys))
    example = f"write entries like `- {first}: {reader.keys[first].example}`"
    if (
        root is None
        or (isinstance(root, ScalarNode) and root.tag == _NULL)
        or (isinstance(root, SequenceNode) and not root.value)
    ):
        message = "the file is empty" if not source.text.strip() else "the file has no entries"
        return [], [source.diagnostic(Location(source.file, 1, 1), message, example)]
    if not isinstance(root, SequenceNode):
        what = "a mapping" if isinstance(root, MappingNode) else "a single value"
        reader.fault(root, f"a spec file must be a list of entries, but this is {what}", example)
        return [], reader.diagnostics
    entries = []
    seen: dict[int, int] = {}
    for number, node in enumerate(root.value):
        if id(node) in seen:
            where = place_of_item(number, source)
            line = seen[id(node)]
            message = f"the entry of line {line} stands here for the second time, by its anchor"
            reader.diagnostics.append(
                source.diagnostic(where, message, "take it out, or write a new entry with `<<:`")
            )
            continue
        seen[id(node)] = node.start_mark.line + 1
        if isinstance(node, MappingNode):
            entries.append(reader.entry(node))
        else:
            what = "a list" if isinstance(node, SequenceNode) else f"'{_shown(node.value)}'"
            if not node.value:
                what = "empty"
            reader.fault(node, f"an entry must be a mapping, but this is {what}", example)
    return entries, reader.diagnostics


def read_mapping(
    root: Node | None, source: Source, keys: Iterable[Key]
) -> tuple[Entry | None, list[Diagnostic]]:
    """Read a file whose root is one mapping: specs/_torch.yaml."""
    reader = _Reader(source, keys)
    if not isinstance(root, MappingNode):
        example = "; ".join(f"{key.name}: {key.example}" for key in reader.keys.values())
        location = Location(source.file, 1, 1)
        message = "the file must be a mapping"
        return None, [source.diagnostic(location, message, f"write {example}")]
    return reader.entry(root), reader.diagnostics
