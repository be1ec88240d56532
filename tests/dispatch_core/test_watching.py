"""Watching changes nothing: over torch's own list of operators, what runs is what ran without."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from dispatch_core import (
    DispatchMode,
    HandlerTable,
    Recorder,
    enable_python_mode,
    handle_of,
    no_dispatch,
)
from torch.utils._python_dispatch import TorchDispatchMode

from tests.dispatch_core.wrapping import Direct, Tabled, run_plain

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # torch's list calls much that is deprecated
]

PART = 12  # every twelfth operator in the normal run

# Those that set a conjugate bit inside themselves.
AT_RISK = ("fft.hfftn", "linalg.pinv", "linalg.pinv.hermitian", "linalg.lstsq", "linalg.vecdot")

# Composite operators whose kernel asks whether any mode is on, and then takes another way to the
# same number. Here the reference is a bare mode.
OTHER_WAY = {"norm.nuc", "linalg.cond", "linalg.eigvalsh", "linalg.svdvals"}


def op_infos() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return [info for info in op_db if info.dtypes]  # some have none on a CPU


def samples(info: Any, most: int, dtype: torch.dtype = torch.float32) -> Iterator[Any]:
    if dtype not in info.dtypes:
        dtype = next(iter(sorted_types(info)))
    torch.manual_seed(0)
    try:
        generator = info.sample_inputs("cpu", dtype, requires_grad=False)
        for _, sample in zip(range(most), generator, strict=False):
            yield sample
    except (RuntimeError, NotImplementedError, ImportError) as error:
        pytest.skip(f"torch cannot make samples of {info.name} here: {error}")


def sorted_types(info: Any) -> list[torch.dtype]:
    return sorted(info.dtypes, key=str)


# ── what is compared ────────────────────────────────────────────────────────────────────────────


def look(value: Any) -> Any:
    """Describe an argument without keeping it."""
    if isinstance(value, torch.Tensor):
        place = value.stride() if value.layout is torch.strided else value.layout
        return ("tensor", tuple(value.shape), value.dtype, place, str(value.device))
    if isinstance(value, list | tuple):
        return (type(value).__name__, *map(look, value))
    if isinstance(value, torch.Generator):
        return "generator"
    return (type(value).__name__, repr(value))


Call = tuple[Any, Any, Any]


class Bare(TorchDispatchMode):
    """The reference: what torch gives a mode that only passes on."""

    def __init__(self, calls: list[Call]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls = calls

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        names = {name: look(value) for name, value in kwargs.items()}
        self.calls.append((func, look(tuple(args)), names))
        return func(*args, **kwargs)


class ByHand(DispatchMode):
    def __init__(self, calls: list[Call]) -> None:
        super().__init__()
        self.calls = calls

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        names = {name: look(value) for name, value in kwargs.items()}
        self.calls.append((func, look(tuple(args)), names))
        return func(*args, **kwargs)


class Declining(ByHand):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        names = {name: look(value) for name, value in kwargs.items()}
        self.calls.append((func, look(tuple(args)), names))
        return NotImplemented


def by_table(calls: list[Call]) -> DispatchMode:
    table = HandlerTable()

    @table.fallback
    def handler(func: Any, *args: Any, **kwargs: Any) -> Any:
        names = {name: look(value) for name, value in kwargs.items()}
        calls.append((func, look(args), names))
        return func(*args, **kwargs)

    return DispatchMode(table)


@contextlib.contextmanager
def both(outer: Any, inner: Any) -> Iterator[None]:
    with outer, inner:
        yield


WATCHED: dict[str, Callable[[list[Call]], Any]] = {
    "a mode by hand": ByHand,
    "a mode by table": by_table,
    "a mode that declines": Declining,
    "a bare mode inside a recorder": lambda calls: both(Recorder(), Bare(calls)),
    "a bare mode outside a recorder": lambda calls: both(Bare(calls), Recorder()),
    "a bare mode outside an empty mode": lambda calls: both(Bare(calls), DispatchMode()),
}


def run(info: Any, sample: Any, scope: Any) -> Any:
    fresh = sample.transform(
        lambda value: value.detach().clone() if isinstance(value, torch.Tensor) else value
    )
    torch.manual_seed(1)
    try:
        with scope:
            return info.op(fresh.input, *fresh.args, **fresh.kwargs)
    except Exception as error:
        return (type(error), str(error))


def tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return (
        [t for item in value for t in tensors_in(item)] if isinstance(value, list | tuple) else []
    )


def bits(value: Any) -> list[bytes]:
    return [tensor.numpy().tobytes() for tensor in tensors_in(value) if not tensor.is_sparse]


def gives_other_bits_each_time(info: Any, sample: Any) -> bool:
    """Say whether torch itself rounds otherwise from run to run.

    LAPACK does (lstsq with driver gelsy), by where its working memory happens to lie.
    """
    first = bits(run(info, sample, contextlib.nullcontext()))
    kept = []  # so that the memory of the next run lies elsewhere
    for length in range(200):
        kept.append(torch.empty(length))
        if bits(run(info, sample, contextlib.nullcontext())) != first:
            return True
    return False


def assert_same(found: Any, expected: Any, **tolerance: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert look(found) == look(expected)
        torch.testing.assert_close(found, expected, equal_nan=True, **tolerance)
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other, **tolerance)
    else:
        assert found == expected or found != found  # nan


def compare(info: Any, most: int) -> None:
    uninitialised = "empty" in info.name
    for sample in samples(info, most):
        plain = run(info, sample, contextlib.nullcontext())
        reference: list[Call] = []
        under_bare_mode = run(info, sample, Bare(reference))
        if info.full_name in OTHER_WAY:
            plain = under_bare_mode
        for name, make in WATCHED.items():
            calls: list[Call] = []
            result = run(info, sample, make(calls))
            assert calls == reference, f"{info.full_name}: under {name}"
            if uninitialised:
                continue
            try:
                assert_same(result, plain, rtol=0, atol=0)
            except AssertionError:
                if not gives_other_bits_each_time(info, sample):
                    raise
                assert_same(result, plain)


# ── complex numbers ─────────────────────────────────────────────────────────────────────────────
# Torch resolves no conjugate bits while a handler runs, which operators set inside themselves.


class ByItself(Tabled):
    table = HandlerTable()


ByItself.table.fallback(run_plain)


def of_class(cls: type[torch.Tensor]) -> Callable[[Any], Any]:
    def make(value: Any) -> Any:
        fits = isinstance(value, torch.Tensor) and value.layout is torch.strided
        return value.detach().clone().as_subclass(cls) if fits else value

    return make


def plain_again(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.as_subclass(torch.Tensor) if value.layout is torch.strided else value
    return [plain_again(item) for item in value] if isinstance(value, list | tuple) else value


COMPUTED: dict[str, Callable[[Any, Any], Any]] = {
    "a mode by hand": lambda info, sample: run(info, sample, ByHand([])),
    "a mode by table": lambda info, sample: run(info, sample, by_table([])),
    "no_dispatch": lambda info, sample: run(info, sample, no_dispatch()),
    "a python mode": lambda info, sample: run(info, sample, enable_python_mode(ByItself)),
    "a class by hand": lambda info, sample: run_as(info, sample, Direct),
    "a class by table": lambda info, sample: run_as(info, sample, ByItself),
}


def run_as(info: Any, sample: Any, cls: type[torch.Tensor]) -> Any:
    own = sample.transform(of_class(cls))
    torch.manual_seed(1)
    return info.op(own.input, *own.args, **own.kwargs)


def compare_complex(info: Any) -> None:
    for sample in samples(info, 2, torch.complex64):
        wanted = run(info, sample, contextlib.nullcontext())
        refused = isinstance(wanted, tuple) and wanted and isinstance(wanted[0], type)
        if refused or "empty" in info.name:
            continue
        strided = all(tensor.layout is torch.strided for tensor in tensors_in(wanted))
        for name, compute in COMPUTED.items():
            found = plain_again(compute(info, sample))
            if strided:
                torch.testing.assert_close(
                    found, plain_again(wanted), equal_nan=True, msg=f"{info.full_name}: {name}"
                )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test the operators that its run has time for."""
    if "info" in metafunc.fixturenames:
        infos, test = op_infos(), metafunc.function.__name__
        if "complex" in test:
            infos = [info for info in infos if torch.complex64 in info.dtypes]
        if "some" in test:
            infos = [
                info
                for number, info in enumerate(infos)
                if number % PART == 0 or ("complex" in test and info.full_name in AT_RISK)
            ]
        metafunc.parametrize("info", infos, ids=[info.full_name for info in infos])


def test_some_operators_run_as_without(info: Any) -> None:
    compare(info, 1)


@pytest.mark.long
def test_all_operators_run_as_without(info: Any) -> None:
    compare(info, 4)


def test_some_operators_of_complex_numbers_compute_the_same(info: Any) -> None:
    compare_complex(info)


@pytest.mark.long
def test_all_operators_of_complex_numbers_compute_the_same(info: Any) -> None:
    compare_complex(info)


def test_bind_and_elide_give_what_a_mode_sees() -> None:
    class Checks(DispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            handle = handle_of(func)
            again = handle.elide(handle.bind(args, kwargs))
            assert (look(tuple(again[0])), look(list(again[1].items()))) == (
                look(tuple(args)),
                look(list(kwargs.items())),
            )
            return func(*args, **kwargs)

    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    with Checks():
        layer(torch.randn(2, 3, 8)).sum().backward()
