"""The typed handles: what a caller may pass, what a handler receives, and that none is missing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from opspec.model import Operator
from opspec.render.naming import parameter_names
from opspec.render.signatures import NUMBERS_FOR_TENSORS, signature_texts
from opspec.render.typed import Packets, render_scripted, render_typed
from opspec.schema import parse_schema
from opspec.tree import load

ROOT = Path(__file__).parents[2]
GENERATED = ROOT / "packages/dispatch-core/src/dispatch_core/_generated"


def called(schema: str) -> str:
    """Give the signature that callers see, on one line."""
    return one_line(signature_texts(parse_schema(schema))[0])


def handled(schema: str) -> str:
    """Give the signature that handlers must have, on one line."""
    return one_line(signature_texts(parse_schema(schema))[1])


def one_line(text: str) -> str:
    """Undo the layout."""
    text = " ".join(text.split()).replace("( ", "(").replace(", )", ")").replace("[ ", "[")
    text = text.replace(", ]", "]").removeprefix("def __call__(cls, ").removesuffix(": ...")
    return text.removeprefix("/, ")


def test_numbers_for_tensors_are_those_of_torch() -> None:
    allowed = torch._C._should_allow_numbers_as_tensors
    bases = {
        name.partition("::")[2].partition(".")[0] for name in torch._C._dispatch_get_all_op_names()
    }
    assert {name for name in NUMBERS_FOR_TENSORS if not allowed(name)} == set()
    assert {name for name in bases if allowed(name)} <= NUMBERS_FOR_TENSORS


@pytest.mark.parametrize(
    ("written", "passed", "received"),
    [
        ("Tensor", "Tensor", "Any"),
        ("Tensor?", "Tensor | None", "Any | None"),
        ("Tensor[]", "Sequence[Tensor]", "list[Any]"),
        ("Tensor?[]", "Sequence[Tensor | None]", "list[Any]"),
        ("Tensor[]?", "Sequence[Tensor] | None", "list[Any] | None"),
        ("Scalar", "Number", "float"),
        ("Scalar?", "Number | None", "float | None"),
        ("Scalar[]", "Sequence[Number]", "list[Any]"),
        ("int", "int", "int"),
        ("int[]", "Sequence[int]", "list[Any]"),
        ("int[2]", "int | Sequence[int]", "list[Any]"),
        ("int[1]?", "int | Sequence[int] | None", "list[Any] | None"),
        ("SymInt", "int | torch.SymInt", "int"),
        ("SymInt[2]", "Sequence[int | torch.SymInt]", "list[Any]"),
        ("float", "float | torch.SymFloat", "float"),
        ("bool", "bool", "bool"),
        ("bool[3]", "Sequence[bool]", "list[Any]"),
        ("str?", "str | None", "str | None"),
        ("ScalarType?", "torch.dtype | None", "torch.dtype | None"),
        ("Layout", "torch.layout", "torch.layout"),
        ("MemoryFormat?", "torch.memory_format | None", "torch.memory_format | None"),
        ("Device?", "torch.device | str | None", "torch.device | None"),
        ("Generator?", "torch.Generator | None", "torch.Generator | None"),
        ("Any", "Any", "Any"),
        ("__torch__.torch.classes.c10d.Work", "Any", "Any"),
        ("Tensor[][]", "Sequence[Sequence[Tensor]]", "list[Any]"),
        ("Dict(str, Tensor)", "dict[str, Tensor]", "dict[Any, Any]"),
    ],
)
def test_types_of_arguments(written: str, passed: str, received: str) -> None:
    schema = f"aten::f({written} x) -> ()"
    assert called(schema) == f"x: {passed}) -> None"
    assert handled(schema) == f"x: {received}) -> None"


@pytest.mark.parametrize(
    ("written", "given", "answered"),
    [
        ("Tensor", "Tensor", "Tensor"),
        ("Tensor(a!)", "Tensor", "Tensor"),
        ("Tensor?", "Tensor | None", "Tensor | None"),
        ("Tensor[]", "list[Tensor]", "Sequence[Tensor]"),
        ("(Tensor, Tensor)", "tuple[Tensor, Tensor]", "Sequence[Tensor]"),
        ("(Tensor, int)", "tuple[Tensor, int]", "Sequence[Tensor | int]"),
        ("(Tensor, Tensor?)", "tuple[Tensor, Tensor | None]", "Sequence[Tensor | None]"),
        ("Scalar", "Any", "Number"),
        ("SymInt", "int | torch.SymInt", "int | torch.SymInt"),
        ("bool", "bool", "bool"),
        ("()", "None", "None"),
    ],
)
def test_types_of_results(written: str, given: str, answered: str) -> None:
    schema = f"aten::f(Tensor x) -> {written}"
    assert called(schema) == f"x: Tensor) -> {given}"
    assert handled(schema) == f"x: Any) -> {answered}"


def test_numbers_are_taken_for_tensors_that_are_not_written() -> None:
    assert called("aten::add_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)") == (
        "self: Tensor, other: Tensor | Number) -> Tensor"
    )


def test_defaults_are_shown_to_callers_and_required_of_handlers() -> None:
    schema = "aten::f(Tensor x, int[2] p=0, *, ScalarType d=long, str s='a') -> Tensor"
    assert called(schema) == (
        "x: Tensor, p: int | Sequence[int] = (0, 0), *, d: torch.dtype = torch.int64, "
        's: str = "a") -> Tensor'
    )
    assert handled(schema) == (
        "x: Any, p: list[Any] = ..., *, d: torch.dtype = ..., s: str = ...) -> Tensor"
    )


def test_arguments_up_to_a_word_of_python_are_positional() -> None:
    schema = "aten::f(Tensor self, float from=0, float to=1, *, int class=1, int x=1) -> Tensor"
    assert handled(schema) == (
        "self: Any, from_: int = ..., /, to: int = ..., *, x: int = ...) -> Tensor"
    )


def test_receiver_gives_way_to_an_argument_of_its_name() -> None:
    text = signature_texts(parse_schema("aten::f(Tensor cls, Tensor mcs) -> Tensor"))[0]
    assert text == "    def __call__(mcs_, /, cls: Tensor, mcs: Tensor) -> Tensor: ...\n"


def test_no_class_is_called_like_an_overload_of_its_file() -> None:
    operators = [
        Operator(parse_schema(text), "f")
        for text in (
            "aten::all.all_out(Tensor x) -> Tensor",
            "aten::all.out(Tensor x) -> Tensor",
        )
    ]
    assert [row[1] for row in Packets(operators).overloads] == ["all_all_out", "all_out_"]
    text = render_typed(Packets(operators), "specs/f.yaml", {})
    assert "class all_packet(OpPacket):\n    all_out: all_all_out\n    out: all_out_\n" in text


def test_overload_that_is_a_word_of_python_is_no_attribute() -> None:
    operators = [Operator(parse_schema("aten::random.from(Tensor self) -> Tensor"), "f")]
    text = render_typed(Packets(operators), "specs/f.yaml", {})
    assert text.endswith("class random_packet(OpPacket):\n    ...\n")


def test_operators_of_torchscript_are_typed_where_their_types_can_be_said() -> None:
    operators = [
        Operator(parse_schema(text), "f", scripted=True)
        for text in (
            "aten::len.t(t[] a) -> int",
            "aten::size(Tensor self) -> int[]",
            "aten::add.str(str a, str b) -> str",
        )
    ]
    text = render_scripted(Packets(operators), {"aten::len", "aten::size"}, "specs/f.yaml")
    assert text.partition("OpPacket\n\n")[2] == (
        'class len_t(Handle[Any]):\n    """aten::len.t(t[] a) -> int"""\n\n'
        "class len_packet(OpPacket):\n    t: len_t\n\n"
        'class size_default(Handle[Any]):\n    """aten::size(Tensor self) -> int[]"""\n'
        "    def __call__(cls, /, self: Tensor) -> list[int]: ...\n\n"
        "class size_packet(OpPacket):\n    default: size_default\n\n"
        'class add_str(Handle[Any]):\n    """aten::add.str(str a, str b) -> str"""\n'
        "    def __call__(cls, /, a: str, b: str) -> str: ...\n"
    )


def stub_classes(path: Path) -> Iterator[ast.ClassDef]:
    """Yield the classes of a stub file."""
    for node in ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 10)).body:
        if isinstance(node, ast.ClassDef):
            yield node


def attributes_of(node: ast.ClassDef) -> dict[str, str]:
    """Give the annotated attributes of a class, without the modules of the annotations."""
    return {
        child.target.id: ast.unparse(child.annotation).rpartition(".")[2]
        for child in node.body
        if isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name)
    }


@pytest.mark.slow
def test_every_operator_of_the_specs_can_be_reached_and_has_its_parameters() -> None:
    tree, _ = load([str(ROOT / "specs")])
    signatures: dict[str, list[str]] = {}
    reached: dict[str, dict[str, str]] = {}
    docs: dict[str, str] = {}
    for namespace in {operator.schema.namespace for operator in tree.operators}:
        folder = GENERATED / namespace
        if not folder.exists():
            continue  # of TorchScript's own, such as prim
        (types,) = stub_classes(folder / "__init__.pyi")
        packets: dict[str, dict[str, str]] = {}
        scripts = GENERATED / "torchscript"
        for path in [*folder.glob("*.pyi"), *scripts.glob("*.pyi")]:
            if path.name.startswith("_"):
                continue
            for node in stub_classes(path):
                if node.name.endswith("_packet"):
                    packets.setdefault(node.name, attributes_of(node))
                call = node.body[-1]
                doc = ast.get_docstring(node)
                if doc is not None:
                    name = doc[: doc.index("(")]
                    docs[name] = node.name
                    if isinstance(call, ast.FunctionDef):
                        a = call.args
                        listed = [*a.posonlyargs[1:], *a.args, *a.kwonlyargs]
                        signatures[name] = [argument.arg for argument in listed]
        for name, packet in attributes_of(types).items():
            reached[f"{namespace}::{name}"] = packets[packet]
    missing = []
    for operator in tree.operators:
        schema = operator.schema
        if operator.scripted and not (GENERATED / schema.namespace).exists():
            continue
        overload = schema.overload or "default"
        if overload == "from":
            continue
        if reached.get(schema.base, {}).get(overload) != docs.get(operator.qualified_name, ""):
            missing.append(operator.qualified_name)
        if not operator.scripted:
            assert signatures[operator.qualified_name] == parameter_names(schema)
    assert missing == []
