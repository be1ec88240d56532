"""Where things lie in this repository, for the tests of its promises."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = {
    "opspec": ROOT / "tools/opspec/src/opspec",
    "dispatch_core": ROOT / "packages/dispatch-core/src/dispatch_core",
    "subclass_utils": ROOT / "packages/subclass-utils/src/subclass_utils",
    "guards": ROOT / "packages/guards/src/guards",
}
FOLDERS = {name: source.parents[1] for name, source in SOURCES.items()}
IMPORT = re.compile(
    r"^[ \t]*(?P<statement>import .*|from \S+ import (?:\([^)]*\)|.*))$", re.MULTILINE
)
PACKAGES = ["dispatch_core", "subclass_utils", "guards"]


@cache
def committed() -> tuple[Path, ...]:
    """List every file that git tracks or would track, so that a new file is checked as well."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    out = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [ROOT / name for name in out.split("\0") if name]
    return tuple(sorted(path for path in paths if path.is_file()))


def copy_tree(target: Path) -> Path:
    """Copy what git tracks or would track into a new folder, and give that folder."""
    for path in committed():
        copy = target / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    return target


def modules(name: str) -> list[Path]:
    """List the Python files of a package, stubs included."""
    return sorted(path for path in SOURCES[name].rglob("*.py*") if path.suffix in (".py", ".pyi"))


def generated(path: Path) -> bool:
    """Say whether a file is written by the generator."""
    return "_generated" in path.parts


@cache
def imports(path: Path) -> dict[str, int]:
    """Give the absolute names that a file imports, anywhere in it, each with a line number."""
    package = module_name(path).split(".")
    if path.stem != "__init__":
        package = package[:-1]
    text = path.read_text(encoding="utf-8")
    if generated(path):
        # A parse of all generated files takes seconds, and imports are all that matters of them.
        lines = [""] * (text.count("\n") + 1)
        for match in IMPORT.finditer(text):
            first = text.count("\n", 0, match.start("statement"))
            for offset, line in enumerate(match["statement"].split("\n")):
                lines[first + offset] = line
        text = "\n".join(lines)
    return imports_in(text, package)


def imports_in(text: str, package: list[str]) -> dict[str, int]:
    """Give the absolute names that the text of a module in a package imports."""
    found: dict[str, int] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            names = [origin, *(f"{origin}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            found.setdefault(name, node.lineno)
    return found


def module_name(path: Path) -> str:
    """Give the dotted name of a file under one of the sources."""
    for source in SOURCES.values():
        if path.is_relative_to(source):
            parts = path.relative_to(source.parent).with_suffix("").parts
            return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    raise ValueError(f"{path} is in no package")


def within(name: str, *packages: str) -> bool:
    """Say whether a dotted name is one of the packages or lies in one of them."""
    return any(name == package or name.startswith(f"{package}.") for package in packages)
