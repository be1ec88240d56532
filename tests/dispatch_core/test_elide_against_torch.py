"""What torch hands to a handler is what `elide(bind(...))` gives: asked of torch, for every op."""

from __future__ import annotations

import collections
import enum
import random
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from dispatch_core import Handle, _registry, handle_of
from dispatch_core._convert import Converter, converter
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._python_dispatch import TorchDispatchMode

CALLS = 30  # that torch accepts, for each overload
LONG_CALLS = 600
ATTEMPTS = 12  # calls tried for each one that has to be accepted

NAMES = sorted(torch._C._dispatch_get_all_op_names())

# Overloads that no call can reach in this process.
UNCALLABLE: dict[str, str] = {
    **dict.fromkeys(
        [
            "c10d::_reduce_scatter_base_",
            "c10d::allreduce_",
            "c10d::allreduce_coalesced_",
            "c10d::reduce_",
            "c10d::reduce_scatter_",
            "c10d::reduce_scatter_tensor_coalesced_",
        ],
        "Python cannot make the script object of a ReduceOp",
    ),
    **dict.fromkeys(
        [
            "sparse::qlinear",
            "sparse::qlinear_dynamic",
            "sparse::qlinear_relu",
            "sparse::qlinear_relu_dynamic",
            "sparse::qlinear_unpack",
        ],
        "the quantized engine of x86 cannot make sparse::LinearPackedParamsBase",
    ),
    **dict.fromkeys(
        ["static_runtime::VarTupleUnpack", "static_runtime::create_owned_ref"],
        "takes any number of unnamed arguments",
    ),
    "static_runtime::dict_unpack": "takes any number of unnamed arguments",
    "static_runtime::clamp_nan_to_num": "names two arguments alike",
    "export::access_subclass_inner_tensor": "its kernel comes before modes, at their own key",
    **dict.fromkeys(
        ["symm_mem::_barrier", "symm_mem::nccl_put_signal", "symm_mem::nccl_wait_signal"],
        "a SymmetricMemory needs devices that share memory",
    ),
    **dict.fromkeys(
        ["symm_mem::nccl_get_out", "symm_mem::nvshmem_get_out"],
        "a SymmetricMemory needs devices that share memory (since torch 2.14)",
    ),
}

# Operators whose own Python kernel comes before modes: called at the key of modes.
PAST_MODES = {
    "aten._fw_primal.default",
    "aten._make_dual.default",
}
PYTHON = torch._C.DispatchKeySet(torch._C.DispatchKey.PythonTLSSnapshot) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.Python
)


class Recorded(Exception):
    """Stops a call once its arguments are known, so no kernel runs."""


