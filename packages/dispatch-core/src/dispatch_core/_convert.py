"""Convert values to a schema's types, as torch does before any kernel or handler sees them.

Each converter pairs the set of types that need no work with a function for the rest. A value
that torch would refuse comes back unchanged: refusing is torch's business. Symbolic numbers come
back unchanged too, also where torch would make a plain number of them, because that guards.

The rules were found by asking torch (tests/dispatch_core/test_elide_against_torch.py).
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from dispatch_core._schema import DTYPES, LAYOUTS, MEMORY_FORMATS, split_types

__all__ = ["Converter", "converter"]


class Converter(NamedTuple):
    """How to bring a value to one type.

    `exact` is the set of Python types that are left alone, None where all are. A list is left
    alone if the types of its items are all among `items`. `unequal` finds values that equal no
    default, whatever they convert to.
    """

    exact: frozenset[type] | None
    items: frozenset[type]
    convert: Callable[[Any], Any]
    unequal: Callable[[Any], bool] | None = None


_NONE = type(None)
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_QSCHEMES = (
    torch.per_tensor_affine,
    torch.per_channel_affine,
    torch.per_tensor_symmetric,
    torch.per_channel_symmetric,
    torch.per_channel_affine_float_qparams,
)
# An enum given for a number becomes the number it has in C++.
_NUMBER_OF: dict[object, int] = {
    member: number
    for members in (DTYPES, LAYOUTS, MEMORY_FORMATS, _QSCHEMES)
    for number, member in enumerate(members)
    if member is not None
}
_ENUMS = (torch.dtype, torch.layout, torch.memory_format, torch.qscheme)
_REAL, _IMAGINARY = complex.real.__get__, complex.imag.__get__  # past a subclass's own


def _keep(value: Any) -> Any:
    return value


def _single(value: Any) -> Any:
    """Take the number out of an array of one, as torch does, without NumPy's warning."""
    is_array = hasattr(value, "__array_interface__") and getattr(value, "ndim", 0) > 0
    return value.item() if is_array and not isinstance(value, torch.Tensor) else value


def _real(value: Any) -> Any:
    """Drop the imaginary part of a NumPy complex number, as torch does, without its warning.

    numpy.complex128 is a subclass of complex; what makes it a number for torch is its `__int__`.
    """
    single = _single(value)
    if single is not value:
        return single.real
    if not isinstance(value, numbers.Complex) or isinstance(value, numbers.Real):
        return value
    return value.real if hasattr(value, "__int__") else value


def _to_int(value: Any) -> Any:
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, (_SYMBOLIC, float, str, bytes)):
        return value
    if isinstance(value, _ENUMS):
        return _NUMBER_OF.get(value, value)
    return int(_real(value))


def _to_float(value: Any) -> Any:
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, (_SYMBOLIC, str, bytes)):
        return value
    return float(_real(value))


def _to_complex(value: Any) -> Any:
    if isinstance(value, (_SYMBOLIC, str, bytes)):
        return value
    value = _single(value)
    return complex(_plain_number(value) if isinstance(value, (float, complex)) else value)


def _to_bool(value: Any) -> Any:
    if isinstance(value, (_SYMBOLIC, str, bytes)):
        return value
    return bool(value)


