"""Name every private part of torch that dispatch_core uses, and check that it is there.

torch promises nothing about these names. They are looked up once, at import, so that a torch
which lacks one fails with one clear sentence instead of somewhere inside a call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch._C
import torch._C._dynamo.eval_frame as _eval_frame
import torch._ops
from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

__all__ = [
    "CUSTOM_OPERATOR",
    "HIGHER_ORDER_DISPATCH",
    "HIGHER_ORDER_OPERATOR",
    "OP_NAMESPACE",
    "OP_OVERLOAD",
    "OP_OVERLOAD_PACKET",
    "SCRIPT_METHOD_OVERLOAD",
    "TorchDispatchMode",
    "all_operator_names",
    "are_keys",
    "as_in_parts",
    "call_below",
    "call_past_snapshot",
    "call_python_handlers",
    "call_without_snapshot",
    "composite_kernel",
    "composite_kind",
    "constant_in_dynamo",
    "data_pointer",
    "disable_dispatch",
    "disable_python_dispatcher",
    "disable_torch_function",
    "disabled_torch_dispatch",
    "dispatch_keys",
    "dispatched_overloads",
    "example_of",
    "fast_call",
    "forward_gradients_are_on",
    "has_kernel",
    "has_python_key",
    "has_tangent",
    "higher_order_arguments",
    "higher_order_operators",
    "higher_order_rules",
    "in_functorch_transform",
    "increment_version",
    "innermost_mode",
    "is_alias_of",
    "is_functorch_call",
    "is_made_since",
    "is_traced",
    "jit_is_tracing",
    "key_is_set",
    "live_defaults",
    "live_overload_names",
    "live_schema",
    "may_be_written_through",
    "may_set_bits",
    "mode_flags",
    "mode_kind",
    "mode_stack",
    "mode_stack_size",
    "nodes_made",
    "numbers_as_tensors",
    "overload_name",
    "overload_of",
    "packet_name",
    "pop_mode",
    "push_mode",
    "resolves_bits_first",
    "return_types",
    "saved_tensors_are_told",
    "script_namespaces",
    "set_conjugate_bit",
    "set_higher_order_rules",
    "set_mode_flags",
    "set_negative_bit",
    "set_version",
    "sets_bits",
    "skip_in_dynamo",
    "state_of_caller",
    "telling_saved_tensors",
]


F = TypeVar("F", bound=Callable[..., Any])


def look_up(owner: object, name: str, package: str = "dispatch_core") -> Any:
    """Find a private name of torch that a package needs.

    Raises: ImportError, in one clear sentence, if the installed torch does not have it.
    """
    try:
        return getattr(owner, name)
    except AttributeError:
        where = getattr(owner, "__name__", repr(owner))
        raise ImportError(
            f"{package} needs {where}.{name}, which torch {torch.__version__} does not have. "
            f"Install a torch that this version of {package} supports (2.13 or later), "
            f"or a newer {package}."
        ) from None


_get_schema: Callable[[str, str], object] = look_up(torch._C, "_get_schema")
_schemas_of: Callable[[str], list[Any]] = look_up(torch._C, "_jit_get_schemas_for_operator")
_all_schemas: Callable[[], list[Any]] = look_up(torch._C, "_jit_get_all_schemas")
_all_names: Callable[[], list[str]] = look_up(torch._C, "_dispatch_get_all_op_names")
_has_kernel: Callable[[str, str], bool] = look_up(torch._C, "_dispatch_has_kernel_for_dispatch_key")
_is_dispatched: Callable[[str], bool] = look_up(torch._C, "_dispatch_has_kernel")
_higher_order: dict[str, HigherOrderOperator] = look_up(torch._ops, "_higher_order_ops")

numbers_as_tensors: Callable[[str], bool] = look_up(torch._C, "_should_allow_numbers_as_tensors")
"""Say whether a base name ('add') takes Python numbers where its schema says Tensor."""

OP_NAMESPACE: type[Any] = look_up(torch._ops, "_OpNamespace")
OP_OVERLOAD: type[OpOverload[..., Any]] = look_up(torch._ops, "OpOverload")
OP_OVERLOAD_PACKET: type[OpOverloadPacket[..., Any]] = look_up(torch._ops, "OpOverloadPacket")
HIGHER_ORDER_OPERATOR: type[HigherOrderOperator] = look_up(torch._ops, "HigherOrderOperator")
SCRIPT_METHOD_OVERLOAD: type[OpOverload[..., Any]] = look_up(torch._ops, "TorchBindOpOverload")
CUSTOM_OPERATOR: type[Any] = look_up(torch.library, "CustomOpDef")
"""What torch.library.custom_op makes: it has one overload."""


def live_schema(base: str, overload: str) -> str | None:
    """Give the text of the schema that the installed torch has, None where it has none.

    `overload` is '' for the default overload. No OpOverload is made.
    """
    try:
        return str(_get_schema(base, overload))
    except RuntimeError:
        return None


def live_defaults(base: str, overload: str) -> dict[str, Any]:
    """Give the defaults that torch itself holds, by argument; none of what it does not know."""
    try:
        schema: Any = _get_schema(base, overload)
    except RuntimeError:
        return {}
    return {
        argument.name: argument.default_value
        for argument in schema.arguments
        if argument.has_default_value()
    }


def live_overload_names(base: str) -> tuple[str, ...]:
    """List the overloads ('' for the default one) that torch has of a name like 'aten::addmv'."""
    return tuple(schema.overload_name for schema in _schemas_of(base))


def all_operator_names() -> list[str]:
    """List the qualified names of all operators that the dispatcher knows; about 3 ms."""
    return _all_names()


def script_namespaces() -> set[str]:
    """List the namespaces of all that TorchScript knows; about 20 ms."""
    return {schema.name.partition("::")[0] for schema in _all_schemas()}


def has_kernel(qualified_name: str, key: str) -> bool:
    """Say whether an operator has a kernel for a dispatch key, given by name.

    The dispatcher does not know all that arrives at handlers: for the device of a class that
    answers for it, torch calls prim::device, which only TorchScript knows.
    """
    try:
        return _has_kernel(qualified_name, key)
    except RuntimeError:
        return False


def higher_order_operators() -> dict[str, HigherOrderOperator]:
    """Give torch's own table of higher-order operators, by name."""
    return _higher_order


