"""The verb `show`: say what the specs know of one operator."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable

from opspec.check import default_paths
from opspec.cli import Subparsers
from opspec.diagnostics import OpspecError, near_matches
from opspec.model import Operator, Parameter, aliases_of
from opspec.printer import default_text
from opspec.progress import Progress
from opspec.tree import load

__all__ = ["UnknownOperatorError", "add_parser", "as_json", "as_text", "find", "run"]

_EPILOG = """\
OP is written as anyone writes it: aten::addmv.out, aten.addmv.out, torch.ops.aten.addmv.out.
A name without an overload stands for all of them, `.default` for the one without a name, and a
name without a namespace for that name in every namespace.

examples:
  opspec show addmv
  opspec show aten::addmv.default --json
  opspec show mylib::scale --specs specs/mylib.yaml
"""


class UnknownOperatorError(OpspecError):
    """The specs have no such operator; `near` are those that may be meant."""

    def __init__(self, name: str, near: list[str]) -> None:
        self.name = name
        self.near = near
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        super().__init__(f"the specs have no operator {name}{hint}")


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add the options of `show`."""
    parser = subparsers.add_parser(
        "show",
        help="say what the specs know of one operator",
        description="Say what the specs know of one operator.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("op", metavar="OP", help="the operator, such as aten::addmv.out")
    parser.add_argument("--json", action="store_true", help="print a list of JSON objects")
    parser.add_argument(
        "--specs",
        nargs="+",
        default=[],
        metavar="PATH",
        help="spec files and folders of them (default: specs)",
    )
    return parser


def _spellings(written: str) -> str:
    name = written.strip().removeprefix("torch.ops.").removeprefix("ops.")
    if "::" in name or name.count(".") == 0:
        return name
    first, _, rest = name.partition(".")
    return f"{first}::{rest}"


def find(operators: Iterable[Operator], written: str) -> list[Operator]:
    """Find the overloads that a name stands for, in the order of their overload names.

    Raises:
        UnknownOperatorError: there are none.
    """
    operators = list(operators)
    for name in dict.fromkeys((written.strip(), _spellings(written))):
        default = name.removesuffix(".default") if name.endswith(".default") else None
        found = [
            operator
            for operator in operators
            for schema in [operator.schema]
            if (default is None and name in (schema.base, schema.name))
            or name in (schema.qualified_name, schema.qualified_name.partition("::")[2])
            or (
                default is not None
                and not schema.overload
                and default in (schema.base, schema.name)
            )
        ]
        exact = [operator for operator in found if operator.qualified_name == name]
        if "." in name and exact:
            return exact
        if found:
            return sorted(found, key=lambda operator: operator.qualified_name)
    # Compare like with like: what was written without a namespace with bare names.
    wanted = _spellings(written)
    names: dict[str, str] = {}
    for operator in operators:
        for name in (operator.schema.base, operator.qualified_name):
            names.setdefault(name if "::" in wanted else name.partition("::")[2], name)
    near = [names[name] for name in near_matches(wanted, names)]
    raise UnknownOperatorError(written, near)


def _argument(parameter: Parameter) -> dict[str, object]:
    aliases = list(aliases_of(parameter.type))
    return {
        "name": parameter.name,
        "type": str(parameter.type),
        "default": default_text(parameter.type, parameter.default)
        if parameter.has_default
        else None,
        "keyword_only": parameter.kwarg_only,
        "alias": str(aliases[0]) if aliases else None,
        "written": any(alias.write for alias in aliases),
    }


def as_json(operator: Operator) -> dict[str, object]:
    """Give what is known of an operator as JSON has it; every key is always there.

    `default` is the default as a spec writes it, null where there is none.
    """
    schema = operator.schema
    return {
        "qualified_name": schema.qualified_name,
        "namespace": schema.namespace,
        "name": schema.name,
        "overload": schema.overload or "default",
        "schema": str(schema),
        "torch_schema": schema.torch_text(),
        "family": operator.family,
        "tags": sorted(operator.tags),
        "composite": operator.composite,
        "random": operator.random,
        "reads_data": operator.reads_data,
        "output_shape": operator.output_shape,
        "also_writes": list(operator.also_writes),
        "doc": operator.doc,
        "imported": operator.imported,
        "scripted": operator.scripted,
        "arguments": [_argument(parameter) for parameter in schema.parameters],
        "returns": [{"name": result.name, "type": str(result.type)} for result in schema.returns],
        "file": operator.location.file,
        "line": operator.location.line,
        "column": operator.location.column,
    }


def as_text(operator: Operator) -> str:
    """Give what is known of an operator for a reader."""
    facts = as_json(operator)
    lines = [f"{facts['qualified_name']}", f"  {facts['schema']}"]
    if operator.doc:
        lines += ["", *(f"  {line}" for line in operator.doc.strip().splitlines())]
    rows = [
        ("from", f"{operator.location}, family {operator.family}"),
        ("tags", ", ".join(sorted(operator.tags)) or "none"),
        ("writes", ", ".join(operator.written) or "nothing"),
        ("composite", operator.composite),
        ("random", "yes" if operator.random else "no"),
        ("reads data", operator.reads_data.replace("_", " ")),
        ("output shape", operator.output_shape),
    ]
    if operator.scripted:
        rows.append(("only in", "TorchScript; torch's dispatcher does not know it"))
    lines += ["", *(f"  {name:<13} {value}" for name, value in rows)]
    return "\n".join(lines)


def run(args: argparse.Namespace) -> int:
    """Print the operators; 1 if there are none of that name."""
    with Progress("reading specs") as progress:
        tree, diagnostics = load(default_paths(args.specs), progress=progress)
    errors = [item for item in diagnostics if item.severity == "error"]
    try:
        found = find(tree.operators, args.op)
    except UnknownOperatorError:
        for error in errors:
            print(error, file=sys.stderr)
        raise
    if args.json:
        print(json.dumps([as_json(operator) for operator in found], indent=2, ensure_ascii=False))
    else:
        print("\n\n".join(as_text(operator) for operator in found))
    if errors:
        print("opspec: the specs have faults; `opspec check` shows them", file=sys.stderr)
    return 0
