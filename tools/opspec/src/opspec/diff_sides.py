"""The two sides of a comparison: a spec tree, a file of specs, or the installed torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from opspec.diagnostics import Diagnostic
from opspec.files import find_files
from opspec.model import Composite, Named, Operator, Schema
from opspec.registry import INTERNAL_NAMESPACES, Registry, read_registry
from opspec.registry_torchscript import torchscript_functions
from opspec.schema import parse_schema
from opspec.tree import load

__all__ = ["TORCH", "Side", "SideOperator", "read_side", "side_of_registry"]

TORCH = "torch"
"""How the installed torch is named on the command line."""


@dataclass(frozen=True, slots=True)
class SideOperator:
    """One operator, with what both a registry and specs can say of it.

    `scripted`: only TorchScript has it.
    """

    schema: Schema
    tags: frozenset[str]
    composite: Composite = "no"
    scripted: bool = False


@dataclass(frozen=True, slots=True)
class Side:
    """What one side knows.

    `complete` says that it holds all of its namespaces as torch registers them; a file such as
    native_functions.yaml names neither generated variants nor what is composite.
    """

    label: str
    operators: Mapping[str, SideOperator]
    complete: bool

    @property
    def namespaces(self) -> frozenset[str]:
        return frozenset(
            operator.schema.namespace
            for operator in self.operators.values()
            if not operator.scripted
        )

    @property
    def has_torchscript(self) -> bool:
        return any(operator.scripted for operator in self.operators.values())


def read_side(
    given: str, progress: Callable[[int, int], None] | None = None
) -> tuple[Side, list[Diagnostic]]:
    """Read one side: `torch`, a folder, or a file.

    Raises:
        RegistryError: the installed torch cannot be asked.
    """
    if given == TORCH and not Path(given).exists():
        return side_of_registry(read_registry(progress)), []
    # An overlay may say otherwise than torch on purpose: that is no difference.
    files, diagnostics = find_files([given])
    tree, found = load([file.path for file in files if not file.overlay], progress=progress)
    diagnostics += found
    errors = [diagnostic for diagnostic in diagnostics if diagnostic.severity == "error"]
    complete = tree.torch_version is not None
    # A tree holds namespaces of a person's own too, which no torch has.
    chosen = [operator for operator in tree.operators if operator.imported or not complete]
    label = f"{given} (torch {tree.torch_version})" if complete else given
    return Side(label, _by_name(chosen), complete), errors


def _by_name(operators: Sequence[Operator]) -> dict[str, SideOperator]:
    return {
        operator.qualified_name: SideOperator(
            _as_registered(operator.schema),
            operator.tags,
            operator.composite,
            operator.scripted,
        )
        for operator in operators
    }


def _as_registered(schema: Schema) -> Schema:
    """Give a schema as torch registers it: native_functions.yaml says DeviceIndex for an int."""
    parameters = tuple(
        replace(parameter, type=Named("int"))
        if parameter.type == Named("DeviceIndex")
        else parameter
        for parameter in schema.parameters
    )
    return replace(schema, parameters=parameters)


def side_of_registry(registry: Registry) -> Side:
    """Give what a torch registers as a side."""
    operators = {
        operator.qualified_name: SideOperator(
            parse_schema(operator.schema), operator.tags, operator.composite
        )
        for operator in registry.dispatcher
        if operator.namespace not in INTERNAL_NAMESPACES
    }
    for schema, tags in torchscript_functions(registry):
        operators[schema.qualified_name] = SideOperator(schema, tags, scripted=True)
    return Side(f"installed torch {registry.torch_version}", operators, True)
