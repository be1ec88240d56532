"""Recorder: what it notes, and that it keeps nothing and changes nothing."""

from __future__ import annotations

import gc
import sys
import threading
import tracemalloc
import weakref
from typing import Any

import pytest
import torch
from dispatch_core import (
    HandlerTable,
    Opaque,
    Recorder,
    TableError,
    TensorInfo,
    handle_of,
    no_dispatch,
    ops,
    propagate_modes,
)

from tests.dispatch_core.wrapping import Wrapped

aten = ops.aten
cpu = torch.device("cpu")


def names(recorder: Recorder) -> list[str]:
    return [event.name for event in recorder.events]


def training_step() -> tuple[torch.nn.Module, Any]:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    x = torch.ones(2, 3)

    def step() -> None:
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()

    return net, step


def record(run: Any) -> Recorder:
    recorder = Recorder()
    with recorder:
        run()
    return recorder


# ── events ──────────────────────────────────────────────────────────────────────────────────────


def test_event_says_what_ran() -> None:
    a, b = torch.ones(2, 3), torch.ones(3, 4, dtype=torch.float32)
    with Recorder() as recorder:
        torch.mm(a, b)
        line = sys._getframe().f_lineno - 1
    (event,) = recorder.events
    assert event.op == aten.mm.default == torch.ops.aten.mm.default
    assert event.name == "aten::mm"
    assert event.inputs == (
        TensorInfo(0, (2, 3), torch.float32, cpu),
        TensorInfo(1, (3, 4), torch.float32, cpu),
    )
    assert event.outputs == (TensorInfo(2, (2, 4), torch.float32, cpu),)
    assert event.args == event.inputs
    assert event.kwargs == {}
    assert event.shapes == ((2, 3), (3, 4), (2, 4))
    assert event.dtypes == (torch.float32,) * 3
    assert event.devices == (cpu,) * 3
    assert event.duration_ns > 0
    assert event.start_ns > 0
    assert event.thread == 0
    assert event.stack[-1] == (__file__, line, "test_event_says_what_ran")


def test_stack_leaves_out_torch_and_the_recorder() -> None:
    net, _ = training_step()
    recorder = record(lambda: net(torch.ones(1, 3)))
    for event in recorder.events:
        assert not any("/torch/" in frame.file for frame in event.stack)
        assert not any("dispatch_core/_" in frame.file for frame in event.stack)
        assert event.stack[-1].function == "<lambda>"


def test_stacks_can_be_left_out() -> None:
    with Recorder(stacks=False) as recorder:
        torch.ones(1)
    assert recorder.events[0].stack == ()


def test_arguments_are_kept_without_what_could_hold_tensors() -> None:
    generator = torch.Generator()
    with Recorder() as recorder:
        torch.cat([torch.ones(1), torch.zeros(2)], 0)
        torch.rand(2, generator=generator)
        torch.ones(1, 1)[None, torch.tensor([0])]
    cat = recorder.events[2]
    assert [info.shape for info in cat.args[0]] == [(1,), (2,)]
    assert cat.inputs == tuple(cat.args[0])
    assert recorder.events[3].args == ([2],)
    assert recorder.events[3].kwargs["generator"] == Opaque("Generator")
    index = next(event for event in recorder.events if event.name == "aten::index.Tensor")
    assert (index.args[1][0], index.args[1][1].dtype) == (None, torch.int64)


def test_tensors_keep_their_number_and_results_get_a_new_one() -> None:
    with Recorder() as recorder:
        x = torch.ones(2)
        y = x.add_(1)
        x + y
    numbers = [
        ([info.number for info in event.inputs], [info.number for info in event.outputs])
        for event in recorder.events
    ]
    assert numbers == [([], [0]), ([0], [1]), ([0, 0], [2])]


def test_number_of_a_dead_tensor_is_not_used_again() -> None:
    with Recorder() as recorder:
        for _ in range(5):
            torch.ones(2)
    assert [event.outputs[0].number for event in recorder.events] == [0, 1, 2, 3, 4]


def test_sources_are_the_events_that_wrote_an_input_last() -> None:
    with Recorder() as recorder:
        x = torch.ones(2)  # 0
        torch._foreach_add_([x], 1)  # 1, gives nothing back
        y = x * 2  # 2
        torch.add(x, y, out=y)  # 3
        y + x  # 4
    assert [event.sources for event in recorder.events] == [(), (0,), (1,), (1, 2), (1, 3)]


def test_operator_that_raises_leaves_no_event_and_raises_as_without() -> None:
    with Recorder() as recorder:
        a = torch.ones(2)
        with pytest.raises(RuntimeError, match="must match"):
            a + torch.ones(3)
    assert names(recorder) == ["aten::ones", "aten::ones"]


def test_views_lists_and_several_results() -> None:
    x = torch.arange(4.0)
    with Recorder() as recorder:
        x.view(2, 2)
        torch.max(x, 0)
        x.chunk(2)
    view, largest, split = recorder.events
    assert view.shapes == ((4,), (2, 2))
    assert largest.dtypes == (torch.float32, torch.float32, torch.int64)
    assert split.shapes == ((4,), (2,), (2,))