HIGHER_ORDER_DISPATCH: Any = look_up(HIGHER_ORDER_OPERATOR, "dispatch").__code__
"""The code in which torch looks for who answers a higher-order operator."""


def higher_order_rules(op: HigherOrderOperator) -> dict[Any, Callable[..., Any]]:
    """Give what answers a higher-order operator, by the class of a mode or a tensor."""
    rules: dict[Any, Callable[..., Any]] = look_up(op, "python_key_table")
    return rules


def set_higher_order_rules(op: HigherOrderOperator, rules: dict[Any, Callable[..., Any]]) -> None:
    """Have torch look in another dict for what answers a higher-order operator."""
    op.python_key_table = rules


def higher_order_arguments(op: HigherOrderOperator, args: Any, kwargs: Any) -> Any:
    """Give the arguments whose classes torch would ask for an answer."""
    return look_up(op, "_get_overloaded_args")(args, kwargs)


def packet_name(packet: OpOverloadPacket[..., Any]) -> str:
    """Give the name of a packet as 'aten::addmv'."""
    name: str = look_up(packet, "_qualified_op_name")
    return name


def overload_name(op: OpOverload[..., Any]) -> str:
    """Give the qualified name of an overload, 'aten::addmv.out'."""
    name: str = look_up(op, "_name")
    return name


def return_types(op: Any) -> list[str] | None:
    """Give the types of an overload's results ('Tensor[]'); None where it has no schema."""
    schema: Any = getattr(op, "_schema", None)
    return None if schema is None else [value.real_type.str() for value in schema.returns]


def overload_of(custom: Any) -> OpOverload[..., Any]:
    """Give the overload of an operator made by torch.library.custom_op."""
    op: OpOverload[..., Any] = look_up(custom, "_opoverload")
    return op


def fast_call(op: OpOverload[..., Any]) -> Callable[..., Any]:
    """Give what `OpOverload.__call__` ends in, without its Python frame.

    Operators with script objects among their arguments choose their way in Python, per call:
    for them it is the overload itself.
    """
    if isinstance(op, SCRIPT_METHOD_OVERLOAD):
        return op
    call: Callable[..., Any] = getattr(op, "_op", op)
    return call


