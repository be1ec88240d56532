"""A handler's signature is compared with the schema when it is registered."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from dispatch_core import (
    DispatchError,
    HandlerSignatureError,
    HandlerTable,
    handle_of,
    ops,
)
from dispatch_core._signatures import _default_differences

aten = ops.aten


def place(handler: Callable[..., Any]) -> str:
    code = inspect.unwrap(handler).__code__
    return f"{handler.__qualname__} ({code.co_filename}:{code.co_firstlineno})"


def refused(op: Any, handler: Callable[..., Any]) -> HandlerSignatureError:
    with pytest.raises(HandlerSignatureError) as caught:
        HandlerTable().implements(op)(handler)  # type: ignore[no-untyped-call]
    return caught.value


def test_all_differences_come_out_with_both_signatures_one_above_the_other() -> None:
    def addmv(self: Any, matrix: Any, vec: Any, alpha: Any, *, beta: Any = 1.0, out: Any) -> Any:
        raise AssertionError

    error = refused(aten.addmv.default, addmv)
    assert str(error) == (
        f"aten::addmv: handler {place(addmv)} does not take what the operator gives\n"
        "  operator: (self, mat, vec, *, beta=1, alpha=1)\n"
        "  handler:  (self, matrix, vec, alpha, *, beta=1.0, out)\n"
        "  - parameter 2 is called 'mat', not 'matrix'\n"
        "  - 'alpha' must be keyword-only: write it after `*`\n"
        "  - 'alpha' has no default; torch leaves it out when it is 1\n"
        "  - the default of 'beta' is 1, not 1.0\n"
        "  - the operator has no 'out'"
    )
    assert isinstance(error, DispatchError)
    assert isinstance(error, TypeError)
    assert error.qualified_name == "aten::addmv"
    assert error.handler is addmv
    assert len(error.differences) == 5


def test_all_operators_of_one_registration_come_out_together() -> None:
    def handler(self: Any) -> Any:
        raise AssertionError

    with pytest.raises(HandlerSignatureError) as caught:
        HandlerTable().implements(aten.sin.default, aten.mm.default, aten.add.Tensor)(handler)
    assert "aten::mm: handler" in str(caught.value)
    assert "aten::add.Tensor: handler" in str(caught.value)
    assert "aten::sin" not in str(caught.value)


ONE_DIFFERENCE: dict[str, tuple[Any, Callable[..., Any], str]] = {
    "missing": (aten.mm.default, lambda self: 0, "'mat2' is missing"),
    "surplus": (aten.sin.default, lambda self, other: 0, "the operator has no 'other'"),
    "surplus with default": (aten.sin.default, lambda self, x=1: 0, "the operator has no 'x'"),
    "surplus keyword": (aten.sin.default, lambda self, *, out=None: 0, "the operator has no 'out'"),
    "name": (aten.mm.default, lambda self, b: 0, "parameter 2 is called 'mat2', not 'b'"),
    "keyword-only for positional": (
        aten.mm.default,
        lambda self, *, mat2: 0,
        "'mat2' is passed positionally: write it before `*`",
    ),
    "keyword-only missing": (
        aten.add.Tensor,
        lambda self, other: 0,
        "keyword-only 'alpha' is missing",
    ),
    "no default": (
        aten.add.Tensor,
        lambda self, other, *, alpha: 0,
        "'alpha' has no default; torch leaves it out when it is 1",
    ),
    "value": (
        aten.add.Tensor,
        lambda self, other, *, alpha=2: 0,
        "the default of 'alpha' is 1, not 2",
    ),
    "bool for int": (
        aten.add.Tensor,
        lambda self, other, *, alpha=True: 0,
        "the default of 'alpha' is 1, not True",
    ),
    "None for bool": (
        aten.cumsum_.default,
        lambda self, dim, *, dtype=torch.float32: 0,
        "the default of 'dtype' is None, not torch.float32",
    ),
    "number for list": (
        aten.fft_fft2.default,
        lambda self, s=None, dim=-2, norm=None: 0,
        "the default of 'dim' is [-2, -1], not -2",
    ),
    "enum": (
        aten.contiguous.default,
        lambda self, *, memory_format=torch.preserve_format: 0,
        "the default of 'memory_format' is torch.contiguous_format, not torch.preserve_format",
    ),
}


@pytest.mark.parametrize("name", ONE_DIFFERENCE)
def test_one_difference_is_one_sentence(name: str) -> None:
    op, handler, sentence = ONE_DIFFERENCE[name]
    assert refused(op, handler).differences == (sentence,)


class MyText(str):
    """A text that is not one of torch's own."""


def test_default_that_only_looks_alike_is_named_by_its_type() -> None:
    own = MyText("none")

    def gelu(self: Any, *, approximate: Any = own) -> Any:
        raise AssertionError

    assert refused(aten.gelu.default, gelu).differences == (
        "the default of 'approximate' is 'none', not a MyText that looks alike",
    )


