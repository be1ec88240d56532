"""Write into wrappers whose outside differs, and into everything that shares their data.

A view that a class's own handler made, and what detach gives, share inner tensors with the wrapper
they came from, but mostly not all of them alike: a slice of a quantised tensor has numbers of its
own and the scale of the whole. So a new value of a part is written as a new value of the whole.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import ref

import torch

from subclass_utils._declaration import check_conversion
from subclass_utils._description import as_view_of, describe_outside, make_described
from subclass_utils._errors import ResizeError, ViewError
from subclass_utils._torch_private import (
    increment_version,
    is_alias_of,
    is_fake,
    share_storage,
)

__all__ = [
    "KEEP_ALL",
    "Family",
    "Step",
    "cannot_follow",
    "check_argument",
    "check_keeps_shape",
    "connect",
    "connect_part",
    "disconnect",
    "extent_of",
    "family_of",
    "fill",
    "hand_over",
    "in_one_memory",
    "inner_of",
    "laid_out_as",
    "lend",
    "let_follow",
    "lies_like",
    "link_of",
    "links_of",
    "make_from_plain",
    "memory_of",
    "new_from_plain",
    "part_of",
    "plain_of",
    "reclaim",
    "replace",
    "root_of",
    "value_of_view",
    "with_bits_undone",
]

_aten = torch.ops.aten
_set_data = torch.Tensor.data.__set__  # type: ignore[attr-defined]
KEEP_ALL = {_aten.detach.default, _aten.alias.default, _aten.lift_fresh.default}
"""Operators that give the whole again, which is no step to a part."""


class Family:
    """A wrapper's data, and the links of the wrappers that share it, as long as these live."""

    __slots__ = ("links", "saved")

    def __init__(self) -> None:
        self.links: set[ref[Link]] = set()
        self.saved: list[Any] = []
        """Empty, and for pickle: one list for all, by which they find each other again."""


Step = tuple[Any, Sequence[Any], Mapping[str, Any], int | None]
"""The operator that made one part out of another, its other arguments, and which part it is, if
the operator makes several."""


def part_of(whole: Any, steps: Sequence[Step]) -> Any:
    """Make the part of a whole that operators made, one after the other."""
    for op, args, kwargs, index in steps:
        made = op(whole, *args, **kwargs)
        whole = made if index is None else made[index]
    return whole


class Link(dict[str, Any]):
    """A wrapper's `__dict__`, that says too how it came out of `root`, whose data it shares.

    By no steps if it shares all of it. `apart` once its shape was changed in place: it cannot
    follow the root any more.

    The root refers to it weakly. To the `__dict__` and not to the wrapper, because torch swaps no
    tensors to which there are weak references; when it does swap two, this goes along with the
    data.
    """

    __slots__ = ("__weakref__", "_shares", "apart", "family", "root", "steps")

    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__  # type: ignore[assignment]  # a dict has none

    root: Any
    family: Family
    steps: tuple[Step, ...]
    apart: bool
    _shares: bool | None

    @property
    def holds(self) -> bool:
        """Say whether the root still has the data that it had when this was made."""
        return self.root.__dict__.get("_family") is self.family

    @property
    def in_memory(self) -> bool:
        """Say whether all inner tensors share memory with the root's.

        What is written there is seen here then. Only who writes asks, so it is found out then.
        """
        if self._shares is not None:
            return self._shares
        cls = type(self.root)
        own = [self.get(name, getattr(cls, name, None)) for name in cls.inner_tensors]
        same = in_one_memory if self.steps else _in_one_place
        return all(map(same, own, inner_of(self.root)))

    @property
    def follows(self) -> bool:
        """Say whether the wrapper can be given other inner tensors and metadata."""
        cls = type(self.root)
        return not self.apart and not any(
            name not in self if name in cls.inner_tensors else _is_set_by_class(cls, name)
            for name in (*cls.inner_tensors, *cls.metadata)
        )

    def follow(self) -> None:
        """Give the wrapper what the root has now."""
        made, cls = part_of(self.root.detach(), self.steps), type(self.root)
        if made._is_part:
            made = value_of_view(made)
        for name in (*cls.inner_tensors, *cls.metadata):
            self[name] = getattr(made, name)


