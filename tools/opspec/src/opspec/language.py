"""Write what describes the spec language: its JSON Schema, and the list of keys in its README.

python -m opspec.language            writes specs/spec.schema.json and specs/README.md
python -m opspec.language --check    says whether they are current, and writes nothing
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from opspec.keys import ENTRY, FOREIGN_KEYS, KEYS, OVERLAY, TAGS, TREE_KEYS, Key

__all__ = ["BEGIN", "END", "json_schema", "keys_text", "main", "with_keys"]

SCHEMA_FILE = "spec.schema.json"
README_FILE = "README.md"
BEGIN = "<!-- keys: written by `python -m opspec.language`, from the table that the reader uses -->"
END = "<!-- end of keys -->"


def _property(key: Key) -> dict[str, object]:
    text: dict[str, object] = {"description": key.meaning, "examples": [key.example]}
    if key.kind == "tags":
        tag = {"enum": list(TAGS)}
        return {**text, "examples": [["core"]], "anyOf": [tag, {"type": "array", "items": tag}]}
    if key.kind == "choice":
        # YAML editors take a bare `no` for false.
        choices: list[object] = list(key.choices)
        return {**text, "enum": [*choices, False] if "no" in choices else choices}
    if key.kind == "names":
        name: dict[str, object] = {"type": "string"}
        text["examples"] = [[*key.example.strip("[]").split(", ")]]
        return {**text, "anyOf": [name, {"type": "array", "items": name}]}
    if key.kind == "bool":
        return {**text, "examples": [True], "type": "boolean"}
    return {**text, "type": "string"}


def _mapping(where: str, keys: Sequence[Key], foreign: frozenset[str]) -> dict[str, object]:
    properties = {key.name: _property(key) for key in keys if where in key.where}
    ignored = "known and ignored: it steers torch's own code generation"
    return {
        "type": "object",
        "properties": {
            **properties,
            **{name: {"description": ignored} for name in sorted(foreign)},
        },
        "required": [key.name for key in keys if where in key.where and key.required],
        "additionalProperties": False,
    }


def json_schema() -> dict[str, object]:
    """Give the JSON Schema (draft 7, which editors know) of spec files and overlays."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "operator specs",
        "description": "A list of operators, or of facts about operators.",
        "type": "array",
        "items": {
            "if": {"required": ["op"]},
            "then": {"$ref": "#/definitions/overlay"},
            "else": {"$ref": "#/definitions/entry"},
        },
        "definitions": {
            "entry": _mapping(ENTRY, KEYS, FOREIGN_KEYS),
            "overlay": _mapping(OVERLAY, KEYS, frozenset()),
        },
    }


_TYPES = {
    "schema": "a schema",
    "name": "the name of an operator",
    "tags": "a tag, or a list of tags",
    "bool": "`true` or `false`",
    "text": "text",
    "names": "a list of names",
}
_FILES = {ENTRY: "spec files", OVERLAY: "overlays", "tree": "specs/_torch.yaml"}


def _key_text(key: Key) -> str:
    type_ = _TYPES.get(key.kind) or ", ".join(f"`{choice}`" for choice in key.choices)
    needed = "required" if key.required else f"default: {key.default}"
    files = " and ".join(_FILES[where] for where in key.where)
    return (
        f"* **`{key.name}`** ({files}; {type_}; {needed}): {key.meaning}. "
        f"Example: `{key.name}: {key.example}`"
    )


def keys_text() -> str:
    """Give the list of keys for specs/README.md, with the markers around it."""
    lines = [BEGIN, ""]
    lines += map(_key_text, (*KEYS, *TREE_KEYS))
    foreign = ", ".join(f"`{name}`" for name in sorted(FOREIGN_KEYS))
    lines += ["", "Tags are those of `torch.Tag`:", ""]
    lines += (f"* `{tag}`: {meaning}" for tag, meaning in TAGS.items())
    lines += ["", f"Keys of native_functions.yaml that are known and ignored: {foreign}.", "", END]
    return "\n".join(lines)


def with_keys(readme: str) -> str:
    """Give the text of specs/README.md with a current list of keys."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    return pattern.sub(lambda _: keys_text(), readme)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write both files of the folder specs, or with --check compare them."""
    options = sys.argv[1:] if arguments is None else arguments
    if [option for option in options if option != "--check"]:
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path("specs")
    try:
        readme = (folder / README_FILE).read_text(encoding="utf-8")
        wanted = {
            folder / SCHEMA_FILE: json.dumps(json_schema(), indent=2) + "\n",
            folder / README_FILE: with_keys(readme),
        }
        stale = [
            path
            for path, text in wanted.items()
            if not path.exists() or path.read_text(encoding="utf-8") != text
        ]
        for path in stale:
            print(f"{path} is out of date" if options else f"wrote {path}")
            if not options:
                path.write_text(wanted[path], encoding="utf-8", newline="\n")
    except OSError as error:
        print(f"{error.filename}: {(error.strerror or str(error)).lower()}", file=sys.stderr)
        return 3
    return 1 if stale and options else 0


if __name__ == "__main__":
    sys.exit(main())
