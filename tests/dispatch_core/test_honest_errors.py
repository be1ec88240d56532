"""No error that leaves a handler is hidden by Python's operators or by torch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from dispatch_core import (
    DispatchError,
    DispatchMode,
    HandlerError,
    HandlerResultError,
    HandlerTable,
    NoHandlerError,
    Recorder,
    ops,
)

from tests.dispatch_core.wrapping import Tabled, run_plain, tabled

aten = ops.aten


class Raising(Tabled):
    """A class whose handler raises `error`."""

    table = HandlerTable()
    error: BaseException


@Raising.table.fallback
def fails(func: Any, *args: Any, **kwargs: Any) -> Any:
    raise Raising.error


class RuntimeTypeError(RuntimeError, TypeError):
    """An error of both kinds, which Python's operators swallow all the same."""


class RaisingMode(DispatchMode):
    table = HandlerTable()


@RaisingMode.table.fallback
def mode_fails(func: Any, *args: Any, **kwargs: Any) -> Any:
    raise Raising.error


class RaisingByHand(DispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise Raising.error


EXPRESSIONS: dict[str, Callable[[Any], object]] = {
    "a + 1": lambda a: a + 1,
    "1 + a": lambda a: 1 + a,
    "a - 1": lambda a: a - 1,
    "1 - a": lambda a: 1 - a,
    "a @ a": lambda a: a @ a,
    "a == 1": lambda a: a == 1,
    "a != 1": lambda a: a != 1,
    "1 == a": lambda a: a == 1,
    "a < 1": lambda a: a < 1,
    "a ** 2": lambda a: a**2,
    "2 ** a": lambda a: 2**a,
    "a // 2": lambda a: a // 2,
    "2 // a": lambda a: 2 // a,
    "a % 2": lambda a: a % 2,
    "-a": lambda a: -a,
    "a & a": lambda a: a & a,
    "torch.add": lambda a: torch.add(a, 1),
    "torch.ops": lambda a: torch.ops.aten.add.Tensor(a, 1),
    "handle": lambda a: aten.add.Tensor(a, 1),
    "a[0]": lambda a: a[0],
    "a[0] = 1": lambda a: a.__setitem__(0, 1),
    "a += 1": lambda a: a.__iadd__(1),
    "in": lambda a: 1 in a,
    "method": lambda a: a.sum(),
    "function": lambda a: torch.nn.functional.linear(a, a),
}


@pytest.mark.parametrize("error", [TypeError("boom"), RuntimeTypeError("boom")])
@pytest.mark.parametrize("where", ["class", "mode", "mode by hand"])
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_type_error_comes_out_as_handler_error(
    expression: str, where: str, error: Exception
) -> None:
    Raising.error = error
    if where == "class":
        a = tabled([1.0], Raising)
        with pytest.raises(HandlerError, match="boom") as caught:
            EXPRESSIONS[expression](a)
    else:
        a = torch.ones(1)
        mode: DispatchMode = RaisingMode() if where == "mode" else RaisingByHand()
        with mode, pytest.raises(HandlerError, match="boom") as caught:
            EXPRESSIONS[expression](a)
    assert caught.value.__cause__ is error
    assert not isinstance(caught.value, TypeError)
    assert isinstance(caught.value, DispatchError)
    assert isinstance(caught.value, RuntimeError)
    assert caught.value.overload.namespace == "aten"


def test_handler_error_names_operator_handler_and_cause() -> None:
    Raising.error = TypeError("cannot be")
    with pytest.raises(HandlerError) as caught:
        tabled([1.0], Raising) + 1
    line = fails.__code__.co_firstlineno
    assert str(caught.value) == (
        f"aten::add.Tensor: handler fails ({__file__}:{line}) raised TypeError: cannot be"
    )
    assert caught.value.overload == aten.add.Tensor
    assert caught.value.handler is fails


@pytest.mark.parametrize(
    "error",
    [KeyboardInterrupt(), StopIteration(1), SystemExit(), ValueError("x"), RuntimeError("y")],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("where", ["class", "mode", "mode by hand"])
@pytest.mark.parametrize("expression", ["a + 1", "a == 1", "a[0]", "torch.add"])
def test_other_errors_pass_as_they_are(expression: str, where: str, error: BaseException) -> None:
    Raising.error = error
    if where == "class":
        a = tabled([1.0], Raising)
        with pytest.raises(type(error)) as caught:
            EXPRESSIONS[expression](a)
    else:
        a = torch.ones(1)
        mode: DispatchMode = RaisingMode() if where == "mode" else RaisingByHand()
        with mode, pytest.raises(type(error)) as caught:
            EXPRESSIONS[expression](a)
    assert caught.value is error


def test_class_that_is_not_ours_is_honest_under_a_mode_of_ours() -> None:
    class Foreign(torch.Tensor):
        @classmethod
        def __torch_dispatch__(  # type: ignore[override]
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            raise TypeError("foreign")

    a = torch.ones(1).as_subclass(Foreign)
    answer: object = a == 1
    assert answer is False
    with DispatchMode(), pytest.raises(HandlerError, match="foreign"):
        a == 1  # noqa: B015  # the comparison is what raises


# ── nobody took it ──────────────────────────────────────────────────────────────────────────────


class Declining(torch.Tensor):
    """A class that is not ours, and declines everything."""

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return NotImplemented


class PassesOn(torch.utils._python_dispatch.TorchDispatchMode):
    """A mode that is not ours."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("expression", ["a == 1", "a + 1", "1 + a", "a @ a", "torch.add", "a[0]"])
@pytest.mark.parametrize("modes", ["one", "two", "foreign outside"])
def test_call_that_everybody_declined_is_no_handler_error(expression: str, modes: str) -> None:
    a = torch.ones(1).as_subclass(Declining)
    outer: Any = {
        "one": contextlib.nullcontext(),
        "two": DispatchMode(),
        "foreign outside": PassesOn(),  # type: ignore[no-untyped-call]
    }[modes]
    with outer, DispatchMode(), pytest.raises(NoHandlerError) as caught:
        EXPRESSIONS[expression](a)
    assert caught.value.declined == (Declining,)
    assert not isinstance(caught.value, TypeError)
    assert "declined by Declining" in str(caught.value)


def test_recorder_changes_no_answer_not_even_torchs_false() -> None:
    a = torch.ones(1).as_subclass(Declining)
    with Recorder():
        answer: object = a == 1
    assert answer is False


# ── wrong answers ───────────────────────────────────────────────────────────────────────────────


class Answering(Tabled):
    table = HandlerTable()
    answer: Any = None


@Answering.table.fallback
def answers(func: Any, *args: Any, **kwargs: Any) -> Any:
    return Answering.answer


class AnsweringMode(DispatchMode):
    table = HandlerTable()


AnsweringMode.table.fallback(answers)

one = torch.ones(1)
WRONG: dict[str, tuple[Callable[[Any], object], Any, str]] = {
    "str": (lambda a: a + 1, "text", "a str, but the operator gives Tensor"),
    "int": (lambda a: a + 1, 3, "an int, but the operator gives Tensor"),
    "list": (lambda a: a + 1, [one], "a list of Tensor, but the operator gives Tensor"),
    "one of two": (
        lambda a: torch.max(a, 0),
        (one,),
        "a tuple of Tensor, but the operator gives (Tensor, Tensor)",
    ),
    "three of two": (
        lambda a: torch.max(a, 0),
        [one] * 3,
        "a list of Tensor, Tensor, Tensor, but the operator gives (Tensor, Tensor)",
    ),
    "tensor of two": (
        lambda a: torch.max(a, 0),
        one,
        "a Tensor, but the operator gives (Tensor, Tensor)",
    ),
    "str of two": (
        lambda a: torch.max(a, 0),
        "ab",
        "a str, but the operator gives (Tensor, Tensor)",
    ),
    "None of two": (
        lambda a: torch.max(a, 0),
        None,
        "a NoneType, but the operator gives (Tensor, Tensor)",
    ),
    "tensor for a list": (
        lambda a: torch.ops.aten.unbind_copy.int(a),
        one,
        "a Tensor, but the operator gives Tensor[]",
    ),
    "None in a list": (
        lambda a: torch.ops.aten.unbind_copy.int(a),
        [None],
        "a list of NoneType, but the operator gives Tensor[]",
    ),
    "str for bool": (
        lambda a: torch.equal(a, a),
        "yes",
        "a str, but the operator gives bool",
    ),
    "something for nothing": (
        lambda a: torch.ops.aten._foreach_add_.Scalar([a], 1),
        one,
        "a Tensor, but the operator gives nothing, so None",
    ),
}


@pytest.mark.parametrize("where", ["class", "mode"])
@pytest.mark.parametrize("name", WRONG)
def test_wrong_answer_is_named(name: str, where: str) -> None:
    call, Answering.answer, text = WRONG[name]
    if where == "class":
        with pytest.raises(HandlerResultError) as caught:
            call(tabled([1.0], Answering))
    else:
        with AnsweringMode(), pytest.raises(HandlerResultError) as caught:
            call(one)
    message = str(caught.value)
    assert text in message
    assert "Unable to cast" in message
    assert f"handler answers ({__file__}:" in message
    assert message.startswith("aten::")
    assert isinstance(caught.value, RuntimeError)
    assert caught.value.result_type is type(Answering.answer)


def test_wrong_answer_message_in_full() -> None:
    Answering.answer = "text"
    with pytest.raises(HandlerResultError) as caught:
        tabled([1.0], Answering) + 1
    line = answers.__code__.co_firstlineno
    assert str(caught.value) == (
        f"aten::add.Tensor: handler answers ({__file__}:{line}) answered with a str, but the "
        "operator gives Tensor. Unable to cast 'text' to Tensor"
    )


RIGHT: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "None for a tensor": (lambda a: a + 1, None),
    "subclass": (lambda a: a + 1, torch.nn.Parameter(one)),
    "list of two": (lambda a: torch.max(a, 0), [one, one]),
    "None among two": (lambda a: torch.ops.aten.max.dim(a, 0), (one, None)),
    "tuple for a list": (lambda a: torch.ops.aten.unbind_copy.int(a), (one, one)),
    "empty list": (lambda a: torch.ops.aten.unbind_copy.int(a), []),
    "int for bool": (lambda a: torch.equal(a, a), 1),
    "nothing": (lambda a: torch.ops.aten._foreach_add_.Scalar([a], 1), None),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_answer_passes(name: str) -> None:
    call, Answering.answer = RIGHT[name]
    call(tabled([1.0], Answering))


def test_kernels_own_type_error_passes_through_a_mode_as_without() -> None:
    with torch.library._scoped_library("honesttest", "DEF") as library:
        library.define("fails(Tensor x) -> Tensor")

        def kernel(x: Any) -> Any:
            raise TypeError("kernel")

        library.impl("fails", kernel, "CPU")
        with pytest.raises(TypeError, match="kernel"):
            torch.ops.honesttest.fails(one)
        with DispatchMode(), pytest.raises(TypeError, match="kernel"):
            torch.ops.honesttest.fails(one)


def test_run_plain_answers() -> None:
    assert run_plain(torch.add, one, 1).item() == 2
