"""The specs say what torch registers."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from opspec import registry as registry_module
from opspec.importer import import_specs
from opspec.importer_plan import FACTS_FILE
from opspec.importer_text import TORCHSCRIPT
from opspec.model import Operator
from opspec.registry import (
    INTERNAL_NAMESPACES,
    RegisteredOperator,
    Registry,
    RegistryError,
    read_registry,
)
from opspec.schema import parse_schema
from opspec.tree import load

SPECS = Path(__file__).parents[2] / "specs"


@pytest.fixture(scope="module")
def registry() -> Registry:
    return read_registry()


@pytest.fixture(scope="module")
def pinned(registry: Registry) -> Registry:
    """The registry of the torch that the specs were read from."""
    tree, _ = load([SPECS])
    if registry.torch_version != tree.torch_version:
        pytest.skip(f"the specs are of torch {tree.torch_version}; see `opspec diff`")
    return registry


@pytest.fixture(scope="module")
def registered(pinned: Registry) -> dict[str, RegisteredOperator]:
    return {
        operator.qualified_name: operator
        for operator in pinned.dispatcher
        if operator.namespace not in INTERNAL_NAMESPACES
    }


@pytest.fixture(scope="module")
def specified() -> dict[str, Operator]:
    """The dispatcher's operators as the schema files have them, without the overlays."""
    files = [path for path in sorted(SPECS.rglob("*.yaml")) if path.name != FACTS_FILE]
    tree, diagnostics = load([path for path in files if not path.name.startswith("_")])
    assert [d for d in diagnostics if d.severity == "error"] == []
    chosen = (op for op in tree.operators if op.imported and not op.scripted)
    return {operator.qualified_name: operator for operator in chosen}


@pytest.mark.slow
def test_the_registry_holds_what_torch_2_13_is_known_to_hold(pinned: Registry) -> None:
    sizes = Counter(operator.namespace for operator in pinned.dispatcher)
    assert len(pinned.dispatcher) == 3598
    assert len(pinned.torchscript) == 776
    assert (sizes["aten"], sizes["prims"], sizes["quantized"]) == (3110, 126, 174)
    assert len(pinned.namespaces) == 21


@pytest.mark.slow
def test_tags_are_those_of_the_overloads_object_where_python_adds_some(pinned: Registry) -> None:
    tags = {operator.qualified_name: set(operator.tags) for operator in pinned.dispatcher}
    assert tags["prims::abs"] == {"pointwise", "pt2_compliant_tag"}
    assert tags["rngprims::philox_rand"] == {"nondeterministic_seeded"}


@pytest.mark.slow
def test_the_specs_name_every_operator(
    registered: dict[str, RegisteredOperator], specified: dict[str, Operator]
) -> None:
    assert set(specified) == set(registered)
    assert len(specified) == 3598 - 26


@pytest.mark.slow
def test_every_schema_is_torchs(
    registered: dict[str, RegisteredOperator], specified: dict[str, Operator]
) -> None:
    other = {
        name: str(operator.schema)
        for name, operator in specified.items()
        if operator.schema != parse_schema(registered[name].schema)
    }
    assert other == {}


@pytest.mark.slow
def test_every_schema_prints_as_torch_prints_it(
    registered: dict[str, RegisteredOperator], specified: dict[str, Operator]
) -> None:
    other = {
        name: operator.schema.torch_text()
        for name, operator in specified.items()
        if operator.schema.torch_text() != registered[name].schema
    }
    assert other == {}


@pytest.mark.slow
def test_all_tags_are_torchs(
    registered: dict[str, RegisteredOperator], specified: dict[str, Operator]
) -> None:
    other = {
        name: (sorted(operator.tags), sorted(registered[name].tags))
        for name, operator in specified.items()
        if operator.tags != registered[name].tags
    }
    assert other == {}


@pytest.mark.slow
def test_what_is_composite_is_so_in_torch(
    registered: dict[str, RegisteredOperator], specified: dict[str, Operator]
) -> None:
    other = {
        name: (operator.composite, registered[name].composite)
        for name, operator in specified.items()
        if operator.composite != registered[name].composite
    }
    assert other == {}
    kinds = Counter(operator.composite for operator in specified.values())
    assert kinds["implicit"] > 700
    assert kinds["explicit"] > 1500


@pytest.mark.slow
def test_torchscript_holds_every_function_of_aten(pinned: Registry) -> None:
    tree, _ = load([SPECS / TORCHSCRIPT])
    specified = {op.qualified_name: (op.schema, op.tags) for op in tree.operators}
    functions = {
        op.qualified_name: (parse_schema(op.schema), op.tags)
        for op in pinned.torchscript
        if op.namespace == "aten"
    }
    assert len(functions) == 644
    assert {name: specified.get(name) for name in functions} == functions
    others = Counter(name.partition("::")[0] for name in specified.keys() - functions.keys())
    assert others == {"prim": 66, "profiler": 2}


@pytest.mark.slow
def test_an_import_changes_nothing(pinned: Registry, tmp_path: Path) -> None:
    specs = tmp_path / "specs"
    shutil.copytree(SPECS, specs)
    made = import_specs(pinned, specs)
    assert made.texts == {}
    assert (made.new, made.gone, made.unplaced) == ((), (), ())


@pytest.mark.slow
def test_an_import_into_an_empty_folder_gives_the_specs(pinned: Registry, tmp_path: Path) -> None:
    specs = tmp_path / "specs"
    import_specs(pinned, specs)
    assert _contents(specs) == {
        name: content
        for name, content in _contents(SPECS).items()
        if not name.endswith(FACTS_FILE) and name in _imported_names(pinned)
    }
    assert import_specs(pinned, specs).texts == {}


def _contents(specs: Path) -> dict[str, bytes]:
    return {path.relative_to(specs).as_posix(): path.read_bytes() for path in specs.rglob("*.yaml")}


def _imported_names(registry: Registry) -> set[str]:
    """The files of imported namespaces: a person's own may lie beside them."""
    folders = {*registry.namespaces, TORCHSCRIPT}
    return {
        name
        for name in _contents(SPECS)
        if name == "_torch.yaml" or name.partition("/")[0].removesuffix(".yaml") in folders
    }


@pytest.mark.slow
def test_the_registry_does_not_depend_on_what_is_imported(registry: Registry) -> None:
    import torch.testing._internal.optests  # registers operators in this process

    assert torch.testing._internal.optests is not None
    assert read_registry() == registry


@pytest.mark.slow
def test_without_torch_the_error_names_the_python(monkeypatch: pytest.MonkeyPatch) -> None:
    child = "raise ModuleNotFoundError(\"No module named 'torch'\")"
    monkeypatch.setattr(registry_module, "_CHILD", child)
    with pytest.raises(RegistryError, match=r"torch is not installed for .*run `pip install"):
        read_registry()


@pytest.mark.slow
def test_a_torch_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "_CHILD", "raise ImportError('libfoo.so is missing')")
    with pytest.raises(RegistryError, match=r"ImportError: libfoo.so is missing"):
        read_registry()
