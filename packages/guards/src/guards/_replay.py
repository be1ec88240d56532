"""Write a record as one Python function: inputs are fetched, operators called, nothing decided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from keyword import iskeyword
from typing import Any

import torch

from guards import _torch_private as private
from guards._evaluation import ChainedValueSource, ValueSource
from guards._fetch import has_plain_dict
from guards._plain_objects import make
from guards._record import Built, Input, Number, Place, Record, Result, Row, StepFailed
from guards._value_sources import AttrSource, GetItemSource, LocalSource, ParamBufferSource

__all__ = ["write_replay"]

_PLAIN_CONTAINERS = (dict, list, tuple)


def write_replay(record: Record, lookup: Callable[[ValueSource], Any]) -> Callable[[Any, Any], Any]:
    """Make ``replay(L, G)`` of a record; ``lookup`` gives what sources led to when it was made.

    The guards of the record have to hold when it is called: places are read as that allows.
    """
    return _Writer(lookup).write(record)


class _Writer:
    def __init__(self, lookup: Callable[[ValueSource], Any]) -> None:
        self._lookup = lookup
        self._lines: list[str] = []
        self._constants: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._fetched: dict[ValueSource, str] = {}

    def write(self, record: Record) -> Callable[[Any, Any], Any]:
        for place, source in enumerate(record.inputs):
            self._line(f"i{place} = {self._fetch(source)}")
        fetched = self._lines
        self._lines = []
        grad = record.grad
        for step in record.steps:
            if step.grad is not grad:
                self._line(f"set_grad({step.grad})")
                grad = step.grad
            self._line(self._assigned(step.outputs) + self._call(step))
            if step.last_use_of:
                self._line(f"del {', '.join(f'r{number}' for number in step.last_use_of)}")
        steps = self._lines
        self._lines = []
        changes = any(step.grad is not record.grad for step in record.steps)
        guarded = bool(steps) and (record.harmless or changes)
        body = [*fetched, *(["try:", *(f"    {line}" for line in steps)] if guarded else steps)]
        if guarded and record.harmless:
            body += ["except Exception as error:", "    raise StepFailed from error"]
        if guarded and changes:
            body += ["finally:", f"    set_grad({record.grad})"]
        output = self._form(record.output)
        body += [*self._lines, f"return {output}"]
        text = "def replay(L, G):\n" + "\n".join(f"    {line}" for line in body) + "\n"
        namespace = {
            **self._constants,
            "StepFailed": StepFailed,
            "set_grad": torch._C._set_grad_enabled,
            "make": make,
        }
        exec(compile(text, "<replay of a record>", "exec"), namespace)
        made: Callable[[Any, Any], Any] = namespace["replay"]
        return made

    def _line(self, text: str) -> None:
        self._lines.append(text)

    def _constant(self, value: Any) -> str:
        if value is None or type(value) is bool or (type(value) is int and abs(value) < 10**15):
            return repr(value) if type(value) is not int or value >= 0 else f"({value})"
        name = self._names.get(id(value))
        if name is None:
            name = self._names[id(value)] = f"c{len(self._names)}"
            self._constants[name] = value
        return name

    # ── where inputs are ────────────────────────────────────────────────────────────────────────

    def _fetch(self, source: ValueSource) -> str:
        """Give the variable that holds what a source leads to; common ways are gone once."""
        links: list[ValueSource] = []
        at: Any = source
        while at not in self._fetched:
            links.append(at)
            if not isinstance(at, ChainedValueSource):
                break
            at = at.base
        for link in reversed(links):
            name = f"v{len(self._fetched)}"
            self._line(f"{name} = {self._read(link)}")
            self._fetched[link] = name
        return self._fetched[source]

    def _read(self, link: ValueSource) -> str:
        if type(link) is LocalSource:
            return f"L[{self._constant(link.local_name)}]"
        if not isinstance(link, ChainedValueSource):
            return f"{self._constant(link.get)}(L, G)"
        base: Any = link.base
        name, example = self._fetched[base], self._lookup(base)
        if type(link) is GetItemSource and type(example) in _PLAIN_CONTAINERS:
            return f"{name}[{self._constant(link.index)}]"
        if has_plain_dict(type(example)):
            if type(link) is AttrSource and link.member == "__dict__":
                return f"{name}.__dict__"
            if type(link) is ParamBufferSource and "." not in link.param_name:
                for table in ("_parameters", "_buffers"):
                    entries = example.__dict__.get(table)
                    if type(entries) is dict and link.param_name in entries:
                        return f"{name}.__dict__[{table!r}][{self._constant(link.param_name)}]"
        return f"{self._constant(link.read)}({name})"

    # ── operators and results ───────────────────────────────────────────────────────────────────

    def _assigned(self, outputs: Any) -> str:
        if type(outputs) is int:
            return f"r{outputs} = "
        if type(outputs) is not tuple or all(number is None for number in outputs):
            return ""
        names = ["_" if number is None else f"r{number}" for number in outputs]
        return f"{', '.join(names)}, = "

    def _call(self, step: Any) -> str:
        parts = [self._form(part) for part in step.args]
        for name, part in step.kwargs.items():
            named = f"**{{{name!r}: {self._form(part)}}}" if iskeyword(name) else None
            parts.append(named or f"{name}={self._form(part)}")
        return f"{self._constant(private.operator_of(step.op))}({', '.join(parts)})"

    def _form(self, value: Any) -> str:
        """Give the Python for an argument or a result."""
        if type(value) is Input:
            return f"i{value.place}"
        if type(value) is Result:
            return f"r{value.number}"
        if type(value) is Number:
            return f"{self._constant(value.tensor)}.clone()"
        if type(value) is list:
            return f"[{', '.join(map(self._form, value))}]"
        if type(value) is tuple:
            return self._tuple(value)
        if type(value) is dict:
            pairs = (f"{self._constant(k)}: {self._form(part)}" for k, part in value.items())
            return f"{{{', '.join(pairs)}}}"
        if type(value) is Row:
            return f"{self._constant(value.cls)}({self._tuple(value.parts)})"
        if type(value) is Place:
            return self._fetch(value.source)
        if type(value) is Built:
            held = (self._form(part) for part in (value.items, value.own, value.slots))
            cls, root = self._constant(value.cls), self._constant(value.root)
            return f"make({cls}, {root}, {', '.join(held)})"
        return self._constant(value)

    def _tuple(self, parts: Sequence[Any]) -> str:
        return f"({''.join(f'{self._form(part)}, ' for part in parts)})"
