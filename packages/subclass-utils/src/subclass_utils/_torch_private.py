"""Name every private part of torch that wrapper subclasses use, and check that it is there.

torch promises nothing about these names. They are looked up once, at import, so that a torch
which lacks one fails with one clear sentence instead of somewhere inside an operator.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import CodeType
from typing import Any

import torch
import torch._C
import torch._C._dynamo.eval_frame as _eval_frame
import torch._ops
import torch.utils._python_dispatch as _python_dispatch
from dispatch_core._for_subclass_utils import look_up

__all__ = [
    "COMPOSITE_KEY",
    "HIGHER_ORDER_OPERATOR",
    "KEY_OF_ALL_CALLS",
    "WRAPPER_KEY",
    "apply_node",
    "as_plain_tangent",
    "composite_kernel",
    "composite_key",
    "composite_out_operators",
    "count_modes",
    "dispatch_keys",
    "fall_through",
    "fast_call",
    "fast_redispatch",
    "has_key",
    "has_tangents",
    "has_view_kernel",
    "increment_version",
    "inference_mode",
    "is_alias_of",
    "is_composite_implicit",
    "is_fake",
    "is_functional",
    "is_zero_tensor",
    "keys_below_all_calls",
    "keys_below_subclasses",
    "keys_below_wrapper_key",
    "leaving_bits",
    "looking_for_no_modes",
    "looks_for_modes",
    "make_outside",
    "mkldnn_layout",
    "modes_are_open",
    "name_nodes",
    "no_torch_function",
    "others_are_watching",
    "outside_keys",
    "outside_of_handlers",
    "passed_over",
    "refuse_write_outside_inference_mode",
    "register_kernels",
    "restore_caller_state",
    "say_no_parts",
    "set_conj",
    "set_neg",
    "set_version",
    "share_storage",
    "skip_in_dynamo",
    "stops_before_autograd",
    "tracer_of_make_fx",
    "with_memory",
    "without_modes",
    "wrapper_kernels",
]


_look_up = functools.partial(look_up, package="subclass_utils")


# ── dispatch keys ───────────────────────────────────────────────────────────────────────────────

_dispatch_key = _look_up(torch._C, "DispatchKey")
_snapshot_key = _look_up(_dispatch_key, "PythonTLSSnapshot")
_implicit_key = _look_up(_dispatch_key, "CompositeImplicitAutograd")

WRAPPER_KEY = "TESTING_ONLY_GenericWrapper"
"""A dispatch key that torch has no use for: wrappers carry it, and nothing else does.

