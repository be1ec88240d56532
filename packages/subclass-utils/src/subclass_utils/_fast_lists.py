"""Short ways for operators with lists of tensors, `out` or several results.

As in `_fast_paths`, whatever is not as expected goes the general way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from subclass_utils._outside import update_outside
from subclass_utils._torch_private import (
    WRAPPER_KEYS,
    has_view_kernel,
    increment_version,
    make_outside,
    outside_of_handlers,
    restore_caller_state,
    share_storage,
    skip_in_dynamo,
)
from subclass_utils._transparent import Transparent

__all__ = ["list_path", "wrapping"]

TypedPlan = Callable[[Sequence[type], Sequence[Any], Mapping[str, Any]], Any]

_UNWRAP = """
def unwrap(outers):
    found = []
    for outer in outers:
        if outer.__class__ is cls:
            inner = outer.{name}
            if inner.requires_grad or inner.layout is not strided or inner.is_complex():
                return []
            found.append(inner)
        elif outer is None and found:
            found.append(None)
        else:
            return []
    return found
"""

_OUT = """
def run(types, args, kwargs):
    if len(args) == {count} and len(kwargs) == 1:
        ({arguments}) = args
        out = kwargs.get("{last}")
        if out.__class__ is cls and {all_ours}:
            written = out.{name}
            {unwrap}
            if not (
                written.requires_grad or written.layout is not strided or written.is_complex()
                or {odd}
            ):
                size = written.size()
                call({inner}, {last}=written)
                if not written.is_inference():
                    increment_version((written,))
                if written.size() != size:
                    update_outside(out, written, ({pairs}, (out, written)))
                return out
    return general(types, args, kwargs)
"""


_VIEWS = """
def run(types, args, kwargs):
    a0 = args[0] if args else None
    if a0.__class__ is cls:
        x0 = a0.{name}
        if x0.__class__ is tensor and not (
            x0.layout is not strided or x0.requires_grad or x0.is_complex() or x0.is_neg()
            or x0.is_inference() is not is_inference_mode() or outside_of_handlers()
        ):
            with restore_caller_state():
                result = call(x0, *args[1:], **kwargs)
            dtype, device = x0.dtype, x0.device
            made = []
            for view in result:
                wrapper = make_outside(
                    cls, view.size(), view.stride(), view.storage_offset(), None, dtype,
                    strided, device, False, False, None, False, False, keys,
                )
                wrapper.{name} = view
                {metadata}
                share_storage(wrapper, a0)
                made.append(wrapper)
            return made
    return general(args, kwargs)
