"""Wrapper classes that the tests declare once, so that they can be saved and loaded."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

import torch
from subclass_utils import WrapperTensor

aten = torch.ops.aten


class Unit(enum.Enum):
    METRE = "m"
    SECOND = "s"


@dataclasses.dataclass(frozen=True)
class Origin:
    place: str
    shape: tuple[int, ...] = ()


class Measured(WrapperTensor):
    """Transparent, with metadata that travels along."""

    metadata = ("unit", "origin")
    elem: torch.Tensor
    unit: Unit | None = None
    origin: Origin | None = None


class Strict(WrapperTensor):
    elem: torch.Tensor
    mixing = "error"


class Loose(WrapperTensor):
    elem: torch.Tensor
    mixing = "unwrap"


class Scaled(WrapperTensor):
    """Whole numbers and a scale: the outside is of another dtype than the inner tensor."""

    numbers: torch.Tensor
    scale: torch.Tensor
    bits: int

    inner_tensors = ("numbers", "scale")
    metadata = ("bits",)

    @staticmethod
    def __new__(cls: type[Any], numbers: torch.Tensor, scale: torch.Tensor, bits: int = 8) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            cls, numbers.size(), strides=numbers.stride(), dtype=scale.dtype, device=numbers.device
        )

    def __init__(self, numbers: torch.Tensor, scale: torch.Tensor, bits: int = 8) -> None:
        self.numbers = numbers
        self.scale = scale
        self.bits = bits

    def to_plain(self) -> torch.Tensor:
        return self.numbers.to(self.scale.dtype) * self.scale

    @classmethod
    def from_plain(cls, plain: torch.Tensor, like: Any = None) -> Scaled:
        scale = (like.scale if like is not None else torch.tensor(0.5)).to(plain.dtype)
        return cls((plain / scale).round().to(torch.int8), scale)


class ScaledOnPlain(Scaled):
    """The same; operators without a handler run on the plain tensor."""

    without_handler = "to_plain"


class Requantised(WrapperTensor):
    """Whole numbers and a scale that follows from the values: every write is one of the whole."""

    numbers: torch.Tensor
    scale: torch.Tensor

    inner_tensors = ("numbers", "scale")
    without_handler = "to_plain"

    @staticmethod
    def __new__(cls: type[Any], numbers: torch.Tensor, scale: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            cls,
            numbers.size(),
            strides=numbers.stride(),
            storage_offset=numbers.storage_offset(),
            dtype=scale.dtype,
        )

    def to_plain(self) -> torch.Tensor:
        return self.numbers.to(self.scale.dtype) * self.scale

    @classmethod
    def from_plain(cls, plain: torch.Tensor, like: Any = None) -> Any:
        low, high = (plain.amin(), plain.amax()) if plain.numel() else (plain.sum(), plain.sum())
        scale = (torch.maximum(-low, high) / 2**14).clamp(min=1e-9)
        return cls((plain / scale).round().to(torch.int16), scale)


class Versioned(Requantised):
    """Its metadata is another one after every write."""

    metadata = ("writes",)
    writes: int = 0

    @classmethod
    def from_plain(cls, plain: torch.Tensor, like: Any = None) -> Any:
        made = super().from_plain(plain)
        made.writes = 0 if like is None else like.writes + 1
        return made


class RequantisedInParts(Requantised):
    """The same, with handlers for views: a part has the scale of the whole."""


@RequantisedInParts.table.implements(aten.slice.Tensor)
def _slice(self: Any, dim: Any = 0, start: Any = None, end: Any = None, step: Any = 1) -> Any:
    return RequantisedInParts(aten.slice.Tensor(self.numbers, dim, start, end, step), self.scale)


@RequantisedInParts.table.implements(aten.t.default)
def _t(self: Any) -> Any:
    return RequantisedInParts(self.numbers.t(), self.scale)


@RequantisedInParts.table.implements(aten.split.Tensor)
def _split(self: Any, split_size: Any, dim: Any = 0) -> Any:
    parts = self.numbers.split(split_size, dim)
    return [RequantisedInParts(part, self.scale) for part in parts]


class Halves(WrapperTensor):
    """Two addends; its outside says neither strides nor offset, its handlers make the views."""

    inner_tensors = ("one", "other")
    without_handler = "to_plain"
    one: torch.Tensor
    other: torch.Tensor

    @staticmethod
    def __new__(cls: Any, one: torch.Tensor, other: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, one.size(), dtype=one.dtype)

    def to_plain(self) -> torch.Tensor:
        return self.one + self.other

    @classmethod
    def from_plain(cls, plain: torch.Tensor, like: Any = None) -> Any:
        return cls(plain / 2, plain / 2)


@Halves.table.implements(torch.ops.aten.select.int)
def _select_halves(self: Any, dim: Any, index: Any) -> Any:
    return Halves(self.one.select(dim, index), self.other.select(dim, index))


@Halves.table.implements(torch.ops.aten.t.default)
def _t_of_halves(self: Any) -> Any:
    return Halves(self.one.t(), self.other.t())


@Halves.table.implements(torch.ops.aten.unbind.int)
def _unbind_halves(self: Any, dim: Any = 0) -> Any:
    rows = zip(self.one.unbind(dim), self.other.unbind(dim), strict=True)
    return [Halves(*row) for row in rows]


class ComplexPair(WrapperTensor):
    """A complex tensor in two real ones."""

    re: torch.Tensor
    im: torch.Tensor

    inner_tensors = ("re", "im")
    without_handler = "to_plain"

    @staticmethod
    def __new__(cls: type[Any], re: torch.Tensor, im: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, re.size(), dtype=torch.complex64)

    def to_plain(self) -> torch.Tensor:
        return torch.complex(self.re, self.im)

    @classmethod
    def from_plain(cls, plain: torch.Tensor, like: Any = None) -> Any:
        return cls(plain.real.clone(), plain.imag.clone())


@Scaled.table.implements(aten.mm.default)
def _mm(self: Any, mat2: Any) -> Any:
    left, right = (x.to_plain() if isinstance(x, Scaled) else x for x in (self, mat2))
    return left @ right


def scaled(*values: float) -> Scaled:
    return Scaled.from_plain(torch.tensor(values))


def metre(*size: int) -> Measured:
    return Measured(torch.ones(*size), Unit.METRE, origin=Origin("here"))
