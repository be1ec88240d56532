"""Render the indexes: which namespaces there are, and which families hold which operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from opspec.model import Operator
from opspec.render.layout import bracketed, class_head, comment_header, literal, string
from opspec.render.naming import NamePool
from opspec.render.typed import Packets, attribute, attribute_ok, import_as

__all__ = [
    "render_namespace_index",
    "render_namespace_types",
    "render_package",
    "render_root_index",
    "render_root_types",
    "render_types",
]


Families = Mapping[str, Sequence[Operator]]


def namespace_class(namespace: str, families: Iterable[str]) -> str:
    """Name the type of `ops.<namespace>`; under the name of a family it would hide that module."""
    return NamePool(families).claim(f"{namespace}_namespace")


def render_package(sources: str) -> str:
    """Render the __init__.py that makes a folder a package."""
    return comment_header(sources)


def render_root_index(namespaces: Sequence[str], sources: str) -> str:
    """Render the list of all namespaces."""
    names = [string(name) for name in sorted(namespaces)]
    after = ",)" if len(names) == 1 else ")"
    body = bracketed("NAMESPACES = (", names, after) if names else "NAMESPACES = ()"
    return f'{comment_header(sources)}__all__ = ["NAMESPACES"]\n\n{body.replace(",,", ",")}\n'


def render_namespace_index(families: Families, torch_version: str | None, sources: str) -> str:
    """Render which family holds which operators, and the torch that the namespace came from."""
    entries = [
        f"{string(family)}: {string(' '.join(sorted({op.schema.name for op in operators})))}"
        for family, operators in sorted(families.items())
    ]
    return (
        f"{comment_header(sources)}"
        '__all__ = ["FAMILIES", "TORCH"]\n\n'
        f"TORCH = {literal(torch_version)}\n"
        f"{bracketed('FAMILIES = {', entries, '}')}\n"
    )


def render_namespace_types(
    namespace: str,
    families: Mapping[str, Packets],
    scripted: Mapping[str, Packets],
    sources: str,
) -> str:
    """Render the type of `ops.<namespace>`: an attribute for each operator.

    `scripted` has, by their own families, the operators of the namespace that only TorchScript
    knows.
    """
    names = {
        base.rpartition(":")[2]
        for packets in (*families.values(), *scripted.values())
        for base in packets.packets
    }
    class_ = namespace_class(namespace, families)
    pool = NamePool({*names, "OpNamespace", class_})
    imports = []
    attributes: dict[str, str] = {}
    for package, group in ((namespace, families), ("torchscript", scripted)):
        for family, packets in sorted(group.items()):
            wanted = []
            module = pool.claim(f"{family}_ops" if package == namespace else f"{package}_{family}")
            for base, packet in packets.packets.items():
                owner, _, name = base.partition("::")
                if owner == namespace and name not in attributes and attribute_ok(name):
                    attributes[name] = attribute(name, f"{module}.{packet}")
                    wanted.append(name)
            if wanted:
                imports.append(import_as(f"dispatch_core._generated.{package}", family, module))
    body = "".join(line for _, line in sorted(attributes.items())) or "    ...\n"
    imports.append("from dispatch_core._ops import OpNamespace\n")
    return f"{comment_header(sources)}{''.join(imports)}\n{class_head(class_, 'OpNamespace')}{body}"


def render_root_types(namespaces: Mapping[str, Families], sources: str) -> str:
    """Render the type of `ops`: an attribute for each namespace."""
    pool = NamePool({*namespaces, "Ops", "TypedOps"})
    imports = []
    attributes = []
    for namespace, families in sorted(namespaces.items()):
        module = pool.claim(f"{namespace}_types")
        imports.append(import_as("dispatch_core._generated", namespace, module))
        attributes.append(attribute(namespace, f"{module}.{namespace_class(namespace, families)}"))
    imports.append("from dispatch_core._ops import Ops\n")
    body = "".join(attributes) or "    ...\n"
    return f"{comment_header(sources)}{''.join(imports)}\nclass TypedOps(Ops):\n{body}"


def render_types(sources: str) -> str:
    """Render the names of types that the stub files share."""
    return (
        f"{comment_header(sources)}"
        "from typing import TypeAlias\n\nimport torch\n\n"
        "Number: TypeAlias = "
        "int | float | bool | complex | torch.SymInt | torch.SymFloat | torch.SymBool\n"
    )
