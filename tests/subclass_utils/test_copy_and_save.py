"""Wrappers that are copied, pickled, saved, flattened and collated come back as they were."""

from __future__ import annotations

import copy
import io
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from subclass_utils import (
    CopyError,
    LoggingTensor,
    WrapperTensor,
    flatten_state_dict,
    unflatten_state_dict,
)
from torch.utils.data import DataLoader

from tests.subclass_utils.wrappers import Measured, Origin, Scaled, ScaledOnPlain, Unit, scaled

aten = torch.ops.aten

WRAPPERS: dict[str, Callable[[], Any]] = {
    "whole": lambda: Measured(torch.randn(2, 3), Unit.METRE, Origin("here", (1, 2))),
    "sliced": lambda: Measured(torch.randn(4, 5), Unit.METRE)[1:, 2:],
    "empty": lambda: Measured(torch.ones(0, 3), Unit.METRE),
    "0-dim": lambda: Measured(torch.ones(()), Unit.METRE),
    "transposed": lambda: Measured(torch.randn(4, 5), Unit.METRE).t(),
    "expanded": lambda: Measured(torch.ones(3, 1), Unit.METRE).expand(3, 4),
    "conjugated": lambda: Measured(torch.randn(2, dtype=torch.complex64)).conj(),
    "requires grad": lambda: Measured(torch.randn(2), Unit.METRE, requires_grad=True),
    "parameter": lambda: torch.nn.Parameter(Measured(torch.randn(2), Unit.METRE)),
    "nested": lambda: Measured(LoggingTensor(torch.randn(2)), Unit.METRE),
    "two inner tensors": lambda: scaled(1.0, 2.0),
}


def by_torch(wrapper: Any) -> Any:
    file = io.BytesIO()
    torch.save(wrapper, file)
    file.seek(0)
    return torch.load(file)


def by_state_dict(wrapper: Any) -> Any:
    tensors, description = flatten_state_dict({"w": wrapper})
    assert all(type(tensor) is torch.Tensor for tensor in tensors.values())
    return unflatten_state_dict(tensors, description)["w"]


WAYS: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda wrapper: pickle.loads(pickle.dumps(wrapper)),
    "torch.save": by_torch,
    "flatten_state_dict": by_state_dict,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", WRAPPERS)
def test_comes_back_as_it_was(kind: str, way: str) -> None:
    wrapper = WRAPPERS[kind]()
    other = WAYS[way](wrapper)
    assert type(other) is type(wrapper)
    assert other is not wrapper
    for ask in ("size", "stride", "storage_offset", "is_conj"):
        if (ask, way) == ("is_conj", "deepcopy"):
            continue  # torch's deepcopy of a plain tensor resolves the bit
        assert getattr(other, ask)() == getattr(wrapper, ask)(), ask
    assert other.requires_grad == wrapper.requires_grad
    assert isinstance(other, torch.nn.Parameter) == isinstance(wrapper, torch.nn.Parameter)
    for name in type(wrapper).metadata:
        assert getattr(other, name) == getattr(wrapper, name)
    assert torch.equal(innermost(other), innermost(wrapper))


def innermost(wrapper: Any) -> torch.Tensor:
    while isinstance(wrapper, WrapperTensor):
        wrapper = wrapper.to_plain()
    plain: torch.Tensor = wrapper
    return plain


@pytest.mark.parametrize("way", ["deepcopy", "pickle", "torch.save"])
def test_gradient_and_own_attributes_come_along(way: str) -> None:
    wrapper: Any = Measured(torch.ones(2), Unit.METRE, requires_grad=True)
    (wrapper * 3).sum().backward()
    wrapper.note = "mine"
    other = WAYS[way](wrapper)
    assert type(other.grad) is Measured
    assert other.grad.elem.tolist() == [3.0, 3.0]
    assert other.note == "mine"


@pytest.mark.parametrize("way", ["deepcopy", "pickle", "torch.save"])
def test_shared_inner_tensors_stay_shared(way: str) -> None:
    inner = torch.ones(2)
    first, second = WAYS[way]([Measured(inner), Measured(inner)])
    assert first.elem is not inner
    assert first.elem.data_ptr() == second.elem.data_ptr()


def test_shared_parameters_stay_shared_in_a_flat_state_dict() -> None:
    wrapper = Measured(torch.ones(2))
    tensors, description = flatten_state_dict({"a": wrapper, "b": wrapper, "c": torch.ones(1)})
    assert list(tensors) == ["a.elem", "c"]
    state = unflatten_state_dict(tensors, description)
    assert state["a"] is state["b"]
    assert type(state["c"]) is torch.Tensor


