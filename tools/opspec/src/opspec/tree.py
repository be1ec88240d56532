"""Read a tree of spec files into the model: `load`."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import cast

from opspec.diagnostics import Diagnostic, SchemaError, near_matches
from opspec.entries import Entry, Value, read_entries, read_mapping
from opspec.files import TREE_FILE, SpecFile, find_files
from opspec.implied_tags import implied_tags
from opspec.keys import ENTRY, KEYS, OVERLAY, TREE_KEYS
from opspec.lint import lint_namespaces, lint_schema
from opspec.model import (
    Composite,
    Location,
    Operator,
    OutputShape,
    ReadsData,
    Schema,
    SpecTree,
)
from opspec.schema import parse_schema
from opspec.schema_text import SchemaText
from opspec.source import Source, read_source
from opspec.yaml_nodes import compose

__all__ = ["SCRIPTED_FOLDER", "load", "without_collector"]

SCRIPTED_FOLDER = "torchscript"
_ALWAYS_IMPORTED = "aten"

_ENTRY_KEYS = [key for key in KEYS if ENTRY in key.where]
_OVERLAY_KEYS = [key for key in KEYS if OVERLAY in key.where]


@dataclass
class _Overlay:
    """What a person says of an operator, or of all overloads of a base name."""

    name: str
    values: dict[str, Value]
    location: Location
    length: int
    source: Source


@dataclass
class _Loading:
    """All that has been read so far."""

    diagnostics: list[Diagnostic] = field(default_factory=list)
    operators: dict[str, Operator] = field(default_factory=dict)
    overlays: dict[str, _Overlay] = field(default_factory=dict)
    imported: set[str] = field(default_factory=lambda: {_ALWAYS_IMPORTED})
    torch_version: str | None = None


@contextmanager
def without_collector() -> Iterator[None]:
    """Pause the garbage collector: thousands of objects are made and all are kept."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def load(
    paths: Iterable[str | os.PathLike[str]],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[SpecTree, list[Diagnostic]]:
    """Read all spec files under the given files and folders.

    Gives every operator that could be read, and everything that is wrong or worth a note, ordered
    by file and place. Bad input never raises. `progress` is called with the number of files that
    have been read and the number of all.

    Files of operators are read before overlays, and overlays of a base name are applied before
    those of an overload, so that the more exact one has the last word.
    """
    loading = _Loading()
    files, faults = find_files(paths)
    loading.diagnostics += faults
    with without_collector():
        for root in sorted({file.root for file in files if file.root is not None}):
            _read_pin(root, loading)
        for done, file in enumerate(files):
            if progress is not None:
                progress(done, len(files))
            _read_file(file, loading)
        _apply_overlays(loading)
    operators = sorted(loading.operators.values(), key=_order)
    loading.diagnostics += _check_names(files, loading)
    namespaces = sorted({operator.schema.namespace for operator in operators})
    tree = SpecTree(tuple(operators), tuple(namespaces), loading.torch_version)
    return tree, sorted(loading.diagnostics, key=Diagnostic.sort_key)


def _check_names(files: Iterable[SpecFile], loading: _Loading) -> Iterator[Diagnostic]:
    """Check the names that become modules of generated code: each is reported once."""
    reported: set[str] = set()
    for file in files:
        if file.root is None or file.overlay or file.namespace == SCRIPTED_FOLDER:
            continue
        for name, (message, remedy) in lint_namespaces([file.namespace, file.family]).items():
            if file.namespace not in loading.imported and name not in reported:
                reported.add(name)
                yield Diagnostic(Location(file.path, 1, 1), "error", message, remedy)


def _order(operator: Operator) -> tuple[str, str, str, str]:
    schema = operator.schema
    return schema.namespace, operator.family, schema.name, schema.overload


def _shown_path(root: str) -> str:
    relative = os.path.relpath(root)
    return root if relative.startswith("..") else relative


