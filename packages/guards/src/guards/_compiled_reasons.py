"""Why the guards of a compilation do not hold, with what was found beside what was expected."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from guards import _compiled_texts as texts
from guards._constants import spell, type_name
from guards._explanation import Explanation
from guards._fetch import is_a

if TYPE_CHECKING:
    from guards._compiled_entries import GuardReport

__all__ = ["failures", "of_part"]

# These keep what they have seen until the whole tree has been checked: asking one by itself
# would make torch's next check fail.
_RELATIONAL = {"NO_TENSOR_ALIASING", "OBJECT_ALIASING", "STORAGE_OVERLAPPING"}
_ABOUT_THE_WHOLE_VALUE = {"TYPE_MATCH", "TENSOR_MATCH", "ID_MATCH", "NONE_MATCH"}


def failures(guards: tuple[GuardReport, ...], scope: dict[str, Any]) -> list[Explanation]:
    """Find the guards that do not hold, without those that only follow from another's failure."""
    found: list[Explanation] = []
    broken: list[str] = []
    for guard in guards:
        if guard.code in _RELATIONAL or any(_reaches(guard, source) for source in broken):
            continue
        try:
            value = eval(guard.source, scope) if guard.source else scope["L"]
        except Exception as error:
            gone = is_a(error, (LookupError, AttributeError))
            why = "missing" if gone else type(error).__name__
            found.append(
                Explanation(guard.code, guard.expression, "there", why, guard.user_location)
            )
            broken.append(guard.source)
            continue
        if not _holds(guard, value, scope):
            found.append(_explain(guard, value, scope))
            if guard.source and guard.code in _ABOUT_THE_WHOLE_VALUE:
                broken.append(guard.source)
    return found


def _reaches(guard: GuardReport, source: str) -> bool:
    return source in (guard.source or guard._text)


def _holds(guard: GuardReport, value: Any, scope: dict[str, Any]) -> bool:
    try:
        if guard.code == "SHAPE_ENV":
            return bool(eval(texts.without_remarks(guard._text), scope))
        call = getattr(guard._leaf, "__call__", None)  # noqa: B004  # leaf classes differ in it
        return True if call is None else bool(call(value))
    except NotImplementedError:
        return True
    except Exception:
        return False


def _explain(guard: GuardReport, value: Any, scope: dict[str, Any]) -> Explanation:
    expected, actual = guard.expression, "it does not hold"
    try:
        if guard.code == "GLOBAL_STATE":
            expected, actual = texts.state_difference(guard._text)
        elif guard.code == "TORCH_FUNCTION_MODE_STACK":
            expected, actual = "the modes that were open", texts.open_modes()
        elif guard.code == "SHAPE_ENV":
            expected, actual = _of_relation(guard.expression, scope)
            why = texts.reason(guard._text)
            expected += f", as {why}" if why else ""
        elif guard.source:
            expected, actual = texts.difference(
                guard.code, guard.source, guard._text, guard.expression, value
            )
    except Exception as error:
        actual = f"a value that cannot be described ({type(error).__name__})"
    return Explanation(guard.code, guard.expression, expected, actual, guard.user_location)


def _of_relation(expression: str, scope: dict[str, Any]) -> tuple[str, str]:
    """Say what a relation between values wants, and what those values are."""
    tree = ast.parse(expression, mode="eval").body
    if isinstance(tree, ast.Compare) and [type(op) for op in tree.ops] == [ast.Is]:
        return "the same object", "two objects"
    found = [f"{place} is {spell(eval(place, scope))}" for place in _places(tree)]
    return expression, ", ".join(found) or "it does not hold"


def _places(tree: ast.AST) -> list[str]:
    """Find the values that an expression speaks of, each as it is written over L and G."""
    found: dict[str, None] = {}
    todo = [tree]
    while todo:
        node = todo.pop(0)
        root = node
        while isinstance(root, (ast.Subscript, ast.Attribute, ast.Call)):
            root = root.func if isinstance(root, ast.Call) else root.value
        if root is not node and isinstance(root, ast.Name) and root.id in ("L", "G"):
            found[ast.unparse(node)] = None
        else:
            todo[:0] = ast.iter_child_nodes(node)  # as one reads them
    return list(found)


_LENGTH_MISMATCH = re.compile(r"len\((?P<what>.*)\) != (?P<length>\d+)")
_TYPE_MISMATCH = re.compile(r"TYPE_MISMATCH\((?P<source>.*)\)")


def of_part(
    part: str, guards: tuple[GuardReport, ...], root: Any, scope: dict[str, Any]
) -> Explanation:
    """Say what torch says of a guard that it only tests together with others."""
    where = texts.user_location(part)
    aliasing = [g for g in guards if g.code == "NO_TENSOR_ALIASING"]
    if part.startswith("Duplicate tensor") and aliasing:
        names, pairs = _duplicates(aliasing, scope)
        return Explanation(
            "NO_TENSOR_ALIASING",
            f"{', '.join(names)} are different tensors",
            "different tensors",
            pairs or "one of them given twice",
            where,
        )
    mismatch = _TYPE_MISMATCH.search(part)
    if mismatch is not None:
        source = mismatch["source"]
        wanted = _type_at(root, source)
        return Explanation(
            "TYPE_MATCH",
            texts.with_plain_names(f"type({source}) is {wanted or 'what it was'}"),
            f"of type {wanted}" if wanted else "the type that it was",
            f"of type {_type_found(source, scope)}",
            where,
        )
    length = _LENGTH_MISMATCH.fullmatch(texts.without_remarks(part))
    if length is not None:
        return _of_length(length["what"], length["length"], scope, where)
    expression, expected, actual = texts.in_words(part), "to hold", "it does not"
    if re.fullmatch(r"[LG]\[.*\] is [LG]\[.*\]", expression):
        expected, actual = "the same object", "two objects"
    return Explanation("GUARD", expression, expected, actual, where)


def _of_length(what: str, length: str, scope: dict[str, Any], where: str | None) -> Explanation:
    """Say of a dict that it has another length, as torch finds out while it goes through it."""
    try:
        actual = f"of length {len(eval(what, scope))}"
    except Exception:
        actual = "of another length"
    expression = texts.with_plain_names(f"len({what}) == {length}")
    return Explanation("DICT_LENGTH", expression, f"of length {length}", actual, where)


def _duplicates(aliasing: list[GuardReport], scope: dict[str, Any]) -> tuple[list[str], str]:
    names = [guard.source for guard in aliasing]
    first: dict[int, str] = {}
    pairs = []
    for name in names:
        try:
            value = eval(name, scope)
        except Exception:
            continue
        if value is not None and first.setdefault(id(value), name) != name:
            pairs.append(f"{name} is {first[id(value)]}")
    return names, ", ".join(pairs)


def _type_at(root: Any, source: str) -> str:
    todo = [root]
    while todo:
        manager = todo.pop()
        if manager.get_source() == source:
            found = getattr(manager, "get_type_of_guarded_value", lambda: None)()
            return type_name(found) if is_a(found, type) else ""
        todo += manager.get_child_managers()
    return ""


def _type_found(source: str, scope: dict[str, Any]) -> str:
    try:
        return type_name(type(eval(source, scope)))
    except Exception:
        return "unknown"
