"""Plain tensors beside wrappers in one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from subclass_utils import MixingError, WrapperTensor

from tests.subclass_utils.wrappers import Loose, Measured, ScaledOnPlain, Strict, metre, scaled

aten = torch.ops.aten


class StrictOnPlain(ScaledOnPlain):
    mixing = "error"


class WithCopy(StrictOnPlain):
    """The same; writes by a handler."""


@WithCopy.table.implements(torch.ops.aten.copy_.default)
def _copy(self: Any, src: Any, non_blocking: bool = False) -> Any:
    return WithCopy.run_without_handler(torch.ops.aten.copy_.default, self, src, non_blocking)


def test_mixing_error_names_the_argument_and_the_way_out() -> None:
    with pytest.raises(MixingError) as caught:
        Strict(torch.ones(1)) + torch.ones(1)
    assert str(caught.value) == (
        "aten::add.Tensor: argument 'other' is a plain Tensor; Strict mixes by policy 'error': "
        'wrap it with Strict.from_plain, or declare mixing="wrap".'
    )
    assert caught.value.argument == "other"
    assert (Strict(torch.ones(1)) + Strict.from_plain(torch.ones(1)) + 2).elem.tolist() == [4.0]


@pytest.mark.parametrize("strict", [Strict(torch.ones(1)), StrictOnPlain.from_plain(torch.ones(1))])
def test_mixing_error_names_another_class(strict: Any) -> None:
    with pytest.raises(MixingError) as caught:
        strict + Loose(torch.ones(1))
    name = type(strict).__name__
    assert str(caught.value) == (
        f"aten::add.Tensor: argument 'other' is a Loose, which is no {name}; {name} mixes by "
        f"policy 'error': convert it with {name}.from_plain(other.to_plain()), or declare "
        'mixing="wrap".'
    )


def test_mixing_error_at_a_handler_names_another_class() -> None:
    with pytest.raises(MixingError, match=r"'src' is a Loose, which is no WithCopy"):
        WithCopy.from_plain(torch.ones(1)).copy_(Loose(torch.ones(1)))


STRICT: dict[str, Callable[[torch.Tensor], Any]] = {
    "transparent": Strict,
    "on plain": StrictOnPlain.from_plain,
    "handler": lambda x: WithCopy.from_plain(x),
}
BY_NUMBERS: list[Callable[[Any], Any]] = [
    lambda x: x.__setitem__(0, 7.0),
    lambda x: x.__setitem__((0, [1, 2]), 7),
    lambda x: x.__setitem__([0, 2], True),
    lambda x: x.__setitem__((..., 0), 2),
    lambda x: x[0].__setitem__(1, 4.0),
    lambda x: x.__setitem__([True, False, True], 3),
    lambda x: x.__setitem__(range(2), 3.5),
    lambda x: x[0].__setitem__([1, 2], 4.0),
    lambda x: x.t().__setitem__(1, 4.0),
]
BY_PLAIN: list[Callable[[Any], Any]] = [
    lambda x: x.__setitem__(0, torch.tensor(7.0)),
    lambda x: x.__setitem__(0, torch.ones(4)),
    lambda x: x[0].__setitem__(1, torch.tensor(7.0)),
    lambda x: x[0].add_(torch.ones(4)),
    lambda x: x.copy_(torch.ones(3, 4)),
    lambda x: torch.ones(3, 4).copy_(x),
    lambda x: torch.ones(4).copy_(x[0]),
    lambda x: x[torch.tensor([0])],
    lambda x: x.__setitem__(torch.ones(3, 4) > 0, 0.0),
]


@pytest.mark.parametrize("kind", STRICT)
@pytest.mark.parametrize("by", BY_NUMBERS)
def test_items_set_by_numbers_and_lists_are_no_mixing(kind: str, by: Any) -> None:
    plain = torch.arange(12.0).view(3, 4)
    x: Any = STRICT[kind](plain.clone())
    by(x), by(plain)
    assert torch.equal(x.to_plain(), plain)


@pytest.mark.parametrize("kind", STRICT)
@pytest.mark.parametrize("by", BY_PLAIN)
def test_items_by_plain_tensors_are_mixing(kind: str, by: Any) -> None:
    x = STRICT[kind](torch.ones(3, 4))
    with pytest.raises(MixingError):
        by(x)
    x[0] = 2.0  # torch makes this one
    assert x.to_plain().sum() == 16.0


def test_mixing_error_looks_into_lists() -> None:
    with pytest.raises(MixingError, match=r"aten::cat: argument 'tensors'"):
        torch.cat([Strict(torch.ones(1)), torch.ones(1)])


@pytest.mark.parametrize("cls", [Strict, Loose])
def test_tensors_that_torch_makes_itself_do_not_count_as_mixing(cls: Any) -> None:
    x = cls(torch.ones(3, 2, 4))
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, [3, 1])
    assert type(packed.data) is cls
    assert type(torch.nn.utils.rnn.pack_sequence([x[0], x[1, :1]]).data) is cls
    parameter: Any = torch.nn.Parameter(x)
    parameter.grad = cls(torch.ones(3, 2, 4))
    torch.optim.AdamW([parameter], fused=True).step()
    assert bool((parameter.elem < 1).all())


def test_sequences_that_torch_would_sort_are_sorted_by_a_wrapped_index() -> None:
    rnn = torch.nn.utils.rnn
    x = Strict(torch.arange(4.0).view(2, 2))
    with pytest.raises(MixingError, match="aten::index_select: argument 'index'"):
        rnn.pack_padded_sequence(x, torch.tensor([1, 2]), enforce_sorted=False)
    order = Strict(torch.tensor([1, 0]))
    packed = rnn.pack_padded_sequence(x.index_select(1, order), torch.tensor([2, 1]))
    assert packed.data.to_plain().tolist() == [1.0, 0.0, 3.0]  # type: ignore[attr-defined]


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
