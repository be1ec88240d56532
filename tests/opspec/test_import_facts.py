"""The overlays name every operator that torch cannot run without the values of its tensors.

The witness is torch's FakeTensorMode, which has shapes and no values: each operator of torch's
OpInfo list runs under it, as it arrives from Python, so whole composite operators are seen too.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from opspec.model import Operator
from opspec.tree import load

SPECS = Path(__file__).parents[2] / "specs"

# Enough of the list to see every kind: what reads, what draws random numbers, what does neither.
SOME = {
    "add",
    "allclose",
    "argwhere",
    "bincount",
    "combinations",
    "cov",
    "equal",
    "index_put",
    "item",
    "linalg.lstsq",
    "linalg.solve",
    "masked_select",
    "multinomial",
    "narrow",
    "nn.functional.ctc_loss",
    "nn.functional.dropout",
    "nn.functional.one_hot",
    "nonzero",
    "normal",
    "rand_like",
    "repeat_interleave",
    "sum",
    "tensor_split",
    "to_sparse",
    "unique",
    "unique_consecutive",
}


@pytest.fixture(scope="module")
def facts() -> dict[str, Operator]:
    tree, diagnostics = load([SPECS])
    assert [d for d in diagnostics if d.severity == "error"] == []
    return {operator.qualified_name: operator for operator in tree.operators}


class Seen:
    """What one run of a list of operators showed."""

    def __init__(self) -> None:
        self.operators: set[str] = set()
        self.needs_values: dict[str, str] = {}
        self.dynamic: dict[str, str] = {}
        self.random: set[str] = set()


def observe(infos: Iterable[Any], samples: int) -> Seen:
    """Run the samples of each OpInfo, and watch every operator that arrives."""
    import torch
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException,
        DynamicOutputShapeException,
        FakeTensorMode,
    )
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_map_only

    seen = Seen()

    class Probe(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            name = func.name()
            seen.operators.add(name)
            try:
                with FakeTensorMode() as fake:
                    new = tree_map_only(torch.Tensor, fake.from_tensor, (args, kwargs))
                    func(*new[0], **new[1])
            except DataDependentOutputException as error:
                seen.needs_values[name] = str(error.func)
            except DynamicOutputShapeException as error:
                seen.dynamic[name] = str(error.func)
            except Exception:
                pass  # what fakes cannot do at all says nothing here
            before = torch.get_rng_state()
            result = func(*args, **kwargs)
            if not torch.equal(before, torch.get_rng_state()):
                seen.random.add(name)
            return result

    for info in infos:
        dtypes = info.supported_dtypes("cpu")
        wanted = (torch.float32, torch.int64, torch.bool, torch.complex64)
        dtype = next((dtype for dtype in wanted if dtype in dtypes), None)
        if dtype is None:
            continue
        for sample in itertools.islice(info.sample_inputs("cpu", dtype), samples):
            try:
                # Composite operators arrive whole where autograd is out of the way.
                with torch.inference_mode(), Probe():  # type: ignore[no-untyped-call]
                    info(sample.input, *sample.args, **sample.kwargs)
            except (NotImplementedError, AssertionError):
                continue  # a kernel that a CPU has not
    return seen


def check(seen: Seen, facts: dict[str, Operator]) -> None:
    """On another torch than the specs' there may be operators that the specs do not know."""
    unmarked = {
        name: why
        for name, why in seen.needs_values.items()
        if name in facts and facts[name].reads_data == "no"
    }
    assert unmarked == {}, "these raise DataDependentOutputException"
    unmarked = {
        name: why
        for name, why in seen.dynamic.items()
        if name in facts and (facts[name].reads_data, facts[name].output_shape) == ("no", "static")
    }
    assert unmarked == {}, "these raise DynamicOutputShapeException"
    assert {name for name in seen.random if name in facts and not facts[name].random} == set()


@pytest.mark.slow
def test_what_needs_values_is_marked(facts: dict[str, Operator]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's list warns of its own samples
        from torch.testing._internal.common_methods_invocations import op_db

        seen = observe([info for info in op_db if info.name in SOME], samples=3)
    check(seen, facts)
    assert min(len(seen.needs_values), len(seen.dynamic), len(seen.random)) >= 4


@pytest.mark.long
def test_what_needs_values_is_marked_in_the_whole_list(facts: dict[str, Operator]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db

        seen = observe(op_db, samples=20)
    check(seen, facts)
    assert len(seen.operators) > 600


CALLS = {
    "aten::_pack_padded_sequence": lambda a, t: a(t(2, 3), t(2, int), True),
    "aten::_embedding_bag_sparse_backward": lambda a, t: a(
        t(2, 3), t(4, int), t(2, int), t(4, int), t(2, int), 5, False, 0, None, 1
    ),
    "aten::_padded_dense_to_jagged_forward": lambda a, t: a(t(2, 3, 4), [t(3, int)]),
    "aten::_spdiags": lambda a, t: a(t(2, 3), t(2, int), [3, 3]),
    "aten::_choose_qparams_per_tensor": lambda a, t: a(t(3)),
    "aten::_unique": lambda a, t: a(t(3)),
    "aten::embedding_backward": lambda a, t: a(t(3, 2), t(3, int), 5, 1, False, True),
    "aten::embedding_sparse_backward": lambda a, t: a(t(3, 2), t(3, int), 5, 1, False),
    "aten::unique_dim_consecutive": lambda a, t: a(t(3), 0),
    "aten::where": lambda a, t: a(t(3)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_what_the_list_lacks_is_marked_too(name: str, facts: dict[str, Operator]) -> None:
    import torch
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException,
        DynamicOutputShapeException,
        FakeTensorMode,
    )

    op = getattr(torch.ops.aten, name.partition("::")[2]).default
    with FakeTensorMode() as fake:

        def tensor(*shape: Any) -> Any:
            dtype = torch.int64 if int in shape else torch.float32
            sizes = [size for size in shape if size is not int]
            return fake.from_tensor(torch.ones(sizes, dtype=dtype))

        with pytest.raises((DataDependentOutputException, DynamicOutputShapeException)):
            CALLS[name](op, tensor)
    assert facts[name].reads_data != "no"


def _plain(facts: dict[str, Operator]) -> Iterable[Operator]:
    return (op for op in facts.values() if op.imported and not op.scripted)


@pytest.mark.slow
def test_what_takes_a_generator_is_random(facts: dict[str, Operator]) -> None:
    silent = {
        op.qualified_name
        for op in _plain(facts)
        if not op.random and any("Generator" in str(p.type) for p in op.schema.parameters)
    }
    # It hands out a part of a generator's sequence and draws nothing itself.
    assert silent == {"inductor_prims::inductor_reserve_rng_state"}


@pytest.mark.slow
def test_a_dynamic_shape_comes_from_data(facts: dict[str, Operator]) -> None:
    odd = {
        op.qualified_name
        for op in _plain(facts)
        if op.output_shape == "dynamic" and op.reads_data == "no"
    }
    # By torch's tag; the lengths are lists of ints here.
    assert odd == {"aten::_ctc_loss"}


@pytest.mark.slow
def test_an_out_variant_reads_what_its_functional_form_reads(facts: dict[str, Operator]) -> None:
    apart = {}
    for op in _plain(facts):
        functional = facts.get(op.schema.base)
        if op.schema.overload != "out" or functional is None:
            continue
        if (op.reads_data, op.random) != (functional.reads_data, functional.random):
            apart[op.qualified_name] = (op.reads_data, op.random)
    assert apart == {}
