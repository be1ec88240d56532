"""What code does with what it puts on the stack: sets that it makes, names of attributes.

The order of a set's members depends on their hashes, and those of most objects on addresses, which
differ from call to call; is it followed? And which attributes are asked for with ``getattr``, which
names them by constants? Code is read from the top to the bottom, with what each instruction leaves
on the stack in symbols; where code branches the stack is forgotten, and sets on it escape.
"""

from __future__ import annotations

import dis
import functools
import types
from dataclasses import dataclass
from typing import Any

from guards._understood import words

__all__ = ["MAKERS", "StackReading", "read_stack"]


@dataclass(frozen=True)
class StackReading:
    """What code does with what it puts on the stack.

    Attributes:
        follows_order: it does something with a set that it made in which the order may matter.
        locals: the names of locals that hold sets, in which the order does not.
        gives: it gives sets to its caller.
        sorts: it sorts one, which leaves the order to members of which none is the smaller.
        asked: the attributes that it asks for by name with `getattr` or `hasattr`.
        written: those that it sets or deletes so.
        misses: it may go on where there is no such attribute.
        asks_by_names_it_has: all that it asks for, sets or deletes so are these.
        makes: it makes sets.
        makes_unseen: it hands on the class of a value, or what makes a set of a set and more.
        keeps_views: it does more with the keys or the items of a dict than to go through them.
        operates: it has operators of sets, on what may be any values.
    """

    follows_order: bool
    locals: frozenset[str]
    gives: bool = False
    sorts: bool = False
    asked: frozenset[str] = frozenset()
    written: frozenset[str] = frozenset()
    misses: bool = False
    asks_by_names_it_has: bool = True
    makes: bool = False
    makes_unseen: bool = False
    keeps_views: bool = False
    operates: bool = False


class _Symbol:
    """What lies on the stack; that of nothing special."""


@dataclass(frozen=True)
class _Constant(_Symbol):
    """A constant of the code."""

    value: Any = None


class _Set(_Symbol):
    """A set that code has made, or what holds one; in the local of this name."""

    def __init__(self, name: str = "") -> None:
        self.name = name


class _View(_Symbol):
    """The keys or the items of a dict, of which operators make sets."""


class _Comprehension(_Symbol):
    """The function that a comprehension of a set is, before Python 3.12."""


class _Class(_Symbol):
    """The class of a value, which may be that of sets."""


@dataclass(frozen=True)
class _Name(_Symbol):
    name: str


@dataclass(frozen=True)
class _Attribute(_Symbol):
    owner: _Symbol
    name: str


_ASK_BY_NAME = ("getattr", "hasattr", "setattr", "delattr")
MAKERS = (set, frozenset)
_MAKERS = words("set frozenset")
# What takes a set, and gives the same whatever its order is.
_NO_ORDER = words("len bool sorted isinstance")
_ASKS = words("add discard remove clear update isdisjoint issubset issuperset __contains__ __len__")
_MORE_SETS = words("union symmetric_difference")  # also of what is not known
_GIVE_SETS = _MORE_SETS | words("intersection difference copy")
_GROW = words("add update symmetric_difference_update ior ixor __ior__ __ixor__ __init__")
# What goes through what it is given, and keeps it not.
_GO_THROUGH = words("all any dict enumerate filter iter list map next sum tuple zip")
_VIEWS = words("keys items")
_DICTS = words("dict OrderedDict defaultdict Counter")
_SPECIAL = frozenset(
    f"__{kind}{name}__" for kind in ("", "r", "i") for name in words("and or sub xor")
)
_MAKE_UNSEEN = _MORE_SETS | _SPECIAL | words("__call__ __new__")
_OPERATORS = words("& | - ^ &= |= -= ^=")
_OLD_OPERATORS = frozenset(
    f"{kind}_{name}" for kind in ("BINARY", "INPLACE") for name in words("AND OR SUBTRACT XOR")
)
_NOTHING = words("CACHE EXTENDED_ARG KW_NAMES NOP NOT_TAKEN PRECALL PUSH_NULL RESUME")
_CALLS = words("CALL CALL_FUNCTION CALL_METHOD")
_LOADS = words("LOAD_DEREF LOAD_CLASSDEREF LOAD_CLOSURE LOAD_FROM_DICT_OR_DEREF")


@functools.lru_cache(maxsize=4096)
def read_stack(code: types.CodeType) -> StackReading:
    """Read what code does with the sets that it makes, without the functions within it."""
    if code.co_name == "<setcomp>":
        return StackReading(False, frozenset())  # the code around it tells
    known: frozenset[str] = frozenset()
    while True:  # what is stored below may have been loaded above, in a loop
        found = _Reader(code, known).read()
        if found.locals == known:
            return found
        known = found.locals


