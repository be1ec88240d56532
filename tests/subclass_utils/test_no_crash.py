"""What would touch memory that a wrapper does not have raises; the interpreter never dies."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from subclass_utils import LayoutError, LoggingTensor

PREPARE = """
import copy, io, numpy, pickle, torch
from dispatch_core import no_dispatch
from subclass_utils import LoggingTensor
from tests.subclass_utils.wrappers import Measured, Requantised
w = {wrapper}
plain = torch.ones(3)
module = torch.nn.Linear(2, 2)
module.weight = torch.nn.Parameter(LoggingTensor(module.weight.detach()))
"""

# Each kind of wrapper, and where its memory is.
KINDS = {
    "transparent": ("LoggingTensor(torch.ones(3))", "elem"),
    "nested": ("Measured(LoggingTensor(torch.ones(3)))", "elem"),
    "to_plain": ("Requantised.from_plain(torch.ones(3))", "numbers"),
    "view of to_plain": ("Requantised.from_plain(torch.ones(3, 2))[:, 0]", "to_plain()"),
}
ATTEMPTS = {
    "share_memory_": ("w.share_memory_()", "share_memory_"),
    "from_dlpack": ("torch.from_dlpack(w)", "torch.from_dlpack(tensor.to_plain())"),
    "numpy.from_dlpack": ("numpy.from_dlpack(w)", "torch.from_dlpack(tensor.to_plain())"),
    "apply_": ("w.apply_(lambda x: x)", "{inner}.apply_"),
    "map_": ("w.map_(plain, lambda x, y: x)", "{inner}.map_"),
    "map2_": ("w.map2_(plain, plain, lambda x, y, z: x)", "{inner}.map2_"),
    "numpy": ("w.numpy()", "to_plain().numpy()"),
    "numpy force": ("w.numpy(force=True)", "to_plain().numpy()"),
    "asarray": ("numpy.asarray(w)", "to_plain().numpy()"),
    "array of wrappers": ("numpy.array([w, w])", "to_plain().numpy()"),
    "part of an array": ("a = numpy.ones(3); a[:] = w", "to_plain().numpy()"),
    "ufunc": ("numpy.sin(w)", "to_plain().numpy()"),
    "tolist": ("w.tolist()", "to_plain().tolist()"),
    "data_ptr": ("w.data_ptr()", "{inner}.data_ptr()"),
    "storage": ("w.storage()", "{inner}.untyped_storage()"),
    "Module.share_memory": ("module.share_memory()", "share_memory_"),
    "no_dispatch read": ("with no_dispatch(): w + 1", "memory"),
    "no_dispatch write": ("with no_dispatch(): w.add_(1)", "memory"),
    "no_dispatch plain": ("with no_dispatch(): plain.add_(w)", "memory"),
    "no_dispatch view": ("with no_dispatch(): w[1:].sum()", "memory"),
    "no_dispatch list": ("with no_dispatch(): torch.cat([plain, w])", "memory"),
    "no_dispatch stack": ("with no_dispatch(): torch.stack([w, w])", "memory"),
    "torch.tensor": ("torch.tensor([w[0], w[1]])", ""),
    "torch.tensor of lists": ("torch.tensor([[w[0]], [w[1]]])", ""),
    "as_tensor of a list": ("torch.as_tensor([w[0]])", ""),
    "asarray of a list": ("torch.asarray([w[0]])", ""),
    "FloatTensor of a list": ("torch.FloatTensor([w[0], w[1]])", ""),
    "new_tensor of a list": ("plain.new_tensor([w[0]])", ""),
    "set_ of a plain one": ("torch.ones(1).set_(w.untyped_storage()) + 1", ""),
    "set_ in places": ("torch.ones(0).set_(w.untyped_storage(), 0, (3,)).sum()", ""),
    "set_ of itself": ("w.set_(w.untyped_storage()); w + 1", ""),
    "ByteTensor": ("torch.ByteTensor(w.untyped_storage()) + 1", ""),
    "plain.data": ("plain.data = w", ""),
    "Parameter.data": ("torch.nn.Parameter(plain).data = w", ""),
    "copy out": ("torch.ones(3).untyped_storage().copy_(w.untyped_storage())", ""),
    **{
        f"untyped_storage {attempt}": (code, "{inner}.untyped_storage()")
        for attempt, code in {
            "data_ptr": "w.untyped_storage().data_ptr()",
            "share_memory_": "w.untyped_storage().share_memory_()",
            "tolist": "w.untyped_storage().tolist()",
            "item": "w.untyped_storage()[0]",
            "set item": "w.untyped_storage()[0] = 1",
            "bytes": "bytes(w.untyped_storage())",
            "clone": "w.untyped_storage().clone()",
            "copy_": "w.untyped_storage().copy_(w.untyped_storage())",
            "fill_": "w.untyped_storage().fill_(0)",
            "resize_": "w.untyped_storage().resize_(100)",
            "cpu": "w.untyped_storage().cpu()",
            "float": "w.untyped_storage().float()",
            "deepcopy": "copy.deepcopy(w.untyped_storage())",
            "pickle": "pickle.dumps(w.untyped_storage())",
            "save": "torch.save(w.untyped_storage(), io.BytesIO())",
        }.items()
    },
}
# A view of a wrapper that stands for a plain value gives its values.
ANSWERED = {("view of to_plain", "tolist")}
CASES = [(kind, attempt) for kind in KINDS for attempt in ATTEMPTS]

RUN = """
for name, (code, _) in ATTEMPTS.items():
    try:
        exec(code)
    except Exception as error:
        print(name, type(error).__name__, str(error).replace(chr(10), " "), sep="|", flush=True)
    else:
        print(name, "nothing raised", "", sep="|", flush=True)
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


