"""Trace a toy program, collect the guards under which the trace holds, take a snapshot of them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import guards
from guards import GuardBuilder, TracingContext


class Unknown:
    """A number that the trace does not know: what is done with it becomes text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __mul__(self, other: Any) -> Unknown:
        return Unknown(f"({self.text} * {other.look() if isinstance(other, Known) else other})")


class Known:
    """A part of the inputs that the trace may look at; each look is a guard on its source."""

    def __init__(self, value: Any, source: guards.Source) -> None:
        self.value, self.source = value, source

    def __getitem__(self, key: str) -> Known:
        return Known(self.value[key], guards.GetItemSource(self.source, key))

    def look(self) -> Any:
        line = sys._getframe(2)  # of the program, which is what a reader of the guard looks for
        TracingContext.set_current_loc(line.f_code.co_filename, line.f_lineno, line.f_code.co_name)
        found = TracingContext.get().guards_context.dynamo_guards
        found.add(self.source.make_guard(GuardBuilder.EQUALS_MATCH), collect_debug_stack=False)
        return self.value

    def __bool__(self) -> bool:
        return bool(self.look())


def attempt(first: Callable[[], Unknown], otherwise: Callable[[], Unknown]) -> Unknown:
    """Trace the first way; where it fails, take back its guards and trace the other."""
    context = TracingContext.get().guards_context
    snapshot = context.copy_graphstate()
    try:
        return first()
    except KeyError:
        context.restore_graphstate(snapshot)
        return otherwise()


def trace(program: Any, order: dict[str, Any]) -> tuple[str, list[guards.Guard]]:
    """Give the text of what the program does with x, and the guards, parents before children."""
    name = guards.CompileId(frame_id=0, frame_compile_id=0)
    compilation, context = guards.CompileContext(name), TracingContext(fake_mode=None)
    with guards.compile_context(compilation), guards.tracing(context):
        result = program(Known(order, guards.LocalSource("order")), Unknown("x"))
    return result.text, sorted(context.guards_context.dynamo_guards)


def price(order: Any, x: Any) -> Any:
    """Be the program that is traced: the price of an order at x apiece."""
    total = x * order["count"]
    if order["vip"]:
        total = total * 0.5
    return attempt(lambda: total * order["tax"] * order["duty"], lambda: total)


if __name__ == "__main__":
    text, found = trace(price, {"count": 3, "vip": True, "tax": 1.2})
    print(text)
    for guard in found:
        print(f"{guard.create_fn_name()} on {guard.name}")
    check = guards.compile_guards(found, {"order": {"count": 3, "vip": True}})
    print(check({"order": {"count": 3, "vip": True, "tax": 1.5}}))
    print(check.explain({"order": {"count": 4, "vip": True}}))
