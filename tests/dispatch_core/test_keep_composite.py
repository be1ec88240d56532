"""keep_composite: composite operators arrive whole, where and as long as asked."""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import Any

import pytest
import torch
from dispatch_core import (
    UnknownOperatorError,
    keep_composite,
    no_dispatch,
    ops,
    propagate_modes,
)

from tests.dispatch_core.keeping import KL_PARTS, Names, arrived, inputs
from tests.dispatch_core.wrapping import Wrapped

aten = torch.ops.aten


# ── what arrives ──────────────────────────────────────────────────────────────────────────────────


def test_parts_arrive_without_it() -> None:
    x, y = inputs()
    assert arrived(lambda: aten.kl_div(x, y)) == KL_PARTS


def test_kept_operator_arrives_whole_with_what_the_caller_gave() -> None:
    x, y = inputs()
    with keep_composite(aten.kl_div), Names() as names:
        aten.kl_div(x, y)
        aten.kl_div(x, y, 2)
        aten.kl_div(x, y, log_target=True)
        aten.kl_div(x, y, 2, log_target=True)
    assert names.seen == ["kl_div.default"] * 4
    assert [(len(args), kwargs) for _, args, kwargs in names.calls] == [
        (2, {}),
        (3, {}),
        (2, {"log_target": True}),
        (3, {"log_target": True}),
    ]


def test_kept_operator_arrives_whole_at_a_subclass() -> None:
    x, y = inputs()
    Wrapped.arrived.clear()
    with keep_composite(aten.kl_div):
        result = aten.kl_div(Wrapped(x), Wrapped(y))
    assert Wrapped.arrived == [aten.kl_div.default]
    assert torch.equal(result.elem, aten.kl_div(x, y))


@pytest.mark.parametrize(
    "named", [aten.var, aten.var.dim, ops.aten.var, ops.aten.var.dim, "aten::var.dim"]
)
def test_takes_overloads_packets_handles_and_names(named: Any) -> None:
    x, _ = inputs()
    with keep_composite(named):
        assert arrived(lambda: aten.var.dim(x, [0])) == ["var.dim"]
    assert arrived(lambda: aten.var.dim(x, [0])) == ["var.correction"]


def test_overload_leaves_the_others_in_parts() -> None:
    x, _ = inputs()
    with keep_composite(aten.var.dim):
        assert arrived(lambda: aten.var.default(x)) == ["var.correction"]


def test_unknown_name_is_an_error() -> None:
    with pytest.raises(UnknownOperatorError, match="kl_div"):
        keep_composite("aten::kl_dib")


def test_operator_that_is_no_composite_arrives_whole_anyway() -> None:
    x, _ = inputs()
    with keep_composite(aten.exp, aten.kl_div):
        assert arrived(lambda: aten.exp(x)) == ["exp.default"]


def test_mode_outside_gets_the_operator_whole_too() -> None:
    x, y = inputs()
    with keep_composite(aten.kl_div), Names() as outer, Names() as inner:
        aten.kl_div(x, y)
    assert inner.seen == outer.seen == ["kl_div.default"]


def test_no_dispatch_inside_computes() -> None:
    x, y = inputs()
    with keep_composite(aten.kl_div), Names() as names, no_dispatch():
        result = aten.kl_div(x, y)
    assert names.seen == []
    assert torch.equal(result, aten.kl_div(x, y))


# ── scope ─────────────────────────────────────────────────────────────────────────────────────────


def test_nests_also_for_the_same_operator() -> None:
    x, y = inputs()
    with keep_composite(aten.kl_div):
        with keep_composite(aten.kl_div, aten.var):
            assert arrived(lambda: aten.var.default(x)) == ["var.default"]
        assert arrived(lambda: aten.kl_div(x, y)) == ["kl_div.default"]
        assert arrived(lambda: aten.var.default(x)) == ["var.correction"]
    assert arrived(lambda: aten.kl_div(x, y)) == KL_PARTS


def test_the_same_object_may_be_entered_twice() -> None:
    x, y = inputs()
    keep = keep_composite(aten.kl_div)
    with keep:
        with keep:
            pass
        assert arrived(lambda: aten.kl_div(x, y)) == ["kl_div.default"]
    assert arrived(lambda: aten.kl_div(x, y)) == KL_PARTS


