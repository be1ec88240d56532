"""Who imports whom: read from the sources, so that no import is missed for want of running it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.repo.layout import (
    PACKAGES,
    ROOT,
    SOURCES,
    generated,
    imports,
    imports_in,
    modules,
    within,
)

FORBIDDEN = {
    "opspec": ["dispatch_core", "subclass_utils", "guards", "black", "ruff", "yapf", "autopep8"],
    "dispatch_core": ["opspec", "subclass_utils", "guards"],
    "subclass_utils": ["opspec", "guards"],
    "guards": ["opspec", "dispatch_core", "subclass_utils", "torch._dynamo"],
}
# torch itself requires typing_extensions, which has what Python 3.10 lacks.
NEEDS = {
    "opspec": ["yaml"],
    "dispatch_core": ["torch", "typing_extensions"],
    "subclass_utils": ["torch", "typing_extensions", "dispatch_core"],
    "guards": ["torch", "typing_extensions"],
}
# The only modules of opspec that may import torch: they read its live registry.
ASKS_TORCH = {"importer.py", "registry.py", "diff.py"}
# The runtime types that generated code may use, by package.
RUNTIME = {
    "dispatch_core": ["dispatch_core._stub", "dispatch_core._handle", "dispatch_core._ops"],
    "subclass_utils": [],
    "guards": [],
}


def offences(paths: list[Path], *forbidden: str) -> list[str]:
    """List the imports of forbidden modules, as places."""
    return [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in paths
        for name, line in imports(path).items()
        if within(name, *forbidden)
    ]


@pytest.mark.parametrize("package", SOURCES)
def test_package_does_not_import_what_it_must_not(package: str) -> None:
    assert offences(modules(package), *FORBIDDEN[package]) == []


@pytest.mark.parametrize("package", SOURCES)
def test_package_needs_only_what_it_declares(package: str) -> None:
    allowed = {*sys.stdlib_module_names, package, *NEEDS[package]}
    foreign = {
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in modules(package)
        if not (package == "opspec" and path.name in ASKS_TORCH)
        for name, line in imports(path).items()
        if name.split(".")[0] not in allowed
    }
    assert foreign == set()


def test_only_import_and_diff_of_opspec_import_torch() -> None:
    others = [path for path in modules("opspec") if path.name not in ASKS_TORCH]
    assert others
    assert offences(others, "torch", "torchgen") == []


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_generated_code_imports_only_torch_typing_and_runtime_types(package: str) -> None:
    paths = [path for path in modules(package) if generated(path)]
    assert paths
    own = [f"{package}._generated", *RUNTIME[package]]
    allowed = ["torch", "typing", "typing_extensions", "collections.abc", "__future__", *own]
    foreign = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in paths
        for name, line in imports(path).items()
        # `from collections import abc` is seen as both names.
        if not within(name, *allowed) and name not in (package, "collections")
    ]
    assert foreign == []


def test_imports_in_finds_every_form_of_import() -> None:
    text = "import a.b\nfrom c import d\ndef f():\n    from . import e\n    from ..g import h\n"
    assert imports_in(text, ["guards", "inner"]) == {
        "a.b": 1,
        "c": 2,
        "c.d": 2,
        "guards.inner": 4,
        "guards.inner.e": 4,
        "guards.g": 5,
        "guards.g.h": 5,
    }
