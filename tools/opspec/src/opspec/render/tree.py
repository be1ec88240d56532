"""Render every generated file of every package."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from opspec.model import Operator
from opspec.render.indexes import (
    render_namespace_index,
    render_namespace_types,
    render_package,
    render_root_index,
    render_root_types,
    render_types,
)
from opspec.render.op_facts import render_facts
from opspec.render.packages import PACKAGES
from opspec.render.roles import render_roles
from opspec.render.stubs import render_stubs
from opspec.render.torch_types import (
    render_torch_base,
    render_torch_namespace,
    render_torch_root,
)
from opspec.render.typed import Packets, render_scripted, render_typed

__all__ = ["RESERVED_NAMESPACES", "TORCHSCRIPT", "render_tree"]

TORCHSCRIPT = "torchscript"
"""The folder of the operators that only TorchScript knows."""

RESERVED_NAMESPACES = frozenset({TORCHSCRIPT, "_index", "_torch", "_torch_types", "_types"})
"""Names that a namespace's folder would take from something else."""

_Groups = dict[str, dict[str, list[Operator]]]


def _grouped(operators: Iterable[Operator]) -> _Groups:
    """Group by namespace and family, all sorted."""

    def key(operator: Operator) -> tuple[str, str, str, str]:
        schema = operator.schema
        return schema.namespace, operator.family, schema.name, schema.overload

    groups: _Groups = {}
    for operator in sorted(operators, key=key):
        families = groups.setdefault(operator.schema.namespace, {})
        families.setdefault(operator.family, []).append(operator)
    return groups


def render_tree(
    dispatched: Iterable[Operator],
    scripted: Iterable[Operator],
    *,
    torch_version: Callable[[str], str | None],
    sources: Callable[[str, str | None], str],
    advance: Callable[[], None] = lambda: None,
) -> dict[str, str]:
    """Render everything; the result's keys are paths below the folder of all packages.

    `scripted` are the operators that only TorchScript knows. `torch_version` gives the torch that
    a namespace was imported from, `sources` the spec files of a namespace and family. `advance`
    is called behind each family.
    """
    namespaces = _grouped(dispatched)
    by_script_family: dict[str, list[Operator]] = {}
    for operator in sorted(scripted, key=lambda op: (op.schema.base, op.schema.overload)):
        # torch.ops of other namespaces (prim) holds nothing that a program would call.
        if operator.schema.namespace in namespaces:
            by_script_family.setdefault(operator.family, []).append(operator)

    files: dict[str, str] = {}

    def put(package: str, path: str, text: str) -> None:
        files[f"{PACKAGES[package]}/{path}"] = text

    known = {
        operator.schema.base
        for families in namespaces.values()
        for operators in families.values()
        for operator in operators
    }
    script_only: set[str] = set()
    more: dict[str, list[tuple[str, str, str]]] = {}
    script_packets = {
        family: Packets(operators) for family, operators in sorted(by_script_family.items())
    }
    for family, packets in script_packets.items():
        script_only |= packets.members.keys() - known
        for base, members in packets.members.items():
            if base in known:
                more.setdefault(base, []).extend((name, family, cls) for name, cls in members)

    for namespace, families in namespaces.items():
        its_packets = {family: Packets(operators) for family, operators in families.items()}
        for family, operators in families.items():
            path = f"{namespace}/{family}"
            source = sources(namespace, family)
            put("dispatch_core", f"{path}.py", render_stubs(operators, source))
            put("dispatch_core", f"{path}.pyi", render_typed(its_packets[family], source, more))
            put("subclass_utils", f"{path}.py", render_roles(operators, source))
            put("guards", f"{path}.py", render_facts(operators, source))
            advance()
        source = sources(namespace, None)
        index = render_namespace_index(families, torch_version(namespace), source)
        for package in PACKAGES:
            put(package, f"{namespace}/__init__.py", render_package(source))
            put(package, f"{namespace}/_index.py", index)
        types = render_namespace_types(namespace, its_packets, script_packets, source)
        put("dispatch_core", f"{namespace}/__init__.pyi", types)
        types = render_torch_namespace(namespace, its_packets, script_packets, source)
        put("dispatch_core", f"{namespace}/_torch.pyi", types)

    for family, packets in script_packets.items():
        source = sources(TORCHSCRIPT, family)
        text = render_scripted(packets, script_only, source)
        put("dispatch_core", f"{TORCHSCRIPT}/{family}.pyi", text)
    if script_packets:
        source = sources(TORCHSCRIPT, None)
        put("dispatch_core", f"{TORCHSCRIPT}/__init__.py", render_package(source))

    source = sources("", None)
    names = list(namespaces)
    for package in PACKAGES:
        put(package, "__init__.py", render_package(source))
        put(package, "_index.py", render_root_index(names, source))
    put("dispatch_core", "__init__.pyi", render_root_types(namespaces, source))
    put("dispatch_core", "_types.pyi", render_types(source))
    put("dispatch_core", "_torch.pyi", render_torch_root(namespaces, source))
    put("dispatch_core", "_torch_types.pyi", render_torch_base(source))
    return files