def registry(name: str) -> tuple[str, int]:
    return (
        torch._C._dispatch_dump_table(name),
        len(torch._C._dispatch_get_all_op_names()),
    )


def test_leaves_torch_as_it_was_also_after_errors() -> None:
    x, y = inputs()
    before = registry("aten::kl_div")

    def fail_twice() -> None:
        with pytest.raises(RuntimeError), Names():
            aten.kl_div(x, torch.ones(7))
        assert registry("aten::kl_div") != before
        raise KeyError

    with pytest.raises(KeyError), keep_composite(aten.kl_div):
        fail_twice()
    assert registry("aten::kl_div") == before
    assert arrived(lambda: aten.kl_div(x, y)) == KL_PARTS


def test_error_while_it_is_entered_leaves_torch_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    from dispatch_core._composite import _kernels

    put: Any = torch.library.Library.impl
    taken = []

    def refuse_the_second(*args: Any, **kwargs: Any) -> None:
        taken.append(args)
        if len(taken) == 2:
            raise RuntimeError("no more")
        put(*args, **kwargs)

    before = {*_kernels}
    scope = keep_composite(aten.kl_div, aten.linear)
    monkeypatch.setattr(torch.library.Library, "impl", refuse_the_second)
    with pytest.raises(RuntimeError, match="no more"), scope:
        pass
    monkeypatch.undo()
    assert {*_kernels} == before
    x, y = inputs()
    assert arrived(lambda: aten.kl_div(x, y)) == KL_PARTS
    with scope, Names() as names:
        aten.kl_div(x, y)
    assert names.seen == ["kl_div.default"]


def test_may_be_left_out_of_order() -> None:
    x, y = inputs()

    def hold() -> Generator[None]:
        with keep_composite(aten.kl_div):
            yield

    before = registry("aten::kl_div")
    generator = hold()
    next(generator)
    with keep_composite(aten.kl_div):
        generator.close()
        assert arrived(lambda: aten.kl_div(x, y)) == ["kl_div.default"]
    assert registry("aten::kl_div") == before


def test_only_the_entering_thread_is_affected() -> None:
    x, y = inputs()
    found: list[list[str]] = []

    def work() -> None:
        with Names() as names:
            aten.kl_div(x, y)
            with torch.inference_mode():
                aten.var.default(x)
        found.append(names.seen)

    with keep_composite(aten.kl_div, aten.var):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    # Under inference mode torch itself hands composite operators over whole.
    assert found == [[*KL_PARTS, "var.default"]]


def test_is_carried_by_propagate_modes() -> None:
    x, y = inputs()
    found: list[list[str]] = []
    with keep_composite(aten.kl_div):
        thread = threading.Thread(
            target=propagate_modes(lambda: found.append(arrived(lambda: aten.kl_div(x, y))))
        )
        thread.start()
        thread.join()
    assert found == [["kl_div.default"]]


def test_threads_may_keep_and_release_at_the_same_time() -> None:
    x, y = inputs()
    before = registry("aten::kl_div")
    found: list[list[str]] = []

    def work() -> None:
        for _ in range(20):
            with keep_composite(aten.kl_div):
                found.append(arrived(lambda: aten.kl_div(x, y)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [["kl_div.default"]] * 80
    assert registry("aten::kl_div") == before


@pytest.mark.parametrize("kept", [False, True])
def test_inside_inference_mode(kept: bool) -> None:
    x, y = inputs()
    Wrapped.arrived.clear()
    with torch.inference_mode(), keep_composite(*[aten.kl_div] * kept):
        result = aten.kl_div(Wrapped(x), Wrapped(y))
    assert torch.equal(result.elem, aten.kl_div(x, y))
    assert Wrapped.arrived == [aten.kl_div.default]


def test_decorated_function_keeps() -> None:
    x, y = inputs()

    @keep_composite(aten.kl_div)
    def run() -> list[str]:
        return arrived(lambda: aten.kl_div(x, y))

    assert run() == ["kl_div.default"]
    assert arrived(lambda: aten.kl_div(x, y)) == KL_PARTS
