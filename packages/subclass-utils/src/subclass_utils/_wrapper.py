"""The base class of tensors that wrap tensors."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from dispatch_core import HandlerError, HandlerTable, handle_of
from dispatch_core._for_subclass_utils import entries_of, has_handlers, remembered_of
from torch.serialization import add_safe_globals

from subclass_utils import _compiled, _copying
from subclass_utils._carrying import Carrier
from subclass_utils._collation import register_collation
from subclass_utils._conversions import check_conversions, know_conversions
from subclass_utils._declaration import (
    check_class,
    check_inner_tensors,
    check_object,
    filler,
    with_wrapper_key,
)
from subclass_utils._errors import DeclarationError, MixingError
from subclass_utils._items import set_item
from subclass_utils._memory import NoMemory
from subclass_utils._new_tensors import NewTensors
from subclass_utils._other_data import can_take, take_data
from subclass_utils._outside import keys_of, outside_like
from subclass_utils._own_composites import (
    follow_tables,
    has_data_of,
    shares_inner_tensors,
    take_whole,
)
from subclass_utils._plans import make_plan, run_whole, run_without_handler, runs_in_parts
from subclass_utils._roles import each_in
from subclass_utils._shared_data import connect, make_from_plain, reclaim, root_of
from subclass_utils._torch_private import (
    count_modes,
    inference_mode,
    is_zero_tensor,
    no_torch_function,
    outside_of_handlers,
    skip_in_dynamo,
    with_memory,
    without_modes,
)
from subclass_utils._traced_constants import answer_in_trace

__all__ = ["WrapperTensor"]

_data = torch.Tensor.data
_is_tracing = torch.compiler.is_dynamo_compiling
_is_inference_mode = torch.is_inference_mode_enabled


def _is_from_outside(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Say whether there is no inference tensor, and so no wrapper of one; handlers say nothing."""
    if not outside_of_handlers():
        return False
    tensors = [each for each in (*args, *kwargs.values()) if isinstance(each, torch.Tensor)]
    return bool(tensors) and not any(each.is_inference() for each in tensors)


