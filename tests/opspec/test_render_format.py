"""Generated text is what the pinned formatter and linter leave as it is."""

from __future__ import annotations

import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from opspec.generation import generate
from opspec.render.layout import bracketed, docstring, literal, string

ROOT = Path(__file__).parents[2]
CONFIG = f"--config={ROOT / 'pyproject.toml'}"

LONG = "a_name_of_many_letters_" * 2 + "and_some_more"
HARD = f"""\
- func: short(Tensor self) -> Tensor
- func: {LONG}(Tensor {LONG}) -> Tensor
- func: {LONG}a{LONG}(Tensor self, int[] {LONG}=[1]) -> Tensor
- func: results(Tensor x) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)
- func: many(Tensor a, Tensor b, int[2] padding=0, *, float eps=1e-12, str s="a\\"b'c") -> ()
- func: quotes(str a="it's", str b="say \\"x\\"", str c="\\\\") -> Tensor
- func: out(Tensor x, *, Tensor(a!) out_one, Tensor(b!) out_two) -> (Tensor(a!), Tensor(b!))
- func: view(Tensor(a) self, SymInt[2] size=1, Device? device=None) -> Tensor(a)
- func: lists(Tensor[] xs, Tensor?[] ys, Tensor(a!)[] zs, Tensor[]? us=None) -> Tensor[]
- func: tagged(Tensor x) -> Tensor
  tags: [core, pointwise, nondeterministic_seeded]
  composite: implicit
  reads_data: by_argument
  doc: |
    Say "something".

    With \\ and triple quotes and a last quote"
- func: Upper(Tensor x) -> Tensor
- func: _private(Tensor x) -> Tensor
- func: nothing() -> ()
- func: mylib::f.from_to(Tensor self, Scalar x=1, bool[3] mask=[True, False, True]) -> Scalar
"""


def ruff(*arguments: str) -> str:
    """Run ruff and give what it says."""
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *arguments], capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


@pytest.mark.slow
def test_formatter_leaves_all_generated_files_as_they_are() -> None:
    folders = [str(folder) for folder in sorted((ROOT / "packages").glob("*/src/*/_generated"))]
    assert len(folders) == 3
    assert "already formatted" in ruff("format", "--check", "--no-cache", CONFIG, *folders)
    assert ruff("check", "--no-cache", CONFIG, *folders) == "All checks passed!\n"


@pytest.mark.slow
def test_formatter_leaves_hard_cases_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs/mylib.yaml").write_text(HARD, encoding="utf-8")
    (tmp_path / "specs" / f"{LONG}.yaml").write_text("- func: f(Tensor x) -> Tensor\n")
    generated = generate([str(tmp_path / "specs")])
    assert not generated.errors, "\n".join(map(str, generated.errors))
    for name, text in generated.files.items():
        path = tmp_path / "packages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    # The linter takes a package for one's own, and sorts imports by that, where it is one.
    (tmp_path / "packages/dispatch-core/src/dispatch_core/__init__.py").touch()
    folder = str(tmp_path / "packages")
    diff = ruff("format", "--diff", "--no-cache", CONFIG, folder)
    assert diff.endswith(f"{len(generated.files) + 1} files already formatted\n"), diff
    assert ruff("check", "--no-cache", CONFIG, "--ignore=E501,RUF022", folder) == (
        "All checks passed!\n"
    )


def test_generated_files_are_marked_for_reviews() -> None:
    lines = (ROOT / ".gitattributes").read_text(encoding="utf-8").splitlines()
    patterns = [line.split()[0] for line in lines if "linguist-generated" in line.split()]
    files = [path for path in (ROOT / "packages").glob("*/src/*/_generated/**/*") if path.is_file()]
    assert len(files) > 400
    for path in files:
        name = path.relative_to(ROOT).as_posix()
        assert any(fnmatchcase(name, pattern) for pattern in patterns), name


def test_bracketed_keeps_one_line_up_to_the_limit() -> None:
    assert len(bracketed("f(", ["a" * 97], ")")) == 100
    assert bracketed("f(", ["a" * 98], ")") == f"f(\n    {'a' * 98},\n)"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", '"a"'),
        ('say "x"', "'say \"x\"'"),
        ("it's 'x' \"y", "\"it's 'x' \\\"y\""),
        ("a\\b\n\t\r\0\x7f\u2028", '"a\\\\b\\n\\t\\r\\x00\\x7f\\u2028"'),
        ("\U000e0001ö€", '"\\U000e0001ö€"'),
    ],
)
def test_string_evaluates_to_what_it_was(value: str, text: str) -> None:
    assert string(value) == text
    assert eval(text) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"),
        (True, "True"),
        (1e-05, "1e-05"),
        (-0.0, "-0.0"),
        (float("inf"), "1e999"),
        (-float("inf"), "-1e999"),
        ((1,), "(1,)"),
        ((), "()"),
        (2j, "2.0j"),
        (1 - 2j, "(1.0 - 2.0j)"),
    ],
)
def test_literal_evaluates_to_what_it_was(value: object, text: str) -> None:
    assert literal(value) == text
    assert eval(text) == value


def test_docstring_holds_whatever_was_said() -> None:
    said = 'quote" and """ three, \\ and \x00\nsecond\tline"'
    text = docstring(["f() -> ()", said], indent="    ")
    assert eval(text.strip()) == (
        'f() -> ()\n\n    quote" and """ three, \\ and \x00\n    second    line"\n    '
    )
