"""The tree `ops.<namespace>.<op>.<overload>`: found when used, complete, with near matches."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from typing import Any

import pytest
import torch
from dispatch_core import Handle, UnknownOperatorError, handle_of, ops
from dispatch_core._ops import OpNamespace, OpPacket


def library(namespace: str, *schemas: str) -> torch.library.Library:
    made = torch.library.Library(namespace, "FRAGMENT")
    for schema in schemas:
        made.define(schema)
    return made


# ── nothing before its time ─────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_import_makes_no_operator_and_loads_families_when_used() -> None:
    code = """
import sys, torch
made = []
init = torch._ops.OpOverload.__init__
def count(self, *args, **kwargs):
    made.append(args)
    init(self, *args, **kwargs)
torch._ops.OpOverload.__init__ = count

def families():
    names = (name.partition("dispatch_core._generated.aten.")[2] for name in sys.modules)
    return sorted(name for name in names if name and name != "_index")

from dispatch_core import ops, handle_of
assert not made and not families(), (made, families())
handle = ops.aten.ger.default  # which torch does not use on its own
handle.bind((1, 2)), handle.params, handle.facts, handle.schema
assert not made and families() == ["blas"], (made, families())
assert "ger" in dir(ops.aten) and "aten" in dir(ops) and "out" in dir(ops.aten.ger)
assert not made and families() == ["blas"], (made, families())
handle(torch.ones(2), torch.ones(2))
assert len(made) == 1
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


# ── what there is ───────────────────────────────────────────────────────────────────────────────


def test_each_level_gives_the_next() -> None:
    assert isinstance(ops.aten, OpNamespace)
    assert isinstance(ops.aten.addmv, OpPacket)
    assert isinstance(ops.aten.addmv.default, Handle)
    assert ops.aten is ops.aten
    assert ops.aten.addmv is ops.aten.addmv
    assert ops.aten.addmv.default is handle_of(torch.ops.aten.addmv.default)


def test_names_that_python_has_other_uses_for_are_operators() -> None:
    assert getattr(ops.aten, "__and__").Tensor == torch.ops.aten.__and__.Tensor  # noqa: B009
    assert getattr(ops.aten.random_, "from") == getattr(torch.ops.aten.random_, "from")


def test_operators_of_torchscript_only_are_there() -> None:
    assert ops.aten.size.default == torch.ops.aten.size.default
    assert ops.aten.size.default.bind((1,)) == {"self": 1}


def test_iterating_a_namespace_gives_its_operators() -> None:
    packets = list(ops.aten)
    assert all(isinstance(packet, OpPacket) for packet in packets)
    names = {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    wanted = {name for name in names if name.startswith("aten::")}
    assert {packet.qualified_name for packet in packets} == wanted


def test_iterating_a_packet_gives_the_handles_of_its_overloads() -> None:
    assert list(ops.aten.addmv) == [ops.aten.addmv.default, ops.aten.addmv.out]
    assert ops.aten.addmv.overloads() == ("default", "out")


def test_iterating_the_root_gives_the_namespaces() -> None:
    names = [repr(namespace) for namespace in ops]
    assert names == sorted(names)
    assert {"<OpNamespace aten>", "<OpNamespace prims>", "<OpNamespace higher_order>"} <= set(names)


def test_dir_names_what_can_be_written_after_the_dot() -> None:
    assert {"aten", "prims", "quantized", "higher_order"} <= set(dir(ops))
    assert {"add", "addmv", "_foreach_add_", "__and__"} <= set(dir(ops.aten))
    assert {"Tensor", "Scalar", "out"} <= set(dir(ops.aten.add))
    assert "cond" in dir(ops.higher_order)


def test_dir_names_each_thing_once_also_when_it_was_used() -> None:
    assert repr(ops.aten.add.Tensor) == repr(ops.aten.add.Tensor)  # now each object holds the next
    for branch in (ops, ops.aten, ops.aten.add):
        names = list(branch.__dir__())
        assert names == sorted(set(names)), branch
        assert "__class__" in names


def test_packet_picks_the_overload_by_the_arguments() -> None:
    assert ops.aten.add(torch.ones(1), 2).tolist() == [3.0]
    assert ops.aten.add(torch.ones(1), torch.ones(1), alpha=3).tolist() == [4.0]
    assert ops.aten.addmv.torch_packet is torch.ops.aten.addmv


@pytest.mark.parametrize("thing", [ops, ops.aten, ops.aten.addmv], ids=repr)
def test_copies_are_the_thing_itself(thing: Any) -> None:
    assert copy.copy(thing) is copy.deepcopy(thing) is thing
    assert pickle.loads(pickle.dumps(thing)) is thing


def test_repr_names_the_place_in_the_tree() -> None:
    assert repr(ops) == "<dispatch_core.ops>"
    assert repr(ops.aten) == "<OpNamespace aten>"
    assert repr(ops.aten.addmv) == "<OpPacket aten.addmv>"


def test_torch_ops_is_that_of_torch() -> None:
    from dispatch_core import torch_ops

    assert torch_ops.ops is torch.ops


# ── what there is not ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "atn",
            "no operators are registered in the namespace 'atn'; did you mean aten?",
        ),
        ("aten.addvm", "aten has no operator 'addvm'; did you mean addmv or addmm or add?"),
        ("aten.Addmv", "aten has no operator 'Addmv'; did you mean addmv or addmv_?"),
        ("aten.qqqqqq", "aten has no operator 'qqqqqq'"),
        ("aten.addmv.outt", "aten::addmv has no overload 'outt'; it has default, out"),
        ("aten.unbind.default", "aten::unbind has no overload 'default'; it has int"),
    ],
)
def test_misspelt_name_gives_near_matches(path: str, message: str) -> None:
    *parents, last = path.split(".")
    place: Any = ops
    for name in parents:
        place = getattr(place, name)
    with pytest.raises(UnknownOperatorError) as caught:
        getattr(place, last)
    assert str(caught.value) == message
    assert not hasattr(place, last)
    assert getattr(place, last, None) is None


