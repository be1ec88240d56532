"""What operators do, from the specs, and from torch where the specs are silent."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from guards import OpFacts, facts
from guards._errors import UnknownOperatorError
from torch.utils._python_dispatch import TorchDispatchMode


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("aten::_int_mm", {}),
        ("aten::mm", {"composite": "explicit"}),
        ("aten::add.Tensor", {"composite": "explicit"}),
        ("aten::add_.Tensor", {"inplace": True, "mutates": ("self",)}),
        ("aten::add.out", {"out": True, "mutates": ("out",)}),
        ("aten::native_batch_norm", {"mutates": ("running_mean", "running_var")}),  # unsaid
        ("aten::view", {"view": True}),
        ("aten::_local_scalar_dense", {"reads_data": "always"}),
        ("aten::istft", {"reads_data": "always"}),
        ("aten::linalg_inv", {"reads_data": "no", "composite": "implicit"}),
        ("aten::nonzero", {"output_shape": "dynamic"}),
        ("aten::index.Tensor", {"output_shape": "dynamic", "reads_data": "by_argument"}),
        ("aten::bernoulli_.float", {"random": True, "inplace": True}),
        ("aten::linear", {"composite": "implicit"}),
    ],
)
def test_facts_from_the_specs(name: str, said: dict[str, Any]) -> None:
    found = facts(name)
    assert found.known
    assert found.family
    for field, value in said.items():
        assert getattr(found, field) == value, field
    if not said:
        plain = OpFacts(found.family, False, False, False, (), "no", False, "no", "static", True)
        assert found == plain


def test_all_ways_to_name_an_operator() -> None:
    overload = torch.ops.aten.add.Tensor
    handle = SimpleNamespace(qualified_name="aten::add.Tensor")
    assert facts(overload) == facts("aten::add.Tensor") == facts(handle)  # type: ignore[arg-type]
    assert facts("aten::relu") == facts("aten::relu.default") == facts(torch.ops.aten.relu.default)


def test_operator_outside_the_specs() -> None:
    with torch.library._scoped_library("guards_test", "FRAGMENT") as library:
        library.define("grow(Tensor(a!) x, Tensor y) -> ()", tags=(torch.Tag.dynamic_output_shape,))
        library.define("look(Tensor(a) x) -> Tensor(a)")
        library.define(
            "roll_(Tensor(a!) x) -> Tensor(a!)", tags=(torch.Tag.nondeterministic_seeded,)
        )
        grow, look = facts("guards_test::grow"), facts("guards_test::look")
        roll = facts(torch.ops.guards_test.roll_.default)
    assert (grow.known, grow.family, grow.mutates) == (False, "", ("x",))
    assert (grow.output_shape, grow.inplace, grow.view) == ("dynamic", False, False)
    assert look.view
    assert not look.mutates
    assert roll.random
    assert roll.inplace


def test_higher_order_operator() -> None:
    assert facts(torch.ops.higher_order.cond).family == "higher_order"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("aten::no_such_operator", "has no operator"),
        ("aten::add.no_such_overload", "has no operator"),
        ("add", "has no operator"),
        ("", "has no operator"),
        (torch.ops.aten.add, "overloads; name one of them"),
        (3, "an operator or its name was expected"),
        (torch.add, "an operator or its name was expected"),
    ],
    ids=range(7),
)
def test_what_is_no_operator(value: Any, message: str) -> None:
    with pytest.raises(UnknownOperatorError, match=message):
        facts(value)


class Parts(TorchDispatchMode):
    """Collect the names of the operators that run."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.names.add(func.name())
        return func(*args, **(kwargs or {}))


def op_infos() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    often = 25  # in the normal run every 25th operator, with --long all
    infos = [info for info in op_db if info.dtypes and hasattr(torch.ops.aten, info.aten_name)]
    return [
        pytest.param(info, id=info.formatted_name, marks=[] if n % often == 0 else pytest.mark.long)
        for n, info in enumerate(infos)
    ] + [
        pytest.param(info, id=f"{info.formatted_name} too")
        for info in infos
        if info.name in ("istft", "linalg.inv", "cov")
    ]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch's list calls much that is deprecated
@pytest.mark.parametrize("info", op_infos())
def test_composite_reads_data_where_its_parts_do(info: Any) -> None:
    dtype = torch.float32 if torch.float32 in info.dtypes else min(info.dtypes, key=str)
    try:
        samples = [s for _, s in zip(range(8), info.sample_inputs("cpu", dtype), strict=False)]
    except (RuntimeError, NotImplementedError, ImportError) as error:
        pytest.skip(f"torch cannot make samples of {info.name} here: {error}")
    for sample in samples:
        arguments = (sample.input, *sample.args)
        try:
            name = torch._C._jit_resolve_packet(
                f"aten::{info.aten_name}", *arguments, **sample.kwargs
            )
        except RuntimeError:
            continue  # the function of Python takes its arguments otherwise
        op = getattr(getattr(torch.ops.aten, info.aten_name), name or "default")
        whole = facts(op)
        given = [*arguments, *sample.kwargs.values()]
        if whole.composite != "implicit" or _numbers_from_tensors(op, given):
            continue
        with Parts() as parts:
            op(*arguments, **sample.kwargs)
        for part in map(facts, parts.names):
            if part.reads_data == "always":
                assert whole.reads_data != "no", (op, parts.names)
            if part.reads_data == "always" and part.output_shape == "dynamic":
                assert whole.output_shape == "dynamic" or whole.reads_data != "no"


def _numbers_from_tensors(op: Any, given: list[Any]) -> bool:
    """Tell whether a tensor is given for a number, which reads it before the operator runs."""
    tensors = sum(isinstance(value, torch.Tensor) for value in given)
    return tensors > sum("Tensor" in str(a.type) for a in op._schema.arguments)
