"""`opspec diff` compares trees, files and the installed torch."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import shutil
from pathlib import Path

import pytest
from opspec import diff_sides
from opspec.cli import main
from opspec.diff import compare_sides
from opspec.diff_sides import Side, read_side, side_of_registry
from opspec.registry import RegisteredOperator, Registry, read_registry
from opspec.tree import load

SPECS = Path(__file__).parents[2] / "specs"


def run(*arguments: str) -> int:
    return main(["diff", *arguments])


def tree(folder: Path, *, torch: str = "2.13.0", **files: str) -> str:
    """Write a small tree with namespaces aten, prims, and mylib, which is nobody's."""
    specs = folder / "specs"
    specs.mkdir(parents=True)
    (specs / "_torch.yaml").write_text(f"torch: {torch}\nnamespaces: [aten, prims]\n")
    for name, text in files.items():
        (specs / f"{name}.yaml").write_text(text)
    return str(specs)


OLD = """\
- func: cosh(Tensor self) -> Tensor
- func: mm(Tensor self, Tensor mat2) -> Tensor
  tags: [core]
- func: svd(Tensor self) -> Tensor
- func: wide(Tensor self, int n) -> Tensor
"""
NEW = """\
- func: mm(Tensor self, Tensor other) -> Tensor
  tags: [core]
- func: sinh(Tensor self) -> Tensor
- func: svd(Tensor self) -> Tensor
  tags: [pointwise]
  composite: implicit
- func: wide(Tensor self, SymInt n) -> Tensor
"""


@pytest.fixture
def two(tmp_path: Path) -> tuple[str, str]:
    old = tree(tmp_path / "old", aten=OLD, prims="- func: abs(Tensor self) -> Tensor\n")
    new = tree(tmp_path / "new", torch="2.14.0", aten=NEW, mylib="- func: f(Tensor x) -> Tensor\n")
    return old, new


