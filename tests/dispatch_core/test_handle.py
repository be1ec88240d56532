"""A handle stands for one overload: it is a key, it can be called, and it says what torch says."""

from __future__ import annotations

import copy
import inspect
import pickle
import threading
from typing import Any

import pytest
import torch
from dispatch_core import Handle, UnknownOperatorError, handle_of, ops
from dispatch_core._registry import spec_index
from dispatch_core._runtime_stub import make_stub
from dispatch_core._schema import read_schema
from torch._dynamo.testing import CompileCounter
from torch.overrides import TorchFunctionMode

NAMES = sorted(torch._C._dispatch_get_all_op_names())
# Facts and tags of the specs are those of the torch they were imported from.
SAME_TORCH = spec_index("aten").torch == torch.__version__.partition("+")[0]  # type: ignore[union-attr]


def handle_for(name: str) -> Handle[Any]:
    return handle_of(name if "." in name else f"{name}.default")


# ── one overload, one handle ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "op",
    [
        torch.ops.aten.addmv.out,
        "aten::addmv.out",
        "aten.addmv.out",
        "torch.ops.aten.addmv.out",
        ops.aten.addmv.out,
    ],
    ids=repr,
)
def test_handle_of_gives_the_same_handle_for_every_name(op: Any) -> None:
    assert handle_of(op) is ops.aten.addmv.out


def test_handle_of_the_default_overload_takes_the_plain_name() -> None:
    assert handle_of("aten::addmv") is handle_of("aten.addmv.default") is ops.aten.addmv.default


def test_handle_of_a_name_without_overload_takes_the_only_one() -> None:
    assert handle_of("aten::unbind").qualified_name == "aten::unbind.int"


def test_handle_of_a_packet_with_one_overload_gives_it() -> None:
    assert handle_of(torch.ops.aten._fw_primal).qualified_name == "aten::_fw_primal"
    assert handle_of(ops.aten._fw_primal) is handle_of("aten::_fw_primal")


@pytest.mark.parametrize("packet", [torch.ops.aten.addmv, ops.aten.addmv], ids=repr)
def test_handle_of_a_packet_with_more_names_them(packet: Any) -> None:
    with pytest.raises(UnknownOperatorError) as caught:
        handle_of(packet)
    assert str(caught.value) == "aten::addmv has 2 overloads, say which one: default, out"
    assert caught.value.suggestions == ("default", "out")


@pytest.mark.parametrize("op", [3, None, torch.ones(1), [], torch.add, {}], ids=repr)
def test_handle_of_something_else_is_a_type_error(op: Any) -> None:
    with pytest.raises(TypeError, match=r"expected an operator of torch\.ops or its name"):
        handle_of(op)


@pytest.mark.parametrize("name", ["", "add", "aten::", "::add", "aten.", "."])
def test_handle_of_what_is_no_name_says_how_names_look(name: str) -> None:
    with pytest.raises(UnknownOperatorError, match=r"write 'aten::addmv' or 'aten::addmv\.out'"):
        handle_of(name)


def test_handle_equals_and_hashes_as_its_operator() -> None:
    handle: Any = ops.aten.addmv.default
    op: Any = torch.ops.aten.addmv.default
    assert handle == op
    assert op == handle
    assert handle != torch.ops.aten.addmv.out
    assert handle != ops.aten.addmv.out
    assert handle != "aten::addmv"
    assert {handle: 1}[op] == {op: 1}[handle] == 1
    assert len({handle, op, ops.aten.addmv.out}) == 2


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_copies_are_the_handle_itself(protocol: int) -> None:
    handle = ops.aten.addmv.out
    assert copy.copy(handle) is copy.deepcopy(handle) is handle
    assert pickle.loads(pickle.dumps(handle, protocol)) is handle
    assert copy.deepcopy({"op": [handle]})["op"][0] is handle


def test_threads_get_the_same_handle() -> None:
    found: list[Handle[Any]] = []
    start = threading.Barrier(8)

    def look() -> None:
        start.wait()
        found.append(handle_of("aten::special_airy_ai"))
        found.append(ops.aten.special_airy_ai.default)

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 16
    assert len(set(map(id, found))) == 1


def test_repr_names_the_overload() -> None:
    assert repr(ops.aten.addmv.default) == "<Handle aten.addmv.default>"
    assert repr(handle_of("aten::add.Tensor")) == "<Handle aten.add.Tensor>"


@pytest.mark.parametrize("name", ["__wrapped__", "_repr_html_", "__array__", "_ipython_display_"])
def test_probes_of_shells_and_tools_find_nothing(name: str) -> None:
    for thing in (ops, ops.aten, ops.aten.addmv, ops.aten.addmv.default):
        assert not hasattr(thing, name)


