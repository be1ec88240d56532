"""Let torch.compile see what is made when it is first used.

Dynamo follows what Python code does, but not the imports, locks and dicts by which a handle is
found and made. While it traces, a function that it calls instead of following makes the thing and
leaves it in a place of this module, where Dynamo finds a finished object to guard on.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from dispatch_core import _torch_private as private
from dispatch_core._errors import DispatchError
from dispatch_core._handle import Handle

__all__ = ["find_handle", "find_part", "find_place"]


class _Found:
    """Holds what was found, as attributes: Dynamo looks at these one by one. No name has a dot."""


_found = _Found()


def find_place(path: str) -> Any:
    """Find what `ops` has at 'aten', 'aten/addmv' or 'aten/addmv/out'.

    Raises: AttributeError where it has nothing.
    """
    fault = _keep_place(path)
    if fault:
        raise AttributeError(fault)
    return getattr(_found, path)


def find_handle(op: Any) -> Handle[Any]:
    """Find what `handle_of` gives.

    Raises: AttributeError where it raises.
    """
    name, fault = _keep_handle(op)
    if fault:
        raise AttributeError(fault)
    handle: Handle[Any] = getattr(_found, name)
    return handle


def find_part(handle: Handle[Any], part: str) -> Any:
    """Find what an attribute of a handle holds, or what a method of it gives.

    The handle itself stays as it is, so that no guard on it fails from then on.
    """
    return getattr(_found, _keep_part(handle, part))


@private.constant_in_dynamo
def _keep_place(path: str) -> str:
    """Leave what is there in `_found`; give the error's text if there is nothing."""
    from dispatch_core._ops import ops

    try:
        thing: Any = reduce(getattr, path.split("/"), ops)
    except (DispatchError, AttributeError) as error:
        return str(error)
    setattr(_found, path, thing)
    return ""


@private.constant_in_dynamo
def _keep_handle(op: Any) -> tuple[str, str]:
    """Leave the handle in `_found`; give its name there, or the error's text."""
    from dispatch_core._registry import handle_of

    try:
        handle = handle_of(op)
    except (DispatchError, TypeError) as error:
        return "", str(error)
    name = handle.qualified_name.replace(".", "/")
    setattr(_found, name, handle)
    return name, ""


@private.constant_in_dynamo
def _keep_part(handle: Handle[Any], part: str) -> str:
    value = getattr(handle, part)
    name = f"{part} of {handle.qualified_name.replace('.', '/')}"
    setattr(_found, name, value() if callable(value) else value)
    return name
