"""Short ways for operators with lists of tensors, `out` or several results.

As in `_fast_paths`, whatever is not as expected goes the general way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from subclass_utils._carrying import carrying_lines
from subclass_utils._outside import keys_of, update_outside
from subclass_utils._torch_private import (
    has_view_kernel,
    increment_version,
    make_outside,
    outside_of_handlers,
    refuse_write_outside_inference_mode,
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
        dtype = x0.dtype
        if x0.__class__ is tensor and not (
            x0.layout is not strided or dtype.is_complex or x0.is_neg()
            or x0.is_inference() is not is_inference_mode()
        ):
            try:
                with restore_caller_state():
                    result = call(x0, *args[1:], **kwargs)
            except RuntimeError:
                if outside_of_handlers():
                    return general(args, kwargs)
                raise
            device = x0.device
            stride = result[0].stride() if result else None  # which is that of all of them
            made = []
            for view in result:
                wrapper = make_outside(
                    cls, view.size(), stride, view.storage_offset(), None, dtype,
                    strided, device, False, False, None, False, False, keys,
                )
                wrapper.{name} = view
                {metadata}
                share_storage(wrapper, a0)
                made.append(wrapper)
            return made
    return general(args, kwargs)
"""

_EACH = """
def run(types, args, kwargs):
    if len(args) >= {count}:
        {outers} = args[:{count}]
        {inners} = {unwrapped}
        if i0 and {all_ours}:
            for x in {every}:
                if (
                    x.__class__ is not tensor or x.requires_grad or x.layout is not strided
                    or x.dtype.is_complex
                ):
                    return general(args, kwargs)
            {run}
    return general(args, kwargs)
"""
_EACH_NEW = """
            like = o0[0]
            made = []
            for value in call({inners}*args[{count}:], **kwargs):
                dtype = value.dtype
                if value.layout is strided and not dtype.is_complex:
                    wrapper = make_outside(
                        cls, value.size(), value.stride(), value.storage_offset(), None, dtype,
                        strided, value.device, False, False, None, False, False, keys,
                    )
                    wrapper.{name} = value
                    {metadata}
                else:
                    wrapper = general.wrap_fresh(value, like)
                made.append(wrapper)
            return made
"""
_EACH_WRITTEN = """
            call({inners}*args[{count}:], **kwargs)
            counting = [x for x in (*o0, *i0) if not x.is_inference()]
            if counting:
                increment_version(counting)
            if len(counting) < 2 * len(i0) and not is_inference_mode():
                refuse_write_outside_inference_mode()
            return None
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
            return _each(cls, op, general, _EACH_NEW)
        if len(results) == 1 and kinds == {("new", False)} and len(arguments) == 1:
            return _Joined(cls, general).run
    if lists and in_order and each and not results:
        if [argument.written for argument in arguments] == [True] + [False] * (len(arguments) - 1):
            return _each(cls, op, general, _EACH_WRITTEN)
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
    make, keys, strided = make_outside, keys_of(cls, torch.float32), torch.strided

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


class _Joined(_Fast):
    """Operators that make one tensor of a list."""

    def run(self, types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run what makes one fresh tensor of a list."""
        inner = self.unwrap(args[0]) if args else None
        if not inner:
            return self.general(args, kwargs)
        return self.wrap(self.call(inner, *args[1:], **kwargs), args[0][0])


def _each(cls: type[Any], op: Any, general: Transparent, body: str) -> TypedPlan:
    """Make the way for operators on nothing but lists of tensors.

    They make a tensor of each, or write each of the first list once, which autograd does not
    count.
    """
    count = len(general.roles.arguments)
    each = range(count)
    inners = "".join(f"i{i}, " for i in each)
    source = _EACH.format(
        count=count,
        outers="".join(f"o{i}, " for i in each),
        inners=inners,
        unwrapped="".join(
            f"[x.{general.inner_name} for x in o{i} if x.__class__ is cls], " for i in each
        ),
        all_ours=" and ".join(f"len(i{i}) == len(o{i})" for i in each),
        every="i0" if count == 1 else "(" + ", ".join(f"*i{i}" for i in each) + ")",
        run=body.strip().format(
            count=count,
            inners=inners,
            name=general.inner_name,
            metadata=carrying_lines(cls.metadata, "like"),
        ),
    )
    return _compiled(source, op, cls, _names(cls, general))


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
        metadata=carrying_lines(cls.metadata, "a0"),
    )
    return _compiled(source, op, cls, _names(cls, general))


def _names(cls: type[Any], general: Transparent) -> dict[str, Any]:
    return {
        "as_is": cls._carrier.as_is,
        "call": general.call,
        "carried": cls._carrier.carried,
        "cls": cls,
        "general": general,
        "increment_version": increment_version,
        "is_inference_mode": torch.is_inference_mode_enabled,
        "keys": keys_of(cls, torch.float32),  # of any dtype
        "make_outside": make_outside,
        "outside_of_handlers": outside_of_handlers,
        "refuse_write_outside_inference_mode": refuse_write_outside_inference_mode,
        "restore_caller_state": restore_caller_state,
        "share_storage": share_storage,
        "strided": torch.strided,
        "tensor": torch.Tensor,  # a class may make tensors of its own, and find no mode to do so
    }


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
