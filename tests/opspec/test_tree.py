"""Trees of spec files: namespaces by place, overlays, duplicates across files, files that fail."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from opspec.diagnostics import Diagnostic
from opspec.files import find_files
from opspec.model import Operator, SpecTree
from opspec.schema import parse_schema
from opspec.tree import load

Files = Mapping[str, "str | bytes"]
FaultsIn = Callable[[Files], str]
Load = Callable[[Files], "tuple[SpecTree, list[Diagnostic]]"]
Write = Callable[[Files], Path]

GOOD = "- func: good(Tensor self) -> Tensor\n"
NATIVE = "torchgen/packaged/ATen/native/native_functions.yaml"


def names(tree: SpecTree) -> list[tuple[str, str]]:
    return [(operator.qualified_name, operator.family) for operator in tree.operators]


def only(tree: SpecTree) -> Operator:
    (operator,) = tree.operators
    return operator


# Namespaces


def test_namespace_is_the_folder_or_the_stem_or_as_written(load_specs: Load) -> None:
    tree, faults = load_specs(
        {
            "specs/aten/blas.yaml": GOOD,
            "specs/mylib.yaml": GOOD,
            "specs/mine/pointwise.yaml": GOOD + "- func: other::f(Tensor self) -> Tensor\n",
        }
    )
    assert names(tree) == [
        ("aten::good", "blas"),
        ("mine::good", "pointwise"),
        ("mylib::good", "mylib"),
        ("other::f", "pointwise"),
    ]
    assert tree.namespaces == ("aten", "mine", "mylib", "other")
    assert faults == []


def test_namespace_outside_of_a_tree_is_aten(write_specs: Write) -> None:
    write_specs({"native_functions.yaml": GOOD})
    assert names(load(["native_functions.yaml"])[0]) == [("aten::good", "native_functions")]


@pytest.mark.parametrize("path", ["specs", "specs/", "./specs", "specs/mine", "specs/mine/a.yaml"])
def test_namespace_does_not_depend_on_how_much_is_named(path: str, write_specs: Write) -> None:
    write_specs({"specs/mine/a.yaml": GOOD})
    assert names(load([path])[0]) == [("mine::good", "a")]


def test_folder_that_is_named_is_a_tree(write_specs: Write) -> None:
    write_specs({"copy/mine/a.yaml": GOOD, "copy/b.yaml": GOOD})
    assert names(load(["copy"])[0]) == [("b::good", "b"), ("mine::good", "a")]


def test_folder_with_a_pin_is_a_tree(write_specs: Write) -> None:
    write_specs({"copy/_torch.yaml": "torch: 1\nnamespaces: []\n", "copy/mine/a.yaml": GOOD})
    assert names(load(["copy/mine/a.yaml"])[0]) == [("mine::good", "a")]


def test_pin_says_torch_and_what_was_imported(load_specs: Load) -> None:
    """Rules that torch breaks are notes in imported namespaces, and errors in others."""
    odd = "- func: f_(Tensor self) -> Tensor\n"
    tree, faults = load_specs(
        {
            "specs/_torch.yaml": "torch: 2.13.0\nnamespaces: [theirs]\n",
            "specs/theirs.yaml": odd,
            "specs/aten/a.yaml": odd,
            "specs/mine.yaml": odd,
        }
    )
    assert tree.torch_version == "2.13.0"
    assert [(fault.location.file, fault.severity) for fault in faults] == [
        ("specs/aten/a.yaml", "note"),
        ("specs/mine.yaml", "error"),
        ("specs/theirs.yaml", "note"),
    ]
    assert [(o.schema.namespace, o.imported) for o in tree.operators] == [
        ("aten", True),
        ("mine", False),
        ("theirs", True),
    ]


def test_pin_that_is_wrong_is_told(faults_in: FaultsIn) -> None:
    assert faults_in({"specs/_torch.yaml": "torhc: 2\n", "specs/a.yaml": GOOD}) == (
        "specs/_torch.yaml:1:1: error: unknown key 'torhc'\n"
        "  torhc: 2\n"
        "  ^^^^^\n"
        "  did you mean torch?"
    )
    assert faults_in({"specs/_torch.yaml": "torch: 2\n", "specs/a.yaml": GOOD}) == (
        "specs/_torch.yaml:1:1: error: namespaces is missing\n"
        "  torch: 2\n"
        "  ^\n"
        "  write namespaces: [aten, prims]"
    )
    assert faults_in({"specs/_torch.yaml": "- a\n", "specs/a.yaml": GOOD}) == (
        "specs/_torch.yaml:1:1: error: the file must be a mapping\n"
        "  - a\n"
        "  ^\n"
        "  write torch: 2.13.0; namespaces: [aten, prims]"
    )


def test_pins_of_two_trees_must_agree(write_specs: Write) -> None:
    pin = "torch: {}\nnamespaces: []\n"
    write_specs(
        {
            "one/_torch.yaml": pin.format("2.13.0"),
            "one/a.yaml": GOOD,
            "two/_torch.yaml": pin.format("2.14.1"),
            "two/b.yaml": GOOD,
        }
    )
    _, faults = load(["one", "two"])
    assert [str(fault).splitlines()[0] for fault in faults] == [
        "two/_torch.yaml:1:8: error: this tree is of torch 2.14.1, another one of 2.13.0"
    ]


def test_what_only_torchscript_has_is_marked(load_specs: Load) -> None:
    tree, faults = load_specs(
        {"specs/torchscript/lists.yaml": "- func: aten::append.t(t[](a!) self, t el) -> t[](a!)\n"}
    )
    assert only(tree).scripted
    assert only(tree).imported
    assert faults == []


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("specs/my-lib.yaml", "'my-lib' is no name for a module"),
        ("specs/lambda.yaml", "'lambda' is a word of Python"),
        ("specs/mine/class.yaml", "'class' is a word of Python"),
        ("specs/prim.yaml", "'prim' is reserved: torch keeps it for itself"),
        ("specs/mine/größe.yaml", "'größe' is no name for a module"),
    ],
)
def test_name_that_is_no_module_is_told(file: str, message: str, faults_in: FaultsIn) -> None:
    assert faults_in({file: GOOD}).splitlines()[0] == f"{file}:1:1: error: {message}"


def test_file_that_lies_too_deep_is_told(faults_in: FaultsIn) -> None:
    assert faults_in({"specs/a/b/c.yaml": GOOD, "specs/a/d.yaml": GOOD}) == (
        "specs/a/b/c.yaml:1:1: error: this file lies too deep in the tree\n"
        "  a spec lies in specs/<namespace>/<family>.yaml or specs/<namespace>.yaml"
    )


def test_folders_are_not_searched_to_the_bottom(load_specs: Load) -> None:
    """Whoever names `/` by mistake does not wait for the whole disk."""
    tree, faults = load_specs({"specs/a/b/c/d/e.yaml": GOOD, "specs/a/b.yaml": GOOD})
    assert names(tree) == [("a::good", "b")]
    assert faults == []


def test_files_that_are_no_specs_are_left_alone(load_specs: Load) -> None:
    tree, faults = load_specs(
        {
            "specs/README.md": "no spec",
            "specs/_draft.yaml": "no: spec",
            "specs/.hidden.yaml": "no: spec",
            "specs/.git/config.yaml": "no: spec",
            "specs/a.yaml~": "no: spec",
            "specs/a.yaml": GOOD,
        }
    )
    assert names(tree) == [("a::good", "a")]
    assert faults == []


def test_short_ending_is_told(faults_in: FaultsIn) -> None:
    assert faults_in({"specs/a.yml": GOOD}) == (
        "specs/a.yml:1:1: error: the name of a spec ends in .yaml\n  rename it to specs/a.yaml"
    )


# The same operator twice


def test_operator_twice_names_both_places(faults_in: FaultsIn) -> None:
    assert faults_in({"specs/mine/a.yaml": GOOD, "specs/mine/b.yaml": "# b\n" + GOOD}) == (
        "specs/mine/b.yaml:2:9: error: the operator mine::good stands here for the second time\n"
        "  - func: good(Tensor self) -> Tensor\n"
        "          ^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
        "  it stands at specs/mine/a.yaml:1:9 already: take one out, or give it another overload "
        "name"
    )


def test_operator_twice_in_two_trees_names_both_places(write_specs: Write) -> None:
    write_specs({"base/mine.yaml": GOOD, "more/mine.yaml": GOOD})
    _, faults = load(["base", "more"])
    assert [fault.location.file for fault in faults] == ["more/mine.yaml"]
    assert "base/mine.yaml:1:9" in (faults[0].remedy or "")


def test_file_that_is_named_twice_is_read_once(write_specs: Write) -> None:
    root = write_specs({"specs/mine.yaml": GOOD})
    (root / "specs/link.yaml").symlink_to("mine.yaml")
    tree, faults = load(["specs", "specs/mine.yaml", root / "specs"])
    assert len(tree.operators) == 1
    assert faults == []


# Overlays

DROPOUT = "- func: dropout(Tensor self) -> Tensor\n- func: dropout.x(Tensor self) -> Tensor\n"


def test_overlay_of_a_base_name_covers_all_overloads(load_specs: Load) -> None:
    tree, faults = load_specs(
        {
            "specs/mine/a.yaml": DROPOUT,
            "specs/mine/facts.yaml": (
                "- op: mine::dropout\n  random: true\n  composite: implicit\n"
                "  reads_data: by_argument\n  output_shape: dynamic\n  doc: Drops.\n"
            ),
        }
    )
    assert faults == []
    assert [
        (o.random, o.composite, o.reads_data, o.output_shape, o.doc) for o in tree.operators
    ] == [(True, "implicit", "by_argument", "dynamic", "Drops.")] * 2


@pytest.mark.parametrize(
    ("op", "touched"),
    [("mine::dropout.x", ["x"]), ("mine::dropout.default", [""]), ("dropout.x", ["x"])],
)
def test_overlay_of_an_overload_covers_just_that(
    op: str, touched: list[str], load_specs: Load
) -> None:
    tree, faults = load_specs(
        {"specs/mine/a.yaml": DROPOUT, "specs/mine/facts.yaml": f"- op: {op}\n  random: true\n"}
    )
    assert faults == []
    assert [o.schema.overload for o in tree.operators if o.random] == touched


@pytest.mark.parametrize("reverse", [False, True])
def test_overlay_of_an_overload_has_the_last_word(reverse: bool, load_specs: Load) -> None:
    entries = ["- op: dropout\n  random: true\n", "- op: dropout.x\n  random: false\n"]
    text = "".join(reversed(entries) if reverse else entries)
    tree, _ = load_specs({"specs/mine/a.yaml": DROPOUT, "specs/mine/facts.yaml": text})
    assert [o.random for o in tree.operators] == [True, False]


def test_overlay_may_say_that_a_tag_is_wrong(load_specs: Load) -> None:
    tagged = "- func: f(Tensor self) -> Tensor\n  tags: [nondeterministic_seeded]\n"
    overlay = "- op: f\n  random: false\n"
    assert only(load_specs({"specs/mine/a.yaml": tagged})[0]).random
    assert not only(load_specs({"specs/mine/facts.yaml": overlay})[0]).random


def test_overlay_that_is_named_alone_brings_its_namespace(write_specs: Write) -> None:
    write_specs(
        {"specs/mine/a.yaml": DROPOUT, "specs/mine/facts.yaml": "- op: dropout\n  random: true\n"}
    )
    tree, faults = load(["specs/mine/facts.yaml"])
    assert faults == []
    assert all(operator.random for operator in tree.operators)


def test_argument_that_is_said_to_be_written_must_be_there(faults_in: FaultsIn) -> None:
    spec, overlay = "- func: drop(Tensor input) -> Tensor\n", "- op: drop\n  also_writes: inputs\n"
    assert faults_in({"specs/mine/a.yaml": spec, "specs/mine/facts.yaml": overlay}) == (
        "specs/mine/facts.yaml:2:16: error: mine::drop has no argument 'inputs'\n"
        "    also_writes: inputs\n"
        "                 ^\n"
        "  did you mean input?"
    )


def test_faults_of_overlays_are_told_in_full(faults_in: FaultsIn) -> None:
    overlay = (
        "- op: mine::dropuot\n  random: true\n"
        "- op: mine::dropout\n  random: true\n"
        "- op: dropout\n  random: false\n"
        "- op: mine::dropout.x\n"
        "- random: true\n"
        "- func: f(Tensor self) -> Tensor\n"
        "- op: zzz\n  tags: core\n"
    )
    assert faults_in({"specs/mine/a.yaml": DROPOUT, "specs/mine/facts.yaml": overlay}) == (
        "specs/mine/facts.yaml:1:7: error: the specs have no operator mine::dropuot\n"
        "  - op: mine::dropuot\n"
        "        ^^^^^^^^^^^^^\n"
        "  did you mean mine::dropout?\n"
        "specs/mine/facts.yaml:5:7: error: mine::dropout stands here for the second time\n"
        "  - op: dropout\n"
        "        ^^^^^^^\n"
        "  it stands at specs/mine/facts.yaml:3:7 already: put all keys into one entry\n"
        "specs/mine/facts.yaml:7:7: error: the entry says nothing of mine::dropout.x\n"
        "  - op: mine::dropout.x\n"
        "        ^^^^^^^^^^^^^^^\n"
        "  add one of composite, random, reads_data, output_shape, also_writes, doc\n"
        "specs/mine/facts.yaml:8:3: error: the entry has no op\n"
        "  - random: true\n"
        "    ^\n"
        "  write op: mine::name\n"
        "specs/mine/facts.yaml:9:3: error: func cannot stand in an overlay\n"
        "  - func: f(Tensor self) -> Tensor\n"
        "    ^^^^\n"
        "  put it into the operator's own file\n"
        "specs/mine/facts.yaml:10:7: error: the specs have no operator mine::zzz\n"
        "  - op: zzz\n"
        "        ^^^\n"
        "  write namespace::name\n"
        "specs/mine/facts.yaml:11:3: error: tags cannot stand in an overlay\n"
        "    tags: core\n"
        "    ^^^^\n"
        "  put it into the operator's own file"
    )


# Tags and facts


def test_tags_that_go_without_saying_are_there(load_specs: Load) -> None:
    tree, _ = load_specs(
        {
            "specs/aten/a.yaml": (
                "- func: f(Tensor self) -> Tensor\n  tags: core\n"
                "- func: g(Tensor self) -> Tensor\n  without_tags: pt2_compliant_tag\n"
            )
        }
    )
    assert [sorted(o.tags) for o in tree.operators] == [["core", "pt2_compliant_tag"], []]


@pytest.mark.parametrize(
    ("tag", "fact"),
    [
        ("nondeterministic_seeded", ("random", True)),
        ("data_dependent_output", ("reads_data", "always")),
        ("dynamic_output_shape", ("output_shape", "dynamic")),
    ],
)
def test_tag_implies_a_fact(tag: str, fact: tuple[str, object], load_specs: Load) -> None:
    tree, _ = load_specs({"specs/a.yaml": GOOD + f"  tags: [{tag}]\n"})
    assert getattr(only(tree), fact[0]) == fact[1]
    plain = only(load_specs({"specs/a.yaml": GOOD})[0])
    assert (plain.random, plain.reads_data, plain.output_shape) == (False, "no", "static")


# Files that cannot be read


def test_missing_path_is_told(write_specs: Write) -> None:
    write_specs({})
    tree, faults = load(["nowhere.yaml"])
    assert tree.operators == ()
    assert "\n".join(map(str, faults)) == (
        "nowhere.yaml:1:1: error: no such file\n  check the path"
    )


def test_path_that_no_system_takes_is_told(write_specs: Write) -> None:
    write_specs({})
    _, faults = load(["a\x00b", "x" * 5000])
    assert [fault.severity for fault in faults] == ["error", "error"]


def test_folder_without_specs_is_told(write_specs: Write) -> None:
    (write_specs({}) / "specs").mkdir()
    assert [str(fault) for fault in load(["specs"])[1]] == [
        "specs:1:1: error: this directory holds no spec files\n  a spec's name ends in .yaml"
    ]


def test_folder_with_the_name_of_a_spec_is_told(faults_in: FaultsIn, tmp_path: Path) -> None:
    (tmp_path / "specs/a.yaml").mkdir(parents=True)
    assert faults_in({"specs/b.yaml": GOOD}) == (
        "specs/a.yaml:1:1: error: this is a directory\n  a spec is a file"
    )


def test_link_to_nothing_is_told(faults_in: FaultsIn, tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs/a.yaml").symlink_to("gone.yaml")
    assert faults_in({}) == (
        "specs/a.yaml:1:1: error: the link points to nothing: gone.yaml\n  mend or remove the link"
    )


def test_link_to_itself_is_told(faults_in: FaultsIn, tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs/a.yaml").symlink_to("a.yaml")
    assert faults_in({}).startswith("specs/a.yaml:1:1: error: the file cannot be read: ")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_named_pipe_is_told_and_not_waited_for(faults_in: FaultsIn, tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    os.mkfifo(tmp_path / "specs/a.yaml")
    assert faults_in({}) == (
        "specs/a.yaml:1:1: error: this is no regular file\n  copy the spec into a file"
    )


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="the system has no /dev/zero")
def test_endless_device_is_told() -> None:
    (fault,) = load(["/dev/zero"])[1]
    assert fault.message == "this is no regular file"


def test_file_without_permission_is_told(faults_in: FaultsIn, write_specs: Write) -> None:
    path = write_specs({"specs/a.yaml": GOOD}) / "specs/a.yaml"
    path.chmod(0)
    try:
        if os.access(path, os.R_OK):  # root reads everything: the device test stands for it
            return
        assert faults_in({}) == (
            "specs/a.yaml:1:1: error: the file cannot be read: permission denied\n  check the path"
        )
    finally:
        path.chmod(stat.S_IRUSR | stat.S_IWUSR)


def test_file_that_fails_while_it_is_read_is_told(
    faults_in: FaultsIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing:
        def __enter__(self) -> Failing:
            return self

        def __exit__(self, *exception: object) -> None:
            os.close(self.descriptor)

        def __init__(self, descriptor: int, mode: str) -> None:
            self.descriptor = descriptor

        def fileno(self) -> int:
            return self.descriptor

        def read(self, size: int) -> bytes:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr("opspec.source.os.fdopen", Failing)
    assert faults_in({"specs/a.yaml": GOOD}) == (
        "specs/a.yaml:1:1: error: the file cannot be read: input/output error\n  check the file"
    )


def test_file_that_is_too_large_is_told(
    faults_in: FaultsIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opspec.source.MAX_BYTES", 10)
    assert faults_in({"specs/a.yaml": GOOD}).startswith(
        "specs/a.yaml:1:1: error: the file is larger than "
    )


def test_file_that_vanishes_is_told(write_specs: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may go between the listing and the reading."""
    root = write_specs({"specs/a.yaml": GOOD, "specs/b.yaml": GOOD})

    def find_and_remove(paths: list[str]) -> object:
        found = find_files(paths)
        (root / "specs/a.yaml").unlink()
        return found

    monkeypatch.setattr("opspec.tree.find_files", find_and_remove)
    tree, faults = load(["specs"])
    assert [str(fault) for fault in faults] == [
        "specs/a.yaml:1:1: error: no such file\n  check the path"
    ]
    assert names(tree) == [("b::good", "b")]


