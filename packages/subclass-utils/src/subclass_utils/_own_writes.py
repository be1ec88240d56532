"""Look after what a class's own handler writes: versions, results, and who shares the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from dispatch_core import HandlerError

from subclass_utils._errors import ViewError
from subclass_utils._plain_writes import Memories, write_value
from subclass_utils._roles import Roles, TensorArgument, TensorResult, each_in
from subclass_utils._shared_data import (
    cannot_follow,
    check_argument,
    extent_of,
    fill,
    in_one_memory,
    inner_of,
    let_follow,
    link_of,
    links_of,
    part_of,
    plain_of,
    reclaim,
    root_of,
)
from subclass_utils._torch_private import (
    increment_version,
    is_fake,
    passed_over,
    refuse_write_outside_inference_mode,
)

__all__ = ["OwnWrites", "counts_in_lists", "settle"]


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


class _Before:
    """A written tensor as it was before the handler."""

    __slots__ = ("inner", "inner_versions", "metadata", "tensor", "uncounted", "version")

    def __init__(self, cls: type[Any], tensor: torch.Tensor, uncounted: bool) -> None:
        self.tensor = tensor
        self.uncounted = uncounted
        self.version = _version(tensor)
        ours = isinstance(tensor, cls)
        self.inner: list[Any] = inner_of(tensor) if ours else []
        self.inner_versions = [_version(inner) for inner in self.inner]
        self.metadata = cls._carrier.carried_all(tensor, cls.metadata) if ours else []

    @property
    def exchanged(self) -> bool:
        """Say whether the handler gave the wrapper other inner tensors or metadata."""
        cls: Any = type(self.tensor)
        return [getattr(self.tensor, name) for name in cls.metadata] != self.metadata or any(
            own is not old for own, old in zip(inner_of(self.tensor), self.inner, strict=True)
        )

    def keep(self) -> bool:
        """Write what was exchanged into what the wrapper had; False where that cannot be."""
        cls: Any = type(self.tensor)
        metadata = [getattr(self.tensor, name) for name in cls.metadata]
        pairs = [*zip(self.inner, inner_of(self.tensor), strict=True)]
        if metadata != self.metadata or any(
            old.size() != new.size() or old.dtype is not new.dtype for old, new in pairs
        ):
            return False
        new = [new if new is old else new.clone() for old, new in pairs]
        self.restore()
        for name, value in zip(cls.inner_tensors, new, strict=True):
            own = getattr(self.tensor, name)
            if own is not value:
                own.copy_(value)
        return True

    def restore(self, inner_only: bool = False) -> None:
        """Give the wrapper the inner tensors and the metadata that it had."""
        cls: Any = type(self.tensor)
        for name, old in zip(cls.inner_tensors, self.inner, strict=True):
            setattr(self.tensor, name, old)
        if not inner_only:
            for name, value in zip(cls.metadata, self.metadata, strict=True):
                setattr(self.tensor, name, value)


def counts_in_lists(name: str, argument: TensorArgument) -> bool:
    """Say whether torch counts a version of each tensor of a list that an operator writes.

    Not autograd does, but the operators of which those on lists are made.
    """
    return argument.is_list and (argument.position is None or name.startswith("aten::_foreach_"))


def _keep_argument(before: _Before) -> None:
    """Write what a handler put in the place of an inner tensor into that one.

    So torch.compile sees it.

    Raises: ViewError where it cannot.
    """
    wrapper, cls = before.tensor, type(before.tensor)
    names: Any = cls.inner_tensors  # type: ignore[attr-defined]
    metadata: Any = cls.metadata  # type: ignore[attr-defined]
    pairs = zip(names, before.inner, inner_of(wrapper), strict=True)
    others = [(name, old, new) for name, old, new in pairs if new is not old]
    check_argument(
        wrapper,
        [getattr(wrapper, name) for name in metadata] != before.metadata
        or any(old.size() != new.size() or old.dtype is not new.dtype for _, old, new in others),
    )
    for name, old, new in others:
        old.copy_(new)
        setattr(wrapper, name, old)


# ── who shares the data ─────────────────────────────────────────────────────────────────────────


def _get_ready(wrapper: Any) -> None:
    """See to it that a handler may write: nobody of other data sees it, all others can follow.

    Raises: ViewError where somebody cannot.
    """
    root = root_of(wrapper)
    reclaim(root)
    if any(link.apart for link in links_of(root)):
        raise cannot_follow(type(root))


def settle(wrapper: Any, inner: Sequence[Any], metadata: Sequence[Any]) -> None:
    """Let everything that shares a wrapper's data follow what a handler of its class wrote.

    `inner` and `metadata` are what the wrapper had before.

    Raises: ViewError where somebody cannot.
    """
    before = _Before(type(wrapper), wrapper, False)
    before.inner, before.metadata = [*inner], [*metadata]
    _settle([before])


def _settle(written: Sequence[_Before]) -> None:
    """Let everything that shares the data of wrappers follow what a handler wrote into them.

    What was written into the inner tensors that they had reached the others by itself.

    Raises: ViewError where somebody cannot; exchanged inner tensors are taken back then.
    """
    left = [*written]
    try:
        while left:
            root = root_of(left[0].tensor)
            together = [each for each in left if root_of(each.tensor) is root]
            if len(together) == 1:
                _settle_one(together[0])
            else:
                _settle_parts(root, together)
            left = [each for each in left if not any(each is one for one in together)]
    except ViewError:
        for each in left:
            each.restore()
        raise


def _settle_one(each: _Before) -> None:
    wrapper, exchanged = each.tensor, each.exchanged
    link = link_of(wrapper)
    if link is None:
        if exchanged and type(wrapper)._in_slots:  # type: ignore[attr-defined]
            exchanged = not each.keep()
        return let_follow(wrapper, exchanged)
    if not exchanged and link.in_memory:
        return let_follow(link.root, False)
    if link.steps:
        write_value(wrapper, plain_of(wrapper))
    else:
        fill(link.root, wrapper)
    if exchanged and type(wrapper)._in_slots:  # type: ignore[attr-defined]  # nobody else can
        each.restore(inner_only=True)
    return None


def _settle_parts(root: Any, written: Sequence[_Before]) -> None:
    """Bring wrappers that share data, of which a handler wrote several, to one value.

    Raises: ViewError where one has lost what was written to another.
    """
    links = [link_of(each.tensor) for each in written]
    if not any(each.exchanged for each in written) and all(
        link is None or link.in_memory for link in links
    ):
        return let_follow(root, False)
    memories = Memories()
    values = [plain_of(each.tensor) for each in written]
    windows = [memories.window(each.tensor) for each in written]
    whole = memories.window(root)
    if whole is None or is_fake(root) or _meet(whole, links):
        raise _written_twice(type(root))
    for window, value in zip(windows, values, strict=True):
        window.copy_(value)  # type: ignore[union-attr]  # the whole has one, so its parts have
    memories.write_back([root])
    let_follow(root, any(each.exchanged for each in written if each.tensor is root))
    for each in written:
        if each.tensor is not root and type(root)._in_slots and each.exchanged:
            each.restore(inner_only=True)
    return None


def _refuse_views(before: Sequence[_Before]) -> None:
    """Refuse to guess what is left where a handler wrote a view, and exchanged what it views.

    Raises: ViewError.
    """
    for view in before:
        if getattr(view.tensor, "_is_part", False) and not view.inner:
            root = root_of(view.tensor)
            shared = [each for each in before if each.inner and root_of(each.tensor) is root]
            if any(each.exchanged for each in shared):
                for each in shared:
                    each.restore()
                raise _written_twice(type(root))


def _written_twice(cls: type[Any]) -> ViewError:
    return ViewError(
        f"{cls.__qualname__}: a handler wrote two tensors of one call that share data, and "
        "exchanged inner tensors of one, so what it wrote into the other may be lost. Write into "
        "the inner tensors in the handler, or into one tensor after the other."
    )


def _meet(whole: torch.Tensor, links: Sequence[Any]) -> bool:
    """Say whether some of the parts of a whole have an element in common."""
    marks = whole.new_zeros(extent_of(whole))
    marks = marks.as_strided(whole.size(), whole.stride(), whole.storage_offset())
    for link in links:
        part = marks if link is None else part_of(marks, link.steps)
        if part.any():
            return True
        part.fill_(1)
    return False


# ── around a handler ────────────────────────────────────────────────────────────────────────────


class OwnWrites:
    """What there is to do around a handler of one overload that writes arguments."""

    def __init__(self, cls: type[Any], func: Any, roles: Roles) -> None:
        self.cls = cls
        self.func = func
        self.roles = roles
        self.written = tuple(argument for argument in roles.arguments if argument.written)
        self.passed_over = bool(self.written) and passed_over(func)
        self.counts = any(counts_in_lists(func.name(), argument) for argument in self.written)
        first = roles.arguments[0]
        self.of_first = (
            first.position == 0
            and not (first.is_list or self.passed_over)
            and self.written == (first,)
            and roles.results == (TensorResult("same", False, first.name),)
        )
        """Whether the first argument is written, and nothing else, and is what it gives."""

    def before(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[_Before]:
        """Note the tensors to be written."""
        noted: dict[int, _Before] = {}
        unsaid = self.roles.unsaid_writes(args, kwargs)
        for argument in (*self.written, *unsaid):
            value = self._value(argument.name, argument.position, args, kwargs)
            for tensor in each_in(value):
                if isinstance(tensor, torch.Tensor) and id(tensor) not in noted:
                    if isinstance(tensor, self.cls) and not self.cls._transparent:
                        _get_ready(tensor)
                    before = noted[id(tensor)] = _Before(
                        self.cls, tensor, argument.is_list or self.passed_over
                    )
                    if argument in unsaid:  # which torch counts nowhere
                        before.inner_versions = [-1] * len(before.inner)
        return [*noted.values()]

    def _value(
        self, name: str, position: int | None, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        if position is not None and position < len(args):
            return args[position]
        return kwargs.get(name)

    def after(
        self, before: Sequence[_Before], args: Sequence[Any], kwargs: Mapping[str, Any], result: Any
    ) -> Any:
        """Count versions, let others that share the data follow, and give the result.

        Raises: HandlerError where the result is another tensor than the one to be written.
        """
        result = self.answer(args, kwargs, result)
        for each in before:
            if each.inner and "_argument" in each.tensor.__dict__:
                _keep_argument(each)
        self._count(before)
        if not self.cls._transparent:
            if len(before) > 1:
                _refuse_views(before)
            _settle([each for each in before if each.inner])
        return result

    def _count(self, before: Sequence[_Before]) -> None:
        """Count the writes that neither autograd, which passes over lists, nor torch counted."""
        missing = [
            each.tensor
            for each in before
            if each.uncounted and each.version >= 0 and each.tensor._version == each.version
        ]
        if self.cls._transparent:
            for each in before:
                kept = zip(each.inner, inner_of(each.tensor), strict=True) if each.inner else ()
                missing += [
                    own
                    for (inner, own), version in zip(kept, each.inner_versions, strict=False)
                    if inner is own and version >= 0 and own._version == version
                ]
        if missing:
            increment_version(missing)
        refused = self.counts and any(each.uncounted and each.version < 0 for each in before)
        if refused and not torch.is_inference_mode_enabled():
            refuse_write_outside_inference_mode()

    def answer(self, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> Any:
        """Give what was written, where the operator gives that to the caller.

        Raises: HandlerError where the result is another tensor than the one to be written.
        """
        roles = self.roles.results
        if len(roles) == 1:
            return self._one(result, roles[0], args, kwargs)
        if len(roles) > 1 and isinstance(result, list | tuple) and len(result) == len(roles):
            return tuple(
                self._one(value, role, args, kwargs)
                for value, role in zip(result, roles, strict=True)
            )
        return result

    def _one(
        self, value: Any, role: TensorResult, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        if role.kind != "same" or role.is_list or role.source is None:
            return value
        argument = next(each for each in self.roles.arguments if each.name == role.source)
        target = self._value(argument.name, argument.position, args, kwargs)
        if value is None or value is target or not isinstance(target, torch.Tensor):
            return target
        if self._is_of(value, target):
            return target
        raise HandlerError(
            f"{self.func.name()}: the handler of {self.cls.__qualname__} gave a new "
            f"{type(value).__qualname__} for {argument.name!r}, which the operator writes, and "
            f"torch gives {argument.name!r} itself to the caller: write into its inner tensors, "
            f"and return {argument.name!r}",
            overload=self.func,
            handler=self.cls.table.lookup(self.func),
        )

    def _is_of(self, value: Any, target: Any) -> bool:
        """Say whether a result only wraps again what was written."""
        inner = inner_of(target) if hasattr(type(target), "inner_tensors") else [target]
        made = inner_of(value) if hasattr(type(value), "inner_tensors") else [value]
        return any(in_one_memory(own, other) for own in made for other in inner)