def _is_set_by_class(cls: type[Any], name: str) -> bool:
    return hasattr(inspect.getattr_static(cls, name, None), "__set__")


def family_of(wrapper: Any) -> Family:
    """Give the family of a wrapper that others share data with."""
    attributes = wrapper.__dict__
    family: Family | None = attributes.get("_family")
    if family is None:
        family = attributes.setdefault("_family", Family())
    return family


def link_of(wrapper: Any) -> Link | None:
    """Say where a wrapper has its data from; None for one with data of its own."""
    link = wrapper.__dict__
    return link if link.__class__ is Link and link.holds else None


def connect(made: Any, source: Any, step: Step | None = None) -> None:
    """Remember that a wrapper shares the data of another one; all of it if by no step.

    Whatever can wait until somebody writes, which few do, is left until then.
    """
    known = source.__dict__
    link = Link(made.__dict__)
    if known.__class__ is Link and known.holds:
        root, family, steps, apart = known.root, known.family, known.steps, known.apart
        link.steps = steps if step is None else (*steps, step)
    else:
        root, family, apart = source, known.get("_family") or family_of(source), False
        known, link.steps = None, () if step is None else (step,)
    link.root, link.family, link.apart, link._shares = root, family, apart, None
    if type(made)._in_slots:  # where the link does not see them
        link._shares = (known is None or known.in_memory) and (
            step is None or _share_memory(inner_of(made), inner_of(source))
        )
    family.links.add(ref(link, family.links.discard))
    made.__dict__ = link


def connect_part(made: Any, whole: Any, steps: Sequence[Step]) -> None:
    """Remember that a wrapper shares the data of another one, of which steps made it."""
    connect(made, whole)
    link = made.__dict__
    link.steps = (*link.steps, *steps)
    if type(made)._in_slots:  # pickle shares no memory
        link._shares = _share_memory(inner_of(made), inner_of(link.root))


def _share_memory(part: Sequence[Any], whole: Sequence[Any]) -> bool:
    return all(map(in_one_memory, part, whole))