def answers_of(wrapper: str) -> dict[str, tuple[str, str]]:
    """Try everything in one process; where it dies, go on behind that in another."""
    found: dict[str, tuple[str, str]] = {}
    prepare = PREPARE.format(wrapper=wrapper)
    while len(found) < len(ATTEMPTS):
        rest = {name: attempt for name, attempt in ATTEMPTS.items() if name not in found}
        done = run(f"{prepare}\nATTEMPTS = {rest!r}\n{RUN}")
        lines = [line.split("|", 2) for line in done.stdout.splitlines() if line.count("|") >= 2]
        found.update({name: (kind, text) for name, kind, text in lines})
        if done.returncode:
            died = next((name for name in rest if name not in found), None)
            if died is None:
                break
            found[died] = ("died", f"exit status {done.returncode}: {done.stderr[-500:]}")
    return found


@pytest.fixture(scope="module")
def answers() -> dict[str, dict[str, tuple[str, str]]]:
    return {kind: answers_of(wrapper) for kind, (wrapper, _) in KINDS.items()}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "attempt"), CASES)
def test_attempt_raises_and_names_the_way_out(
    kind: str, attempt: str, answers: dict[str, dict[str, tuple[str, str]]]
) -> None:
    error, text = answers[kind][attempt]
    if (kind, attempt) in ANSWERED:
        assert error == "nothing raised"
        return
    if not ATTEMPTS[attempt][1]:  # torch's own error, before anybody can be asked
        assert error in ("RuntimeError", "NotImplementedError", "ViewError")
        return
    assert error in ("MemorylessError", "TypeError" if "dlpack" in attempt else "MemorylessError")
    assert ATTEMPTS[attempt][1].format(inner=KINDS[kind][1]) in text


def test_storages_tell_who_shares_memory() -> None:
    x, other = LoggingTensor(torch.ones(3)), LoggingTensor(torch.ones(3))
    storage, of_view = x.untyped_storage(), x[1:].untyped_storage()
    assert isinstance(storage, torch.UntypedStorage)
    assert storage._cdata == of_view._cdata != other.untyped_storage()._cdata
    assert storage.nbytes() == 12
    again, part = LoggingTensor(x.elem), LoggingTensor(x.elem[1:])
    assert again[1:].untyped_storage()._cdata == part.untyped_storage()._cdata == storage._cdata
    assert repr(storage) == "<NoStorage of a LoggingTensor>"


NESTED: dict[str, Any] = {
    "strided": lambda x: torch.nested.nested_tensor([x, x]),
    "jagged": lambda x: torch.nested.nested_tensor([x, x], layout=torch.jagged),
    "as strided": lambda x: torch.nested.as_nested_tensor([x, x]),
    "as jagged": lambda x: torch.nested.as_nested_tensor([x, x], layout=torch.jagged),
    "constructor": lambda x: LoggingTensor(torch.nested.nested_tensor([x.elem, x.elem])),
    "masked": lambda x: torch._nested_tensor_from_mask(
        x.view(1, 3, 1), LoggingTensor(torch.ones(1, 3) > 0)
    ),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
@pytest.mark.parametrize("kind", NESTED)
def test_nested_tensor_cannot_be_wrapped(kind: str) -> None:
    with pytest.raises(
        LayoutError, match=r"a nested tensor has no size.*tensor.elem.*enable_nested_tensor=False"
    ):
        NESTED[kind](LoggingTensor(torch.ones(3)))


ZEROS = {  # torch takes no memory for these zeros, and in a handler its kernels do not ask for it
    "transparent": "LoggingTensor(zeros())",
    "nested": "Measured(LoggingTensor(zeros()))",
    "a factor": "Requantised(torch.ones(3, dtype=torch.int16), zeros(()))",
    "by name": "Requantised(numbers=torch.ones(3, dtype=torch.int16), scale=zeros(()))",
    "from_plain": "LoggingTensor.from_plain(zeros())",
    "copied into": "LoggingTensor(torch.ones(3)).copy_(zeros())",
    "data": "setattr(w, 'data', zeros()) or w",
    "made in the mode": "made_in_mode()",
}
ASK = """
from dispatch_core import enable_python_mode
def zeros(size=(3,)):
    return torch.ops.aten._efficientzerotensor(size)
def made_in_mode():
    with enable_python_mode(LoggingTensor):
        return zeros()
for name, code in {zeros}.items():
    x = eval(code) + 1
    while hasattr(x, "to_plain"):
        x = x.to_plain()
    print(name, x.tolist(), flush=True)
"""


@pytest.mark.slow
def test_zeros_without_memory_are_zeros() -> None:
    prepare = PREPARE.format(wrapper="LoggingTensor(torch.ones(3))")
    done = run(prepare + ASK.format(zeros=ZEROS))
    assert done.stdout.splitlines() == [f"{name} [1.0, 1.0, 1.0]" for name in ZEROS], done.stderr
