"""What torch imports on first use, imported before the tests are timed."""

from __future__ import annotations

import pytest
import torch
from subclass_utils import LoggingTensor


@pytest.fixture(scope="session", autouse=True)
def _lazy_imports_of_torch() -> None:
    wrapper = LoggingTensor(torch.ones(1), requires_grad=True)
    (wrapper * 2).sum().backward()
    repr(wrapper)
