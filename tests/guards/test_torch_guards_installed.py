"""guards.torch_guards in the place of torch._guards, and completed for a newer torch."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import enum
import subprocess
import sys
import types
from collections.abc import Iterator
from typing import Any

import guards
import pytest
from guards.torch_guards import _merge

from tests.guards.torch_forms import Local, check

# ── A torch newer than this package ──


def newer_torch() -> types.ModuleType:
    module = types.ModuleType("newer")

    class Context:
        table: dict[str, int] = {}  # noqa: RUF012

        def __init__(self, start: int) -> None:
            self.known = start
            self.new = start + 1

        def shared(self) -> str:
            raise AssertionError("ours is kept")

        def any_options(self, *, new: int = 0) -> str:
            raise AssertionError("ours is kept")

        def one_more(self, old: int, new: int = 3) -> Any:
            return "theirs", old, new

        @staticmethod
        def one_more_option(old: int, *, new: int = 3) -> Any:
            return "theirs", old, new

        def method(self, extra: int = 2, *, more: int = 3) -> Any:
            return name_that_ours_defines, self.known + extra + more  # type: ignore[name-defined]  # noqa: F821

        @staticmethod
        def static() -> Any:
            return name_that_ours_defines  # type: ignore[name-defined]  # noqa: F821

        @property
        def value(self) -> Any:
            return name_that_ours_defines  # type: ignore[name-defined]  # noqa: F821

        @contextlib.contextmanager
        def scope(self) -> Iterator[Any]:
            yield name_that_ours_defines  # type: ignore[name-defined]  # noqa: F821

    module.Context = Context  # type: ignore[attr-defined]
    return module


def test_what_a_newer_torch_has_is_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    class Context:
        def __init__(self, start: int) -> None:
            self.known = start

        def shared(self) -> str:
            return "ours"

        def any_options(self, **options: int) -> str:
            return f"ours {options}"

        def one_more(self, old: int) -> Any:
            raise AssertionError("takes too little")

        @staticmethod
        def one_more_option(old: int) -> Any:
            raise AssertionError("takes too little")

    newer = newer_torch()
    monkeypatch.setitem(_merge._STATEFUL, "Context", (1,))
    merged = _merge.merge({"Context": Context, "name_that_ours_defines": "found"}, newer)
    added = _merge.complete({"Context": Context}, newer, vars(merged))
    assert added == ["Context().new", "Context.method", "Context.one_more",
                     "Context.one_more_option", "Context.scope", "Context.static",
                     "Context.value"]  # fmt: skip
    made: Any = Context(5)
    assert vars(made) == {"known": 5, "new": 6}
    assert made.shared() == "ours"
    assert made.any_options(new=1) == "ours {'new': 1}"
    assert made.one_more(1) == made.one_more_option(1) == ("theirs", 1, 3)
    assert made.method(1, more=1) == ("found", 7)
    assert made.method() == ("found", 10)
    assert made.static() == made.value == "found"
    with made.scope() as value:
        assert value == "found"


def test_a_new_field_of_a_class_with_slots_is_filled_in() -> None:
    # Guard itself must not be changed for the other tests.
    class Ours(guards.Guard):
        __slots__ = ()

    @dataclasses.dataclass(slots=True)
    class Theirs:
        originating_source: Any
        create_fn: Any
        found: bool = False
        bare: int = dataclasses.field(init=False)

    newer = types.ModuleType("newer")
    vars(newer)["Guard"] = Theirs
    assert _merge.complete({"Guard": Ours}, newer, {}) == ["Guard.bare", "Guard.found"]
    guard: Any = Ours(Local("x"), check)
    other: Any = Ours(Local("x"), check)
    assert guard.found is False
    guard.found = True
    assert (guard.found, other.found) == (True, False)
    with pytest.raises(AttributeError, match="bare is not set"):
        guard.bare  # noqa: B018
    again = copy.copy(guard)
    assert again.found is True
    again.found = False
    assert guard.found is True
    assert guard == other


def test_a_new_kind_of_place_is_filled_in() -> None:
    class Kind(enum.Enum):
        OLD = 0

        def is_local(self) -> bool:
            return self.value == 0

    newer = types.ModuleType("newer")
    members = {"OLD": 0, "NEW": 1}
    vars(newer)["Kind"] = enum.Enum("Kind", members)
    assert _merge.complete({"Kind": Kind}, newer, {}) == ["Kind.NEW"]
    new: Any = Kind
    assert new.NEW.value == 1
    assert [kind.name for kind in Kind] == ["OLD"]
    assert Kind.OLD.is_local()


# ── In a process of its own ──


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_install_reaches_the_names_that_were_copied_early() -> None:
    out = run(
        """
