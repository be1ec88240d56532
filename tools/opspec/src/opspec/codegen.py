"""Generate the code of all packages from specs: `opspec codegen`."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from opspec.cli import Subparsers
from opspec.progress import Progress
from opspec.render.packages import PACKAGES
from opspec.stamp import (
    CACHE_FOLDER,
    Stamp,
    digest_of_inputs,
    digest_of_outputs,
    recall,
    remember,
)

if TYPE_CHECKING:  # what a run needs that has something to do
    from opspec.generation import Generated
    from opspec.writer import Change, Comparison

__all__ = ["DEFAULT_OUT", "DEFAULT_SPECS", "add_parser", "codegen", "run"]

DEFAULT_SPECS = "specs"
DEFAULT_OUT = "packages"

_MOST_EXCERPTS = 20
_VERBS = {"missing": "missing", "stale": "stale  ", "extra": "extra  "}
_EXAMPLES = f"""\
examples:
  opspec codegen                                    all packages, from specs/ into packages/
  opspec codegen --check                            what is out of step; nothing is written
  opspec codegen --specs specs ../more/specs        from two trees
  opspec codegen --specs native_functions.yaml --out build

Below --out the files lie in dispatch-core/src/dispatch_core/_generated/ and likewise for the
other packages. A generated file whose spec is gone is removed; a file there that nobody
generated stays.

{CACHE_FOLDER}/ in the current folder holds digests of the last run's specs and files, by which the
next run knows whether there is anything to do. It can be removed at any time.
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
    or `check` found a difference, 3 when a generated file cannot be read or written.
    """
    stdout = sys.stdout if stdout is None else stdout
    stderr = sys.stderr if stderr is None else stderr
    inputs = digest_of_inputs(specs, out)
    stamp = recall(inputs, out, PACKAGES.values())
    if stamp is not None:
        operators, files = stamp.operators, stamp.files
        print(_in_step(files) if check else _summary(operators, files, ()), file=stdout)
        return 0
    return _full_run(specs, out, inputs, check=check, stdout=stdout, stderr=stderr)


def _full_run(
    specs: Sequence[str],
    out: str,
    inputs: str | None,
    *,
    check: bool,
    stdout: TextIO,
    stderr: TextIO,
) -> int:
    # Imported here, because it takes longer than to find that there is nothing to do.
    from opspec.generation import generate
    from opspec.writer import WriteError, compare, write

    with Progress("reading", stderr) as reading, Progress("rendering", stderr) as rendering:
        generated = generate(specs, reading=reading, rendering=rendering)
    if generated.errors:
        for error in generated.errors:
            print(error, file=stderr)
        print(f"codegen: {_count(generated.errors, 'error')}; nothing was written", file=stderr)
        return 1
    root = Path(out)
    folders = [root / folder for folder in PACKAGES.values()]
    try:
        comparison = compare({root / path: text for path, text in generated.files.items()}, folders)
        if check:
            return _report(comparison, generated, _cure(specs, out), stdout)
        write(comparison, folders)
    except WriteError as error:
        print(error, file=stderr)
        return error.exit_code
    for path in comparison.foreign:
        print(f"{path}: note: nobody generated this file, so it stays", file=stderr)
    operators, files = generated.operators, len(generated.files)
    print(_summary(operators, files, comparison.changes), file=stdout)
    if not comparison.foreign and inputs is not None and inputs == digest_of_inputs(specs, out):
        outputs = digest_of_outputs({path: text.encode() for path, text in generated.files.items()})
        remember(Stamp(inputs, outputs, operators, files))
    return 0


def _count(things: Sequence[object] | int, name: str) -> str:
    number = things if isinstance(things, int) else len(things)
    return f"{number:,} {name}{'' if number == 1 else 's'}"


def _summary(operators: int, files: int, changes: Sequence[Change]) -> str:
    removed = sum(change.kind == "extra" for change in changes)
    written = len(changes) - removed
    parts = f"{written:,} written, {removed:,} removed, {files - written:,} unchanged"
    return f"codegen: {_count(operators, 'operator')}, {_count(files, 'file')}: {parts}"


def _in_step(files: int) -> str:
    return f"codegen: {_count(files, 'file')} in step with the specs"


def _cure(specs: Sequence[str], out: str) -> str:
    if list(specs) == [DEFAULT_SPECS] and out == DEFAULT_OUT:
        return "nox -s codegen"
    return shlex.join(["opspec", "codegen", "--specs", *specs, "--out", out])


def _report(comparison: Comparison, generated: Generated, cure: str, stream: TextIO) -> int:
    from opspec.writer import excerpt_of_difference

    for number, change in enumerate(comparison.changes):
        print(f"{_VERBS[change.kind]}  {change.path}", file=stream)
        for line in excerpt_of_difference(change) if number < _MOST_EXCERPTS else ():
            print(f"         {line}", file=stream)
    for path in comparison.foreign:
        print(f"foreign  {path} (nobody generated it; codegen leaves it alone)", file=stream)
    for path in comparison.leftovers:
        print(f"leftover {path} (of a run that was interrupted)", file=stream)
    if not comparison.changes:
        print(_in_step(len(generated.files)), file=stream)
        return 0
    print(
        f"codegen: {_count(comparison.changes, 'file')} out of step with the specs; run `{cure}`",
        file=stream,
    )
    return 1
