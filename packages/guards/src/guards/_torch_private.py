"""Every private part of torch that check functions use, looked up once.

torch promises nothing about these names. What is missing is said in one clear sentence, where it
is first needed, so that the vocabulary works on a torch that lacks one.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch._C
import torch.overrides
import torch.utils._device

from guards._errors import GuardError

__all__ = [
    "AUTOCAST_DEVICES",
    "add_tensor_match",
    "any_autocast_enabled",
    "autocast_switch",
    "current_device",
    "dict_version",
    "dispatch_facts",
    "dispatch_state",
    "in_thread_state",
    "is_odd",
    "kind_of_dict_node",
    "kind_of_node",
    "no_tree",
    "overlapping",
    "overlapping_tensors",
    "tensor_guards",
    "tensor_reason",
    "thread_state",
    "tree",
    "tree_check",
    "with_lazy_bits",
]


class UnsupportedTorchError(GuardError, RuntimeError):
    """The installed torch lacks a private part that this package needs."""


def _look_up(owner: object, name: str) -> Any:
    for part in name.split("."):
        try:
            owner = getattr(owner, part)
        except AttributeError:
            raise UnsupportedTorchError(
                f"guards needs {name}, which torch {torch.__version__} does not have; install a "
                "torch that this version of guards supports (2.13 or later), or a newer guards"
            ) from None
    return owner


Dims = Sequence["list[int | None] | None"]


def tensor_guards(tensors: Sequence[torch.Tensor], sizes: Dims, strides: Dims) -> Any:
    """Make torch's own check of several tensors in one call.

    ``sizes`` and ``strides`` say for each tensor which must be kept: a list with None for a
    dimension that may change, or None where all may.
    """
    make = _look_up(torch._C, "_dynamo.guards.TensorGuards")

    def filled(given: Dims) -> list[list[int | None]]:
        return [
            [None] * torch.Tensor.dim(tensor) if own is None else own
            for tensor, own in zip(tensors, given, strict=True)
        ]

    return make(
        *tensors,
        dynamic_dims_sizes=filled(sizes),
        dynamic_dims_strides=filled(strides),
    )


def tree() -> Any:
    """Make an empty one of torch's trees of guards, ``check(value)``."""
    return _class_of_trees()()


@functools.lru_cache(maxsize=1)
def no_tree() -> Any:
    """Give a tree that holds of nothing."""
    root = tree()
    root.add_none_match_guard(["nothing"], None)
    root.add_true_match_guard(["nothing"], None)
    return root


@functools.lru_cache(maxsize=1)
def _class_of_trees() -> Any:
    return _look_up(torch._C, "_dynamo.guards.RootGuardManager")


@functools.lru_cache(maxsize=1)
def tree_check() -> Callable[[Any, object], bool]:
    """Give the function that asks a tree of guards, ``tree_check()(tree, value)``.

    It is called faster than the method that is made of it for each tree.
    """
    method = _look_up(_class_of_trees(), "check")
    check: Callable[[Any, object], bool] = getattr(method, "__func__", method)
    return check


def kind_of_node() -> Any:
    """Give what torch wants to be told of each node of a tree below its root, or None.

    torch looks it up in ``torch._dynamo``, which takes a second to load: None where nothing else
    has loaded it.
    """
    kinds = getattr(sys.modules.get("torch._dynamo.guards"), "GuardManagerType", None)
    return getattr(kinds, "GUARD_MANAGER", None)


def kind_of_dict_node() -> Any:
    """Give what torch wants to be told of a node that checks the keys of a dict, or None."""
    kinds = getattr(sys.modules.get("torch._dynamo.guards"), "GuardManagerType", None)
    return getattr(kinds, "DICT_GUARD_MANAGER", None)


