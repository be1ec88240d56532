"""Higher-order operators on wrappers: the class's handler answers, or the error says how."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from dispatch_core import (
    DispatchMode,
    HandlerError,
    HandlerTable,
    NoHandlerError,
    Recorder,
    enable_python_mode,
)
from subclass_utils import LoggingTensor, WrapperTensor

from tests.subclass_utils.wrappers import Measured, metre

higher = torch.ops.higher_order


@pytest.fixture(autouse=True)
def dynamo_warns() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


class Plain(WrapperTensor):
    pass


class Answers(WrapperTensor):
    pass


class AnswersChild(Answers):
    pass


@Answers.table.implements(higher.cond)
def cond(pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
    return (true_fn if pred else false_fn)(*operands)


@Answers.table.implements(higher.while_loop)
def while_loop(cond_fn: Any, body_fn: Any, carried_inputs: Any, additional_inputs: Any) -> Any:
    while cond_fn(*carried_inputs):
        carried_inputs = body_fn(*carried_inputs)
    return carried_inputs


def run_cond(x: Any) -> Any:
    return higher.cond(torch.tensor(True), lambda a: a + 1, lambda a: a - 1, (x,))


def run_while(x: Any) -> Any:
    return higher.while_loop(lambda a: bool(a.sum() < 10), lambda a: (a * 2,), (x,), ())


def run_flex(x: Any) -> Any:
    q = x.expand(1, 1, 16, 2).contiguous()
    from torch.nn.attention.flex_attention import create_block_mask

    mask = create_block_mask(lambda b, h, i, j: i >= j, 1, 1, 16, 16, device="cpu")
    score = lambda s, *_: s  # noqa: E731
    return higher.flex_attention(q, q, q, score, mask.as_tuple(), 1.0, {}, (), ())


def run_map(x: Any) -> Any:
    return higher.map_impl(lambda a: (a + 1,), [x], [])


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "cond": run_cond,
    "while_loop": run_while,
    "flex_attention": run_flex,
    "map_impl": run_map,
}
MODES: dict[str, Callable[[], Any]] = {
    "nothing": torch.no_grad,
    "recorder": Recorder,
    "mode that declines": DispatchMode,
}


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("cls", [Plain, LoggingTensor])
def test_class_without_a_handler_says_what_to_register(cls: Any, name: str, mode: Any) -> None:
    x = cls(torch.ones(2))
    text = rf"^higher_order::{name}: .*table\.implements\(torch\.ops\.higher_order\.{name}\)"
    with mode(), pytest.raises(NoHandlerError, match=text) as caught:
        PROGRAMS[name](x)
    assert caught.value.declined == (cls,)


@pytest.mark.slow
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("mode", [*MODES.values(), lambda: enable_python_mode(Answers)])
@pytest.mark.parametrize("cls", [Answers, AnswersChild])
def test_handler_of_the_class_answers(cls: Any, mode: Any, requires_grad: bool) -> None:
    x = cls(torch.ones(2)).requires_grad_(requires_grad)
    with torch.no_grad(), mode():
        result = run_cond(x)
        (doubled,) = run_while(x)
    assert type(result) is cls
    assert result.elem.tolist() == [2, 2]
    assert doubled.elem.tolist() == [8, 8]


@pytest.mark.slow
def test_handler_of_a_mode_answers() -> None:
    table = HandlerTable(missing="next")
    table.implements(higher.cond)(cond)
    x = Plain(torch.ones(2))
    with DispatchMode(table):
        assert run_cond(x).elem.tolist() == [2, 2]


# ── a handler that came by a base ───────────────────────────────────────────────────────────────


class Mixin:
    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "aten" and func.overloadpacket is torch.ops.aten.eq:
            raise TypeError("of the mixin")
        return super().__torch_dispatch__(func, types, args, kwargs)  # type: ignore[misc]


class Mixed(Mixin, WrapperTensor):  # type: ignore[misc]
    pass


class MixedChild(Mixed):
    pass


@pytest.mark.parametrize("cls", [Mixed, MixedChild])
def test_type_error_of_a_mixin_comes_out(cls: Any) -> None:
    x = cls(torch.ones(1))
    for compare in (lambda: x == 1, lambda: x == x, lambda: torch.eq(x, 1)):
        with pytest.raises(HandlerError, match="raised TypeError: of the mixin"):
            compare()
    assert (x + 1).elem.item() == 2
    assert type(vars(Mixin)["__torch_dispatch__"]) is classmethod
    assert not hasattr(Mixin.__torch_dispatch__, "__honest__")


def test_dispatch_assigned_after_the_class_is_made() -> None:
    class Later(WrapperTensor):
        pass

    def dispatch(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise TypeError("assigned later")

    Later.__torch_dispatch__ = classmethod(dispatch)  # type: ignore[assignment]
    x = Later(torch.ones(1))
    with pytest.raises(HandlerError, match="assigned later"):
        x == 1  # noqa: B015


def test_higher_order_operator_says_what_to_register() -> None:
    from torch._higher_order_ops.cond import cond_op

    with pytest.raises(NoHandlerError, match=r"table\.implements"):
        Measured.__torch_dispatch__(cond_op, (Measured,), (metre(1), None, None, ()), {})