def test_message_shows_the_line_that_was_read(
    write_specs: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that changes after it was read changes no message."""
    root = write_specs({"specs/a.yaml": "- func: f(Tensr self) -> Tensor\n"})

    def change_and_parse(*args: object, **options: object) -> object:
        (root / "specs/a.yaml").write_text("")
        return parse_schema(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("opspec.tree.parse_schema", change_and_parse)
    (fault,) = load(["specs"])[1]
    assert fault.source_line == "- func: f(Tensr self) -> Tensor"


# What comes out


def test_result_does_not_depend_on_the_order_of_files(write_specs: Write) -> None:
    write_specs({f"specs/mine/{name}.yaml": GOOD.replace("good", name) for name in "cab"})
    paths = [f"specs/mine/{name}.yaml" for name in "abc"]
    assert load(paths) == load(paths[::-1]) == load(["specs"])


def test_progress_is_told_of_every_file(write_specs: Write) -> None:
    write_specs({f"specs/{name}.yaml": GOOD for name in "abc"})
    seen: list[tuple[int, int]] = []
    load(["specs"], progress=lambda done, total: seen.append((done, total)))
    assert seen == [(0, 3), (1, 3), (2, 3)]


def test_collector_is_left_as_it_was(write_specs: Write) -> None:
    import gc

    write_specs({"specs/a.yaml": GOOD})
    load(["specs"])
    assert gc.isenabled()
    gc.disable()
    try:
        load(["specs"])
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.slow
def test_native_functions_are_valid_as_they_are() -> None:
    import torch

    tree, faults = load([Path(torch.__file__).parents[1] / NATIVE])
    assert len(tree.operators) > 2500
    assert [fault for fault in faults if fault.severity == "error"] == []
    (warning,) = (fault.message for fault in faults if fault.severity == "warning")
    assert re.fullmatch(r"\d+ entries name variants under autogen; they are not expanded", warning)
    kinds = {fault.message for fault in faults if fault.severity == "note"}
    assert any("keys for torch's own code generation are ignored" in kind for kind in kinds)
    assert "the default of int[1] has 2 values, not 1" in kinds
    assert "the default of int[2] has 0 values, not 2" in kinds
