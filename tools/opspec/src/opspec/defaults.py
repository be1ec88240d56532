"""Turn the literal behind `=` into the Python value of a default, by the argument's type."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TypeAlias

from opspec.diagnostics import near_matches
from opspec.enums import ENUMS, REDUCTIONS, EnumDefault, enum_by_name, enum_by_number
from opspec.model import Default, ListOf, Named, Optional_, Type

__all__ = ["Literal_", "Mismatch", "Symbol", "convert"]

_INT64 = range(-(2**63), 2**63)
_SMALLEST = 2.2250738585072014e-308
_DEVICE_NAMES = (
    "cpu cuda ipu xpu mkldnn opengl opencl ideep hip ve fpga maia xla lazy vulkan mps meta hpu "
    "mtia privateuseone"
)
_DEVICES = _DEVICE_NAMES.split()
_DEVICE = re.compile(r"([a-z]+)(?::(0|[1-9]\d*))?")
_EXAMPLES = {
    "int": "0",
    "SymInt": "0",
    "float": "0.5",
    "SymFloat": "0.5",
    "bool": "False",
    "SymBool": "False",
    "str": '"mean"',
    "Scalar": "1",
    "Device": '"cpu"',
    "complex": "",
    "DeviceIndex": "0",
}


@dataclass(frozen=True, slots=True)
class Symbol:
    """A bare name as a default: `Mean`, `long`, `cpu:0`."""

    name: str


Literal_: TypeAlias = "bool | int | float | complex | str | Symbol | list[Literal_] | None"


class Mismatch(Exception):
    """The literal is no value of the type; says what is wrong and how to mend it.

    `item` is the number of the item that is wrong, where it is one of a list's.
    """

    def __init__(self, message: str, remedy: str | None = None, item: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.item = item


def _kind(value: Literal_) -> str:
    if isinstance(value, Symbol):
        return f"the name {value.name}"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        return "a string"
    return f"{value}" if value is None or isinstance(value, bool) else f"the number {value}"


def _mismatch(type_: Type, value: Literal_) -> Mismatch:
    example = _EXAMPLES.get(str(type_))
    if value is None:
        return Mismatch(f"None is no default for {type_}", f"write {type_}? for what may be None")
    remedy = f"a default of {type_} looks like {example}" if example else None
    if str(type_) == "complex":
        remedy = "torch reads no number as the default of a complex: write complex? and None"
    if isinstance(value, Symbol) and str(type_) == "bool" and value.name in ("true", "false"):
        remedy = f"write {value.name.capitalize()}"
    if isinstance(value, Symbol) and str(type_) == "str":
        remedy = f'write "{value.name}"'
    if str(type_) in ("int", "SymInt") and isinstance(value, Symbol):
        near = near_matches(value.name, REDUCTIONS)
        remedy = f"did you mean {near[0]}?" if near else remedy
    return Mismatch(f"the default of {type_} cannot be {_kind(value)}", remedy)


def _convert_int(type_: Type, value: Literal_) -> int:
    if isinstance(value, Symbol) and value.name in REDUCTIONS:
        return REDUCTIONS[value.name]
    if isinstance(value, bool) or not isinstance(value, int):
        raise _mismatch(type_, value)
    if value not in _INT64:
        raise Mismatch(
            "the default does not fit into 64 bits",
            f"an int lies between {_INT64.start} and {_INT64.stop - 1}",
        )
    return value


def _convert_float(type_: Type, value: Literal_) -> float:
    if isinstance(value, Symbol) and value.name in ("inf", "-inf", "nan"):
        return float(value.name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _mismatch(type_, value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isinf(number) or 0.0 < abs(number) < _SMALLEST:
        raise Mismatch(
            "the default does not fit into a float",
            "a float lies between 2.3e-308 and 1.7e+308",
        )
    return number + 0.0  # torch loses the sign of zero, and so do we


def _convert_complex(type_: Type, value: complex) -> complex:
    return complex(_convert_float(type_, value.real), _convert_float(type_, value.imag))


def _convert_scalar(type_: Type, value: Literal_) -> Default:
    if isinstance(value, complex):
        return _convert_complex(type_, value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return _convert_int(type_, value)
    return _convert_float(type_, value)


def _convert_device(type_: Type, value: Literal_) -> str:
    text = value.name if isinstance(value, Symbol) else value
    if not isinstance(text, str):
        raise _mismatch(type_, value)
    found = _DEVICE.fullmatch(text)
    if found is None:
        raise Mismatch(f'"{text}" is no device', 'write "cpu", "cuda" or "cuda:0"')
    if found[1] not in _DEVICES:
        near = near_matches(found[1], _DEVICES)
        remedy = f'did you mean "{near[0]}"?' if near else f"torch has {', '.join(_DEVICES)}"
        raise Mismatch(f'torch has no device type "{found[1]}"', remedy)
    return text


def _convert_enum(type_: Named, value: Literal_) -> EnumDefault:
    found = None
    if isinstance(value, Symbol):
        found = enum_by_name(type_.name, value.name)
    elif isinstance(value, int) and not isinstance(value, bool):
        found = enum_by_number(type_.name, value)
    elif value is None:
        raise _mismatch(type_, value)
    if found is None:
        written = value.name if isinstance(value, Symbol) else str(value)
        in_python = written.removeprefix("torch.")
        if in_python != written and enum_by_name(type_.name, in_python) is not None:
            remedy = f"a schema writes it without torch: {in_python}"
            raise Mismatch(f"{type_.name} has no value {written}", remedy)
        near = near_matches(in_python, ENUMS[type_.name])
        examples = ", ".join(list(ENUMS[type_.name])[:4])
        remedy = f"did you mean {near[0]}?" if near else f"it has {examples}, …"
        raise Mismatch(f"{type_.name} has no value {_literal_text(value)}", remedy)
    return found


def _convert_list(type_: ListOf, value: Literal_) -> Default:
    if isinstance(value, list):
        items = []
        for number, item in enumerate(value):
            try:
                items.append(convert(type_.element, item))
            except Mismatch as mismatch:
                message = f"in {type_}, {mismatch.message}"
                raise Mismatch(message, mismatch.remedy, number) from None
        return tuple(items)
    if value is None:
        raise _mismatch(type_, value)
    if type_.size is None:
        raise Mismatch(
            f"the default of {type_} must be a list", f"write {_literal_text([value])}, in brackets"
        )
    # torch expands a single value to the whole list.
    return (convert(type_.element, value),) * type_.size


def _literal_text(value: Literal_) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_literal_text, value))}]"
    if isinstance(value, str):
        return f'"{value}"'
    return value.name if isinstance(value, Symbol) else str(value)


def convert(type_: Type, value: Literal_) -> Default:
    """Give the Python value of a default, or raise Mismatch.

    Lengths are not compared: torch itself writes `int[1] dim=[-2,-1]`. Behind `?` a number stays
    what it is: `float? x=1` is the int 1, as in torch.
    """
    if isinstance(type_, Optional_):
        if value is None:
            return None
        element = type_.element
        if isinstance(element, ListOf):
            raise Mismatch(
                f"the default of {type_} can only be None",
                f"torch reads no other default for an optional list; write {element} without the ?",
            )
        if element == Named("float") and type(value) is int:
            return _convert_int(element, value)
        if not isinstance(element, Named) or element.name not in {*ENUMS, *_EXAMPLES, "number"}:
            raise Mismatch(f"the default of {type_} can only be None", "write None")
        return convert(element, value)
    if isinstance(type_, ListOf):
        return _convert_list(type_, value)
    if isinstance(type_, Named):
        name = type_.name
        if name in ENUMS:
            return _convert_enum(type_, value)
        if name in ("int", "SymInt", "DeviceIndex"):
            return _convert_int(type_, value)
        if name in ("float", "SymFloat"):
            return _convert_float(type_, value)
        if name in ("Scalar", "number"):
            return _convert_scalar(type_, value)
        if name == "Device":
            return _convert_device(type_, value)
        if name == "complex" and isinstance(value, complex):
            return _convert_complex(type_, value)
        if name in ("bool", "SymBool") and isinstance(value, bool):
            return value
        if name == "str" and isinstance(value, str):
            return value
        if name in _EXAMPLES:
            raise _mismatch(type_, value)
    if value is None:
        raise _mismatch(type_, value)
    raise Mismatch(f"an argument of type {type_} takes no default", "take the default out")
