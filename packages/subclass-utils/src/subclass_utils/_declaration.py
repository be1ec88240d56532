"""Check what a wrapper class declares, when the class is made and when an object is."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import keyword
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import torch
from dispatch_core import HandlerTable

from subclass_utils._errors import DeclarationError
from subclass_utils._outside import new_outside, outside_differs
from subclass_utils._roles import each_in
from subclass_utils._torch_private import has_key, is_zero_tensor, with_memory

__all__ = [
    "PLAIN_TYPES",
    "cannot_travel",
    "check_class",
    "check_conversion",
    "check_inner_tensors",
    "check_object",
    "filler",
    "travels",
    "with_wrapper_key",
]

_MIXING = ("error", "wrap", "unwrap")
_WITHOUT_HANDLER = ("error", "to_plain")
PLAIN_TYPES = {
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    range,
    slice,
    type(Ellipsis),
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.Size,
}
_CONTAINERS = (tuple, list, set, frozenset)


def travels(value: Any) -> str | None:
    """Say what keeps a value from travelling with a wrapper; None if nothing does."""
    cls: type[Any] = type(value)
    if cls.__module__ == "torch.fx.immutable_collections":  # what torch.compile makes of builtins
        cls = list if isinstance(value, list) else dict
    if cls in PLAIN_TYPES or isinstance(value, enum.Enum):
        return None
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return None
    if isinstance(value, torch.Tensor):
        return "a tensor"
    if cls in _CONTAINERS:
        return _held(cls, value)
    if cls is dict:
        return _held(cls, [*value.keys(), *value.values()])
    if dataclasses.is_dataclass(cls):
        if not cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
            return f"a {cls.__qualname__}, a dataclass that is not frozen"
        fields = [getattr(value, field.name) for field in dataclasses.fields(cls)]
        return _held(cls, fields)
    return f"a {cls.__qualname__}"


def _held(cls: type[Any], values: Iterable[Any]) -> str | None:
    problem = next(filter(None, map(travels, values)), None)
    return problem and f"a {cls.__qualname__} that holds {problem}"


def cannot_travel(name: str, problem: str) -> str:
    """Say of a metadata value why it cannot travel, and what to do."""
    remedy = "tensors belong into inner_tensors" if problem.endswith("a tensor") else _TRAVELLERS
    return f"metadata {name!r} is {problem}, which cannot travel: {remedy}"


def check_class(cls: type[Any], overridden: set[str]) -> None:
    """Check a new class's declaration, and report everything that is wrong with it at once.

    Raises: DeclarationError.
    """
    faults = [
        *_check_names(cls, "inner_tensors"),
        *_check_names(cls, "metadata"),
    ]
    if not faults:
        both = set(cls.inner_tensors) & set(cls.metadata)
        if both:
            faults.append(f"{sorted(both)} are declared both as inner tensors and as metadata")
        if not cls.inner_tensors:
            faults.append("inner_tensors is empty: name the attributes that hold tensors")
        faults += _check_defaults(cls)
    if cls.mixing not in _MIXING:
        faults.append(f"mixing is {cls.mixing!r}, but must be one of {', '.join(_MIXING)}")
    if cls.without_handler not in _WITHOUT_HANDLER:
        faults.append(
            f"without_handler is {cls.without_handler!r}, but must be one of "
            f"{', '.join(_WITHOUT_HANDLER)}"
        )
    own = {name: name in overridden for name in ("__new__", "to_plain", "from_plain")}
    if own["to_plain"] != own["from_plain"]:
        given, missing = ("to_plain", "from_plain")[:: 1 if own["to_plain"] else -1]
        faults.append(
            f"it has {given} but not {missing}: where the outside differs from the inner tensors, "
            "give both, to_plain(self) and the classmethod from_plain(cls, plain, like)"
        )
    several = isinstance(cls.inner_tensors, tuple) and len(cls.inner_tensors) > 1
    differs = own["to_plain"] or own["from_plain"] or several
    if differs and not own["__new__"]:
        why = (
            f"it has {len(cls.inner_tensors)} inner tensors"
            if several
            else "it has to_plain and from_plain"
        )
        faults.append(
            f"{why}, so its outside is not that of one inner tensor: say the outside in __new__, "
            "which returns torch.Tensor._make_wrapper_subclass(cls, size, dtype=…, device=…, "
            "requires_grad=…)"
        )
    if own["from_plain"] and not isinstance(
        inspect.getattr_static(cls, "from_plain"), classmethod | staticmethod
    ):
        faults.append("from_plain must be a classmethod, from_plain(cls, plain, like)")
    faults += _check_spelling(cls)
    if faults:
        raise DeclarationError(
            f"{cls.__qualname__}: " + "; ".join(faults),
            cls=cls,
        )


# What a class declares by a value, and the types that this may be meant to have.
_DECLARED = {
    "inner_tensors": (tuple, list, str),
    "metadata": (tuple, list, str),
    "mixing": (str,),
    "without_handler": (str,),
    "table": (HandlerTable,),
}


def _check_spelling(cls: type[Any]) -> list[str]:
    """Find attributes that look as if a declaration was meant, which would pass unnoticed."""
    faults = []
    own = vars(cls)
    for name, value in own.items():
        meant = get_close_matches(name.lower(), _DECLARED, n=1, cutoff=0.85)
        if not meant or name in _DECLARED or meant[0] in own or hasattr(torch.Tensor, name):
            continue
        declared = [each for each in (cls.inner_tensors, cls.metadata) if isinstance(each, tuple)]
        if isinstance(value, _DECLARED[meant[0]]) and not any(name in each for each in declared):
            faults.append(
                f"it has {name} = {value!r}, which declares nothing: did you mean {meant[0]}? If "
                "not, take a name that is less like it"
            )
    return faults


# What is kept in a wrapper's `__dict__` beside what its class declares.
_RESERVED = {"_argument", "_family", "_family_seen", "_from_data", "_is_param", "_lent"}


def _is_of_base(cls: type[Any], name: str) -> bool:
    base: Any = next(base for base in cls.__mro__ if base.__name__ == "WrapperTensor")
    return name in vars(base) or name in base.__annotations__


def _check_names(cls: type[Any], attribute: str) -> list[str]:
    names = getattr(cls, attribute)
    if isinstance(names, str) or not isinstance(names, tuple):
        return [f"{attribute} is {names!r}, but must be a tuple of attribute names"]
    faults = []
    for name in names:
        if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
            faults.append(f"{attribute} has {name!r}, which is no name of an attribute")
        elif name.startswith("__"):
            faults.append(f"{attribute} has {name!r}: names with two underscores are Python's own")
        elif hasattr(torch.Tensor, name):
            faults.append(
                f"{attribute} has {name!r}, which would hide torch.Tensor.{name}: "
                f"take another name, such as '{name}_' or '_{name}'"
            )
        elif name in _RESERVED or _is_of_base(cls, name):
            faults.append(f"{attribute} has {name!r}, a name that WrapperTensor uses itself")
    if len(set(names)) != len(names):
        faults.append(f"{attribute} names an attribute twice: {names!r}")
    return faults


def _check_defaults(cls: type[Any]) -> list[str]:
    faults = []
    for name in cls.metadata:
        value = getattr(cls, name, None)
        problem = None if hasattr(type(value), "__get__") else travels(value)
        if problem is not None:
            faults.append(cannot_travel(name, problem))
    return faults


_TRAVELLERS = (
    "values may be builtins, Enum members, frozen dataclasses of these, torch.dtype, torch.device "
    "and torch.Size"
)


def _no_tensor(wrapper: Any, name: str) -> str:
    """Say what an inner tensor is, if it is no tensor."""
    value = getattr(wrapper, name, None)
    if isinstance(value, torch.Tensor):
        return ""
    return f"is a {type(value).__qualname__}" if hasattr(wrapper, name) else "is not set"


def check_object(wrapper: Any) -> None:
    """Check that a new object has what its class declares, and give its zeros memory.

    Raises: DeclarationError.
    """
    cls = type(wrapper)
    if not _is_complete(cls, wrapper.__dict__):
        _check_attributes(cls, wrapper)
    for name in cls.inner_tensors:
        inner = getattr(wrapper, name)
        if is_zero_tensor(inner):
            setattr(wrapper, name, with_memory(inner))
    if cls._transparent:
        inner = getattr(wrapper, cls.inner_tensors[0])
        if outside_differs(wrapper, inner):
            raise DeclarationError(
                f"{cls.__qualname__}: __new__ says an outside of {_outside_text(wrapper)}, but "
                f"the inner tensor {cls.inner_tensors[0]!r} has {_outside_text(inner)}. A class "
                "whose outside differs must give to_plain(self) and the classmethod "
                "from_plain(cls, plain, like); else leave __new__ away.",
                cls=cls,
            )


_FILL = """
def fill(wrapper, {values}):
{assignments}
    return {tests}
