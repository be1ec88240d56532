"""What is loaded or registered at first use is there wherever that first use happens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from subclass_utils import LoggingTensor, WrapperTensor, flatten_state_dict

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="a fork is what makes first uses cheap"),
]

# One process imports torch; every child of it uses subclass_utils for the first time.
PARENT = """
import json, os, sys
import torch
from torch.utils._python_dispatch import TorchDispatchMode

class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))

for name, code in json.loads(sys.argv[1]).items():
    if (child := os.fork()) == 0:
        exec(code, {"file": sys.argv[2], "text": sys.argv[3], **globals()})
        sys.stdout.flush()
        os._exit(0)
    print(name, "ended with", os.waitpid(child, 0)[1], flush=True)
"""

CASES = {
    "load": """
        import subclass_utils
        assert "subclass_utils._wrapper" not in sys.modules
        for value in torch.load(file):
            print(value * 2)
    """,
    "load another": """
        import subclass_utils
        print(torch.load(file)[1] * 2)
    """,
    "unflatten": """
        from subclass_utils import unflatten_state_dict
        print(unflatten_state_dict({"w.elem": torch.ones(2)}, text)["w"])
    """,
    "threads": """
        import threading
        import subclass_utils
        ready, results = threading.Barrier(8), []
        def work():
            ready.wait()
            a = subclass_utils.WrapperTensor(torch.ones(2, 2))
            out = subclass_utils.WrapperTensor(torch.zeros(2))
            torch.linalg.matrix_norm(a.expand(2, 2, 2), out=out)
            results.append((a @ a + out).sum().to_plain().item())
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(results)
    """,
    "inference mode": """
        with torch.inference_mode():
            import subclass_utils
            w = subclass_utils.LoggingTensor(torch.ones(1, 4))
            print(torch.linalg.svd(w).S.round(), w.is_inference())
    """,
    "mode": """
        with Mode():
            import subclass_utils
            w = subclass_utils.LoggingTensor(torch.ones(1, 4)) * 2
        print(torch.linalg.svd(w).S.round())
    """,
    "autocast": """
        with torch.autocast("cpu"):
            import subclass_utils
            w = subclass_utils.LoggingTensor(torch.ones(1, 1))
            print(w @ w)
    """,
    "compiled": """
        @torch.compile(backend="aot_eager")
        def f(x):
            import subclass_utils
            return subclass_utils.LoggingTensor(x) * 2
        print(f(torch.ones(2)), f(torch.zeros(2)))
    """,
    "grandchild": """
        import subclass_utils
        w = subclass_utils.LoggingTensor(torch.ones(2))
        if os.fork() == 0:
            print(w + 1, subclass_utils.LoggingTensor(torch.ones(2)) + 2, flush=True)
            os._exit(0)
        os.wait()
        print(w + 3)
    """,
    "kernel without operator": """
        library = torch.library.Library("aten", "IMPL")
        library.impl("nobody_defined_this", lambda x: x, "CompositeImplicitAutograd")
        from subclass_utils import WrapperTensor
        print(WrapperTensor(torch.ones(2)) + 1)
    """,
}

WANTED = {
    "load": [
        "LoggingTensor(tensor([2., 4., 6.]), requires_grad=True)",
        "WrapperTensor(tensor([0., 2.]))",
    ],
    "load another": ["WrapperTensor(tensor([0., 2.]))"],
    "unflatten": ["LoggingTensor(tensor([1., 1.]), requires_grad=True)"],
    "threads": [str([16.0] * 8)],
    "inference mode": ["LoggingTensor(tensor([2.])) True"],
    "mode": ["LoggingTensor(tensor([4.]))"],
    "autocast": ["LoggingTensor(tensor([[1.]], dtype=torch.bfloat16))"],
    "compiled": ["LoggingTensor(tensor([2., 2.])) LoggingTensor(tensor([0., 0.]))"],
    "grandchild": [
        "LoggingTensor(tensor([2., 2.])) LoggingTensor(tensor([3., 3.]))",
        "LoggingTensor(tensor([4., 4.]))",
    ],
    "kernel without operator": ["WrapperTensor(tensor([2., 2.]))"],
}


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Run every case in a child of its own, and give the lines that each printed."""
    file = tmp_path_factory.mktemp("first_use") / "saved.pt"
    first = LoggingTensor(torch.arange(4.0)[1:], requires_grad=True)
    torch.save([first, WrapperTensor(torch.arange(2.0))], file)
    _, text = flatten_state_dict({"w": first})
    code = json.dumps({name: textwrap.dedent(code) for name, code in CASES.items()})
    command = [sys.executable, "-c", PARENT, code, str(file), text]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines: dict[str, list[str]] = {}
    block: list[str] = []
    for line in done.stdout.splitlines():
        name, ended, status = line.partition(" ended with ")
        if ended:
            lines[name], block = [*block, *([] if status == "0" else [done.stderr])], []
        else:
            block.append(line)
    return lines


@pytest.mark.parametrize("case", CASES)
def test_first_use_works(case: str, printed: dict[str, list[str]]) -> None:
    assert printed[case] == WANTED[case]
