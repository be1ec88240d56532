"""What a wrapper class gets right by construction, and what it may say otherwise."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from dispatch_core import (
    HandlerError,
    HandlerResultError,
    NoHandlerError,
    Recorder,
    enable_python_mode,
    keep_composite,
)
from subclass_utils import LoggingTensor, MixingError, WrapperTensor

from tests.subclass_utils.wrappers import (
    Loose,
    Measured,
    Origin,
    Scaled,
    ScaledOnPlain,
    Strict,
    Unit,
    scaled,
)

aten = torch.ops.aten


def metre(*size: int) -> Measured:
    return Measured(torch.ones(*size), Unit.METRE, origin=Origin("here"))


# ── metadata ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x.detach(),
        lambda x: x.clone(),
        lambda x: x.to(torch.float64),
        lambda x: x.view(-1),
        lambda x: x[0],
        lambda x: x + 1,
        lambda x: x * torch.ones(2, 2),
        lambda x: torch.ones(2, 2) * x,
        lambda x: torch.nn.Parameter(x),
        lambda x: torch.split(x, 1)[0],
        lambda x: torch.max(x, 0)[1],
        lambda x: torch.empty_like(x),
        lambda x: x.data,
    ],
)
def test_metadata_is_carried_along(operation: Any) -> None:
    result = operation(metre(2, 2))
    assert type(result) is Measured
    assert result.unit is Unit.METRE
    assert result.origin == Origin("here")


def test_metadata_of_the_first_wrapper_counts() -> None:
    a, b = metre(1), Measured(torch.ones(1), Unit.SECOND)
    assert (a + b).unit is Unit.METRE  # type: ignore[attr-defined]
    assert (b + a).unit is Unit.SECOND  # type: ignore[attr-defined]


def test_metadata_falls_back_to_the_class_where_no_wrapper_says_it() -> None:
    with enable_python_mode(Measured):
        assert torch.ones(1).unit is None  # type: ignore[attr-defined]


# ── mixing ──────────────────────────────────────────────────────────────────────────────────────


def test_mixing_error_names_the_argument_and_the_way_out() -> None:
    with pytest.raises(MixingError) as caught:
        Strict(torch.ones(1)) + torch.ones(1)
    assert str(caught.value) == (
        "aten::add.Tensor: argument 'other' is a plain Tensor; Strict mixes by policy 'error': "
        'wrap it with Strict.from_plain, or declare mixing="wrap".'
    )
    assert caught.value.argument == "other"
    assert (Strict(torch.ones(1)) + Strict.from_plain(torch.ones(1)) + 2).elem.tolist() == [4.0]


def test_mixing_error_looks_into_lists() -> None:
    with pytest.raises(MixingError, match=r"aten::cat: argument 'tensors'"):
        torch.cat([Strict(torch.ones(1)), torch.ones(1)])


def test_mixing_unwrap_gives_plain_results_and_still_writes_wrappers() -> None:
    x = Loose(torch.ones(1))
    assert type(x + torch.ones(1)) is torch.Tensor
    assert type(x + x) is Loose
    assert x.add_(torch.ones(1)) is x
    assert x.elem.tolist() == [2.0]


def test_mixing_wrap_writes_into_a_plain_tensor() -> None:
    plain = torch.ones(2)
    assert plain.add_(metre(2)) is plain
    assert plain.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("context", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize(
    "write",
    [
        lambda plain, x: plain.add_(x),
        lambda plain, x: torch.add(x, 1, out=plain),
        lambda plain, x: plain.copy_(x),
        lambda plain, x: plain.index_put_((torch.tensor(0),), x[0]),
        lambda plain, x: torch.linalg.matrix_norm(x, out=plain[0, 0]),
        lambda plain, x: torch._foreach_add_([plain, plain], [x, x]),
    ],
)
def test_plain_tensor_written_counts_as_in_the_plain_run(write: Any, context: Any) -> None:
    values = torch.arange(4.0).view(2, 2)
    plain, beside = torch.zeros(2, 2), torch.zeros(2, 2)
    with context():
        write(plain, values)
        write(beside, Measured(values))
    assert torch.equal(beside, plain)
    assert beside._version == plain._version


def test_plain_tensor_written_at_wrapped_indices_reaches_the_handler_once() -> None:
    seen = []

    class Indexing(WrapperTensor):
        @classmethod
        def __torch_dispatch__(  # type: ignore[override]
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(func)
            return super().__torch_dispatch__(func, types, args, kwargs)

    x, values = torch.zeros(3), torch.ones(())
    x.index_put_((Indexing(torch.tensor(0)),), values)
    assert seen == [aten.index_put_.default]
    assert x.tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "x", [metre(3), scaled(1.0, 2.0, 3.0), ScaledOnPlain.from_plain(torch.ones(3))]
)
def test_legacy_constructor_gives_an_alias(x: Any) -> None:
    y: Any = torch.Tensor(x)
    assert type(y) is type(x)
    assert [type(getattr(y, name)) for name in y.inner_tensors] == [torch.Tensor] * len(
        y.inner_tensors
    )
    assert torch.equal(y.to_plain(), x.to_plain())
    assert torch._C._is_alias_of(x, y)  # type: ignore[attr-defined]


# ── handlers ────────────────────────────────────────────────────────────────────────────────────


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


# ── views, writes and versions ──────────────────────────────────────────────────────────────────


def test_views_share_versions_and_base_as_plain_ones_do() -> None:
    x = metre(4)
    y = x[1:]
    before = (x._version, x.elem._version)
    y.add_(1)
    assert y._base is x
    assert (x._version, x.elem._version) == (before[0] + 1, before[1] + 1)
    assert y._version == x._version
    assert x.elem.tolist() == [1.0, 2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.t_(),
        lambda x: x.resize_(5),
        lambda x: x.unsqueeze_(0),
        lambda x: x.transpose_(0, 1),
        lambda x: x.squeeze_(),
        lambda x: x.set_(Measured(torch.ones(7))),
        lambda x: torch.matmul(metre(5), metre(5, 3), out=x.resize_(0)),
        lambda x: setattr(x, "data", Measured(torch.zeros(2, 2).t())),
        lambda x: setattr(x, "data", torch.zeros(9)),
    ],
)
def test_outside_follows_in_place_changes(write: Any) -> None:
    x = Measured(torch.ones(2, 3))
    write(x)
    assert x.size() == x.elem.size()
    assert x.stride() == x.elem.stride()
    assert x.storage_offset() == x.elem.storage_offset()


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("bias", [torch.ones(3), torch.ones(6)[::2], torch.tensor(1.0)])
@pytest.mark.parametrize(
    "x",
    [
        torch.ones(4),
        torch.ones(5, 4),
        torch.ones(2, 5, 4),
        torch.ones(5, 2, 4).transpose(0, 1),
        torch.ones(2, 5, 2, 4).transpose(1, 2),
    ],
)
def test_linear_counts_the_versions_that_a_plain_one_does(
    x: torch.Tensor, bias: torch.Tensor, grad: bool
) -> None:
    weight = torch.ones(3, 4)
    plain = torch.nn.functional.linear(x.detach().requires_grad_(grad), weight, bias)
    y: Any = torch.nn.functional.linear(
        Measured(x, requires_grad=grad), Measured(weight), Measured(bias)
    )
    assert torch.equal(y.elem, plain)
    assert (y._version, y._is_view()) == (plain._version, plain._is_view())
    before = y._version, y.elem._version
    with torch.no_grad():
        y.add_(1)
    assert (y._version, y.elem._version) == (before[0] + 1, before[1] + 1)


FORWARD_AD: dict[str, Any] = {
    "linear": lambda x: torch.nn.functional.linear(x, torch.ones(2, 4)),
    "max_pool1d": lambda x: torch.nn.functional.max_pool1d(x, 2),
    "mul": lambda x: x * 3,
}


@pytest.mark.slow  # torch imports on first use what forward AD needs
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # its own call
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("name", FORWARD_AD)
def test_tangent_goes_through(name: str, grad: bool) -> None:
    x, tangent = torch.arange(12.0).view(3, 4), torch.ones(3, 4) * 2
    forward_ad = torch.autograd.forward_ad
    with forward_ad.dual_level(), torch.set_grad_enabled(grad):
        plain = FORWARD_AD[name](forward_ad.make_dual(x, tangent))
        y = FORWARD_AD[name](forward_ad.make_dual(Measured(x), Measured(tangent)))
        want, have = forward_ad.unpack_dual(plain).tangent, forward_ad.unpack_dual(y).tangent
        assert want is not None
        assert have is not None
        assert torch.equal(have.to_plain(), want)


@pytest.mark.slow  # torch imports on first use what forward AD needs
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # its own call
def test_linear_with_a_bias_that_has_a_tangent_counts_no_version() -> None:
    x, weight, bias = torch.ones(4), torch.ones(3, 4), torch.tensor(1.0)
    with torch.autograd.forward_ad.dual_level():
        plain = torch.nn.functional.linear(
            x, weight, torch.autograd.forward_ad.make_dual(bias, bias)
        )
        dual = torch.autograd.forward_ad.make_dual(Measured(bias), Measured(bias))
        y = torch.nn.functional.linear(Measured(x), Measured(weight), dual)
        assert y._version == plain._version == 0


def test_setting_data_takes_over_metadata_of_a_wrapper() -> None:
    x = Measured(torch.ones(1))
    x.data = metre(3)
    assert x.unit is Unit.METRE
    assert x.shape == (3,)


def test_foreach_counts_versions_and_leaves_plain_results_plain() -> None:
    xs: list[Any] = [metre(1), torch.ones(1)]
    versions = [x._version for x in xs]
    torch._foreach_add_(xs, 1)
    assert [x._version for x in xs] == [version + 1 for version in versions]
    assert [type(x) for x in torch._foreach_mul(xs, 2)] == [Measured, torch.Tensor]


def test_foreach_counts_once_for_each_view_of_one_tensor() -> None:
    x, plain = metre(2, 3), torch.ones(2, 3)
    torch._foreach_add_([x[0], x[1]], 1)
    plain[0].add_(1)
    plain[1].add_(1)
    assert x._version == x.elem._version == plain._version


@pytest.mark.parametrize("context", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_kept_composite_that_copied_gives_no_view(context: Any) -> None:
    x = Measured(torch.randn(3, 4), requires_grad=True)
    kept = [torch.ops.aten.reshape, torch.ops.aten.to, torch.ops.aten.contiguous]
    with context(), keep_composite(*kept):
        for copied in (x.t().reshape(-1), x.t().contiguous(), x.to(torch.float64)):
            assert not torch._C._is_alias_of(copied, x)  # type: ignore[attr-defined]
            assert copied.requires_grad is (context is torch.enable_grad)
            with torch.no_grad():
                copied.zero_()
        view = x.reshape(-1)
    assert torch._C._is_alias_of(view, x)  # type: ignore[attr-defined]
    assert x._version == 0
    assert bool((x.elem != 0).all())


def test_foreach_change_is_noticed_by_autograd() -> None:
    x = Measured(torch.ones(1), requires_grad=True)
    y = x * 1
    z = y * y
    torch._foreach_add_([y], 1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_conjugate_and_negative_bits_are_those_of_the_inner_tensor() -> None:
    x = Measured(torch.tensor([2 + 3j])).conj()
    assert x.is_conj()
    assert x.elem.is_conj()  # type: ignore[attr-defined]
    assert (Measured(torch.tensor([1 + 1j])) * x).elem.item() == 5 - 1j  # type: ignore[attr-defined]
    assert x.imag.is_neg()
    assert x.imag.elem.item() == -3  # type: ignore[attr-defined]


def test_negative_view_of_a_plain_tensor_has_the_bit() -> None:
    x = metre(2)._neg_view()
    assert x.is_neg()
    assert x.elem.is_neg()  # type: ignore[attr-defined]
    assert (x + 0).elem.tolist() == [-1.0, -1.0]  # type: ignore[attr-defined]


def test_view_of_a_wrapper_from_outside_under_inference_mode() -> None:
    x = metre(4)
    with torch.inference_mode():
        y, z = x[1:], x + 1
        assert not y.is_inference()
        assert z.is_inference()
        inside = metre(2)
    assert inside.is_inference()
    assert inside.elem.is_inference()
    y.add_(1)
    assert x._version == y._version == 1


def test_wrappers_nest_the_outer_class_first() -> None:
    x = Measured(LoggingTensor(torch.ones(2)), Unit.METRE)
    y = x * 2
    assert type(y) is Measured
    assert type(y.elem) is LoggingTensor
    assert y.elem.elem.tolist() == [2.0, 2.0]
    x.add_(1)
    assert x.elem.elem.tolist() == [2.0, 2.0]  # type: ignore[attr-defined]


def test_operators_outside_the_specs_are_wrapped_too() -> None:
    with torch.library._scoped_library("subclass_utils_test", "DEF") as library:
        library.define("twice(Tensor x, Tensor(a!) log) -> (Tensor, Tensor)")
        library.impl(
            "twice",
            lambda x, log: (x * 2, log.add_(1) * 1),
            "CompositeExplicitAutograd",
        )
        log = metre(1)
        first, second = torch.ops.subclass_utils_test.twice(metre(1), log)
    assert (type(first), type(second)) == (Measured, Measured)
    assert log.elem.tolist() == [2.0]


def test_split_by_a_wrapped_tensor_of_indices() -> None:
    parts = torch.tensor_split(metre(4), Measured(torch.tensor([1, 3])))
    assert [part.shape[0] for part in parts] == [1, 2, 1]


def test_higher_order_operator_says_what_to_register() -> None:
    from torch._higher_order_ops.cond import cond_op

    with pytest.raises(NoHandlerError, match=r"table\.implements"):
        Measured.__torch_dispatch__(cond_op, (Measured,), (metre(1), None, None, ()), {})


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (lambda x: x.new_tensor([1, 2]), [1.0, 2.0]),
        (lambda x: x.new([1.0, 2.0]), [1.0, 2.0]),
        (lambda x: x.new_tensor([1], dtype=torch.int64), [1]),
        (lambda x: x.new_ones(2), [1.0, 1.0]),
        (lambda x: x.new_full((1,), 3.0), [3.0]),
    ],
)
def test_new_tensors_are_wrapped_with_the_metadata(make: Any, values: list[Any]) -> None:
    made = make(metre(3))
    assert type(made) is Measured
    assert made.unit is Unit.METRE
    assert made.elem.tolist() == values


# ── where the outside differs ───────────────────────────────────────────────────────────────────


def test_operator_without_handler_names_what_to_register() -> None:
    with pytest.raises(NoHandlerError) as caught:
        scaled(1.0) + 1
    assert str(caught.value) == (
        "aten::add.Tensor: Scaled has no handler for it. Register one with "
        "@Scaled.table.implements(torch.ops.aten.add.Tensor), or declare "
        'without_handler = "to_plain", to run such operators on to_plain().'
    )


def test_comparison_without_handler_does_not_answer_false() -> None:
    with pytest.raises(NoHandlerError):
        operator.eq(scaled(1.0), 1)


def test_operator_on_plain_gives_plain_and_writes_back() -> None:
    x = ScaledOnPlain.from_plain(torch.tensor([1.0, 2.0]))
    assert type(x + 1) is torch.Tensor
    assert (x + 1).tolist() == [2.0, 3.0]
    assert x.add_(1) is x
    assert x.numbers.tolist() == [4, 6]


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x.detach(),
        lambda x: x.clone(),
        lambda x: x.to("cpu", copy=True),
        lambda x: x.to(torch.float64),
        lambda x: torch.nn.Parameter(x),
        lambda x: x.data,
    ],
)
def test_what_keeps_the_value_keeps_the_class(operation: Any) -> None:
    x = Scaled.from_plain(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    x.bits = 4
    y = operation(x)
    assert type(y) is Scaled
    assert y.to_plain().tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert y.shape == (2, 2)


def test_copy_into_a_wrapper_converts_plain_values() -> None:
    x = scaled(1.0, 2.0)
    x.copy_(torch.tensor([3.0, 4.0]))
    assert x.numbers.tolist() == [6, 8]
    x.copy_(scaled(5.0, 6.0))
    assert x.to_plain().tolist() == [5.0, 6.0]
    plain = torch.zeros(2)
    plain.copy_(x)
    assert plain.tolist() == [5.0, 6.0]


def test_registered_handler_gets_plain_and_wrapped_arguments_as_they_are() -> None:
    weight = Scaled.from_plain(torch.eye(2))
    assert (torch.ones(1, 2) @ weight).tolist() == [[1.0, 1.0]]


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("context", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.t_(),
        lambda x: x.unsqueeze_(0),
        lambda x: x.swapaxes_(0, 1),
        lambda x: x.resize_(6),
        lambda x: x.resize_as_(torch.ones(6)),
        lambda x: x.set_(torch.ones(4)),
        lambda x: torch.add(torch.ones(4), 1, out=x),
    ],
)
def test_outside_follows_what_was_written_on_the_plain_tensor(write: Any, context: Any) -> None:
    plain = torch.arange(6.0).view(2, 3)
    x = ScaledOnPlain.from_plain(plain)
    with context():
        write(x)
        write(plain)
    assert (x.size(), x.stride()) == (plain.size(), plain.stride())
    assert x.numbers.size() == plain.size()
    assert torch.equal(x.to_plain(), plain)


def test_foreach_on_plain_tensors_counts_a_version() -> None:
    a = torch.ones(2, requires_grad=True)
    b = ScaledOnPlain.from_plain(torch.ones(2))
    y = (a * b).sum()
    with torch.no_grad():
        torch._foreach_mul_([b], 3.0)
    assert b._version == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


# ── under modes ─────────────────────────────────────────────────────────────────────────────────

WITH_FACTORIES: dict[str, Any] = {
    "where": lambda x: torch.where(x > 0, x, 2.0),
    "batch_norm": lambda x: torch.nn.functional.batch_norm(x, None, None, training=True),
    "cosine_similarity": lambda x: torch.cosine_similarity(x, x + 1),
    "quantile": lambda x: torch.quantile(x, 0.5),
    "unsafe_split": lambda x: torch.unsafe_split(x, 2)[0],
}


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("name", WITH_FACTORIES)
def test_composite_with_a_factory_runs_under_mode_and_inference(name: str, inside: bool) -> None:
    plain = torch.arange(12.0).view(3, 4) - 5
    x = Measured(plain)
    with torch.inference_mode(), Recorder():
        y = WITH_FACTORIES[name](Measured(plain) if inside else x)
    assert type(y) is Measured
    assert torch.equal(y.elem, WITH_FACTORIES[name](plain))


@pytest.mark.parametrize("mode", [Recorder, lambda: enable_python_mode(Measured)])
def test_foreach_counts_versions_under_a_mode(mode: Any) -> None:
    x, y, plain = metre(1), metre(1), torch.ones(1)
    with mode():
        torch._foreach_add_([x, y, plain], 1)
        torch._foreach_mul_([x, x], 2)
    assert (x._version, x.elem._version) == (3, 3)
    assert (y._version, y.elem._version, plain._version) == (1, 1, 1)


def test_conjugated_parts_are_right_under_a_mode() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(2, 4, 3, dtype=torch.complex64), torch.randn(2, 4, 3, dtype=torch.complex64)
    with Recorder():
        y: Any = torch.linalg.pinv(Measured(a) @ Measured(b).mH)
        z: Any = torch.addmm(Measured(a[0]).conj(), Measured(b[0]), Measured(b[0, :3]).mH)
    assert torch.allclose(y.elem, torch.linalg.pinv(a @ b.mH), atol=1e-4)
    assert torch.allclose(z.elem, torch.addmm(a[0].conj(), b[0], b[0, :3].mH), atol=1e-4)


IN_PYTHON_MODE: dict[str, Any] = {
    "factory": lambda p, w: torch.ones(2, 3) + p,
    "plain": lambda p, w: p + p,
    "wrapper": lambda p, w: w * 2 + p,
    "view": lambda p, w: p.t()[1:],
    "in place": lambda p, w: p.clone().add_(w),
    "t_": lambda p, w: p.clone().t_(),
    "resize_": lambda p, w: p.clone().resize_(2),
    "set_": lambda p, w: p.clone().set_(torch.ones(3)),
    "out": lambda p, w: torch.add(p, 1, out=torch.empty(0)),
    "cat": lambda p, w: torch.cat([p, w]),
    "split": lambda p, w: torch.split(p, 1)[1],
    "max": lambda p, w: p.max(1)[1],
    "where": lambda p, w: torch.where(p > 1, p, 2.0),
    "index": lambda p, w: p[p > 2],
    "linear": lambda p, w: torch.nn.functional.linear(p, torch.ones(4, 3), torch.ones(4)),
    "batch_norm": lambda p, w: torch.nn.functional.batch_norm(p, None, None, training=True),
    "quantile": lambda p, w: p.quantile(0.5),
    "conj": lambda p, w: torch.complex(p, p).conj().imag,
    "foreach": lambda p, w: torch._foreach_add([p, p], 1)[1],
    "foreach, mixed": lambda p, w: torch._foreach_add([p, w], 1)[1],
    "Parameter": lambda p, w: torch.nn.Parameter(torch.ones(2)),
    "tensor": lambda p, w: torch.tensor([1.0, 2.0]),
}


@pytest.mark.parametrize("context", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", IN_PYTHON_MODE)
def test_python_mode_of_a_class_gives_wrappers(name: str, context: Any) -> None:
    p = torch.arange(6.0).view(2, 3)
    with context():
        want = IN_PYTHON_MODE[name](p, p)
        w = Measured(p, Unit.METRE)
        with enable_python_mode(Measured):
            got = IN_PYTHON_MODE[name](p, w)
    assert type(got) is Measured
    assert torch.equal(got.elem, want)
    assert (got.stride(), got.storage_offset()) == (want.stride(), want.storage_offset())
    assert got.requires_grad == want.requires_grad
