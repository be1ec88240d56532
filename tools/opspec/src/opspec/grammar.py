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
from opspec.grammar_types import (
    ARGUMENT_REMEDY,
    MAX_DEPTH,
    RESULT_REMEDY,
    Abort,
    Fault,
    TypeParser,
    describe,
)
from opspec.model import Default, Return, Type
from opspec.tokens import Token, unescape, unknown_escape

__all__ = ["ParsedParameter", "ParsedSchema", "Parser"]

_WHOLE = re.compile(r"-?\d+")
_RESULTS_REMEDY = "several results stand in parentheses: -> (Tensor, Tensor)"


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


class Parser(TypeParser):
    """Reads one text; `faults` has all that is wrong with it, in the order of the text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.return_spans: list[tuple[int, int]] = []
        self.item_spans: list[tuple[int, int]] = []  # of the last default that is a list
        self.open_arguments = False

    # Defaults

    def literal(self, depth: int = 0) -> Literal_:
        """Read what stands behind `=`, whatever the type."""
        if depth > MAX_DEPTH:
            raise self.too_deep("default")
        if self.accept("["):
            items: list[Literal_] = []
            if self.accept("]"):
                return items
            if depth == 0:
                self.item_spans.clear()
            while True:
                start = self.token.start
                items.append(self.literal(depth + 1))
                if depth == 0:
                    self.item_spans.append((start, self.tokens[self.at - 1].end))
                if self.accept("]"):
                    return items
                self.expect(",", "or `]` in the list", "write a list as [1, 2]")
        if self.token.kind == "string":
            return self._string(self.take())
        if self.token.kind == "name":
            return self._symbol(self.take().text)
        return self._number()

    def _string(self, token: Token) -> str:
        if escape := unknown_escape(token.text):
            start = token.start + escape.start()
            self.faults.append(
                Fault(
                    start,
                    token.start + escape.end(),
                    f"torch knows no escape {escape[0]} in a string",
                    "double the backslash",
                )
            )
        return unescape(token.text)

    def _symbol(self, name: str) -> Literal_:
        if name in ("None", "True", "False"):
            return {"None": None, "True": True, "False": False}[name]
        if self.is_at(":") and self.tokens[self.at + 1].kind == "number":
            self.take()
            return Symbol(f"{name}:{self.take().text}")
        while self.is_at(".") and self.tokens[self.at + 1].kind == "name":
            self.take()
            name += f".{self.take().text}"  # no schema has this, but Python does: torch.float
        return Symbol(name)

    def _number(self) -> Literal_:
        sign = "-" if self.accept("-") else ""
        if sign and self.is_at("inf"):
            self.take()
            return Symbol("-inf")
        if self.token.kind != "number":
            raise self.fail(
                f"expected a default after `=`, but found {describe(self.token)}",
                'a default is a number, True, None, "text", a list or the name of an enum value',
            )
        first = sign + self.take().text
        # torch prints the complex number 1j as 0.+1.j
        if self.is_at("+", "-") and self.tokens[self.at + 1].text.endswith("j"):
            second = self.take().text + self.take().text
            return complex(float(first.rstrip("j")), float(second.rstrip("j")))
        if first.endswith("j"):
            return complex(0.0, float(first[:-1]))
        if _WHOLE.fullmatch(first):
            # Python refuses to read thousands of digits; no type of torch has them.
            return int(first) if len(first) <= 400 else 10**400
        return float(first)

    # Arguments and results

    def lone_parameter(self) -> ParsedParameter | None:
        """Read a text that is one argument; None if there is a fault in it."""
        try:
            found = self.parameter()
        except Abort:
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
            ARGUMENT_REMEDY,
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
                span = default_span if mismatch.item is None else self.item_spans[mismatch.item]
                self.faults.append(Fault(*span, mismatch.message, mismatch.remedy))
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
        except Abort:
            return None
        parameters, vararg = self._parameters()
        returns: tuple[Return, ...] = ()
        varret = False
        try:
            if self.hopeless or self.open_arguments:
                raise Abort
            self.expect("->", "and the results", RESULT_REMEDY)
            self.in_results = True
            returns, varret = self._returns()
            if self.token.kind != "end":
                raise self.fail(
                    f"{describe(self.token)} stands behind the end of the schema",
                    _RESULTS_REMEDY,
                )
        except Abort:
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
                f"expected `(` after the operator's name, but found {describe(self.token)}",
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
            except Abort:
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
