from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from guards import (
    FakeModeMismatchError,
    TracingContext,
    active_fake_mode,
    detect_fake_mode,
    tracing,
)
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import TorchDispatchMode

pytestmark = pytest.mark.slow  # the first fake mode of a process takes seconds


class OtherMode(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


other_mode: Any = OtherMode  # whose constructor torch leaves untyped


def fake(mode: FakeTensorMode) -> torch.Tensor:
    return mode.from_tensor(torch.ones(2))


@pytest.fixture
def mode() -> FakeTensorMode:
    return FakeTensorMode()


def test_none_where_there_is_none() -> None:
    assert detect_fake_mode() is None
    assert detect_fake_mode([torch.ones(1), "text", None, {"x": 3}]) is None
    assert active_fake_mode() is None
    tensor = torch.ones(1)
    with tracing(TracingContext(None)), other_mode():
        assert detect_fake_mode(tensor) is None
        assert active_fake_mode() is None


def test_the_mode_of_the_trace(mode: FakeTensorMode) -> None:
    with tracing(TracingContext(mode)):
        assert detect_fake_mode() is mode
        assert active_fake_mode() is None


def test_the_active_mode_also_below_others(mode: FakeTensorMode) -> None:
    with mode, other_mode():
        assert detect_fake_mode() is mode
        assert active_fake_mode() is mode


def test_the_innermost_of_two_active_modes(mode: FakeTensorMode) -> None:
    inner = FakeTensorMode()
    with mode, inner:
        assert active_fake_mode() is inner
        assert detect_fake_mode() is inner  # entering one fake mode suspends the other
    assert detect_fake_mode() is None


def test_the_mode_of_an_input_anywhere_in_a_pytree(mode: FakeTensorMode) -> None:
    assert detect_fake_mode(fake(mode)) is mode
    assert detect_fake_mode([1, {"a": (torch.ones(1), fake(mode))}]) is mode
    assert detect_fake_mode({"p": torch.nn.Parameter(fake(mode))}) is mode


def test_the_mode_inside_wrapper_subclasses(mode: FakeTensorMode) -> None:
    wrapper = TwoTensor(fake(mode), fake(mode))
    assert detect_fake_mode([wrapper]) is mode
    assert detect_fake_mode([TwoTensor(wrapper, TwoTensor(fake(mode), fake(mode)))]) is mode
    mixed = TwoTensor(fake(mode), fake(FakeTensorMode()))
    with pytest.raises(FakeModeMismatchError) as caught:
        detect_fake_mode([1, mixed])
    assert caught.value.places == ("input 1.a", "input 1.b")


def test_all_places_agree(mode: FakeTensorMode) -> None:
    with tracing(TracingContext(mode)), mode:
        assert detect_fake_mode([fake(mode), TwoTensor(fake(mode), fake(mode))]) is mode


@pytest.mark.parametrize(
    ("places", "first", "second"),
    [
        ("trace active", "the tracing context", "active mode 0"),
        ("trace input", "the tracing context", "input 0"),
        ("active input", "active mode 0", "input 0"),
        ("input input", "input 0", "input 1"),
    ],
)
def test_two_modes_are_an_error_that_names_both_places(
    places: str, first: str, second: str
) -> None:
    made_here, made_there = FakeTensorMode(), FakeTensorMode()
    modes = dict(zip(places.split(), (made_here, made_there), strict=False))
    inputs = [fake(modes["input"])] if "input" in modes else []
    if places == "input input":
        inputs = [fake(made_here), fake(made_there)]
    context = tracing(TracingContext(modes.get("trace")))
    active = modes.get("active", contextlib.nullcontext())
    with pytest.raises(FakeModeMismatchError) as caught, context, active:
        detect_fake_mode(inputs)
    message = str(caught.value)
    assert caught.value.places[0].startswith(first)
    assert caught.value.places[1].startswith(second)
    assert caught.value.modes == (made_here, made_there)
    assert message.count("test_two_modes_are_an_error_that_names_both_places") == 2
    assert f"fake mode of {caught.value.places[1]} made at:\n" in message
