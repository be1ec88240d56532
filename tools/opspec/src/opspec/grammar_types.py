"""The types of the schema grammar, and what its whole reader stands on: tokens and faults."""

from __future__ import annotations

import re
from dataclasses import dataclass

from opspec.model import (
    Alias,
    DictOf,
    Generic_,
    ListOf,
    Named,
    Optional_,
    TupleOf,
    Type,
)
from opspec.tokens import Token, tokenize

__all__ = [
    "ARGUMENT_REMEDY",
    "MAX_DEPTH",
    "RESULT_REMEDY",
    "Abort",
    "Fault",
    "TypeParser",
    "describe",
]

MAX_DEPTH = 32  # of a type or a default: deeper is a mistake, and no stack may overflow
_MAX_SIZE = 1024  # of a sized list: a single default is expanded to that length
_GENERICS = ("Dict", "Future", "RRef", "Await", "Union")
_WHOLE = re.compile(r"\d+")
_CLASS_REMEDY = "a class of torch's looks like __torch__.torch.classes.c10d.Work"

ARGUMENT_REMEDY = "an argument is a type and a name: Tensor self"
RESULT_REMEDY = "write `-> Tensor`, or `-> ()` where nothing is returned"


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong in the text from `start` to `end`."""

    start: int
    end: int
    message: str
    remedy: str | None = None


class Abort(Exception):
    """Leave the argument that is being read; its fault is noted already."""


def describe(token: Token) -> str:
    """Name a token in a message."""
    if token.kind == "end":
        return "the end of the schema"
    text = token.text if len(token.text) <= 40 else token.text[:39] + "…"
    return f"'{text}'"


class TypeParser:
    """Reads types from one text; `faults` has all that is wrong with it, in the text's order."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokenize(text)
        self.at = 0
        self.faults: list[Fault] = []
        self.in_results = False
        self.hopeless = False  # nothing behind the last fault can be made sense of

    # Tokens

    @property
    def token(self) -> Token:
        """The next token."""
        return self.tokens[self.at]

    def is_at(self, *texts: str) -> bool:
        """Say whether one of these stands next."""
        token = self.token
        return token.text in texts and token.kind in ("punct", "name")

    def take(self) -> Token:
        """Step over the next token and give it; the end stays."""
        token = self.token
        if token.kind != "end":
            self.at += 1
        return token

    def accept(self, text: str) -> bool:
        """Step over `text` if it stands next, and say whether it did."""
        if self.is_at(text):
            self.at += 1
            return True
        return False

    def fault(self, token: Token, message: str, remedy: str | None = None) -> None:
        """Note a fault at a token."""
        self.faults.append(Fault(token.start, max(token.end, token.start + 1), message, remedy))

    def fail(self, message: str, remedy: str | None = None) -> Abort:
        """Note a fault at the next token, and give the exception that leaves the argument."""
        token = self.token
        if token.kind == "open_string":
            message, remedy = "the string is never closed", f"close it with {token.text[0]}"
            self.hopeless = True
        elif token.kind == "bad":
            message = f"{describe(token)} does not belong into a schema"
            remedy = "names are made of letters, digits and underscores"
        self.fault(token, message, remedy)
        return Abort()

    def expect(self, text: str, after: str, remedy: str | None = None) -> None:
        """Step over `text`, or fail."""
        if not self.accept(text):
            raise self.fail(f"expected `{text}` {after}, but found {describe(self.token)}", remedy)

    def name(self, what: str, remedy: str | None = None) -> Token:
        """Step over a name and give it, or fail."""
        if self.token.kind != "name":
            raise self.fail(f"expected {what}, but found {describe(self.token)}", remedy)
        return self.take()

    def too_deep(self, what: str) -> Abort:
        """Note that a type or default is nested too deeply."""
        self.hopeless = True
        return self.fail(f"the {what} is nested too deeply", f"at most {MAX_DEPTH} levels are read")

    # Types

    def type_(self, depth: int = 0) -> Type:
        """Read a type."""
        start = self.token
        if depth > MAX_DEPTH:
            raise self.too_deep("type")
        type_ = self._base(depth)
        while self.is_at("?", "[", "("):
            depth += 1
            if depth > MAX_DEPTH:
                raise self.too_deep("type")
            if self.is_at("?"):
                if isinstance(type_, Optional_):
                    raise self.fail("the type is optional already", "write a single `?`")
                self.take()
                type_ = Optional_(type_)
            elif self.is_at("["):
                type_ = ListOf(type_, self._size())
            else:
                if type_.alias is not None or isinstance(type_, Optional_):
                    read = self.text[start.start : self.token.start].strip()
                    raise self.fail(
                        f"expected a name after {read}, but found {describe(self.token)}",
                        "an alias stands once, before the `?`: Tensor(a!)?",
                    )
                type_ = self._with_alias(type_)
        return type_

    def _base(self, depth: int) -> Type:
        if self.is_at("("):
            self.take()
            return TupleOf(self._types(depth))
        word = self.name("a type", RESULT_REMEDY if self.in_results else ARGUMENT_REMEDY)
        if word.text == "__torch__":
            path = word.text
            while self.accept("."):
                path += "." + self.name("the next part of the class's name", _CLASS_REMEDY).text
            return Named(path)
        if word.text in _GENERICS and self.is_at("("):
            self.take()
            args = self._types(depth)
            if word.text != "Dict":
                return Generic_(word.text, args)
            if len(args) != 2:
                self.fault(word, "a Dict has two types", "write Dict(str, Tensor)")
                raise Abort
            return DictOf(*args)
        return Named(word.text)

    def _types(self, depth: int) -> tuple[Type, ...]:
        types: list[Type] = []
        if self.accept(")"):
            return ()
        while True:
            types.append(self.type_(depth + 1))
            if self.accept(")"):
                return tuple(types)
            self.expect(",", "or `)` after a type", "types stand apart by commas: (int, str)")

    def _size(self) -> int | None:
        self.take()
        size = None
        if self.token.kind == "number":
            token = self.token
            if not _WHOLE.fullmatch(token.text) or len(token.text) > 9:
                raise self.fail("the size of a list is a whole number", "write int[2]")
            size = int(self.take().text)
            if size > _MAX_SIZE:
                self.fault(token, f"the size of a list is at most {_MAX_SIZE}", "write int[]")
                raise Abort
        elif self.token.kind == "name":
            word = self.token.text
            raise self.fail(
                f"the size of a list is a number, but found {describe(self.token)}",
                f"a list of {word} is {word}[], and what may be None is {word}?",
            )
        self.expect("]", "after the list's size", "write int[2] or int[]")
        return size

    def _with_alias(self, type_: Type) -> Type:
        alias = self._alias()
        match type_:
            case Named(name=name):
                return Named(name, alias)
            case ListOf(element=element, size=size):
                return ListOf(element, size, alias)
            case TupleOf(elements=elements):
                return TupleOf(elements, alias)
            case DictOf(key=key, value=value):
                return DictOf(key, value, alias)
            case Generic_(name=name, args=args):
                return Generic_(name, args, alias)
            case Optional_():
                raise AssertionError("type_ refuses an alias behind ?")

    def _alias(self) -> Alias:
        remedy = "an alias looks like (a), (a!), (a|b) or (a -> *)"
        self.take()
        before = self._alias_set(remedy)
        write = self.accept("!")
        after = self._alias_set(remedy) if self.accept("->") else None
        self.expect(")", "after the alias", remedy)
        return Alias(before, None if after and set(after) == set(before) else after, write)

    def _alias_set(self, remedy: str) -> tuple[str, ...]:
        names: list[str] = []
        while True:
            name = "*" if self.accept("*") else self.name("an alias", remedy).text
            if name not in names:
                names.append(name)
            if not self.accept("|"):
                return tuple(names)