# ── modes and handlers ──────────────────────────────────────────────────────────────────────────

_key: Any = look_up(torch._C, "DispatchKey")
_key_set: Any = look_up(torch._C, "DispatchKeySet")

push_mode: Callable[[TorchDispatchMode], None] = look_up(torch._C, "_push_on_torch_dispatch_stack")
mode_stack_size: Callable[[], int] = look_up(torch._C, "_len_torch_dispatch_stack")
_pop_mode: Callable[[Any], TorchDispatchMode] = look_up(torch._C, "_pop_torch_dispatch_stack")
_mode_at: Callable[[int], TorchDispatchMode] = look_up(torch._C, "_get_dispatch_stack_at")

disable_dispatch: Callable[[], AbstractContextManager[None]] = look_up(
    torch._C, "_DisableTorchDispatch"
)
"""Turn modes and subclass handlers off, without looking at what the operators are given."""

disable_torch_function: Callable[[], AbstractContextManager[None]] = look_up(
    torch._C, "DisableTorchFunctionSubclass"
)
disabled_torch_dispatch: Any = look_up(torch._C, "_disabled_torch_dispatch_impl")
"""The `__torch_dispatch__` of classes that have none."""

_restore_caller: Callable[[], AbstractContextManager[None]] = look_up(
    torch._C, "_RestorePythonTLSSnapshot"
)
_is_excluded: Callable[[Any], bool] = look_up(torch._C, "_dispatch_tls_is_dispatch_key_excluded")
_any_autocast: Callable[[], bool] = look_up(torch._C, "_is_any_autocast_enabled")
_autocast_keys: Any = _key_set(look_up(_key, "AutocastCPU"))
for _name in _key.__members__:
    if _name.startswith("Autocast"):
        _autocast_keys = _autocast_keys.add(getattr(_key, _name))
_included: Callable[[], Any] = look_up(torch._C, "_dispatch_tls_local_include_set")
_excluded: Callable[[], Any] = look_up(torch._C, "_dispatch_tls_local_exclude_set")
_force_keys: Callable[[Any, Any], AbstractContextManager[None]] = look_up(
    torch._C, "_ForceDispatchKeyGuard"
)


def state_of_caller() -> AbstractContextManager[None]:
    """Put the thread-local state back to what it was where the operator was called.

    While a handler runs torch excludes autograd, version counting, conjugate and negative bits.
    What was restored says, too, that modes are on; where they have been taken off since, because
    one of them called the operator, a factory without a tensor would look for them in vain.
    """
    if not _is_excluded(_key.PythonTLSSnapshot):
        return nullcontext()
    return _restored_without_modes() if mode_stack_size() == 0 else _restore_caller()


@contextmanager
def _restored_without_modes() -> Iterator[None]:
    with _restore_caller():
        include = _included()
        if not include.has(_key.Python):
            yield
            return
        include = include.remove(_key.Python).remove(_key.PythonTLSSnapshot)
        with _force_keys(include, _excluded()):
            yield


def as_in_parts() -> AbstractContextManager[None]:
    """Let operators called in the handler of a composite operator do what its parts would do.

    They resolve conjugate and negative bits, which the parts may set themselves, and follow
    autocast where it was on for the call. Torch excludes the keys that do, because for the
    handler's own operator they have had their turn.
    """
    rest = _excluded().remove(_key.Conjugate).remove(_key.Negative)
    if _is_excluded(_key.PythonTLSSnapshot):
        with _restore_caller():
            if _any_autocast():
                rest = (rest - _autocast_keys) | (_excluded() & _autocast_keys)
    return _force_keys(_included(), rest)


_composite: dict[Any, str] = {}


def composite_kind(op: Any) -> str:
    """Say whether an operator runs others: 'implicit', 'explicit' (with its own gradient), ''."""
    found = _composite.get(op)
    if found is None:
        found = ""
        if isinstance(op, OP_OVERLOAD):
            if composite_kernel(op) is not None:
                found = "implicit"
            elif _is_explicit(op.name()):
                found = "explicit"
        _composite[op] = found
    return found