def _read_pin(root: str, loading: _Loading) -> None:
    path = os.path.join(root, TREE_FILE)
    if not os.path.lexists(path):
        return
    source, faults = read_source(path, os.path.join(_shown_path(root), TREE_FILE))
    loading.diagnostics += faults
    if source is None:
        return
    node, faults = compose(source)
    loading.diagnostics += faults
    if node is None and faults:
        return
    entry, faults = read_mapping(node, source, TREE_KEYS)
    loading.diagnostics += faults
    if entry is None:
        return
    for key in TREE_KEYS:
        if key.name not in entry.values and not faults:
            loading.diagnostics.append(
                source.diagnostic(
                    entry.location, f"{key.name} is missing", f"write {key.name}: {key.example}"
                )
            )
    version, namespaces = entry.values.get("torch"), entry.values.get("namespaces")
    if namespaces is not None:
        loading.imported.update(cast("tuple[str, ...]", namespaces.content))
    if version is None:
        return
    found = cast(str, version.content)
    if loading.torch_version not in (None, found):
        loading.diagnostics.append(
            source.diagnostic(
                version.location,
                f"this tree is of torch {found}, another one of {loading.torch_version}",
                "give trees of the same torch",
            )
        )
    loading.torch_version = loading.torch_version or found


def _read_file(file: SpecFile, loading: _Loading) -> None:
    source, faults = read_source(file.path)
    loading.diagnostics += faults
    if source is None:
        return
    broken = bool(faults)
    node, faults = compose(source)
    loading.diagnostics += faults
    if node is None and (faults or broken):
        return
    keys = _OVERLAY_KEYS if file.overlay else _ENTRY_KEYS
    entries, faults = read_entries(node, source, keys)
    loading.diagnostics += faults
    if file.overlay:
        for entry in entries:
            _read_overlay(entry, file, source, loading)
        return
    foreign: dict[str, list[Location]] = {}
    for entry in entries:
        for name, location in entry.foreign.items():
            foreign.setdefault(name, []).append(location)
        _read_operator(entry, file, source, loading)
    _note_foreign(foreign, source, loading)


def _note_foreign(foreign: dict[str, list[Location]], source: Source, loading: _Loading) -> None:
    autogen = foreign.pop("autogen", None)
    if autogen:
        note = source.diagnostic(
            autogen[0],
            f"{len(autogen)} entries name variants under autogen; they are not expanded",
            "list a variant as an entry of its own where you need it",
            len("autogen"),
        )
        # Worth a warning: somebody may look for those operators.
        loading.diagnostics.append(replace(note, severity="warning"))
    if foreign:
        name, first = min(
            ((name, places[0]) for name, places in foreign.items()), key=lambda it: it[1]
        )
        note = source.diagnostic(
            first,
            f"keys for torch's own code generation are ignored: {', '.join(sorted(foreign))}",
            None,
            len(name),
        )
        loading.diagnostics.append(replace(note, severity="note"))


def _read_operator(entry: Entry, file: SpecFile, source: Source, loading: _Loading) -> None:
    func = entry.values.get("func")
    if func is None:
        if "func" not in entry.attempted:
            loading.diagnostics.append(
                source.diagnostic(
                    entry.location,
                    "the entry has no func",
                    "write func: and a schema, such as mm(Tensor self, Tensor mat2) -> Tensor",
                )
            )
        return
    scripted = file.namespace == SCRIPTED_FOLDER and file.root is not None
    text = SchemaText(cast(str, func.content), func.location, func.locate, source)
    try:
        schema = parse_schema(
            text.text, location=func.location, locate=func.locate, namespace=file.namespace
        )
    except SchemaError as error:
        loading.diagnostics += (text.complete(fault) for fault in error.diagnostics)
        if error.partial is not None:
            imported = scripted or error.partial.namespace in loading.imported
            loading.diagnostics += lint_schema(error.partial, text, imported=imported, partial=True)
        return
    imported = scripted or schema.namespace in loading.imported
    loading.diagnostics += lint_schema(schema, text, imported=imported)
    name = schema.qualified_name
    earlier = loading.operators.get(name)
    if earlier is not None:
        loading.diagnostics.append(
            text.fault(
                0,
                len(text.text),
                f"the operator {name} stands here for the second time",
                f"it stands at {earlier.location} already: take one out, or give it "
                "another overload name",
            )
        )
        return
    written = cast("tuple[str, ...]", _content(entry, "tags", ()))
    without = cast("tuple[str, ...]", _content(entry, "without_tags", ()))
    implied = implied_tags(schema)
    _check_tags(entry, written, without, implied, source, loading)
    _check_writes(schema, entry.values.get("also_writes"), source, loading)
    tags = frozenset(written) | (implied - frozenset(without))
    reads, shape = "data_dependent_output" in tags, "dynamic_output_shape" in tags
    random = "nondeterministic_seeded" in tags
    loading.operators[name] = Operator(
        schema,
        file.family,
        tags,
        composite=cast(Composite, _content(entry, "composite", "no")),
        random=cast(bool, _content(entry, "random", random)),
        reads_data=cast(ReadsData, _content(entry, "reads_data", "always" if reads else "no")),
        output_shape=cast(
            OutputShape, _content(entry, "output_shape", "dynamic" if shape else "static")
        ),
        also_writes=cast("tuple[str, ...]", _content(entry, "also_writes", ())),
        doc=cast("str | None", _content(entry, "doc", None)),
        imported=imported,
        scripted=scripted,
        location=func.location,
    )


