"""Compare what a handler answers with what its operator can give.

Torch's C++ casts the answer after the handler is gone, and then knows neither the operator nor
the handler: "Unable to cast", or a TypeError that Python's operators hide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dispatch_core import _torch_private as private
from dispatch_core._describe import an, describe_handler, op_name
from dispatch_core._errors import HandlerResultError
from dispatch_core._schema import split_types

__all__ = ["gives_one_tensor", "result_check"]

Tensor = torch.Tensor
Fits = Callable[[Any], bool]

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_ENUMS = (torch.dtype, torch.layout, torch.memory_format, torch.qscheme)


def _is_number(value: Any, *conversions: str) -> bool:
    """Say whether Python makes a number of a value by one of these methods."""
    if isinstance(value, Tensor):
        size = value.numel()
        return type(size) is not int or size == 1
    return any(hasattr(value, name) for name in conversions)


def _is_int(*enums: type) -> Fits:
    def fits(value: Any) -> bool:
        if isinstance(value, float | complex | torch.SymFloat):
            return False
        return isinstance(value, enums) or _is_number(value, "__int__", "__index__")

    return fits


def _is_float(value: Any) -> bool:
    return _is_number(value, "__float__", "__index__")


def _is_complex(value: Any) -> bool:
    return isinstance(value, complex) or _is_float(value)


def _is_bool(value: Any) -> bool:
    return value is None or isinstance(value, torch.SymBool) or _is_number(value, "__bool__")


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (int, float, complex, *_SYMBOLIC, *_ENUMS)) or _is_number(value)


def _instance(*kinds: type) -> Fits:
    return lambda value: isinstance(value, kinds)


# A type that is not here is left to torch.
_FITS: dict[str, Fits] = {
    "Tensor": lambda value: value is None or isinstance(value, Tensor),
    "int": _is_int(*_ENUMS),
    "SymInt": _is_int(),
    "DeviceIndex": _is_int(*_ENUMS),
    "ScalarType": _is_int(torch.dtype),
    "Layout": _is_int(torch.layout),
    "MemoryFormat": _is_int(torch.memory_format),
    "float": _is_float,
    "complex": _is_complex,
    "bool": _is_bool,
    "SymBool": _is_bool,
    "Scalar": _is_scalar,
    "str": _instance(str, bytes, bytearray),
    "Device": _instance(torch.device),
    "Generator": _instance(torch.Generator),
    "Storage": _instance(torch.UntypedStorage, torch.TypedStorage),
}


def _anything(value: Any) -> bool:
    return True


def _fits(kind: str) -> Fits:
    """Make the test for a type as a schema writes it."""
    if kind.endswith("?"):
        inner = _fits(kind[:-1])
        return lambda value: value is None or inner(value)
    if kind.endswith("]"):
        return _fits_list(kind[: kind.rindex("[")])
    if kind.startswith("Dict("):
        return _fits_dict(*map(_fits, split_types(kind[5:-1])))
    if kind.startswith("("):
        return _fits_tuple(list(map(_fits, split_types(kind[1:-1]))))
    return _FITS.get(kind, _anything)


def _fits_list(element: str) -> Fits:
    if element == "Tensor":  # where a single tensor may be None
        item: Fits = _instance(Tensor)
    else:
        item = _fits(element)
    # Of a dict torch takes the keys, except for these.
    lists: Any = (list, tuple)
    if element not in ("Tensor", "int", "float", "bool"):
        lists = (list, tuple, dict)
    no_lists = (bytes, Tensor) if element == "str" else (str, bytes, dict, Tensor)

    def fits(value: Any) -> bool:
        if isinstance(value, lists):
            return all(map(item, value))
        return hasattr(value, "__iter__") and not isinstance(value, no_lists)

    return fits


def _fits_dict(key: Fits, item: Fits) -> Fits:
    def fits(value: Any) -> bool:
        if isinstance(value, dict):
            return all(map(key, value)) and all(map(item, value.values()))
        return isinstance(value, list | tuple) and not value

    return fits


def _fits_tuple(items: list[Fits]) -> Fits:
    def fits(value: Any) -> bool:
        if not isinstance(value, list | tuple) or len(value) != len(items):
            return False
        return all(test(item) for test, item in zip(items, value, strict=True))

    return fits


def gives_one_tensor(func: Any) -> bool:
    """Say whether an operator's only result is a tensor."""
    return private.return_types(func) == ["Tensor"]


def result_check(func: Any, handler: Any) -> Callable[[Any], Any]:
    """Make a function that gives a handler's result back, if the operator can give it.

    A list will do for a tuple; None stands for a tensor that is not there.
    Raises: HandlerResultError, where torch would say no more than "Unable to cast".
    """
    kinds = private.return_types(func)
    if kinds is None:  # a higher-order operator
        return lambda result: result
    expected = "None"
    fits: Fits = _nothing
    if len(kinds) == 1:
        expected, fits = kinds[0], _fits(kinds[0])
    elif kinds:
        expected, fits = f"({', '.join(kinds)})", _fits_tuple(list(map(_fits, kinds)))

    def check(result: Any) -> Any:
        if fits(result):
            return result
        shown = "it" if isinstance(result, Tensor | list | tuple | dict) else _shown(result)
        want = f"gives {expected}" if kinds else "gives nothing, so None"
        raise HandlerResultError(
            f"{op_name(func)}: handler {describe_handler(handler)} answered with "
            f"{_described(result)}, but the operator {want}. Unable to cast {shown} to {expected}",
            overload=func,
            handler=handler,
            expected=expected,
            result_type=type(result),
        )

    return check


def _nothing(value: Any) -> bool:
    return value is None


def _described(value: Any) -> str:
    """Say what a value is: 'an int', 'a list of Tensor, str', 'a dict of int to Tensor'."""
    got = an(type(value).__name__)
    if isinstance(value, list | tuple):
        return f"{got} of {', '.join(type(item).__name__ for item in value) or 'nothing'}"
    if isinstance(value, dict):
        items = [f"{type(k).__name__} to {type(v).__name__}" for k, v in value.items()]
        return f"{got} of {', '.join(dict.fromkeys(items)) or 'nothing'}"
    return got


def _shown(value: Any) -> str:
    try:
        return repr(value)
    except Exception:  # the error to come is about something else
        return an(type(value).__name__)
