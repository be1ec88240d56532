"""DispatchMode: answering, declining, nesting, and leaving the stack as it was."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Generator
from typing import Any

import pytest
import torch
from dispatch_core import (
    DispatchMode,
    HandlerTable,
    ModeStateError,
    NoHandlerError,
    Recorder,
    ops,
)
from torch.utils._python_dispatch import TorchDispatchMode

from tests.dispatch_core.wrapping import Tabled, Wrapped, run_plain, tabled

aten = ops.aten


def stack() -> list[Any]:
    return list(torch.utils._python_dispatch._get_current_dispatch_mode_stack())


class Named(DispatchMode):
    """Notes that it was asked, and passes on; or declines; or answers."""

    def __init__(self, name: str, asked: list[str], does: str = "passes on") -> None:
        super().__init__()
        self.name = name
        self.asked = asked
        self.does = does

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.asked.append(self.name)
        if self.does == "declines":
            return NotImplemented
        if self.does == "answers":
            return torch.full((1,), 7.0)
        return func(*args, **(kwargs or {}))


def table_mode(name: str, asked: list[str], does: str) -> DispatchMode:
    """Make the same kind of mode from a table."""
    table = HandlerTable(missing="next")

    @table.fallback
    def handler(func: Any, *args: Any, **kwargs: Any) -> Any:
        asked.append(name)
        if does == "declines":
            return NotImplemented
        if does == "answers":
            return torch.full((1,), 7.0)
        return func(*args, **kwargs)

    return DispatchMode(table)


MAKERS: dict[str, Any] = {"by hand": Named, "table": table_mode}
makers = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


# ── answering ───────────────────────────────────────────────────────────────────────────────────


def test_table_answers_some_operators_and_the_rest_runs() -> None:
    class Doubles(DispatchMode):
        table = HandlerTable(missing="next")

    @Doubles.table.implements(aten.add.Tensor)
    def _(self: Any, other: Any, *, alpha: Any = 1) -> Any:
        return torch.add(self, other, alpha=alpha) * 2

    x = torch.ones(2)
    with Doubles():
        assert (x + x).tolist() == [4, 4]
        assert (x * 3).tolist() == [3, 3]
    assert (x + x).tolist() == [2, 2]


def test_missing_error_names_the_operator() -> None:
    class Strict(DispatchMode):
        table = HandlerTable()

    x = torch.ones(1)
    with Strict(), pytest.raises(NoHandlerError, match=r"aten::add\.Tensor: nobody took"):
        x + x


def test_missing_decompose_brings_the_parts_to_the_mode() -> None:
    seen: list[str] = []

    class Parts(DispatchMode):
        table = HandlerTable(missing="decompose")

    @Parts.table.implements(aten.t)
    @Parts.table.implements(aten.mm)
    def _(func: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(str(func))
        return func(*args, **kwargs)

    x = torch.ones(1, 1)
    with torch.inference_mode(), Parts():
        torch.nn.functional.linear(x, x)
        with pytest.raises(NoHandlerError, match="aten::sin"):
            x.sin()
    assert seen == ["aten.t.default", "aten.mm.default"]
    assert stack() == []


def test_table_may_be_of_the_class_or_of_the_instance() -> None:
    table = HandlerTable()
    table.fallback(run_plain)
    mode = DispatchMode(table)
    assert mode.table is table
    mode.table = HandlerTable(missing="next")
    x = torch.ones(1)
    with mode:
        assert (x + x).item() == 2


def test_class_that_does_not_call_super_init_works() -> None:
    class Bare(DispatchMode):
        def __init__(self) -> None:
            pass

    with Bare():
        assert torch.ones(1).item() == 1


# ── order ───────────────────────────────────────────────────────────────────────────────────────


@makers
def test_inner_mode_first_then_outer(make: Any) -> None:
    asked: list[str] = []
    x = torch.ones(1)
    with make("outer", asked, "passes on"), make("inner", asked, "passes on"):
        y = x + 1
    assert y.item() == 2
    assert asked == ["inner", "outer"]


@makers
def test_inner_mode_that_declines_does_not_hide_the_outer(make: Any) -> None:
    asked: list[str] = []
    x = torch.ones(1)
    outer, middle = make("outer", asked, "answers"), make("middle", asked, "declines")
    with outer, middle, make("inner", asked, "declines"):
        y = x + 1
    assert y.item() == 7
    assert asked == ["inner", "middle", "outer"]


@makers
def test_modes_that_all_decline_run_plain_tensors_as_without(make: Any) -> None:
    asked: list[str] = []
    x = torch.ones(1, requires_grad=True)
    with make("outer", asked, "declines"), make("inner", asked, "declines"):
        y = x * 3
    assert asked == ["inner", "outer"]
    y.backward()
    assert x.grad is not None
    assert x.grad.item() == 3


@makers
@pytest.mark.parametrize("does", ["declines", "passes on"])
def test_modes_then_subclasses(make: Any, does: str) -> None:
    asked: list[str] = []

    class Ours(Tabled):
        table = HandlerTable()

    @Ours.table.fallback
    def _(func: Any, *args: Any, **kwargs: Any) -> Any:
        asked.append("class")
        return run_plain(func, *args, **kwargs)

    x = tabled([1.0], Ours)
    with make("outer", asked, does), make("inner", asked, does):
        assert (x + 1).item() == 2
    assert asked == ["inner", "outer", "class", "inner", "outer"]  # the last two: item


@makers
def test_everybody_declined_lists_the_classes(make: Any) -> None:
    class One(Tabled):
        table = HandlerTable(missing="next")

    class Two(Tabled):
        table = HandlerTable(missing="next")

    asked: list[str] = []
    a, b = tabled([1.0], One), tabled([1.0], Two)
    with (
        make("outer", asked, "declines"),
        make("inner", asked, "declines"),
        pytest.raises(NoHandlerError) as caught,
    ):
        a == b  # noqa: B015  # the comparison is what raises
    assert caught.value.declined == (One, Two)
    assert asked == ["inner", "outer"]


def test_foreign_mode_outside_is_asked() -> None:
    class Foreign(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            asked.append("foreign")
            return func(*args, **(kwargs or {}))

    asked: list[str] = []
    x = torch.ones(1)
    with Foreign(), Named("ours", asked, "declines"):  # type: ignore[no-untyped-call]
        x + 1
    assert asked == ["ours", "foreign"]


def test_subclass_may_extend_what_its_table_does() -> None:
    class Counts(DispatchMode):
        table = HandlerTable(missing="next")
        count = 0

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            self.count += 1
            return super().__torch_dispatch__(func, types, args, kwargs)

    @Counts.table.implements(aten.add.Tensor)
    def _(self: Any, other: Any, *, alpha: Any = 1) -> Any:
        return torch.zeros(1)

    x = torch.ones(1)
    with Counts() as mode:
        assert (x + x).item() == 0
        assert (x * 2).item() == 2
    assert mode.count == 4  # add, item, mul, item


# ── re-entry ────────────────────────────────────────────────────────────────────────────────────


@makers
def test_operators_in_a_handler_go_to_the_mode_outside(make: Any) -> None:
    asked: list[str] = []
    with make("outer", asked, "passes on"), make("inner", asked, "answers"):
        torch.ones(1) + 1
    assert asked == ["inner", "outer", "inner", "outer"]  # each answer is one torch.full


def test_handler_may_enter_its_mode_again() -> None:
    class Twice(DispatchMode):
        table = HandlerTable(missing="next")

    @Twice.table.implements(aten.sin.default)
    def _(self: Any) -> Any:
        with mode:
            return self.cos()

    @Twice.table.implements(aten.cos.default)
    def _(self: Any) -> Any:
        return torch.full_like(self, 5)

    mode = Twice()
    with mode:
        assert torch.ones(1).sin().item() == 5
    assert stack() == []


def test_the_same_mode_may_be_entered_twice() -> None:
    asked: list[str] = []
    mode = Named("mode", asked)
    x = torch.ones(1)
    with mode, mode:
        x + 1
    assert asked == ["mode", "mode"]
    assert stack() == []


# ── errors ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, StopIteration, GeneratorExit])
def test_stack_is_restored_after_an_error_in_a_handler(error: type[BaseException]) -> None:
    class Fails(DispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            raise error

    outer, inner = DispatchMode(), Fails()
    with outer:
        with inner:
            with pytest.raises(error):
                torch.ones(1)
            assert stack() == [outer, inner]
        assert stack() == [outer]
    assert stack() == []


def test_stack_is_restored_after_an_error_in_the_block() -> None:
    with DispatchMode() as outer:
        with contextlib.suppress(KeyError), DispatchMode(), DispatchMode():
            raise KeyError
        assert stack() == [outer]


def test_mode_left_out_of_order_leaves_the_others() -> None:
    def hold(mode: DispatchMode) -> Generator[None]:
        with mode:
            yield

    asked: list[str] = []
    one, two = Named("one", asked), Named("two", asked)
    x = torch.ones(1)
    generator = hold(one)
    next(generator)
    with two:
        generator.close()
        assert stack() == [two]
        x + 1
    assert asked == ["two"]
    assert stack() == []


def test_leaving_a_mode_that_is_not_open_here_is_an_error() -> None:
    mode = DispatchMode()
    with pytest.raises(ModeStateError, match="not open in this thread"), mode:
        torch.utils._python_dispatch._pop_mode()
    assert stack() == []
    assert not torch.utils._python_dispatch.is_in_torch_dispatch_mode()


# ── surroundings ────────────────────────────────────────────────────────────────────────────────


@makers
@pytest.mark.parametrize("inside", [True, False])
def test_inference_mode(make: Any, inside: bool) -> None:
    asked: list[str] = []
    x = torch.ones(2)
    mode, inference = make("mode", asked, "passes on"), torch.inference_mode()
    with contextlib.ExitStack() as scopes:
        for scope in (mode, inference) if inside else (inference, mode):
            scopes.enter_context(scope)
        y = x.add(1).view(2, 1)
    assert y.is_inference()
    assert asked == ["mode"] * 2


@pytest.mark.parametrize(
    "name", ["fft.hfft", "fft.hfft2", "fft.hfftn", "fft.ihfft2", "fft.ihfftn", "linalg.pinv"]
)
@pytest.mark.parametrize("kind", [*MAKERS, "empty", "recorder"])
def test_composite_that_arrives_whole_has_the_numbers_of_its_parts(name: str, kind: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 5, dtype=torch.float64 if ".i" in name else torch.complex128)
    run = operator.attrgetter(name)(torch)
    expected = run(x)
    if kind in MAKERS:
        mode = MAKERS[kind]("mode", [], "passes on")
    else:
        mode = Recorder() if kind == "recorder" else DispatchMode()
    # Its parts set conjugate bits, which torch itself does not resolve in a handler.
    with torch.inference_mode(), mode:
        found = run(x)
    torch.testing.assert_close(found, expected)


@makers
def test_gradients_are_those_without_the_mode(make: Any) -> None:
    asked: list[str] = []

    def gradient() -> Any:
        x = torch.arange(3.0, requires_grad=True)
        y = torch.nn.functional.layer_norm(x.exp(), (3,))
        (first,) = torch.autograd.grad((y**3).sum(), x, create_graph=True)
        return torch.autograd.grad((first**2).sum(), x)[0]

    expected = gradient()
    with make("mode", asked, "passes on"):
        found = gradient()
    assert torch.equal(found, expected)
    assert len(asked) > 30


def test_backward_outside_of_the_mode_is_not_seen() -> None:
    asked: list[str] = []
    x = torch.ones(1, requires_grad=True)
    with Named("mode", asked):
        y = x * 2
    y.backward()
    assert asked == ["mode"]


def test_wrapper_without_memory_passes_through() -> None:
    asked: list[str] = []
    w = Wrapped(torch.ones(2), requires_grad=True)
    with Named("mode", asked):
        y = (w * 3).sum()
        y.backward()
    assert w.grad is not None
    assert Wrapped.unwrap(w.grad).tolist() == [3, 3]


def test_printing_in_a_handler_does_not_recurse() -> None:
    texts: list[str] = []

    class Prints(DispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            texts.append(f"{func} {args} {result}")
            return result

    x = torch.ones(2)
    with Prints():
        x + 1
    assert texts == ["aten.add.Tensor (tensor([1., 1.]), 1) tensor([2., 2.])"]


@pytest.mark.slow
def test_higher_order_operator_reaches_the_table_or_says_what_to_register() -> None:
    strict = HandlerTable()
    x = torch.ones(2)

    def call() -> Any:
        return torch.ops.higher_order.cond(True, lambda a: a + 1, lambda a: a - 1, (x,))

    with DispatchMode(strict), pytest.raises(NoHandlerError, match="higher_order::cond"):
        call()

    @strict.implements(ops.higher_order.cond)
    def cond(pred: Any, true_fn: Any, false_fn: Any, operands: Any) -> Any:
        return (true_fn if pred else false_fn)(*operands)

    with DispatchMode(strict):
        assert call().tolist() == [2, 2]
    with DispatchMode():
        assert call().tolist() == [2, 2]
