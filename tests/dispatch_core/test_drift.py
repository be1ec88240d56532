"""Specs and installed torch differ: what breaks callers is an error when used, the rest is told."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from dispatch_core import SchemaDriftError, _registry, handle_of
from dispatch_core import _torch_private as private
from dispatch_core._drift import compare
from dispatch_core._ops import OpNamespace
from dispatch_core._schema import read_schema

SPEC = (
    "aten::addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor"
)

Live = Callable[[str, str | None], None]


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Live:
    """Say which schema the installed torch is to have; None for none."""
    schemas: dict[str, str | None] = {}
    real = private.live_schema

    def live_schema(base: str, overload: str) -> str | None:
        name = base + (f".{overload}" if overload else "")
        return schemas[name] if name in schemas else real(base, overload)

    monkeypatch.setattr(private, "live_schema", live_schema)
    for cache in ("_handles", "_by_op", "_broken"):
        monkeypatch.setattr(_registry, cache, {})
    return schemas.__setitem__


def aten() -> Any:
    """Make a namespace that has not looked up anything yet."""
    return OpNamespace("aten")


# ── what counts as breaking ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("now", "text", "breaks"),
    [
        ("Tensor a, int b=1, *, int c=2, int d=3", "argument 'd' is new with a default", False),
        ("Tensor a, int b=1, *, int c=2, int d", "argument 'd' is new and required", True),
        ("Tensor a, int b=1", "argument 'c' is gone", True),
        ("Tensor a, int b=1, int c=2", "argument 'c' is positional now", True),
        ("Tensor a, *, int b=1, int c=2", "argument 'b' is keyword-only now", True),
        ("Tensor a, int b, *, int c=2", "argument 'b' has no default any more", True),
        ("Tensor a=None, int b=1, *, int c=2", "argument 'a' has a default now", False),
        (
            "Tensor a, int b=4, *, int c=2",
            "default of 'b' is 4 instead of 1",
            True,
        ),
        ("Tensor a, bool b=True, *, int c=2", "argument 'b' is bool instead of int", True),
        ("Tensor a, SymInt b=1, *, int c=2", "argument 'b' is SymInt instead of int", False),
        ("Tensor a, int? b=1, *, int c=2", "argument 'b' is int? instead of int", False),
        ("Tensor a, Scalar b=1, *, int c=2", "argument 'b' is Scalar instead of int", False),
        ("Tensor? a, int b=1, *, int c=2", "argument 'a' is Tensor? instead of Tensor", False),
        ("Tensor[] a, int b=1, *, int c=2", "argument 'a' is Tensor[] instead of Tensor", True),
        ("Tensor(a!) a, int b=1, *, int c=2", "argument 'a' is annotated (a!)", True),
        ("Tensor(a) a, int b=1, *, int c=2", "argument 'a' is annotated (a)", False),
        (
            "Tensor a, int n=0, int b=1, *, int c=2",
            "argument 'b' moved to position 3",
            True,
        ),
        ("Tensor a, int b=1, *, int z=2", "argument 'z' is new with a default", True),
    ],
)
def test_change_of_an_argument(now: str, text: str, breaks: bool) -> None:
    was = read_schema("dc::f(Tensor a, int b=1, *, int c=2) -> Tensor")
    differences = compare(was, read_schema(f"dc::f({now}) -> Tensor"))
    assert any(difference.text.startswith(text) for difference in differences), differences
    assert any(difference.breaks for difference in differences) == breaks, differences


def test_change_of_the_results_breaks() -> None:
    was, now = "dc::f(Tensor a) -> Tensor", "dc::f(Tensor a) -> (Tensor, Tensor)"
    [difference] = compare(read_schema(was), read_schema(now))
    assert difference.text == "returns Tensor, Tensor instead of Tensor"
    assert difference.breaks


def test_no_change_is_no_difference() -> None:
    assert compare(read_schema(SPEC), read_schema(SPEC)) == []


# ── what follows from it ────────────────────────────────────────────────────────────────────────


def test_operator_that_is_gone_raises_when_used(live: Live) -> None:
    live("aten::addmv", None)
    packet = aten().addmv
    with pytest.raises(SchemaDriftError) as caught:
        _ = packet.default
    error = caught.value
    assert str(error) == (
        f"aten::addmv is gone from torch {torch.__version__}.\n"
        f"  torch 2.13.0: {SPEC}\n"
        f"  torch {torch.__version__}: (none)\n"
        "Use handle_of(...) to go by the installed torch's schema, or update the specs with "
        "`opspec import` and `nox -s codegen`."
    )
    assert (error.qualified_name, error.spec_schema, error.live_schema) == (
        "aten::addmv",
        SPEC,
        None,
    )
    with pytest.raises(SchemaDriftError):
        handle_of("aten::addmv")
    assert packet.out.from_spec


def test_change_that_breaks_raises_when_used_and_handle_of_goes_by_torch(live: Live) -> None:
    now = (
        "aten::addmv(Tensor self, Tensor mat, Tensor vec, Scalar beta=1, Scalar alpha=1) -> Tensor"
    )
    live("aten::addmv", now)
    for _ in range(2):
        with pytest.raises(SchemaDriftError) as caught:
            _ = aten().addmv.default
    assert caught.value.spec_schema == SPEC
    assert caught.value.live_schema == now
    assert "argument 'beta' is positional now; argument 'alpha' is positional now" in str(
        caught.value
    )
    handle = handle_of("aten::addmv")
    assert not handle.from_spec
    assert handle.schema == now
    assert handle.drift == (
        "argument 'beta' is positional now; argument 'alpha' is positional now "
        "(compared with the specs)"
    )
    assert handle.facts.family == "blas"
    values = handle.bind((1, 2, 3, 4))
    assert values == {"self": 1, "mat": 2, "vec": 3, "beta": 4, "alpha": 1}
    assert handle.elide(values) == ((1, 2, 3, 4), {})


def test_change_that_breaks_nobody_is_told_and_used(live: Live) -> None:
    now = SPEC.replace("alpha=1)", "alpha=1, int extra=7)")
    live("aten::addmv", now)
    handle = aten().addmv.default
    assert handle is handle_of("aten::addmv")
    assert handle.drift == "argument 'extra' is new with a default (compared with the specs)"
    assert not handle.from_spec
    assert handle.bind((1, 2, 3))["extra"] == 7
    assert handle.elide(handle.bind((1, 2, 3))) == ((1, 2, 3), {})


def test_the_same_schema_written_otherwise_is_no_drift(live: Live) -> None:
    now = str(torch.ops.aten.layer_norm.default._schema)
    live("aten::layer_norm", now.replace("1.0000000000000001e-05", "1e-05"))
    handle = aten().layer_norm.default
    assert handle.from_spec
    assert handle.drift is None


def test_iterating_a_packet_leaves_out_what_is_gone(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    live("aten::addmv", None)
    monkeypatch.setattr(private, "live_overload_names", lambda base: ("out",))
    assert [handle.qualified_name for handle in aten().addmv] == ["aten::addmv.out"]


def test_specs_agree_with_the_torch_they_were_imported_from() -> None:
    if torch.__version__.partition("+")[0] != _registry.spec_index("aten").torch:  # type: ignore[union-attr]
        return
    for namespace in _registry.spec_namespaces():
        index = _registry.spec_index(namespace)
        assert index is not None
        for base in index.family_of:
            for overload in _registry.spec_overloads(namespace, base):
                name = f"{namespace}::{base}.{overload or 'default'}"
                assert handle_of(name).drift is None, name


# ── what the package itself needs of torch ──────────────────────────────────────────────────────


def test_missing_private_name_of_torch_is_one_clear_sentence() -> None:
    with pytest.raises(ImportError) as caught:
        private.look_up(sys.modules["torch._ops"], "not_there")
    assert str(caught.value) == (
        f"dispatch_core needs torch._ops.not_there, which torch {torch.__version__} does not have. "
        "Install a torch that this version of dispatch_core supports (2.13 or later), "
        "or a newer dispatch_core."
    )


def test_alias_sets_in_another_order_are_no_drift() -> None:
    """torch keeps them in sets, and prints those in no order."""
    one = "a::f(Tensor(a) x, Tensor(b) y, Tensor(b|a -> c|d) z) -> (Tensor(a|b), Tensor(b|a|c)[])"
    two = "a::f(Tensor(a) x, Tensor(b) y, Tensor(a|b -> d|c) z) -> (Tensor(b|a), Tensor(c|b|a)[])"
    assert read_schema(one) == read_schema(two)
    assert compare(read_schema(one), read_schema(two)) == []
    assert read_schema(one) != read_schema(two.replace("(b|a)", "(b|c)"))
