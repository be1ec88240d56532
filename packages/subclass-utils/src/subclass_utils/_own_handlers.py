"""Call a class's own handlers, and see to what they leave to the package.

That is for a transparent class to bring the outsides in step, and for others to know who shares
whose data. Most handlers are given wrappers of their class and give one, or a plain tensor; for
those there are shorter ways, which leave everything else to the general one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from operator import attrgetter
from typing import Any

import torch
from dispatch_core._for_subclass_utils import Entry, after_declining, handler_failed

from subclass_utils._description import all_views_of
from subclass_utils._own_composites import shares_inner_tensors
from subclass_utils._own_writes import OwnWrites, settle
from subclass_utils._roles import each_in, roles_of
from subclass_utils._shared_data import KEEP_ALL, connect, inner_of, lend
from subclass_utils._torch_private import (
    increment_version,
    is_alias_of,
    is_functional,
    others_are_watching,
    share_storage,
    skip_in_dynamo,
    without_modes,
)
from subclass_utils._transparent import Transparent, is_made_by_torch, mixing_error

__all__ = ["handled_plan"]

TypedPlan = Callable[[Sequence[type], Sequence[Any], Mapping[str, Any]], Any]

_tensor = torch.Tensor
_is_inference_mode = torch.is_inference_mode_enabled
_LEND_NOTHING = {torch.Tensor, torch.nn.Parameter, int, float, bool, complex, str, type(None)}


def handled_plan(cls: type[Any], func: Any, entry: Entry) -> TypedPlan:
    """Make what calls the handler that a class has for an overload."""
    general = _General(cls, func, entry)
    if (
        cls.mixing == "error"
        or entry.at_once is None
        or entry.composite == "implicit"
        or not entry.simple
    ):
        return general.run
    if general.writes is not None:
        if not general.writes.of_first or cls._is_part:
            return general.run
        plan = _inside_write_plan if cls._transparent else _write_plan
        run = plan(general, general.writes)
    elif general.views:
        run = _inside_view_plan(general) if cls._transparent else _view_plan(general)
    elif general.after is None:
        run = _fresh_plan(general)
    else:
        return general.run
    skip_in_dynamo(run.__code__)
    return run


class _General:
    """What calls a handler in any case."""

    def __init__(self, cls: type[Any], func: Any, entry: Entry) -> None:
        self.cls = cls
        self.func = func
        self.entry = entry
        self.dispatch = cls.table.dispatch
        roles = roles_of(func) if hasattr(func, "_schema") else None
        after = Transparent(cls, func) if cls._transparent and roles is not None else None
        self.after = after if after is not None and after.touches else None
        # Whether the results are views of the first argument.
        self.views = (
            roles is not None
            and roles.aliases
            and bool(roles.arguments)
            and roles.arguments[0].position == 0
        )
        # Those that are views in any case say so by `aliases` too; they are seen to give one.
        self.may_copy = self.views and entry.composite == "implicit"
        self.connects = None if not self.views or cls._transparent else _connecting(func)
        writes = roles is not None and (roles.writes or bool(roles.unsaid))
        self.writes = OwnWrites(cls, func, roles) if roles is not None and writes else None
        self.lends = self.connects is None and not cls._transparent

    def run(self, types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call the handler, whatever it is given and gives."""
        if self.cls.mixing == "error":
            _refuse_plain(self.cls, self.func, args, kwargs)
        if self.writes is None:
            result = self.dispatch(self.func, types, args, kwargs)
        else:
            before = self.writes.before(args, kwargs)
            result = self.dispatch(self.func, types, args, kwargs)
            result = self.writes.after(before, args, kwargs, result)
        return self.finish(args, kwargs, result)

    def finish(self, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> Any:
        """Do what there is to do with a result."""
        copied = self.may_copy and self._is_copy(args, kwargs, result)
        if self.views and args and not copied:
            result = all_views_of(result, args[0])
        if self.after is not None:
            self.after.in_step(args, kwargs, result)
        if self.connects is not None and args and not copied:
            return self.connects(args, kwargs, result)
        if self.lends or copied:
            _lend(self.cls, args, kwargs, result)
        return result

    def _is_copy(self, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> bool:
        """Say whether the operator copies, which `reshape` does where it cannot give a view."""
        source: Any = args[0] if args else None
        if not type(result) is type(source) is self.cls or result is source:
            return False
        if self.cls._transparent and not _is_inference_mode():
            return False  # the inner tensors tell
        from subclass_utils._plain_view import is_copy

        try:
            return is_copy(source, lambda meta: self.func(meta, *args[1:], **kwargs))
        except Exception:  # to a device, which takes the data
            return not shares_inner_tensors(result, source)

    def finish_handler(
        self, types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any], result: Any
    ) -> Any:
        """Do what there is to do with what a handler gave that nobody has looked at."""
        return self.finish(args, kwargs, self.look_at(types, args, kwargs, result))

    def look_at(
        self, types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any], result: Any
    ) -> Any:
        """Ask others where a handler declined, and check what it gave."""
        if result is NotImplemented:
            return after_declining(self.cls.table, self.func, types, args, kwargs)
        return result if result.__class__ is _tensor else self.entry.check(result)


