"""A source in the form of torch's own, and a create function that is never called."""

from __future__ import annotations

import functools
from typing import Any

import guards
from guards import GuardSource, torch_guards


def check(builder: Any, guard: guards.Guard) -> None:
    raise NotImplementedError


@torch_guards.dataclass_with_cached_hash(frozen=True)
class Local(torch_guards.Source):
    local: str

    @functools.cached_property
    def _name_template(self) -> str:
        return f"L[{self.local!r}]"

    @property
    def guard_source(self) -> GuardSource:  # type: ignore[override]
        return GuardSource.LOCAL
