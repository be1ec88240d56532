"""define: a user's own operators, from their specs into torch."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dispatch_core._generated
import pytest
import torch
from dispatch_core import (
    DefinitionError,
    NotRegisteredError,
    SchemaDriftError,
    UnknownOperatorError,
    _define,
    _registry,
    _stub,
    define,
    handle_of,
    ops,
)
from dispatch_core import _torch_private as private

Write = Callable[[str, str], None]

FUSED = """
@stub(
    "{ns}::fused_scale_add(Tensor x, Tensor y, *, float scale=1., int[2] shape=0) -> Tensor",
    tags="pointwise pt2_compliant_tag",
)
def fused_scale_add(x, y, *, scale=1.0, shape=(0, 0)):
    return {{
        "x": x,
        "y": y,
        "scale": scale,
        "shape": [*shape] if shape.__class__ is tuple else shape,
    }}


@stub("{ns}::fused_scale_add.out(Tensor x, Tensor y, *, Tensor(a!) out) -> Tensor(a!)")
def fused_scale_add_out(x, y, *, out):
    return {{"x": x, "y": y, "out": out}}
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write generated modules for a namespace, as codegen does for a file of that name."""
    index: Any = importlib.import_module("dispatch_core._generated._index")
    monkeypatch.setattr(
        dispatch_core._generated, "__path__", [*dispatch_core._generated.__path__, str(tmp_path)]
    )
    written: list[str] = []

    def write(namespace: str, stubs: str) -> None:
        folder = tmp_path / namespace
        folder.mkdir()
        (folder / "__init__.py").touch()
        (folder / "_index.py").write_text(
            f'TORCH = None\nFAMILIES = {{"{namespace}": "fused_scale_add"}}\n'
        )
        (folder / f"{namespace}.py").write_text(
            "from dispatch_core._stub import stub\n" + stubs.format(ns=namespace)
        )
        monkeypatch.setattr(index, "NAMESPACES", (*index.NAMESPACES, namespace))
        _registry._indexes.pop(namespace, None)
        importlib.invalidate_caches()
        written.append(namespace)

    yield write
    for namespace in written:
        ops.__dict__.pop(namespace, None)
        _registry._indexes.pop(namespace, None)
        _define._libraries.pop(namespace, None)
        for cache in (_registry._handles, _stub.STUBS, _stub.OVERLOADS):
            for name in [name for name in cache if name.startswith(f"{namespace}::")]:
                cache.pop(name)
        for name in [name for name in sys.modules if f"_generated.{namespace}" in name]:
            del sys.modules[name]


def test_operator_of_the_specs_binds_and_elides_before_anybody_defined_it(write: Write) -> None:
    write("dc_own1", FUSED)
    handle = ops.dc_own1.fused_scale_add.default
    assert handle is handle_of("dc_own1::fused_scale_add")
    assert handle.from_spec
    assert handle.drift is None
    assert handle.tags == {"pointwise", "pt2_compliant_tag"}
    assert handle.facts.family == "dc_own1"
    values = handle.bind((1,), {"y": 2, "shape": 3})
    assert values == {"x": 1, "y": 2, "scale": 1.0, "shape": 3}
    assert handle.elide(values) == ((1, 2), {"shape": [3, 3]})
    assert [h.qualified_name for h in ops.dc_own1.fused_scale_add] == [
        "dc_own1::fused_scale_add",
        "dc_own1::fused_scale_add.out",
    ]
    assert "dc_own1" in dir(ops)
    assert "fused_scale_add" in dir(ops.dc_own1)


@pytest.mark.parametrize("use", [lambda h: h(1), lambda h: h.torch_op, hash], ids=str)
def test_use_of_an_operator_that_nobody_defined_says_how_to(
    write: Write, use: Callable[[Any], object]
) -> None:
    write("dc_own2", FUSED)
    with pytest.raises(NotRegisteredError) as caught:
        use(ops.dc_own2.fused_scale_add.default)
    assert str(caught.value) == (
        "dc_own2::fused_scale_add is not registered in torch: call "
        "dispatch_core.define('dc_own2') to define the operators of its specs, or import the "
        "library that does."
    )
    assert caught.value.qualified_name == "dc_own2::fused_scale_add"


def test_defined_operator_takes_a_kernel_and_runs_by_both_names(write: Write) -> None:
    write("dc_own3", FUSED)
    handle = ops.dc_own3.fused_scale_add.default  # made before
    library = define("dc_own3")
    library.impl("fused_scale_add", lambda x, y, *, scale=1.0, shape=None: x * scale + y, "CPU")
    x = torch.ones(2)
    assert handle(x, x, scale=3.0).tolist() == [4.0, 4.0]
    assert torch.ops.dc_own3.fused_scale_add(x, x).tolist() == [2.0, 2.0]
    assert handle == torch.ops.dc_own3.fused_scale_add.default
    assert handle_of(torch.ops.dc_own3.fused_scale_add.default) is handle
    assert torch.Tag.pointwise in torch.ops.dc_own3.fused_scale_add.default.tags
    assert str(torch.ops.dc_own3.fused_scale_add.default._schema) == handle.schema


def test_define_twice_gives_the_same_library(write: Write) -> None:
    write("dc_own4", FUSED)
    assert define("dc_own4") is define("dc_own4")


def test_operator_defined_elsewhere_with_the_same_schema_is_left_alone(write: Write) -> None:
    write("dc_own5", FUSED)
    own = torch.library.Library("dc_own5", "FRAGMENT")
    own.define("fused_scale_add(Tensor x, Tensor y, *, float scale=1., int[2] shape=0) -> Tensor")
    define("dc_own5")
    assert ops.dc_own5.fused_scale_add.out.torch_op is torch.ops.dc_own5.fused_scale_add.out


def test_operator_defined_elsewhere_with_another_schema_is_an_error(write: Write) -> None:
    write("dc_own6", FUSED)
    own = torch.library.Library("dc_own6", "FRAGMENT")
    own.define("fused_scale_add(Tensor x, *, float scale=1.) -> Tensor")
    with pytest.raises(SchemaDriftError) as caught:
        define("dc_own6")
    assert caught.value.spec_schema.startswith("dc_own6::fused_scale_add(Tensor x, Tensor y, *, ")
    assert caught.value.live_schema == (
        "dc_own6::fused_scale_add(Tensor x, *, float scale=1.) -> Tensor"
    )
    assert str(caught.value).splitlines()[0] == (
        "dc_own6::fused_scale_add is defined already, with another schema."
    )
    assert not hasattr(torch.ops.dc_own6.fused_scale_add, "out"), "defined half of it"
    with pytest.raises(SchemaDriftError, match="argument 'y' is gone"):
        _ = ops.dc_own6.fused_scale_add.default


def test_operator_registered_later_with_another_schema_raises_when_called(write: Write) -> None:
    write("dc_own7", FUSED)
    handle = ops.dc_own7.fused_scale_add.default
    own = torch.library.Library("dc_own7", "FRAGMENT")
    own.define("fused_scale_add(Tensor x, *, float scale=1.) -> Tensor")
    with pytest.raises(SchemaDriftError, match="was registered with another schema than this"):
        handle(torch.ones(1))


def test_library_taken_back_can_be_defined_again(write: Write) -> None:
    write("dc_own8", FUSED)
    define("dc_own8")._destroy()
    with pytest.raises(NotRegisteredError):
        _ = handle_of("dc_own8::fused_scale_add").torch_op
    define("dc_own8")
    op = torch.ops.dc_own8.fused_scale_add.default
    assert handle_of("dc_own8::fused_scale_add").torch_op is op


def test_namespace_of_torch_itself_is_refused() -> None:
    with pytest.raises(DefinitionError) as caught:
        define("aten")
    assert str(caught.value) == (
        "the operators of 'aten' come with torch (the specs were imported from torch 2.13.0); "
        "define is for namespaces of your own"
    )
    assert caught.value.namespace == "aten"


def test_unknown_namespace_gives_a_near_match() -> None:
    with pytest.raises(UnknownOperatorError) as caught:
        define("quantised")
    assert str(caught.value) == (
        "the specs have no namespace 'quantised'; did you mean quantized or _quantized?"
    )


def test_type_that_torch_does_not_know_is_an_error_before_anything_is_defined(
    write: Write,
) -> None:
    write("dc_own9", FUSED.replace("Tensor(a!) out)", "Tensr out)"))
    with pytest.raises(DefinitionError, match=r"torch cannot define dc_own9::fused_scale_add\.out"):
        define("dc_own9")
    assert not hasattr(torch.ops.dc_own9, "fused_scale_add")


def test_all_operators_that_torch_refuses_are_named_and_none_is_defined(write: Write) -> None:
    bad = """
