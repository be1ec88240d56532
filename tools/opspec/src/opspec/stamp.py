"""Know from a finished run of `opspec codegen` that there is nothing to do.

A stamp holds two digests of the last run that finished: one of all that decides what is generated,
one of all that was generated. Both are of contents, never of times, so that a stamp is right
wherever both still agree with the disk, however the files came to be what they are; whatever else
it says, or says in a broken way, the work is done in full.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from opspec.files import TREE_FILE, find_files

__all__ = ["CACHE_FOLDER", "Stamp", "digest_of_inputs", "digest_of_outputs", "recall", "remember"]

CACHE_FOLDER = ".opspec_cache"
"""Lies in the current folder, as the caches of other tools do, and can be removed at any time."""

_STAMP = "codegen"
_BYTECODE = "__pycache__"
_LINES = re.compile(r"inputs (\w+)\noutputs (\w+)\noperators (\d+)\nfiles (\d+)\nseal \w+\n", re.A)


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a finished run came from and came to; `operators` and `files` are how many."""

    inputs: str
    outputs: str
    operators: int
    files: int

    def __str__(self) -> str:
        """Give the text of the file, with a seal that shows whether it is whole."""
        text = (
            f"inputs {self.inputs}\noutputs {self.outputs}\n"
            f"operators {self.operators}\nfiles {self.files}\n"
        )
        return f"{text}seal {hashlib.sha256(text.encode()).hexdigest()}\n"


def _digest(parts: Iterable[bytes]) -> str:
    """Digest a sequence of byte strings, so that no two sequences have the same digest."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.hexdigest()


def _files_below(folder: str) -> Iterator[str]:
    """Yield everything below a folder that is no folder, as relative paths, without bytecode."""

    def stop(error: OSError) -> None:
        raise error

    for parent, folders, names in os.walk(folder, onerror=stop):
        # A link to a folder is not followed, but it is there.
        names += [name for name in folders if os.path.islink(os.path.join(parent, name))]
        folders[:] = sorted(name for name in folders if name != _BYTECODE)
        yield from (os.path.relpath(os.path.join(parent, name), folder) for name in sorted(names))


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _contents(folder: str) -> dict[str, bytes]:
    """Read everything below a folder, by its path in there."""
    return {
        path.replace(os.sep, "/"): _read(os.path.join(folder, path))
        for path in _files_below(folder)
    }


def _flat(contents: Mapping[str, bytes]) -> Iterator[bytes]:
    for path in sorted(contents):
        yield os.fsencode(path)
        yield contents[path]


def _generator() -> Iterator[bytes]:
    """Yield what generates: Python, this package, and the reader of YAML."""
    yield f"{sys.implementation.name} {sys.version_info[:2]}".encode()
    own = _contents(os.path.dirname(__file__))
    yaml = importlib.util.find_spec("yaml")
    if not own or yaml is None or yaml.origin is None:
        raise OSError("what generates does not lie in files")
    yield from _flat(own)
    yield _read(yaml.origin)  # has the version
    its_files = sorted(os.listdir(os.path.dirname(yaml.origin)))
    yield repr(its_files).encode(errors="surrogatepass")  # with libyaml or without


def _specs(specs: Sequence[str]) -> Iterator[bytes]:
    """Yield every file that a run reads, and what its place says of it."""
    files, faults = find_files(specs)
    if faults or not files:
        raise OSError("faults are to be reported")
    for file in files:
        yield repr((file.path, file.namespace, file.family, file.overlay, file.root)).encode(
            errors="surrogatepass"
        )
        yield _read(file.path)
    for root in sorted({file.root for file in files if file.root is not None}):
        path = os.path.join(root, TREE_FILE)
        yield os.fsencode(path)
        yield _read(path) if os.path.lexists(path) else b""


def digest_of_inputs(specs: Sequence[str], out: str) -> str | None:
    """Digest all that decides what a run generates; None where some of it cannot be read."""
    try:
        words = [*specs, "--out", out]
        return _digest([repr(words).encode(errors="surrogatepass"), *_generator(), *_specs(specs)])
    except (OSError, ValueError):
        return None


def digest_of_outputs(files: Mapping[str, bytes]) -> str:
    """Digest generated files, given by their paths below the folder of all packages."""
    return _digest(_flat(files))


def _outputs_on_disk(out: str, folders: Iterable[str]) -> str | None:
    files = {}
    try:
        for folder in folders:
            for path, content in _contents(os.path.join(out, folder)).items():
                files[f"{folder}/{path}"] = content
    except (OSError, ValueError):
        return None
    return digest_of_outputs(files)


def recall(inputs: str | None, out: str, folders: Iterable[str]) -> Stamp | None:
    """Give the stamp of the last run if that came from these inputs and all it made is there.

    `folders` are the generated ones below `out`: a file in them that it did not make counts too.
    """
    if inputs is None:
        return None
    try:
        text = Path(CACHE_FOLDER, _STAMP).read_text(encoding="ascii")
    except (OSError, ValueError):
        return None
    found = _LINES.fullmatch(text)
    if found is None:
        return None
    stamp = Stamp(found[1], found[2], int(found[3]), int(found[4]))
    if str(stamp) != text or stamp.inputs != inputs:
        return None
    return stamp if stamp.outputs == _outputs_on_disk(out, folders) else None


def remember(stamp: Stamp) -> None:
    """Write a stamp, if that can be done: where it cannot, the next run does its work in full."""
    folder = Path(CACHE_FOLDER)
    temporary = folder / f"{_STAMP}.{os.urandom(4).hex()}"
    with contextlib.suppress(OSError):
        folder.mkdir(exist_ok=True)
        ignore = folder / ".gitignore"
        if not ignore.exists():
            ignore.write_text("# A cache of opspec; it can be removed.\n*\n", encoding="ascii")
        try:
            temporary.write_text(str(stamp), encoding="ascii")
            os.replace(temporary, folder / _STAMP)
        finally:
            temporary.unlink(missing_ok=True)
