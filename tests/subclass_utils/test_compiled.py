"""A compiled function gives what the eager one gives, whatever a class declares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from dispatch_core import NoHandlerError
from subclass_utils import WrapperTensor
from subclass_utils._plain_view import PlainView
from torch._dynamo.testing import CompileCounterWithBackend

from tests.subclass_utils.wrappers import (
    Halves,
    Loose,
    Measured,
    Requantised,
    RequantisedInParts,
    ScaledOnPlain,
    Unit,
)


class Answering(Requantised):
    """No operator without a handler."""

    without_handler = "error"  # type: ignore[assignment]  # narrowed by the base


def wrote(x: Any, _: Any) -> Any:
    return x


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "identity": lambda x: x,
    "twice": lambda x: (x, x),
    "detach": lambda x: x.detach(),
    "detach of detach": lambda x: x.detach().detach(),
    "alias": lambda x: torch.ops.aten.alias(x),
    "clone": lambda x: x.clone(),
    "clone of detach": lambda x: x.detach().clone(),
    "contiguous": lambda x: x.contiguous(),
    "to": lambda x: x.to(torch.float64),
    "copy_": lambda x: x.copy_(torch.ones(4, 6)),
}
OPERATORS: dict[str, Callable[[Any], Any]] = {
    "view": lambda x: x.view(-1),
    "view_as": lambda x: x.view_as(x),
    "t": lambda x: x.t(),
    "slice": lambda x: x[1:, ::2],
    "select": lambda x: x[0],
    "split": lambda x: x.split(2),
    "expand": lambda x: x.unsqueeze(0).expand(2, 4, 6),
    "view of clone": lambda x: x.clone()[1:],
    "several": lambda x: (x.detach(), x.view(-1), x * 1),
    "mul": lambda x: x * 2,
    "mm": lambda x: x @ x.t(),
    "add_": lambda x: x.add_(1),
    "add_ and more": lambda x: wrote(x + 1, x.add_(1)),
    "x[0] = number": lambda x: wrote(x, x[0].fill_(5)),
    "write through a slice": lambda x: wrote(x.sum(), x[1:].add_(1)),
    "write through t": lambda x: x.t().add_(1),
    "write through detach": lambda x: wrote(None, x.detach().add_(1)),
}
# Tried with every class in the normal run; the others with one class there, and with all by --long.
TELLING = ("identity", "detach", "view", "add_", "write through a slice")
CASES = [
    pytest.param(cls, name, marks=[] if cls is Requantised or name in TELLING else pytest.mark.long)
    for cls in (Measured, Requantised, RequantisedInParts, ScaledOnPlain, Answering)
    for name in [*FUNCTIONS, *([] if cls is Answering else OPERATORS)]
]


def made(cls: Any) -> Any:
    plain = torch.arange(24.0).view(4, 6) - 9
    return Measured(plain, Unit.METRE) if cls is Measured else cls.from_plain(plain)


def value_of(tensor: Any) -> torch.Tensor:
    plain: torch.Tensor = tensor.to_plain() if isinstance(tensor, WrapperTensor) else tensor
    return plain


def is_view_by_handler(result: Any, whole: Any) -> bool:
    """Say whether a handler made a view, which compiled functions give as one of the plain value.

    A detach is what the class does without a handler.
    """
    aliases = torch._C._is_alias_of  # type: ignore[attr-defined]
    is_part = type(result) is RequantisedInParts and result.size() != whole.size()
    return is_part and aliases(result, whole)


@pytest.fixture(autouse=True)
def _forget_what_was_compiled() -> None:
    torch.compiler.reset()


@pytest.mark.slow
@pytest.mark.parametrize(("cls", "name"), CASES)
def test_compiled_equals_eager(cls: Any, name: str) -> None:
    function = FUNCTIONS.get(name) or OPERATORS[name]
    x, y = made(cls), made(cls)
    wanted = function(x)
    got = torch.compile(function, backend="aot_eager", fullgraph=True)(y)
    pairs = list(zip(wanted, got, strict=True)) if isinstance(wanted, tuple) else [(wanted, got)]
    for one, other in [*pairs, (x, y)]:
        assert type(other) is (PlainView if is_view_by_handler(one, x) else type(one))
        if one is None:
            continue
        assert (other is y) == (one is x)
        assert (other.size(), other.dtype) == (one.size(), one.dtype)
        assert (other.stride(), other.storage_offset()) == (one.stride(), one.storage_offset())
        assert torch.equal(value_of(other), value_of(one))
        aliases = torch._C._is_alias_of  # type: ignore[attr-defined]
        assert aliases(other, y) == aliases(one, x)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mul", "view", "add_", "detach"])
@pytest.mark.parametrize("cls", [Measured, Requantised])
def test_dynamic_sizes_are_compiled_once(cls: Any, name: str) -> None:
    backend = CompileCounterWithBackend("aot_eager")
    function = FUNCTIONS.get(name) or OPERATORS[name]
    compiled = torch.compile(function, backend=backend, dynamic=True)
    for columns in (6, 4, 8):
        x, y = (cls.from_plain(torch.arange(4.0 * columns).view(4, columns)) for _ in range(2))
        wanted, got = function(x), compiled(y)
        assert torch.equal(value_of(y), value_of(x))
        assert torch.equal(value_of(got), value_of(wanted))
    assert backend.frame_count == 1


class Sized(WrapperTensor):
    """Its metadata are numbers that a compiled function may compute with."""

    metadata = ("columns", "more")
    columns: int = 0
    more: tuple[Any, ...] = ()


@pytest.mark.slow
def test_metadata_of_a_compiled_result_is_that_of_the_call() -> None:
    def function(x: torch.Tensor, n: int) -> Sized:
        return Sized(x * 1, x.size(1) + n, (n, {"half": x.size(1) // 2}, [n]))

    compiled = torch.compile(function, backend="aot_eager", dynamic=True)
    for columns, n in ((6, 7), (6, 5), (4, 5), (8, 9)):
        got = compiled(torch.ones(2, columns), n)
        assert (got.columns, got.more) == (columns + n, (n, {"half": columns // 2}, [n]))
        assert type(got.columns) is type(got.more[0]) is type(got.more[1]["half"]) is int
        assert (type(got.more[1]), type(got.more[2])) == (dict, list)


@pytest.mark.slow
def test_place_of_a_compiled_view_is_that_of_the_call() -> None:
    compiled = torch.compile(lambda x: x.clone()[1:], backend="aot_eager", dynamic=True)
    for columns in (6, 4, 5):
        x = value_of(made(Requantised))[:, :columns]
        view = compiled(Requantised.from_plain(x).requires_grad_())
        assert (view.size(), view.storage_offset()) == ((3, columns), columns)
        assert torch.allclose(value_of(view.detach()), value_of(x)[1:], atol=0.01)
        view.sum().backward()


RESULTS: dict[str, Callable[[Any], Any]] = {
    "clone": lambda x: x.clone(),
    "to": lambda x: x.to("cpu", copy=True),
    "view of clone": lambda x: x.clone()[1:],
    "several": lambda x: (x.clone(), x * 3, x.clone().t()),
}


def loss_of(results: Any) -> Any:
    parts = results if isinstance(results, tuple) else (results,)
    return sum((part * torch.arange(float(part.size(-1)))).sum() for part in parts)


def seed(results: Any, cls: Any) -> None:
    parts = results if isinstance(results, tuple) else (results,)
    given = [torch.arange(float(part.numel())).view(part.size()) for part in parts]
    wrapped = [
        cls.from_plain(gradient, part) if type(part) is cls else gradient
        for gradient, part in zip(given, parts, strict=True)
    ]
    torch.autograd.backward(parts, wrapped)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cls", "name"),
    [
        pytest.param(cls, name, marks=[] if name == "several" else pytest.mark.long)
        for cls in (Measured, Loose, Requantised, RequantisedInParts)
        for name in RESULTS
    ],
)
def test_gradient_of_a_compiled_result_is_that_of_the_eager_one(cls: Any, name: str) -> None:
    compiled = torch.compile(RESULTS[name], backend="aot_eager", fullgraph=True)
    for differentiate in (lambda results: loss_of(results).backward(), lambda y: seed(y, cls)):
        x, y = made(cls).requires_grad_(), made(cls).requires_grad_()
        differentiate(RESULTS[name](x))
        differentiate(compiled(y))
        assert torch.allclose(value_of(y.grad), value_of(x.grad), rtol=1e-3)


CONTIGUOUS: dict[str, Callable[[Any], Any]] = {
    "t": lambda x: x.t().contiguous(),
    "column": lambda x: x[:, 1].contiguous(),
    "t of clone": lambda x: x.clone().t().contiguous(),
    "expand": lambda x: x.unsqueeze(0).expand(2, 4, 6).contiguous(),
    "channels last": lambda x: x.view(1, 4, 6, 1).contiguous(memory_format=torch.channels_last),
    "view of contiguous": lambda x: x.t().contiguous().view(-1),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cls", "name"),
    [
        pytest.param(cls, name, marks=[] if name == "t" else pytest.mark.long)
        for cls in (Measured, Requantised, RequantisedInParts, Halves, ScaledOnPlain)
        for name in CONTIGUOUS
    ],
)
def test_gradient_through_a_contiguous_view_in_a_compiled_function(cls: Any, name: str) -> None:
    """There is a second way to the loss, by which a gradient would come anyway."""

    def loss(x: Any) -> Any:
        y = CONTIGUOUS[name](x)
        return (y * y).sum() + x.sum()

    x, y = made(cls).requires_grad_(), made(cls).requires_grad_()
    loss(x).backward()
    torch.compile(loss, backend="aot_eager", fullgraph=True)(y).backward()
    assert torch.allclose(value_of(y.grad), value_of(x.grad), rtol=1e-3)


class Flat(WrapperTensor):
    """Its plain value is a wrapper."""

    inner_tensors = ("values_",)
    metadata = ("shape_",)
    without_handler = "to_plain"
    values_: Any
    shape_: torch.Size

    @staticmethod
    def __new__(cls: Any, values_: Any, shape_: torch.Size) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, shape_, dtype=values_.dtype)

    def to_plain(self) -> Any:
        return self.values_.view(self.shape_)

    @classmethod
    def from_plain(cls, plain: Any, like: Any = None) -> Any:
        return cls(plain.reshape(-1), plain.size())


@pytest.mark.slow
def test_contiguous_view_of_what_holds_a_wrapper_requires_grad_in_a_compiled_function() -> None:
    def loss(x: Any) -> Any:
        return (x.detach().t().contiguous().requires_grad_() * x.t()).sum()

    gradients = []
    for run in (loss, torch.compile(loss, backend="aot_eager")):
        x = Flat.from_plain(Measured(torch.arange(24.0).view(4, 6))).requires_grad_()
        run(x).backward()
        gradients.append(value_of(value_of(x.grad)))
    assert torch.equal(*gradients)


@pytest.mark.slow
def test_gradient_of_a_compiled_result_that_holds_a_wrapper() -> None:
    x: Any = Measured(Requantised.from_plain(torch.arange(24.0).view(4, 6))).requires_grad_()
    y: Any = torch.compile(lambda x: x.clone().view(6, 4), backend="aot_eager")(x)
    (y * y).sum().backward()
    assert torch.allclose(value_of(x.grad), 2 * value_of(value_of(x.detach())), rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("cls", [Measured, Requantised, Answering])
def test_data_of_a_wrapper_in_a_compiled_function(cls: Any) -> None:
    x = made(cls)
    got = torch.compile(lambda x: x.data, backend="aot_eager")(x)
    assert type(got) is cls
    assert torch.equal(value_of(got), value_of(x))


@pytest.mark.slow
def test_missing_handler_is_named_by_a_compiled_function_too() -> None:
    function = torch.compile(lambda x: x * 2, backend="aot_eager")
    with pytest.raises(Exception, match="Answering has no handler for it") as caught:
        function(made(Answering))
    assert isinstance(caught.value, NoHandlerError | torch._dynamo.exc.TorchDynamoException)


# ── views that a class's own handlers make ──────────────────────────────────────────────────────


HANDLED_VIEWS: dict[str, Callable[[Any], Any]] = {
    "row": lambda tensor: tensor[1],
    "column": lambda tensor: tensor[:, 1],
    "t": lambda tensor: tensor.t(),
    "row of t": lambda tensor: tensor.t()[1],
    "one of several": lambda tensor: tensor.unbind(0)[2],
    "written": lambda tensor: tensor[1].mul_(3),
    "of a written one": lambda tensor: tensor.add_(10)[1],
    "computed": lambda tensor: (tensor * 2).t(),
}


def _numbers(tensor: Any) -> torch.Tensor:
    plain: torch.Tensor = tensor.to_plain() if isinstance(tensor, WrapperTensor) else tensor
    return plain.detach().clone()


@pytest.mark.parametrize("make", HANDLED_VIEWS)
@pytest.mark.parametrize("part", [False, True])
def test_compiled_view_of_a_handler_is_one(make: str, part: bool) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(HANDLED_VIEWS[make], backend="aot_eager", fullgraph=True)
    numbers = torch.arange(12.0).view(4, 3)
    plain, whole = numbers.clone(), Halves.from_plain(numbers.clone())
    got = compiled(whole.t() if part else whole)
    want = HANDLED_VIEWS[make](plain.t() if part else plain)
    assert torch.equal(_numbers(got), _numbers(want))
    assert torch.equal(_numbers(whole), plain)
    for written, other in ((whole, plain), (got, want)):
        written.mul_(2)
        other.mul_(2)
        assert torch.equal(_numbers(got), _numbers(want))
        assert torch.equal(_numbers(whole), plain)


@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_gradient_through_a_write_into_a_compiled_view_of_a_handler() -> None:
    torch._dynamo.reset()
    first = torch.compile(lambda tensor: tensor[0], backend="aot_eager")
    leaf = Halves.from_plain(torch.ones(2, 2)).requires_grad_()
    whole = leaf.clone()
    first(whole).mul_(5)
    whole.sum().backward()
    assert torch.equal(_numbers(leaf.grad), torch.tensor([[5.0, 5.0], [1.0, 1.0]]))


@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_write_into_a_compiled_view_of_a_handler_is_counted() -> None:
    torch._dynamo.reset()
    first = torch.compile(lambda tensor: tensor[0], backend="aot_eager")
    leaf = Halves.from_plain(torch.ones(2, 2)).requires_grad_()
    whole = leaf.clone()
    squares = whole * whole
    first(whole).mul_(5)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        squares.sum().backward()


def test_compiled_write_into_one_of_two_that_share_memory_says_so() -> None:
    torch._dynamo.reset()

    def write(part: Any, whole: Any) -> Any:
        part.add_(10)
        return whole * 2

    whole = Halves.from_plain(torch.ones(2, 2))
    with pytest.raises(Exception, match="aliased inputs that are mutated"):
        torch.compile(write, backend="aot_eager")(whole[0], whole)


# ── from_plain ──────────────────────────────────────────────────────────────────────────────────


class OfItsOwnMaking(WrapperTensor):
    """Transparent; its constructor takes something else than what it declares."""

    metadata = ("label",)
    label: str

    def __init__(self, elem: torch.Tensor, first: str, second: str) -> None:
        self.elem = elem
        self.label = first + second


@pytest.mark.slow
@pytest.mark.parametrize("whole", [True, False])
def test_from_plain_in_a_compiled_function(whole: bool) -> None:
    def function(plain: torch.Tensor, like: Any) -> Any:
        return Measured.from_plain(plain * 2, like) + Measured.from_plain(plain)

    compiled = torch.compile(function, backend="aot_eager", fullgraph=whole)
    got = compiled(torch.ones(2), Measured(torch.ones(2), Unit.SECOND))
    assert type(got) is Measured
    assert (got.unit, got.origin) == (Unit.SECOND, None)
    assert torch.equal(got.elem, torch.full((2,), 3.0))


@pytest.mark.slow
def test_from_plain_in_a_compiled_function_of_a_class_with_a_constructor() -> None:
    compiled = torch.compile(
        lambda plain, like: OfItsOwnMaking.from_plain(plain * 2, like) + 1, backend="aot_eager"
    )
    got = compiled(torch.ones(2), OfItsOwnMaking(torch.ones(2), "a", "b"))
    assert (type(got), got.label) == (OfItsOwnMaking, "ab")
    assert torch.equal(got.elem, torch.full((2,), 3.0))
