"""The packages agree on what an operator does, wherever each of them knows it from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import pytest
import torch
from dispatch_core import handle_of
from guards import facts
from guards._op_facts import _from_torch
from subclass_utils._roles import roles_of

SCHEMAS = {
    "view": "(Tensor(a) x) -> Tensor(a)",
    "parts": "(Tensor(a -> *) x) -> Tensor(a)[]",
    "view_beside_write": "(Tensor(a!) x, Tensor(b) y) -> Tensor(b)",
    "written_only": "(Tensor(a!) x) -> ()",
    "nothing_back": "(Tensor(a) x) -> ()",
    "add_": "(Tensor(a!) x) -> Tensor(a!)",
    "into.out": "(Tensor x, *, Tensor(a!) out) -> Tensor(a!)",
    "draw": "(Tensor x) -> Tensor",
    "pick": "(Tensor x) -> Tensor",
}
TAGS = {"draw": torch.Tag.nondeterministic_seeded, "pick": torch.Tag.dynamic_output_shape}


@pytest.fixture
def defined() -> Iterator[list[str]]:
    """Define operators that no spec knows."""
    with torch.library._scoped_library("facts_here", "DEF") as library:
        for name, schema in SCHEMAS.items():
            library.define(name + schema, tags=TAGS.get(name, ()))
        yield [f"facts_here::{name}" for name in SCHEMAS]


def dispatched() -> list[str]:
    """Name all overloads of the dispatcher that the specs have as this torch has them."""
    names = torch._C._dispatch_get_all_op_names()
    return sorted(name for name in names if "::" in name and handle_of(name).from_spec)


@pytest.mark.slow
def test_all_operators_have_the_same_facts_and_roles_everywhere() -> None:
    names = dispatched()
    assert len(names) > 3500
    for name in names:
        handle = handle_of(name)
        said = asdict(handle.facts)
        assert asdict(facts(name)) == {**said, "known": True}, name
        assert said["view"] == roles_of(handle).aliases or "unsafe" in name, name


def test_operators_outside_the_specs_have_the_same_facts_everywhere(defined: list[str]) -> None:
    found = {}
    for name in defined:
        said = asdict(handle_of(name).facts)
        assert asdict(facts(name)) == {**said, "known": False}, name
        assert said["view"] == roles_of(handle_of(name)).aliases, name
        found[name.partition("::")[2]] = said
    assert [name for name, said in found.items() if said["view"]] == [
        "view",
        "parts",
        "view_beside_write",
    ]


@pytest.mark.slow
def test_schemas_alone_say_what_the_specs_say_beside_overlays() -> None:
    for name in dispatched():
        known, read = facts(name), _from_torch(name)
        for field in ("view", "inplace", "out"):
            assert getattr(known, field) == getattr(read, field), (name, field)
        unsaid = [argument for argument in known.mutates if argument not in read.mutates]
        assert [argument for argument in known.mutates if argument not in unsaid] == [*read.mutates]
        # What overlays say is written beside what the schema does.
        assert not unsaid or unsaid == ["running_mean", "running_var"], name