# ── views ───────────────────────────────────────────────────────────────────────────────────────


def _view_plan(general: _General) -> TypedPlan:
    """Make the way to a view of the first argument, where that and the view are of the class."""
    cls, func, entry = general.cls, general.func, general.entry
    call, composite = entry.run, bool(entry.composite)
    keeps_all, by_size = func in KEEP_ALL, _by_size(func)
    first_inner = attrgetter(cls.inner_tensors[0])
    share, is_inference_mode = share_storage, _is_inference_mode

    def run(types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        source: Any = args[0] if args else None
        if source.__class__ is not cls or (composite and source.dtype.is_complex):
            return general.run(types, args, kwargs)
        try:
            part = call(*args, **kwargs)
        except TypeError as error:
            raise handler_failed(func, entry.handler, error) from error
        if (
            part.__class__ is cls
            and part is not source
            and first_inner(part).__class__ is _tensor
            and not (is_inference_mode() or source.is_inference())
        ):
            share(part, source)  # by which torch.compile tells views from other inputs
            connect(part, source, None if keeps_all else (func, by_size(args[1:]), kwargs, None))
            return part
        return general.finish_handler(types, args, kwargs, part)

    return run


def _inside_view_plan(general: _General) -> TypedPlan:
    """Make the way to a view for a transparent class, whose inner tensors tell what shares data."""
    func, entry = general.func, general.entry
    cls, call, composite = general.cls, entry.run, bool(entry.composite)
    inner = attrgetter(cls.inner_tensors[0])
    seen_to: Any = general.after

    def run(types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        source: Any = args[0] if args else None
        if source.__class__ is not cls or (composite and source.dtype.is_complex):
            return general.run(types, args, kwargs)
        try:
            part = call(*args, **kwargs)
        except TypeError as error:
            raise handler_failed(func, entry.handler, error) from error
        if (
            part.__class__ is cls
            and part is not source
            and not (_is_inference_mode() or source.is_inference())
        ):
            own, memory = inner(part), inner(source)
            if own.__class__ is memory.__class__ is _tensor:
                if own.layout is memory.layout is torch.strided and is_alias_of(own, memory):
                    share_storage(part, source)
                else:
                    seen_to.share_memory(part, source)
                return part
        return general.finish_handler(types, args, kwargs, part)

    return run


# Views by the size of another tensor, which is not kept for it.
_BY_SIZE = ("expand_as", "reshape_as", "view_as")


def _by_size(func: Any) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Make what puts tensors without data in the place of those that tell sizes alone."""
    if func._schema.name.partition("::")[2] not in _BY_SIZE:
        return lambda args: args

    def by_size(args: Sequence[Any]) -> Sequence[Any]:
        with without_modes() if others_are_watching() else nullcontext():
            return tuple([torch.empty(other.size(), device="meta") for other in args])

    return by_size


def _connecting(func: Any) -> Callable[[Sequence[Any], Mapping[str, Any], Any], Any]:
    """Make what lets a write into the views that a handler made be one into the whole."""
    keeps_all, by_size = func in KEEP_ALL, _by_size(func)

    def connected(part: Any, args: Sequence[Any], kwargs: Mapping[str, Any], index: Any) -> Any:
        source = args[0]
        if part is source or not isinstance(part, type(source)):
            return part
        if _is_functionalized(part):
            if source.without_handler == "to_plain":
                from subclass_utils._plain_view import placed_like_view

                part = placed_like_view(
                    part, source, lambda meta: func(meta, *args[1:], **kwargs), index
                )
        elif not torch.is_inference_mode_enabled():  # where autograd knows it as a view
            share_storage(part, source)  # by which torch.compile tells views from other inputs
        connect(part, source, None if keeps_all else (func, by_size(args[1:]), kwargs, index))
        return part

    def connect_one(args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> Any:
        return connected(result, args, kwargs, None)

    def connect_each(args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> Any:
        return [connected(part, args, kwargs, index) for index, part in enumerate(result)]

    results = roles_of(func).results
    return connect_each if len(results) > 1 or results[0].is_list else connect_one


def _is_functionalized(wrapper: Any) -> bool:
    inner = getattr(wrapper, type(wrapper).inner_tensors[0])
    return type(inner) is not torch.Tensor and is_functional(inner)


# ── fresh results ───────────────────────────────────────────────────────────────────────────────

_HAVE_COMMON = """
def have_common(one, other):
    {mine} = {ones}
    {theirs} = {others}
    return {same} or {alias}
"""


def _fresh_plan(general: _General) -> TypedPlan:
    """Make the way to a tensor that is no view: a plain one, or a wrapper of the class."""
    cls, func, entry = general.cls, general.func, general.entry
    call, composite = entry.run, bool(entry.composite)
    have_common = _have_common_of(cls)
    lends = general.lends

    def run(types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if composite and _have_complex(args):
            return general.run(types, args, kwargs)
        try:
            result = call(*args, **kwargs)
        except TypeError as error:
            raise handler_failed(func, entry.handler, error) from error
        kind = result.__class__
        if kind is _tensor:
            return result
        if kind is cls and not lends:
            return result
        if kind is not cls or kwargs:
            return general.finish_handler(types, args, kwargs, result)
        for value in args:
            if value.__class__ is cls:
                if value is not result and have_common(result, value):
                    lend(result, value)
            elif value.__class__ not in _LEND_NOTHING:
                _lend(cls, (value,), {}, result)
        return result

    return run


def _have_complex(args: Sequence[Any]) -> bool:
    for value in args:  # noqa: SIM110  # a generator takes twice the time
        if isinstance(value, _tensor) and value.dtype.is_complex:
            return True
    return False


def _have_common_of(cls: type[Any]) -> Callable[[Any, Any], bool]:
    """Make what says whether two wrappers of a class may have memory in common."""
    names = cls.inner_tensors
    mine, theirs = ([f"{x}{index}" for index in range(len(names))] for x in "ab")
    namespace: dict[str, Any] = {"is_alias_of": is_alias_of}
    source = _HAVE_COMMON.format(
        mine=", ".join(mine),
        ones=", ".join(f"one.{name}" for name in names),
        theirs=", ".join(theirs),
        others=", ".join(f"other.{name}" for name in names),
        same=" or ".join(f"{a} is {b}" for a in mine for b in theirs),
        alias=" or ".join(f"is_alias_of({a}, {b})" for a, b in zip(mine, theirs, strict=True)),
    )
    exec(compile(source, f"<{cls.__qualname__}>", "exec"), namespace)
    found: Callable[[Any, Any], bool] = namespace["have_common"]
    skip_in_dynamo(found.__code__)

    def have_common(one: Any, other: Any) -> bool:
        try:
            return found(one, other)
        except (AttributeError, RuntimeError, NotImplementedError, TypeError):
            return True  # an inner tensor is missing, or has no storage: a closer look will tell

    skip_in_dynamo(have_common.__code__)
    return have_common


def _lend(cls: type[Any], args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
    """Note the inner tensors that a handler handed on to results that are no views."""
    for made in (result,) if isinstance(result, cls) else each_in(result):
        if _may_lend(cls, made):
            for source in each_in((*args, *kwargs.values()) if kwargs else args):
                if source is not made and _may_lend(cls, source):
                    lend(made, source)


def _may_lend(cls: type[Any], value: Any) -> bool:
    return isinstance(value, cls) or not getattr(type(value), "_transparent", True)


# ── writes ──────────────────────────────────────────────────────────────────────────────────────


def _inside_write_plan(general: _General, writes: OwnWrites) -> TypedPlan:
    """Make the way for a transparent class to write the first argument, and give it back."""
    cls, func, entry = general.cls, general.func, general.entry
    call, composite = entry.run, bool(entry.composite)
    inner = attrgetter(cls.inner_tensors[0])

    def run(types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        target: Any = args[0] if args else None
        if target.__class__ is not cls or (composite and _have_complex(args)):
            return general.run(types, args, kwargs)
        old = inner(target)
        if old.__class__ is not _tensor or old.is_inference() or not _is_simple(old):
            return general.run(types, args, kwargs)
        version, place = old._version, _place(old)
        try:
            result = call(*args, **kwargs)
        except TypeError as error:
            raise handler_failed(func, entry.handler, error) from error
        if result is not target:
            result = general.look_at(types, args, kwargs, result)
            result = writes.answer(args, kwargs, result)
        if inner(target) is old:
            if old._version == version:
                increment_version((old,))
            if _place(old) == place:
                return result
        return general.finish(args, kwargs, result)

    return run


def _is_simple(inner: Any) -> bool:
    return inner.layout is torch.strided and not inner.dtype.is_complex


def _place(inner: Any) -> tuple[Any, ...]:
    return inner.size(), inner.stride(), inner.storage_offset(), inner.dtype


def _write_plan(general: _General, writes: OwnWrites) -> TypedPlan:
    """Make the way to write the first argument where that shares its data with nobody."""
    cls, func, entry = general.cls, general.func, general.entry
    call, composite = entry.run, bool(entry.composite)
    have_common = _have_common_of(cls)
    metadata_names, carried_all = cls.metadata, cls._carrier.carried_all

    def run(types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        target: Any = args[0] if args else None
        if target.__class__ is not cls or kwargs or (composite and _have_complex(args)):
            return general.run(types, args, kwargs)
        attributes = target.__dict__
        if attributes.__class__ is not dict or "_family" in attributes or "_lent" in attributes:
            return general.run(types, args, kwargs)
        if "_argument" in attributes:
            return general.run(types, args, kwargs)
        inner = inner_of(target)
        metadata = carried_all(target, metadata_names) if metadata_names else ()
        try:
            result = call(*args, **kwargs)
        except TypeError as error:
            raise handler_failed(func, entry.handler, error) from error
        if result is not target:
            result = general.look_at(types, args, kwargs, result)
            result = writes.answer(args, kwargs, result)
        if "_family" in target.__dict__:  # the handler made what shares it
            settle(target, inner, metadata)
        for value in args:
            if value.__class__ is cls:
                if value is not target and have_common(target, value):
                    lend(target, value)
            elif value.__class__ not in _LEND_NOTHING:
                _lend(cls, (value,), {}, target)
        return result

    return run


# ── mixing ──────────────────────────────────────────────────────────────────────────────────────


def _refuse_plain(
    cls: type[Any], func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    for position, value in (*enumerate(args), *kwargs.items()):
        for item in each_in(value):
            if isinstance(item, torch.Tensor) and not isinstance(item, cls):
                name = (
                    func._schema.arguments[position].name if isinstance(position, int) else position
                )
                if not is_made_by_torch(func.name(), str(name)):
                    raise mixing_error(cls, func.name(), str(name), item)
