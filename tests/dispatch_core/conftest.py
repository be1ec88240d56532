"""What torch imports on first use, imported before the tests are timed."""

from __future__ import annotations

import pytest
import torch
from dispatch_core import no_dispatch

from tests.dispatch_core.wrapping import Direct


@pytest.fixture(scope="session", autouse=True)
def _lazy_imports_of_torch() -> None:
    torch.ones(1).as_subclass(Direct) + 1  # torch.distributed.tensor
    with no_dispatch():
        torch.ones(1, device="meta") + 1  # torch._meta_registrations
