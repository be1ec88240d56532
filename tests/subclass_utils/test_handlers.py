"""A class's own handlers: order, inheritance, errors, results."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from dispatch_core import HandlerError, HandlerResultError
from subclass_utils import WrapperTensor

from tests.subclass_utils.wrappers import ScaledOnPlain

aten = torch.ops.aten


def test_handler_of_the_most_derived_class_is_called() -> None:
    A, B, called = ordered_by_dispatch()
    a, b = A(torch.ones(1)), B(torch.ones(1))
    a + a, a + b, b + a, b + b
    assert called == ["A", "B", "B", "B"]


def ordered_by_dispatch() -> tuple[type[Any], type[Any], list[str]]:
    called: list[str] = []

    class A(WrapperTensor):
        @classmethod
        def __torch_dispatch__(  # type: ignore[override]
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            called.append(cls.__name__)
            return args[0]

    class B(A):
        pass

    return A, B, called


def test_table_is_inherited_and_a_child_keeps_its_own() -> None:
    class Parent(WrapperTensor):
        pass

    class Child(Parent):
        pass

    @Parent.table.implements(aten.neg.default)
    def neg(self: Any) -> Any:
        return "parent"

    assert Child.table.lookup(aten.neg.default) is neg

    @Child.table.implements(aten.abs.default)
    def absolute(self: Any) -> Any:
        return self

    assert Parent.table.lookup(aten.abs.default) is None
    child = Child(torch.ones(1))
    assert child.abs() is child


def test_handler_registered_after_first_use_is_called() -> None:
    class Late(WrapperTensor):
        pass

    x = Late(torch.ones(1))
    assert (-x).elem.item() == -1  # type: ignore[attr-defined]

    @Late.table.implements(aten.neg.default)
    def neg(self: Any) -> Any:
        return self

    assert -x is not None
    assert (-x).elem.item() == 1  # type: ignore[attr-defined]


def test_type_error_of_a_handler_is_not_hidden() -> None:
    class Faulty(WrapperTensor):
        pass

    @Faulty.table.implements(aten.eq.Scalar)
    def eq(self: Any, other: Any) -> Any:
        return len(3)  # type: ignore[arg-type]

    with pytest.raises(HandlerError, match=r"aten::eq.Scalar.*TypeError"):
        operator.eq(Faulty(torch.ones(1)), 1)


def test_type_error_of_an_overridden_dispatch_is_not_hidden() -> None:
    class Faulty(WrapperTensor):
        @classmethod
        def __torch_dispatch__(  # type: ignore[override]
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            raise TypeError("mine")

    with pytest.raises(HandlerError, match=r"Faulty.__torch_dispatch__ raised TypeError: mine"):
        operator.eq(Faulty(torch.ones(1)), 1)


def test_result_that_is_no_tensor_names_operator_and_handler() -> None:
    class Faulty(WrapperTensor):
        pass

    @Faulty.table.implements(aten.neg.default)
    def neg(self: Any) -> Any:
        return "text"

    with pytest.raises(HandlerResultError, match=r"aten::neg: handler.*neg.*Unable to cast"):
        -Faulty(torch.ones(1))


@pytest.mark.parametrize("kind", [list, tuple])
def test_several_outputs_may_be_a_list_or_a_tuple(kind: Any) -> None:
    class Several(WrapperTensor):
        pass

    @Several.table.implements(aten.max.dim)
    def maximum(self: Any, dim: Any, keepdim: Any = False) -> Any:
        return kind([self, self])

    values, indices = torch.max(Several(torch.ones(1)), 0)
    assert values is not None
    assert indices is not None


def test_handler_that_writes_inside_keeps_the_outside_in_step() -> None:
    class Resized(WrapperTensor):
        pass

    @Resized.table.implements(aten.t_.default)
    def t_(self: Any) -> Any:
        self.elem.t_()
        return self

    x = Resized(torch.ones(2, 3))
    x.t_()
    assert x.shape == x.elem.shape == (3, 2)  # type: ignore[attr-defined]
    assert x.stride() == x.elem.stride()  # type: ignore[attr-defined]


# ── views that are copies ───────────────────────────────────────────────────────────────────────


def copying(copies: bool) -> Any:
    class Copying(WrapperTensor):
        pass

    @Copying.table.implements(aten.t.default)
    def t(self: Any) -> Any:
        return Copying(self.elem.t().clone() if copies else self.elem.t())

    @Copying.table.implements(aten.unbind.int)
    def unbind(self: Any, dim: Any = 0) -> Any:
        return [Copying(row.clone() if copies else row) for row in self.elem.unbind(dim)]

    @Copying.table.implements(aten.detach.default)
    def detach(self: Any) -> Any:
        return Copying(self.elem.clone() if copies else self.elem.detach())

    return Copying(torch.ones(2, 3))


VIEWS = {"t": lambda x: x.t(), "unbind": lambda x: x.unbind(), "detach": lambda x: x.detach()}


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", VIEWS)
def test_handler_that_gives_a_copy_for_a_view_is_warned_of(name: str, inference: bool) -> None:
    x = copying(True)
    text = rf"aten::{name}.*: the handler of .*Copying gave a copy, .* a view of 'elem'"
    with torch.inference_mode(inference), pytest.warns(UserWarning, match=text):
        VIEWS[name](x)


@pytest.mark.parametrize("name", VIEWS)
def test_handler_that_gives_a_view_is_not_warned_of(name: str) -> None:
    for x in (copying(False), copying(False) + 1):
        VIEWS[name](x)


def test_copy_of_nothing_is_not_warned_of() -> None:
    x = copying(True)
    type(x)(torch.ones(0, 3)).t()


class Mistaken(ScaledOnPlain):
    """Has a slip in each conversion."""

    slip: ClassVar[str] = ""

    def to_plain(self) -> Any:
        none: Any = None
        return super().to_plain() + (none if self.slip == "to_plain" else 0)

    @classmethod
    def from_plain(cls, plain: torch.Tensor, like: Any = None) -> Any:
        none: Any = None
        return super().from_plain(plain + (none if cls.slip == "from_plain" else 0), like)


MISTAKES: list[tuple[str, str, Callable[[Any], Any]]] = [
    ("to_plain", "aten::add.Tensor", lambda x: x + 1),
    ("to_plain", "aten::eq.Scalar", lambda x: x == 1),
    ("to_plain", "aten::ne.Scalar", lambda x: x != 1),
    ("to_plain", "aten::mul.Tensor", lambda x: x[0] * 2),
    ("to_plain", "aten::dot", lambda x: x @ x),
    ("to_plain", "aten::copy_", lambda x: torch.ones(2).copy_(x)),
    ("from_plain", "aten::add_.Tensor", lambda x: x.__iadd__(1)),
    ("from_plain", "aten::copy_", lambda x: x.__setitem__(0, 1.0)),
    ("from_plain", "aten::_to_copy", lambda x: x.double()),
    ("from_plain", "aten::mul_.Tensor", lambda x: x.detach().mul_(2)),
    ("from_plain", "aten::_foreach_add_.Scalar", lambda x: torch._foreach_add_([x], 1.0)),
]


@pytest.mark.parametrize(("slip", "op", "call"), MISTAKES)
def test_type_error_of_a_conversion_is_named(
    monkeypatch: pytest.MonkeyPatch, slip: str, op: str, call: Any
) -> None:
    x = Mistaken.from_plain(torch.ones(2))
    monkeypatch.setattr(Mistaken, "slip", slip)
    with pytest.raises(HandlerError) as caught:
        call(x)
    assert str(caught.value).startswith(f"{op}: Mistaken.{slip} raised TypeError: ")
    assert isinstance(caught.value.__cause__, TypeError)
    assert caught.value.overload.name() == op