def test_inspect_takes_a_handle_like_any_callable() -> None:
    assert callable(ops.aten.addmv.default)
    assert inspect.unwrap(ops.aten.addmv.default) is ops.aten.addmv.default
    assert not inspect.isfunction(ops.aten.addmv.default)
    assert inspect.getdoc(ops.aten.addmv.default)


@pytest.mark.parametrize(
    ("name", "signature"),
    [
        ("aten::addmv", "(self, mat, vec, *, beta=1, alpha=1)"),
        ("aten::random_.from", "(self, from_, to, *, generator=None)"),
        ("aten::size", "(self)"),
        ("higher_order::cond", "(pred, true_fn, false_fn, operands)"),
    ],
)
def test_signature_is_the_one_of_the_schema(name: str, signature: str) -> None:
    assert str(inspect.signature(handle_of(name))) == signature


def test_signature_of_the_class_is_its_own() -> None:
    assert str(inspect.signature(Handle)).startswith("(schema: ")


# ── what a handle says is what torch says ───────────────────────────────────────────────────────


@pytest.mark.slow
def test_params_are_those_of_the_schema_of_torch() -> None:
    for name in NAMES:
        handle = handle_for(name)
        schema: Any = torch._C._get_schema(*_split(name))
        assert handle.schema == str(schema)
        assert [param.name for param in handle.params] == [a.name for a in schema.arguments]
        for param, argument in zip(handle.params, schema.arguments, strict=True):
            assert param.kwarg_only == argument.kwarg_only, name
            assert param.required != argument.has_default_value(), name
            assert param.mutated == bool(argument.alias_info and argument.alias_info.is_write)
            assert (param.alias is None) == (argument.alias_info is None), name
            assert param.type.endswith("?") == argument.real_type.str().endswith("?"), name
            default = argument.default_value if argument.has_default_value() else None
            if default is not None and param.type.rstrip("?") not in ("ScalarType", "MemoryFormat"):
                assert param.default == default, name
        assert len(handle.returns) == len(schema.returns) or "..." in handle.schema


def test_params_of_one_overload() -> None:
    param = ops.aten.randint.default.params[2]
    assert (param.name, param.type, param.kwarg_only) == ("dtype", "ScalarType?", True)
    assert param.default is torch.int64
    out = ops.aten.addmv.out.params[-1]
    assert (out.name, out.alias, out.mutated, out.required) == ("out", "a!", True, True)
    stride = ops.aten.avg_pool2d.default.params[2]
    assert (stride.type, stride.default) == ("int[2]", [])
    assert ops.aten.avg_pool2d.default.params[3].default == [0, 0]
    assert ops.aten.contiguous.default.params[1].default is torch.contiguous_format
    assert ops.aten.addmv.out.returns == ("Tensor(a!)",)
    assert ops.aten.split.Tensor.returns == ("Tensor(a)[]",)
    assert ops.aten.split.Tensor.params[0].alias == "a -> *"


@pytest.mark.slow
def test_facts_agree_with_torch() -> None:
    for name in NAMES:
        handle = handle_for(name)
        op = handle.torch_op
        facts = handle.facts
        # Of these torch says so too, which give nothing back.
        assert facts.view == (op.is_view and bool(op._schema.returns)), name
        if handle.from_spec:
            assert facts.family, name
        if SAME_TORCH:
            assert facts.composite == handle._live_composite(), name
        assert not SAME_TORCH or handle.tags == {tag.name for tag in op.tags}, name
        for tag, said in (("inplace", facts.inplace), ("out", facts.out)):
            if tag in handle.tags:
                assert said, name
        if "nondeterministic_seeded" in handle.tags:
            assert facts.random, name
        if "data_dependent_output" in handle.tags:
            assert facts.reads_data != "no", name
        if "dynamic_output_shape" in handle.tags:
            assert facts.output_shape == "dynamic", name


def test_facts_of_some_overloads() -> None:
    assert ops.aten.add_.Tensor.facts.inplace
    assert ops.aten.add_.Tensor.facts.mutates == ("self",)
    norm = ops.aten.native_batch_norm.out.facts  # the schema says but what is behind the first two
    assert norm.mutates == ("running_mean", "running_var", "out", "save_mean", "save_invstd")
    assert ops.aten.addmv.out.facts.out
    assert not ops.aten.addmv.out.facts.inplace
    assert ops.aten.view.default.facts.view
    assert ops.aten.addmv.default.facts.family == "blas"
    assert ops.aten.matmul.default.facts.composite == "implicit"
    assert ops.aten.bernoulli.default.facts.random
    assert ops.rngprims.philox_rand.default.facts.random  # by a tag that Python adds
    assert ops.aten.nonzero.default.facts.output_shape == "dynamic"
    assert ops.aten._local_scalar_dense.default.facts.reads_data == "always"