def _is_explicit(name: str) -> bool:
    if has_kernel(name, "CompositeExplicitAutograd"):
        return True
    # Structured operators have the other one beside a kernel for each device, which is what runs.
    other = has_kernel(name, "CompositeExplicitAutogradNonFunctional")
    return other and not has_kernel(name, "CPU")


def may_set_bits(kind: str, args: Sequence[Any]) -> bool:
    """Say whether the parts of an operator may set conjugate bits, in a call with these tensors."""
    return kind == "implicit" or any(
        _is_complex(value) for value in args if isinstance(value, torch.Tensor)
    )


def _is_complex(tensor: torch.Tensor) -> bool:
    if type(tensor) is torch.Tensor:
        return tensor.is_complex()
    with disable_torch_function():  # which may be the user's
        return tensor.is_complex()


def sets_bits(op: Any, args: Sequence[Any]) -> bool:
    """Say whether an operator may set conjugate bits inside itself, called with these."""
    kind = composite_kind(op)
    return bool(kind) and may_set_bits(kind, args)


dispatch_keys: Callable[[torch.Tensor], Any] = look_up(torch._C, "_dispatch_keys")
increment_version: Callable[[Sequence[torch.Tensor]], None] = look_up(
    torch._C, "_increment_version"
)
is_alias_of: Callable[[torch.Tensor, torch.Tensor], bool] = look_up(torch._C, "_is_alias_of")
set_conjugate_bit: Callable[[torch.Tensor, bool], None] = look_up(torch._C, "_set_conj")
set_negative_bit: Callable[[torch.Tensor, bool], None] = look_up(torch._C, "_set_neg")
_autograd: Any = look_up(torch._C, "_autograd")
_set_versions: Callable[[Sequence[torch.Tensor], Sequence[int]], None] = look_up(
    _autograd, "_unsafe_set_version_counter"
)
_creation_meta: Callable[[torch.Tensor], Any] = look_up(_autograd, "_get_creation_meta")
_default_creation: Any = look_up(look_up(_autograd, "CreationMeta"), "DEFAULT")


def set_version(tensor: torch.Tensor, version: int) -> None:
    """Set a tensor's version counter."""
    _set_versions((tensor,), (version,))


def may_be_written_through(view: torch.Tensor) -> bool:
    """Say whether autograd follows a write through a view to what it is a view of."""
    followed: bool = _creation_meta(view) == _default_creation
    return followed


_data_ptr: Callable[[torch.Tensor], int] = look_up(look_up(torch._C, "TensorBase"), "data_ptr")
_keys_after: Callable[[Any], Any] = look_up(torch._C, "_dispatch_keyset_full_after")


def pop_mode(mode: TorchDispatchMode | None = None) -> TorchDispatchMode:
    """Take the innermost mode off the stack; for one of torch's own kinds, the one of its kind."""
    return _pop_mode(getattr(mode, "_mode_key", None))


def mode_kind(mode: TorchDispatchMode) -> Any:
    """Give which of torch's own kinds a mode is, of which one may be open; None for the others."""
    return getattr(mode, "_mode_key", None)


_modes: Any = look_up(torch.utils, "_python_dispatch")
_MODE_FLAGS = tuple(
    name
    for name in (
        "_is_in_torch_dispatch_mode",
        "_is_in_non_infra_torch_dispatch_mode",
        "_is_in_any_mode_without_ignore_compile_internals",
    )
    if hasattr(_modes, name)
)


def mode_flags() -> tuple[bool, ...]:
    """Give what torch keeps, for all threads together, of whether modes are open."""
    return tuple([getattr(_modes, name) for name in _MODE_FLAGS])


def set_mode_flags(flags: Sequence[bool]) -> None:
    """Put these flags back."""
    for name, flag in zip(_MODE_FLAGS, flags, strict=True):
        setattr(_modes, name, flag)
    tell = getattr(_modes, "set_is_in_mode_without_ignore_compile_internals", None)
    if tell is not None and len(flags) == len(_MODE_FLAGS) == 3:
        tell(flags[2])


def innermost_mode() -> TorchDispatchMode | None:
    """Give the mode that the next operator goes to."""
    size = mode_stack_size()
    return _mode_at(size - 1) if size else None


def mode_stack() -> list[TorchDispatchMode]:
    """List the modes of this thread, the innermost last."""
    return [_mode_at(index) for index in range(mode_stack_size())]


