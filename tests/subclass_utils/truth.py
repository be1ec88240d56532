"""Compare an operator on wrappers with the same operator on plain tensors, in every respect."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from dispatch_core import Recorder
from subclass_utils import WrapperTensor
from torch.utils._pytree import tree_flatten, tree_map_only


class Wrapped(WrapperTensor):
    """A transparent wrapper with nothing of its own."""


class Passing(WrapperTensor):
    """The same; it has a handler for everything, which does what would be done without it."""


@Passing.table.fallback
def _pass_on(func: Any, *args: Any, **kwargs: Any) -> Any:
    return Passing.run_without_handler(func, *args, **kwargs)


class PassingWhole(WrapperTensor):
    """The same for every composite operator of aten, each by its name, so that it arrives whole."""


def _composite_packets() -> list[Any]:
    bases = {
        name.removeprefix("aten::").partition(".")[0]
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("aten::")
        and torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")
    }
    return [getattr(torch.ops.aten, base) for base in sorted(bases)]


@PassingWhole.table.implements(*_composite_packets())
def _pass_whole(func: Any, *args: Any, **kwargs: Any) -> Any:
    return PassingWhole.run_without_handler(func, *args, **kwargs)


CONTEXTS: dict[str, Callable[[], Any]] = {
    "plain": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "inference_inside": torch.inference_mode,
    "watched": contextlib.nullcontext,
    "inference_watched": torch.inference_mode,
}


def same_memory_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor with its whole storage, so that size, stride, offset and bits stay."""
    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided:
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)
    if tensor.is_quantized or tensor.device.type != "cpu":
        return tensor.detach().clone()
    storage = tensor.untyped_storage().clone()
    copy = torch.empty(0, dtype=tensor.dtype)
    copy.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())
    copy = copy.data  # counts its versions from 0
    if tensor.is_conj():
        torch._C._set_conj(copy, True)
    if tensor.is_neg():
        torch._C._set_neg(copy, True)
    return copy.requires_grad_(tensor.requires_grad)


def copy_all(tree: Any) -> Any:
    """Copy every tensor of a tree, keeping those that are one object one object."""
    seen: dict[int, torch.Tensor] = {}

    def copy(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in seen:
            seen[id(tensor)] = same_memory_copy(tensor)
        return seen[id(tensor)]

    return tree_map_only(torch.Tensor, copy, tree)


def wrap_all(tree: Any, cls: type[Any] = Wrapped) -> Any:
    """Wrap every tensor of a tree, keeping those that are one object one object."""
    seen: dict[int, Any] = {}

    def wrap(tensor: torch.Tensor) -> Any:
        if id(tensor) not in seen:
            seen[id(tensor)] = cls(tensor.detach(), requires_grad=tensor.requires_grad)
        return seen[id(tensor)]

    return tree_map_only(torch.Tensor, wrap, tree)


def tensors_of(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, torch.Tensor)]


def describe(tensor: torch.Tensor) -> dict[str, Any]:
    """Say everything about a tensor that its metadata tells."""
    strided = tensor.layout is torch.strided
    facts: dict[str, Any] = {
        "size": tuple(tensor.size()),
        "stride": tuple(tensor.stride()) if strided else None,
        "offset": tensor.storage_offset() if strided else None,
        "dtype": tensor.dtype,
        "layout": tensor.layout,
        "device": tensor.device,
        "conj": tensor.is_conj(),
        "neg": tensor.is_neg(),
        "inference": tensor.is_inference(),
        "contiguous": tensor.is_contiguous() if strided else None,
    }
    return facts


def autograd_facts(tensor: torch.Tensor) -> dict[str, Any]:
    """Say what autograd knows about a tensor."""
    inference = tensor.is_inference()
    return {
        "requires_grad": tensor.requires_grad,
        "is_leaf": tensor.is_leaf,
        # reshape, and overloads of one operator, go by another node for a subclass.
        "grad_fn": type(tensor.grad_fn).__name__.replace("ReshapeAlias", "View").rstrip("01234"),
        "is_view": False if inference else tensor._is_view(),
        "has_base": False if inference else tensor._base is not None,
        "version": 0 if inference else tensor._version,
        "output_nr": tensor.output_nr,
    }


