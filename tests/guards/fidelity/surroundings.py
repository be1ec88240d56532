"""Export, aliased inputs, compiled autograd, threads, saved guards, subclasses."""

from __future__ import annotations

import threading
from typing import Any

import torch

from tests.guards.fidelity.record import Record

X = torch.arange(4.0)


class _Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)
        self.register_buffer("shift", torch.ones(2))

    def forward(self, x: Any, scale: int = 2) -> Any:
        return (self.linear(x) + self.shift) * scale


def export(r: Record) -> None:
    for strict in (False, True):
        program = torch.export.export(_Net(), (torch.ones(3, 4),), strict=strict)
        r.note(str(program.graph), str(program.graph_signature), str(program.range_constraints))
        r.call(program.module(), torch.ones(3, 4))
        r.call(program.module(), torch.ones(5, 4))


def export_with_dynamic_shapes(r: Record) -> None:
    batch = torch.export.Dim("batch", min=2, max=16)
    for strict in (False, True):
        for dims in ({0: batch}, {0: torch.export.Dim.AUTO}, {1: batch}):
            program = r.call(
                lambda: torch.export.export(
                    _Net(),
                    (torch.ones(3, 4),),
                    dynamic_shapes={"x": dims, "scale": None},  # noqa: B023
                    strict=strict,  # noqa: B023
                )
            )
            if program is not None:
                r.note(str(program.range_constraints))
                r.call(program.module(), torch.ones(7, 4))
                r.call(program.module(), torch.ones(17, 4))


def export_saved_and_loaded(r: Record) -> None:
    import io

    file = io.BytesIO()
    torch.export.save(torch.export.export(_Net(), (torch.ones(3, 4),)), file)
    file.seek(0)
    loaded = torch.export.load(file)
    r.note(str(loaded.graph))
    decomposed = loaded.run_decompositions()
    r.note(str(decomposed.graph))


def duplicate_inputs(r: Record) -> None:
    f = r.compile(lambda x, y: x.add_(1) + y)
    x, y = X.clone(), X.clone()
    for args in ((x, y), (x, x), (y, y), (x, y)):
        r.call(f, *args)


def aliased_inputs(r: Record) -> None:
    @r.compile
    def f(x: Any, y: Any) -> Any:
        x.mul_(2)
        return x.sum() + y

    base = torch.arange(12.0)
    for args in (
        (base[:4], base[4:8]),
        (base[:4], base[2:6]),
        (base[:4], base[8:12]),
        (base[:4].clone(), base[4:8].clone()),
        (base[:4], base[:4].view(2, 2).view(4)),
    ):
        r.call(f, *args)
    r.note(base)


def three_aliased_inputs(r: Record) -> None:
    @r.compile
    def f(x: Any, y: Any, z: Any) -> Any:
        x.add_(1)
        z.mul_(3)
        return x, y * 2, z.sum()

    base = torch.arange(12.0)
    for starts in ((0, 4, 8), (0, 2, 8), (0, 4, 6), (0, 0, 0), (0, 4, 8)):
        r.call(f, *(base[s : s + 4] for s in starts))


def compiled_autograd(r: Record) -> None:
    from torch._dynamo import compiled_autograd as ca

    w = torch.ones(4, requires_grad=True)

    def hook(grad: Any) -> Any:
        return grad * 2

    @r.compile
    def f(x: Any) -> Any:
        return (x * w).sin().sum()

    for n in (4, 4):
        with ca._enable(torch.compile(backend=r.backend)):
            y = f(torch.ones(n))
            y.register_hook(hook)
            y.backward()
        r.note(w.grad)
        w.grad = None
    with torch._dynamo.config.patch(compiled_autograd=True):

        @r.compile
        def step(x: Any) -> Any:
            y = (x * w).cos().sum()
            y.backward()
            return y

        for n in (4, 4):
            r.call(step, torch.ones(n))
            r.note(w.grad)


def threads(r: Record) -> None:
    f: Any = r.compile(lambda x, n: x * n, dynamic=False)
    seen: dict[int, Any] = {}

    def work(n: int) -> None:
        context = torch._guards.TracingContext.try_get()
        seen[n] = [context is None, [f(torch.ones(k), n).tolist() for k in (2, 3, 2)]]

    for n in range(4):  # one after the other, so that the order of compilations is fixed
        thread = threading.Thread(target=work, args=(n,))
        thread.start()
        thread.join()
    r.note(seen)


