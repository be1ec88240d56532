"""What a run may use and still be written down: everything here is understood, all else refused.

The lists name what gives the same for the same arguments, or what runs operators and nothing
besides, so that a mode sees all of it.
"""

from __future__ import annotations

import abc
import builtins
import collections
import collections.abc
import contextlib
import copy
import dataclasses
import enum
import functools
import operator
import sys
import types
import typing
from collections.abc import Iterable
from typing import Any

import torch

from guards._fetch import is_a
from guards._op_facts import facts
from guards._settings import READERS

__all__ = [
    "ASK_BY_NAME",
    "CODE_OF_CLASSES",
    "OF_DATACLASSES",
    "UNSEEN",
    "is_of_tensors",
    "is_pure_builtin",
    "is_understood",
    "is_understood_class",
    "reads_unseen",
    "torch_code_problem",
    "words",
]


def words(text: str) -> frozenset[str]:
    """Give the words of a text."""
    return frozenset(text.split())


# ── what code may ask of tensors ─────────────────────────────────────────────────────────────────

# Guards hold these fast.
_PROPERTIES = words(
    "H T device dtype imag is_cpu is_cuda is_ipu is_maia is_meta is_mkldnn is_mps is_mtia "
    "is_nested is_quantized is_sparse is_sparse_csr is_vulkan is_xla is_xpu itemsize layout mH mT "
    "name nbytes ndim real requires_grad shape volatile _has_symbolic_sizes_strides "
    "__annotations__ __class__ __doc__ __module__"
)
# These are made of operators, without being operators themselves.
_METHODS = words(
    "bfloat16 bool byte cdouble cfloat char cpu cuda dim_order double element_size float half int "
    "ipu long lu mtia ndimension nelement new_tensor norm short split to_sparse_coo type unflatten "
    "unique xpu __iter__ __len__ __abs__ __add__ __bool__ __contains__ __eq__ __floordiv__ "
    "__format__ __ge__ __getitem__ __gt__ __iadd__ __ifloordiv__ __imod__ __imul__ __init__ "
    "__invert__ __ipow__ __isub__ __itruediv__ __le__ __len__ __lt__ __matmul__ __mod__ __mul__ "
    "__ne__ __neg__ __pos__ __pow__ __radd__ __rand__ __rdiv__ __reversed__ __rfloordiv__ "
    "__rlshift__ __rmatmul__ __rmod__ __rmul__ __ror__ __rpow__ __rrshift__ __rsub__ __rtruediv__ "
    "__rxor__ __setitem__ __sub__ __truediv__ __new__ __float__ __int__ __complex__ __index__"
)
# These are gone from tensors, where they only say so, but not from torch.linalg.
_GONE = words("cholesky eig lstsq qr solve symeig")
# Operators that no mode sees, or that tell of a tensor more than its guard holds fast.
_OPERATORS_THAT_TELL_MORE = words(
    "as_strided as_strided_ data detach_ is_leaf is_pinned names output_nr pin_memory "
    "record_stream rename rename_ requires_grad_ resize_ resize_as_ retain_grad "
    "retains_grad set_ set_data storage_offset"
)


@functools.cache
def _operators() -> frozenset[str]:
    names = torch._C._dispatch_get_all_op_names()
    return frozenset(name[6:].partition(".")[0] for name in names if name.startswith("aten::"))


def _is_seen(member: str) -> bool:
    if member in _PROPERTIES or member in _METHODS or member in _GONE:
        return True
    private = member.startswith("_") and not member.startswith("__")
    return not private and member in _operators() and member not in _OPERATORS_THAT_TELL_MORE


# Members of tensors that no guard holds fast and no mode sees, and what reaches frames and memory.
UNSEEN = frozenset(name for name in dir(torch.Tensor) if not _is_seen(name)) | words(
    "__dict__ __weakref__ __cuda_array_interface__ __getstate__ f_locals f_globals f_back gi_frame "
    "cr_frame __setattr__ __delattr__ __getattribute__ __globals__ __closure__ __code__ "
    "__subclasses__ __base__ __bases__ __mro__ mro"
)
_UNSEEN_PROPERTIES = frozenset(
    name for name in UNSEEN if not callable(getattr(torch.Tensor, name, None))
)

