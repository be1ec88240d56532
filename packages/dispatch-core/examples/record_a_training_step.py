"""Record a training step of a two-layer network and of a transformer layer, and draw them.

    python record_a_training_step.py [folder]

Writes for each a Chrome trace (open it in https://ui.perfetto.dev), JSON lines, and the graph as
Mermaid text in a Markdown file, which GitHub and most editors draw.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

import torch
from dispatch_core import Recorder


def record_step(net: torch.nn.Module, example: torch.Tensor) -> Recorder:
    """Run one step of training and give what ran."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    recorder = Recorder()
    with recorder:
        loss = net(example).square().mean()
        loss.backward()
        optimizer.step()
    return recorder


def write(recorder: Recorder, folder: Path, name: str) -> None:
    """Write a recording in three formats."""
    trace = folder / f"{name}.trace.json"
    trace.write_text(recorder.to_chrome_trace(), encoding="utf-8")
    (folder / f"{name}.jsonl").write_text(recorder.to_jsonl(), encoding="utf-8")
    graph = f"# {name}\n\n```mermaid\n{recorder.to_mermaid()}```\n"
    (folder / f"{name}.md").write_text(graph, encoding="utf-8")


def main(folder: Path) -> None:
    """Record both and say what took part."""
    torch.manual_seed(0)
    two_layers = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)
    )
    encoder = torch.nn.TransformerEncoderLayer(
        d_model=16, nhead=2, dim_feedforward=32, batch_first=True
    )
    for name, net, example in (
        ("two_layers", two_layers, torch.randn(4, 8)),
        ("transformer_encoder_layer", encoder, torch.randn(2, 5, 16)),
    ):
        recorder = record_step(net, example)
        write(recorder, folder, name)
        most = Counter(event.name for event in recorder.events).most_common(3)
        print(f"{name}: {len(recorder.events)} operators, most often {most}")
    print(f"written to {folder}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        main(Path(tempfile.mkdtemp(prefix="recording-")))
