"""Find the spec files of a tree, and what their place says: namespace, family, overlay."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from opspec.diagnostics import Diagnostic
from opspec.model import Location

__all__ = ["OVERLAY_STEM", "TREE_FILE", "SpecFile", "find_files"]

TREE_FILE = "_torch.yaml"
OVERLAY_STEM = "facts"


@dataclass(frozen=True, slots=True)
class SpecFile:
    """One file to read. `root` is the tree that it belongs to, if it belongs to one."""

    path: str
    namespace: str
    family: str
    overlay: bool = False
    root: str | None = None


def _error(path: str, message: str, remedy: str) -> Diagnostic:
    return Diagnostic(Location(path, 1, 1), "error", message, remedy)


def _root_of(path: Path) -> Path | None:
    """Give the tree that a file or folder belongs to: named specs, or with _torch.yaml in it."""
    absolute = Path(os.path.abspath(path))
    depth = 0 if absolute.is_dir() else 1
    candidates = [absolute, *absolute.parents][depth : depth + 2]
    for candidate in candidates:
        if candidate.name == "specs" or (candidate / TREE_FILE).is_file():
            return candidate
    return None


def _spec_file(path: str, root: Path | None) -> SpecFile | Diagnostic:
    stem = Path(path).stem
    if root is None:
        overlay = stem == OVERLAY_STEM
        return SpecFile(path, "aten", stem, overlay)
    parts = Path(os.path.relpath(os.path.abspath(path), root)).parts
    if len(parts) == 1:
        return SpecFile(path, stem, stem, root=str(root))
    if len(parts) == 2:
        return SpecFile(path, parts[0], stem, stem == OVERLAY_STEM, str(root))
    return _error(
        path,
        "this file lies too deep in the tree",
        "a spec lies in specs/<namespace>/<family>.yaml or specs/<namespace>.yaml",
    )


def _is_spec(name: str) -> bool:
    return name.endswith((".yaml", ".yml")) and not name.startswith((".", "_"))


def _walk(folder: str, diagnostics: list[Diagnostic]) -> list[str]:
    found: list[str] = []

    def unreadable(error: OSError) -> None:
        reason = (error.strerror or str(error)).lower()
        path = error.filename or folder
        diagnostics.append(
            _error(path, f"the directory cannot be read: {reason}", "check its permissions")
        )

    for parent, folders, names in os.walk(folder, onerror=unreadable):
        for name in [name for name in folders if _is_spec(name)]:
            path = os.path.join(parent, name)
            diagnostics.append(_error(path, "this is a directory", "a spec is a file"))
        # A spec lies two levels deep; one more is looked at, to say of its files that they do not.
        deep = os.path.relpath(parent, folder).count(os.sep) >= 1
        folders[:] = sorted(
            name for name in folders if not (deep or name.startswith(".") or _is_spec(name))
        )
        found += (os.path.join(parent, name) for name in sorted(names) if _is_spec(name))
    return found


def _identity(path: str) -> str:
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):  # reading it will say what is wrong
        return path


def find_files(paths: Iterable[str | os.PathLike[str]]) -> tuple[list[SpecFile], list[Diagnostic]]:
    """Find the spec files under the given files and folders, each once, in a fixed order.

    A folder is a tree of its own unless it lies in one. An overlay that is named alone brings the
    files of its namespace with it, since it speaks of their operators.
    """
    diagnostics: list[Diagnostic] = []
    named: list[tuple[str, Path | None]] = []
    for given in paths:
        path = os.fspath(given)
        try:
            root = _root_of(Path(path))
            is_folder = os.path.isdir(path)
        except (OSError, ValueError) as error:
            diagnostics.append(_error(path, f"the path cannot be read: {error}", "check the path"))
            continue
        if not is_folder:
            if Path(path).stem == OVERLAY_STEM and os.path.exists(path):
                folder = os.path.dirname(path) or "."
                named += ((inner, root) for inner in _walk(folder, diagnostics) if inner != path)
            named.append((path, root))
            continue
        inside = _walk(path, diagnostics)
        if not inside and not diagnostics:
            diagnostics.append(
                _error(path, "this directory holds no spec files", "a spec's name ends in .yaml")
            )
        named += ((inner, root or Path(os.path.abspath(path))) for inner in inside)
    files: dict[str, SpecFile] = {}
    for path, root in named:
        if path.endswith(".yml"):
            diagnostics.append(
                _error(path, "the name of a spec ends in .yaml", f"rename it to {path[:-4]}.yaml")
            )
        found = _spec_file(path, root)
        if isinstance(found, Diagnostic):
            diagnostics.append(found)
        else:
            files.setdefault(_identity(path), found)
    return sorted(files.values(), key=lambda file: (file.namespace, file.path)), diagnostics
