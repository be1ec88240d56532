"""What whole handlers give where the operator gives its argument, a view of it, or a copy."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from copy import deepcopy as copy_together
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from subclass_utils import WrapperTensor

from tests.subclass_utils.wrappers import ScaledOnPlain

aten = torch.ops.aten

CALLS: dict[str, Callable[[Any], Any]] = {
    "reshape": lambda x: x.reshape(12),
    "reshape to the same": lambda x: x.reshape(3, 4),
    "reshape that copies": lambda x: x.t().reshape(12),
    "flatten": lambda x: x.flatten(),
    "flatten of one dim": lambda x: x[0].flatten(),
    "flatten that copies": lambda x: x.t().flatten(),
    "contiguous": lambda x: x.contiguous(),
    "contiguous that copies": lambda x: x.t().contiguous(),
    "to the same dtype": lambda x: x.to(torch.float32),
    "to the same device": lambda x: x.to("cpu"),
    "to with a copy": lambda x: x.to(torch.float32, copy=True),
    "dropout in eval": lambda x: F.dropout(x, 0.5, training=False),
    "dropout in training": lambda x: F.dropout(x, 0.0),
    "movedim": lambda x: x.movedim(0, 1),
    "T": lambda x: x.T,
    "expand_as": lambda x: x.expand_as(x),
    "chunk": lambda x: x.chunk(2)[1],
}

WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "none": lambda x, result: None,
    "result": lambda x, result: result.mul_(2),
    "argument": lambda x, result: x.mul_(2),
    "fill": lambda x, result: result.fill_(1),
    "both": lambda x, result: (result.mul_(2), x.mul_(2)),
}


class Anew(WrapperTensor):
    """Its handlers wrap whatever the inner tensor gives."""

    metadata = ("tags",)
    tags: tuple[str, ...] = ("one",)
    elem: torch.Tensor


class AnewOfTwo(ScaledOnPlain):
    """The same, of whole numbers and a scale."""


class RunsWithout(Anew):
    """Answers as without a handler."""


@Anew.table.implements(
    aten.reshape,
    aten.flatten,
    aten.contiguous,
    aten.to,
    aten.dropout,
    aten.movedim,
    aten.numpy_T,
    aten.chunk,
)
def _anew(func: Any, *args: Any, **kwargs: Any) -> Any:
    got = func(args[0].elem, *args[1:], **kwargs)
    return [Anew(part) for part in got] if isinstance(got, list | tuple) else Anew(got)


@Anew.table.implements(aten.expand_as.default)
def _expand_as(self: Any, other: Any) -> Any:
    return Anew(self.elem.expand_as(other.elem))


@AnewOfTwo.table.implements(
    aten.reshape,
    aten.flatten,
    aten.contiguous,
    aten.movedim,
    aten.numpy_T,
    aten.chunk,
    aten.t,
)
def _two_anew(func: Any, *args: Any, **kwargs: Any) -> Any:
    got = func(args[0].numbers, *args[1:], **kwargs)
    if isinstance(got, list | tuple):
        return [AnewOfTwo(part, args[0].scale) for part in got]
    return AnewOfTwo(got, args[0].scale)


@AnewOfTwo.table.implements(aten.dropout.default)
def _dropout(input: Any, p: float, train: bool) -> Any:
    if train:
        return AnewOfTwo.run_without_handler(aten.dropout.default, input, p, train)
    return AnewOfTwo(input.numbers, input.scale)


@RunsWithout.table.implements(
    aten.reshape,
    aten.flatten,
    aten.contiguous,
    aten.to,
    aten.dropout,
    aten.movedim,
    aten.numpy_T,
    aten.chunk,
    aten.expand_as,
)
def _without(func: Any, *args: Any, **kwargs: Any) -> Any:
    return RunsWithout.run_without_handler(func, *args, **kwargs)


def _plain(tensor: Any) -> list[Any]:
    value = tensor.to_plain() if isinstance(tensor, WrapperTensor) else tensor
    values: list[Any] = value.detach().tolist()
    return values


def _attempt(*args: Any) -> list[Any]:
    try:
        return _outcome(*args)
    except RuntimeError as error:  # as where there are several views
        return ["refused", "is a view and" in str(error)]


def _outcome(wrap: Callable[[torch.Tensor], Any], call: Any, write: Any, grad: bool) -> list[Any]:
    leaf = wrap(torch.arange(12.0).view(3, 4).clone())
    if grad:
        leaf = leaf.detach().requires_grad_()
    x = leaf * 1 if grad else leaf
    result = call(x)
    write(x, result)
    seen: list[Any] = [_plain(x), _plain(result), result is x, result.requires_grad]
    for tensor in (x, result):
        seen += [tensor.is_inference(), tensor._is_view()]
        seen.append(None if tensor.is_inference() else tensor._version)
    if grad and result.requires_grad:
        (result.sum() + (x * x).sum()).backward()
        seen.append(_plain(leaf.grad))
    return seen


@pytest.mark.parametrize("grad", ["grad", "none", "no_grad", "inference_mode"])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("cls", [Anew, RunsWithout, AnewOfTwo])
def test_result_is_the_argument_a_view_or_a_copy_as_a_plain_one(
    cls: Any, name: str, write: str, grad: str
) -> None:
    modes: dict[str, Any] = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode}
    want, got = (
        modes.get(grad, torch.enable_grad)()(_attempt)(
            wrap, CALLS[name], WRITES[write], grad == "grad"
        )
        for wrap in (lambda plain: plain, cls.from_plain)
    )
    assert got == want


def test_write_into_what_the_gradient_needs_is_an_error() -> None:
    for wrap in (torch.clone, Anew.from_plain):
        x = wrap(torch.ones(3)).requires_grad_()
        y = x * 1
        loss = (y * y).sum()
        with torch.no_grad():
            y.to(torch.float32).mul_(5)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_wrapper_made_anew_with_other_metadata_is_no_argument() -> None:
    class Tagged(Anew):
        pass

    @Tagged.table.implements(aten.to.dtype)
    def to(
        self: Any,
        dtype: Any,
        non_blocking: Any = False,
        copy: Any = False,
        memory_format: Any = None,
    ) -> Any:
        return Tagged(self.elem.to(dtype), (*self.tags, str(dtype)))

    x: Any = Tagged(torch.ones(2))
    got = x.to(torch.float32)
    assert got is not x
    assert (x.tags, got.tags) == (("one",), ("one", "torch.float32"))


# ── parts that torch could not run on wrappers ──────────────────────────────────────────────────


def test_tensor_of_indices_may_be_a_wrapper() -> None:
    class Splits(WrapperTensor):
        elem: torch.Tensor

    @Splits.table.implements(aten.tensor_split)
    def split(func: Any, *args: Any, **kwargs: Any) -> Any:
        return Splits.run_without_handler(func, *args, **kwargs)

    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        with mode():
            x: Any = Splits(torch.arange(6.0))
            for sections in (torch.tensor([1, 4]), Splits(torch.tensor([1, 4]))):
                parts: Any = torch.tensor_split(x, sections)
                assert [_plain(part.elem) for part in parts] == [[0.0], [1.0, 2.0, 3.0], [4.0, 5.0]]


def test_result_that_has_no_gradient_is_a_leaf() -> None:
    class Own(WrapperTensor):
        elem: torch.Tensor

    @Own.table.implements(aten.adaptive_max_pool1d.default)
    def pool(self: Any, output_size: Any) -> Any:
        values, indices = aten.adaptive_max_pool1d.default(self.elem, output_size)
        return Own(values), Own(indices.to(torch.float32))

    x: Any = Own(torch.arange(6.0).view(1, 6), requires_grad=True)
    values, indices = torch.adaptive_max_pool1d(x, 2)
    assert (values.requires_grad, indices.requires_grad) == (True, False)
    values.sum().backward()
    assert x.grad.elem.tolist() == [[0.0, 0.0, 1.0, 0.0, 0.0, 1.0]]


def test_views_without_an_alias_in_the_schema_share_the_outside() -> None:
    class Own(WrapperTensor):
        elem: torch.Tensor

    @Own.table.implements(aten.broadcast_tensors.default)
    def broadcast(tensors: Any) -> Any:
        return [Own(part) for part in torch.broadcast_tensors(*[t.elem for t in tensors])]

    x: Any = Own(torch.ones(3, 1), requires_grad=True)
    y: Any = Own(torch.ones(1, 4))
    given = (x * 1, y)
    first, second = torch.broadcast_tensors(*given)
    assert (first._base is given[0], second._base is given[1]) == (True, True)
    assert (first.requires_grad, second.requires_grad) == (True, False)
    is_alias_of: Any = getattr(torch._C, "_is_alias_of")  # noqa: B009  # which no stub names
    assert is_alias_of(first, given[0])
    assert not is_alias_of(first, second)


# ── handlers of one operator that give now this, now that ───────────────────────────────────────


class Einsum(WrapperTensor):
    """Multiplies and views by einsum."""

    elem: torch.Tensor


@Einsum.table.implements(aten.einsum.default)
def _einsum(equation: Any, tensors: Any, *, path: Any = None) -> Any:
    return Einsum(torch.einsum(equation, [tensor.elem for tensor in tensors]))


@pytest.mark.parametrize("equation", ["ij->ji", "ii->i"])
def test_einsum_stays_a_view_after_one_that_computes(equation: str) -> None:
    def run() -> list[Any]:
        leaf: Any = Einsum(torch.ones(2, 2)).requires_grad_()
        x = leaf * 1
        view = torch.einsum(equation, x)
        view.mul_(3)
        x.sum().backward()
        return [view._base is x, x._version, leaf.grad.elem.tolist()]

    first = run()
    assert first[:2] == [True, 1]
    x: Any = Einsum(torch.ones(2, 2))
    torch.einsum("ij,jk->ik", x, x)
    torch.einsum("ij,ij->", x, x)
    assert run() == first


# ── what may be written before the backward ─────────────────────────────────────────────────────


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_dropout_in_place_that_drops_nothing_is_no_write(anew: bool, grad: bool) -> None:
    class Drops(WrapperTensor):
        elem: torch.Tensor

    @Drops.table.implements(aten.dropout_.default)
    def dropout(self: Any, p: Any, train: Any) -> Any:
        if anew:
            F.dropout(self.elem, p, train, inplace=True)
            return self
        return Drops.run_without_handler(aten.dropout_.default, self, p, train)

    leaf: Any = Drops(torch.ones(3)).requires_grad_(grad)
    x = leaf * 1
    loss, node = (x * x).sum(), x.grad_fn
    assert F.dropout(x, 0.5, training=False, inplace=True) is x
    assert (x._version, x.grad_fn) == (0, node)
    if grad:
        loss.backward()
        assert torch.equal(leaf.grad.elem, torch.full((3,), 2.0))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["expand_as", "view_as", "reshape_as"])
def test_view_by_the_size_of_a_wrapper_follows_and_does_not_keep_it(name: str) -> None:
    class Sized(ScaledOnPlain):
        pass

    def answer(self: Any, other: Any) -> Any:
        return Sized(getattr(self.numbers, name)(other.numbers), self.scale)

    register: Any = Sized.table.implements(getattr(aten, name).default)
    register(answer)
    x = Sized.from_plain(torch.ones(3, 4))
    other = Sized.from_plain(torch.zeros(3, 4))
    kept = weakref.ref(other)
    view = getattr(x, name)(other)
    del other
    gc.collect()
    assert kept() is None
    assert float(view.sum()) == 12
    view.fill_(2)
    assert _plain(x) == [[2.0] * 4] * 3
    copy, part = copy_together((x, view))
    part.fill_(5)
    assert _plain(copy) == [[5.0] * 4] * 3


class Broadcasts(WrapperTensor):
    """Wraps each result of broadcast_tensors, those of plain tensors too."""

    elem: torch.Tensor


@Broadcasts.table.implements(aten.broadcast_tensors.default)
def _broadcast(tensors: Any) -> Any:
    plain = [t.elem if isinstance(t, Broadcasts) else t for t in tensors]
    return [Broadcasts(t) for t in torch.broadcast_tensors(*plain)]


def test_result_of_a_wrapper_beside_that_of_a_plain_tensor_is_its_view() -> None:
    leaf: Any = Broadcasts(torch.ones(1, 3)).requires_grad_()
    x = leaf * 1
    first, _ = torch.broadcast_tensors(x, torch.zeros(1, 3))
    first.mul_(2)
    x.sum().backward()
    assert leaf.grad.elem.tolist() == [[2.0] * 3]
    y = leaf * 1
    loss = F.mse_loss(y, torch.zeros(1, 3), reduction="sum")
    with torch.no_grad():
        y.fill_(100.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.slow
def test_results_of_a_wrapper_and_a_plain_tensor_compile() -> None:
    torch._dynamo.reset()

    def call(a: Any, b: Any) -> Any:
        return torch.broadcast_tensors(a, b)[0] * 2

    x: Any = Broadcasts(torch.ones(3, 1)).requires_grad_()
    got: Any = torch.compile(call, backend="aot_eager")(x, torch.ones(1, 3))
    got.sum().backward()
    assert torch.equal(got.elem, torch.full((3, 3), 2.0))
    assert torch.equal(x.grad.elem, torch.full((3, 1), 6.0))


@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("name", ["meshgrid", "broadcast_tensors"])
def test_views_of_wrappers_and_plain_tensors_follow_writes(
    name: str, first: bool, second: bool, needs: bool
) -> None:
    class Own(WrapperTensor):
        elem: torch.Tensor

    def answer(func: Any, *args: Any, **kwargs: Any) -> Any:
        plain = [t.elem if isinstance(t, Own) else t for t in args[0]]
        return [Own(t) for t in func(plain, **kwargs)]

    register: Any = Own.table.implements(aten.meshgrid, aten.broadcast_tensors)
    register(answer)

    def run(wrap: Any, other: Any) -> list[Any]:
        leaf = wrap(torch.tensor([1.0, 2.0, 3.0])).requires_grad_()
        x, y = leaf.clone(), other(torch.ones(3)).requires_grad_(needs)
        call: Any = getattr(aten, name)
        result = call([x, y * 1])[0]
        x.mul_(2)
        (result * result).sum().backward()
        return [result._is_view(), _plain(leaf.grad)]

    assert run(Own if first else torch.clone, Own if second else torch.clone) == run(
        torch.clone, torch.clone
    )


def test_list_of_which_a_handler_changes_one_keeps_what_it_gave() -> None:
    class Own(WrapperTensor):
        elem: torch.Tensor

    @Own.table.implements(aten.chunk.default)
    def chunk(self: Any, chunks: int, dim: int = 0) -> Any:
        first, second = self.elem.chunk(chunks, dim)
        return [Own(first), Own(second * 3)]

    leaf: Any = Own(torch.ones(4), requires_grad=True)
    parts = (leaf * 1).chunk(2)
    assert [part.elem.tolist() for part in parts] == [[1.0, 1.0], [3.0, 3.0]]
