"""Render the types of `torch.ops` itself: torch's own objects, called with typed signatures.

A program that uses `torch.ops.aten.…` gets these by importing `ops` from
`dispatch_core.torch_ops`. They borrow the signatures of the typed handles.
"""

from __future__ import annotations

from collections.abc import Mapping

from opspec.render.layout import class_head, comment_header
from opspec.render.naming import NamePool
from opspec.render.typed import Packets, attribute, attribute_ok, import_as

__all__ = ["render_torch_base", "render_torch_namespace", "render_torch_root"]

_BASE = '''from typing import Any, Generic, TypeVar

from torch._ops import OpOverload, OpOverloadPacket

_C = TypeVar("_C", covariant=True)

class TorchOverload(OpOverload[..., Any], Generic[_C]):
    """An overload of `torch.ops`, called as the handle `_C` is called."""

    @property
    def __call__(self) -> _C: ...  # type: ignore[override]

class TorchPacket(OpOverloadPacket[..., Any]):
    """An operator of `torch.ops`. Torch's own class would let any name pass for an overload."""

    __getattr__: None  # type: ignore[assignment, misc]
'''


def render_torch_base(sources: str) -> str:
    """Render the classes that all of these types build on."""
    return f"{comment_header(sources)}{_BASE}"


def render_torch_namespace(
    namespace: str,
    families: Mapping[str, Packets],
    scripted: Mapping[str, Packets],
    sources: str,
) -> str:
    """Render the type of `torch.ops.<namespace>`; parameters as of `render_namespace_types`."""
    members: dict[str, list[tuple[str, str]]] = {}
    imports = []
    modules = NamePool(("TorchOverload", "TorchPacket", "TorchNamespace"))
    for package, group in ((namespace, families), ("torchscript", scripted)):
        for family, packets in sorted(group.items()):
            wanted = [base for base in packets.members if base.startswith(f"{namespace}::")]
            if not wanted:
                continue
            module = modules.claim(f"{family}_ops" if package == namespace else f"script_{family}")
            imports.append(import_as(f"dispatch_core._generated.{package}", family, module))
            for base in wanted:
                members.setdefault(base.partition("::")[2], []).extend(
                    (overload, f"TorchOverload[{module}.{class_}]")
                    for overload, class_ in packets.members[base]
                )
    imports.append("from dispatch_core._generated._torch_types import TorchOverload, TorchPacket\n")
    # Neither class may be called like an attribute, nor like a module.
    taken = {overload for overloads in members.values() for overload, _ in overloads}
    for name in members:
        modules.claim(name)
    classes = []
    attributes = []
    for name, overloads in sorted(members.items()):
        class_ = NamePool(taken).claim(modules.claim(f"{name}_packet"))
        lines = [attribute(*row) for row in sorted(overloads) if attribute_ok(row[0])]
        body = "".join(lines) or "    ...\n"
        classes.append(f"{class_head(class_, 'TorchPacket')}{body}\n")
        if attribute_ok(name):
            attributes.append(attribute(name, class_))
    body = "".join(attributes) or "    ...\n"
    classes.append(f"class TorchNamespace:\n{body}")
    return f"{comment_header(sources)}{''.join(sorted(imports))}\n{''.join(classes)}"


def render_torch_root(namespaces: Mapping[str, object], sources: str) -> str:
    """Render the type of `torch.ops`; namespaces that no spec describes are torch's own."""
    pool = NamePool({*namespaces, "_Ops", "TypedTorchOps"})
    imports = ["from torch._ops import _Ops\n\n"]
    attributes = []
    for namespace in sorted(namespaces):
        module = pool.claim(f"{namespace}_types")
        imports.append(import_as(f"dispatch_core._generated.{namespace}", "_torch", module))
        attributes.append(attribute(namespace, f"{module}.TorchNamespace"))
    body = "".join(attributes) or "    ...\n"
    return f"{comment_header(sources)}{''.join(imports)}\nclass TypedTorchOps(_Ops):\n{body}"
