"""What a record must not hide, and what watching a call must leave as it was."""

from __future__ import annotations

import gc
import sys
import threading
import warnings
import weakref
from typing import Any

import pytest
import torch
from guards import _torch_private as private
from guards import specialize
from guards._gc_pause import GcPause
from guards._recording import Watcher
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tests.guards.twins import Twins, equal


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


# ── tensors ──────────────────────────────────────────────────────────────────────────────────────


def scaled_by_its_mark(x: Any) -> Any:
    try:
        scale = x.mark
    except AttributeError:
        scale = 1
    return x * scale


def test_attribute_that_an_input_gets_later() -> None:
    special = specialize(scaled_by_its_mark)
    x: Any = torch.ones(2)
    assert special(x)[0] == special(x)[0] == 1
    x.mark = 5
    assert str(special.explain_miss(x)[0]) == (
        "each tensor: expected no attributes of its own, found L['x'] has mark"
    )
    assert special(x)[0] == 5
    assert special.refusals == ["L['x'] has attributes of its own: mark"]


class Foreign(torch.Tensor):
    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("foreign code was run")


def test_foreign_tensor_is_not_asked_for_its_attributes() -> None:
    special = specialize(double)
    x = torch.ones(2)
    special(x)
    foreign = torch.ones(2).as_subclass(Foreign)
    assert special.explain_miss(foreign)


def inverted(x: torch.Tensor) -> Any:
    return torch.linalg.pinv(x)


def test_first_call_gives_what_the_plain_function_gives_for_complex_numbers() -> None:
    # torch leaves conjugates unresolved inside of what a mode's handler runs.
    twins = Twins(lambda: inverted)
    for seed in range(3):
        twins.call(lambda: (torch.randn(4, 4, dtype=torch.complex64),), seed)


def many_views(x: torch.Tensor) -> Any:
    parts = (x[None].T, x[None, :, None].squeeze(), x.unflatten(0, (2, 2)), x.reshape(2, 2))
    return *parts, *x.chunk(2), x.narrow(0, 1, 2), x.expand(3, 4)


def test_views_under_inference_mode_are_views() -> None:
    x = torch.ones(4)
    special = specialize(many_views)
    with torch.inference_mode():
        for _ in range(2):
            results = special(x)
            assert all(result._is_view() for result in results)
            assert [r.shape for r in results] == [r.shape for r in many_views(x)]
    assert special.stats.hits == 1


def test_result_that_autograd_refuses() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x[1:]
        with torch.enable_grad():
            x.mul_(2)
        return y

    special = specialize(function)
    for _ in range(2):
        x = torch.ones(3, requires_grad=True) * 2
        with torch.no_grad():
            result = special(x)
        with pytest.raises(RuntimeError, match="A view was created in no_grad mode"):
            _ = result.grad_fn
    assert special.refusals[0].startswith("it gives a tensor that autograd refuses: A view")


def test_autocast_that_code_asks_for() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * (2 if torch.is_autocast_enabled("cpu") else 3)

    special = specialize(function)
    assert special(torch.ones(1)) == special(torch.ones(1)) == 3
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert special(torch.ones(1)) == 2
    assert (special.stats.hits, special.refusals) == (1, [])