def add_tensor_match(
    node: Any, tensor: torch.Tensor, sizes: Any, strides: Any, ndim: int | None = None
) -> None:
    """Let a node of a tree check a tensor; the thread's state counts as it is now.

    Strides that a tensor does not tell, as a nested one, and what a subclass raises when it is
    asked come out of it as exceptions; ``tensor_guards`` ends the process then.
    """
    if ndim is None:
        with torch._C.DisableTorchFunction():
            ndim = torch.Tensor.dim(tensor)
    keys = torch._C._dispatch_keys(tensor)
    sizes = [None] * ndim if sizes is None else sizes
    strides = [None] * ndim if strides is None else strides
    add = getattr(node, "add_tensor_match_guard", None) or _look_up(node, "add_tensor_match_guard")
    add(tensor, sizes, strides, "the tensor", ["the tensor"], None, type(tensor), keys)


def tensor_check(tensor: torch.Tensor, sizes: Any, strides: Any) -> Any:
    """Make torch's own check of one tensor, ``check(value)``, which answers any value."""
    root = tree()
    add_tensor_match(root, tensor, sizes, strides)
    return root


def tensor_reason(check: Any, tensor: torch.Tensor) -> str:
    """Ask torch why a tensor fails its check."""
    reasons = check.check_verbose(tensor).verbose_code_parts
    return str(reasons[0]) if reasons else "a tensor that fails torch's own check"


def dict_version() -> Callable[[dict[Any, Any]], int] | None:
    """Give torch's function that reads which version of itself a dict is; None where it has none.

    It lies in torch's C part, so that nothing is loaded for it.
    """
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    return getattr(guards, "dict_version", None)


def overlapping(tensors: list[torch.Tensor]) -> Iterable[int]:
    """Give the positions of the tensors that share memory with another one.

    torch's own function says it of tensors of one storage. Of those in several storages
    that lie in the same memory, as two that were made of one array of numpy's, it is the ranges
    of addresses that must not meet.
    """
    compute = overlapping_tensors()
    groups: dict[int, list[int]] = {}
    with torch._C.DisableTorchFunction():
        for place, tensor in enumerate(tensors):
            storage = torch.Tensor.untyped_storage(tensor)
            groups.setdefault(storage._cdata, []).append(place)
        found = {
            places[number]
            for places in groups.values()
            if len(places) > 1
            for number in compute([tensors[place] for place in places], False)
        }
        if len(groups) > 1:
            group_of = {place: group for group, places in groups.items() for place in places}
            ranges = sorted((*_addresses(t), place) for place, t in enumerate(tensors))
            open_ranges: list[tuple[int, int]] = []
            for start, end, place in ranges:
                open_ranges = [(stop, other) for stop, other in open_ranges if stop > start]
                for _, other in open_ranges if start < end else ():
                    if group_of[other] != group_of[place]:
                        found |= {place, other}
                open_ranges.append((end, place))
    return found


def overlapping_tensors() -> Callable[..., Iterable[int]]:
    """Give torch's function that finds the tensors of a list which share memory.

    It takes it that all have one storage.
    """
    compute: Callable[..., Iterable[int]] = _look_up(
        torch._C, "_dynamo.guards.compute_overlapping_tensors"
    )
    return compute


def _addresses(tensor: torch.Tensor) -> tuple[int, int]:
    start = torch.Tensor.data_ptr(tensor)
    if start == 0 or torch.Tensor.numel(tensor) == 0:
        return 0, 0  # it has no memory, as on the device meta
    steps = zip(torch.Tensor.size(tensor), torch.Tensor.stride(tensor), strict=True)
    last = sum((size - 1) * stride for size, stride in steps)
    return start, start + (last + 1) * torch.Tensor.element_size(tensor)


# What a dispatch key means to somebody who does not know the dispatcher. Keys that only say where
# a tensor lives or that every tensor has are left out.
_KEY_MEANINGS = {
    "Conjugate": "a lazy conjugate",
    "Negative": "a lazy negative",
    "ZeroTensor": "an immutable zero",
    "Python": "an operator-level subclass (__torch_dispatch__)",
    "FuncTorchBatched": "batched by vmap",
    "FuncTorchGradWrapper": "inside torch.func.grad",
    "Functionalize": "functionalized",
    "NestedTensor": "nested",
    "Batched": "batched",
    "Fake": "fake",
}


DispatchFacts = tuple[int, bool, bool, tuple[str, ...]]
"""A tensor's dispatch keys, whether it is an inference tensor, and the thread's own state."""