class Recording(TorchDispatchMode):
    """Keep the arguments of one operator; let whatever else a conversion runs go on."""

    def __init__(self, op: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.op = op
        self.arrived: tuple[tuple[Any, ...], dict[str, Any]] | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not self.op:
            return func(*args, **(kwargs or {}))
        self.arrived = (args, kwargs)
        raise Recorded


def record(
    op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Give what a handler sees of a call, None if torch refuses it.

    No kernel stands between the call and the mode, so a composite operator arrives whole, and
    nothing has been converted twice: a kernel of autograd's would make plain numbers of a tensor
    among symbolic sizes, which are then taken for the default.
    """
    mode = Recording(op)
    with torch._C._AutoDispatchBelowADInplaceOrView(), mode:
        try:
            if str(op) in PAST_MODES:
                op.redispatch(PYTHON, *args, **kwargs)
            else:
                op(*args, **kwargs)
        except Recorded:
            return mode.arrived
        except (RuntimeError, TypeError, ValueError, OverflowError):
            return None
    raise AssertionError(f"{op} ran past the mode")


# ── values ──────────────────────────────────────────────────────────────────────────────────────


class One(enum.IntEnum):
    ONE = 1


class MyInt(int):
    pass


class MyStr(str):
    pass


class WithIndex:
    def __index__(self) -> int:
        return 5


class WithFloat:
    def __float__(self) -> float:
        return 5.0


def symbols() -> tuple[Any, Any, Any]:
    """Make a symbolic int, float and bool, whose hints are common defaults."""
    env = ShapeEnv(specialize_zero_one=False, duck_shape=False)
    source = ConstantSource("n")
    integer = env.create_symintnode(
        env.create_symbol(1, source=source, dynamic_dim=DimDynamic.DYNAMIC), hint=1, source=source
    )
    source = ConstantSource("x")
    real = env.create_symfloatnode(
        env.create_unspecified_symbol(1.0, source=source, dynamic_dim=DimDynamic.DYNAMIC),
        hint=1.0,
        source=source,
    )
    return integer, real, integer > 0


SYMINT, SYMFLOAT, SYMBOOL = symbols()
TENSORS = [
    torch.ones(2),
    torch.tensor(1),
    torch.tensor(1.0),
    torch.tensor(True),
    torch.nn.Parameter(torch.ones(2, 2)),
    torch.ones(2, 3).t(),
]
NUMBERS = [0, 1, True, False, 1.0, 0.0, -0.0, float("nan"), float("inf"), 1j, 2, -1, One.ONE]
NUMPY = [np.int64(1), np.float32(1), np.float64(1), np.bool_(True), np.array(1), np.int32(0)]
INTS = [
    *(0, 1, -1, 2, True, False, 2**40, One.ONE, MyInt(1), WithIndex()),
    *(np.int64(1), np.int32(0), np.float32(1), np.bool_(True), np.array(1)),
    *(torch.tensor(1), torch.tensor(True), torch.int64, torch.strided, 1.0, None),
]
LISTS: list[Any] = [
    *([], [0], [1], [1, 1], [0, 0], [-1], [1, 2], [0, 0, 0], [True], [False, True], [One.ONE]),
    *((), (1,), (0, 0), (1, 1), torch.Size([1, 1]), torch.Size([]), np.array([1, 1]), range(2)),
    *(
        [np.int64(1)],
        np.array([True]),
        [torch.tensor(1)],
        (0, torch.tensor(0)),
        (MyInt(1), 2),
        collections.deque([1]),
    ),
]
ENUM_NUMBERS = [0, 1, True, One.ONE, np.int64(1), torch.tensor(1), None]
POOLS: dict[str, list[Any]] = {
    "Tensor": TENSORS,
    "int": INTS,
    "SymInt": [*INTS, SYMINT, SYMINT],
    "float": [
        *(*NUMBERS, *NUMPY, 1e-05, 1e-8, 0.5, 2**70, MyInt(3)),
        *(WithIndex(), WithFloat(), torch.tensor(1), torch.tensor(0.5), None),
    ],
    "bool": [*NUMBERS, *NUMPY, None, torch.tensor(1), torch.tensor(0.0), np.array([True])],
    "SymBool": [*NUMBERS, *NUMPY, SYMBOOL],
    "Scalar": [
        *(*NUMBERS, np.float64(1), np.complex128(1), MyInt(1), torch.float64, torch.strided),
        *(SYMINT, SYMFLOAT, SYMBOOL, torch.tensor(1), None),
    ],
    "str": ["", "none", "mean", "right", MyStr("none"), np.str_("mean"), b"none", "N", None],
    "ScalarType": [torch.int64, torch.float32, torch.bool, 4, 6, *ENUM_NUMBERS, int, float],
    "Layout": [torch.strided, torch.sparse_coo, torch.jagged, *ENUM_NUMBERS],
    "MemoryFormat": [
        torch.contiguous_format,
        torch.preserve_format,
        torch.channels_last,
        *ENUM_NUMBERS,
    ],
    "Device": ["cpu", "cpu:0", "meta", torch.device("cpu"), torch.device("cpu", 0), None],
    "Generator": [torch.Generator(), torch.default_generator, None],
    "Storage": [torch.ones(2).untyped_storage()],
    "PyObject": [object(), 1, "a"],
    "Stream": [torch.Stream(device="cpu")],
    "Any": [
        *(1, True, 1.0, 1j, None, "group", MyStr("group"), np.float64(1), MyInt(1), One.ONE),
        *(torch.float64, torch.device("cpu"), torch.ones(2), [1], (1, 2), torch.Size([1])),
        *([True], [1.0, 2.0], ["a"], ([1], "a"), torch.strided),
    ],
}
LIST_POOLS: dict[str, list[Any]] = {
    "Tensor": [[], [TENSORS[0]], TENSORS[:3], list(TENSORS)],
    "Tensor?": [[], [None], [TENSORS[0], None], (None, TENSORS[1]), list(TENSORS)],
    "int": LISTS,
    "SymInt": [
        *LISTS,
        torch.tensor([1]),
        torch.tensor([0, 1]),
        [SYMINT],
        [SYMINT, 1],
        (1, SYMINT),
        [0, SYMINT],
    ],
    "float": [*LISTS, [1.0], (0.5, 1.0), np.array([1.0, -0.0]), [float("nan")], [1, 1.0]],
    "bool": [*LISTS, [True, True], [1, 0.0], [None, True], [True, True, True], [False, True]],
    "Scalar": [*LISTS, [1.0], (1, 1.0, 1j), [SYMINT, 1], [SYMFLOAT], [SYMBOOL, True]],
    "Scalar?": [*LISTS, [1.0, None], [None], (1, SYMINT)],
    "str": [[], ["sum"], ("a", "b"), [MyStr("a")], "ab"],
    "ScalarType": [[], [torch.int64], (4,)],
    "Tensor[]": [[], [[]], [[TENSORS[0]], []], [list(TENSORS)]],
    "str[]": [[], [[]], [["a", "b"]]],
    "int[]": [[], [[]], [[1, 2]]],
    "SymInt[]": [[], [[]], [[1, 2]], [[SYMINT]]],
    "ScalarType?": [[], [None], [torch.int64, None]],
}
# One number for a whole list: a rule of lists with a size, tried on all.
REPEATED = [1, 0, -1, True, One.ONE, 1.0, np.int64(1), np.float64(0.0), SYMINT]


def script_objects() -> dict[str, list[Any]]:
    """Make an object of each custom class that this process can make one of."""
    quantized = torch.ops.quantized
    made: dict[str, list[Any]] = {}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weight = torch.quantize_per_tensor(torch.ones(4, 8), 0.1, 0, torch.qint8)
        linear = quantized.linear_prepack(weight, torch.zeros(4))
        made["__torch__.torch.classes.quantized.LinearPackedParamsBase"] = [linear]
        for dims in (2, 3):
            kernel = torch.ones(4, 4, *([3] * dims))
            packed = getattr(quantized, f"conv{dims}d_prepack")(
                torch.quantize_per_tensor(kernel, 0.1, 0, torch.qint8),
                None,
                [1] * dims,
                [0] * dims,
                [1] * dims,
                1,
            )
            made[f"__torch__.torch.classes.quantized.Conv{dims}dPackedParamsBase"] = [packed]
        rows = torch.quantize_per_channel(
            torch.ones(4, 8), torch.ones(4), torch.zeros(4), 0, torch.quint8
        )
        made["__torch__.torch.classes.quantized.EmbeddingPackedParamsBase"] = [
            quantized.embedding_bag_prepack(rows)
        ]
        bias = torch.zeros(4)
        cell = quantized.make_quantized_cell_params_dynamic(linear, linear, bias, bias, True)
        made["__torch__.torch.classes.rnn.CellParamsBase"] = [cell]
        made["__torch__.torch.classes.profiler._RecordFunction"] = [
            torch.ops.profiler._record_function_enter_new("name", None)
        ]
        made["__torch__.torch.classes.mkldnn.ConvOpContext"] = [
            torch.ops.mkldnn_prepacked.conv2d_prepack(
                torch.ones(4, 4, 3, 3), None, [1, 1], [0, 0], [1, 1], 1, [1, 4, 8, 8], "none"
            )
        ]
        if torch.distributed.is_available():
            make_group: Any = torch._C._distributed_c10d.ProcessGroup
            made["__torch__.torch.classes.c10d.ProcessGroup"] = [make_group(0, 1).boxed()]
    return made


CUSTOM = script_objects()


def pool(type_text: str) -> list[Any]:
    """List values to try for a parameter of this type."""
    if type_text.endswith("?"):
        return [None, None, *pool(type_text[:-1])]
    if type_text.endswith("]"):
        element = type_text[: type_text.rindex("[")]
        if element in CUSTOM:
            return [[], CUSTOM[element]]
        values = [*LIST_POOLS[element], *REPEATED]
        size = type_text[len(element) + 1 : -1]
        if size:
            full = [[value] * int(size) for value in (0, 1, True)]
            return [*full[:2], *values, *full]
        return values
    if type_text in CUSTOM:
        return CUSTOM[type_text]
    return POOLS[type_text]


NUMBER_TENSORS = [*NUMBERS, *NUMPY, SYMINT, SYMFLOAT, SYMBOOL]


def near(default: Any) -> list[Any]:
    """List values that are, or look like, a default."""
    if isinstance(default, bool):
        return [default, default, int(default), float(default), np.bool_(default), not default]
    if isinstance(default, (int, float)):
        close = [default, default, float(default), np.float64(default), float(default) + 0.5]
        if default == int(default):
            close += [int(default), np.int64(default), MyInt(default)]
        return [*close, bool(default), complex(default), -default]
    if isinstance(default, list):
        close = [
            list(default),
            tuple(default),
            [*default, *default],
            default[:1],
            np.array(default),
        ]
        return [*close, *default[:1], [float(item) for item in default]]
    return [default, default, None]


def random_call(handle: Handle[Any], rng: random.Random, pools: list[list[Any]]) -> Any:
    """Make args and kwargs in a random spelling, with random values."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    by_position = True
    careful = rng.random() < 0.5  # so that operators with many arguments get accepted calls
    for param, values in zip(handle.params, pools, strict=True):
        by_position = by_position and not param.kwarg_only and rng.random() < 0.85
        if not param.required:
            if rng.random() < 0.35:
                by_position = False
                continue
            if careful or rng.random() < 0.5:
                values = near(param.default)
        value = rng.choice(values[:2] if careful and param.required else values)
        if by_position:
            args.append(value)
        else:
            kwargs[param.name] = value
    items = list(kwargs.items())
    rng.shuffle(items)
    return tuple(args), dict(items)


# ── comparing ───────────────────────────────────────────────────────────────────────────────────


def same(got: Any, want: Any) -> bool:
    """Compare strictly: types, signs of zeros, tensors by identity, symbols by their node."""
    if got is want:
        return True
    if type(got) is not type(want):
        return False
    if isinstance(got, (list, tuple)):
        return len(got) == len(want) and all(map(same, got, want))
    if isinstance(got, dict):
        return same(list(got.items()), list(want.items()))
    if isinstance(got, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return got.node is want.node
    if isinstance(got, (float, complex)):
        return repr(got) == repr(want)
    if isinstance(got, torch.Generator):
        return bool(got.device == want.device and got.initial_seed() == want.initial_seed())
    if isinstance(got, torch.ScriptObject):
        return bool(got._type() == want._type() and hash(got) == hash(want))
    if isinstance(got, torch.UntypedStorage):
        return bool(got.data_ptr() == want.data_ptr())
    if isinstance(got, (torch.Tensor, torch.dtype, torch.layout, torch.memory_format)):
        return got is want
    return bool(got == want)


def bound_alike(
    converters: dict[str, Converter], arrived: dict[str, Any], written: dict[str, Any]
) -> bool:
    """Compare what a handler binds with what the caller's own arguments bind to, converted."""
    for name, how in converters.items():
        value = written[name]
        if how.exact is not None and type(value) not in how.exact:
            value = how.convert(value)
        got = arrived[name]
        # The sign of a zero that equals its default is lost.
        if not same(got, value) and not (type(got) is type(value) and got == value):
            return False
    return list(arrived) == list(written)


def check_calls(name: str, seed: int, wanted: int) -> list[str]:
    """Try random calls until torch accepted enough; list what differs."""
    handle = handle_of(name if "." in name else name + ".default")
    op = handle.torch_op
    rng = random.Random(f"{name} {seed}")
    base = name.partition("::")[2].partition(".")[0]
    numbers = torch._C._should_allow_numbers_as_tensors(base)
    converters = {
        param.name: converter(param.type, number_tensors=numbers) for param in handle.params
    }
    pools = []
    for param in handle.params:
        values = pool(param.type)
        if numbers and param.type == "Tensor":
            values = [*values, *NUMBER_TENSORS]
        pools.append(values)
    wrong: list[str] = []
    accepted = 0
    for _ in range(wanted * ATTEMPTS):
        args, kwargs = random_call(handle, rng, pools)
        arrived = record(op, args, kwargs)
        if arrived is None:
            continue
        written = handle.bind(args, kwargs)
        got = handle.elide(written)
        if not same(got, arrived):
            wrong.append(f"{name}: args={args!r} kwargs={kwargs!r}\n  {got!r}\n  {arrived!r}")
        elif not bound_alike(converters, handle.bind(*arrived), written):
            wrong.append(f"{name}: {arrived!r} binds otherwise than args={args!r} {kwargs!r}")
        accepted += 1
        if accepted == wanted or not (handle.params or accepted < 2):
            return wrong
    return [*wrong, f"{name}: torch accepted only {accepted} calls"]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Leave out the warnings that torch gives while it converts odd values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def by_family() -> dict[str, list[str]]:
    """Group the overloads as specs/ does: one test for each file."""
    groups: dict[str, list[str]] = {}
    for name in NAMES:
        namespace, _, rest = name.partition("::")
        index = _registry.spec_index(namespace)
        family = index.family_of.get(rest.partition(".")[0], "") if index else ""
        groups.setdefault(f"{namespace}/{family}".rstrip("/"), []).append(name)
    return groups


FAMILIES = by_family()


def check_family(family: str, seed: int, wanted: int) -> None:
    wrong = [
        fault
        for name in FAMILIES[family]
        if name not in UNCALLABLE
        for fault in check_calls(name, seed, wanted)
    ]
    assert not wrong, f"{len(wrong)} calls differ\n" + "\n".join(wrong[:20])


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_elide_gives_what_a_mode_records(family: str) -> None:
    check_family(family, 0, CALLS)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("family", FAMILIES)
def test_elide_gives_what_a_mode_records_many_times(family: str, seed: int) -> None:
    check_family(family, seed, LONG_CALLS)


def test_all_but_a_handful_of_overloads_are_called() -> None:
    assert len(set(UNCALLABLE) & set(NAMES)) <= 25
    assert len(NAMES) > 3500


def test_a_wrong_elision_would_be_noticed() -> None:
    """The comparison tells apart what Python's == does not."""
    zero, one = 0.0, torch.ones(1)
    assert same((([1, 2], zero, one), {}), (([1, 2], 0.0, one), {}))
    for got, want in [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        ([1], (1,)),
        (one, torch.ones(1)),
        (torch.device("cpu"), torch.device("cpu", 0)),
        (SYMINT, 1),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ]:
        assert not same(got, want), (got, want)
