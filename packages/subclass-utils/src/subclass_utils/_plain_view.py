"""A view of what a wrapper stands for, where its class has no handler for that view.

It holds the wrapper and a place in its memory, and nothing else: whoever reads it gets the
wrapper's value of that moment, and what is written to it becomes a new value of the wrapper.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Literal

import torch

from subclass_utils._description import describe_outside, make_described
from subclass_utils._errors import ViewError
from subclass_utils._items import set_item
from subclass_utils._plain_writes import write_value
from subclass_utils._shared_data import (
    Family,
    extent_of,
    family_of,
    inner_of,
    link_of,
    memory_of,
    part_of,
    with_bits_undone,
)
from subclass_utils._torch_private import (
    is_alias_of,
    is_fake,
    make_outside,
    others_are_watching,
    say_no_parts,
    set_conj,
    set_neg,
    share_storage,
    without_modes,
)
from subclass_utils._wrapper import WrapperTensor

__all__ = ["PlainView", "reshape_view", "views_of"]

_set_data = torch.Tensor.data.__set__  # type: ignore[attr-defined]


class PlainView(WrapperTensor):
    """A view of a wrapper whose class is declared `without_handler = "to_plain"`.

    Operators run on its plain value, with plain results; further views are PlainViews too.
    """

    inner_tensors = ("source",)
    without_handler = "to_plain"
    source: Any

    _is_part = True

    __setitem__ = set_item  # the wrapper's class may mix with nothing

    @staticmethod
    def __new__(cls: Any, source: Any) -> Any:
        """View the whole of a wrapper."""
        return make_outside(
            cls,
            source.size(),
            strides=source.stride(),
            storage_offset=source.storage_offset(),
            dtype=source.dtype,
            device=source.device,
        )

    def to_plain(self) -> torch.Tensor:
        """Give the values that the wrapper has here now."""
        return with_bits_undone(self._part_of(memory_of(self._checked_source())), self)

    @classmethod
    def from_plain(cls, plain: torch.Tensor, like: Any = None) -> Any:
        """Give the plain tensor itself: new values are of no wrapper."""
        return plain

    def _checked_source(self) -> Any:
        family: Family | None = self.__dict__.get("_family_seen")
        source = self.source
        if family is not None and source.__dict__.get("_family") is not family:
            raise ViewError(
                f"this view is one of a {type(source).__qualname__} that was given other data "
                "since (by .data, set_ or a change of its shape): take the view again"
            )
        return source

    def _part_of(self, memory: torch.Tensor) -> torch.Tensor:
        """Give the part of the wrapper's memory that this is a view of.

        Raises: ViewError where the wrapper has no memory there: `as_strided` may name any place.
        """
        if memory.dtype is not self.dtype:
            storage = memory.untyped_storage()
            flat = memory.as_strided((storage.nbytes() // memory.itemsize,), (1,), 0)
            memory = flat.view(self.dtype)
        try:
            return memory.as_strided(self.size(), self.stride(), self.storage_offset())
        except RuntimeError as error:
            if "out of bounds for storage" not in str(error):
                raise
            raise ViewError(
                f"this view, of size {[*self.size()]}, stride {[*self.stride()]} and offset "
                f"{self.storage_offset()}, lies outside of the {type(self.source).__qualname__} "
                f"it is of, which has {memory.untyped_storage().nbytes()} bytes"
            ) from None

    def _write_part(self, plain: torch.Tensor) -> None:
        """Write a new value where this, or the wrapper, has a conjugate or negative bit."""
        source = self._checked_source()
        memory = memory_of(source)
        self._part_of(memory).copy_(with_bits_undone(plain.resolve_conj().resolve_neg(), self))
        write_value(source, with_bits_undone(memory, source))

    @property
    def data(self) -> Any:
        """Give a view of the wrapper's `.data`."""
        return WrapperTensor.data.__get__(self)

    @data.setter
    def data(self, other: torch.Tensor) -> None:
        raise ViewError(
            "a view of a wrapper's plain value cannot be given other data: write with copy_, or "
            "set the data of the wrapper itself"
        )

    def contiguous(self, *args: Any, **kwargs: Any) -> Any:
        """Give the values as a contiguous plain tensor."""
        made = super().contiguous(*args, **kwargs)
        # torch.compile asks for an example of a gradient so. That is detached, and has parts before
        # it is contiguous, so it is to have some after; nobody else minds.
        has_parts = hasattr(made, "__tensor_flatten__")
        example = is_fake(made) and not (has_parts or made.requires_grad)
        return say_no_parts(made) if example else made

    def tolist(self) -> Any:
        """Give the values as Python numbers."""
        return self.to_plain().tolist()

    def __repr__(self) -> str:  # type: ignore[override]  # without tensor_contents
        """Show the values."""
        with without_modes(), torch._C._DisableFuncTorch(), torch.no_grad():
            return f"{type(self).__name__}({self.to_plain()!r})"