def threads_at_once(r: Record) -> None:
    r.log_matters = False  # its order is not fixed
    functions = [r.compile(lambda x, k=k: x * k + k, dynamic=False) for k in range(4)]
    results: dict[int, Any] = {}
    start = threading.Barrier(4)

    def work(k: int) -> None:
        start.wait()
        results[k] = [functions[k](torch.ones(n)).tolist() for n in (2, 3, 2)]

    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    r.note(sorted(results.items()), len(r.compilations))
    r.compilations = sorted([c[1:] for c in r.compilations], key=str)


def saved_guards(r: Record) -> None:
    from torch._dynamo.package import CompilePackage, load_guard_manager, load_guards_state

    def f(x: Any, n: Any, d: Any) -> Any:
        return x * n + d["a"] + (x.shape[0] if isinstance(n, int) else 0)

    package = CompilePackage(f)
    compiled = torch._dynamo.optimize(backend="eager", package=package)(f)
    calls = [(X, 2, {"a": 1}), (X, 3, {"a": 1}), (torch.ones(7), 3, {"a": 1.5})]
    for args in calls:
        r.call(compiled, *args)
    for code in package.cache_entry().codes:
        for guarded in code.guarded_codes:
            state = load_guards_state(guarded.guards_state)
            guards = state.output_graph.guards
            r.note(sorted({(g.create_fn_name(), g.name, str(g.source)) for g in guards}))
            manager = load_guard_manager(state, f.__code__, globals())
            for x, n, d in [*calls, (X.double(), 2, {"a": 1}), (X, 2, {"b": 1}), (X, "2", {})]:
                r.note(manager.check({"x": x, "n": n, "d": d}))


def guards_that_cannot_be_saved(r: Record) -> None:
    from torch._dynamo.package import CompilePackage

    def f(x: Any, g: Any) -> Any:
        return g(x) if g is not None else x

    compiled = torch._dynamo.optimize(backend="eager", package=CompilePackage(f))(f)
    r.call(compiled, X, lambda x: x + 1)
    r.call(compiled, X, torch.nn.ReLU())


def tensor_subclass(r: Record) -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    f: Any = r.compile(lambda x: x * 2 + 1)
    for a, b in ((X, X + 1), (X.double(), X.double()), (X[:2], X[2:])):
        r.call(lambda a=a, b=b: f(TwoTensor(a, b)).b)


def optimizer(r: Record) -> None:
    net = _Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    step = r.compile(optimizer.step)
    for _ in range(2):
        net(torch.ones(3, 4)).sum().backward()
        r.call(step)
        r.note(net.linear.weight)


def contexts_seen_by_a_backend(r: Record) -> None:
    seen: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        context = torch._guards.TracingContext.get()
        compile_context = torch._guards.CompileContext.get()
        seen.append(
            [
                str(compile_context.compile_id),
                str(torch._guards.CompileContext.current_trace_id()),
                compile_context.attempt,
                len(context.frame_summary_stack),
                [str(frame) for frame in torch._guards.TracingContext.extract_stack()],
                context.fake_mode is torch._guards.detect_fake_mode(inputs),
                sorted(g.name for g in context.guards_context.dynamo_guards),
                sorted(context.module_context.nn_modules),
                sorted(context.global_context.global_state),
                [code.co_name for code in context.traced_code],
                isinstance(context.guards_context.copy_graphstate().dynamo_guards, object),
            ]
        )
        return r.backend(gm, inputs)

    def inner(x: Any) -> Any:
        return x.sin()

    f = torch.compile(lambda x: inner(x) + 1, backend=backend)
    r.call(f, X)
    r.note(seen)


def vocabulary_in_the_program(r: Record) -> None:
    r.log_matters = False  # it names the files of the vocabulary

    def f(x: Any) -> Any:
        mode = torch._guards.detect_fake_mode(x)
        context = torch._guards.TracingContext.try_get()
        return x + (mode is None) + (context is None)

    r.call(r.compile(f), X)
    r.call(r.compile(f, fullgraph=True), X)
    r.call(r.compile(lambda x: x + (torch._guards.active_fake_mode() is None)), X)
    r.call(r.compile(lambda x: x * len(torch._guards.TracingContext.extract_stack())), X)
