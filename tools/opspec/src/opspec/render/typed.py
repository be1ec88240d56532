"""Render the typed handles.

Each overload gets two classes: `addmv_out`, the handle, whose `__call__` is what callers see, and
`addmv_out_handler`, a protocol of what a handler must accept. They stand at module level, because
inside another class an overload's name (`Tensor`, `int`) would shadow the type.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from itertools import groupby

from opspec.model import Operator
from opspec.render.layout import LINE_LENGTH, class_head, comment_header, docstring
from opspec.render.naming import NamePool, class_stem, is_refused
from opspec.render.signatures import call_text, can_be_said, signature_texts

__all__ = [
    "Packets",
    "attribute",
    "attribute_ok",
    "import_as",
    "render_scripted",
    "render_typed",
]

_IMPORTS = (
    "Any",
    "Handle",
    "Number",
    "OpPacket",
    "Protocol",
    "Sequence",
    "Tensor",
    "torch",
)

# By these every object lives; an attribute of such a name would change what its class is.
_OBJECT_NAMES = frozenset(
    (
        "__annotations__",
        "__call__",
        "__class__",
        "__class_getitem__",
        "__del__",
        "__delattr__",
        "__dict__",
        "__dir__",
        "__doc__",
        "__eq__",
        "__format__",
        "__ge__",
        "__getattr__",
        "__getattribute__",
        "__getstate__",
        "__gt__",
        "__hash__",
        "__init__",
        "__init_subclass__",
        "__iter__",
        "__le__",
        "__lt__",
        "__match_args__",
        "__module__",
        "__name__",
        "__ne__",
        "__new__",
        "__qualname__",
        "__reduce__",
        "__reduce_ex__",
        "__repr__",
        "__set_name__",
        "__setattr__",
        "__sizeof__",
        "__slots__",
        "__str__",
        "__subclasshook__",
        "__weakref__",
    )
)


def _doc(operator: Operator) -> str:
    doc = [str(operator.schema)]
    if operator.doc:
        doc.append(operator.doc)
    return docstring(doc, indent="    ")


def _render_overload(operator: Operator, stem: str, handler: str) -> str:
    called, handled = signature_texts(operator.schema)
    return (
        f"{class_head(handler, 'Protocol')}{handled}\n"
        f"{class_head(stem, f'Handle[{handler}]')}{_doc(operator)}{called}"
    )


def _render_scripted_overload(operator: Operator, stem: str) -> str:
    schema = operator.schema
    head = f"{class_head(stem, 'Handle[Any]')}{_doc(operator)}"
    types = [parameter.type for parameter in schema.parameters]
    types += [result.type for result in schema.returns]
    if schema.vararg or schema.varret or not all(map(can_be_said, types)):
        return head
    return f"{head}{call_text(schema)}"


def import_as(package: str, module: str, name: str) -> str:
    """Write an import under another name."""
    line = f"from {package} import {module} as {name}\n"
    if len(line) <= LINE_LENGTH + 1:
        return line
    return f"from {package} import (\n    {module} as {name},\n)\n"


def attribute(name: str, class_: str) -> str:
    """Write one attribute of a class, `name: class_`."""
    line = f"    {name}: {class_}\n"
    if len(line) <= LINE_LENGTH + 1:
        return line
    outer, bracket, inner = class_.partition("[")
    if bracket:
        return f"    {name}: {outer}[\n        {inner[:-1]}\n    ]\n"
    # The formatter takes parentheses only where they help.
    wrapped = f"        {class_}\n"
    return f"    {name}: (\n{wrapped}    )\n" if len(wrapped) <= LINE_LENGTH + 1 else line


def attribute_ok(name: str) -> bool:
    """Say whether a class may have an attribute of this name."""
    return not is_refused(name) and name not in _OBJECT_NAMES


class Packets:
    """The classes of one family: those of its overloads, and one for each operator's packet."""

    def __init__(self, operators: Sequence[Operator]) -> None:
        # An attribute `all_out: all_out` would name itself, so no class is called like an overload.
        pool = NamePool({*_IMPORTS, *(operator.schema.overload for operator in operators)})
        self.overloads: list[tuple[Operator, str, str]] = []
        self.packets: dict[str, str] = {}
        self.members: dict[str, list[tuple[str, str]]] = {}
        for operator in operators:
            schema = operator.schema
            stem = pool.claim(class_stem(schema))
            self.overloads.append((operator, stem, pool.claim(f"{stem}_handler")))
            if schema.base not in self.packets:
                self.packets[schema.base] = pool.claim(f"{schema.name}_packet")
            members = self.members.setdefault(schema.base, [])
            members.append((schema.overload or "default", stem))

    def packet(self, base: str, more: Sequence[tuple[str, str]] = ()) -> str:
        """Render a packet's class; `more` are overloads that have their class elsewhere."""
        # An overload called `from` cannot be written as an attribute.
        attributes = [
            attribute(overload, class_)
            for overload, class_ in sorted([*self.members[base], *more])
            if attribute_ok(overload)
        ]
        body = "".join(attributes) or "    ...\n"
        return f"{class_head(self.packets[base], 'OpPacket')}{body}"


def render_typed(
    packets: Packets, sources: str, scripted: Mapping[str, Sequence[tuple[str, str, str]]]
) -> str:
    """Render the stub file of one family. `sources` names the specs.

    `scripted` has, by base name, the overloads that only TorchScript knows: name, module, class.
    """
    pool = NamePool(name for _, stem, handler in packets.overloads for name in (stem, handler))
    modules: dict[str, str] = {}
    body = []
    for base, group in groupby(packets.overloads, key=lambda row: row[0].schema.base):
        body += [_render_overload(*row) for row in group]
        more = []
        for overload, module, class_ in scripted.get(base, ()):
            if module not in modules:
                modules[module] = pool.claim(f"torchscript_{module}")
            more.append((overload, f"{modules[module]}.{class_}"))
        body.append(packets.packet(base, more))
    text = "\n".join(body)
    return f"{comment_header(sources)}{_imports(text, modules)}\n{text}"


def render_scripted(packets: Packets, bases: Container[str], sources: str) -> str:
    """Render the stub file of one family of operators that only TorchScript knows.

    They never reach a handler, so that there are no protocols. A packet stands here for each of
    the `bases`: those that the dispatcher does not have.
    """
    body = []
    for base, group in groupby(packets.overloads, key=lambda row: row[0].schema.base):
        body += [_render_scripted_overload(operator, stem) for operator, stem, _ in group]
        if base in bases:
            body.append(packets.packet(base))
    text = "\n".join(body)
    return f"{comment_header(sources)}{_imports(text, {})}\n{text}"


def _imports(text: str, modules: Mapping[str, str]) -> str:
    code = re.sub(r'""".*?"""', "", text, flags=re.DOTALL)

    def line(name: str, text: str) -> str:
        return text if re.search(rf"\b{name}\b", code) else ""

    typing = ", ".join(name for name in ("Any", "Protocol") if line(name, name))
    standard = line("Sequence", "from collections.abc import Sequence\n")
    standard += f"from typing import {typing}\n" if typing else ""
    torch = line("torch", "import torch\n") + line("Tensor", "from torch import Tensor\n")
    own = line("Number", "from dispatch_core._generated._types import Number\n")
    for module, name in sorted(modules.items()):
        own += import_as("dispatch_core._generated.torchscript", module, name)
    own += "from dispatch_core._handle import Handle\n"
    own += line("OpPacket", "from dispatch_core._ops import OpPacket\n")
    return "\n".join(block for block in (standard, torch, own) if block)
