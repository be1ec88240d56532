"""Write the Python of a check function: each source fetched once, each check one line.

Values that lie side by side, in one dict or one module, are fetched together, and checks of one
kind on many values are made together. A value that one check alone is about is fetched in the
middle of that check.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from guards import _trees
from guards._checks import Check, TypeCheck
from guards._fetch_writer import in_parts
from guards._group_writer import GroupWriter
from guards._plan import WORTH_FETCHING_TOGETHER, plan
from guards._source import Source
from guards._value_sources import ValueSource

__all__ = ["Writer"]

_REFUSES_UNLESS = re.compile(r"if not \((.*)\): return False")

# A condition that begins like this reads ``v`` there first, unless something in it is put off.
_READS_FIRST = ("v is ", "(v is ", "type(v) is ", "(type(v) is ", "tree_check(")
_PUTS_OFF = re.compile(r"\b(?:if|for|lambda)\b|:=")
_V = re.compile(r"\bv\b")

_Table = dict[ValueSource, list[Check]]


class Writer(GroupWriter):
    """Write one check function for what a builder has collected."""

    def write(self, checks: Sequence[Check]) -> str:
        """Give the definition of the function ``check``."""
        self._survey(checks)
        can_be_node = self._can_be_node if _trees.can_be_made() else None
        alone, groups = plan(
            checks,
            self._bases.__contains__,
            self._place_of,
            self._turn_of_tensor,
            can_be_node,
            self._used_once,
        )
        alone, tables = self._divide(alone)
        for check in alone:
            self._write_alone(check)
        for table in tables:
            self._write_table(table)
        for group in groups:
            if can_be_node is not None and group.kind in ("tensors", "nodes"):
                self._write_tree(group)
            else:
                getattr(self, f"_write_{group.kind}")(group, self._values(group))
        return self._function("check", self._without_what_trees_tell(self._lines))

    def _function(self, name: str, lines: Sequence[str]) -> str:
        """Write the definition of a function of ``L`` that has these lines."""
        lines = [*lines[:-1], self._in_the_end(lines[-1])] if lines else ["pass"]
        body = "\n        ".join(lines)
        # What is set further in is for where a fast way has failed.
        fast = "\n".join(line for line in lines if not line.startswith(" "))
        first = [*self.emitter.used_often(fast), *self.emitter.take_first()]
        often = "".join(f"    {line}\n" for line in first)
        return (
            f"def {name}(L):\n{often}"
            "    try:\n"
            f"        {body}\n"
            "    except Exception:\n"
            "        return False\n"
            + ("" if body.splitlines()[-1].strip().startswith("return ") else "    return True\n")
        )

    def _in_the_end(self, line: str) -> str:
        """Give what the last condition tells as the answer, where it is True or False."""
        found = _REFUSES_UNLESS.fullmatch(line)
        if found is None or not self._tells_truth(ast.parse(found[1], mode="eval").body):
            return line
        return f"return {found[1]}"

    def _tells_truth(self, condition: ast.expr) -> bool:
        if isinstance(condition, ast.BoolOp):
            return all(map(self._tells_truth, condition.values))
        if isinstance(condition, ast.Compare):
            return all(isinstance(op, (ast.Is, ast.IsNot)) for op in condition.ops)
        if isinstance(condition, ast.UnaryOp):
            return isinstance(condition.op, ast.Not)
        called = condition.func if isinstance(condition, ast.Call) else None
        return isinstance(called, ast.Name) and called.id in self.emitter.truths

    def _divide(self, alone: list[Check]) -> tuple[list[Check], list[_Table]]:
        """Set apart the checks whose values are side by side with those of many others."""
        tables: dict[tuple[Source | None, str], _Table] = {}
        rest = []
        for check in alone:
            source = check.sources[0] if len(check.sources) == 1 else None
            place = None
            if source is not None and source not in self._with_others:
                place = self._place_of(source)
            if source is None or place is None:
                rest.append(check)
            else:
                tables.setdefault(place[:2], {}).setdefault(source, []).append(check)
        many = []
        for table in tables.values():
            checks = [check for checks in table.values() for check in checks]
            # A test such as ``L['x'] is True`` needs no variable, which the others do.
            short = all((check.pattern() or ("", None))[0] == "identity" for check in checks)
            if len(table) >= WORTH_FETCHING_TOGETHER * (2 if short else 1):
                many.append(table)
            else:
                rest += checks
        return rest, many

    def _write_table(self, table: _Table) -> None:
        """Fetch the values of one table and check each."""
        for part in in_parts([*table]):
            names = [f"w{number}" for number in range(len(part))]
            self._lines.append(f"{', '.join(names)}, = {self._get(part)}")
            for name, source in zip(names, part, strict=True):
                for check in table[source]:
                    self._write_condition(check, [name])

    def _write_condition(self, check: Check, names: list[str]) -> None:
        condition = check.condition(names, self.emitter)
        self._lines += self.emitter.take_statements()
        if condition != "True":
            self._refuse_unless(condition)

    def _write_alone(self, check: Check) -> None:
        if id(check) in self._types_made:
            return
        if len(check.sources) == 1 and self._used_once(check.sources[0]):
            self._write_in_passing(check, self._value(check.sources[0]))
            return
        names = [self._variable(source) for source in check.sources]
        if id(check) in self._types_made:  # since a moment ago
            return
        self._write_condition(check, names)
        if isinstance(check, TypeCheck):
            cls = check.cls()
            if cls is not None:
                self.emitter.prove_type(names[0], cls)

    def _write_in_passing(self, check: Check, value: str) -> None:
        """Write a check of a value that nothing else is about; ``v`` names it, if need be."""
        condition = check.condition(["v"], self.emitter)
        statements = self.emitter.take_statements()
        plain = condition.startswith(_READS_FIRST) and not _PUTS_OFF.search(condition)
        if statements or not plain:
            self._lines += [f"v = {value}", *statements]
            if condition != "True":
                self._refuse_unless(condition)
            return
        if len(_V.findall(condition)) > 1:
            value = f"v := {value}" if "(v) " in condition[:12] else f"(v := {value})"
        self._refuse_unless(_V.sub(lambda _: value, condition, 1))
