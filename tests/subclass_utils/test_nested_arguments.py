"""Operators whose arguments are lists of lists, lists with gaps, or dicts of tensors.

Torch looks for classes in arguments that are tensors or lists of them, so each has one of those.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed
from dispatch_core import NoHandlerError
from subclass_utils import MixingError, WrapperTensor

from tests.subclass_utils.wrappers import Measured, ScaledOnPlain, Strict, Unit

_SCHEMAS = {
    "lists": "(Tensor y, Tensor[][] x) -> Tensor",
    "gaps": "(Tensor y, Tensor?[] x) -> Tensor",
    "named": "(Tensor y, Dict(str, Tensor) x) -> Tensor",
    "deep": "(Tensor y, Dict(str, Tensor[])[] x) -> Tensor",
    "pair": "(Tensor y, (Tensor, int) x) -> Tensor",
    "maybe": "(Tensor y, Tensor[][]? x) -> Tensor",
    "several": "(Tensor y, Tensor[][] x) -> Tensor[][]",
}

dist: Any = torch.distributed


def _flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value
    return [x for item in items if not isinstance(item, int | None) for x in _flat(item)]


@pytest.fixture(scope="module")
def nested() -> Iterator[Any]:
    library = torch.library.Library("nested_arguments", "DEF")
    for name, schema in _SCHEMAS.items():
        library.define(name + schema)

        def kernel(y: Any, x: Any, several: bool = name == "several") -> Any:
            flat = _flat(x)
            for each in flat:  # a wrapper would have no memory to look at
                assert type(each) is torch.Tensor
            return [[x + 1 for x in flat], []] if several else torch.stack(flat).sum(0)

        library.impl(name, kernel, "CompositeExplicitAutograd")
    yield torch.ops.nested_arguments
    del library


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("lists", lambda a, b: [[a], [], [b, a]]),
        ("gaps", lambda a, b: [a, None, b, a]),
        ("named", lambda a, b: {"a": a, "b": b, "c": a}),
        ("deep", lambda a, b: [{"a": [a, b]}, {"c": [a]}]),
        ("pair", lambda a, b: (a, 3)),
        ("maybe", lambda a, b: [[a, b, a]]),
    ],
)
def test_wrappers_are_found_at_any_depth(nested: Any, name: str, place: Any) -> None:
    a, b = torch.ones(2), torch.full((2,), 5.0)
    wanted = getattr(nested, name)(b, place(a, b))
    for first in (Measured(a, Unit.METRE), Measured(Measured(a), Unit.METRE)):
        got = getattr(nested, name)(first, place(first, b))
        assert (type(got), got.unit) == (Measured, Unit.METRE)
        assert torch.equal(got.to_plain(), wanted) or torch.equal(got.elem.elem, wanted)
    scaled = ScaledOnPlain.from_plain(a)
    got = getattr(nested, name)(scaled, place(scaled, b))
    assert torch.equal(got, wanted)
    if name != "pair":
        with pytest.raises(MixingError, match="argument 'x' is a plain Tensor"):
            getattr(nested, name)(Strict(a), place(Strict(a), b))


def test_results_are_wrapped_at_any_depth(nested: Any) -> None:
    x = Measured(torch.ones(2))
    (first, second), empty = nested.several(x, [[x], [torch.ones(2)]])
    assert type(first) is type(second) is Measured
    assert first.elem.tolist() == [2.0, 2.0]
    assert empty == []


# ── collectives ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def process_group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


COLLECTIVES: dict[str, Any] = {
    "scatter": lambda out, x: dist.scatter(out, [x], src=0),
    "all_gather": lambda out, x: dist.all_gather([out], x),
    "gather": lambda out, x: dist.gather(x, [out], dst=0),
    "reduce_scatter": lambda out, x: dist.reduce_scatter(out, [x]),
    "all_reduce": lambda out, x: (out.copy_(x), dist.all_reduce(out)),
    "broadcast": lambda out, x: (out.copy_(x), dist.broadcast(out, 0)),
    "all_to_all": lambda out, x: dist.all_to_all_single(out, x),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.usefixtures("process_group")
def test_collectives_write_inner_tensors(name: str) -> None:
    makes: list[Any] = [Measured, lambda plain: Measured(Measured(plain))]
    for make in makes:
        out: Any = make(torch.zeros(3))
        COLLECTIVES[name](out, make(torch.arange(3.0)))
        while isinstance(out, WrapperTensor):
            out = out.elem  # type: ignore[attr-defined]
        assert out.tolist() == [0.0, 1.0, 2.0]


# The wrapper is where torch looks for no class; the other tensor is plain.
IN_LISTS_OF_LISTS: dict[str, Any] = {
    "scatter": lambda w, p: dist.scatter(p, [w], src=0),
    "all_gather": lambda w, p: dist.all_gather([w], p),
    "all_gather_coalesced": lambda w, p: dist.all_gather_coalesced([[w]], [p]),
    "gather": lambda w, p: dist.gather(p, [w], dst=0),
    "reduce_scatter": lambda w, p: dist.reduce_scatter(p, [w]),
}


@pytest.mark.slow
@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", IN_LISTS_OF_LISTS)
@pytest.mark.usefixtures("process_group")
@pytest.mark.filterwarnings("ignore:.torch.distributed.all_gather_coalesced. will be deprecated")
def test_collective_finds_wrappers_that_are_all_in_lists_of_lists(
    name: str, inference: bool
) -> None:
    makes: list[Any] = [
        Measured,
        lambda plain: Measured(Measured(plain)),
        ScaledOnPlain.from_plain,
    ]
    for make in makes:
        with torch.inference_mode(inference):
            w, p = make(torch.arange(3.0)), torch.ones(3) * 2
            if isinstance(w, ScaledOnPlain):
                with pytest.raises(NoHandlerError, match="Communicate the inner tensors"):
                    IN_LISTS_OF_LISTS[name](w, p)
                continue
            IN_LISTS_OF_LISTS[name](w, p)
        while isinstance(w, WrapperTensor):
            w = w.to_plain()
        wanted = [2.0, 2.0, 2.0] if "gather" in name else [0.0, 1.0, 2.0]
        assert (w.tolist(), p.tolist()) == (wanted, wanted)


@pytest.mark.slow
@pytest.mark.usefixtures("process_group")
def test_collective_on_plain_tensors_is_as_before() -> None:
    x, out = torch.arange(3.0), torch.zeros(3)
    dist.scatter(out, [x], src=0)
    assert torch.equal(out, x)


@pytest.mark.slow
@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.usefixtures("process_group")
def test_collectives_on_a_class_that_goes_by_its_plain_value_are_refused(name: str) -> None:
    out, x = (ScaledOnPlain.from_plain(torch.arange(3.0)) for _ in range(2))
    with pytest.raises(NoHandlerError, match=r"Communicate the inner tensors \(numbers, scale\)"):
        COLLECTIVES[name](out, x)