class _WrapperMeta(torch._C._TensorMeta):
    """Checks an object when it has been made, and keeps a class's table and plans together."""

    def __call__(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if cls._makes_outside and _is_inference_mode() and _is_from_outside(args, kwargs):
            with inference_mode(False):
                return cls(*args, **kwargs)
        wrapper = cls.__new__(cls, *args, **kwargs)
        if wrapper.__class__ is not cls or (
            cls._makes_outside and keys_of(cls, wrapper.dtype) is not None
        ):
            wrapper = with_wrapper_key(cls, wrapper)
            if not isinstance(wrapper, cls):
                return wrapper
        if kwargs or len(args) != cls._count or cls.__init__ is not _init:
            wrapper.__init__(*args, **kwargs)
            check_object(wrapper)
        else:  # the same as our __init__, and a check at a glance
            simple = cls._fill(wrapper, *args)
            if not simple or (cls._transparent and (cls._makes_outside or cls._in_slots)):
                check_object(wrapper)
        return wrapper

    def __setattr__(cls, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "table":
            made: Any = cls
            made._set_up_table()
        elif name == "__torch_dispatch__":
            _make_honest(cls)


class WrapperTensor(  # type: ignore[misc]  # new_tensor takes any options
    NoMemory, NewTensors, torch.Tensor, metaclass=_WrapperMeta
):
    """A tensor that holds inner tensors and answers every operator with them.

    A class with one inner tensor of the same shape and dtype is *transparent*: an operator
    without a handler runs on the inner tensor and its result is wrapped, carrying the metadata of
    the first wrapper among the arguments. A class whose outside differs says it in `__new__` and
    gives `to_plain` and `from_plain`.

    Class attributes:
        inner_tensors: the names of the attributes that hold tensors.
        metadata: the names of the attributes that travel along: builtins, Enum members, frozen
            dataclasses of these, torch.dtype, torch.device, torch.Size.
        mixing: what a plain tensor beside a wrapper means to an operator without a handler:
            "wrap" it, "unwrap" the wrappers (the result is plain), or "error".
        without_handler: what an operator without a handler does where the outside differs:
            "error", or "to_plain": run on `to_plain()`, with a plain result; a view reads and
            writes the wrapper.
        table: the handlers, inherited through the MRO.

    Raises: DeclarationError for a declaration that does not hold, at class creation or at
    construction.
    """

    inner_tensors: ClassVar[tuple[str, ...]] = ("elem",)
    metadata: ClassVar[tuple[str, ...]] = ()
    mixing: ClassVar[Literal["error", "wrap", "unwrap"]] = "wrap"
    without_handler: ClassVar[Literal["error", "to_plain"]] = "error"
    table: ClassVar[HandlerTable] = HandlerTable()

    _entries: ClassVar[Any]
    _plans: ClassVar[Mapping[Any, Any]]
    _keys: ClassVar[dict[torch.dtype, Any]] = {}  # empty while there is no wrapper of the class
    _keys_for_composites: ClassVar[bool] = False
    _transparent: ClassVar[bool] = True
    _is_part: ClassVar[bool] = False
    _makes_outside: ClassVar[bool] = False  # by a `__new__` that is not ours
    _declared: ClassVar[tuple[str, ...]] = inner_tensors
    _count: ClassVar[int] = 1
    _fill: ClassVar[Any]
    _carrier: ClassVar[Carrier] = Carrier()
    _in_slots: ClassVar[bool] = False  # some inner tensor is no entry of `__dict__`

    __torch_function__ = no_torch_function

    # ── the class ───────────────────────────────────────────────────────────────────────────────

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check_class(cls, _overridden(cls))
        cls._transparent = (
            len(cls.inner_tensors) == 1
            and "to_plain" not in _overridden(cls)
            and "from_plain" not in _overridden(cls)
        )
        cls._makes_outside = "__new__" in _overridden(cls)
        cls._declared = (*cls.inner_tensors, *cls.metadata)
        cls._count = len(cls._declared)
        cls._carrier = Carrier()
        cls._fill = staticmethod(filler(cls))
        cls._in_slots = any(
            hasattr(inspect.getattr_static(cls, name, None), "__set__")
            for name in cls.inner_tensors
        )
        if cls.mixing == "error" and cls.__setitem__ is torch.Tensor.__setitem__:
            cls.__setitem__ = set_item  # type: ignore[method-assign]
        cls._keys = {}
        cls._set_up_table()
        _make_honest(cls)
        know_conversions(cls)
        _initialise_once(cls)
        register_collation(cls)
        add_safe_globals([cls])
        _copying.CLASSES[cls.__module__, cls.__qualname__] = cls

    @classmethod
    def _set_up_table(cls) -> None:
        if not isinstance(cls.table, HandlerTable):
            raise DeclarationError(
                f"{cls.__qualname__}: table is a {type(cls.table).__qualname__}, but must be a "
                "dispatch_core.HandlerTable; a class has one already, so leave it away and "
                "register with table.implements",
                cls=cls,
            )
        cls._entries = entries_of(cls.table)
        cls._plans = remembered_of(cls.table)
        take_whole(cls)

    @classmethod
    def _has_own_handler(cls, func: Any) -> bool:
        """Say whether the class answers an operator by itself."""
        own_dispatch = cls.__torch_dispatch__.__func__  # type: ignore[attr-defined]
        return own_dispatch is not _default_dispatch or cls._entries[func].kind != "missing"

    # ── making one ──────────────────────────────────────────────────────────────────────────────

    @staticmethod
    def __new__(cls: type[Any], *args: Any, requires_grad: bool = False, **kwargs: Any) -> Any:
        """Make the outside of a transparent wrapper: that of its inner tensor."""
        name = cls.inner_tensors[0]
        inner = args[0] if args else kwargs.get(name)
        if not isinstance(inner, torch.Tensor):
            raise DeclarationError(
                f"{cls.__qualname__}: the first argument must be the inner tensor {name!r}, not a "
                f"{type(inner).__qualname__}; a class that is made otherwise says its outside in "
                "__new__",
                cls=cls,
            )
        return outside_like(cls, inner, requires_grad)

    def __init__(self, *values: Any, requires_grad: bool = False, **named: Any) -> None:
        """Set the inner tensors and the metadata, in the order declared or by name.

        If the wrapper itself requires grad its inner tensors are detached.
        """
        cls = type(self)
        if _is_made(self, values):
            return
        names = cls._declared
        if len(values) == len(names) and not named and not requires_grad:
            for name, value in zip(names, values, strict=True):
                setattr(self, name, value)
            return
        if len(values) > len(names):
            raise DeclarationError(
                f"{cls.__qualname__} takes {', '.join(names)}: got {len(values)} arguments", cls=cls
            )
        given = dict(zip(names, values, strict=False))
        for name, value in named.items():
            if name not in names or name in given:
                problem = "twice" if name in given else "which it does not declare"
                raise DeclarationError(
                    f"{cls.__qualname__} takes {', '.join(names)}: got {name!r}, {problem}",
                    cls=cls,
                )
            given[name] = value
        for name, value in given.items():
            if requires_grad and name in cls.inner_tensors:
                value = value.detach()
            setattr(self, name, value)

    @classmethod
    def _carry_metadata(cls, wrapper: Any, like: Any) -> None:
        """Give a new wrapper the metadata of another one."""
        as_is = cls._carrier.as_is
        for name in cls.metadata:
            if like is not None and hasattr(like, name):
                value = getattr(like, name)
                if value.__class__ not in as_is:
                    value = cls._carrier.carried(value)
                setattr(wrapper, name, value)
            elif not hasattr(cls, name):
                raise DeclarationError(
                    f"{cls.__qualname__}: no wrapper among the arguments says what metadata "
                    f"{name!r} a new one has: give the class attribute {name} a default",
                    cls=cls,
                )

    def to_plain(self) -> torch.Tensor:
        """Give the plain tensor that this stands for."""
        plain: torch.Tensor = getattr(self, type(self).inner_tensors[0])
        return plain

    @classmethod
    def from_plain(cls, plain: torch.Tensor, like: Any = None) -> Any:
        """Wrap a plain tensor, with the metadata of `like`."""
        if not cls._transparent:
            raise DeclarationError(
                f"{cls.__qualname__}: its outside differs from its inner tensors, so it must "
                "give to_plain(self) and the classmethod from_plain(cls, plain, like)",
                cls=cls,
            )
        if _is_tracing() and cls.__init__ is _init and not cls._makes_outside:
            # A constructor is what torch.compile takes into its graph as it is.
            return cls(plain, **{k: getattr(like, k) for k in cls.metadata if hasattr(like, k)})
        if is_zero_tensor(plain):
            plain = with_memory(plain)
        made = outside_like(cls, plain)
        setattr(made, cls.inner_tensors[0], plain)
        cls._carry_metadata(made, like)
        return made

    # ── operators ───────────────────────────────────────────────────────────────────────────────

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's stub forgets func
        cls,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Answer an operator: by its handler, or by what the declaration says."""
        plan = cls._plans.get(func)
        if plan is None:
            plan = make_plan(cls, func)
        if count_modes():
            answer = answer_in_trace(func, args, kwargs or {})
            if answer is not NotImplemented:
                return answer
        try:
            return plan(types, args, kwargs or {})
        except AttributeError as error:
            check_inner_tensors(cls, func, (*args, *(kwargs or {}).values()), error)
            raise
        except TypeError as error:
            check_conversions(func, error)
            raise

    @classmethod
    def run_without_handler(cls, op: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Answer an operator as the declaration says, for a handler that adds something to that.

        It is that of the most derived class among the arguments. Handlers of that operator are
        passed over, also inherited ones; those of the parts of a composite operator are not.
        """
        handle = handle_of(op)
        args, kwargs = handle.elide(handle.bind(args, kwargs))
        own = cls
        for value in each_in((*args, *kwargs.values())):
            if issubclass(type(value), own):
                own = type(value)
        return run_without_handler(own, handle.torch_op, args, kwargs)

    @classmethod
    def _run_whole(
        cls, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], differentiable: bool
    ) -> Any:
        return run_whole(cls, func, args, kwargs, differentiable)

    @classmethod
    def _wants_parts(cls) -> bool:
        """Say whether the class may do something of its own with a composite operator's parts."""
        own_dispatch = cls.__torch_dispatch__.__func__  # type: ignore[attr-defined]
        return own_dispatch is not _default_dispatch or has_handlers(cls.table)

    @classmethod
    def _runs_in_parts(cls, func: Any) -> bool:
        """Say whether an operator is none of its own to this class: its parts arrive instead."""
        return not cls._entries[func].is_named and runs_in_parts(func)

    def _has_data_of(self, other: torch.Tensor) -> bool:
        """Say whether a wrapper that a handler made is another one, made anew."""
        return has_data_of(self, other)

    def _shares_inner_tensors(self, other: torch.Tensor) -> bool:
        """Say whether a wrapper that a handler made may be a view of another tensor."""
        return shares_inner_tensors(self, other)

    # ── data ────────────────────────────────────────────────────────────────────────────────────

    @property
    def data(self) -> Any:
        """Give a wrapper of the same data that autograd knows nothing of."""
        if not self._transparent:  # what is written into that one is to be seen in this one
            reclaim(root_of(self))
        made = _data.__get__(self)  # type: ignore[attr-defined]
        if isinstance(made, WrapperTensor) and made is not self:
            for name in type(self).inner_tensors:
                if isinstance(getattr(made, name, None), torch.Tensor):
                    setattr(made, name, getattr(self, name).data)
            made.__dict__.pop("_family_seen", None)
            made.__dict__["_from_data"] = True
        return made

    @data.setter
    def data(self, other: torch.Tensor) -> None:
        """Take over the data, and so shape and metadata, of another tensor."""
        cls = type(self)
        if not isinstance(other, torch.Tensor):
            _data.__set__(self, other)  # which raises
        if not can_take(self, other):
            if cls.mixing == "error":
                raise MixingError(
                    f"{cls.__qualname__}.data: the new data is a plain Tensor; {cls.__qualname__} "
                    f"mixes by policy 'error': wrap it with {cls.__qualname__}.from_plain.",
                    qualified_name="data",
                    argument="data",
                    cls=cls,
                )
            other = make_from_plain(cls, other.detach(), self)
        take_data(self, other)

    # ── torch.compile ───────────────────────────────────────────────────────────────────────────

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        """Give the names of the inner tensors, and what else it takes to build this again."""
        return _compiled.parts_of(self)

    @classmethod
    def __tensor_unflatten__(
        cls, inner: Mapping[str, Any], context: Any, size: Any, stride: Any
    ) -> Any:
        """Build a wrapper from what `__tensor_flatten__` gave."""
        return _compiled.put_together(cls, inner, context, size, stride)

    def __coerce_tangent_metadata__(self) -> Any:
        """Say, by an example, what torch.compile is to expect as a gradient of this result."""
        return _compiled.example_of_gradient(self)

    def __coerce_same_metadata_as_tangent__(
        self, expected: Any, expected_type: type[Any] | None = None
    ) -> Any:
        """Give this gradient the metadata that torch.compile foresaw; None where that cannot be."""
        return _compiled.gradient_as_foreseen(self, expected, expected_type)

    # ── copies ──────────────────────────────────────────────────────────────────────────────────

    def __copy__(self) -> Any:
        """Make another wrapper of the same inner tensors, as torch does with a storage."""
        made = _copying.share_with(self)
        if self._is_part:
            made.__dict__["_family_seen"] = self.__dict__.get("_family_seen")
        elif not self._transparent:
            connect(made, self)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Copy the inner tensors and everything else; see `_copying.deepcopy_wrapper`."""
        return _copying.deepcopy_wrapper(self, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Say how to build this again, for pickle, torch.save and queues."""
        return _copying.reduce_wrapper(self)

    # ── text ────────────────────────────────────────────────────────────────────────────────────

    def __repr__(self) -> str:  # type: ignore[override]  # without tensor_contents
        """Show class, inner tensors and metadata, without dispatching anything."""
        cls = type(self)
        with without_modes(), torch._C._DisableFuncTorch():
            shown = [repr(getattr(self, cls.inner_tensors[0], None))]
            shown += [f"{name}={getattr(self, name, None)!r}" for name in cls.inner_tensors[1:]]
            shown += [f"{name}={getattr(self, name, None)!r}" for name in cls.metadata]
            if self.requires_grad:
                shown.append("requires_grad=True")
        return f"{cls.__name__}({', '.join(shown)})"

    def __format__(self, spec: str) -> str:
        """Format the number of a 0-dim tensor, as torch does; anything else as `repr`."""
        if self.dim() == 0 and spec:
            with without_modes():
                return format(self.to_plain().detach().item(), spec)
        return format(repr(self), spec)


def _overridden(cls: type[Any]) -> set[str]:
    """List what a class, or a base between it and WrapperTensor, has of its own."""
    line = cls.__mro__[: cls.__mro__.index(WrapperTensor)]
    return {name for base in line for name in vars(base)}


def _make_honest(cls: type[Any]) -> None:
    """Let no TypeError of a class's own `__torch_dispatch__` turn into "unsupported operand"."""
    base = next(base for base in cls.__mro__ if "__torch_dispatch__" in vars(base))
    if base is not cls and issubclass(base, WrapperTensor):
        return  # it has been seen to
    own: Any = vars(base)["__torch_dispatch__"]  # a mixin keeps its own
    inner = getattr(own, "__func__", None)
    if inner is None or hasattr(inner, "__honest__"):
        return

    def __torch_dispatch__(
        cls: type[Any],
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        try:
            return own.__get__(None, cls)(func, types, args, kwargs or {})
        except TypeError as error:
            raise HandlerError(
                f"{func.name()}: {cls.__qualname__}.__torch_dispatch__ raised "
                f"{type(error).__name__}: {error}",
                overload=func,
                handler=inner,
            ) from error

    __torch_dispatch__.__honest__ = inner  # type: ignore[attr-defined]
    skip_in_dynamo(__torch_dispatch__.__code__)
    cls.__torch_dispatch__ = classmethod(__torch_dispatch__)


def _is_made(wrapper: Any, values: Sequence[Any]) -> bool:
    """Say whether `torch.Tensor(wrapper)` calls: torch made an alias, and Python initialises it."""
    cls = type(wrapper)
    return (
        len(values) == 1
        and type(values[0]) is cls
        and all(
            isinstance(getattr(wrapper, name, None), torch.Tensor) for name in cls.inner_tensors
        )
    )


def _initialise_once(cls: type[Any]) -> None:
    own: Any = cls.__dict__.get("__init__")
    if own is None:
        return

    @functools.wraps(own)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs or not _is_made(self, args):
            own(self, *args, **kwargs)

    cls.__init__ = __init__


_init = WrapperTensor.__init__
_default_dispatch = WrapperTensor.__torch_dispatch__.__func__  # type: ignore[attr-defined]
WrapperTensor._set_up_table()
follow_tables(WrapperTensor)
WrapperTensor._fill = staticmethod(filler(WrapperTensor))
register_collation(WrapperTensor)
skip_in_dynamo(WrapperTensor.__torch_dispatch__.__func__.__code__)  # type: ignore[attr-defined]
skip_in_dynamo(WrapperTensor.from_plain.__func__.__code__)  # type: ignore[attr-defined]
skip_in_dynamo(WrapperTensor.data.fget.__code__)  # type: ignore[attr-defined]
skip_in_dynamo(WrapperTensor.untyped_storage.__code__)
