"""Wrong uses of the typed operators, one a line: mypy and pyright report each, and no other line.

Each mistake is excused where it must be reported. An excuse that nothing needs is an error itself,
so a checker that is silent about a mistake fails the test, and so does one that speaks elsewhere.
mypy's excuse names the code of the error that must be reported. Nothing here is run.
"""

# pyright: strict, reportPrivateUsage=false, reportUnnecessaryTypeIgnoreComment=true
# pyright: reportUnusedFunction=false

from __future__ import annotations

from typing import Any

import torch
from dispatch_core import HandlerTable, ops

x = torch.ones(2, 2)

# ── calls ───────────────────────────────────────────────────────────────────────────────────────
# a string for a tensor
ops.aten.mm.default(x, "w")  # type: ignore[arg-type]
# a number for a tensor, where torch takes none
ops.aten.mm.default(x, 1)  # type: ignore[arg-type]
# a missing argument
ops.aten.mm.default(x)  # type: ignore[call-arg]
# a missing argument that only a keyword can give
ops.aten.mm.out(x, x)  # type: ignore[call-arg]
# one argument too many
ops.aten.mm.default(x, x, x)  # type: ignore[call-arg]
# a keyword that the schema lacks
ops.aten.mm.default(x, mat3=x)  # type: ignore[call-arg]
# a keyword-only argument by position
ops.aten.addmv.default(x, x, x, 2)  # type: ignore[call-arg]
# an argument twice
ops.aten.mm.default(x, x, mat2=x)  # type: ignore[misc]
# a misspelt operator
print(ops.aten.admv)  # type: ignore[attr-defined]
# a misspelt overload
print(ops.aten.add.Tensr)  # type: ignore[attr-defined]
# an overload that another operator has
print(ops.aten.mm.Tensor)  # type: ignore[attr-defined]
# a number for a list
ops.aten.view.default(x, 1)  # type: ignore[arg-type]
# a string for a number
ops.aten.select.int(x, "0", 1)  # type: ignore[arg-type]
# a list of strings for a list of numbers
ops.aten.view.default(x, ["1"])  # type: ignore[list-item]
# a float for an int
ops.aten.select.int(x, 0.5, 1)  # type: ignore[arg-type]
# None for what is required
ops.aten.linear.default(x, None)  # type: ignore[arg-type]
# a tensor for a list of tensors
ops.aten.unsafe_chunk.default(x, x)  # type: ignore[arg-type]
# a list with None for a list of tensors
ops.aten.cat.default([x, None])  # type: ignore[list-item]
# a Python type for a dtype
ops.aten.zeros.default([2], dtype=float)  # type: ignore[arg-type]
# a number for a device
ops.aten.zeros.default([2], device=0)  # type: ignore[arg-type]
# a string for a number that is a Scalar
ops.aten.add.Scalar(x, "1")  # type: ignore[arg-type]
# an argument called `from` by a keyword of another name
ops.aten.uniform_.default(x, low=0.0)  # type: ignore[call-arg]
# a result that is used as another type
text: str = ops.aten.mm.default(x, x)  # type: ignore[assignment]
# too many names for the results
one, two, three = ops.aten.max.dim(x, 0)  # type: ignore[misc]
# a number for a tensor that is written to
ops.aten.add_.Tensor(1, x)  # type: ignore[arg-type]
# TorchScript's own
ops.aten.size.default(1)  # type: ignore[arg-type]
# another namespace
ops.prims.sin.default("x")  # type: ignore[arg-type]

# ── handlers ────────────────────────────────────────────────────────────────────────────────────
table = HandlerTable()


