"""`opspec diff`: what changed between specs and a torch, or between two trees of specs."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from opspec.check import default_paths
from opspec.cli import Subparsers
from opspec.diff_schemas import Finding, compare_schemas
from opspec.diff_sides import TORCH, Side, SideOperator, read_side
from opspec.progress import Progress

__all__ = ["Changed", "Difference", "add_parser", "compare_sides", "run"]

_EPILOG = """\
examples:
  opspec diff                          ./specs against the installed torch
  opspec diff specs old/specs          two trees
  opspec diff torch specs              the other way round
  opspec diff specs native_functions.yaml
  opspec diff --json | jq .callers_break

A change breaks callers when a call that was right may fail, or give another result: a parameter
that is gone, renamed, moved or of a narrower type, a default that is gone or another, a new
parameter without one, other results, other memory written or shared. A caller is anyone who calls
the operator, by position or by keyword.

exit codes: 0 no difference, 1 differences, or faults in a side
"""

_MOST_OF_ONE_NAMESPACE = 10


@dataclass(frozen=True, slots=True)
class Changed:
    """An operator that both sides have and that differs."""

    name: str
    old: SideOperator
    new: SideOperator
    findings: tuple[Finding, ...]

    @property
    def breaks(self) -> bool:
        return any(finding.breaks for finding in self.findings)


@dataclass(frozen=True, slots=True)
class Difference:
    """All differences from one side to another, sorted by name.

    `passed_over` counts what one side cannot name: the variants that torch's code generation
    makes, where that side is native_functions.yaml.
    """

    old: Side
    new: Side
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[Changed, ...]
    passed_over: int = 0

    @property
    def callers_break(self) -> int:
        return len(self.removed) + sum(changed.breaks for changed in self.changed)

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add the options of `diff`."""
    parser = subparsers.add_parser(
        "diff",
        help="compare specs with the installed torch, or two trees of specs",
        description="List the operators that are added, removed or changed from A to B, and "
        "whether their callers break.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("old", nargs="?", metavar="A", help="files or a folder (default: specs)")
    parser.add_argument(
        "new",
        nargs="?",
        default=TORCH,
        metavar="B",
        help="`torch` is the installed one (default)",
    )
    parser.add_argument(
        "--namespace", action="append", metavar="NS", help="only this namespace; may be repeated"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Compare, print, and say by the exit code whether there is a difference."""
    given = default_paths([args.old] if args.old else [])[0]
    with Progress("reading") as progress:
        old, faults = read_side(given, progress)
        new, more = read_side(args.new, progress)
    if faults or more:
        for diagnostic in [*faults, *more]:
            print(diagnostic, file=sys.stderr)
        return 1
    difference = compare_sides(old, new, namespaces=args.namespace)
    if args.json:
        print(json.dumps(_as_json(difference), indent=2, ensure_ascii=False))
    else:
        for line in _as_text(difference):
            print(line)
    return 1 if difference else 0


def compare_sides(old: Side, new: Side, *, namespaces: Collection[str] | None = None) -> Difference:
    """Compare two sides, in the namespaces named, or in those that both can speak of."""
    compared = set(namespaces) if namespaces else old.namespaces | new.namespaces
    for side in (old, new):
        if not side.complete:
            compared &= side.namespaces
    scripted = old.has_torchscript and new.has_torchscript and not namespaces
    before = _chosen(old, compared, scripted)
    after = _chosen(new, compared, scripted)
    added = _lacking(after, before, old)
    removed = _lacking(before, after, new)
    passed_over = len(after.keys() - before.keys()) - len(added)
    passed_over += len(before.keys() - after.keys()) - len(removed)
    both_complete = old.complete and new.complete
    changed = []
    for name in sorted(before.keys() & after.keys()):
        findings = _findings(before[name], after[name], both_complete)
        if findings:
            changed.append(Changed(name, before[name], after[name], findings))
    return Difference(old, new, added, removed, tuple(changed), passed_over)


def _chosen(side: Side, namespaces: Collection[str], scripted: bool) -> dict[str, SideOperator]:
    return {
        name: operator
        for name, operator in side.operators.items()
        if (scripted if operator.scripted else operator.schema.namespace in namespaces)
    }


def _lacking(
    there: dict[str, SideOperator], here: dict[str, SideOperator], side: Side
) -> tuple[str, ...]:
    """Give the names that `here`, which is `side`, lacks although it could have them."""
    names = there.keys() - here.keys()
    if not side.complete:
        names = {name for name in names if "generated" not in there[name].tags}
    return tuple(sorted(names))


def _findings(old: SideOperator, new: SideOperator, complete: bool) -> tuple[Finding, ...]:
    found = list(compare_schemas(old.schema, new.schema)) if old.schema != new.schema else []
    if old.schema != new.schema and not found:
        found.append(Finding(False, "the schema is written otherwise and means the same"))
    if old.tags != new.tags:
        changes = [f"+{tag}" for tag in sorted(new.tags - old.tags)]
        changes += [f"-{tag}" for tag in sorted(old.tags - new.tags)]
        found.append(Finding(False, f"tags: {' '.join(changes)}"))
    if complete and old.composite != new.composite:
        found.append(Finding(False, f"composite: {new.composite} instead of {old.composite}"))
    return tuple(found)


def _as_text(difference: Difference) -> Iterator[str]:
    yield f"{difference.old.label} → {difference.new.label}"
    if difference.passed_over:
        yield f"{difference.passed_over} generated variants stand on one side only: passed over"
    if not difference:
        yield "no difference"
        return
    yield (
        f"{len(difference.added)} added, {len(difference.removed)} removed, "
        f"{len(difference.changed)} changed; callers of {difference.callers_break} operators break"
    )
    yield from _listed("removed: callers break", difference.removed, difference.old, difference.new)
    breaking = [changed for changed in difference.changed if changed.breaks]
    harmless = [changed for changed in difference.changed if not changed.breaks]
    for title, group in (
        ("changed: callers break", breaking),
        ("changed: callers unaffected", harmless),
    ):
        if group:
            yield ""
            yield title
            for changed in group:
                yield from _changed_lines(changed)
    yield from _listed("added", difference.added, difference.new, difference.old)


def _listed(title: str, names: Sequence[str], there: Side, other: Side) -> Iterator[str]:
    """List operators that one side has; a large namespace that the other lacks takes one line."""
    if not names:
        return
    yield ""
    yield title
    operators = [there.operators[name] for name in names]
    sizes = Counter(op.schema.namespace for op in operators if not op.scripted)
    large = {
        namespace: size
        for namespace, size in sorted(sizes.items())
        if namespace not in other.namespaces and size > _MOST_OF_ONE_NAMESPACE
    }
    for namespace, size in large.items():
        yield f"  all of {namespace}: {size} operators"
    for operator in operators:
        if operator.scripted:
            yield f"  {operator.schema} (TorchScript only)"
        elif operator.schema.namespace not in large:
            yield f"  {operator.schema}"


def _changed_lines(changed: Changed) -> Iterator[str]:
    yield f"  {changed.name}"
    if changed.old.schema != changed.new.schema:
        yield f"    - {changed.old.schema}"
        yield f"    + {changed.new.schema}"
    for finding in changed.findings:
        yield f"    {_callers(finding.breaks)}: {finding.text}"


def _callers(breaks: bool) -> str:
    return "callers break" if breaks else "callers unaffected"


def _as_json(difference: Difference) -> dict[str, object]:
    def listed(names: Sequence[str], side: Side) -> list[dict[str, str]]:
        return [{"name": name, "schema": str(side.operators[name].schema)} for name in names]

    return {
        "old": difference.old.label,
        "new": difference.new.label,
        "callers_break": difference.callers_break,
        "passed_over": difference.passed_over,
        "added": listed(difference.added, difference.new),
        "removed": listed(difference.removed, difference.old),
        "changed": [
            {
                "name": changed.name,
                "old": str(changed.old.schema),
                "new": str(changed.new.schema),
                "callers_break": changed.breaks,
                "reasons": [
                    {"callers_break": finding.breaks, "text": finding.text}
                    for finding in changed.findings
                ],
            }
            for changed in difference.changed
        ],
    }
