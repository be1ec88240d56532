"""What the code of a function says of itself: the names it uses, and what it does unseen."""

from __future__ import annotations

import dis
import functools
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass

from guards._stack_reading import read_stack
from guards._understood import UNSEEN, reads_unseen, words

__all__ = ["CodeReading", "all_code", "catches_errors", "operators_in", "read_code"]

_OF_FROZEN_DATACLASSES = "__dataclass_builtins_object__"
_UNSEEN_WHEN_SET = words("data requires_grad names __class__")


@dataclass(frozen=True)
class CodeReading:
    """What one code object says.

    Attributes:
        problem: why a run of it cannot be written down; empty where nothing speaks against it.
        names: every name that it uses, of globals and of attributes, also by `getattr`.
        globals: the globals among them, each with whether it is used otherwise than in a call.
        handed_on: the names that are used otherwise than in a call.
        told_by_identity: what stands at the right side of an `is`, if not None or the like: the
            names of globals, and an empty text for anything else.
    """

    problem: str
    names: frozenset[str]
    globals: tuple[tuple[str, bool], ...]
    handed_on: frozenset[str]
    told_by_identity: frozenset[str]


def read_code(code: types.CodeType) -> CodeReading:
    """Read the code of a function, without that of the functions within it."""
    problem = ""
    called = _called_at_once(code)
    global_names: dict[tuple[str, bool], None] = {}
    stack = read_stack(code)
    handed_on: set[str] = {*stack.asked}
    used = frozenset(code.co_names) | stack.asked | stack.written
    for name in sorted(stack.asked):
        problem = problem or _handing_on(name)
    for name in sorted(stack.written):
        problem = problem or _setting(name)
    for instruction in dis.get_instructions(code):
        operation, name = instruction.opname, instruction.argval
        on = instruction.offset not in called
        if operation in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            problem = f"sets the global {name}"
        elif operation == "IMPORT_NAME":
            problem = f"imports {name} while it runs"
        elif operation in ("STORE_ATTR", "DELETE_ATTR"):
            problem = _setting(name) or problem
        elif operation == "MATCH_CLASS":
            problem = "matches patterns of classes, whose reading cannot be seen"
        elif operation in ("LOAD_GLOBAL", "LOAD_NAME"):
            global_names[name, on] = None
            if on:
                handed_on.add(name)
        elif operation == "LOAD_ATTR" and on:
            handed_on.add(name)
            problem = _handing_on(name) or problem
    unseen = UNSEEN & used
    if _OF_FROZEN_DATACLASSES in code.co_freevars:
        unseen -= {"__setattr__"}  # what dataclasses wrote sets the fields of a new object
    if unseen:
        problem = f"uses .{min(unseen)}, which cannot be seen"
    return CodeReading(
        problem,
        used,
        tuple(global_names),
        frozenset(handed_on),
        frozenset(_told_by_identity(code)),
    )


def _setting(name: str) -> str:
    unseen = name in _UNSEEN_WHEN_SET or _is_dunder(name)
    return f"sets .{name}, which cannot be seen" if unseen else ""


def _handing_on(name: str) -> str:
    unseen = name in ("format", "format_map") or reads_unseen(name)
    return f"hands .{name} on, whose calls cannot be seen" if unseen else ""


def _told_by_identity(code: types.CodeType) -> Iterator[str]:
    """Give what stands at the right side of an `is`: the name of a global, or an empty text."""
    before: dis.Instruction | None = None
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IS_OP" and before is not None:
            of_global = before.opname in ("LOAD_GLOBAL", "LOAD_NAME")
            if not (before.opname == "LOAD_CONST" and before.argval in _ONE_OF_A_KIND):
                yield before.argval if of_global else ""
        before = instruction
    if _TELL_IDENTITY.intersection(code.co_names):
        yield ""


_ONE_OF_A_KIND = (None, True, False, ...)
_TELL_IDENTITY = words("is_ is_not")


