"""What torch.compile keeps for functions, methods and modules."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import guards
import pytest
import torch
from guards import NotCompiledError
from guards import _torch_private as private
from torch import nn

from tests.guards.compiled import (
    ADDRESS,
    Scaled,
    add,
    broken,
    check_texts,
    compile_eagerly,
)

pytestmark = [
    pytest.mark.slow,  # torch.compile is
    pytest.mark.usefixtures("nothing_compiled_before"),
]


def test_function_that_was_not_called_has_no_entries() -> None:
    assert guards.inspect(compile_eagerly(add)) == []


def test_entries_of_a_function() -> None:
    compiled = compile_eagerly(add, dynamic=False)
    config = {"double": True}
    for size in (2, 3):
        compiled(torch.ones(size), 2, config)
    reports = guards.inspect(compiled)
    assert [report.function for report in reports] == ["add", "add"]
    assert [report.compile_id.rpartition("/")[2] for report in reports] == ["1", "0"]
    check_texts(reports)
    latest, first = reports
    assert latest.explain(torch.ones(3), 2, config) is None
    assert first.explain(torch.ones(2), 2, config=config) is None
    texts = {guard.expression for guard in first.guards}
    assert "L['n'] == 2" in texts
    assert "G['FACTOR'] == 3" in texts
    assert "type(L['config']) is dict" in texts
    assert "torch's global state is as it was" in texts
    line = next(g.user_location for g in first.guards if g.source == "L['n']")
    assert line is not None
    assert line.endswith("in add: y = x * n")
    assert "compiled.py:" in line


def closing_over(factor: int) -> Callable[[torch.Tensor], torch.Tensor]:
    def times(x: torch.Tensor) -> torch.Tensor:
        return x * factor

    return times


def test_closure() -> None:
    compiled = compile_eagerly(closing_over(3))
    compiled(torch.ones(2))
    (report,) = guards.inspect(compiled)
    assert report.function in ("closing_over.<locals>.times", "times")
    assert report.explain(torch.ones(2)) is None
    assert report.explain_locals({"x": torch.ones(2), "factor": 3}) is None
    explained = report.explain_locals({"x": torch.ones(2), "factor": 4})
    assert (explained.expected, explained.actual) == ("3", "4")  # type: ignore[union-attr]


def test_decorated_function() -> None:
    def twice(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs) * 2

        return wrapper

    compiled = compile_eagerly(twice(closing_over(2)))
    compiled(torch.ones(2))
    (report,) = guards.inspect(compiled)
    assert report.explain(torch.ones(2)) is None
    assert report.explain(torch.ones(3)) is not None


@pytest.mark.parametrize("how", ["bound", "decorated"])
def test_method(how: str) -> None:
    owner = Scaled()
    compiled = compile_eagerly(owner.times) if how == "bound" else owner.compiled_times
    compiled(torch.ones(2))
    (report,) = guards.inspect(compiled)
    assert report.explain(torch.ones(2)) is None
    owner.factor = 5
    explained = report.explain(torch.ones(2))
    assert explained is not None
    assert not ADDRESS.search(str(explained))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.dropout = nn.Dropout()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.dropout(self.layer(x))
        return result


def in_place(module: nn.Module) -> nn.Module:
    module.compile(backend="eager")
    return module


def sequential() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 3), nn.Dropout())


def test_module_of_torch_compiled_in_place_is_not_compiled_by_torch() -> None:
    compiled = in_place(sequential())
    compiled(torch.ones(2, 3))
    assert guards.inspect(compiled) == []


@pytest.mark.parametrize(
    ("make", "how"),
    [(Net, compile_eagerly), (sequential, compile_eagerly), (Net, in_place)],
    ids=["own", "torch", "own-in-place"],
)
def test_module(make: Callable[[], nn.Module], how: Callable[[nn.Module], Any]) -> None:
    module = make()
    compiled = how(module)
    assert guards.inspect(compiled) == []
    compiled(torch.ones(2, 3))
    (report,) = guards.inspect(compiled)
    check_texts([report])
    assert report.explain(torch.ones(2, 3)) is None
    assert report.explain(torch.ones(2, 3).double()).actual == "dtype float64"  # type: ignore[union-attr]
    module.eval()
    explained = report.explain(torch.ones(2, 3))
    assert explained is not None
    assert "training" in explained.expression
    assert (explained.expected, explained.actual) == ("True", "False")


def test_modules_that_share_code_are_told_apart_by_class() -> None:
    one, other = compile_eagerly(nn.Linear(3, 3)), compile_eagerly(nn.Sequential(nn.ReLU()))
    one(torch.ones(2, 3))
    other(torch.ones(2, 3))
    for compiled in (one, other):
        (report,) = guards.inspect(compiled)
        assert report.explain(torch.ones(2, 3)) is None


def test_part_behind_a_graph_break() -> None:
    compiled = compile_eagerly(broken)
    compiled(torch.ones(2))
    first, rest = guards.inspect(compiled)
    check_texts([first, rest])
    assert first.explain(torch.ones(2)) is None
    assert "resume_in_broken" in rest.function
    assert rest.explain_locals({"y": torch.ones(2)}) is None
    assert rest.explain_locals({"y": torch.ones(3)}).actual == "size [3]"  # type: ignore[union-attr]
    with pytest.raises(TypeError, match="give its local variables to explain_locals"):
        rest.explain(torch.ones(2))


def calls_broken(x: torch.Tensor) -> torch.Tensor:
    return broken(x) + 1


def test_function_that_was_compiled_by_the_way() -> None:
    compiled = compile_eagerly(calls_broken)
    compiled(torch.ones(2))
    own, rest = guards.inspect(broken)
    assert own.function == "broken"
    assert "resume_in_broken" in rest.function
    assert own.explain(torch.ones(2)) is None
    assert own.explain(torch.ones(3)) is not None
    module = Net()
    compile_eagerly(module)(torch.ones(2, 3))
    (report,) = guards.inspect(module)
    assert report.explain(torch.ones(2, 3)) is None


def test_compiled_function_that_is_taken_into_another() -> None:
    inner = compile_eagerly(closing_over(2))
    outer = compile_eagerly(lambda x: inner(x) + 1)
    outer(torch.ones(2))
    assert guards.inspect(inner) == []
    assert len(guards.inspect(outer)) == 1


def test_callables_that_share_code_are_told_apart() -> None:
    class Called:
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    def plus(x: torch.Tensor, n: int) -> torch.Tensor:
        return x + n

    callables = [Called(), functools.partial(plus, n=3), torch.relu, nn.functional.relu]
    compiled = [compile_eagerly(c) for c in callables]
    for each in compiled:
        each(torch.ones(2))
    for each in compiled:
        (report,) = guards.inspect(each)
        assert report.explain(torch.ones(2)) is None
        assert report.explain(torch.ones(3)) is not None


def test_function_compiled_twice_over() -> None:
    compiled = compile_eagerly(compile_eagerly(add))
    compiled(torch.ones(2), 2, {"double": True})
    (report,) = guards.inspect(compiled)
    assert report.explain(torch.ones(2), 2, {"double": True}) is None


@pytest.mark.parametrize("value", [add, nn.Linear(2, 2), 3, None, torch.relu, Scaled().times])
def test_what_was_not_compiled_is_refused(value: Any) -> None:
    with pytest.raises(NotCompiledError, match=r"was not given to torch\.compile"):
        guards.inspect(value)


def test_torch_with_other_internals_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compile_eagerly(add)
    compiled(torch.ones(2), 2, {"double": True})
    monkeypatch.setattr(private, "cache_entries", lambda: lambda code: [object()])
    with pytest.raises(private.UnsupportedTorchError, match="keeps its compilations in a way"):
        guards.inspect(compiled)
    monkeypatch.undo()
    monkeypatch.delattr(torch._C._dynamo.eval_frame, "_debug_get_cache_entry_list")
    with pytest.raises(private.UnsupportedTorchError, match=r"guards needs _dynamo\.eval_frame"):
        guards.inspect(compiled)


@pytest.mark.slow
def test_importing_guards_loads_no_dynamo() -> None:
    code = "import sys, guards; guards.inspect; sys.exit('torch._dynamo' in sys.modules)"
    import subprocess

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