class _Reader:
    def __init__(self, code: types.CodeType, known: frozenset[str]) -> None:
        self._instructions = list(dis.get_instructions(code))
        self._grows = bool(_GROW.intersection(code.co_names)) or any(
            i.opname in ("SET_ADD", "INPLACE_OR", "INPLACE_XOR") or i.argrepr in ("|=", "^=")
            for i in self._instructions
        )
        self._stack: list[_Symbol] = []
        self._locals = set(known)
        self._follows_order = False
        self._gives = self._sorts = self._misses = False
        self._makes = any(
            i.opname == "BUILD_SET" or i.argval in _MAKERS for i in self._instructions
        )
        names = code.co_names
        self._parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        self._operates = bool(_SPECIAL.intersection(names))
        self._keeps_views = self._makes_unseen = False
        self._asked: dict[str, list[str]] = {kind: [] for kind in _ASK_BY_NAME}
        self._calls = dict.fromkeys(_ASK_BY_NAME, 0)

    def read(self) -> StackReading:
        for instruction in self._instructions:
            if instruction.is_jump_target:
                self._forget()
            self._step(instruction.opname, instruction.arg or 0, instruction)
        asked = self._asked
        named = all(len(asked[kind]) == self._calls[kind] for kind in asked)
        return StackReading(
            self._follows_order,
            frozenset(self._locals),
            self._gives,
            self._sorts,
            frozenset(asked["getattr"] + asked["hasattr"]),
            frozenset(asked["setattr"] + asked["delattr"]),
            self._misses,
            named,
            self._makes,
            self._makes_unseen or bool({*asked["getattr"]} & (_MAKE_UNSEEN | {"__class__"})),
            self._keeps_views or bool({*asked["getattr"]} & _VIEWS),
            self._operates or bool({*asked["getattr"]} & _SPECIAL),
        )

    def _push(self, symbol: _Symbol) -> None:
        self._stack.append(symbol)

    def _pop(self, count: int) -> list[_Symbol]:
        missing = [_Symbol()] * (count - len(self._stack))
        given = missing + self._stack[-count:] if count else []
        del self._stack[len(self._stack) - (count - len(missing)) :]
        return given

    def _escape(self, *symbols: _Symbol) -> None:
        for symbol in symbols:
            at = symbol.owner if type(symbol) is _Attribute else symbol
            maker = type(at) is _Name and at.name in _MAKERS
            self._follows_order |= maker or type(at) in (_Set, _Comprehension)
            self._keeps_views |= type(at) is _View
            if type(symbol) is _Attribute:
                if symbol.name in _VIEWS:  # as a function of the class it may be called unseen
                    self._keeps_views = True
                    self._follows_order |= type(at) is _Name and at.name in _DICTS
                self._makes_unseen |= symbol.name in _MAKE_UNSEEN
            else:
                of_type = type(symbol) is _Name and symbol.name == "type"
                self._makes_unseen |= of_type or type(symbol) is _Class

    def _forget(self) -> None:
        self._escape(*self._stack)
        self._stack = []

    def _made(self, of_constants: bool) -> _Symbol:
        """Give a new set; one of constants matters only where it may get further members."""
        return _Constant() if of_constants and not self._grows else _Set()

    def _step(self, operation: str, number: int, instruction: dis.Instruction) -> None:
        name = instruction.argval
        if operation in _NOTHING:
            return
        if operation == "STORE_FAST_LOAD_FAST":
            self._store(name[0])
            self._load(name[1])
        elif operation.startswith("LOAD_FAST"):
            for one in name if type(name) is tuple else (name,):
                self._load(one)
        elif operation.startswith("LOAD_CONST") or operation == "LOAD_SMALL_INT":
            inner = type(name) is types.CodeType and name.co_name == "<setcomp>"
            self._push(_Comprehension() if inner else _Constant(name))
        elif operation in ("LOAD_GLOBAL", "LOAD_NAME"):
            self._push(_Name(name))
            if name in _ASK_BY_NAME:
                self._calls[name] += 1
        elif operation in _LOADS:
            self._push(_Symbol())
        elif operation in ("LOAD_ATTR", "LOAD_METHOD"):
            (owner,) = self._pop(1)
            self._push(_Class() if name == "__class__" else _Attribute(owner, name))
            if name in _ASK_BY_NAME:  # of the module of builtins
                self._calls[name] += 1
        elif operation == "STORE_FAST" and type(name) is str:
            self._store(name)
        elif operation == "POP_TOP":
            self._pop(1)
        elif operation == "DUP_TOP" or (operation == "COPY" and number == 1):
            self._stack += self._pop(1) * 2
        elif operation == "MAKE_FUNCTION":
            self._make_function(number)
        elif operation in ("CONTAINS_OP", "COMPARE_OP", "IS_OP"):
            self._pop(2)
            self._push(_Symbol())
        elif operation in _CALLS:
            self._call(number)
        elif operation in _OLD_OPERATORS or instruction.argrepr in _OPERATORS:
            self._operate(instruction)
        elif operation == "RETURN_VALUE":
            (given,) = self._pop(1)
            self._gives |= type(given) is _Set
            if type(given) is not _Set:
                self._escape(given)
            self._forget()
        elif operation.startswith(("UNARY_", "TO_BOOL")):
            self._pop(1)
            self._push(_Symbol())
        elif operation.startswith("POP_JUMP"):
            self._pop(1)
            self._forget()
        else:
            self._build(operation, number)

    def _operate(self, instruction: dis.Instruction) -> None:
        """Make a set of what is one; the left side of ``|=`` may be a set of the caller's."""
        left, right = self._pop(2)
        known = [type(symbol) in (_Set, _View) for symbol in (left, right)]
        in_place = instruction.opname.startswith("INPLACE") or instruction.argrepr.endswith("=")
        given = type(left) is _Set and left.name in self._parameters
        if in_place and known[1] and (given or not known[0]):
            self._follows_order = True
        if not any(known) and not any(
            type(symbol) is _Constant and type(symbol.value) in (int, float, complex)
            for symbol in (left, right)
        ):
            self._operates = True
        self._push(_Set() if any(known) else _Symbol())

    def _load(self, name: str) -> None:
        self._push(_Set(name) if name in self._locals else _Symbol())

    def _store(self, name: str) -> None:
        (symbol,) = self._pop(1)
        if type(symbol) is _Set:
            self._locals.add(name)
        else:
            self._escape(symbol)

    def _build(self, operation: str, number: int) -> None:
        if operation == "BUILD_SET":
            given = self._pop(number)
            self._push(self._made(all(type(symbol) is _Constant for symbol in given)))
        elif operation in ("BUILD_TUPLE", "BUILD_LIST"):
            given = self._pop(number)
            held = [s for s in given if type(s) is _Set or (type(s) is _Name and s.name in _MAKERS)]
            constant = all(type(symbol) is _Constant for symbol in given)
            self._escape(*(symbol for symbol in given if symbol not in held))
            self._push(_Set() if held else _Constant() if constant else _Symbol())
        elif operation in ("SET_UPDATE", "LIST_EXTEND") and number == 1:
            into, added = self._pop(2)
            self._escape(added)
            plain = _Set() if operation == "SET_UPDATE" else _Symbol()
            self._push(into if type(added) is _Constant else plain)
        elif operation == "GET_ITER" and type(self._stack[-1:] and self._stack[-1]) is _View:
            self._pop(1)
            self._push(_Symbol())
        elif operation == "GET_ITER" or operation.startswith(("BINARY_", "INPLACE_")):
            counts = {"GET_ITER": 1, "BINARY_SLICE": 3}
            self._escape(*self._pop(counts.get(operation, 2)))
            self._push(_Symbol())
        else:
            self._forget()

    def _make_function(self, flags: int) -> None:
        code, beneath = self._pop(1)[0], self._stack[-1:]
        if type(code) is _Constant and [type(s) for s in beneath] == [_Comprehension]:
            (code,) = self._pop(1)  # before Python 3.11 a name lies upon it
        self._escape(*self._pop(bin(flags & 15).count("1")))
        self._push(code if type(code) is _Comprehension else _Symbol())

    def _is_special(self, function: _Symbol) -> bool:
        """Tell whether a call of this is an operator of sets by its name."""
        of_sets = type(function) is _Attribute and type(function.owner) in (_Set, _View)
        return of_sets and function.name in _SPECIAL  # type: ignore[attr-defined]

    def _call(self, number: int) -> None:
        given = self._pop(number)
        (function,) = self._pop(1)
        if self._stack and type(self._stack[-1]) is _Comprehension:
            given, function = [*given, function], self._stack.pop()  # the iterator it is given
        named = function.name if type(function) is _Name else ""
        asked = function.name if type(function) is _Attribute else ""
        of_set = type(function) is _Attribute and type(function.owner) is _Set
        if named in _ASK_BY_NAME and len(given) > 1 and type(given[1]) is _Constant:
            told = given[1].value
            self._asked[named] += [told] if type(told) is str else []
            self._misses |= named == "hasattr" or (named == "getattr" and len(given) > 2)
        if type(function) is _Comprehension:
            self._escape(*given)
            self._push(_Set())
        elif named in _MAKERS:
            self._push(self._made(all(type(symbol) is _Constant for symbol in given)))
        elif asked in _MORE_SETS or (of_set and asked in _GIVE_SETS) or self._is_special(function):
            self._push(_Set())
        elif asked in _VIEWS:
            self._push(_View())
        elif named == "type" and len(given) == 1:
            self._push(_Class())
        elif named in _GO_THROUGH and any(type(symbol) is _View for symbol in given):
            self._escape(*(symbol for symbol in given if type(symbol) is not _View))
            self._push(_Symbol())
        elif (of_set and asked in _ASKS) or (
            named in _NO_ORDER and len(given) == 1 + (named == "isinstance")
        ):
            self._sorts |= named == "sorted" and type(given[0]) is _Set
            self._push(_Symbol())
        else:
            self._escape(function, *given)
            self._push(_Symbol())
