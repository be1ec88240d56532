"""keep_composite where a scope has been closed since, where torch traces, and for own arguments."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from dispatch_core import DispatchMode, Recorder, checkpoint, keep_composite, propagate_modes
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

aten = torch.ops.aten


class Watch(DispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


PROGRAMS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "linear": (aten.linear, lambda x: torch.nn.functional.linear(x, x)),
    "matmul": (aten.matmul, lambda x: x @ x.t()),
    "cosine_similarity": (
        aten.cosine_similarity,
        lambda x: torch.cosine_similarity(x, x.sin()),
    ),
    "kl_div": (aten.kl_div, lambda x: aten.kl_div(x, x.exp())),
    "layer_norm": (aten.layer_norm, lambda x: torch.nn.functional.layer_norm(x, (4,))),
}


def argument() -> Any:
    torch.manual_seed(0)
    return torch.randn(3, 4, requires_grad=True)


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize(("op", "program"), PROGRAMS.values(), ids=PROGRAMS)
def test_checkpoint_recomputes_what_is_kept_whole_after_the_scope(
    op: Any, program: Any, use_reentrant: bool
) -> None:
    x, y = argument(), argument()
    program(y).sum().backward()
    with keep_composite(op), Watch():
        result = checkpoint(program, x, use_reentrant=use_reentrant).sum()
    result.backward()
    torch.testing.assert_close(x.grad, y.grad)
    with Recorder() as recorder:
        program(argument())
    assert op.default.name() not in [event.name for event in recorder.events]


def test_what_was_carried_is_kept_whole_after_the_scope() -> None:
    x = torch.ones(2)
    recorder = Recorder()

    def work() -> None:
        aten.kl_div(x, x)

    with keep_composite(aten.kl_div), recorder:
        carried = propagate_modes(work)
    carried()
    thread = threading.Thread(target=carried)
    thread.start()
    thread.join()
    assert [event.name for event in recorder.events] == ["aten::kl_div"] * 2
    with recorder:
        work()
    assert [event.name for event in recorder.events][2:] != ["aten::kl_div"]
    assert _get_current_dispatch_mode_stack() == []


def test_error_in_what_was_carried_removes_the_kernels() -> None:
    with keep_composite(aten.kl_div):
        carried = propagate_modes(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        carried()  # type: ignore[no-untyped-call]
    with Recorder() as recorder:
        aten.kl_div(torch.ones(1), torch.ones(1))
    assert len(recorder.events) > 1


@pytest.mark.parametrize("op", [aten.linear, aten.layer_norm, aten.matmul])
def test_module_can_be_traced_while_its_operators_are_kept(op: Any) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LayerNorm(2))
    x = torch.ones(1, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)  # the tracer is called old
        with keep_composite(op), Watch():
            traced = torch.jit.trace(module, (x,))
        torch.testing.assert_close(traced(x), module(x))
        kinds = [node.kind() for node in traced.inlined_graph.nodes()]
    assert "aten::linear" in kinds
    assert "aten::layer_norm" in kinds


OWN: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "to": (aten.to, lambda x: x.to(torch.float32)),
    "contiguous": (aten.contiguous, lambda x: x.contiguous()),
    "resolve_conj": (aten.resolve_conj, lambda x: x.resolve_conj()),
    "dropout": (aten.dropout, lambda x: aten.dropout(x, 0.5, False)),
    "type_as": (aten.type_as, lambda x: x.type_as(x)),
}


@pytest.mark.parametrize(("op", "program"), OWN.values(), ids=OWN)
def test_operator_that_gives_its_own_argument_gives_that_argument(op: Any, program: Any) -> None:
    x = argument()
    plain = program(x)
    with keep_composite(op), Watch():
        kept = program(x)
        assert (kept is x) == (plain is x)
        assert kept.is_leaf == plain.is_leaf
        kept.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.ones(3, 4))


def test_data_of_a_kept_operator_needs_no_gradient() -> None:
    x = argument()
    with keep_composite(aten.data), Watch():
        assert aten.data(x).requires_grad is False
