"""The examples of the package run and say what they promise."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "packages/dispatch-core/examples"


def run(name: str, *arguments: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_every_example_is_tested() -> None:
    tested = {
        "count_operators_of_a_class.py",
        "record_a_training_step.py",
        "reproducible_random_numbers.py",
    }
    assert {path.name for path in EXAMPLES.glob("*.py")} == tested


@pytest.mark.slow
def test_record_a_training_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("record_a_training_step.py", str(tmp_path), monkeypatch=monkeypatch)
    assert capsys.readouterr().out.count("operators, most often") == 2
    for name, operator in (
        ("two_layers", "aten::addmm"),
        ("transformer_encoder_layer", "aten::native_layer_norm"),
    ):
        trace = json.loads((tmp_path / f"{name}.trace.json").read_text(encoding="utf-8"))
        assert operator in {entry["name"] for entry in trace["traceEvents"]}
        lines = (tmp_path / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        assert operator in {json.loads(line)["op"] for line in lines}
        graph = (tmp_path / f"{name}.md").read_text(encoding="utf-8")
        assert f'["{operator}<br/>' in graph
        assert graph.count(" --> ") > 30


def test_reproducible_random_numbers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("reproducible_random_numbers.py", monkeypatch=monkeypatch)
    first, second = capsys.readouterr().out.splitlines()
    assert first == second


def test_count_operators_of_a_class(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("count_operators_of_a_class.py", monkeypatch=monkeypatch)
    out = capsys.readouterr().out
    assert out.startswith(
        "4 operators with a handler, 1 without\n"
        "  aten::add.Tensor  1x  exact\n"
        "  aten::mul.Tensor  1x  packet: aten::mul\n"
        "  aten::view  1x  where: predicate <lambda>\n"
        "  aten::sum  1x  packet: aten::sum\n"
        "  aten::sqrt  1x  missing\n"
        "  ended early: aten::sqrt: nobody took the call; declined by Metres."
    )
    assert out.endswith("HandlerError from TypeError\n")
