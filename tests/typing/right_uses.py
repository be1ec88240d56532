"""Right uses of the typed operators: mypy and pyright accept every line. Nothing here is run."""

# pyright: strict, reportPrivateUsage=false, reportUnusedFunction=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from dispatch_core import Handle, HandlerTable, handle_of, ops
from typing_extensions import assert_type


class QTensor(torch.Tensor):
    """A wrapper, as a handler's author has one."""


def calls(x: torch.Tensor, w: torch.Tensor, size: torch.Size, flag: bool) -> None:
    """Call operators as their schemas allow."""
    assert_type(ops.aten.mm.default(x, w), torch.Tensor)
    assert_type(ops.aten.mm.default(self=x, mat2=w), torch.Tensor)
    ops.aten.addmv.default(x, w, w, beta=2, alpha=0.5)
    ops.aten.addmv.out(x, w, w, out=x)
    # Python numbers, where torch takes them for tensors
    ops.aten.add.Tensor(x, 1)
    ops.aten.mul.Tensor(x, 2.5)
    ops.aten.div_.Tensor(x, 2)
    ops.aten.add.Scalar(x, 1j)
    ops.aten.add_.Tensor(x, x, alpha=True)
    # lists: any sequence, and one number for a sized one
    ops.aten.view.default(x, [1, 2])
    ops.aten.view.default(x, (1, 2))
    ops.aten.view.default(x, size)
    ops.aten.view.default(x, x.shape)
    ops.aten.sum.dim_IntList(x, 0)
    ops.aten.sum.dim_IntList(x, [0, 1], True, dtype=torch.float64)
    ops.aten.sum.dim_IntList(x, None)
    ops.aten.max_pool2d.default(x, 2)
    ops.aten.cat.default([x, w], 1)
    ops.aten.cat.default((x, w))
    ops.aten.index.Tensor(x, [None, w])
    assert_type(ops.aten.split.Tensor(x, 2), "list[torch.Tensor]")
    # results
    assert_type(ops.aten.max.dim(x, 0), "tuple[torch.Tensor, torch.Tensor]")
    assert_type(ops.aten.equal.default(x, w), bool)
    values, indices = ops.aten.topk.default(x, 3)
    ops.aten.add.Tensor(values, indices)
    assert_type(ops.aten._foreach_add_.Scalar([x], 1), None)
    float(ops.aten._local_scalar_dense.default(x))
    # devices, dtypes, layouts, names of the schema
    ops.aten.zeros.default([2], dtype=torch.int64, device="cpu", layout=torch.strided)
    ops.aten.zeros.default([2], device=torch.device("cpu"), pin_memory=flag)
    ops.aten._to_copy.default(x, memory_format=torch.preserve_format)
    ops.aten.clone.default(x, memory_format=None)
    ops.aten.dropout.default(x, 1, flag)
    ops.aten.convolution.default(x, w, None, [1], [0], [1], False, [0], 1)
    ops.aten.kl_div.default(x, w, 2, log_target=True)
    ops.aten.uniform_.default(x, 0, 1.0, generator=torch.Generator())
    ops.aten.tril_indices.default(2, 2)
    # other namespaces, TorchScript's own, and what no spec describes
    ops.prims.add.default(x, 1)
    ops.aten.sym_size.int(x, 0)
    assert_type(ops.aten.size.default(x), "list[int]")
    ops.some_library.some_op.default(x, anything=1)
    ops.aten.add(x, 1)
    ops.aten.mm(x, w)


def symbolic(x: torch.Tensor, n: torch.SymInt, f: torch.SymFloat) -> None:
    """Pass symbolic numbers."""
    ops.aten.view.default(x, [n, 2])
    ops.aten.select.int(x, 0, n)
    ops.aten.add.Scalar(x, n)
    ops.aten.mul.Scalar(x, f)


def handles(x: torch.Tensor) -> None:
    """Use handles and packets as objects."""
    handle: Handle[Any] = ops.aten.mm.default
    assert_type(handle.qualified_name, str)
    handle.bind((x, x))
    table: dict[Handle[Any], int] = {ops.aten.mm.default: 1, handle_of("aten::add.Tensor"): 2}
    table[ops.aten.sub.Tensor] = 3
    for op in (ops.aten.add.Tensor, ops.aten.sub.Tensor):
        op(x, x)
    ops.aten.add.overloads()
    list(ops.aten)


table = HandlerTable()


