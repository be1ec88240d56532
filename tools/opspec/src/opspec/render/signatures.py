"""Write the signatures of typed handles: what a caller may pass, and what a handler receives."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from opspec.model import (
    Default,
    DictOf,
    Generic_,
    ListOf,
    Named,
    Optional_,
    Schema,
    TupleOf,
    Type,
    aliases_of,
)
from opspec.render.layout import LINE_LENGTH, bracketed
from opspec.render.naming import NamePool, is_refused, parameter_names
from opspec.render.stubs import default_text
from opspec.types import parts_of

__all__ = ["NUMBERS_FOR_TENSORS", "call_text", "can_be_said", "signature_texts"]

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


def can_be_said(type_: Type) -> bool:
    """Say whether Python's type system has a name for the type and all that it holds."""
    if isinstance(type_, Named):
        return type_.name in _CALLER
    return not isinstance(type_, Generic_) and all(map(can_be_said, parts_of(type_)))


def _results(schema: Schema) -> list[str]:
    """Give the caller's results; several of them with `tuple[` in front."""
    texts = [_given(result.type) for result in schema.returns]
    if schema.varret:
        return ["Any"]
    if len(texts) == 1:
        return texts
    return ["tuple[", *texts] if texts else ["None"]


def _answer(schema: Schema) -> str:
    texts = [_answered(result.type) for result in schema.returns]
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
    if "cls" not in names:
        return "cls"
    return NamePool(names).claim("mcs")


def _shown_default(type_: Type, value: Default) -> str:
    text = default_text(type_, value)
    return text if len(text) <= 30 else "..."


def _is_whole(default: Default) -> bool:
    """Say whether a number's default may be written as an int.

    pyright infers int for `alpha=1` without annotation, and refuses the handler where a float
    comes.
    """
    if isinstance(default, bool):
        return False
    return isinstance(default, int) or (isinstance(default, float) and default.is_integer())


def _items(schema: Schema) -> tuple[list[str], list[str]]:
    """Give the parameters as a caller and as a handler sees them.

    `self` stays free for the schema. An argument whose name is a keyword (`from`) can only be
    passed by position, and so can those before it.
    """
    names = parameter_names(schema)
    numbers = schema.name in NUMBERS_FOR_TENSORS
    bare = 0
    for number, parameter in enumerate(schema.parameters, 1):
        if is_refused(parameter.name) and not parameter.kwarg_only:
            bare = number
    caller = [_receiver(names)]
    if not bare:
        caller.append("/")
    if schema.vararg:
        caller.append("*args: Any")
    handler = caller.copy()
    star = schema.vararg
    for number, (parameter, name) in enumerate(zip(schema.parameters, names, strict=True), 1):
        if parameter.kwarg_only:
            if is_refused(parameter.name):
                continue  # nobody can write it
            if not star:
                caller.append("*")
                handler.append("*")
                star = True
        type_ = parameter.type
        plain = numbers and not any(alias.write for alias in aliases_of(type_))
        passed = f"{name}: {_passed(type_, numbers=plain)}"
        received = f"{name}: {_received(type_)}"
        if parameter.has_default:
            if _received(type_) == "float" and _is_whole(parameter.default):
                received = f"{name}: int"
            shown = _shown_default(type_, parameter.default)
            # A line that is too long would be broken inside of the default.
            fits = len(f"        {passed} = {shown},") <= LINE_LENGTH
            passed += f" = {shown if fits else '...'}"
            received += " = ..."
        caller.append(passed)
        handler.append(received)
        if number == bare:
            caller.append("/")
            handler.append("/")
    return caller, handler


def _call(items: Sequence[str], result: Sequence[str]) -> str:
    one = result[0] if len(result) == 1 else f"tuple[{', '.join(result[1:])}]"
    line = bracketed("def __call__(", items, f") -> {one}: ...", indent="    ")
    if len(result) == 1 or len(line) - line.rfind("\n") - 1 <= LINE_LENGTH:
        return line + "\n"
    head = bracketed("def __call__(", items, ") -> tuple[", indent="    ")
    elements = "".join(f"        {text},\n" for text in result[1:])
    return f"{head}\n{elements}    ]: ...\n"


def signature_texts(schema: Schema) -> tuple[str, str]:
    """Write the `__call__` of a handle and that of the protocol of its handlers."""
    caller, handler = _items(schema)
    return _call(caller, _results(schema)), _call(handler, [_answer(schema)])


def call_text(schema: Schema) -> str:
    """Write the `__call__` of a handle that no handler ever answers."""
    return signature_texts(schema)[0]
