"""Lists as indices: tell from the code that is running that no tensor is within.

Torch makes a tensor of a list that it is given as an index, and reads tensors within the list
unseen. The list itself is on the interpreter's stack alone, but how the code that is running came
by it can be read.
"""

from __future__ import annotations

import builtins
import dis
import types
from typing import Any

from guards import _fetch
from guards._constants import is_constant

__all__ = ["indexes_by_constants"]


class _CannotTell(Exception):
    """The index comes about in a way that is not followed."""


def indexes_by_constants(frame: types.FrameType) -> bool | None:
    """Tell whether the index of ``x[index]``, which a frame reads or writes, is of constants alone.

    False where there is no telling; None where the frame does something else.
    """
    code = list(dis.get_instructions(frame.f_code))
    at = max(n for n, instruction in enumerate(code) if instruction.offset <= frame.f_lasti)
    if not _indexes(code[at]):
        return None
    try:
        return is_constant(_index(code, at, frame))
    except _CannotTell:
        return False


def _indexes(instruction: dis.Instruction) -> bool:
    if instruction.opname == "BINARY_OP":  # from Python 3.14 on
        return instruction.argrepr == "[]"
    return instruction.opname in ("BINARY_SUBSCR", "STORE_SUBSCR")


class _Unknown:
    """Stands for what code made in a way that is not followed."""


def _index(code: list[dis.Instruction], at: int, frame: types.FrameType) -> Any:
    """Evaluate what the instructions before ``at`` left on top of the stack."""
    start, wanted = at, 1
    while wanted > 0:
        if start == 0 or code[start].is_jump_target:
            raise _CannotTell  # the code may have come here in another way
        start -= 1
        takes, gives = _takes_and_gives(code[start])
        wanted = takes if gives >= wanted else wanted - gives + takes
    stack: list[Any] = []
    for instruction in code[start:at]:
        _step(instruction, stack, frame)
    return stack[-1]


def _takes_and_gives(instruction: dis.Instruction) -> tuple[int, int]:
    """Say how many values an instruction takes from the stack, and how many it leaves there."""
    operation, number = instruction.opname, instruction.arg or 0
    if operation.startswith("LOAD_FAST") and operation != "LOAD_FAST_AND_CLEAR":
        return 0, len(instruction.argval) if type(instruction.argval) is tuple else 1
    if operation in ("COPY", "SWAP"):
        return number, number + (operation == "COPY")
    if operation in ("BUILD_LIST", "BUILD_TUPLE", "BUILD_SLICE"):
        return number, 1
    if operation.startswith(("BINARY_", "INPLACE_")) and operation != "BINARY_SLICE":
        return 2, 1
    if operation not in _TAKES_AND_GIVES or instruction.argrepr.startswith("NULL"):
        raise _CannotTell  # the likes of what is about to be called
    return _TAKES_AND_GIVES[operation]


_TAKES_AND_GIVES = {
    **dict.fromkeys(["LOAD_CONST", "LOAD_CONST_IMMORTAL", "LOAD_SMALL_INT", "LOAD_DEREF"], (0, 1)),
    **dict.fromkeys(["LOAD_GLOBAL", "LOAD_NAME"], (0, 1)),
    **dict.fromkeys(["LOAD_ATTR", "UNARY_NEGATIVE"], (1, 1)),
    "LIST_EXTEND": (2, 1),
    "DUP_TOP_TWO": (2, 4),  # this and the next ones before Python 3.11
    "ROT_TWO": (2, 2),
    "ROT_THREE": (3, 3),
}


def _step(instruction: dis.Instruction, stack: list[Any], frame: types.FrameType) -> None:
    """Do what one instruction did, as far as that runs no code of anybody's."""
    operation, value, number = instruction.opname, instruction.argval, instruction.arg or 0
    takes, _ = _takes_and_gives(instruction)
    given = stack[len(stack) - takes :]
    del stack[len(stack) - takes :]
    if operation.startswith("LOAD_FAST"):
        names = value if type(value) is tuple else (value,)
        stack += [_found(name, frame.f_locals) for name in names]
    elif operation in ("LOAD_CONST", "LOAD_CONST_IMMORTAL", "LOAD_SMALL_INT"):
        stack.append(value)
    elif operation == "LOAD_DEREF":
        stack.append(_found(value, frame.f_locals))
    elif operation in ("LOAD_GLOBAL", "LOAD_NAME"):
        stack.append(_found(value, frame.f_locals, frame.f_globals, vars(builtins)))
    elif operation == "LOAD_ATTR":
        stack.append(_fetch.attribute(given[0], value))
    elif operation == "BUILD_LIST":
        stack.append(given)
    elif operation == "BUILD_TUPLE":
        stack.append(tuple(given))
    elif operation == "BUILD_SLICE":
        stack.append(slice(*given))
    elif operation == "LIST_EXTEND" and number == 1 and type(given[1]) in (tuple, list):
        stack.append([*given[0], *given[1]])
    elif operation == "UNARY_NEGATIVE" and type(given[0]) is int:
        stack.append(-given[0])
    elif operation == "COPY":
        stack += [*given, given[0]]
    elif operation == "DUP_TOP_TWO":
        stack += [*given, *given]
    elif operation in ("SWAP", "ROT_TWO"):
        stack += [given[-1], *given[1:-1], given[0]]
    elif operation == "ROT_THREE":
        stack += [given[2], given[0], given[1]]
    else:
        stack.append(_Unknown())


def _found(name: str, *scopes: Any) -> Any:
    for scope in scopes:
        if name in scope:
            return scope[name]
    raise _CannotTell