@table.implements(ops.aten.mm.default)
def mm(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    """Take the schema's names."""
    return self + mat2


@table.implements(ops.aten.bmm.default)
def bmm(self: QTensor, mat2: torch.Tensor) -> QTensor:
    """Take a class of one's own."""
    raise NotImplementedError


@table.implements(ops.aten.addmv.default)
def addmv(
    self: torch.Tensor,
    mat: torch.Tensor,
    vec: torch.Tensor,
    *,
    beta: float = 1,
    alpha: complex = 1,
) -> torch.Tensor:
    """Take numbers."""
    return self


@table.implements(ops.aten.view.default)
def view(self: torch.Tensor, size: list[int]) -> torch.Tensor:
    """Take a list."""
    return self


@table.implements(ops.aten.as_strided.default)
def as_strided(
    self: torch.Tensor,
    size: Sequence[int | torch.SymInt],
    stride: Sequence[int | torch.SymInt],
    storage_offset: int | torch.SymInt | None = None,
) -> torch.Tensor:
    """Take symbolic numbers."""
    return self


@table.implements(ops.aten.linear.default)
def linear(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Take an optional tensor."""
    return input


@table.implements(ops.aten.cat.default)
def cat(tensors: Sequence[torch.Tensor], dim: int = 0) -> torch.Tensor:
    """Take a list of tensors."""
    return tensors[dim]


@table.implements(ops.aten.max.dim)
def max_dim(
    self: torch.Tensor, dim: int, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Give a tuple."""
    return self, self


@table.implements(ops.aten.aminmax.default)
def aminmax(
    self: torch.Tensor, *, dim: int | None = None, keepdim: bool = False
) -> list[torch.Tensor]:
    """Give a list."""
    return [self, self]


@table.implements(ops.aten.split.Tensor)
def split(self: torch.Tensor, split_size: int, dim: int = 0) -> list[QTensor]:
    """Give a list of a class of one's own."""
    return []


@table.implements(ops.aten.equal.default)
def equal(self: torch.Tensor, other: torch.Tensor) -> bool:
    """Give a bool."""
    return self is other


@table.implements(ops.aten._foreach_add_.Scalar)
def foreach_add(self: list[torch.Tensor], scalar: float) -> None:
    """Give nothing."""


@table.implements(ops.aten.zeros.default)
def zeros(
    size: list[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    """Take what a factory takes."""
    raise NotImplementedError


@table.implements(ops.aten.random_.to)
def random_to(self: torch.Tensor, to: int, *, generator: Any = None) -> Any:
    """Decline."""
    return NotImplemented


@table.implements(ops.aten.uniform_.default)
def uniform(
    self: torch.Tensor, from_: float = 0, to: float = 1, *, generator: Any = None
) -> torch.Tensor:
    """Have an argument that is a keyword in Python."""
    return self


@table.implements(ops.aten.add.Tensor, ops.aten.sub.Tensor)
def add_or_sub(self: torch.Tensor, other: Any, *, alpha: float = 1) -> torch.Tensor:
    """Handle two overloads of one signature."""
    return self


@table.implements(ops.aten.add.Tensor, ops.aten.rsub.Tensor, ops.aten.sub.Tensor)
def three(self: torch.Tensor, other: Any, *, alpha: float = 1) -> torch.Tensor:
    """Handle three overloads of one signature."""
    return self


@table.implements(torch.ops.aten.mm.default, "aten::bmm")
def by_torchs_names(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    """Handle what only the running program knows."""
    return self


@table.implements(ops.aten.mul, ops.aten.div)
@table.implements(torch.ops.aten.sub)
@table.implements_where(tag="pointwise", family="blas", predicate=lambda handle: handle.facts.view)
@table.fallback
def dispatch_style(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """Handle anything as `__torch_dispatch__` does."""
    return func(*args, **(kwargs or {}))


@table.implements_where(tag="pointwise")
@table.fallback
def narrower(func: Any, *args: object, **kwargs: object) -> torch.Tensor:
    """Say more of the types."""
    raise NotImplementedError


class Handlers:
    """Handlers that are methods."""

    def general(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Handle anything."""
        return func(*args, **kwargs)

    def one(self, input: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
        """Handle no overload, since the name differs; a method that is called by hand."""
        return input


table.fallback(Handlers().general)
table.implements(ops.aten.mul)(Handlers().general)


@table.implements(ops.some_library.some_op.default, ops.some_library.other)
def unknown(self: torch.Tensor, x: int) -> torch.Tensor:
    """Handle what no spec describes."""
    return self


@table.implements(ops.aten.mul)
def mul(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Handle a packet."""
    return func(*args, **kwargs)


mm(torch.ones(1), torch.ones(1))
