"""The text of an imported spec file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from opspec.families_descriptions import DESCRIPTIONS, TORCHSCRIPT_DESCRIPTIONS
from opspec.implied_tags import implied_tags
from opspec.model import Composite, Schema

__all__ = ["TORCHSCRIPT", "Entry", "file_text", "pin_text"]

TORCHSCRIPT = "torchscript"
"""The folder of the operators that only TorchScript has."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One operator as a spec file shows it.

    `above` are the comment lines that a person wrote over it, `added` the lines of the keys that a
    person added; both are kept to the letter. `whole` is the text of an operator that torch no
    longer has; it stands instead of what the other fields say.
    """

    schema: Schema
    tags: frozenset[str] = frozenset()
    composite: Composite = "no"
    above: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()

    def lines(self, *, namespace: str) -> list[str]:
        """Give the lines of the entry; `namespace` is the one that need not be written."""
        if self.whole:
            return [*self.above, *self.whole]
        bare = self.schema.namespace == namespace
        schema = replace(self.schema, namespace="") if bare else self.schema
        lines = [*self.above, f"- func: {schema}"]
        implied = implied_tags(self.schema)
        if self.tags - implied:
            lines.append(f"  tags: [{', '.join(sorted(self.tags - implied))}]")
        if implied - self.tags:
            lines.append(f"  without_tags: [{', '.join(sorted(implied - self.tags))}]")
        if self.composite != "no":
            lines.append(f"  composite: {self.composite}")
        return [*lines, *self.added]


def file_text(
    folder: str,
    family: str,
    entries: Iterable[Entry],
    *,
    head: Iterable[str] = (),
    tail: Iterable[str] = (),
) -> str:
    """Give the text of specs/<folder>/<family>.yaml.

    `head` and `tail` are the comment lines that a person wrote at the two ends of the file.
    """
    described = TORCHSCRIPT_DESCRIPTIONS if folder == TORCHSCRIPT else DESCRIPTIONS
    lines = [f"# {described.get(family, family)}", *head]
    last = None
    for entry in sorted(entries, key=_order):
        # A blank line between operators, none between the overloads of one.
        if entry.schema.base != last:
            lines.append("")
            last = entry.schema.base
        lines += entry.lines(namespace=folder)
    if tail := tuple(tail):
        lines += ["", *tail]
    return "\n".join(lines) + "\n"


def _order(entry: Entry) -> tuple[str, str, str]:
    return entry.schema.name, entry.schema.namespace, entry.schema.overload


def pin_text(torch_version: str, namespaces: Iterable[str]) -> str:
    """Give the text of specs/_torch.yaml."""
    lines = [
        "# The torch that `opspec import` read these specs from.",
        f"torch: {torch_version}",
        "namespaces:",
        *(f"  - {namespace}" for namespace in sorted(namespaces)),
    ]
    return "\n".join(lines) + "\n"
