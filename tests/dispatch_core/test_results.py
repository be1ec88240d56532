"""A handler's answer is refused where torch cannot cast it, by the name of operator and handler."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
import torch
from dispatch_core import DispatchMode, HandlerResultError
from torch.utils._python_dispatch import TorchDispatchMode

TYPES = [
    "Tensor",
    "Tensor?",
    "Tensor[]",
    "Tensor?[]",
    "Tensor[]?",
    "Tensor[][]",
    "int",
    "int?",
    "int[]",
    "int[]?",
    "SymInt",
    "SymInt?",
    "SymInt[]",
    "float",
    "float?",
    "float[]",
    "complex",
    "bool",
    "SymBool",
    "Scalar",
    "Scalar?",
    "Scalar[]",
    "str",
    "str?",
    "str[]",
    "ScalarType",
    "ScalarType?",
    "Layout",
    "MemoryFormat",
    "Device",
    "Device?",
    "Generator",
    "Generator?",
    "Dict(str, Tensor)",
    "Dict(str, int)",
    "Dict(int, Tensor)",
    "Dict(str, int)?",
]


class Number(enum.IntEnum):
    TWO = 2


class Convertible:
    """An object of which Python makes an int and a float."""

    def __int__(self) -> int:
        return 4

    def __float__(self) -> float:
        return 4.0


x = torch.ones(2)
VALUES: dict[str, Any] = {
    "None": None,
    "tensor": x,
    "parameter": torch.nn.Parameter(x),
    "int": 3,
    "bool": True,
    "float": 2.5,
    "complex": 1j,
    "str": "s",
    "dtype": torch.float32,
    "layout": torch.strided,
    "device": torch.device("cpu"),
    "generator": torch.default_generator,
    "no items": [],
    "tuple of none": (),
    "tensors": [x, x],
    "tuple of tensors": (x, x),
    "list of None": [None],
    "ints": [1, 2],
    "floats": [1.5],
    "bools": [True],
    "texts": ["s"],
    "list of tensors and texts": [x, "s"],
    "lists of tensors": [[x]],
    "lists of ints": [[1]],
    "empty dict": {},
    "dict of tensors": {"s": x},
    "dict of ints": {"s": 1},
    "dict with int keys": {1: x},
    "numpy int": numpy.int64(1),
    "numpy float": numpy.float64(1),
    "enum": Number.TWO,
    "size": torch.Size([2]),
    "an object": Convertible(),
    "another object": object(),
}


class Answers(TorchDispatchMode):
    """Answers everything with one value."""

    def __init__(self, value: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.value = value

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.value


class OurAnswers(DispatchMode):
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.value


@pytest.fixture(scope="module")
def library() -> Iterator[torch.library.Library]:
    with torch.library._scoped_library("resulttest", "DEF") as library:
        for number, kind in enumerate(TYPES):
            library.define(f"gives{number}(Tensor x) -> {kind}")
        library.define("gives_two(Tensor x) -> (Tensor, str)")
        yield library


def refusal(mode: Any, op: Any) -> Exception | None:
    try:
        with mode:
            op(x)
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("kind", TYPES)
def test_answer_is_refused_where_torch_cannot_cast_it(
    kind: str, library: torch.library.Library
) -> None:
    op = getattr(torch.ops.resulttest, f"gives{TYPES.index(kind)}").default
    for name, value in VALUES.items():
        theirs = refusal(Answers(value), op)
        ours = refusal(OurAnswers(value), op)
        if theirs is None:
            assert type(ours) is type(theirs), name
        else:
            assert isinstance(ours, HandlerResultError), name
            assert str(ours).startswith(f"resulttest::gives{TYPES.index(kind)}: handler "), name
            assert ours.expected == kind


def test_answer_of_any_type_is_left_to_torch() -> None:
    with torch.library._scoped_library("resulttest", "FRAGMENT") as library:
        library.define("gives_any(Tensor x) -> Any")
        for answer in (None, 3, "s", x, [x], {"s": 1}):
            assert refusal(OurAnswers(answer), torch.ops.resulttest.gives_any) is None


@pytest.mark.parametrize("answer", [torch.tensor(1), torch.tensor([[1]])])
def test_tensor_of_one_element_is_a_number(answer: Any) -> None:
    class Equal(DispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func is torch.ops.aten.equal.default:
                return answer
            return func(*args, **(kwargs or {}))

    with Equal():
        assert torch.equal(x, x) is True


@pytest.mark.parametrize(
    ("answer", "got"),
    [
        ((x, 3), "a tuple of Tensor, int"),
        ({"a": x}, "a dict of str to Tensor"),
        ({}, "a dict of nothing"),
        ([], "a list of nothing"),
        (3, "an int"),
    ],
)
def test_what_came_is_described(answer: Any, got: str, library: torch.library.Library) -> None:
    with OurAnswers(answer), pytest.raises(HandlerResultError) as caught:
        torch.ops.resulttest.gives_two(x)
    assert f" answered with {got}, but the operator gives (Tensor, str). " in str(caught.value)