# Of the composites of which `facts` says that they read values: their parts, which a mode sees,
# do the reading.
_READ_IN_PARTS = words(
    "argwhere coalesce corrcoef cov is_nonzero item narrow nonzero_numpy sparse_bsc_tensor "
    "sparse_bsr_tensor sparse_coo_tensor sparse_csc_tensor sparse_csr_tensor to_sparse "
    "to_sparse_bsc to_sparse_bsr to_sparse_csc to_sparse_csr where"
)


@functools.cache
def reads_unseen(name: str) -> bool:
    """Tell whether an operator of this name is a composite that itself reads memory."""
    if name in _READ_IN_PARTS or name not in _operators():
        return False
    overloads = torch._C._jit_get_operation(f"aten::{name}")[1] or []
    known = [facts(f"aten::{name}.{o}" if o else f"aten::{name}") for o in overloads]
    return any(f.composite == "implicit" and f.reads_data == "always" for f in known)


# ── functions of C ───────────────────────────────────────────────────────────────────────────────

_PURE_BUILTINS = frozenset(
    getattr(builtins, name)
    for name in words(
        "abs all any ascii bin callable chr divmod format hex isinstance issubclass iter len max "
        "min next oct ord pow repr round sorted sum __build_class__"
    )
)
_PURE_OPERATOR_CLASSES = (operator.itemgetter,)  # attrgetter and methodcaller look names up
_PURE_C_MODULES = words("math _operator itertools _functools _collections")
_OPERATOR_MODULES = words("torch._C._nn torch._C._linalg torch._C._fft torch._C._special")
_PLAIN_OWNERS = (
    str, bytes, int, float, complex, bool, list, tuple, dict, set, frozenset, slice, range,
    torch.Size, torch.dtype, torch.device, collections.deque, types.GeneratorType,
)  # fmt: skip
_FILL_IN = words("format format_map")  # a text may name attributes of what fills it
_STATE_READERS = frozenset(
    {
        torch.is_grad_enabled,
        torch.is_inference_mode_enabled,
        torch.is_autocast_enabled,  # around a call that is written down it is off
        torch.get_default_dtype,
        *READERS,
    }
)
# What torch's own Python code calls besides operators.
_OF_TORCH = words(
    "__enter__ __exit__ _accelerator_getAccelerator _are_functorch_transforms_active "
    "_get_deterministic_algorithms _get_operation_overload _get_privateuse1_backend_name "
    "_get_schema _get_tracing_state _has_torch_function _has_torch_function_unary "
    "_has_torch_function_variadic _is_autocast_available _is_torch_function_mode_enabled "
    "_is_tracing _jit_get_operation _len_torch_function_stack _push_on_torch_function_stack "
    "_pop_torch_function_stack _set_grad_enabled autocast_decrement_nesting "
    "autocast_increment_nesting clear_autocast_cache get_autocast_dtype is_autocast_cache_enabled "
    "is_autocast_enabled is_grad_enabled set_autocast_cache_enabled set_autocast_dtype "
    "set_autocast_enabled unwrap_if_dead __instancecheck__ __new__ "
    "_set_default_dtype _set_float32_matmul_precision"  # the watcher compares these settings
)
_BUILTINS_OF_TORCH = words("getattr hasattr setattr id")


# These look names up, which is seen where code says the names itself.
ASK_BY_NAME = (getattr, hasattr, setattr, delattr)


def is_pure_builtin(function: Any) -> bool:
    """Tell whether a function of the builtins gives the same for the same, and does nothing."""
    return function in _PURE_BUILTINS


def is_of_tensors(function: Any) -> bool:
    """Tell whether a function of C is a method of tensors, or one of torch's own namespace."""
    if getattr(torch._C._VariableFunctions, function.__name__, None) is function:
        return True
    return is_a(getattr(function, "__self__", None), torch.Tensor)