class Living(TorchDispatchMode):
    """Count, at every operator, the results of earlier ones that are still alive."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: list[int] = []
        self._results: list[weakref.ref[torch.Tensor]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts.append(sum(result() is not None for result in self._results))
        result = func(*args, **(kwargs or {}))
        parts = result if isinstance(result, list | tuple) else [result]
        self._results += map(weakref.ref, parts)
        return result


def test_results_are_let_go_after_their_last_use() -> None:
    def function(x: torch.Tensor) -> Any:
        a, b = (x * 2).chunk(2)
        a.add_(b)
        unused = x + 1
        del unused
        return a.exp(), (b.sin().cos() + 1).sum()

    special = specialize(function)
    x = torch.ones(4)
    special(x)
    replay: Any = special._cache.lookup({"x": x})
    with Living() as mode:
        result = replay({"x": x}, special._G)
    # mul, split, add_ (its views keep their base), add, exp, sin, cos, add, sum
    assert mode.counts == [0, 1, 3, 4, 4, 3, 2, 2, 2]
    assert equal(result, function(x))


# ── how a record is written ──────────────────────────────────────────────────────────────────────


def test_arguments_and_constants_of_all_forms() -> None:
    def function(x: torch.Tensor, table: dict[str, Any]) -> Any:
        y = x.clone().random_(-3, 5) * float("inf") + table["a-b"][1]
        z = torch.cat([y, x], dim=-1).clamp(min=-2.5e30).to(torch.float64)
        z = z.index_put((torch.ones(2).long(), None)[:1], torch.zeros(2, dtype=torch.float64))
        return {"z": z, 3: (y,), "deep": [[[[z.shape]]]], "": -7, "n": 10**40, "i": 1j}

    twins = Twins(lambda: function)
    for seed in range(3):
        twins.call(lambda: (torch.randn(2), {"a-b": [0, torch.ones(2)]}), seed)
    assert twins.counts == (2, 0), twins.special.refusals


def test_grad_modes_are_put_back_after_an_error() -> None:
    table = torch.ones(3, 2, requires_grad=True)

    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return nn.functional.embedding(x, table)

    special = specialize(function)
    for _ in range(2):
        special(torch.tensor([1]))
    with pytest.raises(IndexError):
        special(torch.tensor([5]))
    assert torch.is_grad_enabled()
    assert special.stats.hits == 2


# ── settings of torch ────────────────────────────────────────────────────────────────────────────


def test_mode_that_is_left_behind() -> None:
    def leaves_a_device(x: torch.Tensor) -> torch.Tensor:
        torch.set_default_device("meta")
        return x * 2

    special = specialize(leaves_a_device)
    try:
        special(torch.ones(2))
    finally:
        torch.set_default_device(None)
    assert len(special.refusals) == 1
    assert special.stats.hits == 0


@pytest.mark.parametrize("setting", ["inference", "precision"])
def test_setting_that_changes_within(setting: str) -> None:
    def changing(x: torch.Tensor) -> torch.Tensor:
        if setting == "inference":
            with torch.inference_mode():
                return x * 2
        torch.set_float32_matmul_precision("high")
        try:
            return x @ x
        finally:
            torch.set_float32_matmul_precision("highest")

    special = specialize(changing)
    special(torch.ones(2))
    assert special.refusals == ["it changes a setting of torch, or enters inference mode"]


# ── the garbage collector, and the profiler ──────────────────────────────────────────────────────


@pytest.fixture(params=[True, False], ids=["on", "off"])
def collecting(request: pytest.FixtureRequest) -> Any:
    """Turn the collection on, or off, before the test, and back after it."""
    before = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if before else gc.disable)()


class Broken(Exception):
    pass


def test_collection_is_off_until_the_last_pause_ends(collecting: bool) -> None:
    first, second = GcPause(), GcPause()
    for pause in (first, first):
        assert not gc.isenabled()
        pause.end()
    assert not gc.isenabled()
    second.end()
    assert gc.isenabled() is collecting


@pytest.mark.parametrize("how", ["returns", "raises", "is refused", "nests"])
def test_collection_is_as_it_was_after_a_call(collecting: bool, how: str) -> None:
    inner = specialize(double)

    def function(x: torch.Tensor) -> Any:
        if how == "raises":
            raise Broken
        if how == "nests":
            return inner(x)
        return x.tolist() if how == "is refused" else x * 2

    special = specialize(function)
    for _ in range(3):
        if how == "raises":
            with pytest.raises(Broken):
                special(torch.ones(2))
        else:
            special(torch.ones(2))
        assert gc.isenabled() is collecting
        assert sys.getprofile() is None


def test_collection_is_on_again_after_the_last_of_many_threads() -> None:
    specials = [specialize(lambda x, n=n: x * n) for n in range(6)]
    results: list[bool] = []
    start = threading.Barrier(6)

    def work(which: int) -> None:
        start.wait()
        for size in range(1, 12):
            x = torch.ones(size)
            results.append(torch.equal(specials[which](x), x * which))
            results.append(torch.equal(specials[0](x), x * 0))

    threads = [threading.Thread(target=work, args=(which,)) for which in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 6 * 22
    assert all(results)
    assert gc.isenabled()


def test_function_that_sets_the_collection_has_its_way(collecting: bool) -> None:
    def turns(x: torch.Tensor, on: bool) -> torch.Tensor:
        (gc.enable if on else gc.disable)()
        return x * 2

    special = specialize(turns)
    for on in (not collecting, collecting, not collecting):
        special(torch.ones(2), on)
        assert gc.isenabled() is on


# ── every operator ───────────────────────────────────────────────────────────────────────────────


def op_infos() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    # What memory holds that nobody has written differs from call to call; jiterator needs a GPU.
    infos = [i for i in op_db if i.dtypes and not ("empty" in i.name or "jiterator" in i.name)]
    often = 25  # in the normal run every 25th operator, with --long all
    return [
        pytest.param(info, id=info.formatted_name, marks=[] if n % often == 0 else pytest.mark.long)
        for n, info in enumerate(infos)
    ]


def own(value: Any) -> Any:
    """Copy an argument, so that a call may write to it."""
    if isinstance(value, torch.Tensor):
        copy = value.detach().clone()
        return copy.requires_grad_(value.requires_grad)
    if type(value) in (list, tuple):
        return type(value)(map(own, value))
    return value


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch's list calls much that is deprecated
@pytest.mark.parametrize("info", op_infos())
def test_operator_gives_the_same_when_it_is_repeated(info: Any) -> None:
    wanted = [torch.float32, torch.complex64, *sorted(info.dtypes, key=str)]
    dtype = next(dtype for dtype in wanted if dtype in info.dtypes)
    grad = bool(info.supports_autograd and (dtype.is_floating_point or dtype.is_complex))
    torch.manual_seed(0)
    try:
        samples = info.sample_inputs("cpu", dtype, requires_grad=grad)
        chosen = [sample for _, sample in zip(range(2), samples, strict=False)]
    except (RuntimeError, NotImplementedError, ImportError) as error:
        pytest.skip(f"torch cannot make samples of {info.name} here: {error}")
    operator = info.op
    for sample in chosen:
        options = sample.kwargs

        def call(*arguments: Any, options: Any = options) -> Any:
            return operator(*arguments, **options)

        twins = Twins(lambda call=call: call)  # type: ignore[misc]
        arguments = (sample.input, *sample.args)
        for seed in range(2):
            twins.call(lambda arguments=arguments: tuple(map(own, arguments)), seed)  # type: ignore[misc]


# ── warnings and profilers ───────────────────────────────────────────────────────────────────────


def test_function_of_torch_that_warns_goes_on_warning() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.softmax(x)

    special, x = specialize(function), torch.ones(2)
    for _ in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            special(x)
        assert len(caught) == 1
    with pytest.raises(UserWarning, match="Implicit dimension choice"):
        special(x)
    assert special.refusals[0] == (
        "_get_softmax_dim of torch/nn/functional.py warns, as no record would"
    )


def test_nothing_is_recorded_where_torch_warns_always() -> None:
    special, x = specialize(double), torch.ones(2)
    torch.set_warn_always(True)
    try:
        assert special(x).tolist() == special(x).tolist() == [2, 2]
    finally:
        torch.set_warn_always(False)
    assert special.refusals == ["torch warns always, of what no record would do"] * 2
    assert special(x).tolist() == special(x).tolist() == [2, 2]
    assert special.stats.hits == 1


def ignore(*_: object) -> None:
    pass


def test_profiler_that_code_sets_stays() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        sys.setprofile(ignore)
        return x * 2

    try:
        specialize(function)(torch.ones(2))
        assert sys.getprofile() is ignore
    finally:
        sys.setprofile(None)


def set_profiler(_: object) -> int:
    sys.setprofile(ignore)
    return 2


def test_profiler_that_is_set_unseen_stays() -> None:
    special = specialize(lambda x: next(map(set_profiler, [x])) * x)
    try:
        special(torch.ones(2))
        assert sys.getprofile() is ignore
    finally:
        sys.setprofile(None)
    assert special.refusals


def test_code_that_may_see_that_it_is_watched_is_not_watched() -> None:
    special = specialize(lambda x: x * 2 if sys.getprofile() is None else x * 3)
    collects = specialize(lambda x: x * 2 if gc.isenabled() else x * 3)
    for function in (special, collects):
        assert [function(torch.ones(1)).item() for _ in range(2)] == [2, 2]
    for name, refusals in (("getprofile", special.refusals), ("isenabled", collects.refusals)):
        assert f"['{name}'] may tell that a call is watched" in refusals[0]


def test_modes_of_two_threads_leave_no_trace() -> None:
    first_is_in, second_is_in, first_is_out = (threading.Event() for _ in range(3))

    def first() -> None:
        with Watcher([]) as watcher:
            first_is_in.set()
            second_is_in.wait()
        watcher.pause.end()

    def second() -> None:
        first_is_in.wait()
        with Watcher([]) as watcher:
            second_is_in.set()
            first_is_out.wait()
        watcher.pause.end()

    flags = private.mode_flags()
    one, other = threading.Thread(target=first), threading.Thread(target=second)
    one.start()
    other.start()
    one.join()
    first_is_out.set()
    other.join()
    assert private.mode_flags() == flags == [False] * len(flags)
    assert gc.isenabled()


def test_mode_that_watches_is_not_told_to_code() -> None:
    special = specialize(
        lambda x: x * 2 if torch.utils._python_dispatch.is_in_torch_dispatch_mode() else x * 3
    )
    assert [special(torch.ones(1)).item() for _ in range(2)] == [3, 3]
    assert special.refusals[0] == (
        "it names is_in_torch_dispatch_mode, which may tell that a call is watched"
    )


def test_method_of_a_name_that_tells_of_watching_elsewhere() -> None:
    class Counted:
        def get_count(self) -> int:
            return 2

    special = specialize(lambda x: x * Counted().get_count())
    assert [special(torch.ones(1)).item() for _ in range(2)] == [2, 2]
    assert (special.stats.hits, special.refusals) == (1, [])