So a kernel for it is run for wrappers alone, before autograd. Without a kernel, operators fall
through it.
"""

_wrapper_key = _look_up(torch._C, "_parse_dispatch_key")(WRAPPER_KEY)
_wrapper_keys: Any = _look_up(torch._C, "DispatchKeySet")(_wrapper_key)
keys_below_wrapper_key: Any = _look_up(torch._C, "_dispatch_keyset_full_after")(_wrapper_key)

COMPOSITE_KEY = "TESTING_ONLY_GenericMode"
"""Another such key, that wrappers carry whose class has handlers for composite operators."""

composite_key = _look_up(torch._C, "_parse_dispatch_key")(COMPOSITE_KEY)
_composite_keys: Any = _look_up(torch._C, "DispatchKeySet")(composite_key)


def outside_keys(for_wrappers: bool, for_composites: bool) -> Any:
    """Give a set of the keys of our own that a wrapper is to carry; None for none."""
    if not for_composites:
        return _wrapper_keys if for_wrappers else None
    return _wrapper_keys | _composite_keys if for_wrappers else _composite_keys


KEY_OF_ALL_CALLS = "BackendSelect"
"""A dispatch key that every call carries, whatever its tensors are, and after modes and classes."""

keys_below_all_calls: Any = _look_up(torch._C, "_dispatch_keyset_full_after")(
    _look_up(torch._C, "_parse_dispatch_key")(KEY_OF_ALL_CALLS)
)

keys_below_subclasses: Any = _look_up(torch._C, "_dispatch_keyset_full_after")(_snapshot_key)
"""The keys after PythonTLSSnapshot, which every subclass with a `__torch_dispatch__` carries."""

dispatch_keys: Callable[[torch.Tensor], Any] = _look_up(torch._C, "_dispatch_keys")


# What may answer an operator that a wrapper's own kernel passes on, before autograd does: autocast,
# transforms, tracers.
_above_autograd = ~_look_up(torch._C, "_dispatch_keyset_full_after")(
    _look_up(torch._C, "_parse_dispatch_key")("Tracer")
).raw_repr()
for _key in (_wrapper_key, composite_key, _snapshot_key):
    _above_autograd &= ~_look_up(torch._C, "DispatchKeySet")(_key).raw_repr()


def stops_before_autograd(keys: Any) -> bool:
    """Say whether a call with these keys may be answered by something that comes before autograd.

    That is not said of `keep_composite`.
    """
    return bool(keys.raw_repr() & _above_autograd)


def has_key(tensor: torch.Tensor) -> bool:
    """Say whether a tensor carries a dispatch key of our own."""
    keys = dispatch_keys(tensor)
    return bool(keys.has(_wrapper_key) or keys.has(composite_key))


# ── the outside ─────────────────────────────────────────────────────────────────────────────────

mkldnn_layout: Any = _look_up(torch, "_mkldnn")
make_outside: Callable[..., Any] = _look_up(torch.Tensor, "_make_wrapper_subclass")
no_torch_function: Any = _look_up(torch._C, "_disabled_torch_function_impl")
is_alias_of: Callable[[torch.Tensor, torch.Tensor], bool] = _look_up(torch._C, "_is_alias_of")
set_conj: Callable[[torch.Tensor, bool], None] = _look_up(torch._C, "_set_conj")
set_neg: Callable[[torch.Tensor, bool], None] = _look_up(torch._C, "_set_neg")
is_zero_tensor: Callable[[torch.Tensor], bool] = _look_up(torch.Tensor, "_is_zerotensor")
"""Say whether a tensor stands for zeros, and torch took no memory for it."""


def with_memory(zeros: torch.Tensor) -> torch.Tensor:
    """Give zeros for which torch took no memory some.

    In a handler torch excludes the dispatch key that keeps kernels from reading what is not there.
    """
    made = torch.empty_strided(zeros.size(), zeros.stride(), dtype=zeros.dtype, device=zeros.device)
    return made.zero_()


share_storage: Callable[[torch.Tensor, torch.Tensor], None] = _look_up(
    torch, "_functionalize_unsafe_set"
)
"""Give the first tensor the storage of the second."""

increment_version: Callable[[Sequence[torch.Tensor]], None] = _look_up(
    torch._C, "_increment_version"
)
_set_versions: Callable[[Sequence[torch.Tensor], Sequence[int]], None] = _look_up(
    _look_up(torch._C, "_autograd"), "_unsafe_set_version_counter"
)


def set_version(tensor: torch.Tensor, version: int) -> None:
    """Set a tensor's version counter, which wraps around at 2**32."""
    _set_versions((tensor,), (version % 2**32,))


# ── the state of the caller ─────────────────────────────────────────────────────────────────────

restore_caller_state: Callable[[], AbstractContextManager[None]] = _look_up(
    torch._C, "_RestorePythonTLSSnapshot"
)
"""Put the dispatcher's thread-local state back to what it was where the operator was called.

While a handler runs torch excludes autograd, version counting, the conjugate and negative bits.
"""

_is_included: Callable[[Any], bool] = _look_up(torch._C, "_dispatch_tls_is_dispatch_key_included")
_included: Callable[[], Any] = _look_up(torch._C, "_dispatch_tls_local_include_set")
_excluded: Callable[[], Any] = _look_up(torch._C, "_dispatch_tls_local_exclude_set")
_force_keys: Callable[[Any, Any], AbstractContextManager[None]] = _look_up(
    torch._C, "_ForceDispatchKeyGuard"
)
_python_key = _look_up(_dispatch_key, "Python")


def looks_for_modes() -> bool:
    """Say whether operators look for a mode: so it is in a restored state of a call in a mode.

    Where the mode has been taken off, because it is what called, there is none to find.
    """
    return _is_included(_python_key) and count_modes() == 0


def looking_for_no_modes() -> AbstractContextManager[None]:
    """Let operators look for no mode."""
    include = _included().remove(_python_key).remove(_snapshot_key)
    return _force_keys(include, _excluded())


_is_excluded: Callable[[Any], bool] = _look_up(torch._C, "_dispatch_tls_is_dispatch_key_excluded")


def outside_of_handlers() -> bool:
    """Say whether no dispatched call is under way, so that there is no state to restore."""
    return not _is_excluded(_snapshot_key)


_exclude: Callable[[Any], AbstractContextManager[None]] = _look_up(
    torch._C, "_ExcludeDispatchKeyGuard"
)
_bits: Any = _look_up(torch._C, "DispatchKeySet")(_look_up(_dispatch_key, "Conjugate")) | _look_up(
    torch._C, "DispatchKeySet"
)(_look_up(_dispatch_key, "Negative"))


def leaving_bits() -> AbstractContextManager[None]:
    """Let operators leave conjugate and negative bits as they are, as where torch asks a class.

    In a handler operators mind them.
    """
    return _exclude(_bits)


