"""The schema grammar: reads any text, finds every fault, and knows the column of each.

    schema  = [namespace "::"] name ["." overload] "(" arguments ")" "->" results
    argument = type name ["=" default]       and once "*", at last "..."
    results = type [name] | "(" [type [name] {"," type [name]}] ["..."] ")" | "..."
    type    = (name | "(" types ")" | name "(" types ")") {"?" | "[" [size] "]" | alias}
    alias   = "(" set ["!"] ["->" set] ")"   set = (name | "*") {"|" (name | "*")}

`opspec.schema` has a faster way for what is right; this one is for all the rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from opspec.defaults import Literal_, Mismatch, Symbol, convert
from opspec.model import (
    Alias,
    Default,
    DictOf,
    Generic_,
    ListOf,
    Named,
    Optional_,
    Return,
    TupleOf,
    Type,
)
from opspec.tokens import Token, tokenize, unescape

__all__ = ["MAX_DEPTH", "Fault", "ParsedParameter", "ParsedSchema", "Parser"]

MAX_DEPTH = 32  # of a type or a default: deeper is a mistake, and no stack may overflow
_MAX_SIZE = 1024  # of a sized list: a single default is expanded to that length
_GENERICS = ("Dict", "Future", "RRef", "Await", "Union")
_PLAIN = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong in the text from `start` to `end`."""

    start: int
    end: int
    message: str
    remedy: str | None = None


_ARGUMENT_REMEDY = "an argument is a type and a name: Tensor self"
_RESULTS_REMEDY = "several results stand in parentheses: -> (Tensor, Tensor)"
_CLASS_REMEDY = "a class of torch's looks like __torch__.torch.classes.c10d.Work"
_RESULT_REMEDY = "write `-> Tensor`, or `-> ()` where nothing is returned"


class _Abort(Exception):
    """Leave the argument that is being read; its fault is noted already."""


@dataclass(frozen=True, slots=True)
class ParsedParameter:
    """An argument, and from where to where its type, name and default go in the text."""

    start: int
    name: str
    type: Type
    default: Default
    has_default: bool
    kwarg_only: bool
    type_span: tuple[int, int]
    name_span: tuple[int, int]
    default_span: tuple[int, int]


@dataclass(frozen=True, slots=True)
class ParsedSchema:
    """The parts of a schema; the spans are those of namespace, name, overload and results."""

    namespace: str
    name: str
    overload: str
    parameters: tuple[ParsedParameter, ...]
    returns: tuple[Return, ...]
    vararg: bool
    varret: bool
    name_spans: tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
    return_spans: tuple[tuple[int, int], ...]


def _describe(token: Token) -> str:
    if token.kind == "end":
        return "the end of the schema"
    text = token.text if len(token.text) <= 40 else token.text[:39] + "…"
    return f"'{text}'"


