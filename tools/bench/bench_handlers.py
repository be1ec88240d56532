"""Operators on a wrapper whose outside differs, against the same handlers on plain subclasses.

One of these does as little as it can; the other looks after views and after what it is given, as
ours does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from weakref import ref

import torch
from subclass_utils import WrapperTensor

from tools.bench.row import Row, at_most
from tools.bench.timing import Statement, alternate

aten = torch.ops.aten
_share_storage: Any = torch._functionalize_unsafe_set


def _outside(cls: Any, numbers: torch.Tensor, scale: torch.Tensor) -> Any:
    return torch.Tensor._make_wrapper_subclass(
        cls,
        numbers.size(),
        strides=numbers.stride(),
        storage_offset=numbers.storage_offset(),
        dtype=scale.dtype,
        device=numbers.device,
    )


class ByHand(torch.Tensor):
    """Whole numbers and a scale, and nothing more.

    Nobody knows whose view a view is, so that it keeps its old scale when the whole is given
    another one, and the other way round. Nothing is checked.
    """

    numbers: torch.Tensor
    scale: torch.Tensor
    __torch_function__: Any = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, numbers: torch.Tensor, scale: torch.Tensor) -> Any:
        return _outside(cls, numbers, scale)

    def __init__(self, numbers: torch.Tensor, scale: torch.Tensor) -> None:
        self.numbers = numbers
        self.scale = scale

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's stub forgets func
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return HANDLERS[func](*args, **(kwargs or {}))


class Part(dict[str, Any]):
    """The attributes of what shares the data of a whole, with the way from there to here."""

    __slots__ = ("__weakref__", "root", "steps")

    __hash__ = object.__hash__  # type: ignore[assignment]  # a dict has none
    __eq__ = object.__eq__

    root: Any
    steps: tuple[Any, ...]


class AsMuch(ByHand):
    """The same, and what it takes to let a view and the whole follow each other.

    The whole knows what was made of it, weakly, and a part knows how; what would go that way on a
    write is not written here. A view has the storage of the whole outside, too. A constructor
    checks that it was given tensors, a handler's TypeError comes out under the operator's name, and
    its result is checked. Nobody notes which inner tensors a fresh result has taken over.
    """

    def __init__(self, numbers: torch.Tensor, scale: torch.Tensor) -> None:
        for tensor in (numbers, scale):
            if not isinstance(tensor, torch.Tensor):
                raise ValueError(f"{type(self).__name__} takes tensors, not {tensor!r}")
        self.numbers = numbers
        self.scale = scale

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's stub forgets func
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        try:
            result = HANDLERS[func](*args, **kwargs)
        except TypeError as error:
            raise RuntimeError(f"{func}: {error}") from error
        if not isinstance(result, torch.Tensor):
            raise RuntimeError(f"{func}: gave {result!r}")
        if func in VIEWS:
            if torch.is_inference_mode_enabled():
                raise NotImplementedError("where views of a tensor from outside are special")
            _connect(result, args[0], (func, args[1:], kwargs))
        return result


def _connect(made: Any, source: Any, step: Any) -> None:
    known = source.__dict__
    root, steps = (known.root, known.steps) if isinstance(known, Part) else (source, ())
    part = Part(made.__dict__)
    part.root, part.steps = root, (*steps, step)
    parts = root.__dict__.get("_parts")
    if parts is None:
        parts = root.__dict__["_parts"] = set()
    parts.add(ref(part, parts.discard))
    made.__dict__ = part
    _share_storage(made, source)


class Declared(WrapperTensor):
    """The same by declaration, without handlers."""

    inner_tensors = ("numbers", "scale")
    numbers: torch.Tensor
    scale: torch.Tensor

    @staticmethod
    def __new__(cls: Any, numbers: torch.Tensor, scale: torch.Tensor) -> Any:
        return _outside(cls, numbers, scale)

    def to_plain(self) -> torch.Tensor:
        """Give the floats that the numbers stand for."""
        return self.numbers * self.scale

    @classmethod
    def from_plain(cls, plain: torch.Tensor, like: Any = None) -> Any:
        """Keep the whole numbers."""
        return cls(plain.to(torch.int8), torch.ones((), dtype=plain.dtype))


class Ours(Declared):
    """The same with a table of handlers."""


def _plain(value: Any) -> Any:
    return value.numbers * value.scale if isinstance(value, ByHand | Declared) else value


def _mm(self: Any, mat2: Any) -> Any:
    return _plain(self) @ _plain(mat2)


def _mul(self: Any, other: Any) -> Any:
    return _plain(self) * _plain(other)


def _t(self: Any) -> Any:
    return type(self)(self.numbers.t(), self.scale)


def _view(self: Any, size: Any) -> Any:
    return type(self)(self.numbers.view(size), self.scale)


def _detach(self: Any) -> Any:
    return type(self)(self.numbers.detach(), self.scale.detach())


def _clone(self: Any, *, memory_format: Any = None) -> Any:
    return type(self)(self.numbers.clone(), self.scale.clone())


def _slice(self: Any, dim: Any = 0, start: Any = None, end: Any = None, step: Any = 1) -> Any:
    return type(self)(aten.slice.Tensor(self.numbers, dim, start, end, step), self.scale)


HANDLERS: dict[Any, Any] = {
    aten.mm.default: _mm,
    aten.mul.Tensor: _mul,
    aten.t.default: _t,
    aten.view.default: _view,
    aten.slice.Tensor: _slice,
    aten.detach.default: _detach,
    aten.clone.default: _clone,
}
VIEWS = {aten.t.default, aten.view.default, aten.slice.Tensor, aten.detach.default}
for _op, _handler in HANDLERS.items():
    _register: Any = Ours.table.implements(_op)
    _register(_handler)

CODE = {
    "mm": "x @ q",
    "mul": "q * x",
    "t": "q.t()",
    "view": "q.view(-1)",
    "slice": "q[1:]",
    "detach": "q.detach()",
    "clone": "q.clone()",
    "linear": "linear(x, q)",
    "a new wrapper": "new(numbers, scale)",
}


def _names(cls: Any) -> dict[str, object]:
    numbers, scale = torch.ones(3, 3, dtype=torch.int8), torch.ones(())
    return {
        "linear": torch.nn.functional.linear,
        "new": cls,
        "numbers": numbers,
        "q": cls(numbers, scale),
        "scale": scale,
        "x": torch.zeros(3, 3),
    }


def rows() -> Iterator[Row]:
    """Compare handlers on nine numbers, and detach and clone without one."""
    classes = (Ours, ByHand, AsMuch)
    for work, code in CODE.items():
        ours, by_hand, as_much = alternate(
            *(Statement(code, _names(cls)) for cls in classes), rounds=31
        )
        yield Row(f"own handlers: {work}", "by hand, views do not follow", ours, by_hand)
        yield Row(f"own handlers: {work}", "by hand, views follow", ours, as_much, at_most(1.25))
    classes = (Declared, ByHand, AsMuch)
    for work in ("detach", "clone"):
        ours, by_hand, as_much = alternate(
            *(Statement(CODE[work], _names(cls)) for cls in classes), rounds=31
        )
        yield Row(f"no handlers: {work}", "by hand, views do not follow", ours, by_hand)
        yield Row(f"no handlers: {work}", "by hand, views follow", ours, as_much, at_most(1.25))