def test_description_is_json_that_names_class_and_metadata() -> None:
    _, description = flatten_state_dict({"w": Measured(torch.ones(1), Unit.METRE)})
    entry = json.loads(description)["tensors"]["w"]
    assert entry["class"] == ["tests.subclass_utils.wrappers", "Measured"]
    assert entry["metadata"]["unit"][-1] == "METRE"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors, text: ({}, text), "the tensor 'w.elem' is missing"),
        (lambda tensors, text: (tensors, "{}"), "none that flatten_state_dict gave"),
        (lambda tensors, text: (tensors, text.replace("Measured", "Gone")), "class Gone of module"),
        (lambda tensors, text: (tensors, text.replace("tests.", "no.")), "import the module"),
    ],
)
def test_unflatten_names_what_is_missing(change: Any, message: str) -> None:
    with pytest.raises(CopyError, match=message):
        unflatten_state_dict(*change(*flatten_state_dict({"w": Measured(torch.ones(1))})))


def test_decoding_metadata_builds_nothing_but_enums_and_frozen_dataclasses() -> None:
    tensors, text = flatten_state_dict({"w": Measured(torch.ones(1), Unit.METRE)})
    harmful = text.replace('"tests.subclass_utils.wrappers", "Unit"', '"builtins", "exec"')
    assert harmful != text
    with pytest.raises(CopyError, match="class exec of module builtins"):
        unflatten_state_dict(tensors, harmful)


def test_computed_tensor_cannot_be_deep_copied() -> None:
    x = Measured(torch.ones(1), requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="only tensors that were created explicitly"):
        copy.deepcopy(x)


def test_deepcopy_where_clone_gives_another_class_is_refused() -> None:
    class Cloned(WrapperTensor):
        pass

    @Cloned.table.implements(aten.clone.default)
    def clone(self: Any, *, memory_format: Any = None) -> Any:
        return LoggingTensor(self.elem.clone())

    with pytest.raises(RuntimeError, match="cloning must return the same subclass"):
        copy.deepcopy(Cloned(torch.ones(1)))


@pytest.mark.slow
def test_loads_in_another_process_that_imported_the_class(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    torch.save({"a": LoggingTensor(torch.ones(2)), "b": WRAPPERS["whole"]()}, path)
    code = (
        "import sys, torch, tests.subclass_utils.wrappers as w\n"
        "state = torch.load(sys.argv[1])\n"
        "print(type(state['a']).__name__, state['b'].unit is w.Unit.METRE, state['b'].origin)"
    )
    command = [sys.executable, "-c", code, str(path)]
    root = Path(__file__).parents[2]
    out = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    assert out.strip() == "LoggingTensor True Origin(place='here', shape=(1, 2))"


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_default_collation_gives_the_class_with_workers_and_without(workers: int) -> None:
    data: Any = [Measured(torch.full((2,), float(i)), Unit.METRE) for i in range(4)]
    for batch in DataLoader(data, batch_size=2, num_workers=workers):
        assert type(batch) is Measured
        assert batch.unit is Unit.METRE
        assert batch.shape == batch.elem.shape == (2, 2)


@pytest.mark.parametrize("cls", [Scaled, ScaledOnPlain])
def test_collation_of_a_class_without_a_stack_handler_goes_by_its_plain_value(cls: Any) -> None:
    data: Any = [cls.from_plain(torch.tensor([value])) for value in (1.0, 2.0)]
    (batch,) = DataLoader(data, batch_size=2)
    assert type(batch) is cls
    assert batch.to_plain().tolist() == [[1.0], [2.0]]


@pytest.mark.slow
def test_queue_of_another_process_carries_wrappers() -> None:
    context = torch.multiprocessing.get_context("fork")
    queue, taken = context.Queue(), context.Event()

    def send() -> None:
        queue.put(WRAPPERS["whole"]())
        taken.wait(60)  # shared memory is passed on by a process that lives

    process = context.Process(target=send)
    process.start()
    received = queue.get(timeout=60)
    taken.set()
    process.join()
    assert type(received) is Measured
    assert received.elem.is_shared()


def test_metadata_that_was_set_to_what_cannot_travel_is_named() -> None:
    wrapper = Measured(torch.ones(1))
    wrapper.origin = object()  # type: ignore[assignment]
    with pytest.raises(CopyError, match="Measured: metadata 'origin' is a object, which cannot t"):
        by_torch(wrapper)
