"""Options of the test run, and a check that every test leaves torch as it found it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGES = Path(__file__).parent / "packages"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--long` and `--torch-site`."""
    parser.addoption("--long", action="store_true", help="also run tests that take minutes")
    parser.addoption(
        "--torch-site",
        metavar="DIR",
        help="run tests/packages, whose fresh environments find torch in the site-packages DIR",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the installation tests to `nox -s packages`, which provides what they need."""
    if collection_path == PACKAGES and config.getoption("--torch-site") is None:
        return True
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what takes minutes, unless it was asked for."""
    if config.getoption("--long"):
        return
    long = [item for item in items if item.get_closest_marker("long")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


def torch_state() -> dict[str, object]:
    """Describe the settings of torch that outlive a test; empty while torch is not imported."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "compile"):
        return {}
    return {
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "deterministic warn only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "threads": torch.get_num_threads(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "function modes": torch._C._len_torch_function_stack(),
        "excluded dispatch keys": str(torch._C._dispatch_tls_local_exclude_set()),
        "included dispatch keys": str(torch._C._dispatch_tls_local_include_set()),
    }


@pytest.fixture(autouse=True)
def unchanged_torch_state() -> Iterator[None]:
    """Fail a test that leaves one of torch's global settings changed, naming the setting."""
    before = torch_state()
    yield
    after = torch_state()
    changed = [
        f"{name}: {before[name]} before, {after[name]} after"
        for name in before
        if before[name] != after[name]
    ]
    if changed:
        pytest.fail("the test changed the state of torch\n" + "\n".join(changed), pytrace=False)
