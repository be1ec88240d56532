"""The page on guards that run: its code runs, and its table has every kind."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from guards import GuardBuilder

PAGE = Path(__file__).parents[2] / "packages/guards/CHECKS.md"


@pytest.mark.slow  # it compiles a function
def test_code_of_the_page_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 5
    scope: dict[str, Any] = {"__name__": "checks_page"}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec", dont_inherit=True), scope)


def test_table_has_every_kind() -> None:
    kinds = {name for name in vars(GuardBuilder) if name.isupper()}
    assert kinds == set(re.findall(r"`([A-Z]{2,}(?:_[A-Z]+)*)`", PAGE.read_text(encoding="utf-8")))