def test_what_a_reader_sees(two: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    old, new = two
    assert run(old, new) == 1
    assert (
        capsys.readouterr().out
        == f"""\
{old} (torch 2.13.0) → {new} (torch 2.14.0)
1 added, 2 removed, 3 changed; callers of 3 operators break

removed: callers break
  aten::cosh(Tensor self) -> Tensor
  prims::abs(Tensor self) -> Tensor

changed: callers break
  aten::mm
    - aten::mm(Tensor self, Tensor mat2) -> Tensor
    + aten::mm(Tensor self, Tensor other) -> Tensor
    callers break: parameter 'mat2' is called 'other' now

changed: callers unaffected
  aten::svd
    callers unaffected: tags: +pointwise
    callers unaffected: composite: implicit instead of no
  aten::wide
    - aten::wide(Tensor self, int n) -> Tensor
    + aten::wide(Tensor self, SymInt n) -> Tensor
    callers unaffected: 'n' is SymInt instead of int, which takes those too

added
  aten::sinh(Tensor self) -> Tensor
"""
    )


def test_json_holds_the_same(two: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*two, "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert found["callers_break"] == 3
    assert found["added"] == [{"name": "aten::sinh", "schema": "aten::sinh(Tensor self) -> Tensor"}]
    assert [entry["name"] for entry in found["removed"]] == ["aten::cosh", "prims::abs"]
    assert [(entry["name"], entry["callers_break"]) for entry in found["changed"]] == [
        ("aten::mm", True),
        ("aten::svd", False),
        ("aten::wide", False),
    ]
    assert found["changed"][0]["reasons"] == [
        {"callers_break": True, "text": "parameter 'mat2' is called 'other' now"}
    ]


def test_a_tree_does_not_differ_from_itself(
    two: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(two[0], two[0]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["no difference"]
    assert run(two[0], two[0], "--json") == 0
    assert json.loads(capsys.readouterr().out)["changed"] == []


def test_only_the_namespace_asked_for(two: tuple[str, str]) -> None:
    old, new = (read_side(given)[0] for given in two)
    assert compare_sides(old, new, namespaces=["prims"]).removed == ("prims::abs",)
    assert not compare_sides(old, new, namespaces=["mylib"])


def test_a_large_namespace_of_one_side_takes_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many = "".join(f"- func: f{number}(Tensor x) -> Tensor\n" for number in range(11))
    mm = "- func: mm(Tensor a, Tensor b) -> Tensor\n"
    assert run(tree(tmp_path / "a", aten=mm), tree(tmp_path / "b", aten=mm, prims=many)) == 1
    assert capsys.readouterr().out.splitlines()[2:] == ["", "added", "  all of prims: 11 operators"]


def test_faults_of_both_sides_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tree(tmp_path, aten="- func: mm(Tensor a, Tensor a) -> Tensor\n- fun: f\n")
    assert run(broken, str(tmp_path / "missing")) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "aten.yaml:2:3: error: unknown key 'fun'" in shown.err
    assert f"{tmp_path}/missing:1:1: error: " in shown.err


def test_other_letters_of_an_alias_mean_the_same(tmp_path: Path) -> None:
    old = tree(tmp_path / "a", aten="- func: t_(Tensor(a!) self) -> Tensor(a!)\n")
    new = tree(tmp_path / "b", aten="- func: t_(Tensor(c!) self) -> Tensor(c!)\n")
    (changed,) = compare_sides(read_side(old)[0], read_side(new)[0]).changed
    assert [(finding.breaks, finding.text) for finding in changed.findings] == [
        (False, "the schema is written otherwise and means the same")
    ]


def test_the_installed_torch_is_the_default_to_compare_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = "aten::mm(Tensor self, Tensor mat2) -> Tensor"
    operator = RegisteredOperator("aten::mm", schema, frozenset({"pt2_compliant_tag"}), "no")
    internal = RegisteredOperator("_test::cat", "_test::cat(Tensor a) -> ()", frozenset(), "no")
    registry = Registry("2.13.0", (internal, operator), ())
    monkeypatch.setattr(diff_sides, "read_registry", lambda progress=None: registry)
    tree(tmp_path, aten="- func: mm(Tensor self, Tensor mat2) -> Tensor\n")
    monkeypatch.chdir(tmp_path)
    assert run() == 0
    assert capsys.readouterr().out.startswith("specs (torch 2.13.0) → installed torch 2.13.0\n")
    assert run("torch", "specs") == 0


def test_what_an_overlay_says_is_no_difference(two: tuple[str, str]) -> None:
    (Path(two[0]) / "aten").mkdir()
    (Path(two[0]) / "aten/facts.yaml").write_text("- op: aten::mm\n  composite: implicit\n")
    assert load([two[0]])[0].operators[1].composite == "implicit"
    side, faults = read_side(two[0])
    assert faults == []
    assert side.operators["aten::mm"].composite == "no"


def test_what_only_torchscript_has_is_compared_where_both_sides_have_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mm = "- func: mm(Tensor a, Tensor b) -> Tensor\n"
    sides = []
    for name, text in (("old", "aten::size(Tensor a)"), ("new", "aten::stride(Tensor a)")):
        sides.append(tree(tmp_path / name, aten=mm))
        folder = Path(sides[-1]) / "torchscript"
        folder.mkdir()
        (folder / "tensors.yaml").write_text(f"- func: {text} -> int[]\n")
    assert run(*sides) == 1
    assert capsys.readouterr().out.splitlines()[2:] == [
        "",
        "removed: callers break",
        "  aten::size(Tensor a) -> int[] (TorchScript only)",
        "",
        "added",
        "  aten::stride(Tensor a) -> int[] (TorchScript only)",
    ]
    assert run(sides[0], tree(tmp_path / "without", aten=mm)) == 0


# The real specs


@pytest.fixture(scope="module")
def specs() -> Side:
    side, faults = read_side(str(SPECS))
    assert faults == []
    return side


@pytest.fixture
def pinned() -> None:
    """Only where the torch is installed that the specs were read from."""
    pin = load([SPECS / "mkl.yaml"])[0].torch_version
    installed = importlib.metadata.version("torch").partition("+")[0]
    if installed != pin:
        pytest.skip(f"the specs are of torch {pin}, this is {installed}")


@pytest.mark.slow
@pytest.mark.usefixtures("pinned")
def test_the_specs_are_the_installed_torchs(specs: Side) -> None:
    found = compare_sides(specs, side_of_registry(read_registry()))
    assert (found.added, found.removed, found.changed) == ((), (), ())


@pytest.mark.slow
@pytest.mark.usefixtures("pinned")
def test_native_functions_yaml_is_a_side(specs: Side) -> None:
    package = importlib.util.find_spec("torchgen")
    assert package is not None
    assert package.submodule_search_locations is not None
    folder = Path(package.submodule_search_locations[0])
    side, faults = read_side(str(folder / "packaged/ATen/native/native_functions.yaml"))
    assert faults == []
    found = compare_sides(specs, side)
    assert found.added == ()
    # What torch registers by hand, beside its own list.
    assert {name.partition(".")[0] for name in found.removed} == {
        "aten::get_gradients",
        "aten::quantized_gru",
        "aten::quantized_lstm",
    }
    assert found.changed == ()
    assert found.passed_over == 517


MM = "- func: mm(Tensor self, Tensor mat2) -> Tensor\n"


@pytest.mark.slow
def test_every_injected_change_is_found(specs: Side, tmp_path: Path) -> None:
    copy = tmp_path / "specs"
    shutil.copytree(SPECS, copy)
    blas = copy / "aten/blas.yaml"
    text = blas.read_text(encoding="utf-8")
    for old, new in (
        ("- func: addmv(Tensor self, Tensor mat,", "- func: addmv(Tensor self, Tensor matrix,"),
        ("- func: mm(Tensor self, Tensor mat2) -> Tensor\n  tags: [core]\n", MM),
        ("- func: dot(Tensor self, Tensor tensor) -> Tensor\n", ""),
        ("- func: einsum(", "- func: einsum2("),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    blas.write_text(text, encoding="utf-8")
    side, faults = read_side(str(copy))
    assert faults == []
    found = compare_sides(specs, side)
    assert found.added == ("aten::einsum2",)
    assert found.removed == ("aten::dot", "aten::einsum")
    assert [(changed.name, changed.breaks) for changed in found.changed] == [
        ("aten::addmv", True),
        ("aten::mm", False),
    ]
    assert found.callers_break == 3


def test_help_teaches_by_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    shown = capsys.readouterr().out
    assert "opspec diff specs old/specs" in shown
    assert "exit codes: 0 no difference, 1 differences, or faults in a side" in shown
