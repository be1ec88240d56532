"""Recorder: whatever the program hands to its operators, it goes on, and is the same record."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from dispatch_core import DispatchMode, HandlerTable, Recorder
from torch.utils._python_dispatch import TorchDispatchMode

from tests.dispatch_core.wrapping import Wrapped


class Watch(TorchDispatchMode):
    """The plainest mode that passes on."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def nested_tensors_are_new() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*nested tensors is in prototype")
        warnings.filterwarnings("ignore", message=".*Sparse .* tensor support is in beta")
        warnings.filterwarnings("ignore", message=".*quantized tensor creation functions")
        yield


def nested(layout: torch.layout = torch.strided) -> Any:
    return torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=layout)


def encode() -> Any:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 1).eval()
    with torch.no_grad():
        mask = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
        return encoder(torch.ones(2, 5, 8), src_key_padding_mask=mask)


class ShapeRaises(torch.Tensor):
    """A subclass with properties of its own."""

    @property
    def shape(self) -> Any:  # type: ignore[override]
        raise ValueError("no shape")

    @property
    def dtype(self) -> Any:  # type: ignore[override]
        raise TypeError("no dtype")

    def dim(self) -> int:
        raise RuntimeError("no dim")


class Counts(torch.Tensor):
    """A subclass that counts what is asked of it."""

    asked = 0

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        Counts.asked += 1
        return super().__torch_function__(  # type: ignore[no-untyped-call]
            func, types, args, kwargs or {}
        )


def counted() -> Any:
    x = torch.ones(2).as_subclass(Counts)
    Counts.asked = 0
    y = (x + 1) * 2
    return torch.tensor([float(Counts.asked)]) + y.as_subclass(torch.Tensor)


