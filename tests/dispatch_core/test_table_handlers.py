"""HandlerTable: what a handler may be, what it gets and what it may answer."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
import torch
from dispatch_core import DispatchMode, HandlerError, HandlerSignatureError, HandlerTable, ops

from tests.dispatch_core.wrapping import Tabled, run_plain, tabled

aten = ops.aten


def test_handler_gets_named_complete_arguments() -> None:
    class Slices(Tabled):
        table = HandlerTable()

    got: list[tuple[Any, ...]] = []

    @Slices.table.implements(aten.slice.Tensor)
    def _(self: Any, dim: Any = 0, start: Any = None, end: Any = None, step: Any = 1) -> Any:
        got.append((dim, start, end, step))
        return run_plain(torch.ops.aten.slice.Tensor, self, dim, start, end, step)

    x = tabled([0, 1, 2, 3], Slices)
    x[::2], x[0:2], x[1:]
    assert [(dim, step) for dim, _, _, step in got] == [(0, 2), (0, 1), (0, 1)]
    assert [start for _, start, _, _ in got] == [0, 0, 1]


def test_handler_gets_the_default_that_torch_left_out_and_keeps_what_it_did_not() -> None:
    class Adds(Tabled):
        table = HandlerTable()

    got: list[Any] = []

    @Adds.table.implements(aten.add.Tensor)
    def _(self: Any, other: Any, *, alpha: Any = 1) -> Any:
        got.append(alpha)
        return run_plain(torch.add, self, other, alpha=alpha)

    x = tabled([1.0], Adds)
    torch.add(x, x, alpha=1), torch.add(x, x), torch.add(x, x, alpha=1.0), torch.add(x, x, alpha=2)
    assert [(type(alpha), alpha) for alpha in got] == [(int, 1), (int, 1), (float, 1.0), (int, 2)]


@pytest.mark.parametrize("style", ["func first", "as __torch_dispatch__"])
def test_general_handler_may_be_written_either_way(style: str) -> None:
    class Any_(Tabled):
        table = HandlerTable()

    if style == "func first":

        @Any_.table.fallback
        def _(func: Any, *args: Any, **kwargs: Any) -> Any:
            return run_plain(func, *args, **kwargs)

    else:

        @Any_.table.fallback
        def _(func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            assert types == (Any_,)
            return run_plain(func, *args, **kwargs)

    assert torch.add(tabled([1.0], Any_), 2, alpha=3).tolist() == [7.0]


def test_frames_carry_the_operators_name() -> None:
    class Fails(Tabled):
        table = HandlerTable()

    @Fails.table.implements(aten.sin.default)
    def _(self: Any) -> Any:
        raise ValueError

    @Fails.table.implements(aten.cos.default)
    def my_cos(self: Any) -> Any:
        raise ValueError

    for call, name in ((torch.sin, "aten::sin"), (torch.cos, "my_cos[aten::cos]")):
        with pytest.raises(ValueError) as caught:  # noqa: PT011  # it has no text
            call(tabled([1.0], Fails))
        frames = traceback.extract_tb(caught.value.__traceback__)
        assert name in [frame.name for frame in frames]


def test_decorated_function_itself_stays_as_it_was() -> None:
    table = HandlerTable()

    def sin(self: Any) -> Any:
        return self

    assert table.implements(aten.sin.default)(sin) is sin
    assert table.lookup(aten.sin.default) is sin
    assert sin.__code__.co_name == "sin"


def test_renamed_handler_sees_its_closure_and_keyword_defaults() -> None:
    class Closes(Tabled):
        table = HandlerTable()

    offset = [1.0]

    @Closes.table.implements(aten.add.Tensor)
    def _(self: Any, other: Any, *, alpha: Any = 1) -> Any:
        return run_plain(torch.add, self, other, alpha=alpha) + offset[0]

    x = tabled([1.0], Closes)
    assert (x + x).tolist() == [3.0]
    offset[0] = 2.0
    assert (x + x).tolist() == [4.0]


# ── methods ───────────────────────────────────────────────────────────────────────────────────────


def test_class_and_static_methods_are_handlers_and_stay_methods() -> None:
    class Base(Tabled):
        table = HandlerTable()
        asked: list[Any] = []  # noqa: RUF012  # of this test alone

        @table.implements(aten.sin.default)  # type: ignore[arg-type]  # mypy sees the parameter cls
        @classmethod
        def my_sin(cls, self: Any) -> Any:
            cls.asked.append(cls)
            return run_plain(torch.cos, self)

        @table.implements(aten.exp.default)
        @staticmethod
        def my_exp(self: Any) -> Any:
            return run_plain(torch.log, self)

        @table.fallback  # type: ignore[type-var]  # mypy sees the parameter cls
        @classmethod
        def anything(cls, func: Any, *args: Any, **kwargs: Any) -> Any:
            cls.asked.append(func)
            return run_plain(func, *args, **kwargs)

    class Child(Base):
        pass

    x, y = tabled([1.0], Base), tabled([1.0], Child)
    cosine = torch.ones(1).cos()
    assert torch.equal(x.sin(), cosine)
    assert torch.equal(y.sin(), cosine)
    assert y.exp().item() == 0
    assert (x + 1).item() == 2
    assert Base.asked == [Base, Child, torch.ops.aten.add.Tensor]
    assert Base.my_exp(torch.ones(1)).item() == 0
    assert Base.table.lookup(aten.sin) == Base.anything
    assert Child.table.lookup(aten.sin.default) == Child.my_sin


def test_bound_method_is_a_handler_and_its_frame_is_named() -> None:
    class Scales(DispatchMode):
        def __init__(self, scale: float) -> None:
            super().__init__(HandlerTable(missing="next"))
            self.scale = scale
            self.table.implements(aten.sin.default)(self.sin)

        def sin(mode, self: Any) -> Any:
            if mode.scale < 0:
                raise ValueError
            return self * mode.scale

    x = torch.ones(1)
    with Scales(2.0), Scales(3.0):
        assert x.sin().item() == 3
    with Scales(-1.0), pytest.raises(ValueError) as caught:  # noqa: PT011  # it has no text
        x.sin()
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert "sin[aten::sin]" in [frame.name for frame in frames]


def test_method_that_is_not_bound_is_told_from_one_with_other_parameters() -> None:
    def mm(mode: Any, self: Any, mat2: Any) -> Any:
        raise AssertionError

    with pytest.raises(HandlerSignatureError) as caught:
        HandlerTable().implements(aten.mm.default)(mm)  # type: ignore[arg-type]  # as it should
    assert caught.value.differences == (
        "'mode' is not an argument of the operator: register the bound method, or make it a "
        "classmethod or staticmethod",
    )


# ── answers ───────────────────────────────────────────────────────────────────────────────────────


def test_index_put_with_a_subclass_among_the_indices_is_handled_once() -> None:
    class Index(Tabled):
        table = HandlerTable()

    seen: list[str] = []

    @Index.table.fallback
    def _(func: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(str(func))
        return args[0]

    x = torch.zeros(3)
    x.index_put_((torch.tensor(0).as_subclass(Index),), torch.tensor(5.0))
    assert seen == ["aten.index_put_.default"]


@pytest.mark.parametrize("name", ["empty", "ones", "rand", "randn", "zeros", "full", "randint"])
def test_factory_like_a_subclass_gives_what_its_handler_gives(name: str) -> None:
    class Makes(Tabled):
        table = HandlerTable()

    @Makes.table.fallback
    def _(func: Any, *args: Any, **kwargs: Any) -> Any:
        return tabled([3.0], Makes)

    x = tabled([2.0], Makes)
    more = {"full": (1.0,), "randint": (3,)}.get(name, ())
    assert type(getattr(torch, f"{name}_like")(x, *more)) is Makes
    assert type(x.new_ones(3)) is Makes


def test_handler_may_answer_several_results_by_list_or_tuple() -> None:
    class Pairs(Tabled):
        table = HandlerTable()

    kind: list[Any] = [list]

    @Pairs.table.implements(aten.max.dim)
    def _(self: Any, dim: Any, keepdim: Any = False) -> Any:
        return kind[0](run_plain(torch.max, self, dim, keepdim))

    for kind[0] in (list, tuple):
        values, indices = torch.max(tabled([1.0, 3.0], Pairs), 0)
        assert (values.item(), indices.item()) == (3.0, 1)


def test_none_stands_for_a_tensor_that_is_not_there() -> None:
    class Nothing(Tabled):
        table = HandlerTable()

    @Nothing.table.fallback
    def _(func: Any, *args: Any, **kwargs: Any) -> Any:
        if func == aten.add.Scalar or func == aten.add.Tensor:
            return None
        return run_plain(func, *args, **kwargs).as_subclass(Nothing)

    x = tabled([0.5], Nothing)
    assert x + 2 is None
    out = x.requires_grad_().acos().sum()  # whose backward adds, then goes on
    with pytest.raises(RuntimeError, match="but got None"):
        out.backward()


def test_handler_errors_nest_without_wrapping_each_other() -> None:
    class Nested(Tabled):
        table = HandlerTable()

    @Nested.table.implements(aten.sin.default)
    def _(self: Any) -> Any:
        raise TypeError("deep")

    @Nested.table.implements(aten.cos.default)
    def _(self: Any) -> Any:
        return self.sin()

    with pytest.raises(HandlerError) as caught:
        tabled([1.0], Nested).cos()
    assert caught.value.overload == aten.sin.default
