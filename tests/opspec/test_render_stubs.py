"""The dispatch stubs of all operators have the signatures of torch's own schemas."""

from __future__ import annotations

import ast
import importlib
import inspect
import keyword
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from dispatch_core._generated import _index
from dispatch_core._stub import STUBS
from opspec.model import Operator
from opspec.render.stubs import render_stubs
from opspec.schema import parse_schema

ROOT = Path(__file__).parents[2]

# The specs are those of this version; others have operators that are new, gone or changed.
REFERENCE = torch.__version__.startswith("2.13.")

# In the order of c10::ScalarType, c10::MemoryFormat.
DTYPES = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FORMATS = [torch.contiguous_format, torch.preserve_format]


def render(*schemas: str) -> str:
    """Render the stubs of some schemas."""
    return render_stubs([Operator(parse_schema(text), "f") for text in schemas], "specs/f.yaml")


def body(text: str) -> str:
    """Give what follows `__all__`."""
    return text.partition("\n\n\n")[2]


def namespace_modules(namespace: str) -> Iterator[ModuleType]:
    """Import the families of a namespace."""
    package = f"dispatch_core._generated.{namespace}"
    for family in importlib.import_module(f"{package}._index").FAMILIES:
        yield importlib.import_module(f"{package}.{family}")


def live_schema(qualified_name: str) -> torch._C.FunctionSchema | None:
    """Give torch's own schema, None where this torch has no such operator."""
    base, _, overload = qualified_name.partition(".")
    try:
        return torch._C._get_schema(base, overload)
    except RuntimeError:
        return None


def expected_default(argument: torch._C.Argument) -> object:
    """Give torch's default as a stub has it."""
    value = argument.default_value
    kind = argument.real_type.str().rstrip("?")  # type: ignore[attr-defined]
    if value is not None and kind == "ScalarType":
        return DTYPES[value]
    if value is not None and kind == "MemoryFormat":
        return FORMATS[value]
    return tuple(value) if isinstance(value, list) else value


@pytest.mark.slow
@pytest.mark.parametrize("namespace", _index.NAMESPACES)
def test_stub_signatures_are_those_of_torch(namespace: str) -> None:
    list(namespace_modules(namespace))
    names = [name for name in STUBS if name.partition("::")[0] == namespace]
    assert names
    for name in names:
        record = STUBS[name]
        schema = live_schema(name)
        if schema is None or (not REFERENCE and str(schema) != record.schema):
            assert not REFERENCE, name
            continue
        assert record.schema == str(schema)
        wanted = [
            (
                f"{argument.name}_" if keyword.iskeyword(argument.name) else argument.name,
                argument.kwarg_only,
                argument.has_default_value(),
            )
            for argument in schema.arguments
        ]
        parameters = inspect.signature(record.function).parameters.values()
        got = [
            (
                parameter.name,
                parameter.kind is parameter.KEYWORD_ONLY,
                parameter.default is not parameter.empty,
            )
            for parameter in parameters
        ]
        assert got == wanted, name
        for argument, parameter in zip(schema.arguments, parameters, strict=True):
            if argument.has_default_value():
                default = expected_default(argument)
                assert (type(parameter.default), parameter.default) == (type(default), default), (
                    f"{name}: {argument.name}"
                )


@pytest.mark.slow
def test_every_operator_of_the_dispatcher_has_a_stub() -> None:
    for namespace in _index.NAMESPACES:
        for module in namespace_modules(namespace):
            exported = {name: getattr(module, name) for name in module.__all__}
            assert module.__all__ == sorted(exported)
    names = {
        name
        for name in torch._C._dispatch_get_all_op_names()
        if name.partition("::")[0] in _index.NAMESPACES
    }
    assert len(names) > 3500
    spec_names = {name for name in STUBS if name.partition("::")[0] in _index.NAMESPACES}
    # Other tests register operators too, and newer versions of torch have others.
    if REFERENCE:
        assert spec_names - names == set()
        assert {name for name in names - spec_names if name.startswith("aten::")} == set()