# a parameter of another name
@table.implements(ops.aten.mm.default)  # type: ignore[arg-type]
def renamed(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return self


# a missing parameter
@table.implements(ops.aten.mm.default)  # type: ignore[arg-type]
def too_few(self: torch.Tensor) -> torch.Tensor:
    return self


# a parameter that the schema lacks
@table.implements(ops.aten.mm.default)  # type: ignore[arg-type]
def too_many(self: torch.Tensor, mat2: torch.Tensor, mat3: torch.Tensor) -> torch.Tensor:
    return self


# a default that is missing
@table.implements(ops.aten.cat.default)  # type: ignore[arg-type]
def no_default(tensors: list[torch.Tensor], dim: int) -> torch.Tensor:
    return tensors[dim]


# keyword-only parameters that are left out
@table.implements(ops.aten.addmv.default)  # type: ignore[arg-type]
def no_keywords(self: torch.Tensor, mat: torch.Tensor, vec: torch.Tensor) -> torch.Tensor:
    return self


# a positional parameter made keyword-only
@table.implements(ops.aten.mm.default)  # type: ignore[arg-type]
def other_kind(self: torch.Tensor, *, mat2: torch.Tensor) -> torch.Tensor:
    return self


# parameters in another order
@table.implements(ops.aten.select.int)  # type: ignore[arg-type]
def reordered(self: torch.Tensor, index: int, dim: int) -> torch.Tensor:
    return self


# a number where a list comes
@table.implements(ops.aten.view.default)  # type: ignore[arg-type]
def number_for_list(self: torch.Tensor, size: int) -> torch.Tensor:
    return self


# a string where a number comes
@table.implements(ops.aten.select.int)  # type: ignore[arg-type]
def string_for_number(self: torch.Tensor, dim: str, index: int) -> torch.Tensor:
    return self


# no None where None may come
@table.implements(ops.aten.linear.default)  # type: ignore[arg-type]
def not_optional(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor = x) -> torch.Tensor:
    return input


# only whole numbers where any number may come
@table.implements(ops.aten.add.Scalar)  # type: ignore[arg-type]
def only_int(self: torch.Tensor, other: int, alpha: int = 1) -> torch.Tensor:
    return self


# another result
@table.implements(ops.aten.mm.default)  # type: ignore[arg-type]
def gives_string(self: torch.Tensor, mat2: torch.Tensor) -> str:
    return "no"


# one result for two
@table.implements(ops.aten.max.dim)  # type: ignore[arg-type]
def gives_one(self: torch.Tensor, dim: int, keepdim: bool = False) -> torch.Tensor:
    return self


# nothing for a tensor
@table.implements(ops.aten.mm.default)  # type: ignore[arg-type]
def gives_nothing(self: torch.Tensor, mat2: torch.Tensor) -> None:
    return None


# a handler for a packet where one for an overload must be
@table.implements(ops.aten.mm.default)  # type: ignore[arg-type]
def takes_func(func: Any, self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    return self


# of two overloads a handler for neither
@table.implements(ops.aten.sin.default, ops.aten.add.Tensor)  # type: ignore[arg-type]
def for_neither(x: int) -> torch.Tensor:
    return torch.ones(x)


# of three overloads one for the last, which the others do not fit
@table.implements(ops.aten.mm.default, ops.aten.bmm.default, ops.aten.sin.default)  # type: ignore[arg-type]
def for_the_last(self: torch.Tensor) -> torch.Tensor:
    return self


# a handler of one overload for all of a packet
@table.implements(ops.aten.add)  # type: ignore[type-var]
def for_one(self: torch.Tensor) -> torch.Tensor:
    return self


# a handler of one overload for all of torch's own packet
@table.implements(torch.ops.aten.add)  # type: ignore[type-var]
def for_one_of_torchs(self: torch.Tensor) -> torch.Tensor:
    return self


# a handler of one overload for whatever fits a rule
@table.implements_where(tag="pointwise")  # type: ignore[type-var]
def for_a_rule(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return self


# a handler of one overload for everything else
@table.fallback  # type: ignore[type-var]
def for_the_rest(self: torch.Tensor) -> torch.Tensor:
    return self


# a general handler without keywords
@table.fallback  # type: ignore[type-var]
def without_keywords(func: Any, *args: Any) -> Any:
    return func(*args)
