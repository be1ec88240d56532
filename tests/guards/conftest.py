"""Fixtures that several files share, and sources of a small front end in both styles."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from guards import ChainedSource, GuardSource, Source, TracingContext, tracing

from tests.guards.hostile import CALLS


@dataclass(frozen=True)
class MethodLocal(Source):
    local: str
    kind: GuardSource = GuardSource.LOCAL

    def name(self) -> str:
        return f"L[{self.local!r}]"

    def guard_source(self) -> GuardSource:
        return self.kind


@dataclass(frozen=True)
class MethodAttr(ChainedSource):
    member: str

    def name(self) -> str:
        base: Any = self.base
        return f"{base.name()}.{self.member}"


@dataclass(frozen=True)
class PropertyLocal(Source):
    local: str
    kind: GuardSource = GuardSource.LOCAL

    @functools.cached_property
    def name(self) -> str:  # type: ignore[override]
        return f"L[{self.local!r}]"

    @property
    def guard_source(self) -> GuardSource:  # type: ignore[override]
        return self.kind


@dataclass(frozen=True)
class PropertyAttr(ChainedSource):
    member: str

    @functools.cached_property
    def name(self) -> str:  # type: ignore[override]
        base: Any = self.base
        return f"{base.name}.{self.member}"

    @property
    def guard_source(self) -> GuardSource:  # type: ignore[override]
        base: Any = self.base
        kind: GuardSource = base.guard_source
        return kind


STYLES = {
    "methods": SimpleNamespace(Local=MethodLocal, Attr=MethodAttr),
    "properties": SimpleNamespace(Local=PropertyLocal, Attr=PropertyAttr),
}


@pytest.fixture(params=sorted(STYLES))
def style(request: pytest.FixtureRequest) -> Any:
    """Give `Local(name, kind)` and `Attr(base, member)`, as methods and as properties."""
    return STYLES[request.param]


@pytest.fixture
def local() -> type[MethodLocal]:
    """Give a source class for tests to which the style makes no difference."""
    return MethodLocal


@pytest.fixture
def context() -> Iterator[TracingContext]:
    """Open a trace for the length of a test."""
    with tracing(TracingContext(None)) as context:
        assert context is not None
        yield context


@pytest.fixture
def no_foreign_code_is_run() -> Iterator[None]:
    """Fail a test in which code of the hostile classes was run."""
    CALLS.clear()
    yield
    assert CALLS == []


@pytest.fixture
def nothing_compiled_before() -> Iterator[None]:
    """Let torch.compile forget what it has, before and after a test."""
    import torch._dynamo

    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
