"""Guards under a mode of the user's: its code is foreign, and a check runs none of it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from guards import Guard, GuardBuilder, LocalSource, TensorPropertySource, compile_guards
from torch.overrides import TorchFunctionMode

from tests.guards.kinds import Case, X, cases


class Recording(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[object] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.asked.append(func)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("case", cases(), ids=str)
def test_mode_is_not_asked(case: Case) -> None:
    scopes = [case.scope(value) for value in (*case.taken, *case.refused)]
    before = compile_guards([case.guard()], case.scope(case.value))
    wanted = [before(scope) for scope in scopes]
    with Recording() as mode:
        check = compile_guards([case.guard()], case.scope(case.value))
        assert check(case.scope(case.value))
        assert [check(scope) for scope in scopes] == wanted
        assert [before(scope) for scope in scopes] == wanted
        for scope in scopes:
            check.explain(scope)
    assert mode.asked == []


@pytest.fixture(autouse=True)
def nothing_collected_meanwhile() -> Iterator[None]:
    """Let no generator of another test be closed under the mode, which sees what it then does."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("prop", [("size", 0), ("stride", -1), ("storage_offset", None)], ids=str)
def test_mode_is_not_asked_for_a_property(prop: Any) -> None:
    guard = Guard(TensorPropertySource(X, *prop), GuardBuilder.EQUALS_MATCH)
    scopes = [{"x": made} for made in (torch.ones(2, 3), torch.ones(5), torch.ones(9)[3:6:2])]
    with Recording() as mode:
        for made in scopes:
            check = compile_guards([guard], made)
            for scope in scopes:
                check(scope)
                check.explain(scope)
            assert check(made)
    assert mode.asked == []


@pytest.mark.parametrize("count", [1, 2, 5, 12])
def test_mode_is_not_asked_of_other_tensors(count: int) -> None:
    def made() -> dict[str, Any]:
        return {f"x{i}": torch.ones(2, 3) for i in range(count)}

    kept, others, wrong = made(), made(), {**made(), "x0": torch.ones(3, 2)}
    guards = [Guard(LocalSource(name), GuardBuilder.TENSOR_MATCH) for name in kept]
    with Recording() as mode:
        check = compile_guards(guards, kept)
        assert check(kept)
        assert check(others)
        assert not check(wrong)
        assert check.explain(wrong) is not None
    assert mode.asked == []
