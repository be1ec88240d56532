"""What touches the memory of a tensor: a wrapper has none, so these raise and name the way out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn
from weakref import ref

import torch

from subclass_utils._errors import MemorylessError
from subclass_utils._shared_data import extent_of, root_of
from subclass_utils._torch_private import is_fake, is_functional, share_storage

__all__ = ["NoMemory"]


def _refuse(wrapper: Any, method: str, reason: str, remedy: str) -> NoReturn:
    cls = type(wrapper)
    plain = "tensor.to_plain()"
    inner = plain if cls._is_part else f"tensor.{cls.inner_tensors[0]}"
    remedy = remedy.format(inner=inner, plain=plain)
    raise MemorylessError(
        f"{cls.__qualname__}.{method}: {reason}. {remedy}", method=method, cls=cls
    )


_WRAPS = "a wrapper has no memory of its own, only its inner tensors have"
_UNSUPPORTED = (
    ".{}() is not supported for tensor subclasses, which hold their data in inner tensors"
)


class NoStorage(torch.UntypedStorage):
    """What stands for the storage of a wrapper's outside: it tells what shares memory.

    Everything that would read, write or share its bytes raises MemorylessError. It lies on the
    meta device, so that torch refuses it as the memory of another tensor, where it would crash for
    the storage itself, which has no memory.
    """

    _wrapper_class: type[Any]
    _storage: torch.UntypedStorage
    _device: torch.device
    _traced: ref[Any] | None = None  # a wrapper with this storage that torch.compile traces with

    _same: NoStorage | None = None  # what stands for this one too

    def _joined(self) -> NoStorage:
        found = self
        while found._same is not None:
            found = found._same
        return found

    @property
    def _cdata(self) -> int:
        """Give the address of the storage itself, by which storages are compared."""
        address: int = self._storage._cdata
        return address

    def _weak_ref(self) -> Any:
        """Refer weakly to the storage itself."""
        return self._storage._weak_ref()

    @property
    def device(self) -> torch.device:  # type: ignore[override]  # an attribute in torch's stub
        """Give the wrapper's device."""
        return self._device

    def nbytes(self) -> int:
        """Give the size that the storage itself says it has."""
        return self._storage.nbytes()

    size = __len__ = nbytes

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of a {self._wrapper_class.__qualname__}>"

    __str__ = __repr__


def _refusal(method: str) -> Callable[..., NoReturn]:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise: ask the storage of an inner tensor."""
        cls = self._wrapper_class
        inner = "to_plain()" if cls._is_part else cls.inner_tensors[0]
        raise MemorylessError(
            f"{cls.__qualname__}.untyped_storage().{method}: {_WRAPS}. "
            f"Use tensor.{inner}.untyped_storage().",
            method=f"untyped_storage().{method}",
            cls=cls,
        )

    return refuse


_READS = """
    __copy__ __deepcopy__ __getitem__ __iter__ __reduce__ __reduce_ex__ __setitem__ _byteswap
    _get_filename _set_from_file _share_fd_cpu_ _share_filename_cpu_ _shared_decref _shared_incref
    _write_file bfloat16 bool byte byteswap char clone complex_double complex_float copy_ cpu cuda
    data_ptr double fill_ float float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz half hpu
    int long pin_memory resize_ share_memory_ short to tolist type untyped
"""
for _name in _READS.split():
    if hasattr(torch.UntypedStorage, _name):
        setattr(NoStorage, _name, _refusal(_name))


def _of_all_in_one_memory(wrapper: Any, own: NoStorage) -> NoStorage:
    """Give what stands for the storages of all wrappers that were made of one tensor.

    Each has an outside of its own, and what is written into one is seen in the others. Those of
    apart places in one memory do not count, where the outsides would not tell them apart.
    """
    found = own._joined()
    for inner in _own_tensors(wrapper):
        start, end = _place_of(inner)
        memory: Any = inner.untyped_storage()
        known = [entry for entry in memory.__dict__.get("_outsides", ()) if entry[-1]() is not None]
        for other_start, other_end, says_place, outside in known:
            other = outside()._joined()
            meet = start < other_end and other_start < end
            if other is not found and (meet or (says_place and wrapper._transparent)):
                found._same = other  # the older one: it may have been asked for already
                found = other
        entry = (start, end, wrapper._transparent, ref(found))  # references to one are equal
        memory._outsides = known if entry in known else [*known, entry]
    return found


def _own_tensors(wrapper: Any) -> Iterator[torch.Tensor]:
    """Give the plain tensors that hold a wrapper's values, but not those that it will give up."""
    lent = root_of(wrapper).__dict__.get("_lent", ())
    for name in type(wrapper).inner_tensors:
        inner = getattr(wrapper, name, None)
        if name in lent or not isinstance(inner, torch.Tensor) or is_functional(inner):
            continue
        if hasattr(type(inner), "inner_tensors"):
            yield from _own_tensors(inner)
        elif inner.layout is torch.strided and inner.device.type != "meta":
            yield inner