count_modes: Callable[[], int] = _look_up(torch._C, "_len_torch_dispatch_stack")
_transform: Callable[[], object] = _look_up(
    _look_up(torch._C, "_functorch"), "peek_interpreter_stack"
)


def others_are_watching() -> bool:
    """Say whether a dispatch mode or a transform of torch.func is on."""
    return count_modes() > 0 or _transform() is not None


def modes_are_open() -> bool:
    """Say whether a dispatch mode is on."""
    return count_modes() > 0


_forward_ad = _look_up(torch.autograd, "forward_ad")
_look_up(_forward_ad, "_current_level")


def has_tangents() -> bool:
    """Say whether a level of forward-mode differentiation is open."""
    level: int = _forward_ad._current_level
    return level >= 0


inference_mode: Callable[[bool], AbstractContextManager[None]] = _look_up(
    torch._C, "_InferenceMode"
)


def refuse_write_outside_inference_mode() -> None:
    """Raise torch's error for a write to an inference tensor outside of inference mode.

    Torch raises it where it counts versions, which it does not in a handler.
    """
    with inference_mode(True):
        made = torch.empty(0)
    with restore_caller_state() if _is_excluded(_snapshot_key) else nullcontext():
        made.zero_()


without_modes: Callable[[], AbstractContextManager[Any]] = _look_up(
    _python_dispatch, "_disable_current_modes"
)

_get_mode: Callable[[Any], Any] = _look_up(torch._C, "_get_dispatch_mode")
_proxy_mode = _look_up(_look_up(torch._C, "_TorchDispatchModeKey"), "PROXY")


class _Tracer:
    """What `make_fx` traces with: it knows tensors by the nodes of its graph that they are of."""

    def __init__(self, tracer: Any) -> None:
        from torch.fx.experimental import proxy_tensor

        self._tracer = tracer
        self._has_node = _look_up(proxy_tensor, "has_proxy_slot")
        self._track = _look_up(proxy_tensor, "track_tensor")

    def knows(self, tensor: torch.Tensor) -> bool:
        """Say whether a tensor is an argument, or came of one."""
        known: bool = self._has_node(tensor, self._tracer)
        return known

    def add_constant(self, tensor: torch.Tensor) -> None:
        """Put a tensor into the graph as it is."""
        proxy = self._tracer.proxy(self._tracer.create_arg(tensor))
        self._track(tensor, proxy, constant=None, tracer=self._tracer)


def tracer_of_make_fx() -> _Tracer | None:
    """Give what `make_fx` traces with, if it is on and has left the call at hand to a class."""
    mode = _get_mode(_proxy_mode)
    return None if mode is None else _Tracer(mode.tracer)


# ── operators ───────────────────────────────────────────────────────────────────────────────────

HIGHER_ORDER_OPERATOR: type[Any] = _look_up(torch._ops, "HigherOrderOperator")
_OP_OVERLOAD = _look_up(torch._ops, "OpOverload")

_names_with_kernel: Callable[[str], list[str]] = _look_up(
    torch._C, "_dispatch_get_registrations_for_dispatch_key"
)
_get_schema: Callable[[str, str], Any] = _look_up(torch._C, "_get_schema")
_dispatch_library: Callable[..., Any] = _look_up(torch._C, "_dispatch_library")
_has_kernel: Callable[[str, str], bool] = _look_up(
    torch._C, "_dispatch_has_kernel_for_dispatch_key"
)


@functools.lru_cache(maxsize=8192)
def is_composite_implicit(op: Any) -> bool:
    """Say whether an overload is made of other operators, which torch derives autograd from."""
    if type(op) is not _OP_OVERLOAD:
        return False
    try:
        return _has_kernel(op.name(), "CompositeImplicitAutograd")
    except RuntimeError:  # known to TorchScript only
        return False


def has_view_kernel(op: Any) -> bool:
    """Say whether torch itself makes a view of the operator's result, or counts its version."""
    return _has_kernel(op.name(), "ADInplaceOrView")


def passed_over(op: Any) -> bool:
    """Say whether autograd counts no version of what an operator of a library writes.

    Of aten it counts all single tensors that are counted at all.
    """
    return not op.name().startswith("aten::") and not has_view_kernel(op)


def composite_out_operators() -> list[str]:
    """List aten's composite operators that write into `out` tensors."""
    names = []
    for name in _names_with_kernel("CompositeImplicitAutograd"):
        if name.startswith("aten::"):
            base, _, overload = name.partition(".")
            try:
                arguments = _get_schema(base, overload).arguments
            except RuntimeError:  # a kernel for an operator that nobody has defined
                continue
            if any(a.kwarg_only and a.alias_info and a.alias_info.is_write for a in arguments):
                names.append(name)
    return names


