"""`opspec import`: write the specs of what the installed torch registers."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

import yaml

from opspec.cli import Subparsers
from opspec.diagnostics import Diagnostic, OpspecError, near_matches
from opspec.files import TREE_FILE
from opspec.importer_plan import Plan, owned_files, plan
from opspec.importer_text import TORCHSCRIPT
from opspec.model import Location
from opspec.progress import Progress
from opspec.registry import Registry, read_registry
from opspec.tree import load
from opspec.writer import Change, Comparison, write

__all__ = ["ImportRefusedError", "add_parser", "import_specs", "run"]

_EPILOG = """\
examples:
  opspec import                        everything that torch registers, into ./specs
  opspec import --namespace aten       one namespace
  opspec import --prune                also take out operators that torch no longer has

What a person knows beyond a schema lies in specs/<namespace>/facts.yaml, which an import never
touches. In the files that it writes it keeps every key that it does not write itself (func, tags,
without_tags, composite), and the comment lines above an entry.

exit codes: 0 the specs are as torch says, 1 faults: nothing was written, or what is named remains,
3 a file cannot be written
"""

_LISTED = 20


class ImportRefusedError(OpspecError):
    """The specs there, or what was asked for, do not allow an import; nothing was written."""


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add the options of `import`."""
    parser = subparsers.add_parser(
        "import",
        help="write the specs of what the installed torch registers",
        description="Write or update the specs of every operator that the installed torch "
        "registers in a fresh process.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--specs", type=Path, default=Path("specs"), metavar="DIR", help="the tree (default: specs)"
    )
    parser.add_argument(
        "--namespace",
        action="append",
        metavar="NS",
        help="only this namespace; may be repeated; `torchscript` is what only TorchScript has",
    )
    parser.add_argument(
        "--prune", action="store_true", help="take out operators that torch no longer has"
    )
    return parser


def run(args: argparse.Namespace) -> int:
    """Import, and say what changed."""
    specs: Path = args.specs
    with Progress("reading torch's registry") as progress:
        registry = read_registry(progress)
    faults = _faults(specs, owned_files(specs, _folders(registry, specs, args.namespace)))
    if not faults:
        made = import_specs(registry, specs, namespaces=args.namespace, prune=args.prune)
        for line in _report(made, registry, specs):
            print(line)
        if made.texts:
            _, found = load([specs])  # what an overlay says may be of an operator that is gone
            faults = [diagnostic for diagnostic in found if diagnostic.severity == "error"]
    for diagnostic in faults:
        print(diagnostic, file=sys.stderr)
    return 1 if faults else 0


def import_specs(
    registry: Registry,
    specs: Path,
    *,
    namespaces: Sequence[str] | None = None,
    prune: bool = False,
) -> Plan:
    """Bring a tree whose files have no faults in step with a registry, and say what was written.

    Raises:
        ImportRefusedError: torch has no such namespace, or only a part of a tree would move to
            another torch.
        WriteError: a file cannot be written; each file is old or new.
    """
    folders = _folders(registry, specs, namespaces)
    version, pinned = _pin(specs)
    if namespaces and version is not None and version != registry.torch_version:
        raise ImportRefusedError(
            f"{specs / TREE_FILE}: the specs are of torch {version}, and this is torch "
            f"{registry.torch_version}: import all namespaces, so that one version holds for all"
        )
    chosen = set(folders) - {TORCHSCRIPT}
    made = plan(registry, specs, folders=folders, pinned={*pinned, *chosen}, prune=prune)
    _write(made, specs)
    return made


def _folders(registry: Registry, specs: Path, namespaces: Sequence[str] | None) -> list[str]:
    """Give the folders of specs to write: namespaces, and that of TorchScript."""
    known = [*registry.namespaces, TORCHSCRIPT]
    if not namespaces:
        # A namespace that was imported once may be gone from torch as a whole.
        return sorted({*known, *_pin(specs)[1]})
    for namespace in namespaces:
        if namespace not in known:
            near = near_matches(namespace, known)
            remedy = f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}"
            raise ImportRefusedError(
                f"torch registers no namespace {namespace!r} to import: {remedy}"
            )
    return list(dict.fromkeys(namespaces))


def _pin(specs: Path) -> tuple[str | None, frozenset[str]]:
    """Give the torch version and the namespaces that specs/_torch.yaml names."""
    path = specs / TREE_FILE
    if not path.is_file():
        return None, frozenset()
    try:
        pin = yaml.safe_load(path.read_text(encoding="utf-8"))
        return str(pin["torch"]), frozenset(pin["namespaces"])
    except (OSError, ValueError, TypeError, KeyError, yaml.YAMLError) as error:
        raise ImportRefusedError(
            f"{path}: error: cannot read which torch the specs are of ({type(error).__name__}): "
            "mend the file, or take it away to import afresh"
        ) from error


_ANCHOR = re.compile(r"(?:^|[\s\[{,])[&*]\w", re.MULTILINE)


def _faults(specs: Path, owned: Collection[Path]) -> list[Diagnostic]:
    """Find what keeps an import from reading the files that it is to rewrite."""
    if not owned:
        return []
    _, found = load(owned)
    faults = [diagnostic for diagnostic in found if diagnostic.severity == "error"]
    return faults or list(_anchors(owned))


def _anchors(owned: Iterable[Path]) -> Iterator[Diagnostic]:
    for path in owned:
        text = path.read_text(encoding="utf-8")
        if not _ANCHOR.search(text):
            continue
        for token in yaml.scan(text):
            if isinstance(token, yaml.AnchorToken | yaml.AliasToken):
                mark = token.start_mark
                yield Diagnostic(
                    Location(str(path), mark.line + 1, mark.column + 1),
                    "error",
                    "an import cannot keep YAML anchors: entries move",
                    "write the value out, or say it in facts.yaml",
                    source_line=text.splitlines()[mark.line],
                )


def _write(made: Plan, specs: Path) -> None:
    changes = []
    for path, text in sorted(made.texts.items()):
        old = path.read_bytes() if path.is_file() else None
        if text is None:
            changes.append(Change("extra", path, old, None))
        else:
            changes.append(
                Change("missing" if old is None else "stale", path, old, text.encode("utf-8"))
            )
    leftovers = tuple(sorted(specs.rglob(".*.opspec-tmp")))
    write(Comparison(tuple(changes), 0, (), leftovers), [specs])


def _report(made: Plan, registry: Registry, specs: Path) -> Iterator[str]:
    written = sorted(path for path, text in made.texts.items() if text is not None)
    removed = sorted(path for path, text in made.texts.items() if text is None)
    yield f"{specs}: {made.operators:,} operators of torch {registry.torch_version}"
    if not made.texts:
        yield "nothing changed"
    for verb, paths in (("wrote", written), ("removed", removed)):
        if paths:
            yield f"{verb} {_named([str(path) for path in paths], 'files')}"
    if made.new:
        yield f"new: {_named(made.new, 'operators')}"
    if made.gone and made.pruned:
        yield f"gone from torch, taken out: {_named(made.gone, 'operators')}"
    elif made.gone:
        yield f"gone from torch: {_named(made.gone, 'operators')}"
        yield "`opspec import --prune` takes them out"
    if made.unplaced:
        yield f"no rule gives a family to {_named(made.unplaced, 'operators')}"
        yield "they are in unplaced.yaml; add a rule to tools/opspec/src/opspec/families.py"


def _named(names: Sequence[str], noun: str) -> str:
    """List a few names; of many, give their number."""
    if len(names) > _LISTED:
        return f"{len(names):,} {noun}"
    return ", ".join(names)