def is_understood(function: Any, *, from_torch: bool = False) -> bool:
    """Tell whether a function of C is pure, or runs operators that a mode sees, and only those."""
    name = function.__name__
    owner = getattr(function, "__self__", None)
    if type(function) in (types.MethodDescriptorType, types.WrapperDescriptorType):
        owner_class: Any = function.__objclass__
    elif is_a(owner, type):
        owner_class = owner
    else:
        owner_class = type(owner)
    if issubclass(owner_class, torch._C.TensorBase):
        return name not in UNSEEN and not reads_unseen(name)
    if issubclass(owner_class, _PLAIN_OWNERS):
        return name not in _FILL_IN or from_torch
    if function in _STATE_READERS:
        return True
    module = owner.__name__ if is_a(owner, types.ModuleType) else None
    if owner is None and getattr(torch._C._VariableFunctions, name, None) is function:
        return name not in _OPERATORS_THAT_TELL_MORE and not reads_unseen(name)
    if module in _OPERATOR_MODULES:
        return not reads_unseen(name)
    if module in _PURE_C_MODULES or (module == "builtins" and function in _PURE_BUILTINS):
        return True
    if not from_torch:
        return False
    if module == "builtins":
        return name in _BUILTINS_OF_TORCH
    return name in _OF_TORCH


def is_understood_class(cls: type) -> bool:
    """Tell whether a class that is no Python code only makes its instance, when it is called."""
    return cls.__module__ not in ("operator", "_operator") or cls in _PURE_OPERATOR_CLASSES


# ── Python code of enums and abstract classes ────────────────────────────────────────────────────


def _codes(found: Iterable[Any]) -> frozenset[types.CodeType]:
    plain = [getattr(f, "fget", None) or getattr(f, "__func__", f) for f in found]
    codes = [f.__code__ for f in plain if type(f) is types.FunctionType]
    inner = [part for code in codes for part in code.co_consts if type(part) is types.CodeType]
    return frozenset([*codes, *inner])


def _members(names_of: dict[Any, str]) -> Iterable[Any]:
    return (vars(cls).get(name) for cls, names in names_of.items() for name in names.split())


# What looks members of enums up, and tells their names and values: members are guarded.
_OF_ENUMS = {
    enum.EnumMeta: (
        "__bool__ __call__ __contains__ __getattr__ __getitem__ __iter__ __len__ __members__ "
        "__reversed__"
    ),
    enum.Enum: "__hash__ __new__ _missing_ name value",
    enum.Flag: (
        "__and__ __bool__ __contains__ __invert__ __iter__ __len__ __or__ __rand__ __ror__ "
        "__rxor__ __xor__ _create_pseudo_member_ _get_value _iter_member_ _iter_member_by_def_ "
        "_iter_member_by_value_ _missing_"
    ),
    enum.IntFlag: (
        "__and__ __invert__ __or__ __rand__ __ror__ __rxor__ __xor__ _create_pseudo_member_ "
        "_missing_"
    ),
    enum: "_decompose _high_bit _is_dunder _iter_bits_lsb _power_of_two bin bit_count",
    getattr(enum, "property", types.DynamicClassAttribute): "__get__",  # before Python 3.11
}
# What makes a context of a generator; the generator's own code is looked at by itself.
_OF_CONTEXTS = {
    contextlib._GeneratorContextManagerBase: "__init__ _recreate_cm",
    contextlib._GeneratorContextManager: "_recreate_cm __enter__ __exit__",
    contextlib.ContextDecorator: "_recreate_cm",
    contextlib._BaseExitStack: (
        "__init__ _create_cb_wrapper _create_exit_wrapper _push_cm_exit _push_exit_callback "
        "callback enter_context pop_all push"
    ),
    contextlib.ExitStack: "__enter__ __exit__ close",
}
# What tells whether an object is of an abstract class: a guard holds fast which are registered.
_OF_ABSTRACT_CLASSES = {
    abc.ABCMeta: "__instancecheck__ __subclasscheck__",
    **{getattr(collections.abc, name): "__subclasshook__" for name in collections.abc.__all__},
}
# What looks into objects of dataclasses: their fields are guarded where one of these is named.
OF_DATACLASSES = words("asdict astuple fields is_dataclass replace")
_COPYING = {
    dataclasses: (
        " ".join(OF_DATACLASSES) + " _asdict_inner _astuple_inner _is_dataclass_instance _replace"
    ),
    copy: (
        "copy deepcopy _deepcopy_atomic _deepcopy_dict _deepcopy_list _deepcopy_tuple _keep_alive"
    ),
    typing: "cast",
}
CODE_OF_CLASSES = _codes(
    [
        *_members(_OF_ENUMS),
        *_members(_OF_ABSTRACT_CLASSES),
        *_members(_OF_CONTEXTS),
        *_members(_COPYING),
        contextlib.contextmanager(iter),
        getattr(sys.modules.get("_collections_abc"), "_check_methods", None),
    ]
)