def data_pointer(tensor: torch.Tensor) -> int:
    """Give where a tensor's data would be if its storage began at its memory: 0 for none."""
    with disable_torch_function():
        return _data_ptr(tensor)


def has_python_key(tensor: torch.Tensor) -> bool:
    """Say whether operators on this tensor go to a handler in Python."""
    found: bool = dispatch_keys(tensor).has(_key.Python)
    return found


def key_is_set(keys: Any, name: str) -> bool:
    """Say whether a set of dispatch keys holds the one of that name."""
    found: bool = keys.has(getattr(_key, name))
    return found


def composite_kernel(op: OpOverload[..., Any]) -> Callable[..., Any] | None:
    """Give what takes a composite operator apart, as torch does without handlers; else None."""
    key = _key.CompositeImplicitAutograd
    if not has_kernel(op.name(), "CompositeImplicitAutograd"):
        # A decomposition that was registered from Python only.
        return op.decompose if key in op.py_kernels else None
    run = look_up(op, "_op_dk")

    def take_apart(*args: Any, **kwargs: Any) -> Any:
        return run(key, *args, **kwargs)

    return take_apart


def dispatched_overloads(packet: OpOverloadPacket[..., Any]) -> list[OpOverload[..., Any]]:
    """List the overloads of a packet that the dispatcher has; TorchScript alone has some more."""
    found = []
    for schema in _schemas_of(packet_name(packet)):
        name = schema.overload_name
        if _is_dispatched(f"{schema.name}.{name}" if name else schema.name):
            found.append(getattr(packet, name or "default"))
    return found


def call_python_handlers(op: OpOverload[..., Any], args: Any, kwargs: Any) -> Any:
    """Hand a call to the modes and subclasses, whole, whatever kernels the operator has.

    Must run where torch has saved its thread-local state, see `SNAPSHOT_KEYS`.
    """
    return look_up(op, "_op_dk")(_key.Python, *args, **kwargs)


def call_without_snapshot(op: OpOverload[..., Any], keys: Any, args: Any, kwargs: Any) -> Any:
    """Go on with a call after the place where torch saves its thread-local state."""
    rest = keys & _keys_after(_key.PythonTLSSnapshot)
    if not _has_number_for_tensor(op, args):
        return op.redispatch(rest, *args, **kwargs)
    # Redispatching takes no number for a tensor; calling the kernel of a key does.
    if rest.highestPriorityTypeId() == _key.Python:
        return call_python_handlers(op, args, kwargs)
    parts = composite_kernel(op)
    return parts(*args, **kwargs) if parts is not None else op.redispatch(rest, *args, **kwargs)


def call_below(key: Any, op: OpOverload[..., Any], keys: Any, args: Any, kwargs: Any) -> Any:
    """Go on with a call after a dispatch key, from its kernel."""
    if not _has_number_for_tensor(op, args):
        return op.redispatch(keys & _keys_after(key), *args, **kwargs)
    with _without_keys(_key_set(key)):
        return op(*args, **kwargs)


def are_keys(value: object) -> bool:
    """Say whether a value is a set of dispatch keys, as a kernel may be handed before all else."""
    return isinstance(value, type(SNAPSHOT_KEYS))


def call_past_snapshot(op: OpOverload[..., Any], args: Any, kwargs: Any) -> Any:
    """Call an operator as if nobody stood where torch saves its thread-local state."""
    with _without_keys(_keys_of_snapshot):
        return op(*args, **kwargs)


def _has_number_for_tensor(op: OpOverload[..., Any], args: Any) -> bool:
    return any(
        isinstance(value, int | float | complex) and str(argument.type) == "Tensor"
        for argument, value in zip(op._schema.arguments, args, strict=False)
    )


_keys_of_snapshot: Any = _key_set(look_up(_key, "PythonTLSSnapshot"))
_without_keys: Any = look_up(torch._C, "_ExcludeDispatchKeyGuard")
SNAPSHOT_KEYS: Any = _key_set(look_up(_key, "PythonTLSSnapshot")).add(look_up(_key, "CPU"))
"""Keys that make an operator save the thread-local state and then run its CPU kernel."""


def forward_gradients_are_on() -> bool:
    """Say whether a level of forward-mode differentiation is open."""
    from torch.autograd import forward_ad

    level: int = look_up(forward_ad, "_current_level")
    return level >= 0