def same_values(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.layout is not torch.strided:
        a, b = a.to_dense(), b.to_dense()
    if a.dtype is torch.complex32:
        a, b = a.to(torch.complex64), b.to(torch.complex64)
    if a.is_floating_point() and a.itemsize == 1:  # torch computes with no float8
        a, b = a.float(), b.float()
    if a.is_quantized:
        a, b = a.dequantize(), b.dequantize()
    return torch.equal(a, b) or bool(
        torch.allclose(
            a.resolve_conj().resolve_neg(), b.resolve_conj().resolve_neg(), equal_nan=True
        )
        if a.dtype is not torch.bool
        else False
    )


def compare_tensor(plain: torch.Tensor, got: Any, where: str, *, values: bool = True) -> list[str]:
    """List how a wrapper differs from the plain tensor of the plain run."""
    if not isinstance(got, WrapperTensor):
        return [f"{where}: not a wrapper but {type(got).__name__}"]
    faults = []
    inner = got.elem  # type: ignore[attr-defined]
    want = describe(plain)
    for side, tensor in (("outside", got), ("inside", inner)):
        have = describe(tensor)
        faults += [
            f"{where}: {side} {name} is {have[name]}, should be {want[name]}"
            for name in want
            if have[name] != want[name]
        ]
    wanted, have = autograd_facts(plain), autograd_facts(got)
    faults += [
        f"{where}: {name} is {have[name]}, should be {wanted[name]}"
        for name in wanted
        if have[name] != wanted[name]
    ]
    if not faults and values:
        with torch.inference_mode(plain.is_inference()), torch.no_grad():
            if not same_values(inner.detach(), plain.detach()):
                faults.append(f"{where}: other values")
    return faults


def compare_trees(plain: Any, got: Any, where: str, *, values: bool = True) -> list[str]:
    """List how two results differ."""
    plain_leaves, plain_spec = tree_flatten(plain)
    got_leaves, got_spec = tree_flatten(got)
    if plain_spec != got_spec:
        return [f"{where}: structure {got_spec}, should be {plain_spec}"]
    faults = []
    for index, (a, b) in enumerate(zip(plain_leaves, got_leaves, strict=True)):
        if isinstance(a, torch.Tensor):
            faults += compare_tensor(a, b, f"{where}[{index}]", values=values)
        elif a != b and not (a != a and b != b) and type(a).__name__ != "Generator":
            faults.append(f"{where}[{index}] is {b!r}, should be {a!r}")
    return faults


def compare_aliasing(plain: Sequence[Any], got: Sequence[Any], inner: Sequence[Any]) -> list[str]:
    """Compare which tensors share memory, or are one object."""
    faults = []
    for i in range(len(plain)):
        for j in range(i):
            a, b = plain[i], plain[j]
            if a.layout is not torch.strided or b.layout is not torch.strided:
                continue
            if not isinstance(got[i], WrapperTensor) or not isinstance(got[j], WrapperTensor):
                continue
            if (a is b) != (got[i] is got[j]):
                faults.append(f"tensors {j} and {i}: one object {got[i] is got[j]}")
            want = torch._C._is_alias_of(a, b)  # type: ignore[attr-defined]
            if torch._C._is_alias_of(got[i], got[j]) != want:  # type: ignore[attr-defined]
                faults.append(f"tensors {j} and {i}: outside aliased {not want}")
            if torch._C._is_alias_of(inner[i], inner[j]) != want:  # type: ignore[attr-defined]
                faults.append(f"tensors {j} and {i}: inside aliased {not want}")
    return faults


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@dataclasses.dataclass
class Outcome:
    """What one comparison gave: nothing to compare, or a list of faults."""

    ran: bool
    faults: list[str]
    reason: str = ""


def compare_run(
    function: Callable[..., Any],
    inputs: tuple[Any, ...],
    *,
    context: str = "plain",
    cls: type[Any] = Wrapped,
    backward: bool = False,
) -> Outcome:
    """Run a function on plain tensors and on wrappers, and list every difference.

    `inputs` is `(args, kwargs)`. A function that the plain run refuses must be refused too.
    """
    enter = CONTEXTS[context]
    args, kwargs = inputs
    inside = context.endswith("inside")
    # A mode that does nothing but watch; what torch does otherwise to a plain tensor in one is none
    # of ours, so that the plain run has none.
    watch = Recorder if context.endswith("watched") else contextlib.nullcontext
    with quiet():
        plain = copy_all((args, kwargs))
        source = copy_all((args, kwargs))
        if inside:
            with enter():
                plain = tree_map_only(torch.Tensor, same_memory_copy, plain)
                source = tree_map_only(torch.Tensor, same_memory_copy, source)
                wrapped = wrap_all(source, cls)
        else:
            wrapped = wrap_all(source, cls)
        with enter():
            torch.default_generator.manual_seed(7)
            try:
                want = function(*plain[0], **plain[1])
                refusal = None
            except Exception as error:
                refusal = error
            torch.default_generator.manual_seed(7)
            try:
                with watch():
                    got = function(*wrapped[0], **wrapped[1])
            except Exception as error:
                if refusal is not None:
                    return Outcome(True, [])
                return Outcome(True, [f"raised {type(error).__name__}: {str(error)[:200]}"])
        if refusal is not None:
            return Outcome(False, [], f"the plain run raised {type(refusal).__name__}")
        if not tensors_of(wrapped):
            return Outcome(False, [], "no tensor among the inputs")
        faults = compare_trees(want, got, "result")
        faults += compare_trees(plain, wrapped, "input")
        plain_all = tensors_of((plain, want))
        got_all = tensors_of((wrapped, got))
        if len(plain_all) == len(got_all) and len(plain_all) < 40 and not faults:
            inner_all = [t.elem if isinstance(t, WrapperTensor) else t for t in got_all]  # type: ignore[attr-defined]
            faults += compare_aliasing(plain_all, got_all, inner_all)
        if backward and not faults:
            faults += compare_gradients(plain, want, wrapped, got)
    return Outcome(True, faults)


def compare_gradients(plain: Any, want: Any, wrapped: Any, got: Any) -> list[str]:
    """Compare the gradients of every input that requires grad."""
    inputs = [t for t in tensors_of(plain) if t.requires_grad and t.is_leaf]
    wrapped_inputs = [t for t in tensors_of(wrapped) if t.requires_grad and t.is_leaf]
    outputs = [t for t in tensors_of(want) if t.requires_grad]
    wrapped_outputs = [t for t in tensors_of(got) if t.requires_grad]
    if not inputs or not outputs:
        return []
    if any(t.layout is not torch.strided for t in outputs):
        return []
    seeds = [torch.ones_like(t) for t in outputs]
    wrapped_seeds = [type(w)(s.clone()) for w, s in zip(wrapped_outputs, seeds, strict=True)]
    try:
        grads = torch.autograd.grad(outputs, inputs, seeds, allow_unused=True)
    except Exception:
        return []
    try:
        wrapped_grads = torch.autograd.grad(
            wrapped_outputs, wrapped_inputs, wrapped_seeds, allow_unused=True
        )
    except Exception as error:
        return [f"backward raised {type(error).__name__}: {str(error)[:200]}"]
    faults = []
    for index, (a, b) in enumerate(zip(grads, wrapped_grads, strict=True)):
        if a is None or b is None:
            if a is not b:
                faults.append(f"gradient {index} is {b}, should be {a}")
            continue
        if not isinstance(b, WrapperTensor):
            # torch makes a gradient that is nothing but zeros without asking anybody.
            if type(b) is not torch.Tensor or not same_values(a, b) or bool((a != 0).any()):
                faults.append(f"gradient {index} is a {type(b).__name__}")
            continue
        if describe(a)["size"] != describe(b)["size"] or a.dtype != b.dtype:
            faults.append(f"gradient {index}: other size or dtype")
        elif not same_values(a, b.elem):  # type: ignore[attr-defined]
            faults.append(f"gradient {index}: other values")
    return faults
