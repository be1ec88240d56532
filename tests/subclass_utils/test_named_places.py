"""Strides and places that a caller names are those in the wrapper's memory, or an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from dispatch_core import ops
from subclass_utils import ViewError

from tests.subclass_utils.test_exchanged import Scaled, values

aten = ops.aten


class Honest(Scaled):
    """Says where its numbers lie."""


class NoOffset(Scaled):
    """Says the strides, and no offset."""

    @staticmethod
    def __new__(cls: type[Any], numbers: torch.Tensor, scale: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            cls, numbers.size(), strides=numbers.stride(), dtype=numbers.dtype
        )


class NoStrides(Scaled):
    """Says that every part is contiguous."""

    @staticmethod
    def __new__(cls: type[Any], numbers: torch.Tensor, scale: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, numbers.size(), dtype=numbers.dtype)


def real() -> torch.Tensor:
    return torch.arange(1.0, 13.0)


@pytest.mark.parametrize("part", [lambda x: x[2:], lambda x: x[::2], lambda x: x[1::3][1:]])
@pytest.mark.parametrize(
    "place", [((4,), (1,)), ((2, 3), (1, 2)), ((4,), (1,), 0), ((3, 2), (2, 3), 1)]
)
def test_place_in_a_view_is_one_in_the_whole(
    part: Callable[[Any], Any], place: tuple[Any, ...]
) -> None:
    outcomes = []
    for make in (Honest.from_plain, torch.clone):
        x = make(real())
        found = part(x).as_strided(*place)
        read = values(found)
        found.mul_(3)
        outcomes.append([read, *values(found, x, part(x))])
    assert outcomes[0] == outcomes[1]


def test_outside_that_says_another_place() -> None:
    part = NoOffset.from_plain(real())[2:]
    assert values(part.as_strided((2, 2), (1, 2))) == [[3.0, 5.0, 4.0, 6.0]]
    assert values(part.as_strided((2,), (1,), 1)) == [[4.0, 5.0]]  # as it says
    part = NoStrides.from_plain(real())[::2]
    for place in (((3,), (1,)), ((6,), (1,))):
        with pytest.raises(ViewError, match=r"the strides \(1,\), but lies in its whole with \(2,"):
            part.as_strided(*place)
    assert values(part.as_strided((3,), (2,), 0)) == [[1.0, 5.0, 9.0]]
    assert values(part.view(2, 3)) == [[1.0, 3.0, 5.0, 7.0, 9.0, 11.0]]


def test_place_that_the_wrapper_does_not_have_is_an_error() -> None:
    scale = torch.ones(())
    x = Honest(real()[::2], scale)
    with pytest.raises(ViewError, match=r"of a memory of 11 elements, .* it has 6"):
        x.as_strided((4,), (1,))
    assert values(x.as_strided((3,), (4,), 2)) == [[3.0, 7.0, 11.0]]
    assert values(x.as_strided((2, 2), (2, 2))) == [[1.0, 3.0, 3.0, 5.0]]
    y = Honest(real()[4:], scale)
    with pytest.raises(ViewError, match="of a memory of 12 elements"):
        y.as_strided((2,), (1,), 0)


@pytest.mark.parametrize(
    "alias",
    [lambda x: x.detach(), lambda x: x.squeeze(), lambda x: x.view_as(x), lambda x: x[:2]],
)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_out_that_is_resized_is_written_where_it_lay(alias: Callable[[Any], Any]) -> None:
    outcomes = []
    for make in (Honest.from_plain, torch.clone):
        x = make(real().view(3, 4))
        other, out = x.detach(), alias(x)
        torch.add(torch.ones(3, 2), 20, out=out)
        outcomes.append([*values(x, other, out), [*out.size()]])
    assert outcomes[0] == outcomes[1]


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_out_that_needs_more_memory_leaves_the_whole() -> None:
    outcomes = []
    for make in (Honest.from_plain, torch.clone):
        x = make(real())
        out = x.detach()
        torch.add(torch.ones(4, 5), 20, out=out)
        outcomes.append([*values(x, out), [*out.size()]])
    assert outcomes[0] == outcomes[1]


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_out_of_data_is_not_resized() -> None:
    from subclass_utils import ResizeError

    x = Honest.from_plain(real())
    with pytest.raises(ResizeError, match=r"came from `.data`"):
        torch.add(torch.ones(3), 1, out=x.data)
    assert values(x) == values(real())