def _place_of(inner: torch.Tensor) -> tuple[float, float]:
    """Say between which bytes of its storage a tensor lies; anywhere, if sizes are symbols."""
    offset: Any = inner.storage_offset()
    if any(type(n) is not int for n in (offset, *inner.size(), *inner.stride())):
        return 0, float("inf")
    return offset * inner.element_size(), extent_of(inner) * inner.element_size()


class NoMemory:
    """Methods of torch.Tensor that would read or share memory that is not there."""

    def numpy(self, *, force: bool = False) -> NoReturn:
        """Raise: convert `to_plain()`, or an inner tensor."""
        _refuse(self, "numpy", _UNSUPPORTED.format("numpy"), "Use {plain}.numpy().")

    def __array__(self, dtype: Any = None, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise: convert `to_plain()`, or an inner tensor."""
        _refuse(self, "__array__", _UNSUPPORTED.format("numpy"), "Use {plain}.numpy().")

    def tolist(self) -> NoReturn:
        """Raise: convert `to_plain()`, or an inner tensor."""
        _refuse(self, "tolist", _UNSUPPORTED.format("tolist"), "Use {plain}.tolist().")

    def storage(self) -> NoReturn:
        """Raise: ask an inner tensor."""
        _refuse(self, "storage", _WRAPS, "Use {inner}.untyped_storage().")

    def untyped_storage(self) -> torch.UntypedStorage:
        """Give a storage that can be compared with others, but neither read nor written."""
        storage: Any = torch.Tensor.untyped_storage(self)  # type: ignore[arg-type]
        made: Any = storage.__dict__.get("_stands_for")
        if made is None:
            # Both live as long as either: who compares storages may keep one or the other.
            make: Any = NoStorage
            made = make(0, device="meta")  # not of its size, which may be a symbol
            made._storage, made._device, made._wrapper_class = storage, storage.device, type(self)
            storage._stands_for = made
        made = _of_all_in_one_memory(self, made)
        if (made._traced is None or made._traced() is None) and is_fake(self):
            made._traced = ref(self)
        return made  # type: ignore[no-any-return]

    def set_(self, source: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Take over the data of another tensor, or of the storage of a plain one.

        With the storage of a wrapper's outside, torch.compile says so which of the wrappers that
        it traces with share data. Their inner tensors it sees to by itself.
        """
        traced = source._traced and source._traced() if isinstance(source, NoStorage) else None
        if traced is None:
            given = args if source is None else (source, *args)
            set_: Any = torch.Tensor.set_
            return set_(self, *given, **kwargs)
        share_storage(self, traced)  # type: ignore[arg-type]
        return self

    def data_ptr(self) -> NoReturn:
        """Raise: ask an inner tensor."""
        _refuse(self, "data_ptr", _WRAPS, "Use {inner}.data_ptr().")

    def share_memory_(self) -> NoReturn:
        """Raise: share the inner tensors before wrapping them."""
        _refuse(
            self,
            "share_memory_",
            _WRAPS,
            "Call {inner}.share_memory_() on each inner tensor, or send the wrapper through a "
            "queue of torch.multiprocessing, which shares them.",
        )

    def is_shared(self) -> bool:
        """Say whether all inner tensors lie in shared memory."""
        names = type(self).inner_tensors  # type: ignore[attr-defined]
        return all(getattr(self, name).is_shared() for name in names)

    def apply_(self, callable: Any) -> NoReturn:
        """Raise: apply to an inner tensor."""
        _refuse(self, "apply_", _WRAPS, "Use {inner}.apply_(...), or operators on the wrapper.")

    def map_(self, other: Any, callable: Any) -> NoReturn:
        """Raise: map an inner tensor."""
        _refuse(self, "map_", _WRAPS, "Use {inner}.map_(...), or operators on the wrapper.")

    def map2_(self, x: Any, y: Any, callable: Any) -> NoReturn:
        """Raise: map an inner tensor."""
        _refuse(self, "map2_", _WRAPS, "Use {inner}.map2_(...), or operators on the wrapper.")

    def __dlpack__(self, **kwargs: Any) -> NoReturn:
        """Raise: export `to_plain()`, or an inner tensor."""
        _refuse(self, "__dlpack__", _WRAPS, "Use torch.from_dlpack({plain}).")

    def __dlpack_device__(self) -> NoReturn:
        """Raise: export `to_plain()`, or an inner tensor."""
        _refuse(self, "__dlpack_device__", _WRAPS, "Use torch.from_dlpack({plain}).")

    @property
    def __cuda_array_interface__(self) -> NoReturn:
        raise AttributeError("a wrapper has no memory of its own; use an inner tensor")
