# /// script
# dependencies = ["nox>=2025.2.9"]
# ///
"""The jobs of this repository: `nox --list` names them, plain `nox` checks and writes nothing."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["codegen-check", "lint", "typecheck", "tests", "packages"]

ROOT = Path(__file__).parent
PYPROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
PACKAGES = ["packages/dispatch-core", "packages/subclass-utils", "packages/guards"]
GENERATOR = "tools/opspec"


def torch_version() -> str:
    """Give the torch to run on: that of the specs, or what OPSPEC_TORCH says."""
    pinned = re.search(r"^torch: *(\S+)", (ROOT / "specs/_torch.yaml").read_text(), re.MULTILINE)
    if pinned is None:
        raise ValueError("specs/_torch.yaml names no torch version")
    return os.environ.get("OPSPEC_TORCH") or pinned[1].strip("\"'")


def group(name: str) -> tuple[str, ...]:
    """Give the requirements of a dependency group of pyproject.toml."""
    return nox.project.dependency_groups(PYPROJECT, name)


def site_of(session: nox.Session, python: str) -> tuple[Path, str]:
    """Give the site-packages folder of an interpreter, and a name for its version."""
    code = "import sys, sysconfig as s; print(sys.implementation.cache_tag, s.get_path('purelib'))"
    tag, site = str(session.run(python, "-c", code, external=True, silent=True)).split(maxsplit=1)
    return Path(site.strip()), tag


def provide_torch(session: nox.Session) -> Path:
    """Let the session's environment import torch, and give the folder it comes from.

    torch is large, so that one environment for each version holds it and nothing else, and the
    environments of the sessions see that one through a .pth file. pip counts what it finds there
    as installed, hence never looks for another torch.
    """
    version = torch_version()
    own_site, tag = site_of(session, "python")
    base = Path(session.cache_dir).parent / f"torch-{version}-{tag}"
    python = str(base / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))
    if not Path(python).exists():
        interpreter = str(Path(session.bin) / "python")
        virtualenv = [sys.executable, "-m", "virtualenv", "--quiet", "--python", interpreter]
        session.run(*virtualenv, str(base), external=True)
    install = [python, "-m", "pip", "install", "--quiet", f"torch=={version}"]
    session.run(*install, external=True, silent=True)
    torch_site, _ = site_of(session, python)
    (own_site / "torch-environment.pth").write_text(f"{torch_site}\n")
    return torch_site


def develop(session: nox.Session) -> None:
    """Install torch and every package of this checkout, editable."""
    provide_torch(session)
    session.install("hatchling", "editables", *group("test"))
    # Two siblings in one plain editable install do not resolve, hence --no-deps.
    editable = [part for package in [*PACKAGES, GENERATOR] for part in ("-e", package)]
    session.install("--no-deps", "--no-build-isolation", *editable)


@nox.session
def codegen(session: nox.Session) -> None:
    """Generate the code of all packages from specs/; `-- --check` only reports drift."""
    session.install("-e", GENERATOR)
    session.run("python", "-m", "opspec", "codegen", *session.posargs)


@nox.session(name="codegen-check")
def codegen_check(session: nox.Session) -> None:
    """Report generated files that no longer follow from specs/, and write nothing."""
    session.install("-e", GENERATOR)
    session.run("python", "-m", "opspec", "codegen", "--check", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and formatting; mend with `ruff check --fix` and `ruff format`."""
    session.install(*group("lint"))
    session.run("ruff", "check", *session.posargs)
    session.run("ruff", "format", "--check", *session.posargs)


@nox.session
def typecheck(session: nox.Session) -> None:
    """Check the types of everything with mypy, and of a client of the typed operators twice."""
    develop(session)
    session.install(*group("typecheck"), "nox")
    session.run("mypy", *session.posargs)
    session.run("pyright", "--warnings", "tests/typing")


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests; what follows `--` goes to pytest (`-- --long` adds those of minutes)."""
    develop(session)
    session.run("pytest", *session.posargs)


@nox.session
def packages(session: nox.Session) -> None:
    """Install each package alone, as a stranger would, and try it from an empty folder."""
    torch_site = provide_torch(session)
    session.install("pytest>=9", "build", "virtualenv")
    session.run("pytest", f"--torch-site={torch_site}", "tests/packages", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure against torch's own ways, print a table, and write JSON; `-- NAME` runs a part."""
    develop(session)
    session.install(*group("typecheck"))
    session.run("python", "-m", "tools.bench", *session.posargs)


if __name__ == "__main__":
    nox.main()
