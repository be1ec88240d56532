"""An operator on a LoggingTensor inside a capture, against torch's own."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from subclass_utils import LoggingTensor, capture_logs
from torch.testing._internal import logging_tensor as theirs

from tools.bench.row import Row, faster
from tools.bench.timing import Statement, alternate


def rows() -> Iterator[Row]:
    """Compare one operator on two tensors, both captures open."""
    ours, torchs = LoggingTensor(torch.ones(3)), theirs.LoggingTensor(torch.ones(3))
    with capture_logs(), theirs.capture_logs():
        mine, torch_time = alternate(
            Statement("a * a", {"a": ours}), Statement("a * a", {"a": torchs})
        )
    yield Row("operator in a capture", "torch's LoggingTensor", mine, torch_time, faster(3))