# ── making views ────────────────────────────────────────────────────────────────────────────────


def _outside_of(wrapper: Any) -> torch.Tensor:
    """Give a tensor without data that lies in memory as the wrapper says that it does."""
    memory = torch.empty(extent_of(wrapper), dtype=wrapper.dtype, device="meta")
    meta = memory.as_strided(wrapper.size(), wrapper.stride(), wrapper.storage_offset())
    if wrapper.is_conj():
        set_conj(meta, True)
    if wrapper.is_neg():
        set_neg(meta, True)
    return meta


def views_of(
    wrapper: Any,
    call: Callable[[torch.Tensor], Any],
    *,
    by: Literal["order", "stride", "place"] = "order",
) -> Any:
    """Make the views of a wrapper that an operator would make of a tensor that lies like it.

    `by` says what the caller has told the operator: dims and indices only, strides too, or also a
    storage offset, which is then by what the wrapper says of its own. None where there are no
    views: the operator copies, or the layout has no strides.

    Raises: ViewError where strides are told, and those of the wrapper are not how its values lie;
    or where they lead to values that it does not have.
    """
    if wrapper.layout is not torch.strided:
        return None
    with without_modes() if others_are_watching() else nullcontext():
        root, meta = _place_in_root(wrapper)
        if by == "stride":
            _check_strides(wrapper, meta)
        elif by == "place" and _place(wrapper) != _place(meta):  # so asks torch.compile
            root, meta = wrapper, _outside_of(wrapper)
        try:
            result = call(meta)
        except NotImplementedError:  # the kernel for plain tensors says what is wrong
            return None
        except (RuntimeError, ValueError):  # the latter by torch's kernels in Python
            if root is wrapper or by != "order":
                raise
            # What the wrapper says of its strides was asked before, and it says something else.
            root, meta = wrapper, _outside_of(wrapper)
            result = call(meta)
    if by != "order":
        _check_reach(root, result)
    several = isinstance(result, list | tuple)
    made = [_view_at(part, meta, root) for part in (result if several else [result])]
    if any(view is None for view in made):
        return None
    return made if several else made[0]


def _place_in_root(wrapper: Any) -> tuple[Any, torch.Tensor]:
    """Give the wrapper whose memory this one's is, and a tensor without data that lies there.

    A view that a class's own handler made lies where its steps lead, whatever its outside says.
    """
    link = None if wrapper._is_part else link_of(wrapper)
    if link is None or link.apart or not link.steps or link.root.layout is not torch.strided:
        return wrapper, _outside_of(wrapper)
    meta = part_of(_outside_of(link.root), link.steps)
    same = meta.size() == wrapper.size() and meta.dtype is wrapper.dtype
    return (link.root, meta) if same else (wrapper, _outside_of(wrapper))


def _place(tensor: Any) -> tuple[Any, ...]:
    return tensor.stride(), tensor.storage_offset()