"""


def list_path(cls: type[Any], op: Any, general: Transparent) -> TypedPlan | None:
    """Make the shortest way to run `op` for a class; None where there is none but the general."""
    roles = general.roles
    if not general.name.startswith("aten::") or general.asks or general.resizes:
        return None
    if general.may_copy or "nested" in general.name:
        return None
    arguments, results = roles.arguments, roles.results
    each = general.base_name.startswith("_foreach_")
    in_order = [argument.position for argument in arguments] == [*range(len(arguments))]
    lists = bool(arguments) and all(argument.is_list for argument in arguments)
    kinds = {(result.kind, result.is_list) for result in results}
    if lists and in_order and not roles.writes:
        if len(results) == 1 and kinds == {("new", True)} and each:
            return _Lists(cls, general).new
        if len(results) == 1 and kinds == {("new", False)} and len(arguments) == 1:
            return _Lists(cls, general).joined
    if lists and in_order and each and not results:
        if [argument.written for argument in arguments] == [True] + [False] * (len(arguments) - 1):
            return _Lists(cls, general).written
        return None
    if any(argument.is_list for argument in arguments):
        return None
    if in_order and not roles.writes and len(results) > 1 and kinds == {("new", False)}:
        return _Several(cls, general).new
    if kinds == {("view", True)} and len(results) == 1 and in_order and len(arguments) == 1:
        return _views(cls, op, general)
    out = arguments[-1] if arguments else None
    if out is None or out.position is not None or not out.written or kinds != {("same", False)}:
        return None
    positions = [argument.position for argument in arguments[:-1]]
    once = len(general.written) == 1 and len(results) == 1 and has_view_kernel(op)
    if once and positions == [*range(len(positions))]:
        return _out(cls, op, general)
    return None


class _Fast:
    """What the short ways have in common: to unwrap and to wrap without a second look."""

    def __init__(self, cls: type[Any], general: Transparent) -> None:
        self.general = general
        self.call = general.call
        arguments = general.roles.arguments
        self.count = sum(argument.position is not None for argument in arguments)
        self.last = arguments[-1].name
        self.unwrap = _unwrapping(cls, general)
        self.wrap = wrapping(cls, general)


def _unwrapping(cls: type[Any], general: Transparent) -> Callable[[Sequence[Any]], list[Any]]:
    """Make what gives the inner tensors of wrappers; nothing where one is not of the simple kind.

    None among them stays None, but not as the first.
    """
    namespace: dict[str, Any] = {"cls": cls, "strided": torch.strided}
    exec(_UNWRAP.format(name=general.inner_name), namespace)
    unwrap: Callable[[Sequence[Any]], list[Any]] = namespace["unwrap"]
    return unwrap


def wrapping(cls: type[Any], general: Transparent) -> Callable[[Any, Any], Any]:
    """Make what wraps a tensor that an operator on simple tensors gave."""
    name, metadata = general.inner_name, bool(cls.metadata)
    make, keys, strided = make_outside, WRAPPER_KEYS, torch.strided

    def wrap(value: Any, like: Any) -> Any:
        dtype = value.dtype
        if value.layout is not strided or dtype.is_complex:
            return general.wrap_fresh(value, like)
        made = make(
            cls,
            value.size(),
            value.stride(),
            value.storage_offset(),
            None,
            dtype,
            strided,
            value.device,
            False,
            False,
            None,
            False,
            False,
            keys,
        )
        setattr(made, name, value)
        if metadata:
            cls._carry_metadata(made, like)
        return made

    return wrap


class _Lists(_Fast):
    """Operators on nothing but lists of tensors."""

    def unwrap_lists(self, args: Sequence[Any]) -> list[list[Any]]:
        """Give the inner tensors of the lists; nothing where one is empty, or not simple."""
        lists: list[list[Any]] = []
        if len(args) >= self.count:
            for outers in args[: self.count]:
                inner = self.unwrap(outers)
                if not inner:
                    return []
                lists.append(inner)
        return lists

    def joined(self, types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run what makes one fresh tensor of a list."""
        inner = self.unwrap(args[0]) if args else None
        if not inner:
            return self.general(args, kwargs)
        return self.wrap(self.call(inner, *args[1:], **kwargs), args[0][0])

    def new(self, types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run what makes a list of fresh tensors."""
        lists = self.unwrap_lists(args)
        if not lists:
            return self.general(args, kwargs)
        like, wrap = args[0][0], self.wrap
        result = self.call(*lists, *args[self.count :], **kwargs)
        return [wrap(value, like) for value in result]

    def written(self, types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run what writes each tensor of the first list once, which autograd does not count."""
        lists = self.unwrap_lists(args)
        if not lists:
            return self.general(args, kwargs)
        # Plain tensors that wrappers are written into have their versions counted by those.
        first = lists[0]
        kind = first[0].__class__
        for inner in lists:
            for each in inner:
                if each.__class__ is not kind:
                    return self.general(args, kwargs)
        self.call(*lists, *args[self.count :], **kwargs)
        counting = [each for each in (*args[0], *first) if not each.is_inference()]
        if counting:
            increment_version(counting)
        return None


class _Several(_Fast):
    """Operators on tensors that give several."""

    def new(self, types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run what makes several fresh tensors."""
        count = self.count
        inner = self.unwrap(args[:count])
        if len(inner) < count:
            return self.general(args, kwargs)
        like, wrap = args[0], self.wrap
        result = self.call(*inner, *args[count:], **kwargs)
        return tuple([value if value is None else wrap(value, like) for value in result])


def _views(cls: type[Any], op: Any, general: Transparent) -> TypedPlan:
    """Make the way for a list of views, which are all of one dtype."""
    source = _VIEWS.format(
        name=general.inner_name,
        metadata="; ".join(f"wrapper.{name} = a0.{name}" for name in cls.metadata),
    )
    namespace: dict[str, Any] = {
        "call": general.call,
        "cls": cls,
        "general": general,
        "is_inference_mode": torch.is_inference_mode_enabled,
        "keys": WRAPPER_KEYS,
        "make_outside": make_outside,
        "outside_of_handlers": outside_of_handlers,
        "restore_caller_state": restore_caller_state,
        "share_storage": share_storage,
        "strided": torch.strided,
        "tensor": torch.Tensor,  # a class may make tensors of its own, and find no mode to do so
    }
    return _compiled(source, op, cls, namespace)


def _compiled(source: str, op: Any, cls: type[Any], namespace: dict[str, Any]) -> TypedPlan:
    exec(compile(source, f"<{op.name()} on {cls.__qualname__}>", "exec"), namespace)
    run: TypedPlan = namespace["run"]
    skip_in_dynamo(run.__code__)
    return run


def _out(cls: type[Any], op: Any, general: Transparent) -> TypedPlan:
    """Make the way for `out`, with a straight line where it is resized or left as it is."""
    run: TypedPlan = _Out(cls, general).run
    count = len(general.roles.arguments) - 1
    if not 1 <= count <= 3 or torch.Tag.pointwise not in op.tags:
        return run
    each = range(count)
    source = _OUT.format(
        name=general.inner_name,
        count=count,
        last=general.roles.arguments[-1].name,
        arguments=", ".join(f"a{i}" for i in each) + ",",
        all_ours=" and ".join(f"a{i}.__class__ is cls" for i in each),
        unwrap="; ".join(f"x{i} = a{i}.{general.inner_name}" for i in each),
        odd=" or ".join(f"x{i}.requires_grad or x{i}.is_complex()" for i in each),
        inner=", ".join(f"x{i}" for i in each),
        pairs=", ".join(f"(a{i}, x{i})" for i in each),
    )
    namespace: dict[str, Any] = {
        "cls": cls,
        "call": general.call,
        "general": run,
        "increment_version": increment_version,
        "strided": torch.strided,
        "update_outside": update_outside,
    }
    return _compiled(source, op, cls, namespace)


class _Out(_Fast):
    """Operators that write one tensor of the caller's."""

    def run(self, types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run it, and bring the outside of what was written in step where it was resized."""
        out = kwargs.get(self.last)
        inner = self.unwrap((out, *args[: self.count]))
        if out is None or len(inner) <= self.count or (args and args[0] is None):
            return self.general(args, kwargs)
        written, *read = inner
        # The wrapper itself would be slower to ask, and was in step.
        size, stride, offset = written.size(), written.stride(), written.storage_offset()
        self.call(*read, *args[self.count :], **{**kwargs, self.last: written})
        if not written.is_inference():
            increment_version((written,))
        if (
            written.size() != size
            or written.stride() != stride
            or written.storage_offset() != offset
        ):
            known = zip((*args[: self.count], out), (*read, written), strict=True)
            update_outside(out, written, tuple(pair for pair in known if pair[0] is not None))
        return out