def dispatch_facts(tensor: torch.Tensor) -> DispatchFacts:
    """Read a tensor's dispatch keys, and what of the thread's state counts beside them."""
    on: tuple[str, ...] = ()
    if any_autocast_enabled():
        on = tuple(filter(torch.is_autocast_enabled, AUTOCAST_DEVICES))
    keys = torch._C._dispatch_keys(tensor).raw_repr()
    return keys, torch.is_inference(tensor), torch.is_inference_mode_enabled(), on


def dispatch_state(facts: DispatchFacts) -> list[str]:
    """Say in English what a tensor's dispatch keys mean beyond its device and layout.

    The thread's own state counts: 'outside autograd' is what inference_mode makes of a tensor.
    """
    keys, inference, inference_mode, autocast = facts
    said = [_KEY_MEANINGS[key] for key in _odd_keys_of(keys)]
    if inference:
        said.append("an inference tensor")
    if inference_mode:
        said.append("inference_mode is on")
    said += [f"autocast is on for {device}" for device in autocast]
    return said


@functools.lru_cache(maxsize=256)
def _odd_keys_of(raw: int) -> tuple[str, ...]:
    keys = torch._C.DispatchKeySet.from_raw_repr(raw)
    return tuple(key for key in _KEY_MEANINGS if _has(keys, key))


def key_meaning(name: str) -> str | None:
    """Say in English what a dispatch key means; None for one that says where a tensor lives."""
    return _KEY_MEANINGS.get(name)


def _has(keys: Any, name: str) -> bool:
    key = getattr(torch._C.DispatchKey, name, None)
    return key is not None and bool(keys.has(key))


def is_odd(facts: DispatchFacts) -> bool:
    """Tell whether a tensor is in a state that cannot be made from dtype, device and shape."""
    return any(key not in ("Conjugate", "Negative") for key in _odd_keys_of(facts[0]))


def with_lazy_bits(*, views: bool = False) -> contextlib.AbstractContextManager[None]:
    """Let operators that a mode's handler runs mind the conjugates and negatives they make.

    torch keeps these keys out while a handler runs: ``pinverse`` of complex numbers, which takes
    conjugates on its way, then gives wrong ones. With ``views``, that they note which of their
    tensors are views, too.
    """
    guard = _look_up(torch._C, "_ForceDispatchKeyGuard")
    excluded = torch._C._dispatch_tls_local_exclude_set()
    for name in ("Conjugate", "Negative", "ZeroTensor", *["ADInplaceOrView"] * views):
        excluded = excluded.remove(getattr(torch._C.DispatchKey, name))
    made: contextlib.AbstractContextManager[None] = guard(
        torch._C._dispatch_tls_local_include_set(), excluded
    )
    return made


_dispatch = torch.utils._python_dispatch
_MODE_FLAGS = [
    name
    for name in (
        "_is_in_torch_dispatch_mode",
        "_is_in_non_infra_torch_dispatch_mode",
        "_is_in_any_mode_without_ignore_compile_internals",
    )
    if hasattr(_dispatch, name)
]


def mode_flags() -> list[bool]:
    """Give what torch keeps, for all threads together, of whether dispatch modes are open."""
    return [getattr(_dispatch, name) for name in _MODE_FLAGS]


def set_mode_flags(flags: list[bool]) -> None:
    """Put these flags back."""
    for name, flag in zip(_MODE_FLAGS, flags, strict=True):
        setattr(_dispatch, name, flag)
    tell = getattr(_dispatch, "set_is_in_mode_without_ignore_compile_internals", None)
    if tell is not None and len(flags) == 3:
        tell(flags[2])


def open_function_mode(mode: torch.overrides.TorchFunctionMode) -> None:
    """Open a mode for the next call of a function of torch, without the Python of ``with``."""
    torch._C._push_on_torch_function_stack(mode)


def close_function_mode() -> None:
    """Close the mode that was opened last."""
    torch._C._pop_torch_function_stack()


def operator_of(overload: Any) -> Any:
    """Give the function of C that an overload calls, without the Python around it."""
    return getattr(overload, "_op", overload)


