"""Tensors of every make given to a check of a plain one, and guards made of them.

torch ends the process where some of them are asked for their strides, so they are tried in one of
their own.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from guards import (
    Guard,
    GuardBuilder,
    GuardError,
    LocalSource,
    TensorPropertySource,
    UnsupportedGuardError,
    compile_guards,
)

from tests.guards.kinds import X

MAKERS = {
    "nested": "torch.nested.nested_tensor([torch.ones(3)] * 2)",
    "nested with gradient": "torch.nested.nested_tensor([torch.ones(3)] * 2, requires_grad=True)",
    "nested parameter": "torch.nn.Parameter(torch.nested.nested_tensor([torch.ones(3)] * 2))",
    "jagged": "torch.nested.nested_tensor([torch.ones(2, 3)] * 2, layout=torch.jagged)",
    "coo": "A.to_sparse()",
    "csr": "A.to_sparse_csr()",
    "csc": "A.to_sparse_csc()",
    "bsr": "torch.ones(4, 4).to_sparse_bsr((2, 2))",
    "bsc": "torch.ones(4, 4).to_sparse_bsc((2, 2))",
    "mkldnn": "A.to_mkldnn()",
    "quantized": "torch.quantize_per_tensor(A, 0.1, 0, torch.qint8)",
    "quantized by channel": (
        "torch.quantize_per_channel(A, torch.ones(2), torch.zeros(2), 0, torch.qint8)"
    ),
    "meta": "torch.empty(2, 3, device='meta')",
    "zero": "torch._efficientzerotensor((2, 3))",
    "conjugate": "torch.ones(2, 3, dtype=torch.cfloat).conj()",
    "functional": "torch._to_functional_tensor(A)",
    "batched": "torch._C._functorch._add_batch_dim(A, 0, 1)",
    "fake": "FakeTensorMode().from_tensor(A)",
    "no memory yet": "torch.nn.parameter.UninitializedParameter()",
    "sizes by its own code": "Raising(dispatch_sizes_strides_policy='sizes')",
    "strides by its own code": "Raising(dispatch_sizes_strides_policy='strides')",
    "device by its own code": "Raising(dispatch_device=True)",
    "layout by its own code": "Raising(dispatch_layout=True)",
    "functions by its own code": "A.as_subclass(Answering)",
}

SCRIPT = """
import sys, warnings
warnings.simplefilter("ignore")
import torch
if LOADED: import torch._dynamo.guards
from functools import partial
from torch._subclasses.fake_tensor import FakeTensorMode
from guards import *
A = torch.ones(2, 3)
X, B = LocalSource("x"), GuardBuilder
class Raising(torch.Tensor):
    @staticmethod
    def __new__(cls, **how):
        return torch.Tensor._make_wrapper_subclass(cls, (2, 3), dtype=torch.float32, **how)
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise ValueError("asked for " + str(func))
class Answering(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise ValueError("asked for " + str(func))
def see(check, scope):
    assert check(scope) is False
    assert check.explain(scope) is not None
one = compile_guards([Guard(X, B.TENSOR_MATCH)], {"x": A})
names = [f"x{i}" for i in range(12)]
scope = {name: torch.ones(2, 3) for name in names}
many = compile_guards([Guard(LocalSource(name), B.TENSOR_MATCH) for name in names], scope)
assert ("tree_of_tensors" in many.source) is LOADED
parameter = compile_guards([Guard(X, B.TENSOR_MATCH)], {"x": torch.nn.Parameter(A)})
sizes = compile_guards([Guard(TensorPropertySource(X, *p), B.EQUALS_MATCH) for p in
                        (("storage_offset",), ("size", 1), ("stride", 0))], {"x": A[1:, 1:]})
apart = compile_guards([Guard(X, partial(B.STORAGE_OVERLAP, overlapping=[],
                        non_overlapping=[X, LocalSource("y")]))], {"x": A[:1], "y": A[1:]})
cache = GuardedCache()
cache.insert(one, 1)
fast = specialize(lambda t: t * 2)
fast(A)
for name, maker in MAKERS.items():
    print(name, flush=True)
    value = eval(maker)
    for check in (one, parameter, sizes):
        see(check, {"x": value})
    for place in names:
        see(many, {**scope, place: value})
    apart({"x": value, "y": A}), apart.explain({"x": value, "y": A})
    assert cache.lookup({"x": value}) is None
    cache.explain_miss({"x": value})
    try:
        fast(value)
    except Exception:
        pass
    try:
        own = compile_guards([Guard(X, B.TENSOR_MATCH)], {"x": value})
        if not own({"x": value}):
            raise SystemExit("it does not hold of what it was made from")
        see(own, {"x": torch.ones(5)})
        see(own, {"x": torch.nested.nested_tensor([torch.ones(3)] * 2)})
    except UnsupportedGuardError as error:
        assert "cannot tell" in str(error), error
print("all")
"""


@pytest.mark.slow  # starts a process
@pytest.mark.parametrize("loaded", [False, True], ids=["alone", "with Dynamo loaded"])
def test_tensor_of_any_make_is_answered(loaded: bool) -> None:
    script = f"MAKERS, LOADED = {MAKERS!r}, {loaded}\n{textwrap.dedent(SCRIPT)}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    tried = done.stdout.splitlines() or ["importing"]
    assert done.returncode == 0, f"{tried[-1]}: {done.stderr[-2000:]}"
    assert tried == [*MAKERS, "all"]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_legacy_nested_tensor_is_refused_by_name() -> None:
    nested = torch.nested.nested_tensor([torch.ones(3)] * 2)
    with pytest.raises(UnsupportedGuardError, match=r"TENSOR_MATCH on L\['x'\].*cannot tell"):
        compile_guards([Guard(X, GuardBuilder.TENSOR_MATCH)], {"x": nested})


ODD: dict[str, Callable[[], torch.Tensor]] = {
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "jagged": lambda: torch.nested.nested_tensor(
        [torch.ones(2), torch.ones(3)], layout=torch.jagged
    ),
    "coo": lambda: torch.eye(3).to_sparse(),
    "csr": lambda: torch.eye(3).to_sparse_csr(),
    "mkldnn": lambda: torch.ones(2, 2).to_mkldnn(),
    "meta": lambda: torch.ones(2, 2, device="meta"),
    "of no dimension": lambda: torch.tensor(1.0),
    "conjugate": lambda: torch.ones(2, 2, dtype=torch.complex64).conj(),
    "parameter": lambda: torch.nn.Parameter(torch.ones(2, 2)),
    "expanded": lambda: torch.ones(1).expand(3, 3),
}
PROPERTIES = [("size", 0), ("size", -1), ("stride", 0), ("stride", 1), ("storage_offset", None)]


# What a tensor does not say, or says by a symbol.
UNSAID = {
    *(("nested", prop, dim) for prop, dim in [("size", -1), ("stride", 0), ("stride", 1)]),
    *(("jagged", prop, dim) for prop, dim in [("size", -1), ("stride", 0)]),
    *(("csr", "stride", dim) for dim in (0, 1)),
    *(("of no dimension", prop, dim) for prop, dim in PROPERTIES if dim is not None),
}


@pytest.mark.parametrize(("prop", "dim"), PROPERTIES)
@pytest.mark.parametrize("name", ODD)
def test_guard_on_a_property_holds_for_the_tensor_it_was_made_from(
    name: str, prop: str, dim: int | None
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nested tensors are a prototype, sparse ones beta
        scope = {"x": ODD[name]()}
    guard = Guard(TensorPropertySource(X, prop, dim), GuardBuilder.EQUALS_MATCH)
    if (name, prop, dim) in UNSAID:
        with pytest.raises(GuardError, match=r"is missing|SymInt is no constant"):
            compile_guards([guard], scope)
        return
    check = compile_guards([guard], scope)
    assert check(scope), check.explain(scope)
    assert not check({"x": torch.ones(7, 9, 11)[..., 1:6]})


@pytest.mark.slow  # collects garbage
@pytest.mark.parametrize("count", [1, 2, 12])
def test_class_in_the_place_of_a_dead_one_is_refused(count: int) -> None:
    def made(cls: type) -> dict[str, Any]:
        return {f"x{i}": torch.ones(2).as_subclass(cls) for i in range(count)}

    cls = type("First", (torch.Tensor,), {})
    scope = made(cls)
    guards = [Guard(LocalSource(name), GuardBuilder.TENSOR_MATCH) for name in scope]
    check = compile_guards(guards, scope)
    assert check(scope)
    address = id(cls)
    del cls, scope
    gc.collect()
    assert check.death.happened
    others = []
    for _ in range(500):
        others.append(type("Other", (torch.Tensor,), {}))
        if id(others[-1]) == address:
            break
    else:
        pytest.skip("no class came to lie at that address")
    scope = made(others[-1])
    assert not check(scope)
    explained = check.explain(scope)
    assert explained is not None
    assert explained.expected.endswith("a class that is dead")
