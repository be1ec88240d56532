"""Laws of what a person added to a file that an import rewrites, over files in any style."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opspec.importer import import_specs
from opspec.model import Operator
from opspec.registry import RegisteredOperator, Registry
from opspec.tree import load

COMPLIANT = frozenset({"pt2_compliant_tag"})
SCHEMAS = {
    "mm": "mm(Tensor self, Tensor mat2) -> Tensor",
    "mv": "mv(Tensor self, Tensor vec) -> Tensor",
}
REGISTRY = Registry(
    "2.13.0",
    tuple(
        RegisteredOperator(f"aten::{name}", f"aten::{schema}", COMPLIANT, "no")
        for name, schema in SCHEMAS.items()
    ),
    (),
)

# `>` stands for the margin of the entry's keys.
DOCS = (
    "doc: plain words",
    "doc: 'quo: ted'",
    'doc: "no # comment"',
    "doc: 'over\n>  two lines'",
    "doc: |\n>  text # with a mark\n>  # and a line that is one\n\n>  more",
    "doc: >-\n>  folded\n>  text",
)
TAGS = ("tags: [core]", "tags: core", "tags:\n>- core\n>- pointwise", "tags:\n>  - core")


@st.composite
def entries(draw: st.DrawFn, margin: str) -> str:
    """One entry in block style: keys in any order, comments above, between and beside them."""
    gap = draw(st.sampled_from((" ", "   ")))
    inner = margin + " " + gap
    name = draw(st.sampled_from(sorted(SCHEMAS)))
    choices = [st.just(f"func: {SCHEMAS[name]}")]
    for key in (
        DOCS,
        TAGS,
        ("random: true",),
        ("reads_data: by_argument",),
        ("composite: explicit",),
    ):
        choices.append(st.sampled_from((*key, "")))
    keys = draw(st.permutations([draw(choice) for choice in choices]))
    text = "".join(draw(comments(margin)))
    for number, line in enumerate(line for line in keys if line):
        before = "".join(draw(comments(inner))) if number else ""
        beside = "  # beside" if "\n" not in line and draw(st.booleans()) else ""
        lead = f"{margin}-{gap}" if not number else inner
        text += f"{before}{lead}{line.replace('>  ', inner + '  ').replace('>- ', inner + '- ')}"
        text += f"{beside}\n"
    return text


def comments(margin: str) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from((f"{margin}# one\n", f"{margin}# two\n", "\n")), max_size=2)


@st.composite
def files(draw: st.DrawFn) -> str:
    margin = draw(st.sampled_from(("", " ", "  ")))
    written = draw(st.lists(entries(margin), min_size=1, max_size=2, unique_by=_operator))
    head = draw(st.sampled_from(("# Head.\n", "# Head.\n# One more.\n")))
    return f"{head}\n{''.join(written)}{draw(st.sampled_from(('', '# Tail.')))}\n"


def _operator(entry: str) -> str:
    return "mm" if SCHEMAS["mm"] in entry else "mv"


def facts(tree: tuple[Operator, ...]) -> dict[str, tuple[object, ...]]:
    return {op.qualified_name: (op.doc, op.random, op.reads_data) for op in tree}


def remarks(text: str) -> list[str]:
    return sorted(re.findall(r"# (?:one|two|beside|One more\.|Tail\.)(?=\n)", text))


@pytest.mark.slow
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=files())
def test_whatever_a_person_wrote_survives(text: str, tmp_path: Path) -> None:
    specs = tmp_path / "specs"
    file = specs / "aten/blas.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    before, diagnostics = load([specs])
    assert [d for d in diagnostics if d.severity == "error"] == []

    import_specs(REGISTRY, specs)
    after, diagnostics = load([specs])
    assert diagnostics == []
    assert facts(before.operators).items() <= facts(after.operators).items()
    assert remarks(file.read_text(encoding="utf-8")) == remarks(text)
    assert {(op.tags, op.composite) for op in after.operators} == {(COMPLIANT, "no")}
    assert import_specs(REGISTRY, specs).texts == {}
