"""What an import would write: the registry and what a person added, as the texts of files.

Nothing here writes: everything is rendered first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from opspec.families import UNPLACED, family_of, stem, torchscript_family
from opspec.importer_kept import Kept, KeptFile, read_kept
from opspec.importer_text import TORCHSCRIPT, Entry, file_text, pin_text
from opspec.model import Schema
from opspec.registry import INTERNAL_NAMESPACES, RegisteredOperator, Registry
from opspec.registry_torchscript import torchscript_functions
from opspec.schema import parse_schema

__all__ = ["FACTS_FILE", "PIN_FILE", "Plan", "entries_of", "owned_files", "plan"]

PIN_FILE = "_torch.yaml"
FACTS_FILE = "facts.yaml"

# One family in one file, though in a folder: an overlay lies beside it.
_FOLDERS = frozenset({"prims"})

_Place = tuple[str, str]  # folder, family


@dataclass(frozen=True, slots=True)
class Plan:
    """Texts to write by path, None for a file to remove; only what differs from the disk.

    `new` and `gone` are qualified names; those gone stay in the specs unless they are `pruned`.
    `unplaced` are base names that no rule gives a family.
    """

    texts: dict[Path, str | None]
    operators: int
    new: tuple[str, ...]
    gone: tuple[str, ...]
    pruned: bool
    unplaced: tuple[str, ...]


def entries_of(registry: Registry, folders: Collection[str]) -> dict[_Place, list[Entry]]:
    """Give the entries of the registry by folder and family, for the folders named."""
    places: dict[_Place, list[Entry]] = defaultdict(list)
    groups: dict[tuple[str, str], list[tuple[Schema, RegisteredOperator]]] = defaultdict(list)
    for operator in registry.dispatcher:
        if operator.namespace in folders and operator.namespace not in INTERNAL_NAMESPACES:
            schema = parse_schema(operator.schema)
            groups[schema.namespace, stem(schema.name)].append((schema, operator))
    for (namespace, _), group in groups.items():
        all_tags = {tag for _, operator in group for tag in operator.tags}
        schemas = [schema for schema, _ in group]
        for schema, operator in group:
            family = family_of(namespace, schema.name, tags=all_tags, schemas=schemas)
            entry = Entry(schema, operator.tags, operator.composite)
            places[namespace, family].append(entry)
    if TORCHSCRIPT in folders:
        for schema, tags, family in _torchscript(registry):
            places[TORCHSCRIPT, family].append(Entry(schema, tags))
    return places


def _torchscript(registry: Registry) -> Iterator[tuple[Schema, frozenset[str], str]]:
    groups: dict[str, list[tuple[Schema, frozenset[str]]]] = defaultdict(list)
    for schema, tags in torchscript_functions(registry):
        groups[schema.base].append((schema, tags))
    for name, group in groups.items():
        family = torchscript_family(name, [schema for schema, _ in group])
        for schema, tags in group:
            yield schema, tags, family


def _path(specs: Path, place: _Place) -> Path:
    folder, family = place
    if folder == family and folder not in _FOLDERS:
        return specs / f"{family}.yaml"
    return specs / folder / f"{family}.yaml"


def owned_files(specs: Path, folders: Iterable[str]) -> dict[Path, str]:
    """Give the files that an import of these folders rewrites, each with its namespace.

    Overlays and files whose name starts with `_` are nobody's but a person's.
    """
    found: dict[Path, str] = {}
    for folder in sorted(folders):
        candidates = [specs / f"{folder}.yaml", *sorted((specs / folder).glob("*.yaml"))]
        for path in candidates:
            if path.is_file() and path.name != FACTS_FILE and not path.name.startswith("_"):
                found[path] = folder
    return found


def plan(
    registry: Registry,
    specs: Path,
    *,
    folders: Collection[str],
    pinned: Collection[str],
    prune: bool = False,
) -> Plan:
    """Render what `specs` should hold for `folders`; `pinned` are all namespaces it then has.

    The files there have no faults.
    """
    owned = owned_files(specs, folders)
    before = {path: path.read_text(encoding="utf-8-sig") for path in owned}
    kept_files = {path: read_kept(text, owned[path]) for path, text in before.items()}
    kept = {name: entry for file in kept_files.values() for name, entry in file.entries.items()}

    places = entries_of(registry, folders)
    wanted = {_path(specs, place): place for place in places}
    known = {entry.schema.qualified_name for entries in places.values() for entry in entries}
    gone = tuple(sorted(set(kept) - known))
    texts: dict[Path, str | None] = {}
    for path in sorted({*wanted, *owned}):
        file = kept_files.get(path, KeptFile({}))
        entries = [_with_kept(entry, kept) for entry in places.get(wanted.get(path, ("", "")), [])]
        if not prune:
            left = [name for name in file.entries if name not in known]
            if left and len(left) == len(file.entries) and not entries:
                continue  # a file that holds nothing of torch's
            entries += [_left(name, file.entries[name]) for name in left]
        folder, family = wanted.get(path, (owned.get(path, ""), path.stem))
        texts[path] = (
            file_text(folder, family, entries, head=file.head, tail=file.tail) if entries else None
        )
    pin = specs / PIN_FILE
    before |= {pin: pin.read_text(encoding="utf-8-sig")} if pin.is_file() else {}
    left_over = set() if prune else {name.partition("::")[0] for name in gone}
    alive = left_over.union(registry.namespaces)
    texts[pin] = pin_text(registry.torch_version, alive.intersection(pinned))
    unplaced = {
        entry.schema.base
        for (_, family), entries in places.items()
        if family == UNPLACED
        for entry in entries
    }
    return Plan(
        texts={path: text for path, text in texts.items() if text != before.get(path)},
        operators=len(known),
        new=tuple(sorted(known - set(kept))),
        gone=gone,
        pruned=prune,
        unplaced=tuple(sorted(unplaced)),
    )


def _with_kept(entry: Entry, kept: dict[str, Kept]) -> Entry:
    found = kept.get(entry.schema.qualified_name)
    return replace(entry, above=found.above, added=found.added) if found else entry


def _left(qualified_name: str, kept: Kept) -> Entry:
    """Give an entry for an operator that torch no longer has; only its name still matters."""
    base, _, overload = qualified_name.partition(".")
    namespace, _, name = base.partition("::")
    schema = Schema(namespace, name, overload, (), ())
    return Entry(schema, above=kept.above, whole=kept.whole)
