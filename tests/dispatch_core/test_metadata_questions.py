"""A class that answers for its sizes, layout and device, which torch asks of it as operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from dispatch_core import (
    DispatchMode,
    HandlerTable,
    MemorylessError,
    NoHandlerError,
    Recorder,
    UnknownOperatorError,
    enable_python_mode,
    handle_of,
    keep_composite,
    no_dispatch,
    ops,
)


class Asked(torch.Tensor):
    """A wrapper of which torch asks everything."""

    table = HandlerTable()
    within: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Any:
        made: Any = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            dtype=inner.dtype,
            device=inner.device,
            dispatch_sizes_strides_policy="sizes",
            dispatch_device=True,
            dispatch_layout=True,
        )
        made.within = inner
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return cls.table.dispatch(func, types, args, kwargs)


@Asked.table.fallback
def unwrap(func: Any, *args: Any, **kwargs: Any) -> Any:
    return func(*[a.within if isinstance(a, Asked) else a for a in args], **kwargs)


class Unanswering(Asked):
    """The same without a handler."""

    table = HandlerTable()


class Decomposing(Asked):
    table = HandlerTable(missing="decompose")


QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "prim::device": lambda w: w.device,
    "prim::layout": lambda w: w.layout,
    "aten::sym_size": lambda w: w.shape,
    "aten::sym_stride": lambda w: w.stride(),
    "aten::sym_numel": lambda w: w.numel(),
    "aten::dim": lambda w: w.dim(),
    "aten::is_contiguous": lambda w: w.is_contiguous(),
    "aten::sym_storage_offset": lambda w: w.storage_offset(),
}
ANSWERS = [torch.device("cpu"), torch.strided, torch.Size([2, 3]), (3, 1), 6, 2, True, 0]


class PassesOn(DispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class PassesOnByTable(DispatchMode):
    table = HandlerTable(missing="next")


@PassesOnByTable.table.implements_where(predicate=lambda handle: not handle.facts.random)
def passes_on(func: Any, *args: Any, **kwargs: Any) -> Any:
    return func(*args, **kwargs)


def ask(w: Any) -> list[Any]:
    return [question(w) for question in QUESTIONS.values()]


@pytest.mark.parametrize(
    "mode",
    [
        DispatchMode,
        PassesOn,
        PassesOnByTable,
        Recorder,
        lambda: enable_python_mode(Asked),
        lambda: keep_composite("aten::kl_div"),
        no_dispatch,
    ],
)
def test_questions_are_answered_as_without_a_mode(mode: Any) -> None:
    w = Asked(torch.ones(2, 3))
    assert ask(w) == ANSWERS
    with mode():
        assert ask(w) == ANSWERS


def test_computing_is_refused_where_questions_are_answered() -> None:
    w = Asked(torch.ones(2, 3))
    with (
        no_dispatch(),
        pytest.raises(MemorylessError, match=r"^aten::add\.Tensor: argument 'self'"),
    ):
        w + 1


@pytest.mark.parametrize("missing", ["error", "decompose"])
@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("where", ["class", "mode"])
def test_question_without_a_handler_is_named(name: str, missing: Any, where: str) -> None:
    if where == "class":
        cls = Unanswering if missing == "error" else Decomposing
        cls.table._fallback, Asked.table._fallback = None, None
        cls.table._entries.clear()
        try:
            with pytest.raises(NoHandlerError, match=f"^{name}: nobody took the call"):
                QUESTIONS[name](cls(torch.ones(2, 3)))
        finally:
            Asked.table.fallback(unwrap)
        return
    w = Asked(torch.ones(2, 3))
    with DispatchMode(HandlerTable(missing=missing)):
        with pytest.raises(NoHandlerError, match=f"^{name}: nobody took the call"):
            QUESTIONS[name](w)
        with pytest.raises(NoHandlerError):  # and again, with nothing left over from the first
            QUESTIONS[name](w)


def test_coverage_lists_the_questions() -> None:
    found = Asked.table.coverage(ask, Asked(torch.ones(2, 3)))
    assert {op.name() for op in found.hits} == set(QUESTIONS)
    assert not found.missing


def test_operator_that_only_torchscript_knows_has_facts() -> None:
    facts = handle_of(torch.ops.prim.device.default).facts
    assert (facts.composite, facts.view, facts.mutates) == ("no", False, ())
    assert ops.prim.device.default.bind((1,)) == {"a": 1}
    with pytest.raises(UnknownOperatorError, match="prim has no operator 'devise'"):
        _ = ops.prim.devise


def test_handler_can_be_registered_as_the_error_says() -> None:
    class Answering(Asked):
        table = HandlerTable()

    @Answering.table.implements(ops.prim.device.default)
    def device(a: Any) -> Any:
        return torch.device("meta")

    assert Answering(torch.ones(2, 3)).device == torch.device("meta")
    assert Asked(torch.ones(2, 3)).device == torch.device("cpu")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*torch.cpp_extension:UserWarning")
def test_compiled_by_parts_inside_a_mode() -> None:
    from torch._functorch.aot_autograd import aot_function

    def keep(gm: Any, example_inputs: Any) -> Any:
        return gm

    x = torch.randn(3, 3)
    with PassesOn():
        compiled = aot_function(lambda x: (x @ x + 1).sum(), keep)
        assert torch.equal(compiled(x), (x @ x + 1).sum())