@pytest.mark.slow
def test_generated_stubs_bind_as_stubs_made_from_the_schema() -> None:
    for name in NAMES:
        handle = handle_for(name)
        if not handle.from_spec:
            continue
        made = make_stub(read_schema(handle.schema))
        params = [param for param in handle.params if not param.kwarg_only and param.required]
        only = {p.name: p.name for p in handle.params if p.kwarg_only and p.required}
        args = tuple(param.name for param in params)
        got, want = handle.bind(args, only), made(*args, **only)
        assert list(got) == list(want), name
        assert got == want, name
        assert [type(value) for value in got.values()] == [type(v) for v in want.values()], name


# ── running the operator ────────────────────────────────────────────────────────────────────────


def test_call_runs_the_operator() -> None:
    x, matrix = torch.ones(2), torch.ones(2, 2)
    assert ops.aten.addmv.default(x, matrix, x, beta=2).tolist() == [4.0, 4.0]
    assert ops.aten.addmv.default(self=x, mat=matrix, vec=x).tolist() == [3.0, 3.0]
    out = torch.empty(2)
    assert ops.aten.addmv.out(x, matrix, x, out=out) is out


def test_call_raises_what_torch_raises() -> None:
    with pytest.raises(RuntimeError, match="missing value for argument 'other'"):
        ops.aten.mul.Tensor(torch.ones(2))  # type: ignore[call-arg]


def test_call_is_seen_by_function_modes_as_the_operator_of_torch() -> None:
    seen = []

    class Watch(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    x = torch.ones(2)
    with Watch():
        ops.aten.mul.Tensor(x, 2)
    assert seen == [torch.ops.aten.mul.Tensor]


def test_call_of_an_operator_with_script_objects_runs() -> None:
    handle = handle_of("profiler::_record_function_enter_new")
    record = handle("name", None)
    handle_of("profiler::_record_function_exit._RecordFunction")(record)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_call_compiles_into_one_graph() -> None:
    counter = CompileCounter()
    handle = ops.aten.arctanh.default  # resolved by nobody else, so the first use is traced

    def function(x: torch.Tensor) -> torch.Tensor:
        return handle(ops.aten.mul.Tensor(x, 0.5)) + 1

    x = torch.tensor([0.5, -0.5])
    compiled = torch.compile(function, backend=counter, fullgraph=True)
    torch.testing.assert_close(compiled(x), torch.atanh(x * 0.5) + 1)
    assert (counter.frame_count, counter.op_count) == (1, 3)


# ── higher-order operators ──────────────────────────────────────────────────────────────────────


def test_higher_order_operator_has_a_handle_that_is_a_key() -> None:
    cond = torch.ops.higher_order.cond
    handle = handle_of(cond)
    assert handle is ops.higher_order.cond is handle_of("higher_order::cond")
    assert handle == cond
    assert {handle: 1}[cond] == {cond: 1}[handle] == 1
    assert pickle.loads(pickle.dumps(handle)) is handle
    assert repr(handle) == "<Handle higher_order.cond>"
    assert handle.torch_op is cond
    assert not handle.from_spec
    assert handle.drift == "a higher-order operator: it has no schema"


def test_higher_order_operator_binds_by_its_own_signature() -> None:
    handle = handle_of(torch.ops.higher_order.cond)
    values = handle.bind((True, abs), {"false_fn": len, "operands": (1,)})
    assert values == {"pred": True, "true_fn": abs, "false_fn": len, "operands": (1,)}
    assert handle.elide(values) == ((True, abs, len, (1,)), {})
    with pytest.raises(TypeError, match=r"higher_order::cond: missing a required argument"):
        handle.bind((True,))


def test_every_higher_order_operator_has_a_handle() -> None:
    for op in torch._ops._higher_order_ops.values():
        handle = handle_of(op)
        assert handle == op
        assert handle.params is not None
        assert handle.facts.mutates == ()


def _split(name: str) -> tuple[str, str]:
    base, _, overload = name.partition(".")
    return base, overload


@pytest.mark.parametrize("name", ["aten::mm.", "aten.mm.", "torch.ops.aten.mm."])
def test_name_that_ends_in_a_dot_is_no_name(name: str) -> None:
    with pytest.raises(UnknownOperatorError, match="is no name of an operator"):
        handle_of(name)
