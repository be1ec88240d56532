"""Read specs and render everything that follows from them; nothing is written."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from opspec.diagnostics import Diagnostic
from opspec.files import find_files
from opspec.model import Location, Operator, SpecTree
from opspec.render.tree import RESERVED_NAMESPACES, TORCHSCRIPT, render_tree
from opspec.tree import load, without_collector

__all__ = ["Generated", "generate"]

_Steps = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Generated:
    """What specs become: file contents by path below the folder of packages, or what is wrong."""

    files: dict[str, str]
    operators: int
    errors: tuple[Diagnostic, ...]


class _Labels:
    """Name the spec files in the headers of generated files: the same on every machine."""

    def __init__(self, specs: Sequence[str]) -> None:
        found, _ = find_files(specs)
        self._by_path: dict[str, str] = {}
        self.strays: list[tuple[str, str]] = []
        given = {os.path.abspath(path) for path in specs}
        for file in found:
            if file.root is None:
                self._by_path[file.path] = os.path.basename(file.path)
                continue
            relative = Path(os.path.relpath(os.path.abspath(file.path), file.root)).as_posix()
            self._by_path[file.path] = f"{os.path.basename(file.root)}/{relative}"
            if os.path.abspath(file.root) not in given:
                self.strays.append((file.path, file.root))
        self._families: dict[tuple[str, str], set[str]] = {}

    def add(self, operator: Operator) -> None:
        """Note which file an operator stands in."""
        namespace = TORCHSCRIPT if operator.scripted else operator.schema.namespace
        label = self._by_path.get(operator.location.file, operator.location.file)
        self._families.setdefault((namespace, operator.family), set()).add(label)

    def sources(self, namespace: str, family: str | None) -> str:
        """Name the files of a family; the file or folder of a namespace; all trees."""
        labels: set[str] = set()
        for (its_namespace, its_family), found in self._families.items():
            if namespace in ("", its_namespace) and family in (None, its_family):
                labels |= found
        if not namespace:
            labels = {label.partition("/")[0] for label in labels}
        elif family is None and len(labels) > 1:
            labels = {label.rpartition("/")[0] or label for label in labels}
        return ", ".join(sorted(labels))


def generate(
    specs: Sequence[str], *, reading: _Steps | None = None, rendering: _Steps | None = None
) -> Generated:
    """Read specs and render everything that follows from them; nothing is written.

    `reading` and `rendering` are called with how much is done, and how much there is to do.
    """
    with without_collector():
        tree, diagnostics = load(specs, progress=reading)
        labels = _Labels(specs)
        errors = [found for found in diagnostics if found.severity == "error"]
        errors += _whole_trees(labels)
        errors += _one_family_each(tree.operators)
        errors += _reserved(tree.operators)
        if errors:
            return Generated({}, len(tree.operators), tuple(errors))
        return Generated(_render(tree, labels, rendering), len(tree.operators), ())


def _render(tree: SpecTree, labels: _Labels, progress: _Steps | None) -> dict[str, str]:
    families = set()
    imported = set()
    for operator in tree.operators:
        labels.add(operator)
        if not operator.scripted:
            families.add((operator.schema.namespace, operator.family))
        if operator.imported:
            imported.add(operator.schema.namespace)
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, len(families))

    return render_tree(
        [operator for operator in tree.operators if not operator.scripted],
        [operator for operator in tree.operators if operator.scripted],
        torch_version=lambda namespace: tree.torch_version if namespace in imported else None,
        sources=labels.sources,
        advance=advance,
    )


def _whole_trees(labels: _Labels) -> Iterator[Diagnostic]:
    # What is not in the specs is removed from the output, so half a tree would remove the rest.
    for path, root in labels.strays[:1]:
        yield Diagnostic(
            Location(path, 1, 1),
            "error",
            f"this is only a part of the tree {root}, and code is generated from whole trees",
            f"run `opspec codegen --specs {shlex.quote(os.path.relpath(root))}`",
        )


def _one_family_each(operators: Iterable[Operator]) -> Iterator[Diagnostic]:
    first: dict[str, Operator] = {}
    for operator in operators:
        if operator.scripted:
            continue
        other = first.setdefault(operator.schema.base, operator)
        if other.family != operator.family:
            yield Diagnostic(
                operator.location,
                "error",
                f"the overloads of {operator.schema.base} stand in two families, "
                f"{other.family} and {operator.family}",
                f"move this one to {other.location.file}",
            )


def _reserved(operators: Iterable[Operator]) -> Iterator[Diagnostic]:
    reported: set[str] = set()
    for operator in operators:
        namespace = operator.schema.namespace
        if not operator.scripted and namespace in RESERVED_NAMESPACES - reported:
            reported.add(namespace)
            yield Diagnostic(
                operator.location,
                "error",
                f"a namespace cannot be called {namespace}: generated code needs the name",
                "choose another name",
            )