_OPERATORS = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod",
    "@": "matmul", "**": "pow", "&": "and", "|": "or", "^": "xor", "<<": "lshift", ">>": "rshift",
    "ADD": "add", "SUBTRACT": "sub", "MULTIPLY": "mul", "TRUE_DIVIDE": "truediv",
    "FLOOR_DIVIDE": "floordiv", "MODULO": "mod", "MATRIX_MULTIPLY": "matmul", "POWER": "pow",
    "AND": "and", "OR": "or", "XOR": "xor", "LSHIFT": "lshift", "RSHIFT": "rshift",
}  # fmt: skip
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_SPECIAL = {
    "COMPARE_OP": _COMPARISONS,
    "CONTAINS_OP": ("contains", "iter", "eq"),
    "BINARY_SUBSCR": ("getitem",),
    "STORE_SUBSCR": ("setitem",),
    "BINARY_SLICE": ("getitem",),
    "STORE_SLICE": ("setitem",),
    "UNARY_NEGATIVE": ("neg",),
    "UNARY_INVERT": ("invert",),
    "UNARY_POSITIVE": ("pos",),
    "GET_ITER": ("iter", "len", "getitem"),
    "UNPACK_SEQUENCE": ("iter", "len", "getitem"),
    "UNPACK_EX": ("iter", "len", "getitem"),
    "CALL_INTRINSIC_1": ("pos",),
}
_ASKED_BY = {
    "abs": ("abs",), "bool": ("bool",), "complex": ("complex",), "divmod": ("divmod", "mod"),
    "enumerate": ("iter", "len"), "float": ("float",), "int": ("int",), "iter": ("iter", "len"),
    "len": ("len",), "list": ("iter", "len"), "map": ("iter", "len"), "max": ("gt", "iter"),
    "min": ("lt", "iter"), "pow": ("pow", "rpow"), "reversed": ("reversed",), "round": ("round",),
    "sorted": ("lt", "iter"), "sum": ("add", "radd", "iter"), "tuple": ("iter", "len"),
    "zip": ("iter", "len"),
}  # fmt: skip


@functools.lru_cache(maxsize=4096)
def operators_in(code: types.CodeType) -> frozenset[str]:
    """Give the special methods, as ``__add__``, that code asks for without naming them."""
    found: set[str] = set()
    for instruction in dis.get_instructions(code):
        kind, _, rest = instruction.opname.partition("_")
        found.update(_SPECIAL.get(instruction.opname, ()))
        if kind in ("BINARY", "INPLACE"):  # each kind is an instruction before Python 3.11
            sign = instruction.argrepr if rest == "OP" else rest
            name = _OPERATORS.get(sign.removesuffix("="))
            found.update((name, f"r{name}", f"i{name}") if name else ("getitem",))
    for name in code.co_names:
        found.update(_ASKED_BY.get(name, ()))
    return frozenset(f"__{name}__" for name in found) | {"__bool__"}


def all_code(code: types.CodeType) -> Iterator[types.CodeType]:
    """Give a function's code, and that of the functions within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from all_code(constant)


def catches_errors(code: types.CodeType) -> bool:
    """Tell whether code may go on, or do something first, when what it calls raises."""
    if code.co_name == "__exit__":
        return True
    operations = [instruction.opname for instruction in dis.get_instructions(code)]
    if sys.version_info < (3, 11):
        return "SETUP_FINALLY" in operations
    # Every `with` has a handler too, which asks `__exit__`.
    return operations.count("PUSH_EXC_INFO") > operations.count("WITH_EXCEPT_START")


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _called_at_once(code: types.CodeType) -> set[int]:
    """Give where code loads what it calls, or asks for an attribute of, at once.

    Before Python 3.11 code does not say what is called.
    """
    found: set[int] = set()
    if sys.version_info < (3, 11):
        return found
    marked, last = False, -1
    for instruction in dis.get_instructions(code):
        operation, mark = instruction.opname, bool((instruction.arg or 0) & 1)
        if operation == "LOAD_GLOBAL":
            marked = mark  # a name that is called, or whose attribute is
            if marked:
                found.add(instruction.offset)
        elif operation == "LOAD_ATTR":
            found.add(last)  # its attribute is asked for
            if marked or (sys.version_info >= (3, 12) and mark):
                found.add(instruction.offset)
        else:
            if operation == "PUSH_NULL" and sys.version_info >= (3, 13):
                found.add(last)
            marked = False
        last = instruction.offset
    return found
