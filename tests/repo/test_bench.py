"""The benchmarks compute and lay out what they say; what they measure is nobody's assertion."""

from __future__ import annotations

import importlib
import json

import pytest

from tests.repo.layout import ROOT
from tools.bench.__main__ import as_json, main, subjects
from tools.bench.row import Row, amount, at_most, faster, table
from tools.bench.timing import Statement, alternate, alternate_slow, in_new_process, seconds_of


@pytest.mark.slow
@pytest.mark.parametrize("subject", subjects())
def test_every_subject_yields_rows(subject: str) -> None:
    assert callable(importlib.import_module(f"tools.bench.bench_{subject}").rows)


def test_table_shows_targets_met_and_missed() -> None:
    rows = [
        Row("bind", "a loop", 2e-7, 8e-6, faster(30)),
        Row("call", "torch.ops", 1.2e-6, 1e-6, at_most(1.1)),
        Row("memory", "torch", 3 * 2.0**20, 2.0**30, at_most(0.03), unit="B"),
        Row("other", "torch", 1.0, 2.0),
    ]
    assert table(rows) == (
        "work    ours    against    theirs  ratio         target        met\n"
        "──────  ──────  ─────────  ──────  ────────────  ────────────  ───\n"
        "bind    200 ns  a loop     8 µs    40.0× faster  ≥ 30× faster  yes\n"
        "call    1.2 µs  torch.ops  1 µs    1.20×         ≤ 1.1×        NO\n"
        "memory  3 MiB   torch      1 GiB   0.3%          ≤ 3%          yes\n"
        "other   1 s     torch      2 s     0.50×"
    )


@pytest.mark.parametrize(
    ("ours", "theirs", "met"), [(1.0, 30.0, True), (1.0, 29.9, False), (2.0, 60.0, True)]
)
def test_target_faster_is_met_from_its_value_on(ours: float, theirs: float, met: bool) -> None:
    assert faster(30).met(ours, theirs) is met


@pytest.mark.parametrize(("ours", "met"), [(1.1, True), (1.11, False)])
def test_target_at_most_is_met_up_to_its_value(ours: float, met: bool) -> None:
    assert at_most(1.1).met(ours, 1.0) is met


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0 ns"), (2.5, "2.5 s"), (0.0123, "12.3 ms"), (9.9e-7, "990 ns")]
)
def test_amount_takes_the_unit_that_fits(value: float, text: str) -> None:
    assert amount(value, "s") == text


def test_json_holds_every_row() -> None:
    text = as_json({"bind": [Row("bind", "a loop", 2e-7, 8e-6, faster(30))]})
    (row,) = json.loads(text)["rows"]
    assert row["subject"] == "bind"
    assert row["met"] is True
    assert row["target"] == "≥ 30× faster"


@pytest.mark.slow
def test_alternate_orders_statements_by_their_cost() -> None:
    names = {"x": list(range(20_000))}
    cheap, dear = alternate(Statement("x[0]", names), Statement("sum(x)", names), rounds=3)
    assert cheap < dear / 100


def test_alternate_slow_gives_medians_and_alternates() -> None:
    order: list[str] = []
    figures = {"a": iter([1.0, 9.0, 2.0]), "b": iter([5.0, 4.0, 6.0])}

    def take(name: str) -> float:
        order.append(name)
        return next(figures[name])

    assert alternate_slow(lambda: take("a"), lambda: take("b"), rounds=3) == [2.0, 5.0]
    assert "".join(order) == "abbaab"


def test_in_new_process_gives_what_the_code_prints() -> None:
    code = "import json, sys; print('noise'); print(json.dumps({'n': float(sys.argv[1])}))"
    assert in_new_process(code, "2") == {"n": 2.0}


def test_seconds_of_refuses_a_command_that_fails(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Exception, match="returned non-zero exit status 1"):
        seconds_of(["git", "no-such-command"], cwd=ROOT)
    assert "no-such-command" in capsys.readouterr().err


def test_unknown_subject_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bnd"])
    said = capsys.readouterr().err
    assert "no subject bnd" in said
    assert "bind" in said
