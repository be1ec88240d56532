"""Operators made by torch.library: their defaults are real values, as those of the specs are."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any, Optional

import pytest
import torch
from dispatch_core import (
    DispatchMode,
    HandlerSignatureError,
    HandlerTable,
    MemorylessError,
    handle_of,
    no_dispatch,
)
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

cpu = torch.device("cpu")
cuda = torch.device("cuda:1")
_count = itertools.count()
LIBRARY = torch.library.Library("dc_defaults", "DEF")


@pytest.fixture(scope="module")
def defaults() -> Iterator[Any]:
    """Make an operator that has a default of every type that torch allows there.

    Leave nothing registered: what is, is the subject of other tests.
    """

    @torch.library.custom_op("dc_custom::defaults", mutates_args=())
    def made(
        x: torch.Tensor,
        device: torch.device = cpu,
        dtype: torch.dtype = torch.int8,
        maybe_device: Optional[torch.device] = cuda,  # noqa: UP045 -- torch reads no other
        maybe_dtype: Optional[torch.dtype] = torch.float16,  # noqa: UP045
        text: str = "a, b",
        number: float = 1,
    ) -> torch.Tensor:
        return x.clone()

    yield made
    made._lib._destroy()


@pytest.fixture(autouse=True, scope="module")
def take_back() -> Iterator[None]:
    """Leave nothing registered."""
    yield
    LIBRARY._destroy()


class See(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.call: Any = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.call = (tuple(args[1:]), kwargs or {})
        return args[0]


def seen(op: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Give what torch hands to a mode, without the first tensor."""
    see = See()
    with see:
        op(x, *args, **kwargs)
    return see.call


def test_custom_operator_itself_is_taken(defaults: Any) -> None:
    assert handle_of(defaults) is handle_of(torch.ops.dc_custom.defaults.default)
    table = HandlerTable(missing="next")

    @table.implements(defaults)
    def handler(
        x: Any,
        device: Any = cpu,
        dtype: Any = torch.int8,
        maybe_device: Any = cuda,
        maybe_dtype: Any = torch.float16,
        text: Any = "a, b",
        number: Any = 1.0,
    ) -> Any:
        return x + len(repr((device, dtype, maybe_device, maybe_dtype, text, number)))

    assert table.lookup(defaults) is handler
    x = torch.zeros(1)
    with DispatchMode(table):
        assert defaults(x).item() > 50


def test_defaults_of_a_custom_operator_are_values_of_their_types(defaults: Any) -> None:
    handle = handle_of(defaults)
    found = [param.default for param in handle.params[1:]]
    wanted = [cpu, torch.int8, torch.device("cuda:1"), torch.float16, "a, b", 1.0]
    assert found == wanted
    assert list(map(type, found)) == list(map(type, wanted))
    assert list(handle.bind((torch.ones(1),)).values())[1:] == wanted
    with pytest.raises(HandlerSignatureError, match="the default of 'device' is device"):
        HandlerTable().implements(defaults)(  # type: ignore[no-untyped-call]
            lambda x, device="cpu", dtype=None, maybe_device=None, maybe_dtype=None, text="",
            number=0.0: x
        )  # fmt: skip


@pytest.mark.parametrize(
    "args",
    [
        (),
        (cpu,),
        ("cpu",),
        (torch.device("cpu:0"),),
        (cpu, torch.int8),
        (cpu, torch.int8, torch.device("cuda:1")),
        (cpu, torch.int8, "cuda:1"),
        (cpu, torch.int8, None),
        (cpu, torch.int8, torch.device("cuda:1"), torch.float16, "a, b", 1),
        (torch.device("meta"), torch.int16),
    ],
)
def test_what_is_left_out_is_what_torch_leaves_out(defaults: Any, args: Any) -> None:
    x = torch.ones(1)
    handle = handle_of(defaults)
    positional, keywords = handle.elide(handle.bind((x, *args)))
    assert (tuple(positional[1:]), keywords) == seen(handle.torch_op, x, *args)


@pytest.mark.parametrize("position", ["", "*, "])
@pytest.mark.parametrize(
    ("declared", "default"),
    [
        ('Device p="cpu"', cpu),
        ('Device p="cuda:1"', torch.device("cuda:1")),
        ('Device? p="meta"', torch.device("meta")),
        ("Device? p=None", None),
        ("Layout p=strided", torch.strided),
        ("Layout? p=None", None),
        ("Layout? p=2", torch.sparse_csr),
        ('Layout p="sparse_coo"', torch.sparse_coo),
        ("MemoryFormat p=contiguous_format", torch.contiguous_format),
        ("MemoryFormat? p=2", torch.channels_last),
        ('MemoryFormat p="channels_last"', torch.channels_last),
        ("ScalarType p=float32", torch.float32),
        ("ScalarType? p=bool", torch.bool),
        ('ScalarType p="float"', torch.float),
        ('ScalarType? p="no_such_type"', "no_such_type"),
        ('Device? p="no_such_device"', "no_such_device"),
    ],
)
def test_default_of_a_schema_is_a_value(declared: str, default: Any, position: str) -> None:
    name = f"f{next(_count)}"
    LIBRARY.define(f"{name}(Tensor x, {position}{declared}) -> Tensor")
    op = getattr(torch.ops.dc_defaults, name).default
    handle = handle_of(op)
    assert handle.params[-1].default == default
    assert type(handle.params[-1].default) is type(default)
    x = torch.ones(1)
    values = handle.bind((x,))
    assert values["p"] == default
    positional, keywords = handle.elide(values)
    assert (tuple(positional[1:]), keywords) == ((), {}) == seen(op, x)


def test_fake_tensor_has_no_memory_and_torch_says_nothing_about_it() -> None:
    with FakeTensorMode():
        fake = torch.ones(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with no_dispatch(), pytest.raises(MemorylessError):
            fake + 1