def in_one_memory(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    """Say whether what is written into one tensor may be seen in the other."""
    if one is other:
        return True
    if one is None or other is None:
        return False
    return one.layout is other.layout is torch.strided and is_alias_of(one, other)


def _in_one_place(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    """Say whether two tensors are the same elements of one memory."""
    if one is None or other is None or one is other:
        return one is other
    return (
        in_one_memory(one, other)
        and one.dtype is other.dtype
        and one.size() == other.size()
        and one.stride() == other.stride()
        and one.storage_offset() == other.storage_offset()
    )


def disconnect(wrapper: Any) -> None:
    """Forget what shares a wrapper's data, and whose data it shares: it gets other data.

    What shared its data goes on sharing that, with a wrapper that nobody else has.
    """
    if links_of(wrapper):
        cls = type(wrapper)
        heir = make_described(cls, describe_outside(wrapper), inner_of(wrapper))
        cls._carry_metadata(heir, wrapper)
        share_storage(heir, wrapper)
        hand_over(wrapper, heir)
    wrapper.__dict__.pop("_family", None)
    wrapper.__dict__.pop("_lent", None)
    if wrapper.__dict__.__class__ is Link:
        wrapper.__dict__ = dict(wrapper.__dict__)


def hand_over(former: Any, root: Any) -> None:
    """Let what shares a wrapper's data share that of another one, which has the same."""
    lent = former.__dict__.pop("_lent", None)
    if lent:
        root.__dict__["_lent"] = lent
    links = links_of(former)
    if links:
        former.__dict__["_family"].links.clear()
        family = family_of(root)
        for link in links:
            link.root, link.family = root, family
            family.links.add(ref(link, family.links.discard))


def lend(made: Any, source: Any) -> None:
    """Remember which inner tensors of another wrapper were taken over into a new one.

    Neither is a view of the other, as when a negative has the scale of what it was made from: what
    is written into one must not be seen in the other. So who is written first gets them for itself.
    """
    try:
        own, others = inner_of(made), inner_of(source)
    except AttributeError:  # one is missing, which the next operator says
        return
    if not _have_common(own, others):
        return
    root = root_of(source)
    taken = [each for each in own if _in_memory_of(others, each)]
    if taken and root is not root_of(made):
        _note_lent(made, root, taken)


def _have_common(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    for one in some:
        for other in others:
            if one is other:
                return True
    try:
        for one, other in zip(some, others, strict=False):
            if is_alias_of(one, other):
                return True
    except (RuntimeError, NotImplementedError, TypeError):  # no storage, as in sparse layouts
        return any(_in_memory_of(others, one) for one in some)
    return False


def _note_lent(made: Any, root: Any, taken: Sequence[torch.Tensor]) -> None:
    if is_fake(taken[0]):  # whoever calls the compiled function knows nothing of this
        for name, tensor in zip(type(made).inner_tensors, inner_of(made), strict=True):
            if any(tensor is each for each in taken):
                setattr(made, name, tensor.clone())
        return
    for wrapper in (made, root):
        inner = zip(type(wrapper).inner_tensors, inner_of(wrapper), strict=True)
        lent = {name for name, tensor in inner if _in_memory_of(taken, tensor)}
        wrapper.__dict__.setdefault("_lent", set()).update(lent)


def _in_memory_of(tensors: Sequence[torch.Tensor], one: torch.Tensor) -> bool:
    return any(in_one_memory(one, each) for each in tensors)


# ── plain values ────────────────────────────────────────────────────────────────────────────────


def make_from_plain(cls: type[Any], plain: torch.Tensor, like: Any) -> Any:
    """Give `from_plain`'s wrapper of a plain tensor.

    Raises: DeclarationError if its outside is not that of the plain tensor.
    """
    made = cls.from_plain(plain, like)
    check_conversion(cls, "from_plain", plain, made)
    return made


def new_from_plain(cls: type[Any], plain: torch.Tensor, like: Any) -> Any:
    """Give `from_plain`'s wrapper of a plain tensor, whose writes do not reach `like`.

    Raises: DeclarationError if its outside is not that of the plain tensor.
    """
    made = make_from_plain(cls, plain, like)
    if not cls._transparent:
        lend(made, like)
    return made


def value_of_view(view: Any) -> Any:
    """Give a wrapper, of the class that a view is of, with the view's values and memory of its own.

    Raises: DeclarationError if its outside is not that of the values.
    """
    root = root_of(view)
    made = make_from_plain(type(root), plain_of(view), root)
    for name, inner in zip(type(root).inner_tensors, inner_of(made), strict=True):
        if _in_memory_of(inner_of(root), inner):
            setattr(made, name, inner.clone())
    return made


def plain_of(wrapper: Any) -> torch.Tensor:
    """Give `to_plain`'s tensor without a conjugate or negative bit.

    Raises: DeclarationError if it is not like the outside.
    """
    plain: torch.Tensor = wrapper.to_plain()
    check_conversion(type(wrapper), "to_plain", wrapper, plain)
    return plain.resolve_conj().resolve_neg()


def memory_of(wrapper: Any) -> torch.Tensor:
    """Give the wrapper's value as it would lie in the memory that its outside speaks of.

    That is, with its strides and storage offset, and before a conjugate or negative bit.
    """
    return laid_out_as(wrapper, with_bits_undone(plain_of(wrapper), wrapper))


def with_bits_undone(value: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Conjugate and negate a value as the bits of a tensor say: from memory to value, and back."""
    if like.is_conj():
        value = torch.conj_physical(value)
    return torch.neg(value) if like.is_neg() else value


def extent_of(tensor: Any) -> int:
    """Give how many elements the memory must have in which a tensor lies."""
    offset: int = tensor.storage_offset()
    if not tensor.numel():
        return offset
    steps = zip(tensor.size(), tensor.stride(), strict=True)
    last: int = sum((n - 1) * step for n, step in steps)
    return offset + 1 + last


def lies_like(memory: torch.Tensor, wrapper: Any) -> bool:
    """Say whether a tensor has the place that a wrapper says it has: a view's handler may not."""
    if memory.stride() == wrapper.stride():
        same: bool = memory.storage_offset() == wrapper.storage_offset()
        return same
    return False


def laid_out_as(wrapper: Any, plain: torch.Tensor) -> torch.Tensor:
    """Give a plain tensor the strides and the storage offset of a wrapper of its size."""
    if lies_like(plain, wrapper):
        return plain
    size, stride, offset = wrapper.size(), wrapper.stride(), wrapper.storage_offset()
    memory = plain.new_zeros(extent_of(wrapper))
    once = [1 if step == 0 else n for n, step in zip(size, stride, strict=True)]
    first = plain[tuple(slice(n) for n in once)]
    memory.as_strided(once, stride, offset).copy_(first)
    return memory.as_strided(size, stride, offset)


# ── writing ─────────────────────────────────────────────────────────────────────────────────────


def root_of(wrapper: Any) -> Any:
    """Give the wrapper whose data this is, or is a part of."""
    if wrapper._is_part:
        return root_of(wrapper.source)
    link = link_of(wrapper)
    return wrapper if link is None else link.root


def inner_of(wrapper: Any) -> list[Any]:
    """Give a wrapper's inner tensors."""
    return [getattr(wrapper, name) for name in type(wrapper).inner_tensors]


def reclaim(wrapper: Any) -> None:
    """Copy the inner tensors that wrappers of other data have too, before something is written.

    Raises: ViewError where something that shares the data cannot follow.
    """
    lent: set[str] | None = wrapper.__dict__.get("_lent")
    if not lent:
        return
    links = links_of(wrapper)
    if not all(link.follows for link in links):
        raise cannot_follow(type(wrapper))
    for name in lent:
        own = getattr(wrapper, name)
        with torch.inference_mode(own.is_inference()):
            setattr(wrapper, name, own.detach().clone())
    del wrapper.__dict__["_lent"]
    for link in links:
        link.follow()


def cannot_follow(cls: type[Any]) -> ViewError:
    return ViewError(
        f"{cls.__qualname__}: this value cannot reach every tensor that shares the data: the "
        "shape of a view, of a detached tensor or of a Parameter made of it was changed in "
        "place, or the class keeps its attributes where they cannot be exchanged (__slots__, "
        "a property). Write to a clone(), or give up those tensors first."
    )


def fill(target: Any, source: Any) -> None:
    """Write another wrapper's inner tensors and metadata into one with data of its own.

    Inner tensors that cannot be written into are exchanged; whoever shares the data gets the new
    ones, and the new metadata.

    Raises: ViewError if somebody cannot.
    """
    cls = type(target)
    reclaim(target)
    pairs = [*zip(cls.inner_tensors, inner_of(target), _apart_from(source, target), strict=True)]
    exchanged = any(
        own.size() != new.size() or own.dtype is not new.dtype for _, own, new in pairs
    ) or any(getattr(target, name) != getattr(source, name) for name in cls.metadata)
    check_argument(target, exchanged)
    links = links_of(target)
    if any(link.apart or not (link.follows or link.in_memory) for link in links) or (
        exchanged and not all(link.follows for link in links)
    ):
        raise cannot_follow(cls)
    for name, own, new in pairs:
        if own.size() == new.size() and own.dtype is new.dtype:
            _copy_into(own, new)
        else:
            setattr(target, name, as_view_of(new, target))
    cls._carry_metadata(target, source)
    let_follow(target, exchanged)


def let_follow(root: Any, exchanged: bool) -> None:
    """Let everything that shares a wrapper's data, and does not see it by itself, have it.

    `exchanged` if the wrapper has other inner tensors or metadata than before.

    Raises: ViewError if somebody cannot.
    """
    links = [link for link in links_of(root) if exchanged or not link.in_memory]
    if not all(link.follows for link in links):
        raise cannot_follow(type(root))
    for link in links:
        link.follow()


def _apart_from(source: Any, target: Any) -> list[Any]:
    """Give the inner tensors of one wrapper such that writing those of another leaves them."""
    written = inner_of(target)
    return [
        new.clone()
        if new is not own and not _in_one_place(own, new) and _in_memory_of(written, new)
        else new
        for own, new in zip(written, inner_of(source), strict=True)
    ]


def check_argument(target: Any, exchanged: bool) -> None:
    """Refuse a write that torch.compile would lose: it sees what is written into inner tensors.

    `exchanged` if the write gives a wrapper another shape, other inner tensors or metadata.

    Raises: ViewError where the wrapper is an argument of the function that is being compiled.
    """
    kind = target.__dict__.get("_argument")
    if kind == "view":
        raise ViewError(
            f"a compiled function writes into its argument, a view of a {type(target).__qualname__}"
            "'s plain value; torch.compile cannot bring that to the wrapper. Give the function "
            "the wrapper and take the view inside, or write outside of the function."
        )
    if kind is not None and exchanged:
        raise ViewError(
            f"a compiled function gives its argument, a {type(target).__qualname__}, another "
            "shape, other metadata or inner tensors of another size; torch.compile would leave "
            "the old ones. Change a clone() and return that, or do it outside of the function."
        )


def links_of(root: Any) -> list[Link]:
    family: Family | None = root.__dict__.get("_family")
    if family is None:
        return []
    return [link for each in family.links.copy() if (link := each()) is not None]


def _copy_into(own: torch.Tensor, new: torch.Tensor) -> None:
    if own is new:
        return
    version = None if own.is_inference() else own._version
    own.copy_(new)
    if version is not None and own._version == version:
        increment_version((own,))  # torch counts no version inside of a handler


def check_keeps_shape(target: Any) -> None:
    """Refuse to change the shape in place of what came from `.data`.

    Raises: ResizeError.
    """
    if target.__dict__.get("_from_data"):
        raise ResizeError(
            f"{type(target).__qualname__}: this tensor came from `.data`, and the tensor it came "
            "from could not follow a change of its shape. Change `tensor.detach()`, or the tensor "
            "itself under torch.no_grad()."
        )


def replace(target: Any, source: Any, plain: torch.Tensor) -> None:
    """Make a wrapper what another one is, outside and inside; it lies as the plain tensor does.

    Raises: ViewError where other wrappers share its data, ResizeError where it came from `.data`.
    """
    cls = type(target)
    link: Link | None = link_of(target)
    check_keeps_shape(target)
    if links_of(target):
        raise ViewError(
            f"{cls.__qualname__}: views, detached tensors or Parameters made of this tensor share "
            "its data and cannot follow a change of its shape in place. Give them up first, or "
            "use the operator that gives a new tensor."
        )
    check_argument(target, True)
    target.__dict__.pop("_family", None)
    inference = target.is_inference()
    source = as_view_of(source, target)
    outside = describe_outside(source)
    if source.layout is plain.layout is torch.strided:
        outside.update(stride=plain.stride(), offset=plain.storage_offset())
    _set_data(target, make_described(cls, outside, inner_of(source), inference=inference))
    for name in cls.inner_tensors:
        setattr(target, name, getattr(source, name))
    cls._carry_metadata(target, source)
    if link is not None:
        link.apart = True
