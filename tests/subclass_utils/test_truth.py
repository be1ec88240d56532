"""The wrapper equals the plain tensor over torch's whole list of operators."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo

from tests.subclass_utils.truth import Passing, PassingWhole, Wrapped, compare_run, quiet

DTYPES = (torch.float32, torch.complex64, torch.int64, torch.bool)
LAYOUTS = ("slice", "transpose", "conj", "neg")
CONTEXTS = ("plain", "no_grad", "inference", "inference_inside", "watched", "inference_watched")

# Operators without a tensor among their arguments: there is nothing to wrap.
FACTORIES = {
    *("arange", "broadcast_shapes", "empty", "empty_permuted", "empty_strided", "eye", "full"),
    *("linspace", "logspace", "ones", "randint", "randn", "scalar_tensor"),
    *("signal_windows_bartlett", "signal_windows_blackman", "signal_windows_cosine"),
    *("signal_windows_exponential", "tril_indices", "triu_indices", "zeros"),
    *("signal_windows_gaussian", "signal_windows_general_cosine"),
    *("signal_windows_general_hamming", "signal_windows_hamming", "signal_windows_hann"),
    *("signal_windows_kaiser", "signal_windows_nuttall"),
}
# Torch names no dtype for them on a CPU: there is no kernel to compare with.
NOT_ON_CPU = {
    "nn_functional_batch_norm_without_cudnn",
    "torch_ops_aten__efficient_attention_forward",
    "torch_ops_aten__flash_attention_forward",
}
# Their values are whatever memory holds; those of the kernel too, for a transposed query, on a
# plain tensor of torch 2.14.
UNINITIALISED = (
    "empty",
    "new_empty",
    "torch_ops_aten__scaled_dot_product_flash_attention_for_cpu",
)
# Their backward allocates plain tensors by shape and dtype, in Python, and fills them.
PLAIN_GRADIENTS = {"nn_functional_linear_cross_entropy_chunked_none"}

# A mode, and a class with handlers, is shown the parts of these composite operators. So many writes
# to `out`, or to what they fill step by step, are not those of the whole, which a plain tensor
# without a mode goes through.
IN_PARTS_FOR_MODES = {
    *("linalg_cond", "linalg_matrix_norm", "linalg_matrix_power", "linalg_matrix_rank"),
    *("linalg_matrix_rank_hermitian", "linalg_multi_dot", "linalg_norm", "linalg_pinv"),
    *("linalg_norm_subgradients_at_zero", "linalg_tensorinv", "linalg_tensorsolve"),
    *("linalg_vecdot", "matmul", "nanquantile", "nn_functional_max_pool1d"),
    "nn_functional_one_hot",
    *("norm_nuc", "quantile", "special_ndtr", "tensordot"),
}
BY_PARTS = ("version is", "is_view is", "has_base is", "stride is")

FAST = 23  # every so manieth entry in the normal run


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """The tensors are small: on a busy machine more threads only wait for each other.

    What torch warns of, beta features and deprecated operators, is nothing of ours.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with quiet():
        yield
    torch.set_num_threads(threads)


def dtypes_of(op: OpInfo) -> list[torch.dtype]:
    """Give the dtypes to try: those that all operators are tried with, else the entry's own."""
    return [dtype for dtype in DTYPES if dtype in op.dtypes] or sorted(op.dtypes, key=str)