PROGRAMS: dict[str, Callable[[], Any]] = {
    "strided nested": lambda: (nested() * 2).to_padded_tensor(0.0),
    "jagged nested": lambda: (nested(torch.jagged) * 2).values(),
    "transformer encoder": encode,
    "sparse": lambda: (torch.eye(3).to_sparse() * 2).to_dense(),
    "sparse rows": lambda: (torch.eye(3).to_sparse_csr() * 2).to_dense(),
    "quantized": lambda: torch.quantize_per_tensor(
        torch.ones(2), 0.1, 0, torch.quint8
    ).dequantize(),
    "wrapper": lambda: Wrapped.unwrap(Wrapped(torch.ones(2)) * 2),
    "own properties": lambda: (torch.ones(2).as_subclass(ShapeRaises) * 2).as_subclass(
        torch.Tensor
    ),
    "own torch function": counted,
    "no elements": lambda: torch.ones(0, 3).sum(),
    "mkldnn": lambda: torch.ones(2, 2).to_mkldnn().to_dense(),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_program_runs_as_without_and_can_be_written_down(program: Any) -> None:
    with Watch():  # type: ignore[no-untyped-call]  # some kernels know whether a mode is on
        plain = program()
    with Recorder() as recorder:
        watched = program()
    assert torch.equal(watched, plain)
    assert recorder.events
    for event in recorder.events:
        assert not any("cannot be described" in repr(value) for value in event.args)
    assert recorder.to_text().count("\n") == len(recorder.events)
    for text in (recorder.to_jsonl(), recorder.to_chrome_trace(), recorder.to_mermaid()):
        assert text
    hash(recorder.normalized())


def test_sizes_that_a_nested_tensor_has_not() -> None:
    x = nested()
    with Recorder() as recorder:
        x * 2
    shape: Any = recorder.events[0].inputs[0].shape
    assert shape == (2, "?", 3)


class Op:
    """An operator that takes anything, as higher-order ones do."""

    def name(self) -> str:
        return "odd::op"

    def __call__(self, *args: Any) -> int:
        return len(args)


def test_arguments_that_cannot_be_described_leave_an_event_without() -> None:
    deep: list[Any] = []
    deep.append(deep)
    recorder = Recorder()
    assert recorder._record(Op(), (), (deep,)) == 1
    assert recorder._record(Op(), (), (1,)) == 1
    first, second = recorder.to_text().splitlines()
    assert first.startswith("odd::op(<arguments that cannot be described>) -> nothing")
    assert second.startswith("odd::op(1) -> nothing")
    assert recorder.normalized()[1] == ("odd::op", (1,), (), ())


# ── the same record ─────────────────────────────────────────────────────────────────────────────


def test_jagged_sizes_are_named_afresh_in_each_record() -> None:
    def run() -> Any:
        with Recorder() as recorder:
            x = nested(torch.jagged)
            y = nested(torch.jagged)
            (x * 2).sum()
            (y * 2).sum()
        return recorder.normalized()

    first = run()
    assert first == run()
    assert "size0" in repr(first)
    assert "size1" in repr(first)


def _bag() -> Any:
    torch.manual_seed(0)
    bag = torch.nn.EmbeddingBag(5, 3)
    return bag(torch.tensor([0, 1, 2]), torch.tensor([0, 2])).sum().backward()


def _norm() -> Any:
    x = torch.ones(2, 3, requires_grad=True)
    torch.nn.functional.layer_norm(x, (3,)).sum().backward()
    return torch.nn.functional.gelu(x).sum().backward()


def _rnn() -> Any:
    torch.manual_seed(0)
    return torch.nn.GRU(3, 2)(torch.ones(1, 1, 3))[0].sum().backward()


@pytest.mark.parametrize("program", [_bag, _norm, _rnn])
@pytest.mark.parametrize("who", ["plain", "ours", "recorder", "outside"])
def test_record_is_the_same_whoever_watches_too(program: Any, who: str) -> None:
    with Recorder() as alone:
        program()
    makers: dict[str, Any] = {
        "plain": Watch,
        "ours": lambda: DispatchMode(HandlerTable(missing="next")),
        "recorder": Recorder,
        "outside": Watch,
    }
    other = makers[who]()
    recorder = Recorder()
    if who == "outside":
        with other, recorder:
            program()
    else:
        with recorder, other:
            program()
    assert recorder.normalized() == alone.normalized()
    if who == "recorder":
        assert other.normalized() == alone.normalized()


def test_numbers_of_different_types_are_different_programs() -> None:
    x = torch.ones(2)
    found = []
    for number in (1, True, 1.0):
        with Recorder() as recorder:
            x + number
        found.append(recorder.normalized())
    assert len(set(found)) == 3


# ── sources ─────────────────────────────────────────────────────────────────────────────────────


def sources(program: Callable[[], object]) -> dict[str, list[str]]:
    with Recorder() as recorder:
        program()
    events = recorder.events
    return {event.name: [events[at].name for at in event.sources] for event in events}


def test_write_through_a_view_is_a_source_of_what_reads_the_base() -> None:
    def program() -> None:
        x = torch.zeros(4)
        x.view(2, 2).add_(1)
        x.mul(2)

    assert sources(program)["aten::mul.Tensor"] == ["aten::add_.Tensor"]


def test_write_to_the_base_is_a_source_of_what_reads_a_view() -> None:
    def program() -> None:
        x = torch.zeros(4)
        first, second = x.split(2)
        x.add_(1)
        second.mul(2)
        first.detach().t().neg()

    found = sources(program)
    assert found["aten::mul.Tensor"] == ["aten::add_.Tensor"]
    assert found["aten::neg"] == ["aten::t"]
    assert found["aten::t"] == ["aten::detach"]


def test_write_to_another_tensor_is_none() -> None:
    def program() -> None:
        x = torch.zeros(4)
        y = x.clone()
        y.view(2, 2).add_(1)
        x.mul(2)

    assert sources(program)["aten::mul.Tensor"] == ["aten::zeros"]


def test_arrow_for_a_write_through_a_view() -> None:
    with Recorder() as recorder:
        x = torch.zeros(4)
        x.view(2, 2).add_(1)
        x.mul(2)
    assert [event.name for event in recorder.events][2:] == [
        "aten::add_.Tensor",
        "aten::mul.Tensor",
    ]
    assert "op2 --> op3" in recorder.to_mermaid()
