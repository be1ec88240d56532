"""What torch.compile does with our modes: it runs such code as it is, or says that it cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from dispatch_core import (
    DispatchMode,
    HandlerTable,
    Recorder,
    enable_python_mode,
    keep_composite,
    no_dispatch,
    ops,
)

from tests.dispatch_core.wrapping import Direct

pytestmark = [
    pytest.mark.slow,
    # torch's own, from importing or using Dynamo
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.cpp_extension:UserWarning"),
]


class Zeros(DispatchMode):
    """Makes every sine 0."""

    table = HandlerTable(missing="next")


@Zeros.table.implements(ops.aten.sin.default)
def _(self: Any) -> Any:
    return torch.zeros_like(self)


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(fn: Callable[..., Any], **options: Any) -> Any:
    return torch.compile(fn, backend="eager", **options)


def sine_and_one(x: Any) -> Any:
    return x.sin() + 1


@pytest.mark.parametrize("compile_first", [False, True])
def test_compiled_function_under_a_mode_is_seen_operator_by_operator(compile_first: bool) -> None:
    fn = compiled(sine_and_one)
    x = torch.ones(2)
    if compile_first:
        fn(x)
    with Recorder() as recorder:
        fn(x)
    with Zeros():
        assert fn(x).tolist() == [1, 1]
    assert [event.name for event in recorder.events] == ["aten::sin", "aten::add.Tensor"]
    assert torch.equal(fn(x), sine_and_one(x))


def with_mode(x: Any) -> Any:
    with Zeros():
        y = x.sin()
    return y + 1


def with_recorder(x: Any) -> Any:
    with Recorder() as recorder:
        y = x.sin()
    return y * len(recorder.events) - y + 1


def with_no_dispatch(x: Any) -> Any:
    with no_dispatch():
        y = x.sin()
    return y - x.sin() + 1


def with_python_mode(x: Any) -> Any:
    with enable_python_mode(Direct):
        y = x.sin()
    return y - x.sin() + 1


def with_keep_composite(x: Any) -> Any:
    with keep_composite("aten::kl_div"):
        y = x.sin()
    return y - x.sin() + 1


FUNCTIONS = [with_mode, with_recorder, with_no_dispatch, with_python_mode, with_keep_composite]


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_mode_inside_a_compiled_function_runs_as_it_is(fn: Any) -> None:
    x = torch.ones(2)
    assert compiled(fn)(x).tolist() == fn(x).tolist() == [1, 1]


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_mode_inside_a_function_that_must_be_one_graph_is_refused(fn: Any) -> None:
    with pytest.raises(torch._dynamo.exc.Unsupported):
        compiled(fn, fullgraph=True)(torch.ones(2))


def test_no_dispatch_outside_lets_compiled_code_run() -> None:
    x = torch.ones(2)
    with Zeros(), no_dispatch():
        assert torch.equal(compiled(sine_and_one)(x), x.sin() + 1)


def test_modes_do_not_import_dynamo() -> None:
    import subprocess
    import sys

    program = (
        "import sys, torch; from dispatch_core import Recorder, no_dispatch\n"
        "with Recorder(), no_dispatch(): torch.ones(1)\n"
        "with Recorder(): torch.ones(1)\n"
        "print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
