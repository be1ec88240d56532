"""Whatever the reader accepts, the generated modules are Python and hold what they should.

Names, defaults and docs of a spec end up in Python files; none of them may break out of its place.
"""

from __future__ import annotations

import ast
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opspec.generation import Generated, generate
from opspec.render.packages import PACKAGES

# Names that mean something in generated code, to Python, or to a checker, and harmless ones.
_WORDS = """
self cls mcs stub torch tuple complex float int str list type Tensor Any Handle OpPacket Protocol
Sequence Number default out from from_ lambda async nonlocal match _ __x __init__ __all__ __name__
__call__ __class__ add add_ add_Tensor add_default add_packet f_ops aten ROLES FACTS f f_
f_default_handler TorchOverload ops x y
"""
NAMES = st.sampled_from(_WORDS.split()) | st.from_regex(
    r"[A-Za-z_][A-Za-z0-9_]{0,6}", fullmatch=True
)
# Text that would end a string, a docstring or a comment.
TEXT = st.text(
    st.sampled_from("\"'\\\n\r\t#{}()[] abc,;:=ö€\x00\x0c\u2028\U000e0001")
    | st.characters(codec="utf-8"),
    max_size=12,
) | st.sampled_from(['"""', "'''", '\\"""', '"\nimport os\n"', "\\", "\\\\\n", '""""', "a\\"])
ARGUMENTS = st.sampled_from(
    [
        ("Tensor", ""),
        ("Tensor?", "None"),
        ("Tensor[]", ""),
        ("Tensor?[]", ""),
        ("Tensor(a!)", ""),
        ("Tensor(a)", ""),
        ("int", "-1"),
        ("int[2]", "0"),
        ("int[]", "[1, 2]"),
        ("SymInt[]?", "None"),
        ("bool", "True"),
        ("float", "1e-05"),
        ("Scalar", "1"),
        ("ScalarType", "long"),
        ("MemoryFormat?", "contiguous_format"),
        ("Device?", "None"),
        ("str?", "None"),
        ("Generator?", "None"),
        ("Any", ""),
        ("__torch__.torch.classes.c10d.Work", ""),
    ]
)
RETURNS = st.sampled_from(
    ["()", "Tensor", "Tensor(a)", "Tensor(a!)", "Tensor[]", "(Tensor, int)", "Scalar", "Tensor?"]
)


@st.composite
def schemas(draw: st.DrawFn) -> str:
    """Draw the text of a schema; the reader may well refuse it."""
    parts = []
    star = draw(st.integers(0, 4))
    names = draw(st.lists(NAMES, max_size=4, unique=draw(st.booleans())))
    for number, name in enumerate(names):
        if number == star:
            parts.append("*")
        kind, default = draw(ARGUMENTS)
        parts.append(f"{kind} {name}={default}" if default and number else f"{kind} {name}")
    if draw(st.booleans()):
        text = draw(TEXT).replace("\\", "\\\\").replace('"', '\\"')
        parts.append(f'str {draw(NAMES)}="{text}"')
    overload = draw(st.just("") | NAMES.map(".{}".format))
    return f"{draw(NAMES)}{overload}({', '.join(parts)}) -> {draw(RETURNS)}"


@st.composite
def entries(draw: st.DrawFn) -> dict[str, object]:
    """Draw an entry of a spec file."""
    entry: dict[str, object] = {"func": draw(schemas())}
    if draw(st.booleans()):
        entry["doc"] = draw(TEXT)
    return entry


def read_and_render(name: str, content: list[dict[str, object]]) -> Generated:
    """Write a spec file into an empty folder and generate from it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "specs" / name
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(content), encoding="utf-8")  # JSON is YAML
        return generate([str(Path(folder) / "specs")])


def functions_of(module: ast.Module) -> list[ast.FunctionDef]:
    """Check that a module of stubs holds nothing but what it should, and give its functions."""
    functions = []
    for node in module.body:
        if isinstance(node, ast.FunctionDef):
            functions.append(node)
        elif isinstance(node, ast.ImportFrom):
            assert node.module == "dispatch_core._stub"
        elif isinstance(node, ast.Import):
            assert [alias.name for alias in node.names] == ["torch"]
        else:
            assert isinstance(node, ast.Assign)
            assert isinstance(node.targets[0], ast.Name)
            assert node.targets[0].id == "__all__"
    return functions


def check_stubs(text: str) -> set[str]:
    """Check a module of stubs and give the qualified names of its operators."""
    functions = functions_of(ast.parse(text, feature_version=(3, 10)))
    names = [function.name for function in functions]
    assert len(set(names)) == len(names)
    operators = set()
    for function in functions:
        (decorator,) = function.decorator_list
        assert isinstance(decorator, ast.Call)
        assert isinstance(decorator.func, ast.Name)
        assert decorator.func.id == "stub"
        schema = ast.literal_eval(decorator.args[0])
        operators.add(schema[: schema.index("(")])
        for default in [*function.args.defaults, *filter(None, function.args.kw_defaults)]:
            for node in ast.walk(default):
                if isinstance(node, ast.Call):
                    raise AssertionError(ast.unparse(node))
                if isinstance(node, ast.Name):
                    assert node.id == "torch"
    return operators


def check_types(text: str) -> set[str]:
    """Check a stub file and give the docstrings' first lines up to the parenthesis."""
    described = set()
    for node in ast.parse(text, feature_version=(3, 10)).body:
        assert isinstance(node, (ast.ClassDef, ast.ImportFrom, ast.Import, ast.AnnAssign))
        if not isinstance(node, ast.ClassDef):
            continue
        for child in node.body:
            assert isinstance(child, (ast.FunctionDef, ast.AnnAssign, ast.Expr))
        doc = ast.get_docstring(node)
        if doc is not None and "::" in doc:
            described.add(doc[: doc.index("(")])
    return described


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(entries(), min_size=1, max_size=4))
def test_generated_modules_hold_what_the_reader_accepted(content: list[dict[str, object]]) -> None:
    # aten is imported, so that the reader lets pass what torch itself does.
    for name in ("mylib.yaml", "aten/f.yaml"):
        accepted: list[dict[str, object]] = []
        for entry in content:
            if not read_and_render(name, [*accepted, entry]).errors:
                accepted.append(entry)
        if accepted:
            check_everything(read_and_render(name, accepted), len(accepted))


def check_everything(generated: Generated, number: int) -> None:
    """Check every generated file."""
    assert generated.operators == number
    operators: set[str] = set()
    described: set[str] = set()
    for path, text in generated.files.items():
        text.encode("utf-8")
        assert text.startswith("# Generated by `opspec codegen` from ")
        compile(text, path, "exec", dont_inherit=True)
        if path.endswith("_torch_types.pyi"):
            continue  # the same text always
        if path.endswith(".pyi"):
            described |= check_types(text)
        elif path.startswith(PACKAGES["dispatch_core"]) and not path.endswith("_index.py"):
            operators |= check_stubs(text)
        else:
            for node in ast.parse(text).body:
                assert isinstance(node, (ast.Assign, ast.AnnAssign))
                assert node.value is not None
                ast.literal_eval(node.value)
    assert len(operators) == number
    assert described == operators