def test_stub_body_binds_by_schema_name_and_makes_fresh_lists() -> None:
    text = render("aten::f(Tensor self, int[2] padding=0, *, int[]? dims=None) -> Tensor")
    assert body(text) == (
        '@stub("aten::f(Tensor self, int[2] padding=0, *, int[]? dims=None) -> Tensor")\n'
        "def f(self, padding=(0, 0), *, dims=None):\n"
        "    return {\n"
        '        "self": self,\n'
        '        "padding": [*padding] if padding.__class__ is tuple else padding,\n'
        '        "dims": dims,\n'
        "    }\n"
    )


def test_stub_of_a_long_list_name_stays_within_the_line() -> None:
    name = "a_rather_long_name_of_a_list"
    text = render(f"aten::f(int[] {name}=[1]) -> Tensor")
    assert body(text).endswith(
        f"def f({name}=(1,)):\n"
        f"    if {name}.__class__ is tuple:\n"
        f"        {name} = [*{name}]\n"
        f'    return {{"{name}": {name}}}\n'
    )


def test_stub_defaults_are_torch_values() -> None:
    text = render(
        "aten::f(*, ScalarType dtype=long, Layout layout=strided, MemoryFormat m=channels_last, "
        'str mode="a\\"b", float eps=1e-05, Scalar s=1, bool b=False) -> Tensor'
    )
    assert "\nimport torch\n\nfrom dispatch_core._stub import stub\n" in text
    signature = body(text).partition("def f(\n")[2].partition("):")[0]
    assert [line.strip() for line in signature.splitlines()] == [
        "*,",
        "dtype=torch.int64,",
        "layout=torch.strided,",
        "m=torch.channels_last,",
        "mode='a\"b',",
        "eps=1e-05,",
        "s=1,",
        "b=False,",
    ]


def test_stub_names_stay_apart() -> None:
    text = render(
        "aten::add._Tensor(Tensor self) -> Tensor",
        "aten::add_.Tensor(Tensor(a!) self) -> Tensor(a!)",
        "aten::add(Tensor self) -> Tensor",
        "aten::stub(Tensor self) -> Tensor",
        "aten::torch(Tensor self) -> Tensor",
    )
    assert [line for line in text.splitlines() if line.startswith("def ")] == [
        "def add__Tensor(self):",
        "def add__Tensor_(self):",
        "def add(self):",
        "def stub_(self):",
        "def torch_(self):",
    ]


def test_stub_of_an_argument_that_is_a_word_of_python() -> None:
    text = render("aten::f(Tensor self, float from=0, float from_=1) -> Tensor")
    assert body(text).endswith(
        "def f(self, from__=0.0, from_=1.0):\n"
        '    return {"self": self, "from": from__, "from_": from_}\n'
    )


def test_stub_facts_are_written_where_they_differ_from_the_default() -> None:
    schema = parse_schema("aten::f(Tensor self) -> Tensor")
    operator = Operator(
        schema,
        "f",
        tags=frozenset({"core", "a"}),
        composite="implicit",
        random=True,
        reads_data="by_argument",
        output_shape="dynamic",
    )
    assert body(render_stubs([operator], "specs/f.yaml")).partition("\ndef")[0] == (
        "@stub(\n"
        '    "aten::f(Tensor self) -> Tensor",\n'
        '    tags="a core",\n'
        '    composite="implicit",\n'
        "    random=True,\n"
        '    reads_data="by_argument",\n'
        '    output_shape="dynamic",\n'
        ")"
    )


def test_generated_modules_import_neither_opspec_nor_another_package() -> None:
    allowed = {"dispatch_core._stub", "torch"}
    for path in (ROOT / "packages").glob("*/src/*/_generated/**/*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 10))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                assert {alias.name for alias in node.names} <= allowed, path
            elif isinstance(node, ast.ImportFrom):
                assert node.module in allowed, path