"""


def filler(cls: type[Any]) -> Callable[..., bool]:
    """Make what gives an object what its class declares; False where that needs a closer look."""
    names = (*cls.inner_tensors, *cls.metadata)
    values = [f"value{index}" for index in range(len(names))]
    count = len(cls.inner_tensors)
    tests = [f"isinstance({value}, Tensor) and not is_zero({value})" for value in values[:count]]
    tests += [f"{value}.__class__ in plain_types" for value in values[count:]]
    pairs = zip(names, values, strict=True)
    source = _FILL.format(
        values=", ".join(values),
        assignments="\n".join(f"    wrapper.{name} = {value}" for name, value in pairs),
        tests=" and ".join(tests),
    )
    namespace: dict[str, Any] = {
        "Tensor": torch.Tensor,
        "is_zero": is_zero_tensor,
        "plain_types": PLAIN_TYPES,
    }
    exec(compile(source, f"<{cls.__qualname__}>", "exec"), namespace)
    fill: Callable[..., bool] = namespace["fill"]
    return fill


def _is_complete(cls: type[Any], attributes: Mapping[str, Any]) -> bool:
    """Say whether everything is there, where that is seen at a glance."""
    for name in cls.inner_tensors:
        if not isinstance(attributes.get(name), torch.Tensor):
            return False
    for name in cls.metadata:
        if name not in attributes or type(attributes[name]) not in PLAIN_TYPES:
            return False
    return True


def _check_attributes(cls: type[Any], wrapper: Any) -> None:
    for name in cls.inner_tensors:
        wrong = _no_tensor(wrapper, name)
        if wrong:
            raise DeclarationError(
                f"{cls.__qualname__}: inner tensor {name!r} {wrong} after __init__, but must be "
                f"a tensor: set self.{name} in __init__, to an empty one where there is none, or "
                "take it off inner_tensors",
                cls=cls,
            )
    for name in cls.metadata:
        if not hasattr(wrapper, name):
            raise DeclarationError(
                f"{cls.__qualname__}: metadata {name!r} is not set after __init__: set "
                f"self.{name}, or take it off metadata",
                cls=cls,
            )
        problem = travels(getattr(wrapper, name))
        if problem is not None:
            raise DeclarationError(f"{cls.__qualname__}: {cannot_travel(name, problem)}", cls=cls)


def check_conversion(cls: type[Any], method: str, given: torch.Tensor, made: Any) -> None:
    """Check that what `to_plain` or `from_plain` made of a tensor looks as that one does.

    Raises: DeclarationError.
    """
    wanted: type = cls if method == "from_plain" else torch.Tensor
    if not isinstance(made, wanted) or not isinstance(made, torch.Tensor):
        raise DeclarationError(
            f"{cls.__qualname__}.{method} gave a {type(made).__qualname__}, but must give a "
            f"{wanted.__qualname__}",
            cls=cls,
        )
    if made.dtype is given.dtype and made.size() == given.size():
        return
    if method == "from_plain" and made.size() != given.size():
        remedy = (
            "the wrapper's outside must be that of the plain tensor, so let __new__ say its size; "
            "if the class holds tensors of some sizes only, register a handler for the operator "
            "that gives others (aten::stack where a DataLoader collates)"
        )
    elif method == "from_plain":
        remedy = (
            "the wrapper's outside must be that of the plain tensor, so let it keep the dtype (in "
            "the dtype of an inner tensor, or as metadata), or register a handler for "
            "aten::_to_copy if the class has but one dtype"
        )
    else:
        remedy = (
            "it must be what the outside says, so convert it, or say another outside in __new__"
        )
    raise DeclarationError(
        f"{cls.__qualname__}.{method} made {_looks(made)} of {_looks(given)}: {remedy}",
        cls=cls,
    )


def _looks(tensor: torch.Tensor) -> str:
    return f"{tensor.dtype} and size {tuple(tensor.size())}"


def _outside_text(tensor: torch.Tensor) -> str:
    stride = f", stride {tuple(tensor.stride())}" if tensor.layout is torch.strided else ""
    return f"{tensor.dtype} and size {tuple(tensor.size())}{stride}"


def check_inner_tensors(
    cls: type[Any], func: Any, values: Sequence[Any], error: AttributeError
) -> None:
    """Say which wrapper of a call has no inner tensor, where an attribute was missing.

    Raises: DeclarationError if there is one.
    """
    for wrapper in each_in(values):
        own: Any = type(wrapper)
        if not hasattr(own, "inner_tensors"):
            continue
        for name in own.inner_tensors:
            wrong = _no_tensor(wrapper, name)
            if wrong:
                raise DeclarationError(
                    f"{func.name()}: a {own.__qualname__} whose inner tensor {name!r} {wrong}: "
                    f"make it by {own.__qualname__}(...) or {own.__qualname__}.from_plain(...), "
                    "not by as_subclass or _make_subclass, and set inner tensors to nothing but "
                    "tensors",
                    cls=own,
                ) from error


def with_wrapper_key(cls: type[Any], wrapper: Any) -> Any:
    """Give a wrapper whose `__new__` did not use ours the dispatch key that ours have.

    Raises: DeclarationError if `__new__` made no wrapper.
    """
    if not hasattr(type(wrapper), "inner_tensors"):
        raise DeclarationError(
            f"{cls.__qualname__}.__new__ gave a {type(wrapper).__qualname__}, but must give a "
            f"{cls.__qualname__}: return torch.Tensor._make_wrapper_subclass(cls, size, dtype=…, "
            "device=…, requires_grad=…)",
            cls=cls,
        )
    if has_key(wrapper):
        return wrapper
    strided = wrapper.layout is torch.strided
    made = new_outside(
        type(wrapper),
        wrapper.size(),
        wrapper.stride() if strided else None,
        wrapper.storage_offset() if strided else None,
        wrapper.dtype,
        wrapper.layout,
        wrapper.device,
        wrapper.requires_grad,
    )
    made.__dict__.update(wrapper.__dict__)
    for name in (*cls.inner_tensors, *cls.metadata):
        if name not in wrapper.__dict__ and hasattr(wrapper, name) and not hasattr(made, name):
            setattr(made, name, getattr(wrapper, name))  # in a slot
    return made
