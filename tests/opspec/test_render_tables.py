"""The tables of tensor roles and op facts say what torch's own schemas say."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from guards._generated import _index as guards_index
from opspec.model import Operator
from opspec.render.op_facts import facts_of
from opspec.render.roles import roles_of
from opspec.schema import parse_schema
from opspec.tree import load
from subclass_utils._generated import _index as roles_index

ROOT = Path(__file__).parents[2]
# The specs are those of this version; others have operators that are new, gone or changed.
REFERENCE = torch.__version__.startswith("2.13.")


def table(package: str, index: tuple[str, ...], name: str) -> dict[str, object]:
    """Join the tables of all families."""
    rows: dict[str, object] = {}
    for namespace in index:
        folder = f"{package}._generated.{namespace}"
        for family in importlib.import_module(f"{folder}._index").FAMILIES:
            rows |= getattr(importlib.import_module(f"{folder}.{family}"), name)
    return rows


def live_schemas(names: Iterable[str]) -> dict[str, torch._C.FunctionSchema]:
    """Give torch's own schemas of those operators that this torch has as the specs have them."""
    tree, _ = load([str(ROOT / "specs")])
    texts = {operator.qualified_name: operator.schema.torch_text() for operator in tree.operators}
    found = {}
    for name in names:
        base, _, overload = name.partition(".")
        try:
            schema = torch._C._get_schema(base, overload)
        except RuntimeError:
            assert not REFERENCE, name
            continue
        if REFERENCE or str(schema) == texts[name]:
            found[name] = schema
    assert len(found) > 3000
    return found


@pytest.mark.parametrize(
    ("schema", "roles"),
    [
        ("aten::mm(Tensor self, Tensor mat2) -> Tensor", ("self mat2", "new")),
        (
            "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)",
            ("self! other", "=self"),
        ),
        ("aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)", ("self", "~self")),
        ("aten::cat(Tensor[] tensors, int dim=0) -> Tensor", ("tensors[]", "new")),
        (
            "aten::index.Tensor(Tensor self, Tensor?[] indices) -> Tensor",
            ("self indices?[]", "new"),
        ),
        ("aten::_foreach_add_.Scalar(Tensor(a!)[] self, Scalar s) -> ()", ("self[]!", "")),
        (
            "aten::split.Tensor(Tensor(a -> *) self, SymInt s, int dim=0) -> Tensor(a)[]",
            ("self", "~self[]"),
        ),
        ("aten::f(Tensor(a) self) -> (Tensor(a), Tensor, int)", ("self", "~self new -")),
        ("aten::f(Tensor? a, Tensor[]? b) -> Tensor?", ("a? b[]?", "new?")),
        ("aten::f(Dict(str, Tensor) d) -> Tensor", ("d{}", "new")),
        ("aten::f(Tensor(a|b) x, Tensor(b) y) -> Tensor(b)", ("x y", "~x")),
        ("aten::equal(Tensor self, Tensor other) -> bool", ("self other", "-")),
        ("aten::zeros(int[] size) -> Tensor", ("", "new")),
        ("aten::f(int x) -> int", None),
    ],
)
def test_roles_of(schema: str, roles: tuple[str, str] | None) -> None:
    assert roles_of(parse_schema(schema)) == roles


@pytest.mark.slow
def test_roles_of_all_operators_name_the_arguments_that_torch_says_hold_tensors() -> None:
    rows = table("subclass_utils", roles_index.NAMESPACES, "ROLES")
    for name, schema in live_schemas(rows).items():
        row = rows[name]
        assert isinstance(row, tuple)
        arguments = [
            (argument.name, argument.alias_info is not None and argument.alias_info.is_write)
            for argument in schema.arguments
            if "Tensor" in str(argument.type)
        ]
        got = [(word.rstrip("!").rstrip("?[]{}"), word.endswith("!")) for word in row[0].split()]
        assert got == arguments, name
        assert len(row[1].split()) == len(schema.returns), name
        for word, result in zip(row[1].split(), schema.returns, strict=True):
            alias = result.alias_info
            kind = "new"
            if "Tensor" not in str(result.type):
                kind = "-"
            elif alias is not None:
                kind = "=" if alias.is_write else "~"
            assert word.startswith(kind), (name, word)


def test_facts_leave_out_what_is_the_default() -> None:
    schema = parse_schema("aten::mm(Tensor self, Tensor mat2) -> Tensor")
    assert facts_of(Operator(schema, "blas")) == {}


def test_facts_come_in_the_order_of_their_fields() -> None:
    schema = parse_schema("aten::f.out(Tensor x, *, Tensor(a!) out, Tensor(b!) aux) -> Tensor(a!)")
    operator = Operator(
        schema,
        "f",
        composite="explicit",
        random=True,
        reads_data="always",
        output_shape="dynamic",
    )
    assert list(facts_of(operator).items()) == [
        ("out", True),
        ("mutates", ("out", "aux")),
        ("composite", "explicit"),
        ("random", True),
        ("reads_data", "always"),
        ("output_shape", "dynamic"),
    ]


@pytest.mark.parametrize(
    ("schema", "facts"),
    [
        ("aten::t(Tensor(a) self) -> Tensor(a)", {"view": True}),
        ("aten::split(Tensor(a -> *) self) -> Tensor(a)[]", {"view": True}),
        ("aten::f(Tensor(a) self) -> ()", {}),
        ("aten::f(Tensor(a) self) -> Tensor", {}),
        ("aten::f(Tensor(a!) x) -> Tensor(a)", {"mutates": ("x",)}),
        ("aten::f(Tensor(a!) x, Tensor(b) y) -> Tensor(b)", {"view": True, "mutates": ("x",)}),
        ("aten::t_(Tensor(a!) self) -> Tensor(a!)", {"inplace": True, "mutates": ("self",)}),
        (
            "aten::__iand__.Scalar(Tensor(a!) self, Scalar x) -> Tensor(a!)",
            {"inplace": True, "mutates": ("self",)},
        ),
        ("aten::f(Tensor(a!) buffer) -> Tensor", {"mutates": ("buffer",)}),
    ],
)
def test_facts_of(schema: str, facts: dict[str, object]) -> None:
    assert facts_of(Operator(parse_schema(schema), "f")) == facts


def test_facts_have_what_is_written_without_a_word_in_the_schema() -> None:
    schema = parse_schema("aten::f(Tensor(a!) x, Tensor? mean, Tensor y) -> Tensor")
    assert facts_of(Operator(schema, "f", also_writes=("mean",))) == {"mutates": ("x", "mean")}


# What these keep of the batches, of which torch says nothing.
UNSAID = {
    f"aten::{name}"
    for name in (
        "_batch_norm_impl_index",
        "batch_norm",
        "batch_norm_gather_stats",
        "batch_norm_gather_stats_with_counts",
        "batch_norm_update_stats",
        "cudnn_batch_norm",
        "instance_norm",
        "miopen_batch_norm",
        "native_batch_norm",
    )
}


@pytest.mark.slow
def test_facts_of_all_operators_name_what_torch_says_is_written() -> None:
    rows = table("guards", guards_index.NAMESPACES, "FACTS")
    assert len(rows) > 3500
    for name, schema in live_schemas(rows).items():
        facts = rows[name]
        assert isinstance(facts, dict)
        written = tuple(
            argument.name
            for argument in schema.arguments
            if argument.alias_info is not None and argument.alias_info.is_write
        )
        unsaid = ("running_mean", "running_var") if name.removesuffix(".out") in UNSAID else ()
        assert facts.get("mutates", ()) == (*unsaid, *written), name
