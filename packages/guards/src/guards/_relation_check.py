"""The check of a relation between sizes."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from guards._checks import Check, spell_found, wants
from guards._constants import spell
from guards._emit import Emitter
from guards._errors import UnsupportedGuardError
from guards._fetch import is_a

if TYPE_CHECKING:
    from guards._value_sources import ValueSource

__all__ = ["RelationCheck"]


class RelationCheck(Check):
    """A relation between sizes holds, such as ``s0 == 2 * s1``.

    Raises:
        UnsupportedGuardError: the relation is no comparison of whole numbers and symbols.
    """

    code = "SHAPE_RELATION"

    def __init__(self, relation: str, symbols: Mapping[str, ValueSource]) -> None:
        wants(type(relation) is str, self.code, "a text", relation)
        for symbol in symbols:
            wants(type(symbol) is str, self.code, "symbols that are texts", symbol)
        self.relation = relation
        used = _read_relation(relation, symbols)
        self.symbols = {name: source for name, source in symbols.items() if name in used}
        self.sources = tuple(self.symbols.values())

    def condition(self, names: Sequence[str], emitter: Emitter) -> str:
        tree = ast.parse(self.relation, mode="eval")
        variables = dict(zip(self.symbols, names, strict=True))
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id in variables:
                node.id = variables[node.id]
            elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
                node.op = ast.Not()  # as sympy writes it; in Python, ~True is true
        for name, function in _RELATION_FUNCTIONS.items():
            if name in self.relation:
                emitter.namespace[name] = function
        whole = " and ".join(f"type({name}) is int" for name in names) or "True"
        return f"{whole} and ({ast.unparse(tree)})"

    def expected(self) -> str:
        return self.expression()

    def expression(self) -> str:
        tree = ast.parse(self.relation, mode="eval")
        names = {symbol: source.name() for symbol, source in self.symbols.items()}
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id in names:
                node.id = names[node.id]
        return ast.unparse(tree)

    def actual(self, values: Sequence[Any]) -> str:
        return ", ".join(
            f"{source.name()} is {spell_found(value)}"
            for source, value in zip(self.sources, values, strict=True)
        )

    def state(self) -> dict[str, Any]:
        return {"relation": self.relation, "names": list(self.symbols)}

    @classmethod
    def from_state(cls, sources: Sequence[ValueSource], state: dict[str, Any]) -> Check:
        return cls(state["relation"], dict(zip(state["names"], sources, strict=True)))


_RELATION_FUNCTIONS: dict[str, Any] = {
    "Eq": lambda a, b: a == b,
    "Ne": lambda a, b: a != b,
    "Mod": lambda a, b: a % b,
    "FloorDiv": lambda a, b: a // b,
    "PythonMod": lambda a, b: a % b,
    "Max": max,
    "Min": min,
}
_RELATION_NODES = (
    ast.Expression,
    ast.Compare,
    ast.BoolOp,
    ast.BinOp,
    ast.UnaryOp,
    ast.Name,
    ast.Load,
    ast.boolop,
    ast.operator,
    ast.unaryop,
    ast.cmpop,
)
_RELATION_TOO_BIG = (ast.LShift, ast.In, ast.NotIn, ast.Is, ast.IsNot, ast.MatMult)


def _read_relation(relation: str, symbols: Mapping[str, ValueSource]) -> set[str]:
    """Find the symbols of a relation, refusing all that is not arithmetic and comparison."""

    def refuse(why: str) -> UnsupportedGuardError:
        return UnsupportedGuardError(
            f"SHAPE_RELATION {spell(relation)}: {why}; write comparisons of whole numbers and "
            "symbols, such as 's0 == 2 * s1'"
        )

    try:
        tree = ast.parse(relation, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise refuse(f"it does not parse ({error})") from None
    if _is_too_deep(tree):
        raise refuse(f"it is nested more than {_DEEPEST_RELATION} deep")
    used: set[str] = set()
    functions = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if not isinstance(node.func, ast.Name) or node.func.id not in _RELATION_FUNCTIONS:
                raise refuse(f"it calls {ast.unparse(node.func)}")
            several = node.func.id in ("Max", "Min") and len(node.args) > 2
            if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
                raise refuse(f"{node.func.id} takes operands alone")
            if len(node.args) != 2 and not several:
                raise refuse(f"{node.func.id} takes two operands")
            functions.add(id(node.func))
        elif isinstance(node, ast.Constant):
            if not is_a(node.value, int):
                raise refuse(f"{node.value!r} is no whole number")
            if node.value.bit_length() > 512:
                raise refuse("it has a number of more than 512 bits")
        elif isinstance(node, ast.Name):
            if id(node) not in functions:
                used.add(node.id)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            if not isinstance(node.left, ast.Name) or not _is_small(node.right):
                raise refuse("it has a power other than one of a symbol, up to the eighth")
        elif isinstance(node, ast.Pow):
            pass  # seen with its operands
        elif not isinstance(node, _RELATION_NODES) or isinstance(node, _RELATION_TOO_BIG):
            raise refuse(f"it has a {type(node).__name__}")
    unknown = sorted(used - set(symbols) - set(_RELATION_FUNCTIONS))
    if unknown:
        raise refuse(f"no source is given for {', '.join(unknown)}")
    return used & set(symbols)


_DEEPEST_RELATION = 100  # writing it out takes some calls within calls for each level


def _is_too_deep(tree: ast.AST) -> bool:
    level = [tree]
    for _ in range(_DEEPEST_RELATION):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    return bool(level)


def _is_small(exponent: ast.expr) -> bool:
    return isinstance(exponent, ast.Constant) and exponent.value in range(9)
