"""Read the fenced code blocks of a document, and run them as a reader would."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[\w-]*)[^\n`]*\n(?P<text>.*?)^(?P=indent)```[ ]*$",
    re.MULTILINE | re.DOTALL,
)
# A block that starts with the comment `# path/of/a/file` is what that file holds.
FILE_NAME = re.compile(r"\A# (?P<path>[\w./-]+\.(?:yaml|py|toml))\n")

# Runs Python blocks in one namespace, with the line numbers of the document in tracebacks.
DRIVER = """
import doctest, json, sys
name, blocks = json.load(sys.stdin)
namespace = {"__name__": "__main__"}
for language, line, text in blocks:
    if language == "pycon":
        test = doctest.DocTestParser().get_doctest(text, namespace, name, name, line - 1)
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
        test.globs = namespace
        if runner.run(test, clear_globs=False).failed:
            sys.exit(1)
    else:
        exec(compile("\\n" * (line - 1) + text, name, "exec"), namespace)
"""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the line its text starts on, and the text."""

    language: str
    line: int
    text: str


def blocks_of(document: str) -> Iterator[Block]:
    """Give the fenced blocks of a document, in order."""
    for match in FENCE.finditer(document):
        indent = match["indent"]
        lines = [line.removeprefix(indent) for line in match["text"].splitlines(keepends=True)]
        first = document.count("\n", 0, match.start("text")) + 1
        yield Block(match["language"], first, "".join(lines))


def commands_of(text: str) -> Iterator[str]:
    """Give the commands of a shell block, without comments and prompts."""
    for line in text.replace("\\\n", " ").splitlines():
        command = re.sub(r"(^|\s)#.*", "", line).strip().removeprefix("$ ")
        for part in command.split("&&"):
            if part.strip():
                yield " ".join(part.split())


class Reader:
    """Follow a document in a copy of the tree, block by block."""

    def __init__(self, name: str, tree: Path, sessions: set[str]) -> None:
        self.name = name
        self.tree = tree
        self.sessions = sessions
        self.pending: list[Block] = []
        self.ran: list[str] = []

    def follow(self, document: str) -> None:
        """Do what every block says; raises AssertionError with what went wrong."""
        for block in blocks_of(document):
            if block.language in ("python", "pycon") and not FILE_NAME.match(block.text):
                self.pending.append(block)
                continue
            self.finish()
            if named := FILE_NAME.match(block.text):
                target = self.tree / named["path"]
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(block.text, encoding="utf-8")
                self.ran.append(f"write {named['path']}")
            elif block.language in ("sh", "shell", "console", "bash"):
                for command in commands_of(block.text):
                    self.command(command, block.line)
            elif block.language in ("yaml", "yml"):
                self.check_spec(block)
            else:
                assert block.language in ("", "text"), f"{self.where(block.line)}: {block.language}"
        self.finish()

    def finish(self) -> None:
        """Run the Python blocks since the last block of another kind, in a new process."""
        if self.pending:
            blocks = [(block.language, block.line, block.text) for block in self.pending]
            self.run("-W", "error", "-c", DRIVER, text=json.dumps([self.name, blocks]))
            self.ran.extend(f"{block.language} line {block.line}" for block in self.pending)
            self.pending.clear()

    def command(self, command: str, line: int) -> None:
        """Run a command, or check as much of it as can be checked from inside a test."""
        self.ran.append(command)
        words = command.split()
        if command == "nox -s codegen":
            self.run("-m", "opspec", "codegen")
        elif words[0] == "opspec":
            self.run("-m", *words)
        elif words[0] == "python":
            self.run(*words[1:])
        elif "nox" in words[0:2]:
            after = [word for word in words[words.index("nox") + 1 :] if not word.startswith("-")]
            named = set(after[: after.index("--")] if "--" in after else after[:1])
            assert named <= self.sessions, f"{self.where(line)}: no session {named}"
        elif words[:2] == ["pip", "install"]:
            local = [word for word in words[2:] if word.startswith("./")]
            others = [w for w in words[2:] if w not in local and not w.startswith("-")]
            assert set(others) <= {"nox"}, f"{self.where(line)}: {others} from an index"
            for path in local:
                assert (self.tree / path / "pyproject.toml").is_file(), self.where(line)
        elif words[0] in ("git", "cd"):
            pass
        else:
            raise AssertionError(f"{self.where(line)}: no test knows how to run {command!r}")

    def check_spec(self, block: Block) -> None:
        """Let opspec check entries of a spec that belong to no file."""
        sample = self.tree / "sample.yaml"
        sample.write_text(block.text, encoding="utf-8")
        self.ran.append(f"check line {block.line}")
        self.run("-m", "opspec", "check", str(sample))
        sample.unlink()

    def run(self, *arguments: str, text: str = "") -> None:
        """Run Python in the tree, with the packages of the tree and no others."""
        source_folders = [*self.tree.glob("packages/*/src"), self.tree / "tools/opspec/src"]
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.tree,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, source_folders))},
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        shown = " ".join(word for word in arguments if "\n" not in word)
        assert done.returncode == 0, f"{self.name}: python {shown}\n{done.stdout}"

    def where(self, line: int) -> str:
        """Name a place in the document."""
        return f"{self.name}:{line}"
