"""Graph breaks, limits, stances, filters of guards, and errors that show the user's stack."""

from __future__ import annotations

from typing import Any

import torch

from tests.guards.fidelity.record import Record

X = torch.arange(4.0)


def graph_break(r: Record) -> None:
    def inner(x: Any) -> Any:
        torch._dynamo.graph_break()
        return x * 3

    @r.compile
    def f(x: Any, n: Any) -> Any:
        y = x + n
        print("seen")
        return inner(y) - 1

    for x, n in ((X, 1), (X, 2), (X[:2], 2), (X.double(), 1)):
        r.call(f, x, n)


def graph_break_under_fullgraph(r: Record) -> None:
    def inner(x: Any) -> Any:
        torch._dynamo.graph_break(msg="on purpose")
        return x

    r.call(r.compile(lambda x: inner(x) + 1, fullgraph=True), X)


def disabled_function(r: Record) -> None:
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def slow(x: Any) -> Any:
        return x + len(str(x))

    r.call(r.compile(lambda x: slow(x * 2) * 2), X)
    r.call(r.compile(lambda x: slow(x) * 2, fullgraph=True), X)


def recompile_limit(r: Record) -> None:
    with torch._dynamo.config.patch(recompile_limit=3):
        f = r.compile(lambda x, n: x + n, dynamic=False)
        for n in range(6):
            r.call(f, X, n)


def recompile_limit_under_fullgraph(r: Record) -> None:
    with torch._dynamo.config.patch(recompile_limit=2):
        f = r.compile(lambda x, n: x + n, dynamic=False, fullgraph=True)
        for n in range(4):
            r.call(f, X, n)


def accumulated_recompile_limit(r: Record) -> None:
    with torch._dynamo.config.patch(accumulated_recompile_limit=3, recompile_limit=2):
        for scale in range(5):

            def f(x: Any) -> Any:
                return x * scale  # noqa: B023

            r.call(r.compile(f, dynamic=False), X)


def recompile_limit_that_raises(r: Record) -> None:
    with torch._dynamo.config.patch(recompile_limit=1, fail_on_recompile_limit_hit=True):
        f = r.compile(lambda x, n: x + n, dynamic=False)
        for n in range(3):
            r.call(f, X, n)


def error_on_recompile(r: Record) -> None:
    with torch._dynamo.config.patch(error_on_recompile=True):
        f = r.compile(lambda x, n: x + n, dynamic=False)
        for n in (1, 2):
            r.call(f, X, n)


def stances(r: Record) -> None:
    f = r.compile(lambda x, n: x + n, dynamic=False)
    r.call(f, X, 1)
    for stance in ("force_eager", "eager_on_recompile", "fail_on_recompile",
                   "eager_then_compile", "default"):  # fmt: skip
        with torch.compiler.set_stance(stance):
            r.note(stance)
            r.call(f, X, 1)
            r.call(f, X, 2)
            r.call(f, X[:2], 3)


def skip_guard_eval(r: Record) -> None:
    f = r.compile(lambda x, n: x + n, dynamic=False)
    r.call(f, X, 1)
    r.call(f, X, 2)
    with torch.compiler.set_stance(skip_guard_eval_unsafe=True):
        r.call(f, X, 2)


def guard_filter(r: Record) -> None:
    seen: list[Any] = []

    def keep(entries: Any) -> list[bool]:
        seen.append(
            sorted({(e.guard_type, e.name, e.is_global, *e.derived_guard_types) for e in entries})
        )
        return [e.guard_type != "CONSTANT_MATCH" for e in entries]

    f = r.compile(lambda x, n: x + n, dynamic=False, options={"guard_filter_fn": keep})
    for n in (1, 2):
        r.call(f, X, n)
    r.note(seen)
    for name in ("skip_guard_on_inbuilt_nn_modules_unsafe", "skip_guard_on_globals_unsafe",
                 "keep_tensor_guards_unsafe", "skip_all_guards_unsafe"):  # fmt: skip
        torch.compiler.reset()
        filter_fn = getattr(torch.compiler, name, None)
        if filter_fn is not None:
            g = r.compile(lambda x, n: x + n, dynamic=False, options={"guard_filter_fn": filter_fn})
            for n in (1, 2):
                r.call(g, X, n)


def error_in_the_program(r: Record) -> None:
    def inner(x: Any) -> Any:
        raise ValueError("of the user")

    def middle(x: Any) -> Any:
        return inner(x) + 1

    r.call(r.compile(lambda x: middle(x * 2)), X)
    r.call(r.compile(lambda x: middle(x * 2), fullgraph=True), X)


def error_in_an_operator(r: Record) -> None:
    def inner(x: Any) -> Any:
        return x @ torch.ones(7)

    def middle(x: Any) -> Any:
        return inner(x) + 1

    r.call(r.compile(middle, fullgraph=True), X)
    r.call(r.compile(middle), X)


def error_in_the_backend(r: Record) -> None:
    def backend(gm: Any, inputs: Any) -> Any:
        raise RuntimeError("of the backend")

    def inner(x: Any) -> Any:
        return x + 1

    def middle(x: Any) -> Any:
        return inner(x) + 1

    r.call(torch.compile(inner, backend=backend), X)
    with torch._dynamo.config.patch(suppress_errors=True):
        r.call(torch.compile(middle, backend=backend), X)


def unsupported(r: Record) -> None:
    def inner(x: Any) -> Any:
        import inspect

        return x + len(inspect.stack())

    r.call(r.compile(lambda x: inner(x), fullgraph=True), X)
    r.call(r.compile(lambda x: (yield x), fullgraph=True), X)


def explain(r: Record) -> None:
    def f(x: Any) -> Any:
        y = x + 1
        print("seen")
        return y * 2

    explanation = torch._dynamo.explain(f)(X)
    r.note(explanation.graph_count, explanation.graph_break_count, explanation.op_count)
    r.note([str(reason.reason) for reason in explanation.break_reasons])
    r.note([[str(frame) for frame in reason.user_stack] for reason in explanation.break_reasons])
    r.note(
        sorted((g.create_fn_name(), g.name, str(g.source)) for g in explanation.out_guards or ())
    )
