"""Numbers that stand in several places are equal everywhere."""

from __future__ import annotations

import importlib.metadata
import re

import pytest

from tests.repo.layout import FOLDERS, ROOT, SOURCES, committed


def one(pattern: str, text: str) -> str:
    """Give what the group of a pattern matches; it must match exactly once."""
    found = re.findall(pattern, text, re.MULTILINE)
    assert len(found) == 1, f"{pattern} matches {found}"
    return str(found[0])


def project(package: str) -> str:
    """Read the pyproject.toml of a package."""
    return (FOLDERS[package] / "pyproject.toml").read_text(encoding="utf-8")


def root_project() -> str:
    """Read the pyproject.toml of the repository."""
    return (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_all_packages_have_one_version() -> None:
    versions = {
        package: one(r'^__version__ = "(.+)"$', (source / "_version.py").read_text())
        for package, source in SOURCES.items()
    }
    assert len(set(versions.values())) == 1, versions


@pytest.mark.parametrize("package", SOURCES)
def test_version_is_read_from_the_source(package: str) -> None:
    place = SOURCES[package].relative_to(FOLDERS[package])
    assert one(r'^path = "(.+)"$', project(package)) == f"{place.as_posix()}/_version.py"


def test_python_floor_is_the_same_everywhere() -> None:
    floors = {one(r'^requires-python = ">=(.+)"$', project(package)) for package in SOURCES}
    assert len(floors) == 1
    (floor,) = floors
    assert one(r'^python_version = "(.+)"$', root_project()) == floor
    assert one(r'^target-version = "py(.+)"$', root_project()) == floor.replace(".", "")


def test_torch_floor_is_the_same_everywhere_and_that_of_the_specs() -> None:
    floors = {
        package: set(re.findall(r'"torch>=([^"]+)"', text))
        for package in ("dispatch_core", "guards")
        for text in [project(package)]
    }
    hook = (FOLDERS["subclass_utils"] / "hatch_build.py").read_text(encoding="utf-8")
    floors["subclass_utils"] = set(re.findall(r'"torch>=([^"]+)"', hook))
    assert len(set(map(frozenset, floors.values()))) == 1, floors
    ((floor,),) = set(map(frozenset, floors.values()))
    specs = one(r"^torch: *['\"]?([^'\"\s]+)", (ROOT / "specs/_torch.yaml").read_text())
    assert specs.startswith(f"{floor}.")


def test_version_of_torch_is_written_down_once_among_the_tools() -> None:
    specs = one(r"^torch: *['\"]?([^'\"\s]+)", (ROOT / "specs/_torch.yaml").read_text())
    names = {"noxfile.py", "pyproject.toml", "run"}
    named = [
        path.relative_to(ROOT).as_posix()
        for path in committed()
        if path.name in names and specs in path.read_text(encoding="utf-8")
    ]
    assert named == []


def test_installed_formatter_is_the_pinned_one() -> None:
    # Generated code is written as this version formats it; another one may disagree.
    assert importlib.metadata.version("ruff") == one(r'"ruff==(.+?)"', root_project())


def test_change_log_starts_with_what_is_not_released() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"


def test_licence_of_every_package_is_that_of_the_repository() -> None:
    licence = (ROOT / "LICENSE").read_bytes()
    for package, folder in FOLDERS.items():
        assert (folder / "LICENSE").read_bytes() == licence, package
