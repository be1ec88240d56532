"""What a recording looks like as text, JSON lines, Chrome trace and Mermaid graph."""

from __future__ import annotations

import itertools
import json
import re
import threading
from typing import Any

import torch
from dispatch_core import Recorder, propagate_modes


def program() -> Recorder:
    x = torch.ones(2, 3)
    w = torch.ones(3, 4, dtype=torch.float64)
    recorder = Recorder()
    with recorder:
        y = torch.mm(x, w.float())
        torch._foreach_add_([y], 1)
        torch.cat([y, y], 1)
    return recorder


def test_text() -> None:
    text = re.sub(r"\d+\.\d us", "T", program().to_text())
    assert text == (
        "aten::_to_copy($0: f64[3, 4], dtype=torch.float32) -> $1: f32[3, 4]  # T\n"
        "aten::mm($2: f32[2, 3], $1: f32[3, 4]) -> $3: f32[2, 4]  # T\n"
        "aten::_foreach_add_.Scalar([$3: f32[2, 4]], 1) -> nothing  # T\n"
        "aten::cat([$3: f32[2, 4], $3: f32[2, 4]], 1) -> $4: f32[2, 8]  # T\n"
    )


def test_json_lines_hold_everything_an_event_has() -> None:
    recorder = program()
    records = [json.loads(line) for line in recorder.to_jsonl().splitlines()]
    assert len(records) == len(recorder.events)
    for record, event in zip(records, recorder.events, strict=True):
        assert record["op"] == event.name
        assert record["start_ns"] == event.start_ns
        assert record["duration_ns"] == event.duration_ns
        assert [tuple(info["shape"]) for info in record["outputs"]] == [
            info.shape for info in event.outputs
        ]
        assert [tuple(frame.values()) for frame in record["stack"]] == list(event.stack)
    assert records[0]["kwargs"] == {"dtype": "float32"}
    assert records[1]["args"] == [
        {"tensor": 2, "shape": [2, 3], "dtype": "float32", "device": "cpu"},
        {"tensor": 1, "shape": [3, 4], "dtype": "float32", "device": "cpu"},
    ]


def test_json_has_no_value_that_json_does_not_know() -> None:
    x = torch.ones(2)
    with Recorder() as recorder:
        x.fill_(float("inf"))
        torch.full((1,), 1j)
        torch.rand(1, generator=torch.Generator())
    records = [json.loads(line) for line in recorder.to_jsonl().splitlines()]
    assert records[0]["args"][1] == "inf"
    assert records[1]["args"][1] == "1j"
    assert records[2]["kwargs"]["generator"] == {"object": "Generator"}


def test_chrome_trace_is_as_the_format_asks() -> None:
    with Recorder() as recorder:
        torch.ones(1) + 1
        thread = threading.Thread(target=propagate_modes(lambda: torch.ones(2)))
        thread.start()
        thread.join()
    trace = json.loads(recorder.to_chrome_trace())
    assert set(trace) == {"traceEvents", "displayTimeUnit"}
    assert trace["displayTimeUnit"] in ("ms", "ns")
    complete = [entry for entry in trace["traceEvents"] if entry["ph"] == "X"]
    metadata = [entry for entry in trace["traceEvents"] if entry["ph"] == "M"]
    assert len(complete) + len(metadata) == len(trace["traceEvents"])
    for entry in trace["traceEvents"]:
        assert isinstance(entry["name"], str)
        assert isinstance(entry["pid"], int)
        assert isinstance(entry["tid"], int)
        assert isinstance(entry["args"], dict)
    for entry in metadata:
        assert entry["name"] == "thread_name"
        assert isinstance(entry["args"]["name"], str)
    for entry, event in zip(complete, recorder.events, strict=True):
        assert entry["name"] == event.name
        assert isinstance(entry["cat"], str)
        assert round(entry["dur"] * 1000) == event.duration_ns
        assert entry["ts"] >= 0
    assert complete[0]["ts"] == 0
    assert {entry["tid"] for entry in metadata} == {entry["tid"] for entry in complete} == {0, 1}


def test_chrome_trace_events_of_a_thread_do_not_overlap() -> None:
    trace = json.loads(program().to_chrome_trace())
    entries = [entry for entry in trace["traceEvents"] if entry["ph"] == "X"]
    for before, after in itertools.pairwise(entries):
        assert before["ts"] + before["dur"] <= after["ts"]


def test_mermaid_draws_what_goes_where() -> None:
    assert program().to_mermaid() == (
        "flowchart TD\n"
        '    op0["aten::_to_copy<br/>f32[3, 4]"]\n'
        '    in0(["$0: f64[3, 4]"])\n'
        '    op1["aten::mm<br/>f32[2, 4]"]\n'
        '    in2(["$2: f32[2, 3]"])\n'
        '    op2["aten::_foreach_add_.Scalar"]\n'
        '    op3["aten::cat<br/>f32[2, 8]"]\n'
        "    in0 --> op0\n"
        "    in2 --> op1\n"
        "    op0 --> op1\n"
        "    op1 --> op2\n"
        "    op2 --> op3\n"
    )


def test_mermaid_is_well_formed_for_a_training_step() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    with Recorder() as recorder:
        net(torch.ones(2, 3)).sum().backward()
    lines = recorder.to_mermaid().splitlines()
    assert lines[0] == "flowchart TD"
    nodes: set[str] = set()
    arrows = []
    for line in lines[1:]:
        node: Any = re.fullmatch(r'    (\w+)(?:\["[^"]*"\]|\(\["[^"]*"\]\))', line)
        arrow: Any = re.fullmatch(r"    (\w+) --> (\w+)", line)
        assert node or arrow, line
        if node:
            nodes.add(node[1])
        else:
            arrows.append((arrow[1], arrow[2]))
    assert {end for arrow in arrows for end in arrow} <= nodes
    assert len(nodes) >= len(recorder.events)


def test_empty_recording() -> None:
    recorder = Recorder()
    assert recorder.to_text() == recorder.to_jsonl() == ""
    assert json.loads(recorder.to_chrome_trace())["traceEvents"] == []
    assert recorder.to_mermaid() == "flowchart TD\n"
    assert recorder.normalized() == ()
