"""The documents of the spec language follow the table of keys that the reader uses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import yaml
from opspec.check import NoSpecsError, default_paths
from opspec.keys import ENTRY, FOREIGN_KEYS, KEYS, OVERLAY, TAGS
from opspec.language import json_schema, main, with_keys

ROOT = Path(__file__).parents[2]
NATIVE = Path(torch.__file__).parents[1] / "torchgen/packaged/ATen/native"
CURE = "run: python -m opspec.language"


def test_list_of_keys_is_current() -> None:
    readme = (ROOT / "specs/README.md").read_text(encoding="utf-8")
    assert readme == with_keys(readme), CURE


def test_json_schema_is_current() -> None:
    text = (ROOT / "specs/spec.schema.json").read_text(encoding="utf-8")
    assert json.loads(text) == json_schema(), CURE


def test_every_key_is_explained() -> None:
    readme = (ROOT / "specs/README.md").read_text(encoding="utf-8")
    for key in KEYS:
        assert f"* **`{key.name}`**" in readme
        assert key.meaning
        assert key.example
        assert key.required or key.default


def test_examples_of_keys_are_valid(tmp_path: Path) -> None:
    """Every example in the table is what the reader takes."""
    from opspec.tree import load

    example = {key.name: key.example for key in KEYS}
    entry = [key for key in KEYS if ENTRY in key.where and key.name != "without_tags"]
    overlay = [key for key in KEYS if OVERLAY in key.where]
    files = {
        "mine/a.yaml": [(key.name, example[key.name]) for key in entry],
        "mine/facts.yaml": [
            (key.name, "mine::mm" if key.kind == "name" else example[key.name]) for key in overlay
        ],
    }
    for name, pairs in files.items():
        path = tmp_path / "specs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [
            f"{'-' if not n else ' '} {key}: {value}\n" for n, (key, value) in enumerate(pairs)
        ]
        path.write_text("".join(lines))
    tree, faults = load([tmp_path / "specs"])
    assert faults == []
    assert tree.operators[0].doc == example["doc"]


def test_tags_are_those_of_torch() -> None:
    native = yaml.safe_load((NATIVE / "tags.yaml").read_text())
    assert {entry["tag"] for entry in native} == set(TAGS)


@pytest.mark.slow
def test_keys_of_native_functions_are_known() -> None:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    native = yaml.load((NATIVE / "native_functions.yaml").read_text(), Loader=loader)
    used = {name for entry in native for name in entry}
    assert used <= FOREIGN_KEYS | {"func", "tags"}


def test_json_schema_accepts_what_the_reader_accepts() -> None:
    """Every key, and no other, with every choice of its values."""
    definitions = json_schema()["definitions"]
    assert isinstance(definitions, dict)
    entry, overlay = definitions["entry"], definitions["overlay"]
    assert entry["properties"].keys() == {k.name for k in KEYS if ENTRY in k.where} | FOREIGN_KEYS
    assert overlay["properties"].keys() == {k.name for k in KEYS if OVERLAY in k.where}
    assert entry["required"] == ["func"]
    assert overlay["required"] == ["op"]
    for definition in (entry, overlay):
        assert definition["additionalProperties"] is False
        for key in KEYS:
            if key.choices:
                assert set(key.choices) <= set(definition["properties"][key.name]["enum"])


def test_language_writes_and_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([]) == 3
    assert capsys.readouterr().err == "specs/README.md: no such file or directory\n"
    (tmp_path / "specs").mkdir()
    readme = (ROOT / "specs/README.md").read_text(encoding="utf-8")
    (tmp_path / "specs/README.md").write_text(readme.replace("`random`", "`rnd`"), "utf-8")
    assert main(["--check"]) == 1
    assert capsys.readouterr().out == (
        "specs/spec.schema.json is out of date\nspecs/README.md is out of date\n"
    )
    assert main([]) == 0
    assert main(["--check"]) == 0
    assert (tmp_path / "specs/README.md").read_text(encoding="utf-8") == readme
    assert main(["--what"]) == 2


def test_default_path_is_the_folder_specs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NoSpecsError):
        default_paths([])
    (tmp_path / "specs").mkdir()
    assert default_paths([]) == ["specs"]
    assert default_paths(["a"]) == ["a"]