def test_default_that_is_no_number_fits_itself() -> None:
    with torch.library._scoped_library("signaturetest", "DEF") as library:
        library.define("fill(Tensor x, float value) -> Tensor")
        handle: Any = handle_of("signaturetest::fill")
        nan_param = dataclasses.replace(handle.params[1], required=False, default=float("nan"))
        own = inspect.Parameter("value", inspect.Parameter.KEYWORD_ONLY, default=float("nan"))
        assert _default_differences(nan_param, own) == []


FITTING: dict[str, tuple[Any, Callable[..., Any]]] = {
    "plain": (aten.mm.default, lambda self, mat2: 0),
    "positional-only": (aten.mm.default, lambda self, mat2, /: 0),
    "default of its own": (aten.mm.default, lambda self, mat2=None: 0),
    "list default as tuple": (
        aten.fft_fft2.default,
        lambda self, s=None, dim=(-2, -1), norm=None: 0,
    ),
    "list default as list": (
        aten.fft_fft2.default,
        lambda self, s=None, dim=[-2, -1], norm=None: 0,  # as in the schema
    ),
    "Python keyword": (
        handle_of("aten::random_.from"),
        lambda self, from_, to, *, generator=None: 0,
    ),
    "name of a builtin": (aten.ger.default, lambda self, vec2: 0),
    "out": (aten.sin.out, lambda self, *, out: 0),
    "rest that stays empty": (aten.mm.default, lambda self, mat2, *rest, **more: 0),
}


@pytest.mark.parametrize("name", FITTING)
def test_fitting_handler_is_taken(name: str) -> None:
    op, handler = FITTING[name]
    table = HandlerTable()
    assert table.implements(op)(handler) is handler  # type: ignore[no-untyped-call]
    assert table.lookup(op) is handler


def test_every_stub_of_the_specs_would_fit_its_own_operator() -> None:
    for packet in (aten.convolution, aten.addmv, aten.slice, aten.arange, aten.to, aten.uniform_):
        for handle in packet:
            parameters = [
                inspect.Parameter(
                    param.name + "_" * (param.name == "from"),
                    inspect.Parameter.KEYWORD_ONLY
                    if param.kwarg_only
                    else inspect.Parameter.POSITIONAL_OR_KEYWORD,
                    default=inspect.Parameter.empty if param.required else param.default,
                )
                for param in handle.params
            ]

            def handler(*args: Any, **kwargs: Any) -> Any:
                raise AssertionError

            handler.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
            HandlerTable().implements(handle)(handler)  # type: ignore[no-untyped-call]


def test_wrapped_function_is_judged_by_what_it_wraps() -> None:
    def sin(self: Any) -> Any:
        return self

    @functools.wraps(sin)
    def logged(*args: Any, **kwargs: Any) -> Any:
        return sin(*args, **kwargs)

    HandlerTable().implements(aten.sin.default)(logged)


def test_general_handler_of_one_overload_is_refused_with_its_parameters() -> None:
    def anything(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError

    error = refused(aten.mm.default, anything)
    assert error.differences == ("'self' is missing", "'mat2' is missing")


@pytest.mark.parametrize("what", ["packet", "rule", "fallback"])
def test_handler_of_many_operators_must_take_any(what: str) -> None:
    def narrow(func: Any, self: Any) -> Any:
        raise AssertionError

    table = HandlerTable()
    register: Any = {
        "packet": table.implements(aten.mm),
        "rule": table.implements_where(tag="core"),
        "fallback": table.fallback,
    }[what]
    named = {"packet": "aten::mm", "rule": "tag core", "fallback": "fallback"}[what]
    with pytest.raises(HandlerSignatureError) as caught:
        register(narrow)
    assert str(caught.value) == (
        f"{named}: handler {place(narrow)} must take any operator\n"
        "  expected: (func, *args, **kwargs)\n"
        "  handler:  (func, self)\n"
        "  - there is no *args for the positional arguments\n"
        "  - there is no **kwargs for the keyword arguments"
    )


@pytest.mark.parametrize("handler", [3, None])
def test_what_cannot_be_called_is_refused(handler: Any) -> None:
    assert refused(aten.sin.default, handler).differences == ("the handler cannot be called",)


async def waits(self: Any) -> Any:
    return self


async def gives_one_by_one(self: Any) -> Any:
    yield self


class Waits:
    async def __call__(_, self: Any) -> Any:
        return self


@pytest.mark.parametrize("handler", [waits, gives_one_by_one, staticmethod(waits), Waits()])
def test_asynchronous_handler_is_refused(handler: Any) -> None:
    assert refused(aten.sin.default, handler).differences == (
        "the handler is asynchronous, and an operator cannot wait",
    )
    with pytest.raises(HandlerSignatureError, match=r"fallback: handler .* is asynchronous"):
        HandlerTable().fallback(handler)


def test_nothing_is_registered_when_something_is_refused() -> None:
    table = HandlerTable()
    with pytest.raises(HandlerSignatureError):
        table.implements(aten.sin.default, aten.mm.default)(lambda self: torch.ones(1))
    assert table.lookup(aten.sin.default) is None
