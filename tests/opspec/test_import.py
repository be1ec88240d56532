"""An import writes what torch says, and keeps what a person said."""

from __future__ import annotations

import os
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
from opspec import importer
from opspec.cli import main
from opspec.importer import ImportRefusedError, import_specs
from opspec.importer_plan import owned_files
from opspec.registry import Composite, RegisteredOperator, Registry
from opspec.tree import load


def operator(schema: str, *tags: str, composite: Composite = "no") -> RegisteredOperator:
    known = {"pt2_compliant_tag"} if schema.startswith(("aten::", "prims::")) else set()
    return RegisteredOperator(
        schema.partition("(")[0], schema, frozenset(known | set(tags)), composite
    )


REGISTRY = Registry(
    "2.13.0",
    (
        operator("_test::cat(Tensor[] inputs) -> Tensor"),
        operator(
            "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", "core"
        ),
        operator("aten::mm(Tensor self, Tensor mat2) -> Tensor", composite="implicit"),
        operator("aten::mv(Tensor self, Tensor vec) -> Tensor"),
        operator("mkl::_mkl_linear(Tensor X, int batch_size) -> Tensor"),
        operator("prims::abs(Tensor self) -> Tensor"),
    ),
    (
        operator("aten::size(Tensor self) -> int[]"),
        operator("prim::Guard(Tensor(a) a) -> Tensor(a)"),
    ),
)

BLAS = """\
# Products of vectors and matrices: mm, addmv, bmm, dot, matmul, linear, einsum.

- func: mm(Tensor self, Tensor mat2) -> Tensor
  composite: implicit

- func: mv(Tensor self, Tensor vec) -> Tensor
"""


@pytest.fixture
def specs(tmp_path: Path) -> Path:
    return tmp_path / "specs"


@pytest.fixture
def imported(specs: Path) -> Path:
    import_specs(REGISTRY, specs)
    return specs


def contents(specs: Path) -> dict[str, str]:
    return {
        path.relative_to(specs).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(specs.rglob("*"))
        if path.is_file()
    }


def run(*arguments: str, monkeypatch: pytest.MonkeyPatch, registry: Registry = REGISTRY) -> int:
    monkeypatch.setattr(importer, "read_registry", lambda progress=None: registry)
    return main(["import", *arguments])


def without(*names: str) -> Registry:
    kept = tuple(op for op in REGISTRY.dispatcher if op.qualified_name not in names)
    return replace(REGISTRY, dispatcher=kept)


# What is written


def test_the_first_import_writes_families_and_the_pin(imported: Path) -> None:
    assert contents(imported) == {
        "_torch.yaml": "# The torch that `opspec import` read these specs from.\n"
        "torch: 2.13.0\nnamespaces:\n  - aten\n  - mkl\n  - prims\n",
        "aten/arithmetic.yaml": "# Arithmetic of elements: add, mul, div, pow, remainder, clamp, "
        "lerp.\n\n- func: add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor\n"
        "  tags: [core]\n",
        "aten/blas.yaml": BLAS,
        "mkl.yaml": "# Linear layers on MKL.\n\n"
        "- func: _mkl_linear(Tensor X, int batch_size) -> Tensor\n",
        "prims/prims.yaml": "# The primitives that torch's reference implementations are made of."
        "\n\n- func: abs(Tensor self) -> Tensor\n",
        "torchscript/tensors.yaml": "# Functions of tensors that TorchScript has and the "
        "dispatcher does not: size, to.\n\n- func: aten::size(Tensor self) -> int[]\n",
    }


def test_what_is_written_reads_back(imported: Path) -> None:
    tree, diagnostics = load([imported])
    assert diagnostics == []
    assert tree.torch_version == "2.13.0"
    assert [(op.qualified_name, op.family, op.scripted) for op in tree.operators] == [
        ("aten::add.Tensor", "arithmetic", False),
        ("aten::mm", "blas", False),
        ("aten::mv", "blas", False),
        ("aten::size", "tensors", True),
        ("mkl::_mkl_linear", "mkl", False),
        ("prims::abs", "prims", False),
    ]


def test_an_operator_without_an_implied_tag_says_so(specs: Path) -> None:
    odd = RegisteredOperator("aten::mm", "aten::mm(Tensor a) -> Tensor", frozenset(), "no")
    import_specs(Registry("2.13.0", (odd,), ()), specs)
    assert "without_tags: [pt2_compliant_tag]" in (specs / "aten/blas.yaml").read_text()
    assert load([specs])[0].operators[0].tags == frozenset()