def _content(entry: Entry, key: str, default: object) -> object:
    value = entry.values.get(key)
    return default if value is None else value.content


def _check_tags(
    entry: Entry,
    written: tuple[str, ...],
    without: tuple[str, ...],
    implied: frozenset[str],
    source: Source,
    loading: _Loading,
) -> None:
    for tag in without:
        if tag in written or tag not in implied:
            message = (
                f"the tag {tag} is in tags and in without_tags"
                if tag in written
                else f"without_tags names {tag}, which does not go without saying here"
            )
            loading.diagnostics.append(
                source.diagnostic(entry.values["without_tags"].location, message, "take it out")
            )


def _with_facts(operator: Operator, values: dict[str, Value]) -> Operator:
    facts = {key: values[key].content for key in _FACTS if key in values}
    if not facts:
        return operator
    return replace(
        operator,
        composite=cast(Composite, facts.get("composite", operator.composite)),
        random=cast(bool, facts.get("random", operator.random)),
        reads_data=cast(ReadsData, facts.get("reads_data", operator.reads_data)),
        output_shape=cast(OutputShape, facts.get("output_shape", operator.output_shape)),
        also_writes=cast("tuple[str, ...]", facts.get("also_writes", operator.also_writes)),
        doc=cast("str | None", facts.get("doc", operator.doc)),
    )


_FACTS = ("composite", "random", "reads_data", "output_shape", "also_writes", "doc")


def _check_writes(schema: Schema, value: Value | None, source: Source, loading: _Loading) -> None:
    names = [parameter.name for parameter in schema.parameters]
    for name in cast("tuple[str, ...]", value.content) if value is not None else ():
        if value is not None and name not in names:
            near = near_matches(name, names)
            loading.diagnostics.append(
                source.diagnostic(
                    value.location,
                    f"{schema.qualified_name} has no argument '{name}'",
                    f"did you mean {near[0]}?" if near else f"it has {', '.join(names)}",
                )
            )


def _read_overlay(entry: Entry, file: SpecFile, source: Source, loading: _Loading) -> None:
    op = entry.values.get("op")
    if op is None:
        if "op" not in entry.attempted:
            loading.diagnostics.append(
                source.diagnostic(
                    entry.location, "the entry has no op", f"write op: {file.namespace}::name"
                )
            )
        return
    written = cast(str, op.content)
    name = written if "::" in written else f"{file.namespace}::{written}"
    overlay = _Overlay(name, entry.values, op.location, len(written), source)
    earlier = loading.overlays.get(name)
    if earlier is not None:
        loading.diagnostics.append(
            source.diagnostic(
                op.location,
                f"{name} stands here for the second time",
                f"it stands at {earlier.location} already: put all keys into one entry",
                len(written),
            )
        )
        return
    if len(entry.attempted) == 1:
        loading.diagnostics.append(
            source.diagnostic(
                op.location,
                f"the entry says nothing of {name}",
                f"add one of {', '.join(_FACTS)}",
                len(written),
            )
        )
    loading.overlays[name] = overlay


def _apply_overlays(loading: _Loading) -> None:
    by_base: dict[str, list[str]] = {}
    for name, operator in loading.operators.items():
        by_base.setdefault(operator.schema.base, []).append(name)
    # Base names first: an entry for one overload has the last word.
    for name, overlay in sorted(loading.overlays.items(), key=lambda item: item[0] not in by_base):
        covered = by_base.get(name)
        if covered is None:
            exact = name.removesuffix(".default")
            covered = [exact] if exact in loading.operators else None
        if covered is None:
            near = near_matches(name, [*by_base, *loading.operators])
            loading.diagnostics.append(
                overlay.source.diagnostic(
                    overlay.location,
                    f"the specs have no operator {name}",
                    f"did you mean {near[0]}?" if near else "write namespace::name",
                    overlay.length,
                )
            )
            continue
        for covered_name in covered:
            operator = loading.operators[covered_name]
            writes = overlay.values.get("also_writes")
            _check_writes(operator.schema, writes, overlay.source, loading)
            loading.operators[covered_name] = _with_facts(operator, overlay.values)
