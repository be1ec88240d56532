"""Write down what a compiled program does, without what differs from one process to the next."""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import re
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, overload

import torch

Scenario = Callable[["Record"], object]
F = TypeVar("F", bound=Callable[..., Any])


def load(name: str) -> dict[str, Scenario]:
    """Give the scenarios of a module here, the functions whose name has no underscore in front."""
    module = importlib.import_module(f"{__package__}.{name}")
    return {
        f"{name}.{key}": value
        for key, value in vars(module).items()
        if isinstance(value, types.FunctionType)
        and value.__module__ == module.__name__
        and not key.startswith("_")
    }


class Record:
    """What one scenario did: its compilations, its results, its errors, what Dynamo logged."""

    def __init__(self, backend: str) -> None:
        self.backend_name = backend
        self.compilations: list[list[Any]] = []
        self.results: list[Any] = []
        self.log_matters = True

    def backend(self, gm: torch.fx.GraphModule, inputs: Any) -> Any:
        from torch._dynamo.backends.registry import lookup_backend

        compile_id = torch._guards.CompileContext.current_compile_id()
        assert compile_id is not None
        ops = [stable(str(node.target)) for node in gm.graph.nodes if node.op.startswith("call")]
        shapes = [tuple(map(str, x.shape)) if hasattr(x, "shape") else str(x) for x in inputs]
        self.compilations.append([str(compile_id), ops, shapes])
        return lookup_backend(self.backend_name)(gm, inputs)

    @overload
    def compile(self, fn: F, **options: Any) -> F: ...
    @overload
    def compile(self, fn: None = None, **options: Any) -> Callable[[F], F]: ...
    def compile(self, fn: Any = None, **options: Any) -> Any:
        """torch.compile with this record's backend."""
        if fn is None:
            return lambda fn: self.compile(fn, **options)
        return torch.compile(fn, backend=self.backend, **options)

    def note(self, *values: object) -> None:
        self.results.extend(map(_plain, values))

    def call(self, fn: Any, *args: Any, **kwargs: Any) -> Any:
        """Call it, and note what it gives or raises."""
        try:
            value = fn(*args, **kwargs)
        except Exception as error:
            stack = getattr(error, "real_stack", "no real_stack")
            self.note(type(error).__name__, str(error))
            self.note([str(frame) for frame in stack] if isinstance(stack, list) else str(stack))
            return None
        self.note(value)
        return value


def _plain(value: object) -> Any:
    if isinstance(value, torch.Tensor):
        value = value.detach()
        return ["tensor", value.tolist(), list(value.shape), list(value.stride()), str(value.dtype)]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(_plain, value)]
    if isinstance(value, dict):
        return [[_plain(k), _plain(v)] for k, v in value.items()]
    if isinstance(value, (int, float, bool, type(None))):
        return value
    return stable(str(value))


_UNSTABLE = [
    (re.compile(r"0x[0-9a-f]+"), "0x…"),
    (re.compile(r"[0-9]{9,}"), "…"),
    (re.compile(r"(___dict_version\(.*\) ==) [0-9]+"), r"\1 …"),
    (re.compile(r"(___check_(?:type|obj)_id|id)\(([^()]*), [0-9]+\)"), r"\1(\2, …)"),
    (re.compile(r"[0-9.]+ ?(?:ms|us|µs|s)\b"), "… s"),
    (re.compile(r"_c[0-9]+\b"), "_c…"),
]


def stable(text: str) -> str:
    for pattern, replacement in _UNSTABLE:
        text = pattern.sub(replacement, text)
    return text


LOGS = ["torch._dynamo.guards.__recompiles", "torch._dynamo.guards.__guards",
        "torch._dynamo.symbolic_convert.__graph_breaks", "torch._dynamo.convert_frame"]  # fmt: skip


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines += stable(f"{record.name}: {record.getMessage()}").splitlines()


@contextlib.contextmanager
def _logged() -> Iterator[list[str]]:
    handler = _Lines()
    for name in LOGS:
        logging.getLogger(name).addHandler(handler)
    try:
        yield handler.lines
    finally:
        for name in LOGS:
            logging.getLogger(name).removeHandler(handler)


def _without_repeated_guards(lines: list[str]) -> Iterator[str]:
    """Leave out what a tree of guards says a second time.

    With this log on, torch keeps a guard once for each stack where it was made, and ours once.
    """
    seen: set[str] = set()
    for line in lines:
        if "TREE_GUARD_MANAGER" in line:
            seen.clear()
        guard = line.partition("  #")[0].rstrip()
        if guard.startswith("|") and "GUARD" in guard.partition(":")[0].upper():
            if guard in seen:
                continue
            seen.add(guard)
        yield line


def run(scenario: Scenario, backend: str) -> dict[str, Any]:
    """Run a scenario in a state as if it were the first, and give what happened."""
    import torch._dynamo
    import torch._dynamo.guards
    from torch._dynamo.utils import counters

    # The log of guards times each of them, for a fifth of a second.
    dynamo_guards: Any = torch._dynamo.guards
    dynamo_guards.profile_guard_manager = lambda *_: 0

    logs: Any = torch._logging
    logs.set_logs(recompiles=True, guards=True, graph_breaks=True)
    torch.compiler.reset()
    counters.clear()
    torch.manual_seed(0)
    record = Record(backend)
    with (
        _logged() as lines,
        warnings.catch_warnings(record=True) as warned,
        contextlib.redirect_stdout(io.StringIO()) as printed,
    ):
        warnings.simplefilter("always")
        try:
            scenario(record)
            error = None
        except Exception:
            error = stable(traceback.format_exc())
    happened: dict[str, Any] = {
        "compilations": record.compilations,
        "results": record.results,
        "error": error,
        "printed": stable(printed.getvalue()),
        "warnings": [stable(str(w.message)) for w in warned],
    }
    if record.log_matters:
        happened["log"] = list(_without_repeated_guards(lines))
        happened["counters"] = {
            key: {stable(name): n for name, n in sorted(values.items())}
            for key, values in sorted(counters.items())
        }
    return happened