def has_tangent(tensor: torch.Tensor) -> bool:
    """Say whether a tensor has a tangent, where a level of forward-mode differentiation is open."""
    from torch.autograd import forward_ad

    return forward_ad.unpack_dual(tensor).tangent is not None


jit_is_tracing: Callable[[], bool] = look_up(torch._C, "_is_tracing")
"""Say whether torch.jit.trace is writing down what runs."""


_transform: Callable[[], object] = look_up(
    look_up(torch._C, "_functorch"), "peek_interpreter_stack"
)


def in_functorch_transform() -> bool:
    """Say whether vmap, torch.func.grad or another transform of torch.func is on."""
    return _transform() is not None


_set_hooks_tracing: Callable[[bool], bool] = look_up(_autograd, "_saved_tensors_hooks_set_tracing")
_hooks_are_enabled: Callable[[], bool] = look_up(_autograd, "_saved_tensors_hooks_is_enabled")


def saved_tensors_are_told() -> bool:
    """Say whether hooks for what autograd saves may be set."""
    return _hooks_are_enabled()


@contextmanager
def telling_saved_tensors() -> Iterator[None]:
    """Call the hooks for what autograd saves also while torch.compile traces."""
    before = _set_hooks_tracing(False)
    try:
        yield
    finally:
        _set_hooks_tracing(before)


disable_python_dispatcher: Callable[[], AbstractContextManager[None]] = look_up(
    torch._C, "_DisablePythonDispatcher"
)
"""Leave torch's decompositions in Python out, which torch.compile has in."""

_get_mode: Callable[[Any], object] = look_up(torch._C, "_get_dispatch_mode")
_proxy_mode: Any = look_up(look_up(torch._C, "_TorchDispatchModeKey"), "PROXY")


def is_traced() -> bool:
    """Say whether make_fx, as part of torch.compile too, writes down what runs."""
    return _get_mode(_proxy_mode) is not None


_next_node: Callable[[], int] = look_up(torch.autograd, "_get_sequence_nr")


def nodes_made() -> int:
    """Count the nodes of autograd that this thread has made, by which later ones are known."""
    return _next_node()


def is_made_since(node: Any, count: int) -> bool:
    """Say whether a node of autograd is later than a count of nodes."""
    number: int = node._sequence_nr()
    return number >= count


def example_of(number: Any) -> Any:
    """Give the number that a symbolic one stood for when it was traced, or None."""
    try:
        return number.node.hint
    except (AttributeError, RuntimeError):
        return None


def is_functorch_call(keys: Any) -> bool:
    """Say whether vmap, torch.func.grad or functionalization has a part in a call."""
    return any(
        keys.has(getattr(_key, name))
        for name in ("FuncTorchBatched", "FuncTorchGradWrapper", "Functionalize")
    )


def resolves_bits_first(keys: Any) -> bool:
    """Say whether a composite operator is given copies, for conjugate and negative arguments.

    Without autograd, as in inference mode, these keys have their turn before its parts; they
    leave an operator alone whose schema says that it views.
    """
    return (keys.has(_key.Negative) or keys.has(_key.Conjugate)) and not keys.has(
        _key.AutogradFunctionality
    )


def skip_in_dynamo(function: F) -> F:
    """Tell torch.compile to run this function as it is, and everything that it calls.

    As torch.compiler.disable does, but without importing Dynamo and without a frame of its own.
    """
    marked: Any = function
    skip = _eval_frame._FrameAction.SKIP
    _eval_frame.set_code_exec_strategy(marked.__code__, _eval_frame._FrameExecStrategy(skip, skip))
    marked._torchdynamo_disable = True
    marked._torchdynamo_disable_recursive = True
    marked._torchdynamo_disable_msg = "dispatch_core: modes and handlers are not compiled"
    return function


def constant_in_dynamo(function: F) -> F:
    """Tell torch.compile to call this function while it traces, and to take its result as it is.

    As torch.compiler.assume_constant_result does, but without importing Dynamo.
    """
    marked: Any = function
    marked._dynamo_marked_constant = True
    return function


for _name in ("set_code_exec_strategy", "_FrameAction", "_FrameExecStrategy"):
    look_up(_eval_frame, _name)