def test_unknown_name_gives_the_same_error_from_handle_of() -> None:
    with pytest.raises(UnknownOperatorError) as caught:
        handle_of("aten::addvm.out")
    assert str(caught.value) == "aten has no operator 'addvm'; did you mean addmv or addmm or add?"
    assert caught.value.qualified_name == "aten::addvm.out"
    assert caught.value.suggestions == ("addmv", "addmm", "add")


def test_error_survives_a_process_boundary() -> None:
    with pytest.raises(UnknownOperatorError) as caught:
        _ = ops.aten.addvm  # type: ignore[attr-defined]
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert again.suggestions == caught.value.suggestions


# ── namespaces that come later ──────────────────────────────────────────────────────────────────


def test_library_registered_later_is_found() -> None:
    assert not hasattr(ops, "dc_later")
    held = library("dc_later", "twice(Tensor x, *, float scale=1.0) -> Tensor")
    held.impl("twice", lambda x, *, scale=1.0: x * 2 * scale, "CPU")
    handle = ops.dc_later.twice.default
    assert handle.torch_op is torch.ops.dc_later.twice.default
    assert handle(torch.ones(1), scale=2.0).tolist() == [4.0]
    assert "dc_later" in dir(ops)
    assert "twice" in dir(ops.dc_later)
    assert not handle.from_spec
    assert handle.drift == "the specs do not have it; this is torch's own schema"


def test_library_taken_back_is_unknown_again() -> None:
    held = library("dc_gone", "f(Tensor x) -> Tensor")
    first = handle_of("dc_gone::f")
    assert first.torch_op is torch.ops.dc_gone.f.default
    held._destroy()
    with pytest.raises(UnknownOperatorError):
        handle_of("dc_gone::f")
    held = library("dc_gone", "f(Tensor x, int n=1) -> Tensor")
    second = handle_of(torch.ops.dc_gone.f.default)
    assert second is handle_of("dc_gone::f") is ops.dc_gone.f.default
    assert [param.name for param in second.params] == ["x", "n"]
    assert held.ns == "dc_gone"


def test_odd_types_of_a_library_are_read() -> None:
    held = library(
        "dc_odd",
        "f(Tensor[][] x, Tensor?[] t, Dict(str, Tensor)? d=None, str s='a,)\"', *, int[2] z=3, "
        "(int, Tensor)[] p, Tensor(a!) out) -> (Tensor(a!), int[])",
        "g(__torch__.torch.classes.quantized.LinearPackedParamsBase[] w, Any a) -> ()",
    )
    handle = handle_of("dc_odd::f")
    assert [param.type for param in handle.params] == [
        "Tensor[][]",
        "Tensor?[]",
        "Dict(str, Tensor)?",
        "str",
        "int[2]",
        "(int, Tensor)[]",
        "Tensor",
    ]
    assert [param.default for param in handle.params[2:5]] == [None, 'a,)"', [3, 3]]
    assert handle.returns == ("Tensor(a!)", "int[]")
    values = handle.bind(([], []), {"p": [], "out": None, "z": 4})
    assert handle.elide(values) == (([], []), {"z": [4, 4], "p": [], "out": None})
    assert handle_of("dc_odd::g").bind(([], 1)) == {"w": [], "a": 1}
    assert handle_of("dc_odd::g").returns == ()
    assert held.ns == "dc_odd"