def test_wrapper_is_recorded_from_outside() -> None:
    w = Wrapped(torch.ones(2))
    with Recorder() as recorder:
        w + 1
    assert names(recorder) == ["aten::add.Tensor"]


def test_nested_recorders_both_see_it() -> None:
    with Recorder() as outer, Recorder() as inner:
        torch.ones(1)
    assert names(outer) == names(inner) == ["aten::ones"]
    assert outer.normalized() == inner.normalized()


def test_recorder_may_be_entered_again_and_goes_on() -> None:
    recorder = Recorder()
    for _ in range(2):
        with recorder:
            torch.ones(1)
    assert [event.index for event in recorder.events] == [0, 1]


def test_recorder_with_a_table_records_what_it_answers() -> None:
    class Sevens(Recorder):
        table = HandlerTable(missing="next")

    @Sevens.table.implements(aten.sin.default)
    def _(self: Any) -> Any:
        return torch.full((3,), 7.0)

    x = torch.ones(2)
    with Sevens() as recorder:
        assert x.sin().tolist() == [7, 7, 7]
    assert recorder.events[0].shapes == ((2,), (3,))


def test_no_dispatch_is_not_recorded() -> None:
    with Recorder() as recorder, no_dispatch():
        torch.ones(1)
    assert names(recorder) == []


# ── nothing is kept ─────────────────────────────────────────────────────────────────────────────


def test_no_tensor_is_kept_alive() -> None:
    with Recorder() as recorder:
        x = torch.ones(3)
        y = x * 2
        views = y.chunk(3)
        alive = [weakref.ref(tensor) for tensor in (x, y, *views)]
        del x, y, views
        assert [ref() for ref in alive] == [None] * 5
    assert recorder._seen == {}


def test_factory_is_not_followed_by_a_copy() -> None:
    with Recorder() as recorder:
        torch.ones(2) + 1
    assert names(recorder) == ["aten::ones", "aten::add.Tensor"]


@pytest.mark.slow
def test_memory_stays_within_the_bound_over_many_operators() -> None:
    x = torch.ones(1)
    with Recorder(stacks=False, max_events=100) as recorder:
        for _ in range(1000):
            x + 1
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(5000):
            x + 1
        gc.collect()
        after = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
    assert after - before < 300_000  # up to 100 more events than before
    assert len(recorder.events) == 100
    assert recorder.dropped == 5900
    assert recorder.events[-1].index == 5999


@pytest.mark.long
def test_memory_is_flat_over_100_000_operators() -> None:
    x = torch.ones(1)
    with Recorder(max_events=1000) as recorder:
        for _ in range(5000):
            x + 1
        gc.collect()
        tracemalloc.start()
        sizes = []
        for _ in range(4):
            for _ in range(25_000):
                x + 1
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
    assert max(sizes) - min(sizes) < 500_000
    assert len(recorder.events) == 1000


@pytest.mark.parametrize("bound", ["a", 1.5, True, 0, -1])
def test_bound_must_be_positive(bound: Any) -> None:
    with pytest.raises(TableError, match="positive"):
        Recorder(max_events=bound)


# ── the same program, the same record ───────────────────────────────────────────────────────────


def test_same_program_same_record() -> None:
    records = [record(training_step()[1]).normalized() for _ in range(3)]
    assert records[0] == records[1] == records[2]
    assert hash(records[0]) == hash(records[1])
    assert len(records[0]) > 20


def test_other_program_other_record() -> None:
    x = torch.ones(2)
    base = record(lambda: x.sin() + x).normalized()
    for other in (
        lambda: x.sin() + 1,
        lambda: x.cos() + x,
        lambda: x.double().sin() + x,
        lambda: x[:1].sin() + x,
        lambda: torch.add(x, x.sin()),
        lambda: torch.add(x.sin(), x, alpha=2),
    ):
        assert record(other).normalized() != base


def test_normalized_has_no_times_paths_or_threads() -> None:
    normalized = record(lambda: torch.ones(2) + 1).normalized()
    assert normalized == (
        (
            "aten::ones",
            ((2,),),
            (("device", "device(type='cpu')"), ("pin_memory", "False")),
            (("$0", (2,), "float32", "cpu"),),
        ),
        (
            "aten::add.Tensor",
            (("$0", (2,), "float32", "cpu"), 1),
            (),
            (("$1", (2,), "float32", "cpu"),),
        ),
    )


def test_threads_are_told_apart_and_put_in_an_order_of_their_own() -> None:
    def run() -> Recorder:
        recorder = Recorder()
        with recorder:
            torch.zeros(1)
            threads = [
                threading.Thread(target=propagate_modes(work))
                for work in (lambda: torch.ones(1), lambda: torch.ones(2) + 1)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        return recorder

    first = run()
    assert first.normalized() == run().normalized()
    assert {event.thread for event in first.events} == {0, 1, 2}


def test_events_are_of_operators_with_handles() -> None:
    recorder = record(training_step()[1])
    for event in recorder.events:
        assert event.op == handle_of(event.op)
