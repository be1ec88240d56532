"""What touches the memory of a tensor: a wrapper has none, so these raise and name the way out."""

from __future__ import annotations

from typing import Any, NoReturn

from subclass_utils._errors import MemorylessError

__all__ = ["NoMemory"]


def _refuse(wrapper: Any, method: str, reason: str, remedy: str) -> NoReturn:
    cls = type(wrapper)
    inner = cls.inner_tensors[0]
    remedy = remedy.format(inner=f"tensor.{inner}", plain="tensor.to_plain()")
    raise MemorylessError(
        f"{cls.__qualname__}.{method}: {reason}. {remedy}", method=method, cls=cls
    )


_WRAPS = "a wrapper has no memory of its own, only its inner tensors have"
_UNSUPPORTED = (
    ".{}() is not supported for tensor subclasses, which hold their data in inner tensors"
)


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