def test_importing_again_changes_nothing(imported: Path) -> None:
    before = contents(imported)
    times = {path: path.stat().st_mtime_ns for path in imported.rglob("*")}
    made = import_specs(REGISTRY, imported)
    assert made.texts == {}
    assert contents(imported) == before
    assert {path: path.stat().st_mtime_ns for path in imported.rglob("*")} == times


def test_the_order_of_the_registry_does_not_matter(imported: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    import_specs(replace(REGISTRY, dispatcher=REGISTRY.dispatcher[::-1]), other)
    assert contents(other) == contents(imported)


def test_alias_sets_are_sorted(tmp_path: Path) -> None:
    for number, letters in enumerate(("a|b", "b|a")):
        schema = f"aten::to.prim_other(Tensor(a) self) -> Tensor({letters})"
        import_specs(Registry("2.13.0", (), (operator(schema),)), tmp_path / str(number))
    assert contents(tmp_path / "0") == contents(tmp_path / "1")


def test_only_the_namespaces_named_are_written(specs: Path) -> None:
    import_specs(REGISTRY, specs, namespaces=["prims"])
    assert sorted(contents(specs)) == ["_torch.yaml", "prims/prims.yaml"]
    import_specs(REGISTRY, specs, namespaces=["mkl", "torchscript"])
    assert sorted(contents(specs)) == [
        "_torch.yaml",
        "mkl.yaml",
        "prims/prims.yaml",
        "torchscript/tensors.yaml",
    ]
    assert "  - mkl\n  - prims\n" in (specs / "_torch.yaml").read_text()


def test_an_operator_that_no_rule_places_is_named(
    specs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    new = (*REGISTRY.dispatcher, operator("aten::frobnicate(Tensor self) -> Tensor"))
    registry = replace(REGISTRY, dispatcher=new)
    assert run("--specs", str(specs), monkeypatch=monkeypatch, registry=registry) == 0
    assert "no rule gives a family to aten::frobnicate\n" in capsys.readouterr().out
    assert "- func: frobnicate" in (specs / "aten/unplaced.yaml").read_text()


# What a person wrote


PERSONS = """\
# An old description.
# Reviewed by hand.

# Why mm is special:
# it is not.
- func: mm(Tensor self, Tensor wrong) -> Tensor  # see mv
  doc: |
    Multiply.
    # No comment.

    And more.
  tags: [pointwise]
  # The next key is a person's.
  output_shape: static
- doc: "One: two"
  func: mv(Tensor self, Tensor vec) -> Tensor

# The end.
"""

KEPT = """\
# Products of vectors and matrices: mm, addmv, bmm, dot, matmul, linear, einsum.
# Reviewed by hand.

# Why mm is special:
# it is not.
# see mv
- func: mm(Tensor self, Tensor mat2) -> Tensor
  composite: implicit
  doc: |
    Multiply.
    # No comment.

    And more.
  # The next key is a person's.
  output_shape: static

- func: mv(Tensor self, Tensor vec) -> Tensor
  doc: "One: two"

# The end.
"""


def test_keys_and_comments_of_a_person_survive(imported: Path) -> None:
    file = imported / "aten/blas.yaml"
    file.write_text(PERSONS)
    import_specs(REGISTRY, imported)
    assert file.read_text() == KEPT
    assert import_specs(REGISTRY, imported).texts == {}
    docs = {op.qualified_name: op.doc for op in load([imported])[0].operators if op.doc}
    assert docs == {"aten::mm": "Multiply.\n# No comment.\n\nAnd more.\n", "aten::mv": "One: two"}


@pytest.mark.parametrize(
    "entries",
    [
        "- {func: 'mm(Tensor self, Tensor mat2) -> Tensor', doc: 'Say: it'}\n",
        "-\n  func: mm(Tensor self, Tensor mat2) -> Tensor\n  doc: 'Say: it'\n",
        "  -   func: mm(Tensor self, Tensor mat2) -> Tensor\n      doc: 'Say: it'\n",
        "- doc:\n    'Say:\n    it'\n  func: >-\n    mm(Tensor self,\n    Tensor mat2) -> Tensor\n",
        "---\n- func: mm(Tensor self, Tensor mat2) -> Tensor\n  doc: 'Say: it' # why\n...\n",
    ],
)
def test_any_style_of_yaml_is_kept(entries: str, imported: Path) -> None:
    file = imported / "aten/blas.yaml"
    file.write_text(entries)
    import_specs(REGISTRY, imported)
    once = file.read_text()
    tree, diagnostics = load([imported])
    assert diagnostics == []
    assert [op.doc for op in tree.operators if op.qualified_name == "aten::mm"] == ["Say: it"]
    assert import_specs(REGISTRY, imported).texts == {}
    assert file.read_text() == once


def test_an_entry_that_moved_takes_along_what_a_person_added(imported: Path) -> None:
    (imported / "aten/blas.yaml").unlink()
    (imported / "aten/mine.yaml").write_text(
        "# Mine.\n\n# by hand\n- func: mm(Tensor self) -> Tensor\n  doc: Kept.\n"
    )
    import_specs(REGISTRY, imported)
    assert not (imported / "aten/mine.yaml").exists()
    assert "# by hand\n- func: mm(Tensor self, Tensor mat2) -> Tensor\n" in (
        imported / "aten/blas.yaml"
    ).read_text(encoding="utf-8")
    assert "doc: Kept." in (imported / "aten/blas.yaml").read_text(encoding="utf-8")


def test_overlays_and_a_persons_own_files_are_never_touched(imported: Path) -> None:
    (imported / "aten/facts.yaml").write_text("-   op:   aten::mm # so\n    random:  true\n")
    (imported / "mylib.yaml").write_text("-   func:  f(Tensor  self)  ->  Tensor\n")
    (imported / "README.md").write_text("hello")
    before = contents(imported)
    import_specs(REGISTRY, imported, prune=True)
    assert contents(imported) == before
    mm = next(op for op in load([imported])[0].operators if op.qualified_name == "aten::mm")
    assert mm.random


def test_owned_files_are_those_of_imported_namespaces(imported: Path) -> None:
    (imported / "aten/facts.yaml").write_text("")
    (imported / "mylib.yaml").write_text("")
    owned = owned_files(imported, ["aten", "mkl", "nowhere"])
    assert {path.relative_to(imported).as_posix(): of for path, of in owned.items()} == {
        "aten/arithmetic.yaml": "aten",
        "aten/blas.yaml": "aten",
        "mkl.yaml": "mkl",
    }


# What is gone


def test_an_operator_that_is_gone_is_named_and_stays(
    imported: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(imported)
    registry = without("aten::mv", "mkl::_mkl_linear")
    assert run("--specs", str(imported), monkeypatch=monkeypatch, registry=registry) == 0
    assert capsys.readouterr().out == (
        f"{imported}: 4 operators of torch 2.13.0\n"
        "nothing changed\n"
        "gone from torch: aten::mv, mkl::_mkl_linear\n"
        "`opspec import --prune` takes them out\n"
    )
    assert contents(imported) == before


def test_prune_takes_out_what_is_gone(
    imported: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    registry = without("aten::mv", "mkl::_mkl_linear")
    arguments = ("--specs", str(imported), "--prune")
    assert run(*arguments, monkeypatch=monkeypatch, registry=registry) == 0
    assert capsys.readouterr().out == (
        f"{imported}: 4 operators of torch 2.13.0\n"
        f"wrote {imported}/_torch.yaml, {imported}/aten/blas.yaml\n"
        f"removed {imported}/mkl.yaml\n"
        "gone from torch, taken out: aten::mv, mkl::_mkl_linear\n"
    )
    assert "mv" not in (imported / "aten/blas.yaml").read_text().splitlines()[-1]
    assert "mkl" not in (imported / "_torch.yaml").read_text()
    assert import_specs(registry, imported, prune=True).texts == {}


def test_an_overlay_of_what_is_gone_is_a_fault_that_is_shown(
    imported: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (imported / "aten/facts.yaml").write_text("- op: aten::mv\n  random: true\n")
    arguments = ("--specs", str(imported), "--prune")
    assert run(*arguments, monkeypatch=monkeypatch, registry=without("aten::mv")) == 1
    assert f"{imported}/aten/facts.yaml:1:7: error: " in capsys.readouterr().err


# What is refused


def test_faults_are_shown_and_nothing_is_written(
    imported: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (imported / "aten/blas.yaml").write_text("- func: mm(Tensor self -> Tensor\n")
    (imported / "mkl.yaml").write_text("- fun: f() -> ()\n")
    (imported / "prims/prims.yaml").unlink()
    before = contents(imported)
    assert run("--specs", str(imported), monkeypatch=monkeypatch) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"{imported}/aten/blas.yaml:1:" in shown.err
    assert f"{imported}/mkl.yaml:1:3: error: unknown key 'fun'" in shown.err
    assert contents(imported) == before


def test_anchors_are_refused(
    imported: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = textwrap.dedent("""\
        - func: mm(Tensor self, Tensor mat2) -> Tensor
          doc: &why Because.
        - func: mv(Tensor self, Tensor vec) -> Tensor
          doc: *why
    """)
    (imported / "aten/blas.yaml").write_text(text)
    assert run("--specs", str(imported), monkeypatch=monkeypatch) == 1
    assert capsys.readouterr().err.splitlines()[:4] == [
        f"{imported}/aten/blas.yaml:2:8: error: an import cannot keep YAML anchors: entries move",
        "    doc: &why Because.",
        "         ^",
        "  write the value out, or say it in facts.yaml",
    ]
    assert (imported / "aten/blas.yaml").read_text() == text


def test_a_namespace_that_torch_has_not_gets_a_near_match(specs: Path) -> None:
    with pytest.raises(ImportRefusedError, match=r"'prms' to import: did you mean prims\?"):
        import_specs(REGISTRY, specs, namespaces=["prms"])
    with pytest.raises(ImportRefusedError, match="'_test' to import"):
        import_specs(REGISTRY, specs, namespaces=["_test"])
    assert not specs.exists()


def test_a_part_of_a_tree_cannot_move_to_another_torch(imported: Path) -> None:
    newer = replace(REGISTRY, torch_version="2.14.1")
    with pytest.raises(ImportRefusedError, match=r"of torch 2.13.0, and this is torch 2.14.1"):
        import_specs(newer, imported, namespaces=["aten"])
    import_specs(newer, imported)
    assert "torch: 2.14.1\n" in (imported / "_torch.yaml").read_text()


def test_a_pin_that_cannot_be_read_is_named(imported: Path) -> None:
    (imported / "_torch.yaml").write_text("torch: [")
    with pytest.raises(ImportRefusedError, match=r"_torch.yaml: error: .*ParserError"):
        import_specs(REGISTRY, imported)


# Interrupted


@pytest.mark.parametrize("at", range(6))
def test_an_interrupted_import_leaves_each_file_old_or_new(
    at: int, imported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = tuple(
        replace(op, schema=op.schema.replace("Tensor self", "Tensor input"))
        for op in REGISTRY.dispatcher
    )
    newer = replace(REGISTRY, torch_version="2.14.0", dispatcher=changed)
    import_specs(newer, tmp_path / "new")
    old, new = contents(imported), contents(tmp_path / "new")
    assert sum(old[name] != new[name] for name in old) == 4

    real, calls = os.replace, 0

    def interrupted(source: str, target: str) -> None:
        nonlocal calls
        if calls == at:
            raise KeyboardInterrupt
        calls += 1
        real(source, target)

    monkeypatch.setattr(os, "replace", interrupted)
    if at < 4:
        with pytest.raises(KeyboardInterrupt):
            import_specs(newer, imported)
    else:
        import_specs(newer, imported)
    found = contents(imported)
    assert found.keys() == old.keys()
    assert sum(found[name] == new[name] != old[name] for name in old) == min(at, 4)
    assert all(found[name] in (old[name], new[name]) for name in old)

    monkeypatch.setattr(os, "replace", real)
    import_specs(newer, imported)
    assert contents(imported) == new


def test_leftovers_of_an_interrupted_import_are_removed(imported: Path) -> None:
    leftover = imported / "aten/.blas.yaml.0badcafe.opspec-tmp"
    leftover.write_text("- func:")
    import_specs(REGISTRY, imported)
    assert not leftover.exists()


def test_help_teaches_by_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "opspec import --prune" in shown
    assert "exit codes:" in shown


def test_a_refusal_is_an_exit_code(
    specs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--specs", str(specs), "--namespace", "atn")
    assert run(*arguments, monkeypatch=monkeypatch) == 1
    assert capsys.readouterr().err == (
        "opspec: torch registers no namespace 'atn' to import: did you mean aten?\n"
    )
