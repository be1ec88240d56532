"""Render the typed handles: what a caller may pass, and what a handler receives.

Each overload gets two classes: `addmv_out`, the handle, whose `__call__` is what callers see, and
`addmv_out_handler`, a protocol of what a handler must accept. They stand at module level, because
inside another class an overload's name (`Tensor`, `int`) would shadow the type.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Container, Mapping, Sequence
from functools import cache
from itertools import groupby
from types import MappingProxyType

from opspec.model import (
    DictOf,
    EnumDefault,
    Generic_,
    ListOf,
    Named,
    Operator,
    Optional_,
    Parameter,
    Schema,
    TupleOf,
    Type,
    aliases_of,
    without_aliases,
)
from opspec.render.layout import LINE_LENGTH, bracketed, comment_header, docstring
from opspec.render.naming import NamePool, class_stem, parameter_names
from opspec.render.stubs import default_text
from opspec.types import parts_of

__all__ = [
    "NUMBERS_FOR_TENSORS",
    "Packets",
    "attribute",
    "attribute_ok",
    "import_as",
    "render_scripted",
    "render_typed",
]

# Operators (of any namespace) for which torch takes a Python number where the schema says Tensor:
# torch._C._should_allow_numbers_as_tensors, which a test asks.
NUMBERS_FOR_TENSORS = frozenset(
    (
        "_conj",
        "_to_copy",
        "add",
        "add_",
        "add_out",
        "copy",
        "copy_",
        "div",
        "div_",
        "div_out",
        "divide",
        "divide_",
        "divide_out",
        "floor_divide",
        "floor_divide_",
        "floor_divide_out",
        "mul",
        "mul_",
        "mul_out",
        "multiply",
        "multiply_",
        "multiply_out",
        "sub",
        "sub_",
        "sub_out",
        "subtract",
        "subtract_",
        "subtract_out",
        "to",
        "true_divide",
        "true_divide_",
        "true_divide_out",
    )
)

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

_CALLER = {
    "Tensor": "Tensor",
    "Scalar": "Number",
    "int": "int",
    "SymInt": "int | torch.SymInt",
    "float": "float | torch.SymFloat",
    "SymFloat": "float | torch.SymFloat",
    "bool": "bool",
    "SymBool": "bool | torch.SymBool",
    "complex": "complex",
    "number": "Number",
    "str": "str",
    "ScalarType": "torch.dtype",
    "Layout": "torch.layout",
    "MemoryFormat": "torch.memory_format",
    "Device": "torch.device | str",
    "DeviceIndex": "int",
    "Generator": "torch.Generator",
    "Dimname": "str",
    "QScheme": "torch.qscheme",
    "Stream": "torch.Stream",
    "Storage": "torch.UntypedStorage | torch.TypedStorage",
}

# As narrow as a handler may annotate it. torch gives a handler for `Scalar` any kind of number
# and for `SymInt` a torch.SymInt at times; whoever knows that only floats and ints reach the
# handler may say so.
_HANDLER = {
    **_CALLER,
    "Tensor": "Any",
    "Scalar": "float",
    "SymInt": "int",
    "float": "float",
    "SymFloat": "float",
    "SymBool": "bool",
    "number": "float",
    "Device": "torch.device",
    "Storage": "Any",
}

# What the caller gets. A number stays open: `int(op(x))` is right although complex has no int().
_RESULT = {**_CALLER, "Scalar": "Any", "number": "Any", "float": "float", "Device": "torch.device"}

# What a handler may answer with; it may be a subclass, and a tuple may be a list.
_ANSWER = {**_CALLER, "Device": "torch.device"}


def _optional(text: str) -> str:
    return text if text == "Any" else f"{text} | None"


@cache
def _passed(type_: Type, *, numbers: bool) -> str:
    """Say what a caller may pass."""
    if isinstance(type_, Optional_):
        return _optional(_passed(type_.element, numbers=numbers))
    if isinstance(type_, ListOf):
        element = _passed(type_.element, numbers=False)
        # torch spreads one value over int[2], not over SymInt[2].
        spread = type_.size is not None and type_.element == Named("int")
        return f"{element} | Sequence[{element}]" if spread else f"Sequence[{element}]"
    if isinstance(type_, TupleOf):
        return f"tuple[{', '.join(_passed(part, numbers=False) for part in type_.elements)}]"
    if isinstance(type_, DictOf):
        key, value = _passed(type_.key, numbers=False), _passed(type_.value, numbers=False)
        return f"dict[{key}, {value}]"
    if isinstance(type_, Named):
        return "Tensor | Number" if numbers and type_.name == "Tensor" else _named(_CALLER, type_)
    return "Any"


@cache
def _received(type_: Type) -> str:
    """Say what a handler receives."""
    if isinstance(type_, Optional_):
        return f"{_received(type_.element)} | None"
    if isinstance(type_, ListOf):
        return "list[Any]"
    if isinstance(type_, TupleOf):
        return "tuple[Any, ...]"
    if isinstance(type_, DictOf):
        return "dict[Any, Any]"
    return _named(_HANDLER, type_) if isinstance(type_, Named) else "Any"


@cache
def _given(type_: Type) -> str:
    """Say what a caller gets."""
    if isinstance(type_, Optional_):
        return _optional(_given(type_.element))
    if isinstance(type_, ListOf):
        return f"list[{_given(type_.element)}]"
    if isinstance(type_, TupleOf):
        return f"tuple[{', '.join(map(_given, type_.elements))}]"
    if isinstance(type_, DictOf):
        return f"dict[{_given(type_.key)}, {_given(type_.value)}]"
    return _named(_RESULT, type_) if isinstance(type_, Named) else "Any"


@cache
def _answered(type_: Type) -> str:
    """Say what a handler may answer with."""
    if isinstance(type_, Optional_):
        return _optional(_answered(type_.element))
    if isinstance(type_, ListOf):
        return f"Sequence[{_answered(type_.element)}]"
    return _named(_ANSWER, type_) if isinstance(type_, Named) else "Any"


def _named(table: dict[str, str], type_: Named) -> str:
    # Classes of a library's own (`__torch__.torch.classes.…`) and type variables have no type here.
    return table.get(type_.name, "Any")


def _results(schema: Schema) -> list[str]:
    texts = [_given(without_aliases(result.type)) for result in schema.returns]
    if schema.varret:
        return ["Any"]
    if len(texts) == 1:
        return texts
    return ["tuple[", *texts] if texts else ["None"]


def _answer(schema: Schema) -> str:
    texts = [_answered(without_aliases(result.type)) for result in schema.returns]
    if schema.varret:
        return "Any"
    if len(texts) == 1:
        return texts[0]
    if not texts:
        return "None"
    # torch takes a tuple or a list.
    kinds = dict.fromkeys(kind for text in texts for kind in text.split(" | "))
    if "Any" in kinds:
        return "Sequence[Any]"
    last = ["None"] if kinds.pop("None", "") is None else []
    return f"Sequence[{' | '.join([*kinds, *last])}]"


def _receiver(names: Sequence[str]) -> str:
    # `self` belongs to the schema, hence another name that mypy takes for a receiver: behind any
    # other it adds a wrong guess to its messages.
    return NamePool(names).claim("mcs" if "cls" in names else "cls")


def _call(
    schema: Schema,
    names: Sequence[str],
    annotation: Callable[[Parameter], str],
    default: Callable[[Parameter], str],
    result: Sequence[str],
) -> str:
    # `self` must stay free for the schema, hence the other receiver. An argument whose name is a
    # keyword (`from`) can only be passed by position, and so can those before it.
    parameters = schema.parameters
    positional = [p for p in parameters if not p.kwarg_only]
    bare = max(
        (number for number, p in enumerate(positional, 1) if keyword.iskeyword(p.name)), default=0
    )
    items = [_receiver(names)]
    if not bare:
        items.append("/")
    if schema.vararg:
        items.append("*args: Any")
    star = schema.vararg
    for number, (parameter, name) in enumerate(zip(parameters, names, strict=True), 1):
        if parameter.kwarg_only and keyword.iskeyword(parameter.name):
            continue  # nobody can write it
        if parameter.kwarg_only and not star:
            items.append("*")
            star = True
        text = f"{name}: {annotation(parameter)}"
        items.append(f"{text} = {default(parameter)}" if parameter.has_default else text)
        if number == bare:
            items.append("/")
    one = result[0] if len(result) == 1 else f"tuple[{', '.join(result[1:])}]"
    line = bracketed("def __call__(", items, f") -> {one}: ...", indent="    ")
    if len(line.rpartition("\n")[2]) <= LINE_LENGTH:
        return line + "\n"
    head = bracketed("def __call__(", items, ") -> tuple[", indent="    ")
    elements = "".join(f"        {text},\n" for text in result[1:])
    return f"{head}\n{elements}    ]: ...\n"


def _default(parameter: Parameter) -> str:
    value = parameter.default
    if isinstance(value, EnumDefault) or value is None or not isinstance(value, (tuple, str)):
        return default_text(parameter.type, value)
    text = default_text(parameter.type, value)
    return text if len(text) <= 30 else "..."


def _render_overload(operator: Operator, stem: str, handler: str) -> str:
    schema = operator.schema
    names = parameter_names(schema)
    numbers = schema.name in NUMBERS_FOR_TENSORS

    def passed(parameter: Parameter) -> str:
        written = any(alias.write for alias in aliases_of(parameter.type))
        return _passed(without_aliases(parameter.type), numbers=numbers and not written)

    def received(parameter: Parameter) -> str:
        return _received(without_aliases(parameter.type))

    def left_out(parameter: Parameter) -> str:
        return "..."

    return (
        f"class {handler}(Protocol):\n"
        f"{_call(schema, names, received, left_out, [_answer(schema)])}\n"
        f"{bracketed(f'class {stem}(', [f'Handle[{handler}]'], '):')}\n"
        f"{_doc(operator)}"
        f"{_call(schema, names, passed, _default, _results(schema))}\n"
    )


def _doc(operator: Operator) -> str:
    doc = [str(operator.schema)]
    if operator.doc:
        doc.append(operator.doc)
    return docstring(doc, indent="    ")


def _render_scripted_overload(operator: Operator, stem: str) -> str:
    schema = operator.schema
    head = f"{bracketed(f'class {stem}(', ['Handle[Any]'], '):')}\n{_doc(operator)}"
    types = [parameter.type for parameter in schema.parameters]
    types += [result.type for result in schema.returns]
    if schema.vararg or schema.varret or not all(map(_can_be_said, types)):
        return head

    def passed(parameter: Parameter) -> str:
        return _passed(without_aliases(parameter.type), numbers=False)

    names = parameter_names(schema)
    return f"{head}{_call(schema, names, passed, _default, _results(schema))}\n"


def _can_be_said(type_: Type) -> bool:
    if isinstance(type_, Named):
        return type_.name in _CALLER
    return not isinstance(type_, Generic_) and all(map(_can_be_said, parts_of(type_)))


def import_as(package: str, module: str, name: str) -> str:
    """Write an import under another name."""
    line = f"from {package} import {module} as {name}\n"
    if len(line) <= LINE_LENGTH + 1:
        return line
    return f"from {package} import (\n    {module} as {name},\n)\n"


def attribute(name: str, class_: str) -> str:
    """Write one attribute of a class, `name: class_`."""
    line = f"    {name}: {class_}\n"
    return line if len(line) <= LINE_LENGTH + 1 else f"    {name}: (\n        {class_}\n    )\n"


def attribute_ok(name: str) -> bool:
    return not keyword.iskeyword(name) and not (name.startswith("__") and name.endswith("__"))


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
        return f"class {self.packets[base]}(OpPacket):\n{''.join(attributes) or '    ...'}\n"


def render_typed(
    operators: Sequence[Operator],
    sources: str,
    scripted: Mapping[str, Sequence[tuple[str, str, str]]] = MappingProxyType({}),
) -> str:
    """Render the stub file of one family. `operators` are sorted, `sources` names the specs.

    `scripted` has, by base name, the overloads that only TorchScript knows: name, module, class.
    """
    packets = Packets(operators)
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
    text = "\n".join(part.rstrip("\n") + "\n" for part in body)
    return f"{comment_header(sources)}{_imports(text, modules)}\n{text}"


def render_scripted(operators: Sequence[Operator], bases: Container[str], sources: str) -> str:
    """Render the stub file of one family of operators that only TorchScript knows.

    They never reach a handler, so that there are no protocols. A packet stands here for each of
    the `bases`: those that the dispatcher does not have.
    """
    packets = Packets(operators)
    body = []
    for base, group in groupby(packets.overloads, key=lambda row: row[0].schema.base):
        body += [_render_scripted_overload(operator, stem) for operator, stem, _ in group]
        if base in bases:
            body.append(packets.packet(base))
    text = "\n".join(part.rstrip("\n") + "\n" for part in body)
    return f"{comment_header(sources)}{_imports(text, {})}\n{text}"


def _imports(text: str, modules: Mapping[str, str]) -> str:
    code = re.sub(r'""".*?"""', "", text, flags=re.DOTALL)
    used = frozenset(
        re.findall(r"\b(?:Any|Number|OpPacket|Protocol|Sequence|Tensor|torch)\b", code)
    )
    standard = "from collections.abc import Sequence\n" if "Sequence" in used else ""
    typing = ", ".join(name for name in ("Any", "Protocol") if name in used)
    standard += f"from typing import {typing}\n" if typing else ""
    torch = "import torch\n" if "torch" in used else ""
    torch += "from torch import Tensor\n" if "Tensor" in used else ""
    own = "from dispatch_core._generated._types import Number\n" if "Number" in used else ""
    for module, name in sorted(modules.items()):
        own += import_as("dispatch_core._generated.torchscript", module, name)
    own += "from dispatch_core._handle import Handle\n"
    own += "from dispatch_core._ops import OpPacket\n" if "OpPacket" in used else ""
    return "\n".join(block for block in (standard, torch, own) if block)
