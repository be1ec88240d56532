"""A tensor with a unit of measurement, which refuses to add metres to seconds.

Transparent: every operator without a handler runs on the numbers and keeps the unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from dispatch_core import ops
from subclass_utils import WrapperTensor

aten = ops.aten


@dataclass(frozen=True)
class Unit:
    """A product of powers: `Unit((("m", 1), ("s", -1)))` is a speed."""

    powers: tuple[tuple[str, int], ...] = ()

    def times(self, other: Unit, sign: int = 1) -> Unit:
        """Multiply two units, or divide them where `sign` is -1."""
        total = dict(self.powers)
        for name, power in other.powers:
            total[name] = total.get(name, 0) + sign * power
        return Unit(tuple(sorted((name, power) for name, power in total.items() if power)))

    def __str__(self) -> str:
        return "·".join(f"{name}^{power}" if power != 1 else name for name, power in self.powers)


class UnitError(ValueError):
    """Two units that do not fit."""


class UnitTensor(WrapperTensor):
    """Numbers with a unit; plain tensors and numbers have none."""

    metadata = ("unit",)
    elem: torch.Tensor
    unit: Unit = Unit()


METRE, SECOND = Unit((("m", 1),)), Unit((("s", 1),))


def _parts(value: Any) -> tuple[Any, Unit]:
    return (value.elem, value.unit) if isinstance(value, UnitTensor) else (value, Unit())


def _same_unit(name: str, *values: Any) -> Unit:
    units = {_parts(value)[1] for value in values}
    if len(units) != 1:
        raise UnitError(f"{name}: {' and '.join(sorted(map(str, units)))} do not fit")
    return units.pop()


@UnitTensor.table.implements(aten.add.Tensor)
def add(self: Any, other: Any, *, alpha: Any = 1) -> Any:
    unit = _same_unit("add", self, other)
    return UnitTensor(torch.add(_parts(self)[0], _parts(other)[0], alpha=alpha), unit)


@UnitTensor.table.implements(aten.sub.Tensor)
def sub(self: Any, other: Any, *, alpha: Any = 1) -> Any:
    unit = _same_unit("sub", self, other)
    return UnitTensor(torch.sub(_parts(self)[0], _parts(other)[0], alpha=alpha), unit)


@UnitTensor.table.implements(aten.mul.Tensor)
def mul(self: Any, other: Any) -> Any:
    (x, unit), (y, by) = _parts(self), _parts(other)
    return UnitTensor(torch.mul(x, y), unit.times(by))


@UnitTensor.table.implements(aten.div.Tensor)
def div(self: Any, other: Any) -> Any:
    (x, unit), (y, by) = _parts(self), _parts(other)
    return UnitTensor(torch.div(x, y), unit.times(by, -1))
