"""Generate the code of all packages from specs: `opspec codegen`."""

from __future__ import annotations

import argparse
import gc
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from opspec.cli import Subparsers
from opspec.diagnostics import Diagnostic
from opspec.files import find_files
from opspec.model import Location, Operator, SpecTree
from opspec.progress import Progress
from opspec.render.tree import PACKAGES, RESERVED_NAMESPACES, TORCHSCRIPT, render_tree
from opspec.tree import load
from opspec.writer import Comparison, WriteError, compare, excerpt_of_difference, write

__all__ = ["DEFAULT_OUT", "DEFAULT_SPECS", "add_parser", "codegen", "generate", "run"]

DEFAULT_SPECS = "specs"
DEFAULT_OUT = "packages"

_Steps = Callable[[int, int], None]

_MOST_EXCERPTS = 20
_VERBS = {"missing": "missing", "stale": "stale  ", "extra": "extra  "}
_EXAMPLES = """\
examples:
  opspec codegen                                    all packages, from specs/ into packages/
  opspec codegen --check                            what is out of step; nothing is written
  opspec codegen --specs specs ../more/specs        from two trees
  opspec codegen --specs native_functions.yaml --out build

Below --out the files lie in dispatch-core/src/dispatch_core/_generated/ and likewise for the
other packages. A generated file whose spec is gone is removed; a file there that nobody
generated stays.
"""


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add the options of `opspec codegen`."""
    parser = subparsers.add_parser(
        "codegen",
        help="generate code from the specs, or check that it is current",
        description="Generate the code of all packages from specs.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; list what is out of step, and exit with 1 if anything is",
    )
    parser.add_argument(
        "--specs",
        nargs="+",
        metavar="PATH",
        default=[DEFAULT_SPECS],
        help="trees of specs, or files like native_functions.yaml (default: specs)",
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        default=DEFAULT_OUT,
        help="the folder of all packages (default: packages)",
    )
    return parser


def run(args: argparse.Namespace) -> int:
    """Run `opspec codegen`."""
    return codegen(args.specs, args.out, check=args.check)


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


@contextmanager
def _without_collector() -> Iterator[None]:
    # Everything that is made is kept to the end: looking for garbage among it is in vain.
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def generate(
    specs: Sequence[str], *, reading: _Steps | None = None, rendering: _Steps | None = None
) -> Generated:
    """Read specs and render everything that follows from them; nothing is written.

    `reading` and `rendering` are called with how much is done, and how much there is to do.
    """
    with _without_collector():
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


def codegen(
    specs: Sequence[str] = (DEFAULT_SPECS,),
    out: str = DEFAULT_OUT,
    *,
    check: bool = False,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
) -> int:
    """Generate the code of all packages below `out`, or with `check` only say what differs.

    Gives the exit code: 0 when the files are in step with the specs, 1 when the specs have faults
    or `check` found a difference, 3 when a file cannot be read or written.
    """
    stdout = sys.stdout if stdout is None else stdout
    stderr = sys.stderr if stderr is None else stderr
    with Progress("reading", stderr) as reading, Progress("rendering", stderr) as rendering:
        generated = generate(specs, reading=reading, rendering=rendering)
    if generated.errors:
        for error in generated.errors:
            print(error, file=stderr)
        print(f"codegen: {_count(generated.errors, 'error')}; nothing was written", file=stderr)
        return 1
    root = Path(out)
    folders = [root / folder for folder in PACKAGES.values()]
    files = {root / path: text for path, text in generated.files.items()}
    try:
        comparison = compare(files, folders)
        if check:
            return _report(comparison, generated, _cure(specs, out), stdout)
        write(comparison, folders)
    except WriteError as error:
        print(error, file=stderr)
        return 3
    for path in comparison.foreign:
        print(f"{path}: note: nobody generated this file, so it stays", file=stderr)
    print(_summary(comparison, generated), file=stdout)
    return 0


def _count(things: Sequence[object] | int, name: str) -> str:
    number = things if isinstance(things, int) else len(things)
    return f"{number:,} {name}{'' if number == 1 else 's'}"


def _summary(comparison: Comparison, generated: Generated) -> str:
    removed = sum(change.kind == "extra" for change in comparison.changes)
    parts = [
        f"{len(comparison.changes) - removed:,} written",
        f"{removed:,} removed",
        f"{comparison.unchanged:,} unchanged",
    ]
    operators = _count(generated.operators, "operator")
    return f"codegen: {operators}, {_count(len(generated.files), 'file')}: {', '.join(parts)}"


def _cure(specs: Sequence[str], out: str) -> str:
    if list(specs) == [DEFAULT_SPECS] and out == DEFAULT_OUT:
        return "nox -s codegen"
    return shlex.join(["opspec", "codegen", "--specs", *specs, "--out", out])


def _report(comparison: Comparison, generated: Generated, cure: str, stream: TextIO) -> int:
    for number, change in enumerate(comparison.changes):
        print(f"{_VERBS[change.kind]}  {change.path}", file=stream)
        for line in excerpt_of_difference(change) if number < _MOST_EXCERPTS else ():
            print(f"         {line}", file=stream)
    for path in comparison.foreign:
        print(f"foreign  {path} (nobody generated it; codegen leaves it alone)", file=stream)
    for path in comparison.leftovers:
        print(f"leftover {path} (of a run that was interrupted)", file=stream)
    if not comparison.changes:
        print(
            f"codegen: {_count(len(generated.files), 'file')} in step with the specs", file=stream
        )
        return 0
    print(
        f"codegen: {_count(comparison.changes, 'file')} out of step with the specs; run `{cure}`",
        file=stream,
    )
    return 1
