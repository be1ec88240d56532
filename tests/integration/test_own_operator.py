"""A user writes the schema of an operator, generates its code, gives it a kernel, and calls it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repo.layout import copy_tree

pytestmark = pytest.mark.slow

SPEC = """\
- func: fused_scale_add(Tensor self, Tensor other, *, Scalar scale=1) -> Tensor
- func: fused_scale_add.out(Tensor self, Tensor other, *, Scalar scale=1, \
Tensor(a!) out) -> Tensor(a!)
- func: split_at(Tensor(a -> *) self, int[2] at=0, float share=0.5) -> Tensor(a)[]
"""

PROGRAM = """
import torch
from dispatch_core import define, handle_of, ops

handle = ops.mylib.fused_scale_add.default
a, b = torch.ones(2), torch.ones(2)

# Bound and elided before torch has heard of it.
values = handle.bind((a,), {"other": b})
assert list(values) == ["self", "other", "scale"], values
assert values["scale"] == 1
assert handle.elide(values) == ((a, b), {}), handle.elide(values)
assert handle.elide({**values, "scale": 1.0}) == ((a, b), {"scale": 1.0})
assert handle.from_spec

library = define("mylib")
assert define("mylib") is not None, "the same schemas twice are no error"


def kernel(self, other, *, scale=1):
    return self + scale * other


library.impl("fused_scale_add", kernel, "CompositeExplicitAutograd")
expected = torch.tensor([4.0, 4.0])
assert torch.equal(handle(a, b, scale=3), expected)
assert torch.equal(torch.ops.mylib.fused_scale_add(a, b, scale=3), expected)
assert torch.equal(torch.ops.mylib.fused_scale_add.default(a, b, scale=3), expected)
assert handle.torch_op is torch.ops.mylib.fused_scale_add.default
assert handle == handle.torch_op and hash(handle) == hash(handle.torch_op)
assert handle_of(torch.ops.mylib.fused_scale_add.default) is handle
assert handle.schema == str(handle.torch_op._schema)
assert handle.drift is None

out = ops.mylib.fused_scale_add.out
assert out.facts.mutates == ("out",), out.facts
assert ops.mylib.split_at.default.bind((a,)) == {"self": a, "at": [0, 0], "share": 0.5}
names = sorted(op for op in dir(ops.mylib) if not op.startswith("_"))
assert names == ["fused_scale_add", "split_at"], names
print("called")
"""

GOOD_CLIENT = """
import torch
from dispatch_core import ops

result: torch.Tensor = ops.mylib.fused_scale_add.default(torch.ones(2), torch.ones(2), scale=3)
"""

BAD_CLIENT = """
import torch
from dispatch_core import ops

ops.mylib.fused_scale_add.default(torch.ones(2), "two")
ops.mylib.fused_scale_add.default(torch.ones(2), torch.ones(2), scal=3)
ops.mylib.fused_scale_add.defualt(torch.ones(2), torch.ones(2))
ops.mylib.fused_scale_ad
"""


def run(tree: Path, *arguments: str, exit_code: int = 0) -> str:
    """Run Python in a tree with that tree's packages, and give what it printed."""
    folders = [*tree.glob("packages/*/src"), tree / "tools/opspec/src"]
    path = os.pathsep.join(map(str, folders))
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": path, "MYPYPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == exit_code, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the repository, and add a namespace to it."""
    tree = copy_tree(tmp_path_factory.mktemp("own") / "tree")
    (tree / "specs/mylib.yaml").write_text(SPEC)
    run(tree, "-m", "opspec", "codegen")
    return tree


def test_codegen_adds_the_namespace_and_touches_no_other(tree: Path) -> None:
    source = Path(__file__).parents[2]
    for folder in tree.glob("packages/*/src/*/_generated"):
        original = source / folder.relative_to(tree)
        new = {path.relative_to(folder).parts[0] for path in folder.rglob("*.py*")}
        old = {path.relative_to(original).parts[0] for path in original.rglob("*.py*")}
        assert new - old - {"__pycache__"} == {"mylib"}
        for path in (*folder.glob("aten/*.py"), *folder.glob("aten/*.pyi")):
            assert path.read_bytes() == (original / path.relative_to(folder)).read_bytes()
    assert run(tree, "-m", "opspec", "codegen", "--check") is not None


def test_own_operator_is_bound_defined_and_called(tree: Path) -> None:
    assert run(tree, "-W", "error", "-c", PROGRAM).endswith("called\n")


def test_own_operator_is_typed(tree: Path, request: pytest.FixtureRequest) -> None:
    (tree / "good.py").write_text(GOOD_CLIENT)
    (tree / "bad.py").write_text(BAD_CLIENT)
    # As the user has it, without the settings of this repository; torch stays in a cache.
    assert request.config.cache is not None
    cache = request.config.cache.mkdir("own-operator")
    options = ["--config-file=", "--cache-dir", str(cache), "--strict"]
    said = run(tree, "-m", "mypy", *options, "good.py", "bad.py", exit_code=1)
    assert [f"bad.py:{line}" in said for line in (5, 6, 7, 8)] == [True] * 4, said
    assert said.count("error:") == 4, said


def test_drift_of_the_own_namespace_is_reported(tree: Path) -> None:
    spec = tree / "specs/mylib.yaml"
    spec.write_text(SPEC.replace("Scalar scale=1)", "Scalar scale=2)"))
    try:
        said = run(tree, "-m", "opspec", "codegen", "--check", exit_code=1)
    finally:
        spec.write_text(SPEC)
    assert "mylib" in said
    assert "nox -s codegen" in said
