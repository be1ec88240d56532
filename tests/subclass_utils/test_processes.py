"""Wrappers of every kind go to other processes and come back: files, workers, queues."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from subclass_utils import LoggingTensor, PlainView, WrapperTensor
from torch.utils.data import DataLoader, Dataset

from tests.subclass_utils.wrappers import (
    ComplexPair,
    Measured,
    Origin,
    Requantised,
    RequantisedInParts,
    Scaled,
    Unit,
)

pytestmark = pytest.mark.slow


def values(start: float) -> torch.Tensor:
    return torch.arange(6.0).view(2, 3) + start


# Each kind of declaration; a function of a number, so that the items of a data set differ.
KINDS: dict[str, Callable[[float], Any]] = {
    "logging": lambda n: LoggingTensor(values(n)),
    "transparent": lambda n: Measured(values(n), Unit.METRE, Origin("here", (1, 2))),
    "transparent, sliced": lambda n: Measured(torch.stack([values(n), values(n)]), Unit.METRE)[1],
    "nested": lambda n: Measured(LoggingTensor(values(n)), Unit.METRE),
    "error": lambda n: Scaled.from_plain(values(n)),
    "to_plain": lambda n: Requantised.from_plain(values(n)),
    "to_plain, a part": lambda n: RequantisedInParts.from_plain(values(n))[:, 1:],
    "to_plain, complex": lambda n: ComplexPair.from_plain(torch.complex(values(n), values(0))),
    "view of to_plain": lambda n: Requantised.from_plain(values(n))[1],
    "conjugated view": lambda n: ComplexPair.from_plain(torch.complex(values(n), values(1))).conj(),
}


def value_of(wrapper: Any) -> torch.Tensor:
    while isinstance(wrapper, WrapperTensor):
        wrapper = wrapper.to_plain()
    plain: torch.Tensor = wrapper
    return plain.resolve_conj()


def same(got: Any, wanted: Any) -> bool:
    """Say whether class, outside, metadata and values are the same."""
    return (
        type(got) is type(wanted)
        and got.size() == wanted.size()
        and got.stride() == wanted.stride()
        and got.dtype is wanted.dtype
        and got.is_conj() == wanted.is_conj()
        and all(getattr(got, name) == getattr(wanted, name) for name in type(wanted).metadata)
        and torch.equal(value_of(got), value_of(wanted))
    )


# ── files ───────────────────────────────────────────────────────────────────────────────────────

LOAD = """
import sys, torch
import tests.subclass_utils.test_processes as here
state = torch.load(sys.argv[1], weights_only=True)
wrong = [kind for kind, make in here.KINDS.items() if not here.same(state[kind], make(1.0))]
assert set(state) == set(here.KINDS) and not wrong, wrong
"""


def test_every_kind_is_loaded_by_a_process_that_imported_the_classes(tmp_path: Path) -> None:
    path = tmp_path / "wrappers.pt"
    torch.save({kind: make(1.0) for kind, make in KINDS.items()}, path)
    command = [sys.executable, "-c", LOAD, str(path)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# ── workers ─────────────────────────────────────────────────────────────────────────────────────


class Wrappers(Dataset[Any]):
    """Four items of each kind, one kind after the other."""

    def __len__(self) -> int:
        return 4 * len(KINDS)

    def __getitem__(self, index: int) -> Any:
        return list(KINDS.values())[index // 4](float(index % 4))


@pytest.mark.parametrize("start", [None, "fork", "spawn"])
def test_batches_are_of_the_class_with_workers_and_without(start: str | None) -> None:
    workers = {} if start is None else {"num_workers": 2, "multiprocessing_context": start}
    batches = list(DataLoader(Wrappers(), batch_size=4, **workers))  # type: ignore[arg-type]
    for (kind, make), batch in zip(KINDS.items(), batches, strict=True):
        items = [make(float(n)) for n in range(4)]
        assert type(batch) is (torch.Tensor if type(items[0]) is PlainView else type(items[0])), (
            kind
        )
        assert torch.allclose(value_of(batch), torch.stack(list(map(value_of, items))), atol=1e-3)
        for name in type(items[0]).metadata:
            assert getattr(batch, name) == getattr(items[0], name), kind


# ── queues ──────────────────────────────────────────────────────────────────────────────────────


def send(queue: Any, taken: Any) -> None:
    for make in KINDS.values():
        queue.put(make(2.0))
    taken.wait(60)  # shared memory is passed on by a process that lives


def send_back(incoming: Any, outgoing: Any, taken: Any) -> None:
    for _ in KINDS:
        outgoing.put(incoming.get(timeout=60))
    taken.wait(60)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_every_kind_comes_out_of_another_process(start: str) -> None:
    context: Any = torch.multiprocessing.get_context(start)
    queue, taken = context.Queue(), context.Event()
    process = context.Process(target=send, args=(queue, taken))
    process.start()
    received = [queue.get(timeout=60) for _ in KINDS]
    wrong = [
        kind
        for (kind, make), got in zip(KINDS.items(), received, strict=True)
        if not same(got, make(2.0))
    ]
    taken.set()
    process.join()
    assert wrong == []
    assert process.exitcode == 0


def test_every_kind_goes_into_another_process_and_back() -> None:
    context = torch.multiprocessing.get_context("spawn")
    there, back, taken = context.Queue(), context.Queue(), context.Event()
    process = context.Process(target=send_back, args=(there, back, taken))
    process.start()
    sent = [make(3.0) for make in KINDS.values()]
    for wrapper in sent:
        there.put(wrapper)
    wrong = [
        kind
        for kind, wrapper in zip(KINDS, sent, strict=True)
        if not same(back.get(timeout=60), wrapper)
    ]
    taken.set()
    process.join()
    assert wrong == []
    assert process.exitcode == 0