def tracks_views(operator: str) -> bool:
    """Tell whether torch itself notes that results of this operator are views."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(operator, "ADInplaceOrView"))


ThreadState = tuple[tuple[str, ...], bool]
"""For which devices autocast is on in a thread, and whether inference_mode is."""

AUTOCAST_DEVICES = ("cpu", "cuda", "mps", "xpu", "hpu", "mtia", "ipu", "xla", "maia")


def thread_state() -> ThreadState | None:
    """Read what of this thread's state counts in checks of tensors.

    None where there is more of it than autocast and inference_mode, as inside a mode.
    """
    devices: tuple[str, ...] = ()
    if any_autocast_enabled():
        devices = tuple(filter(torch.is_autocast_enabled, AUTOCAST_DEVICES))
    state = (devices, torch.is_inference_mode_enabled())
    included = torch._C._dispatch_tls_local_include_set().raw_repr()
    excluded = torch._C._dispatch_tls_local_exclude_set().raw_repr()
    return state if (included, excluded) == _raw_keys_in(state) else None


@functools.lru_cache(maxsize=64)
def _raw_keys_in(state: ThreadState) -> tuple[int, int]:
    included, excluded = _keys_in(state)
    return included.raw_repr(), excluded.raw_repr()


@functools.lru_cache(maxsize=64)
def _keys_in(state: ThreadState) -> tuple[Any, Any]:
    """Find the dispatch keys of a thread in a state: in a new one, where nothing else is on."""
    found: list[Any] = []

    def look() -> None:
        with contextlib.ExitStack() as stack:
            if state[1]:
                stack.enter_context(torch.inference_mode())
            for device in state[0]:
                torch.set_autocast_enabled(device, True)
            found.append(torch._C._dispatch_tls_local_include_set())
            found.append(torch._C._dispatch_tls_local_exclude_set())

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return found[0], found[1]


@contextlib.contextmanager
def in_thread_state(state: ThreadState) -> Iterator[None]:
    """Make tensors and checks as in a thread of this state, whatever is on in this one."""
    force = _look_up(torch._C, "_ForceDispatchKeyGuard")
    with torch.inference_mode(state[1]), torch._C.DisableTorchFunction(), force(*_keys_in(state)):
        yield


def any_autocast_enabled() -> bool:
    """Tell whether autocast is on for any device, cheaply."""
    return bool(autocast_switch()())


def autocast_switch() -> Callable[[], bool]:
    """Give torch's function that tells whether autocast is on for any device."""
    switch: Callable[[], bool] = _look_up(torch._C, "_is_any_autocast_enabled")
    return switch


def current_device() -> torch.device | None:
    """Give the device that was set for new tensors, None where none was."""
    if not torch_function_modes():
        return None
    stack = torch.overrides._get_current_function_mode_stack()
    for mode in reversed(stack):
        if isinstance(mode, torch.utils._device.DeviceContext):
            device: torch.device = mode.device
            return device
    return None


torch_function_modes: Callable[[], int] = torch._C._len_torch_function_stack
"""Count the modes of ``__torch_function__`` that are open; a default device is one."""


def cache_entries() -> Callable[[types.CodeType], list[Any]]:
    """Give torch's function that lists the compilations it keeps for a code object.

    It lies in torch's C part, so that nothing is loaded for it.
    """
    entries: Callable[[types.CodeType], list[Any]] = _look_up(
        torch._C, "_dynamo.eval_frame._debug_get_cache_entry_list"
    )
    return entries


def resume_codes(code: types.CodeType) -> list[types.CodeType]:
    """Give the code of the parts behind a function's graph breaks, as torch keeps it."""
    # Whoever has compiled something has loaded it; who has not, has no parts either.
    resume_execution = sys.modules.get("torch._dynamo.resume_execution")
    if resume_execution is None:
        return []
    cache = _look_up(resume_execution, "ContinueExecutionCache.cache")
    try:
        found = cache[code]
    except KeyError:
        return []
    return [part for part in found.values() if isinstance(part, types.CodeType)]


def global_state() -> dict[str, Any]:
    """Read torch's global state as its own guard on it does."""
    state = _look_up(torch._C, "_dynamo.guards.GlobalStateGuard")()
    fields: dict[str, Any] = json.loads(state.__getstate__())
    return fields