def relaid(layout: str, tensor: Any) -> torch.Tensor | None:
    """Give the same values as another kind of view; None where there is none."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
        return None
    if layout == "neg" and tensor.is_floating_point() and tensor.itemsize == 1:
        return None  # torch negates no float8
    values = tensor.detach()
    made: torch.Tensor
    if layout == "slice":
        made = torch.stack([values, values])[1]
    elif layout == "transpose" and values.dim() > 1:
        made = values.transpose(-1, -2).contiguous().transpose(-1, -2)
    elif layout == "conj" and values.is_complex():
        made = values.conj().resolve_conj().conj()
    elif layout == "neg" and (values.is_complex() or values.is_floating_point()):
        made = torch.neg(values)._neg_view()
    else:
        return None
    return made.detach().requires_grad_(tensor.requires_grad)


def out_for(function: Any, args: Any, kwargs: Any, resized: bool) -> Any:
    """Make `out` tensors for a call, of the right size or to be resized; None if it has none."""
    try:
        result = function(*args, **kwargs)
    except Exception:
        return None
    several = isinstance(result, tuple)
    results = result if several else (result,)
    if not all(isinstance(each, torch.Tensor) for each in results):
        return None
    made = [
        torch.empty(0, dtype=each.dtype) if resized else torch.empty_like(each) for each in results
    ]
    return tuple(made) if several else made[0]


def calls(op: OpInfo, dtype: torch.dtype, most: int, backward: bool = False) -> Iterator[Any]:
    """Give name, function, args and kwargs of calls of an entry, in all its variants."""
    requires_grad = backward and (dtype.is_floating_point or dtype.is_complex)
    # Without the wrapper that notes for torch's own test runner where a sample came from: it
    # looks through every file on the stack, and takes longer than all else here.
    made = op.sample_inputs_func(op, "cpu", dtype, requires_grad)
    samples = itertools.islice(made, most)
    for number, sample in enumerate(samples):
        args, kwargs = (sample.input, *sample.args), dict(sample.kwargs)
        function, in_place = op.get_op(), op.get_inplace()
        name = f"{dtype} sample {number}"
        yield name, function, args, kwargs
        if in_place is not None:
            yield f"{name} in place", in_place, args, kwargs
        if op.supports_out and not backward:
            out = out_for(function, args, kwargs, bool(number % 2))
            if out is not None:
                yield f"{name} out", function, args, {**kwargs, "out": out}
        for layout in LAYOUTS if number < 3 else ():
            view = relaid(layout, sample.input)
            if view is not None:
                yield f"{name} {layout}", function, (view, *args[1:]), kwargs
                if in_place is not None:
                    yield f"{name} {layout} in place", in_place, (view, *args[1:]), kwargs


def faults_of(
    op: OpInfo, most: int, context: str, backward: bool = False, cls: type[Any] = Wrapped
) -> list[str]:
    """List how wrappers differ from plain tensors over an entry's calls."""
    found = []
    for dtype in dtypes_of(op):
        if backward and dtype in (torch.int64, torch.bool):
            continue
        for name, function, args, kwargs in calls(op, dtype, most, backward):
            outcome = compare_run(
                function, (args, kwargs), context=context, backward=backward, cls=cls
            )
            for fault in outcome.faults:
                if op.formatted_name.startswith(UNINITIALISED) and "other values" in fault:
                    continue
                if cls is PassingWhole and "version is" in fault:
                    continue  # a whole operator counts one write, however its parts write
                in_parts = context.endswith("watched") or cls is not Wrapped
                if (
                    in_parts
                    and op.formatted_name in IN_PARTS_FOR_MODES
                    and any(fact in fault for fact in BY_PARTS)
                ):
                    continue
                if op.formatted_name in PLAIN_GRADIENTS and "is a Tensor" in fault:
                    continue
                found.append(f"{name}: {fault}")
    return found


def test_list_has_all_entries() -> None:
    assert len(op_db) >= 702
    assert {op.formatted_name for op in op_db} >= PLAIN_GRADIENTS


@pytest.mark.slow
@pytest.mark.parametrize("context", CONTEXTS)
def test_wrapper_equals_plain_tensor(context: str) -> None:
    faults = {
        op.formatted_name: faults
        for op in op_db[CONTEXTS.index(context) :: FAST]
        if (faults := faults_of(op, 2, context))
    }
    assert faults == {}


@pytest.mark.slow
def test_gradients_equal_those_of_plain_tensors() -> None:
    faults = {
        op.formatted_name: faults
        for op in op_db[:: FAST * 2]
        if (faults := faults_of(op, 2, "plain", backward=True))
    }
    assert faults == {}


@pytest.mark.slow
@pytest.mark.parametrize("context", ["plain", "no_grad"])
def test_handler_that_passes_everything_on_changes_nothing(context: str) -> None:
    first = 7 if context == "plain" else 14
    faults = {
        op.formatted_name: faults
        for op in op_db[first::FAST]
        if (faults := faults_of(op, 2, context, backward=context == "plain", cls=Passing))
    }
    assert faults == {}


@pytest.mark.slow
@pytest.mark.parametrize("context", ["plain", "no_grad", "inference"])
def test_whole_operators_that_are_passed_on_change_nothing(context: str) -> None:
    faults = {
        op.formatted_name: faults
        for op in op_db[CONTEXTS.index(context) * 2 :: FAST]
        if (faults := faults_of(op, 2, context, backward=context == "plain", cls=PassingWhole))
    }
    assert faults == {}


@pytest.mark.long
@pytest.mark.parametrize("context", ["plain", "no_grad", "inference"])
@pytest.mark.parametrize("op", op_db, ids=lambda op: op.formatted_name)
def test_whole_operators_that_are_passed_on_change_nothing_anywhere(
    op: OpInfo, context: str
) -> None:
    assert faults_of(op, 3, context, backward=context == "plain", cls=PassingWhole) == []


@pytest.mark.long
@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("op", op_db, ids=lambda op: op.formatted_name)
def test_wrapper_equals_plain_tensor_everywhere(op: OpInfo, context: str) -> None:
    assert faults_of(op, 10, context) == []


@pytest.mark.long
@pytest.mark.parametrize("op", op_db, ids=lambda op: op.formatted_name)
def test_gradients_equal_those_of_plain_tensors_everywhere(op: OpInfo) -> None:
    assert faults_of(op, 10, "plain", backward=True) == []


@pytest.mark.long
def test_what_is_not_wrapped_is_known_by_name() -> None:
    unwrapped = set()
    for op in op_db:
        inputs = [
            (args, kwargs)
            for dtype in dtypes_of(op)
            for name, _, args, kwargs in calls(op, dtype, 3)
            if not name.endswith(" out")
        ]
        if not any(compare_run(op.get_op(), each).ran for each in inputs):
            unwrapped.add(op.formatted_name)
    assert unwrapped == FACTORIES | NOT_ON_CPU