def _plain_number(value: Any) -> Any:
    """Make a plain number of one of a subclass (an IntEnum, numpy.float64).

    torch takes the number that is stored, whatever the subclass's own `__int__` says.
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    return complex(_REAL(value), _IMAGINARY(value))


def _to_scalar(value: Any) -> Any:
    if isinstance(value, (int, float, complex)):
        return _plain_number(value)
    if isinstance(value, _ENUMS):
        return _NUMBER_OF.get(value, value)
    return value


def _to_str(value: Any) -> Any:
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (bytes, bytearray)):
        return value.decode()
    return value


def _to_device(value: Any) -> Any:
    return torch.device(str.__str__(value)) if isinstance(value, str) else value


def _to_enum(members: tuple[object, ...]) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        number = _to_int(value)
        if type(number) is int and 0 <= number < len(members):
            return members[number]
        return value

    return convert


def _to_tensor_or_number(value: Any) -> Any:
    if isinstance(value, (torch.Tensor, _SYMBOLIC)):
        return value
    if isinstance(value, (int, float, complex)):
        return _plain_number(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    return _to_float(value)


def _to_any(value: Any) -> Any:
    """Follow what torch infers for a parameter of type Any."""
    if isinstance(value, bool):
        return value
    if isinstance(value, (int, float, complex, *_ENUMS)):
        return _to_scalar(value)
    if isinstance(value, (str, bytes)):
        return _to_str(value)
    if isinstance(value, tuple):
        return tuple(_to_any(item) for item in value)
    if isinstance(value, list):
        return [_to_any(item) for item in value]
    if isinstance(value, dict):
        return {_to_any(key): _to_any(item) for key, item in value.items()}
    return value


def _forgiving(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def attempt(value: Any) -> Any:
        try:
            return convert(value)
        except Exception:  # a user's __int__, a traced proxy: what cannot convert stays
            return value

    return attempt


def _exact(*types: type, convert: Callable[[Any], Any]) -> Converter:
    return Converter(frozenset(types), frozenset(), _forgiving(convert))


_PLAIN = Converter(None, frozenset(), _keep)
_ELEMENTS: dict[str, Converter] = {
    "int": _exact(int, torch.SymInt, convert=_to_int),
    "SymInt": _exact(int, torch.SymInt, convert=_to_int),
    "float": _exact(float, torch.SymFloat, convert=_to_float),
    "complex": _exact(complex, convert=_to_complex),
    "bool": _exact(bool, torch.SymBool, convert=_to_bool),
    "SymBool": _exact(bool, torch.SymBool, convert=_to_bool),
    "Scalar": _exact(bool, int, float, complex, *_SYMBOLIC, convert=_to_scalar),
    "str": _exact(str, convert=_to_str),
    "ScalarType": _exact(torch.dtype, convert=_to_enum(DTYPES)),
    "Layout": _exact(torch.layout, convert=_to_enum(LAYOUTS)),
    "MemoryFormat": _exact(torch.memory_format, convert=_to_enum(MEMORY_FORMATS)),
    "QScheme": _exact(int, convert=_to_int),
    "Device": _exact(torch.device, convert=_to_device),
    "Any": _exact(
        torch.Tensor, bool, int, float, complex, str, _NONE, torch.device, convert=_to_any
    ),
}
_ENUM_NAMES = ("ScalarType", "Layout", "MemoryFormat")
# torch forgets that a number is an enum's where it, or its list, is optional.
_IN_LISTS = {f"{enum}?": _exact(int, _NONE, convert=_to_int) for enum in _ENUM_NAMES}
_NUMBER_TENSOR = _exact(torch.Tensor, torch.nn.Parameter, convert=_to_tensor_or_number)


def converter(type_text: str, *, number_tensors: bool = False) -> Converter:
    """Make the converter for a type as a schema writes it, 'SymInt[2]?'.

    `number_tensors` says that the operator takes Python numbers for tensors.
    """
    if type_text.endswith("[]?") and f"{type_text[:-3]}?" in _IN_LISTS:
        type_text = f"{type_text[:-3]}?[]?"
    if type_text.endswith("?"):
        inner = converter(type_text[:-1], number_tensors=number_tensors)
        if inner.exact is None:
            return inner
        return inner._replace(exact=inner.exact | {_NONE}, convert=_optional(inner.convert))
    if type_text.endswith("]"):
        element, _, size = type_text[:-1].rpartition("[")
        of = _IN_LISTS.get(element) or converter(element)
        convert = _to_list(of, element, int(size) if size else 0)
        if element == "SymInt":
            return Converter(frozenset(), of.exact or frozenset(), convert, _has_tensor)
        if of.exact is None:
            return Converter(frozenset([list]), frozenset(), convert)
        return Converter(frozenset(), of.exact, convert)
    if type_text.startswith("Dict("):
        return _always(_to_dict(*map(_inside, split_types(type_text[5:-1]))))
    if type_text.startswith("("):
        return _always(_to_tuple(list(map(_inside, split_types(type_text[1:-1])))))
    if type_text == "Tensor" and number_tensors:
        return _NUMBER_TENSOR
    return _ELEMENTS.get(type_text, _PLAIN)


def _inside(type_text: str) -> Converter:
    """Make the converter for what is in a dict or tuple, where enums stay the numbers they are."""
    return _ELEMENTS["int"] if type_text in _ENUM_NAMES else converter(type_text)


def _always(convert: Callable[[Any], Any]) -> Converter:
    return Converter(frozenset(), frozenset(), _forgiving(convert))


def _to_dict(key: Converter, item: Converter) -> Callable[[Any], Any]:
    def to_dict(value: Any) -> Any:
        pairs = dict(value).items()  # also of pairs, as torch takes them
        return {key.convert(one): item.convert(other) for one, other in pairs}

    return to_dict


def _to_tuple(items: list[Converter]) -> Callable[[Any], Any]:
    def to_tuple(value: Any) -> Any:
        pairs = zip(items, value, strict=True)
        return tuple([item.convert(one) for item, one in pairs])

    return to_tuple


def _has_tensor(values: Any) -> bool:
    """Say whether torch makes a list of symbolic numbers, which equals no list of plain ones."""
    if isinstance(values, torch.Tensor):
        length = values.shape[0] if values.dim() else 1
        return type(length) is not int or length > 0
    return type(values) in (list, tuple) and any(isinstance(v, torch.Tensor) for v in values)


def _optional(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else convert(value)


def _to_list(element: Converter, type_text: str, size: int) -> Callable[[Any], Any]:
    # One number stands for all of a sized list of plain numbers; nowhere else.
    repeated: tuple[type, ...] = {"int": (int,), "float": (float,)}.get(type_text, ())

    def to_list(value: Any) -> Any:
        if size and isinstance(value, repeated):
            return [element.convert(value)] * size
        return [element.convert(item) for item in value]

    return _forgiving(to_list)  # what is not iterable, torch will refuse