def register_kernels(namespace: str, key: str) -> Callable[[str, Callable[..., Any]], None]:
    """Open a library for kernels of a dispatch key, which get the set of keys first.

    They last as long as the function that is given.
    """
    library = _dispatch_library("IMPL", namespace, key, __file__, 0)

    def register(name: str, kernel: Callable[..., Any]) -> None:
        library.impl(name.partition("::")[2], key, kernel, True)

    return register


def wrapper_kernels(namespace: str) -> Callable[[str, Callable[..., Any]], None]:
    """Open a library for kernels of the wrappers' own key."""
    return register_kernels(namespace, WRAPPER_KEY)


def fall_through(key: str) -> torch.library.Library:
    """Let operators without a kernel for a key of our own go on to the next key.

    They do as long as the library that is given is kept. Higher-order operators, which ask no
    library, do from now on, those that are made later as well.
    """
    skipped = _look_up(torch._C, "_parse_dispatch_key")(key)
    _keys_to_skip.append(skipped)
    for op in _higher_order_operators.values():
        op.fallthrough(skipped)
    library = torch.library.Library("_", "IMPL", key)
    library.fallback(torch.library.fallthrough_kernel)
    return library


_higher_order_operators: dict[str, Any] = _look_up(torch._ops, "_higher_order_ops")
_keys_to_skip: list[Any] = _look_up(
    torch._ops, "_HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS"
)


def composite_kernel(op: Any) -> Callable[..., Any]:
    """Give what runs the parts of a composite operator, as torch's C++ does."""
    by_key = _look_up(op, "_op_dk")
    return lambda *args, **kwargs: by_key(_implicit_key, *args, **kwargs)


def fast_call(op: Any) -> Callable[..., Any]:
    """Give what `OpOverload.__call__` ends in, without its Python frame."""
    if type(op) is not _OP_OVERLOAD:
        return op  # type: ignore[no-any-return]
    call: Callable[..., Any] = getattr(op, "_op", op)
    return call


def fast_redispatch(op: Any) -> Callable[..., Any]:
    """Give what `OpOverload.redispatch` ends in, without its Python frame."""
    redispatch: Callable[..., Any] = _look_up(_look_up(op, "_handle"), "redispatch_boxed")
    return redispatch


def apply_node(function: Any) -> Callable[..., Any]:
    """Give what `apply` of an autograd function ends in, without its look for transforms."""
    apply: Callable[..., Any] = super(torch.autograd.Function, function).apply
    return apply


def name_nodes(function: Any, name: str) -> None:
    """Say what the nodes of an autograd function are called, which `grad_fn` shows."""
    _look_up(function, "_backward_cls").__name__ = name


def is_fake(tensor: object) -> bool:
    """Say whether a tensor, or what a wrapper holds, is one that torch.compile traces with."""
    return _traced_type(tensor) in ("FakeTensor", "FunctionalTensor")


def is_functional(tensor: object) -> bool:
    """Say whether torch.compile finds out with a tensor, or what it holds, what is a view."""
    return _traced_type(tensor) == "FunctionalTensor"


def _traced_type(tensor: object) -> str | None:
    while hasattr(type(tensor), "inner_tensors"):
        tensor = getattr(tensor, type(tensor).inner_tensors[0], None)  # type: ignore[attr-defined]
    cls = type(tensor)
    return cls.__name__ if cls.__module__.startswith("torch._subclasses") else None


# ── torch.compile ───────────────────────────────────────────────────────────────────────────────

_set_strategy: Callable[[CodeType, Any], None] = _look_up(_eval_frame, "set_code_exec_strategy")
_skip = _look_up(_look_up(_eval_frame, "_FrameAction"), "SKIP")
_skip_all = _look_up(_eval_frame, "_FrameExecStrategy")(_skip, _skip)


def skip_in_dynamo(code: CodeType) -> None:
    """Tell torch.compile to run this code as it is, and everything that it calls."""
    _set_strategy(code, _skip_all)


def as_plain_tangent(plain: torch.Tensor) -> torch.Tensor:
    """Give a tensor that torch.compile takes for what a wrapper's gradient is like.

    It takes the example of a wrapper apart, also where that is none any more once it is detached
    and contiguous; so the plain one says that it has no parts.
    """
    return plain if hasattr(plain, "__tensor_flatten__") else say_no_parts(plain.detach())


def say_no_parts(plain: Any) -> torch.Tensor:
    """Let a plain tensor say that it has no parts, where torch.compile takes wrappers apart."""
    plain.__tensor_flatten__ = lambda: ([], None)
    return plain  # type: ignore[no-any-return]
