from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import guards
import pytest

ROOT = Path(__file__).parents[2]
FRONT_END = ROOT / "packages/guards/examples/front_end.py"
DYNAMIC = ROOT / "packages/guards/examples/dynamic_shapes.py"


@pytest.mark.slow
def test_front_end_prints_what_it_found() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(FRONT_END)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    text, *found, holds, explanation = done.stdout.splitlines()
    assert text == "((x * 3) * 0.5)"
    assert found == [
        "EQUALS_MATCH on L['order']['vip']",
        "EQUALS_MATCH on L['order']['count']",
    ]
    assert holds == "True"
    assert explanation.startswith("L['order']['count'] == 3: expected 3, found 4")
    assert 'total = x * order["count"]' in explanation


def test_front_end_is_small() -> None:
    assert len(FRONT_END.read_text(encoding="utf-8").splitlines()) <= 80


def test_front_end_takes_back_the_guards_of_a_way_that_fails() -> None:
    front_end = runpy.run_path(str(FRONT_END))
    order = {"count": 3, "vip": False, "tax": 2, "duty": 3}
    text, found = front_end["trace"](front_end["price"], order)
    assert text == "(((x * 3) * 2) * 3)"
    assert [g.name for g in found] == [
        "L['order']['tax']",
        "L['order']['vip']",
        "L['order']['duty']",
        "L['order']['count']",
    ]
    del order["duty"]
    text, found = front_end["trace"](front_end["price"], order)
    assert text == "(x * 3)"
    assert [g.name for g in found] == ["L['order']['vip']", "L['order']['count']"]
    assert guards.TracingContext.try_get() is None


@pytest.mark.slow
def test_dynamic_shapes_prints_what_it_found() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(DYNAMIC)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "2 graphs for 4 calls",
        "L['y'] is a tensor like the one that was traced: expected stride [*, 1], "
        "found stride [*, 2]",
    ]


@pytest.mark.slow
def test_dynamic_shapes_gives_what_the_function_gives() -> None:
    import random

    import torch

    example = runpy.run_path(str(DYNAMIC))
    scores = example["scores"]
    compiled = example["Compiled"](scores)
    rng = random.Random(0)
    for _ in range(60):
        rows, inner, columns = (rng.randint(1, 7) for _ in range(3))
        x = torch.randn(rows, inner) if rng.random() < 0.5 else torch.randn(inner, rows).t()
        y = torch.randn(inner, columns)
        result = compiled(x, y, 0.5)
        assert torch.equal(result, scores(x, y, 0.5))
    assert compiled.cache.stats.hits > 0
