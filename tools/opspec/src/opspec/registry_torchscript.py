"""The functions that only TorchScript has, among all that its interpreter registers."""

from __future__ import annotations

import re

from opspec.model import Schema
from opspec.registry import RegisteredOperator, Registry
from opspec.schema import parse_schema

__all__ = ["torchscript_functions"]

# A build for GPUs has more, some with types that are no schema's.
_NAMESPACES = frozenset({"aten", "prim", "profiler"})

# torch prints the names of an alias set in the order of a hash table.
_ALIAS_SET = re.compile(r"(?<=\()[a-z](?:\|[a-z])+(?=[!) ])")


def torchscript_functions(registry: Registry) -> list[tuple[Schema, frozenset[str]]]:
    """Give the schemas and tags of what a program can call, alias sets in alphabetical order."""
    return [
        (parse_schema(_ALIAS_SET.sub(_sorted_set, operator.schema)), operator.tags)
        for operator in registry.torchscript
        if _is_function(operator)
    ]


def _is_function(operator: RegisteredOperator) -> bool:
    """Leave out what stands for a node of a graph and not for a function: `prim::FusionGroup`."""
    if operator.namespace not in _NAMESPACES:
        return False
    return operator.namespace != "prim" or operator.qualified_name.partition(".")[0].islower()


def _sorted_set(match: re.Match[str]) -> str:
    return "|".join(sorted(match[0].split("|")))