@stub("{ns}::{name}(Tensor x, {argument}) -> Tensor")
def {name}(x, k):
    return {{"x": x, "k": k}}
"""
    stubs = FUSED + bad.replace("{name}", "a").replace("{argument}", "Scalar k=0.+1.j")
    stubs += bad.replace("{name}", "b").replace("{argument}", "SymBool k=True")
    write("dc_own10", stubs)
    with pytest.raises(DefinitionError) as caught:
        define("dc_own10")
    first, second, last = str(caught.value).splitlines()
    assert first.startswith("torch cannot define dc_own10::a(Tensor x, Scalar k=0.+1.j) -> Tensor:")
    assert second.startswith("torch cannot define dc_own10::b(Tensor x, SymBool k=True) -> Tensor:")
    assert last.startswith("No operator of 'dc_own10' is defined: ")
    assert caught.value.namespace == "dc_own10"
    assert not private.live_overload_names("dc_own10::fused_scale_add")
    names = torch._C._dispatch_get_all_op_names()
    assert not [name for name in names if name.startswith(_define._TRIAL)]


def test_namespace_that_is_no_text_is_an_error() -> None:
    wrong: Any = 3
    with pytest.raises(DefinitionError, match="takes the name of a namespace, as a str, but got 3"):
        define(wrong)
