"""The verb `check`: find the faults in spec files."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from opspec.cli import Subparsers
from opspec.diagnostics import Diagnostic, OpspecError
from opspec.progress import Progress
from opspec.tree import load

__all__ = ["add_parser", "default_paths", "run"]

_EPILOG = """\
examples:
  opspec check                      the specs/ of this folder
  opspec check specs/mylib.yaml     one file
  opspec check --notes              also say where torch breaks the rules for one's own specs
  opspec check native_functions.yaml

Every fault of every file comes out at once, as `file:line:column: error: what`, with the source
line, a caret and what to do about it. Warnings and notes leave the exit code at 0.
"""


class NoSpecsError(OpspecError):
    """No path was given, and there is no folder specs here."""


def default_paths(paths: Sequence[str]) -> list[str]:
    """Give the paths of the command line, or specs/ where there are none.

    Raises:
        NoSpecsError: there is no folder specs in the current one.
    """
    if paths:
        return list(paths)
    if not os.path.isdir("specs"):
        raise NoSpecsError("there is no folder specs here: name the files or folders to read")
    return ["specs"]


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add the options of `check`."""
    parser = subparsers.add_parser(
        "check",
        help="find the faults in spec files",
        description="Find the faults in spec files.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "paths", nargs="*", metavar="PATH", help="spec files and folders of them (default: specs)"
    )
    parser.add_argument(
        "--notes", action="store_true", help="show notes too: where imported specs break a rule"
    )
    return parser


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _summary(operators: int, diagnostics: Sequence[Diagnostic], *, notes_shown: bool) -> str:
    errors = [item for item in diagnostics if item.severity == "error"]
    warnings = [item for item in diagnostics if item.severity == "warning"]
    notes = [item for item in diagnostics if item.severity == "note"]
    if errors:
        files = len({item.location.file for item in errors})
        parts = [f"{_count(len(errors), 'error')} in {_count(files, 'file')}"]
    else:
        parts = [f"{_count(operators, 'operator')}: no errors"]
    if warnings:
        parts.append(_count(len(warnings), "warning"))
    if notes:
        hint = "" if notes_shown else " (--notes shows them)"
        parts.append(f"{_count(len(notes), 'note')}{hint}")
    return ", ".join(parts)


def run(args: argparse.Namespace) -> int:
    """Print what is wrong; 1 if anything is an error."""
    paths = default_paths(args.paths)
    with Progress("reading specs") as progress:
        tree, diagnostics = load(paths, progress=progress)
    for diagnostic in diagnostics:
        if args.notes or diagnostic.severity != "note":
            print(diagnostic)
    print(_summary(len(tree.operators), diagnostics, notes_shown=args.notes))
    return 1 if any(item.severity == "error" for item in diagnostics) else 0
