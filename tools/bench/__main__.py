"""Run the benchmarks: `python -m tools.bench [--list] [--json FILE] [SUBJECT …]`."""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

from tools.bench.row import Row, table

FOLDER = Path(__file__).parent
DEFAULT_JSON = FOLDER.parents[1] / ".benchmarks/latest.json"


def subjects() -> list[str]:
    """Give the subjects: every `bench_<subject>.py` beside this file."""
    return sorted(path.stem.removeprefix("bench_") for path in FOLDER.glob("bench_*.py"))


def rows_of(subject: str) -> Iterator[Row]:
    """Measure one subject."""
    module = importlib.import_module(f"tools.bench.bench_{subject}")
    rows: Callable[[], Iterator[Row]] = module.rows
    return rows()


def as_json(measured: dict[str, list[Row]]) -> str:
    """Write the figures with what they were measured on."""
    about = {
        "python": platform.python_version(),
        "torch": version("torch"),
        "machine": platform.machine(),
    }
    figures = [
        {
            "subject": subject,
            "work": row.work,
            "against": row.against,
            "ours": row.ours,
            "theirs": row.theirs,
            "unit": row.unit,
            "target": str(row.target) if row.target else None,
            "met": row.target.met(row.ours, row.theirs) if row.target else None,
        }
        for subject, rows in measured.items()
        for row in rows
    ]
    return json.dumps({"about": about, "rows": figures}, indent=2, ensure_ascii=False) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Measure what was asked for, print the table, write the JSON."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench", description=__doc__)
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help="all, where none is named")
    parser.add_argument("--list", action="store_true", help="only list the subjects")
    parser.add_argument("--json", type=Path, default=DEFAULT_JSON, metavar="FILE")
    options = parser.parse_args(arguments)
    if unknown := set(options.subjects) - set(subjects()):
        parser.error(f"no subject {', '.join(sorted(unknown))}; there are {', '.join(subjects())}")
    if options.list:
        print("\n".join(subjects()))
        return 0
    measured: dict[str, list[Row]] = {}
    for subject in options.subjects or subjects():
        print(f"measuring {subject} …", file=sys.stderr)
        measured[subject] = list(rows_of(subject))
    print(table([row for rows in measured.values() for row in rows]))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(as_json(measured), encoding="utf-8")
    print(f"\nwritten to {options.json}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