def _check_strides(wrapper: Any, meta: torch.Tensor) -> None:
    """Refuse strides that were found out by asking a wrapper that says something else than is so.

    Raises: ViewError.
    """
    if wrapper.stride() == meta.stride():
        return
    cls = type(wrapper).__qualname__
    raise ViewError(
        f"as_strided of a view that a handler of {cls} made: it says it has the strides "
        f"{wrapper.stride()}, but lies in its whole with {meta.stride()}, so it is not clear what "
        f"is asked for. Give the outside the strides of an inner tensor in {cls}.__new__, or take "
        "as_strided of the whole."
    )


def _check_reach(wrapper: Any, part: torch.Tensor) -> None:
    """Refuse a place between the values of a wrapper whose outside leaves gaps.

    Raises: ViewError.
    """
    if wrapper._is_part:
        return _check_reach(wrapper.source, part)
    extent = extent_of(wrapper)
    if wrapper.numel() >= extent or not part.numel() or is_fake(wrapper):
        return None
    reached = torch.zeros(max(extent, extent_of(part)), dtype=torch.bool)
    place = wrapper.size(), wrapper.stride(), wrapper.storage_offset()
    torch.as_strided(reached, *place).fill_(True)
    if reached.as_strided(part.size(), part.stride(), part.storage_offset()).all():
        return None
    raise ViewError(
        f"as_strided of a {type(wrapper).__qualname__}: of a memory of {extent} elements, as its "
        f"outside says, it has {wrapper.numel()}, and this view would have others. Take "
        "as_strided of contiguous()."
    )


def _view_at(part: Any, meta: torch.Tensor, wrapper: Any) -> Any:
    if part.layout is not torch.strided or not is_alias_of(part, meta):
        return None
    of_view = isinstance(wrapper, PlainView)
    source = wrapper.source if of_view else wrapper
    made = make_described(PlainView, {**describe_outside(part), "device": wrapper.device}, [source])
    seen = wrapper.__dict__.get("_family_seen") if of_view else family_of(source)
    if seen is not None:
        made.__dict__["_family_seen"] = seen
    share_storage(made, wrapper)
    return made


def placed_like_view(
    part: Any, whole: Any, call: Callable[[torch.Tensor], Any], index: int | None
) -> Any:
    """Give a view that a handler made the place in memory that the operator's own view has.

    torch.compile tells what is a view of what by storages, and makes its views of results anew by
    their places.
    """
    with without_modes() if others_are_watching() else nullcontext():
        made = call(_outside_of(whole))
        place: torch.Tensor = made if index is None else made[index]
        same = place.layout is torch.strided and place.size() == part.size()
    if not same:
        return part
    outside = {**describe_outside(part), "stride": place.stride()}
    outside["offset"] = place.storage_offset()
    placed = make_described(type(part), outside, inner_of(part))
    placed.__dict__.update(part.__dict__)
    share_storage(placed, whole)
    return placed


def is_copy(wrapper: Any, call: Callable[[torch.Tensor], Any]) -> bool:
    """Say whether an operator copies a tensor that lies like a wrapper, rather than view it.

    Raises: NotImplementedError, and others, where that cannot be told without the data.
    """
    with without_modes() if others_are_watching() else nullcontext():
        meta = _outside_of(wrapper)
        return not is_alias_of(call(meta), meta)


def reshape_view(view: Any, call: Callable[[torch.Tensor], Any] | None) -> None:
    """Change the place of a view as an operator in place does; None for one that needs memory.

    Raises: ViewError if the view would need other memory.
    """
    with without_modes() if others_are_watching() else nullcontext():
        meta = _outside_of(view)
        storage, before = meta.untyped_storage(), torch.ops.aten.alias.default(meta)
        size = storage.nbytes()
        if call is not None:
            call(meta)
    if call is None or storage.nbytes() != size or not is_alias_of(meta, before):
        raise ViewError(
            "a view of a wrapper's plain value cannot be resized, nor be given other memory: "
            "write into a tensor of your own, and copy_ that into the view"
        )
    made = _view_at(meta, meta, view)
    _set_data(view, made)
