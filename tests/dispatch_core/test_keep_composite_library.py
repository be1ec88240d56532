"""keep_composite: composite operators of a library, with schemas that torch's own do not have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from dispatch_core import keep_composite, ops

from tests.dispatch_core.keeping import Names

IMPLICIT = "CompositeImplicitAutograd"
own: Any = torch.ops.keeptest


@pytest.fixture(autouse=True, scope="module")
def library() -> Iterator[None]:
    with torch.library._scoped_library("keeptest", "DEF") as library:

        def define(schema: str, run: Callable[..., Any]) -> None:
            library.define(schema)
            library.impl(schema.partition("(")[0], run, IMPLICIT)

        define("weighted(Tensor x, Tensor[] ys, *, float s=2.0) -> Tensor", weighted)
        define("optional(Tensor x, Tensor? w=None, Tensor?[]? ws=None) -> (Tensor, Tensor)", some)
        define("scale_(Tensor(a!) x, Tensor y) -> Tensor(a!)", lambda x, y: x.mul_(y))
        define("scale_quietly(Tensor(a!) x, Tensor y) -> ()", scale_quietly)
        define("scale_and_give(Tensor x, Tensor(a!) b, Tensor y) -> Tensor", scale_and_give)
        define("scale_both(Tensor x, Tensor(a!) b, Tensor y) -> (Tensor, Tensor(a!))", scale_both)
        define("add_to_all(Tensor(a!)[] xs, Tensor y) -> ()", add_to_all)
        define("tail(Tensor(a) x) -> Tensor(a)", lambda x: x.view(-1)[1:])
        define("total(Tensor x) -> int", lambda x: int(x.sum()))
        yield


def weighted(x: Any, ys: Any, *, s: float = 2.0) -> Any:
    return sum((y * x for y in ys), x * s)


def some(x: Any, w: Any = None, ws: Any = None) -> Any:
    y = x if w is None else x * w
    for one in ws or ():
        y = y if one is None else y + one
    return y.sin(), y.detach()


def scale_quietly(x: Any, y: Any) -> None:
    x.mul_(y)


def scale_and_give(x: Any, b: Any, y: Any) -> Any:
    return x * b.mul_(y)


def scale_both(x: Any, b: Any, y: Any) -> Any:
    return x * b.mul_(y), b


def add_to_all(xs: Any, y: Any) -> None:
    for x in xs:
        x.add_(y)


def quietly(x: Any, y: Any) -> Any:
    a = x * 1
    own.scale_quietly(a, y)
    return a * a


def quietly_through_a_view(x: Any, y: Any) -> Any:
    a = x * 2
    own.scale_quietly(a[1:3], y[:2])
    return a * a


def giving_something_else(x: Any, y: Any) -> Any:
    a = x * 2
    return own.scale_and_give(y, a, x) * a


def giving_both(x: Any, y: Any) -> Any:
    a = x * 2
    product, given = own.scale_both(y, a, x)
    assert given is a
    return product * a


def list_of_one(x: Any, y: Any) -> Any:
    a = x * 1
    own.add_to_all([a], y)
    return a * a


def list_of_two(x: Any, y: Any) -> Any:
    a, b = x * 1, y * 2
    own.add_to_all([a, b], y)
    return a * b


def written_through_a_view(x: Any, y: Any) -> Any:
    a = x * 1
    own.tail(a).mul_(y[1:])
    return a


PROGRAMS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "list": (lambda x, y: own.weighted(x, [y, y.sin(), x]), "weighted"),
    "keyword": (lambda x, y: own.weighted(x, [y], s=3.0), "weighted"),
    "optional": (lambda x, y: own.optional(x, y, [None, x, y])[0], "optional"),
    "left out": (lambda x, y: own.optional(x)[0] * y, "optional"),
    "in place": (lambda x, y: own.scale_(x * 1, y), "scale_"),
    "twice in place": (lambda x, y: own.scale_(own.scale_(x * 1, y), x), "scale_"),
    "in place, gives nothing": (quietly, "scale_quietly"),
    "in place through a view": (quietly_through_a_view, "scale_quietly"),
    "writes and gives another": (giving_something_else, "scale_and_give"),
    "writes and gives both": (giving_both, "scale_both"),
    "writes to a list of one": (list_of_one, "add_to_all"),
    "view": (lambda x, y: own.tail(x) * y[1:], "tail"),
    "view that is written": (written_through_a_view, "tail"),
}


def outcome(program: Callable[[Any, Any], Any], kept: bool) -> tuple[list[Any], list[str]]:
    torch.manual_seed(0)
    x, y = (torch.randn(4).requires_grad_() for _ in range(2))
    with keep_composite(*ops.keeptest) if kept else nullcontext(), Names() as names:
        result = program(x, y)
    first = torch.autograd.grad(result.sum(), (x, y), create_graph=True, allow_unused=True)
    depends = [g.pow(2).sum() for g in first if g is not None and g.requires_grad]
    total: Any = sum(depends)
    second = torch.autograd.grad(total, (x, y), allow_unused=True) if depends else ()
    return [result, *first, *second], names.seen


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_those_of_the_parts(name: str) -> None:
    program, arrives = PROGRAMS[name]
    wanted, parts = outcome(program, kept=False)
    found, seen = outcome(program, kept=True)
    assert f"keeptest.{arrives}.default" in seen
    assert f"keeptest.{arrives}.default" not in parts
    for one, other in zip(found, wanted, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other)


def test_writes_to_several_with_gradients_go_by_their_parts() -> None:
    wanted, _ = outcome(list_of_two, kept=False)
    found, seen = outcome(list_of_two, kept=True)
    assert "add_.Tensor" in seen
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_operator_that_gives_a_number_arrives_whole() -> None:
    x = torch.ones(3)
    with keep_composite(ops.keeptest.total), Names() as names:
        assert own.total(x) == 3
    assert names.seen == ["keeptest.total.default"]


@pytest.mark.filterwarnings("ignore:(?s).*Overriding a previously registered kernel")
def test_kernel_that_somebody_else_has_at_our_place_goes_on_when_nothing_is_kept() -> None:
    op = own.weighted.default
    x = torch.ones(2)

    def pass_on(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(
            torch._C.DispatchKeySet(torch._C.DispatchKey.PythonTLSSnapshot)
        ):
            return op(*args, **kwargs)

    with torch.library._scoped_library("keeptest", "IMPL") as theirs:
        theirs.impl("weighted", pass_on, "PythonTLSSnapshot")
        with keep_composite(op), Names() as whole:
            first = own.weighted(x, [x], s=3.0)
        with Names() as parts:
            second = own.weighted(x, [x], s=3.0)
    assert whole.seen == ["keeptest.weighted.default"]
    assert parts.seen[0] == "mul.Tensor"
    assert torch.equal(first, second)