# ── Python code of torch ─────────────────────────────────────────────────────────────────────────

# Parts of torch whose Python code does nothing beyond running operators.
_TORCH_PARTS = (
    "nn/",
    "_tensor.py",
    "functional.py",
    "overrides.py",
    "_VF.py",
    "_utils.py",
    "__init__.py",
    "_linalg_utils.py",
    "_lowrank.py",
    "_refs/",
    "_prims_common/",
    "linalg/",
    "special/",
    "fft/",
    "backends/",
    "types.py",
    "amp/autocast_mode.py",
    "autograd/grad_mode.py",
    "utils/_contextlib.py",
    "utils/_device.py",
    "utils/backend_registration.py",
    "jit/_trace.py",
)
# What torch looks up about an operator when it is first called, or first dispatched to Python.
_LOOK_UP = (
    "_ops.py",
    "_jit_internal.py",
    "_library/",
    "jit/_builtins.py",
    "utils/_python_dispatch.py",
)
_NOT_THESE = (
    "_library/autograd.py",
    "_library/custom_ops.py",
    "nn/parallel/",
    "nn/modules/lazy.py",
    "nn/attention/",
)
# Of files that hold much else, these functions.
_ONLY_THESE = {
    "__init__.py": words(
        "__getattr__ _check _check_is_size _check_type _check_value _check_index _check_with "
        "_check_not_implemented _check_tensor_all _is_device_type "
        "are_deterministic_algorithms_enabled is_tensor is_storage typename "
        "sym_float sym_int sym_max sym_min sym_not sym_sum sym_ite "
        "sym_sqrt set_default_dtype set_float32_matmul_precision get_float32_matmul_precision "
        "is_deterministic_algorithms_warn_only_enabled set_default_device"
    ),
    "backends/": words("__get__ get_fastpath_enabled __getattr__ is_available"),
    "nn/utils/": words(
        "parameters_to_vector pad_sequence get_parametrized forward _reshape_weight_to_matrix "
        "_power_method"
    ),
    "jit/_trace.py": words("is_tracing"),
}
_MAY_USE = {"nn/modules/module.py": words("_backward_hooks __dict__ __setattr__ __delattr__")}


def is_look_up(path: str) -> bool:
    """Tell whether a file of torch only finds operators."""
    return path.startswith(_LOOK_UP) and not path.startswith(_NOT_THESE)


def torch_code_problem(code: types.CodeType, path: str) -> str:
    """Say why Python code of torch may do more than run operators; nothing where it may not."""
    if is_look_up(path):
        return ""
    if not path.startswith(_TORCH_PARTS) or path.startswith(_NOT_THESE):
        return f"it runs {code.co_name} of torch/{path}"
    if path == "nn/utils/rnn.py" and "pack" in code.co_name:
        return "it packs sequences by lengths whose values are read: pack them before the call"
    for start, functions in _ONLY_THESE.items():
        other = code.co_name not in functions and not code.co_name.startswith("<")
        if other and path.startswith(start):
            return f"it runs {code.co_name} of torch/{path}"
    unseen = _UNSEEN_PROPERTIES.intersection(code.co_names) - _MAY_USE.get(path, frozenset())
    if unseen:
        return f"it runs {code.co_name} of torch/{path}, which uses .{min(unseen)}"
    return ""