import sys, torch
before = torch._guards
names = {id(v) for v in vars(before).values() if getattr(v, '__module__', '') == 'torch._guards'}
copies = [(m, k) for m, module in sys.modules.items() if module not in (None, before)
          for k, v in list(vars(module).items()) if id(v) in names]
from guards import torch_guards
assert "torch._dynamo" not in sys.modules
module = torch_guards.install()
assert torch_guards.install() is module is torch._guards is sys.modules["torch._guards"]
assert "torch._dynamo" not in sys.modules
for m, k in copies:
    assert getattr(sys.modules[m], k) is getattr(module, k), (m, k)
    print(m, k)
"""
    )
    assert "torch._logging._internal CompileId" in out
    assert "torch.export.exported_program TracingContext" in out


@pytest.mark.slow
def test_install_is_refused_once_dynamo_is_loaded() -> None:
    out = run(
        """
import torch, torch._dynamo
before = torch._guards
from guards import torch_guards
try:
    torch_guards.install()
except torch_guards.TooLateError as error:
    print(error)
assert torch._guards is before
"""
    )
    assert "right after `import torch`" in out


@pytest.mark.slow
def test_a_front_end_may_merge_by_hand() -> None:
    out = run(
        """
import sys, types, torch
from guards import torch_guards
original = torch._guards
merged = types.ModuleType("torch._guards")
vars(merged).update(vars(original))
vars(merged).update({n: getattr(torch_guards, n) for n in torch_guards.__all__})
sys.modules["torch._guards"] = torch._guards = merged
for module in list(sys.modules.values()):
    for name in ("CompileId", "detect_fake_mode", "compile_context", "tracing", "TracingContext"):
        if getattr(module, "__name__", "").startswith("torch") and vars(module).get(name) is (
            getattr(original, name)
        ):
            setattr(module, name, getattr(merged, name))

@torch.compile(backend="aot_eager")
def f(x, n):
    return x * n

for n, size in ((2, 3), (2, 3), (3, 3), (3, 4)):
    assert torch.equal(f(torch.ones(size), n), torch.full((size,), float(n)))
import guards
from torch._dynamo.source import LocalSource
from torch._dynamo.guards import GuardBuilder
from torch._dynamo import config
import functools
assert issubclass(LocalSource, guards.ChainedSource.__mro__[1])
x = LocalSource("x")
pair = guards.Guard(x, functools.partial(GuardBuilder.DUPLICATE_INPUT, source_b=LocalSource("y")))
assert pair.sort_key()[0] and not guards.Guard(x, GuardBuilder.TYPE_MATCH).sort_key()[0]
kind = guards.GuardSource.LOCAL_FSDP_MODULE
assert not kind.is_specialized_nn_module()
with config.patch(_unsafe_skip_fsdp_module_guards=True):
    assert kind.is_specialized_nn_module()
for theirs in original.GuardSource:
    ours = guards.GuardSource[theirs.name]
    assert ours.is_specialized_nn_module() is theirs.is_specialized_nn_module()
print(torch._dynamo.utils.counters["stats"]["unique_graphs"])
"""
    )
    assert out.split() == ["3"]


@pytest.mark.slow
def test_guards_does_not_load_it() -> None:
    assert run("import torch, sys, guards; print('guards.torch_guards' in sys.modules)") == (
        "False\n"
    )
