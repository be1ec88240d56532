"""Compose YAML into nodes that know their place, and say in plain words what is wrong with it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise

import yaml
from yaml.nodes import Node, ScalarNode

from opspec.diagnostics import Diagnostic
from opspec.model import Location
from opspec.source import Source

__all__ = ["compose", "locator", "place", "place_of_item"]

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# A line that starts an entry of the list.
_ENTRY = re.compile(r"^-(?=[ \n\r])", re.MULTILINE)
_MAX_RETRIES = 20
_LINE = re.compile(r"[^\r\n\x85\u2028\u2029]+")
_ESCAPED = re.compile(r"\\(?:x.{2}|u.{4}|U.{8}|.)", re.DOTALL)
_CONTINUED = re.compile(r"\\(?:\r\n|[\r\n])[ \t]*")

# What PyYAML and libyaml say → what is wrong, how to mend it, and whether the place where the
# construct starts helps more than the place where the reader gave up.
_PLAIN_WORDS: tuple[tuple[str, str, str, bool], ...] = (
    ("tab character", "a tab cannot indent YAML", "indent with spaces", False),
    ("character '\\t'", "a tab cannot indent YAML", "indent with spaces", False),
    (
        "escape",
        "YAML knows no such escape in double quotes",
        "double the backslash, or use single quotes",
        False,
    ),
    (
        "quoted scalar",
        "the string is never closed",
        "close it with the quote that it was opened with",
        True,
    ),
    (
        "flow sequence",
        "the `[` is never closed, or an item is not followed by a comma",
        "close it with `]`",
        True,
    ),
    (
        "flow mapping",
        "the `{` is never closed, or an item is not followed by a comma",
        "close it with `}`",
        True,
    ),
    (
        "mapping values are not allowed",
        "a `:` with a space behind it cannot stand here",
        "put the text into quotes, or check the indentation",
        False,
    ),
    ("undefined alias", "no anchor of this name comes before", "define it with `&name`", False),
    ("duplicate anchor", "an anchor of this name is there already", "give it another name", False),
    (
        "nesting depth",
        "the YAML is nested too deeply",
        "a spec is a list of entries with a few keys each",
        False,
    ),
    (
        "incompatible YAML document",
        "this version of YAML is not known",
        "take the line out, or write %YAML 1.1",
        False,
    ),
    (
        "another document",
        "a second document starts here",
        "a spec file is a single list: take out the `---`",
        False,
    ),
    (
        "cannot start any token",
        "this character cannot start a text",
        "put the text into quotes",
        False,
    ),
    (
        "expected ':'",
        "a key without `:` and a value",
        "write `key: value`, indented like the keys above it",
        True,
    ),
    (
        "block collection",
        "the indentation fits neither a new entry nor a key of the one above",
        "start an entry with `- ` at the margin and indent its keys by two spaces",
        False,
    ),
    (
        "<block end>",
        "the indentation fits neither a new entry nor a key of the one above",
        "start an entry with `- ` at the margin and indent its keys by two spaces",
        False,
    ),
)


class _TooDeep(yaml.YAMLError):
    """The pure Python loader ran out of stack."""

    problem = "exceeded the nesting depth"


def place(node: Node, source: Source) -> Location:
    """Give the place where a node starts."""
    return Location(source.file, node.start_mark.line + 1, node.start_mark.column + 1)


def place_of_item(number: int, source: Source) -> Location:
    """Give the place of an item of the root list, also of one that is an alias.

    The node of an alias is that of its anchor, and knows no other place.
    """
    depth = found = 0
    for event in yaml.parse(source.text, Loader=_Loader):
        if depth == 1 and isinstance(event, yaml.NodeEvent):
            mark = event.start_mark
            if found == number and mark is not None:
                return Location(source.file, mark.line + 1, mark.column + 1)
            found += 1
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
    return Location(source.file, 1, 1)


def compose(source: Source) -> tuple[Node | None, list[Diagnostic]]:
    """Compose a file into its root node; None for an empty one, or one that cannot be read.

    Where the YAML is broken, every entry is tried alone: each broken one is reported, and the
    others are read all the same.
    """
    try:
        return _compose(source.text), []
    except yaml.YAMLError as error:
        whole = _explain(error, source, 0)
    starts = [0, *(found.start() for found in _ENTRY.finditer(source.text))]
    chunks = [source.text[start:end] for start, end in pairwise([*starts, len(source.text)])]
    faults: list[Diagnostic] = []
    for number, chunk in enumerate(chunks):
        try:
            _compose(chunk)
        except yaml.YAMLError as error:
            if "undefined alias" not in str(error):  # its anchor may stand in another entry
                faults.append(_explain(error, source, source.location(starts[number]).line - 1))
                chunks[number] = _LINE.sub("", chunk)
    # What is left may still be wrong as a whole: an anchor that is not there, or twice.
    for _ in range(_MAX_RETRIES):
        try:
            return _compose("".join(chunks)), faults
        except yaml.YAMLError as error:
            fault = _explain(error, source, 0)
        line = fault.location.line
        number = bisect_right(starts, source.offset(line - 1, 0)) - 1
        if not chunks[number].strip():
            break
        faults.append(fault)
        chunks[number] = _LINE.sub("", chunks[number])
    return None, faults or [whole]


def _compose(text: str) -> Node | None:
    loader = _Loader(text)
    try:
        node: Node | None = loader.get_single_node()
        return node
    except RecursionError:
        raise _TooDeep from None
    finally:
        loader.dispose()


def _explain(error: yaml.YAMLError, source: Source, line_offset: int) -> Diagnostic:
    context = str(getattr(error, "context", None) or "")
    problem = str(getattr(error, "problem", None) or error)
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    message, remedy = f"the YAML cannot be read: {problem}", None
    for words, plain, mend, at_start in _PLAIN_WORDS:
        if words in f"{context} {problem}":
            message, remedy = plain, mend
            if at_start:
                mark = getattr(error, "context_mark", None) or mark
            break
    if mark is None:
        return source.diagnostic(Location(source.file, 1, 1), message, remedy)
    offset = source.offset(mark.line + line_offset, mark.column)
    # libyaml gives up behind the end; the caret belongs under the last thing that is there.
    if offset >= len(source.text):
        offset = len(source.text.rstrip())
    return source.diagnostic(source.location(offset), message, remedy)


def locator(node: ScalarNode, source: Source) -> Callable[[int], Location] | None:
    """Give the function from an offset in a scalar's value to its place in the file.

    None where the value stands in the file as it is, on one line, from the node's start on.
    """
    start, end = node.start_mark, node.end_mark
    width = end.column - start.column
    if start.line == end.line and not node.style and width == len(node.value):
        return None
    first = source.offset(start.line, start.column)
    offsets = _offsets(source.text[first : source.offset(end.line, end.column)], node)
    return lambda offset: source.location(first + offsets[min(max(offset, 0), len(offsets) - 1)])


def _offsets(raw: str, node: ScalarNode) -> list[int]:
    """Give for each character of the value, and for its end, where it stands in `raw`."""
    offsets = []
    at = 1 if node.style in ("'", '"') else 0
    if node.style in ("|", ">"):
        at = raw.find("\n") + 1 or len(raw)
    for char in node.value:
        if not char.isspace():
            while at < len(raw) and raw[at].isspace():
                at += 1  # indentation
        taken = 1
        if node.style == '"':
            while found := _CONTINUED.match(raw, at):
                at = found.end()
            escape = _ESCAPED.match(raw, at)
            taken = len(escape[0]) if escape else 1
        elif node.style == "'" and raw.startswith("''", at):
            taken = 2
        offsets.append(min(at, len(raw)))
        at += taken
        if char.isspace() and taken == 1 and at <= len(raw) and raw[at - 1] in "\r\n":
            while char == " " and at < len(raw) and raw[at].isspace():
                at += 1  # a folded line
    closing = 1 if node.style in ("'", '"') else 0
    offsets.append(min(at, max(0, len(raw) - closing)))
    return offsets
