"""What is wrong in many wrappers that are written by hand is right here, each on its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from subclass_utils import WrapperTensor

from tests.subclass_utils.truth import Wrapped, compare_run
from tests.subclass_utils.wrappers import Measured, Requantised, Scaled, Unit

aten = torch.ops.aten


def run(function: Callable[..., Any], *args: Any, context: str = "plain") -> None:
    """Compare the values, places, versions and aliasing with those of plain tensors."""
    outcome = compare_run(function, (args, {}), context=context)
    assert outcome.ran
    assert outcome.faults == []


# ── an outside that is not that of the inner tensor ─────────────────────────────────────────────


def data_of(x: Any, other: Any) -> Any:
    x.data = other
    return x


OUTSIDES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "vector times matrix": (torch.matmul, (torch.ones(5), torch.ones(5, 3))),
    "quantile": (lambda x: torch.quantile(x, 0.3, dim=0), (torch.arange(6.0).view(2, 3),)),
    "nanquantile": (lambda x: torch.nanquantile(x, 0.3, dim=1), (torch.arange(6.0).view(2, 3),)),
    "stft": (
        lambda x: torch.stft(x, 4, window=torch.ones(4), return_complex=True),
        (torch.arange(8.0),),
    ),
    "resize_": (lambda x: x.resize_(3), (torch.ones(2, 3),)),
    "resize_ to more": (lambda x: x.resize_(3, 3).fill_(0), (torch.ones(2, 3),)),
    "t_": (lambda x: x.t_(), (torch.ones(2, 3),)),
    "unsqueeze_": (lambda x: x.unsqueeze_(1), (torch.ones(2, 3),)),
    "transpose_": (lambda x: x.transpose_(0, 1), (torch.ones(2, 3),)),
    "set_": (lambda x, other: x.set_(other), (torch.ones(2, 3), torch.zeros(5))),
    "data": (data_of, (torch.ones(2, 3), torch.zeros(5))),
}


@pytest.mark.parametrize("name", OUTSIDES)
def test_outside_is_that_of_the_inner_tensor(name: str) -> None:
    function, args = OUTSIDES[name]
    run(function, *args)
    x: Any = Wrapped(args[0].clone())
    result = function(x, *map(Wrapped, args[1:]))
    inner = result.elem
    assert (result.size(), result.stride()) == (inner.size(), inner.stride())
    assert result.storage_offset() == inner.storage_offset()


# ── conjugate and negative bits ─────────────────────────────────────────────────────────────────


def test_conjugate_is_multiplied_as_one() -> None:
    x, y = Wrapped(torch.tensor(1 + 1j)), Wrapped(torch.tensor(2 + 3j))
    product: Any = x * y.conj()
    assert product.item() == product.elem.item() == 5 - 1j


@pytest.mark.parametrize("context", ["plain", "inference", "watched"])
@pytest.mark.parametrize(
    "function",
    [
        torch.fft.hfftn,
        lambda z: z.conj().imag,
        lambda z: z.conj().imag.neg() + z.imag,
        lambda z: torch.resolve_conj(z.conj()).view(-1),
        lambda z: z.conj().to(torch.complex128),
        lambda z: z.conj().add_(1j),
    ],
)
def test_lazy_bits_are_those_of_a_plain_run(function: Any, context: str) -> None:
    run(function, torch.arange(6).view(2, 3) * (1 + 2j), context=context)


# ── versions ────────────────────────────────────────────────────────────────────────────────────


def test_list_in_place_counts_a_version_of_each() -> None:
    wrapper: Any = Wrapped(torch.ones(2))
    plain = torch.ones(2)
    result = aten._foreach_add_.Scalar([wrapper, plain], 1)
    assert result is None
    assert (wrapper._version, wrapper.elem._version, plain._version) == (1, 1, 1)


@pytest.mark.parametrize("written", [0, 1])
def test_change_of_a_list_is_noticed_by_autograd(written: int) -> None:
    plain = torch.ones(2, requires_grad=True).clone()
    wrapper = Wrapped(torch.ones(2), requires_grad=True).clone()
    square = [wrapper, plain][written] ** 2
    with torch.no_grad():
        torch._foreach_add_([wrapper, plain], 1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        square.sum().backward()


def test_results_of_a_mixed_list_are_each_of_the_class_of_its_argument() -> None:
    results = torch._foreach_add([Wrapped(torch.ones(2)), torch.ones(2), Wrapped(torch.ones(1))], 1)
    assert [type(result) for result in results] == [Wrapped, torch.Tensor, Wrapped]


# ── inference mode ──────────────────────────────────────────────────────────────────────────────

VIEWS: dict[str, Callable[[Any], Any]] = {
    "view": lambda x: x.view(-1),
    "select": lambda x: x[0],
    "slice": lambda x: x[1:],
    "t": lambda x: x.t(),
    "expand": lambda x: x.unsqueeze(0).expand(3, 2, 3),
    "diagonal": lambda x: x.diagonal(),
    "split": lambda x: x.split(1),
    "unbind": lambda x: x.unbind(),
    "as_strided": lambda x: x.as_strided((2,), (1,), 1),
    "detach": lambda x: x.detach(),
    "reshape": lambda x: x.reshape(3, 2),
    "unfold": lambda x: x.unfold(1, 2, 1),
    "movedim": lambda x: x.movedim(0, 1),
    "tensor_split": lambda x: x.tensor_split(2),
    "written": lambda x: x[0].add_(1),
}


@pytest.mark.parametrize("context", ["inference", "inference_inside"])
@pytest.mark.parametrize("name", VIEWS)
def test_view_under_inference_mode(name: str, context: str) -> None:
    run(VIEWS[name], torch.arange(6.0).view(2, 3), context=context)


# ── metadata and what torch.compile asks ────────────────────────────────────────────────────────

CARRIES: dict[str, Callable[[Any], Any]] = {
    "detach": lambda x: x.detach(),
    "clone": lambda x: x.clone(),
    "to": lambda x: x.to("cpu", copy=True),
    "view": lambda x: x.view(-1),
    "Parameter": lambda x: torch.nn.Parameter(x),
    "state_dict": lambda x: torch.nn.ParameterDict({"x": torch.nn.Parameter(x)}).state_dict()["x"],
}


@pytest.mark.parametrize("name", CARRIES)
def test_metadata_is_carried(name: str) -> None:
    made = CARRIES[name](Measured(torch.ones(2), Unit.METRE))
    assert isinstance(made, Measured)
    assert made.unit is Unit.METRE


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize(
    "make", [lambda: Measured(torch.ones(2), Unit.METRE), lambda: Scaled.from_plain(torch.ones(2))]
)
def test_flattened_wrapper_is_put_together_again_as_it_was(make: Any, requires_grad: bool) -> None:
    x = make().requires_grad_(requires_grad)
    names, context = x.__tensor_flatten__()
    assert names == list(type(x).inner_tensors)
    inner = {name: getattr(x, name) for name in names}
    y = type(x).__tensor_unflatten__(inner, context, x.size(), x.stride())
    assert type(y) is type(x)
    assert y.requires_grad is requires_grad
    assert all(getattr(y, name) is inner[name] for name in names)
    assert [getattr(y, name) for name in type(x).metadata] == [
        getattr(x, name) for name in type(x).metadata
    ]


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    items = value if isinstance(value, list | tuple) else ()
    return [tensor for item in items for tensor in _tensors(item)]


def test_no_tensor_is_among_what_guards_compare() -> None:
    for x in (Measured(torch.ones(2), Unit.METRE), Requantised.from_plain(torch.ones(2))):
        _, context = x.__tensor_flatten__()
        assert _tensors(context) == []
        assert context == x.__tensor_flatten__()[1]
        hash(str(context))


def test_class_that_takes_a_name_of_torch_is_refused() -> None:
    for name in ("inner", "data", "grad", "shape", "size"):
        with pytest.raises(RuntimeError, match=rf"'{name}', which would hide torch.Tensor.{name}"):
            type("Hiding", (WrapperTensor,), {"inner_tensors": (name,)})
