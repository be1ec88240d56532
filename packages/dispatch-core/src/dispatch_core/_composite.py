"""Let composite operators arrive at handlers whole, instead of in parts.

Torch takes a composite operator apart before it asks Python, so that autograd sees the parts.
A kernel for the key PythonTLSSnapshot comes earlier. Only calls that are on their way to Python
carry that key: those with a subclass among the arguments, or inside a mode. The kernels are
counted and removed with their last user; in other threads they go on to the parts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

from dispatch_core import _torch_private as private
from dispatch_core._kept import is_kept, kept_scopes
from dispatch_core._registry import handle_of
from dispatch_core._scopes import Scope
from dispatch_core._whole_call import WholeCall
from dispatch_core._whole_view import OnlyPartsError

__all__ = ["is_kept", "keep_composite", "kernel_for_classes", "kernels_held", "stand_behind"]

_lock = threading.RLock()
_kernels: dict[Any, list[Any]] = {}  # overload: how many users, the library that holds the kernel
_carrier: list[Any] = []  # how many users, the library, the operator
_pending = threading.local()


def keep_composite(*ops: Any) -> Scope:
    """Let the named composite operators arrive whole at modes and subclasses.

    Takes overloads, packets (all their overloads), handles and names; an operator that is not
    composite arrives whole anyway. Where gradients are needed the operator becomes one autograd
    node. Its backward runs the parts on the saved arguments (so a handler sees them then, and
    `detach` or `view_as` of the arguments; of one that is written to a `clone`, before), also for
    `create_graph`, under the autocast of the call; what it draws from a random generator is drawn
    again. Of arguments whose values the gradient does not need it keeps the shape alone, and so
    they may be written before; that is known of aten's operators, not of those of libraries.
    Results that share memory with an argument are the views that torch itself would have made,
    with torch's own nodes, so they can be written to as ever. Under vmap, torch.func.grad,
    forward-mode differentiation and torch.jit.trace the parts arrive all the same; so they do of
    a write that autograd refuses, and where torch.compile traces the gradient of random numbers.

    Only the entering thread is affected, and those it carries along by `propagate_modes`. It
    nests, and leaves torch as it was. Also a decorator.

    Raises: UnknownOperatorError for a name that is none.
    """
    overloads: list[Any] = []
    for op in ops:
        packet = getattr(op, "torch_packet", op)
        if isinstance(packet, private.OP_OVERLOAD_PACKET):
            overloads += private.dispatched_overloads(packet)
        else:
            overloads.append(handle_of(op).torch_op)
    composite = (
        op
        for op in overloads
        if isinstance(op, private.OP_OVERLOAD) and private.composite_kernel(op) is not None
    )
    return _Keep(frozenset(composite))


class _Keep(Scope):
    """Hold kernels for some operators while it is entered, once for each time."""

    def __init__(self, ops: frozenset[Any]) -> None:
        self._ops = ops

    @private.skip_in_dynamo
    def __enter__(self) -> None:
        _add_kernels(self._ops)
        kept_scopes.set((*kept_scopes.get(), (self, self._ops)))

    @private.skip_in_dynamo
    def __exit__(self, *exc_info: object) -> None:
        scopes = list(kept_scopes.get())
        for index in range(len(scopes) - 1, -1, -1):  # contexts need not close in order
            if scopes[index][0] is self:
                del scopes[index]
                break
        kept_scopes.set(tuple(scopes))
        _remove_kernels(self._ops)


# ── kernels ─────────────────────────────────────────────────────────────────────────────────────


def _add_kernels(ops: frozenset[Any]) -> None:
    added: list[Any] = []
    with _lock:
        try:
            for op in ops:
                if op not in _kernels:
                    library = torch.library.Library(op.namespace, "IMPL")
                    library.impl(op, _kernel(op), "PythonTLSSnapshot", with_keyset=True)
                    _kernels[op] = [0, library]
                _kernels[op][0] += 1
                added.append(op)
            if ops:
                _add_carrier()
        except BaseException:
            _drop(added)
            raise


@contextmanager
def kernels_held(ops: frozenset[Any]) -> Iterator[None]:
    """Have the kernels for some operators, whether or not their `keep_composite` is still open."""
    _add_kernels(ops)
    try:
        yield
    finally:
        _remove_kernels(ops)


def _remove_kernels(ops: frozenset[Any]) -> None:
    with _lock:
        _drop(ops)
        if ops:
            _remove_carrier()


def _drop(ops: Any) -> None:
    for op in ops:
        held = _kernels[op]
        held[0] -= 1
        if not held[0]:
            del _kernels[op]
            held[1]._destroy()


_behind: dict[Any, Callable[..., Any]] = {}


def stand_behind(op: Any, kernel: Callable[..., Any]) -> None:
    """Give an operator a kernel for PythonTLSSnapshot, for where it is not kept; for good.

    Torch has one place for kernels of Python for an operator and a key, so this one is called by
    that of `keep_composite`.
    """
    with _lock:
        _behind[op] = kernel
        _add_kernels(frozenset([op]))


def _as_if_not_kept(op: Any, keys: Any, args: Any, kwargs: Any) -> Any:
    kernel = _behind.get(op)
    if kernel is not None:
        return kernel(keys, *args, **kwargs)
    return _with_snapshot(lambda: private.call_without_snapshot(op, keys, args, kwargs))


def _kernel(op: Any) -> Callable[..., Any]:
    """Make the kernel that decides, call by call, between whole and parts."""
    stops = _stops(op)

    def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
        if not private.are_keys(keys):
            # Somebody else's kernel is meant, and keeps a place in torch with ours, which is gone.
            return private.call_past_snapshot(op, (keys, *args), kwargs)
        if not is_kept(op) or private.forward_gradients_are_on() or stops(keys):
            return _as_if_not_kept(op, keys, args, kwargs)
        call = WholeCall(op, args, kwargs)
        if call.needs_parts:
            return _as_if_not_kept(op, keys, args, kwargs)
        try:
            return call.run(_hand_to_python)
        except OnlyPartsError:
            return _as_if_not_kept(op, keys, args, kwargs)

    kernel.__name__ = kernel.__qualname__ = f"keep_composite[{op.name()}]"
    private.skip_in_dynamo(kernel)
    return kernel


def _stops(op: Any) -> Callable[[Any], bool]:
    """Make what says whether others, which know only parts, or call again, answer a call first."""
    autocast = [
        name
        for name in ("AutocastCPU", "AutocastCUDA", "AutocastXPU", "AutocastMPS")
        if private.has_kernel(op.name(), name)
    ]

    aliases = [argument.alias_info for argument in op._schema.arguments]
    views = any(alias is not None and not alias.is_write for alias in aliases)

    def stops(keys: Any) -> bool:
        return (
            private.is_functorch_call(keys)
            or private.in_functorch_transform()  # of which an argument need not be part
            or (not views and private.resolves_bits_first(keys))
            or private.jit_is_tracing()  # which can write down no node of ours
            or any(private.key_is_set(keys, name) for name in autocast)  # which calls again
        )

    return stops


def kernel_for_classes(
    op: Any, key: Any, is_wanted: Callable[[Any, Any], bool], finish: Callable[[Any], Any]
) -> Callable[..., Any]:
    """Make a kernel that hands an operator whole to the classes that want it so.

    It is for a dispatch key that comes before PythonTLSSnapshot, and that their tensors carry.
    `is_wanted` looks at the call's args and kwargs, `finish` at what comes of it, when autograd
    knows it. The parts arrive all the same where they do under `keep_composite`.
    """
    stops = _stops(op)
    with _lock:
        _add_carrier()

    def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
        if not (is_kept(op) or stops(keys)) and is_wanted(args, kwargs):
            call = WholeCall(op, args, kwargs)
            if not (call.needs_parts or call.has_tangents()):
                with suppress(OnlyPartsError):
                    return finish(call.run(_hand_to_python))
        return private.call_below(key, op, keys, args, kwargs)

    kernel.__name__ = kernel.__qualname__ = f"whole[{op.name()}]"
    private.skip_in_dynamo(kernel)
    return kernel


def _hand_to_python(op: Any, args: Any, kwargs: Any) -> Any:
    return _with_snapshot(lambda: private.call_python_handlers(op, args, kwargs))


# ── the thread-local state ──────────────────────────────────────────────────────────────────────
# Our kernel stands where torch would have saved the thread-local state that handlers restore. So
# an operator of our own goes through torch's kernel for that key, and calls back from inside.


def _add_carrier() -> None:
    if not _carrier:
        library = torch.library.Library("dispatch_core", "FRAGMENT")
        library.define("_with_snapshot() -> ()")
        library.impl("_with_snapshot", _run_pending, "CPU")
        _carrier[:] = [0, library, torch.ops.dispatch_core._with_snapshot.default]
    _carrier[0] += 1


def _remove_carrier() -> None:
    _carrier[0] -= 1
    if not _carrier[0]:
        library = _carrier[1]
        _carrier.clear()
        library._destroy()


def _run_pending() -> None:
    slot = _pending.slots[-1]
    slot[1] = slot[0]()


def _with_snapshot(thunk: Callable[[], Any]) -> Any:
    slots = _pending.__dict__.setdefault("slots", [])
    slot = [thunk, None]
    slots.append(slot)
    try:
        _carrier[2].redispatch(private.SNAPSHOT_KEYS)
    finally:
        slots.remove(slot)
    return slot[1]