class Parser:
    """Reads one text; `faults` has all that is wrong with it, in the order of the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokenize(text)
        self.at = 0
        self.faults: list[Fault] = []
        self.return_spans: list[tuple[int, int]] = []
        self.in_results = False
        self.open_arguments = False
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

    def fail(self, message: str, remedy: str | None = None) -> _Abort:
        """Note a fault at the next token, and give the exception that leaves the argument."""
        token = self.token
        if token.kind == "open_string":
            message, remedy = "the string is never closed", f"close it with {token.text[0]}"
            self.hopeless = True
        elif token.kind == "bad":
            message = f"{_describe(token)} does not belong into a schema"
            remedy = "names are made of letters, digits and underscores"
        self.fault(token, message, remedy)
        return _Abort()

    def expect(self, text: str, after: str, remedy: str | None = None) -> None:
        """Step over `text`, or fail."""
        if not self.accept(text):
            raise self.fail(f"expected `{text}` {after}, but found {_describe(self.token)}", remedy)

    def name(self, what: str, remedy: str | None = None) -> Token:
        """Step over a name and give it, or fail."""
        if self.token.kind != "name":
            raise self.fail(f"expected {what}, but found {_describe(self.token)}", remedy)
        return self.take()

    def too_deep(self, what: str) -> _Abort:
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
                        f"expected a name after {read}, but found {_describe(self.token)}",
                        "an alias stands once, before the `?`: Tensor(a!)?",
                    )
                type_ = self._with_alias(type_)
        return type_

    def _base(self, depth: int) -> Type:
        if self.is_at("("):
            self.take()
            return TupleOf(self._types(depth))
        word = self.name("a type", _RESULT_REMEDY if self.in_results else _ARGUMENT_REMEDY)
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
                raise _Abort
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
            if not _PLAIN.fullmatch(token.text) or len(token.text) > 9:
                raise self.fail("the size of a list is a whole number", "write int[2]")
            size = int(self.take().text)
            if size > _MAX_SIZE:
                self.fault(token, f"the size of a list is at most {_MAX_SIZE}", "write int[]")
                raise _Abort
        elif self.token.kind == "name":
            word = self.token.text
            raise self.fail(
                f"the size of a list is a number, but found {_describe(self.token)}",
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

    # Defaults

    def literal(self, depth: int = 0) -> Literal_:
        """Read what stands behind `=`, whatever the type."""
        if depth > MAX_DEPTH:
            raise self.too_deep("default")
        if self.accept("["):
            items: list[Literal_] = []
            if self.accept("]"):
                return items
            while True:
                items.append(self.literal(depth + 1))
                if self.accept("]"):
                    return items
                self.expect(",", "or `]` in the list", "write a list as [1, 2]")
        if self.token.kind == "string":
            return unescape(self.take().text)
        if self.token.kind == "name":
            return self._symbol(self.take().text)
        return self._number()

    def _symbol(self, name: str) -> Literal_:
        if name in ("None", "True", "False"):
            return {"None": None, "True": True, "False": False}[name]
        if self.is_at(":") and self.tokens[self.at + 1].kind == "number":
            self.take()
            return Symbol(f"{name}:{self.take().text}")
        return Symbol(name)

    def _number(self) -> Literal_:
        sign = "-" if self.accept("-") else ""
        if sign and self.is_at("inf"):
            self.take()
            return Symbol("-inf")
        if self.token.kind != "number":
            raise self.fail(
                f"expected a default after `=`, but found {_describe(self.token)}",
                'a default is a number, True, None, "text", a list or the name of an enum value',
            )
        first = sign + self.take().text
        # torch prints the complex number 1j as 0.+1.j
        if self.is_at("+", "-") and self.tokens[self.at + 1].text.endswith("j"):
            second = self.take().text + self.take().text
            return complex(float(first.rstrip("j")), float(second.rstrip("j")))
        if first.endswith("j"):
            return complex(0.0, float(first[:-1]))
        if _PLAIN.fullmatch(first.lstrip("-")):
            # Python refuses to read thousands of digits; no type of torch has them.
            return int(first) if len(first) <= 400 else 10**400
        return float(first)

    # Arguments and results

    def lone_parameter(self) -> ParsedParameter | None:
        """Read a text that is one argument; None if there is a fault in it."""
        try:
            found = self.parameter()
        except _Abort:
            return None
        return None if self.faults or self.token.kind != "end" else found

    def parameter(self, *, kwarg_only: bool = False) -> ParsedParameter:
        """Read `type name` or `type name=default`."""
        start = self.token
        type_ = self.type_()
        type_span = (start.start, self.tokens[self.at - 1].end)
        type_text = self.text[slice(*type_span)]
        name = self.name(
            f"the argument's name after {type_text}",
            _ARGUMENT_REMEDY,
        )
        name_span = (name.start, name.end)
        default: Default = None
        default_span = (name.end, name.end)
        has_default = self.accept("=")
        if has_default:
            first = self.token
            value = self.literal()
            default_span = (first.start, self.tokens[self.at - 1].end)
            try:
                default = convert(type_, value)
            except Mismatch as mismatch:
                self.faults.append(Fault(*default_span, mismatch.message, mismatch.remedy))
        return ParsedParameter(
            start.start,
            name.text,
            type_,
            default,
            has_default,
            kwarg_only,
            type_span,
            name_span,
            default_span,
        )

    def result(self) -> Return:
        """Read `type` or `type name`."""
        start = self.token.start
        type_ = self.type_()
        name = self.take().text if self.token.kind == "name" else None
        self.return_spans.append((start, self.tokens[self.at - 1].end))
        return Return(name, type_)

    def schema(self) -> ParsedSchema | None:
        """Read a whole schema; None if its name could not be read."""
        try:
            names = self._qualified_name()
        except _Abort:
            return None
        parameters, vararg = self._parameters()
        returns: tuple[Return, ...] = ()
        varret = False
        try:
            if self.hopeless or self.open_arguments:
                raise _Abort
            self.expect("->", "and the results", _RESULT_REMEDY)
            self.in_results = True
            returns, varret = self._returns()
            if self.token.kind != "end":
                raise self.fail(
                    f"{_describe(self.token)} stands behind the end of the schema",
                    _RESULTS_REMEDY,
                )
        except _Abort:
            pass
        namespace, name, overload = names
        return ParsedSchema(
            namespace.text,
            name.text,
            overload.text,
            parameters,
            returns,
            vararg,
            varret,
            (
                (namespace.start, namespace.end),
                (name.start, name.end),
                (overload.start, overload.end),
            ),
            tuple(self.return_spans),
        )

    def _qualified_name(self) -> tuple[Token, Token, Token]:
        example = "a schema looks like add.Tensor(Tensor self, Tensor other) -> Tensor"
        name = self.name("the operator's name", example)
        namespace = Token("name", "", name.start)
        if self.accept("::"):
            namespace, name = name, self.name("the operator's name after `::`", example)
        overload = Token("name", "", name.end)
        if self.accept("."):
            overload = self.name("the overload's name after `.`", example)
        if not self.is_at("("):
            raise self.fail(
                f"expected `(` after the operator's name, but found {_describe(self.token)}",
                example,
            )
        return namespace, name, overload

    def _parameters(self) -> tuple[tuple[ParsedParameter, ...], bool]:
        opening = self.take()
        parameters: list[ParsedParameter] = []
        star: Token | None = None
        if self.accept(")"):
            return (), False
        while True:
            start = self.at
            try:
                if self.is_at("*"):
                    if star is not None:
                        self.fault(
                            self.token,
                            "a second `*`: the arguments are keyword-only already",
                            "take it out",
                        )
                    star = self.take()
                    if self.is_at(")"):
                        self.fault(star, "no argument stands after `*`", "take it out")
                elif self.is_at("..."):
                    self.take()
                    if self.accept(")"):
                        return tuple(parameters), True
                    raise self.fail("`...` must be the last of the arguments", "move it to the end")
                else:
                    parameters.append(self.parameter(kwarg_only=star is not None))
                if self.accept(")"):
                    return tuple(parameters), False
                if self.is_at("->") or self.token.kind == "end":
                    self._unclosed(opening)
                    return tuple(parameters), False
                self.expect(
                    ",",
                    "or `)` after an argument",
                    "arguments stand apart by commas: (int a, int b)",
                )
                if self.is_at(")"):
                    raise self.fail("no argument stands behind the comma", "take the comma out")
            except _Abort:
                if self.hopeless or not self._skip_argument(start):
                    self._unclosed(opening)
                    return tuple(parameters), False
                if self.accept(")"):
                    return tuple(parameters), False
                self.take()

    def _unclosed(self, opening: Token) -> None:
        if not self.hopeless:
            self.fault(opening, "the `(` of the arguments is never closed", "close it with `)`")
        self.open_arguments = self.token.kind == "end"

    def _skip_argument(self, start: int) -> bool:
        """Go to the `,` or `)` that ends the argument begun at `start`; False if there is none."""
        at = self.at
        read = [token.text for token in self.tokens[start:at] if token.kind == "punct"]
        opened = sum(text in ("(", "[") for text in read) - sum(text in (")", "]") for text in read)
        if self._skip_to_end(opened):
            return True
        # What was opened in the argument is never closed: take it for closed here.
        self.at = at
        return self._skip_to_end(0)

    def _skip_to_end(self, depth: int) -> bool:
        while self.token.kind != "end":
            if depth <= 0 and self.is_at(",", ")"):
                return True
            if depth <= 0 and self.is_at("->"):
                return False
            if self.is_at("(", "["):
                depth += 1
            elif self.is_at(")", "]"):
                depth -= 1
            self.take()
        return False

    def _returns(self) -> tuple[tuple[Return, ...], bool]:
        if self.accept("..."):
            return (), True
        if not self.is_at("("):
            return (self.result(),), False
        opening = self.take()
        results: list[Return] = []
        if self.accept(")"):
            return (), False
        while True:
            if self.accept("..."):
                self.expect(")", "after `...`", "`...` ends the list of results")
                return tuple(results), True
            results.append(self.result())
            if self.accept(")"):
                return tuple(results), False
            if self.token.kind == "end":
                self.fault(opening, "the `(` of the results is never closed", "close it with `)`")
                return tuple(results), False
            self.expect(",", "or `)` after a result", _RESULTS_REMEDY)
