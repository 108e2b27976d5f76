"""The parser of filters.

    filter    = all ("or" all)*
    all       = single ("and" single)*
    single    = "not" single | "(" filter ")" | "true" | "false" | condition
    condition = name ("=" | "!=" | "<" | "<=" | ">" | ">=") value
              | name "in" "(" value ("," value)* ")"
              | name "prefix" text

Names are bare or in double quotes, texts in single quotes; a quote within is written twice.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from newsstand.errors import BadFilter
from newsstand.overlay.filters.expressions import (
    COMPARE,
    KEYWORDS,
    TOPIC,
    And,
    AttributeComparison,
    Condition,
    Expression,
    Not,
    OneOf,
    Or,
    Prefix,
    combine,
)
from newsstand.overlay.filters.value_sets import Value

LONGEST = 8192
"""Characters of a filter."""
DEEPEST = 32
"""Nesting of `not` and parentheses."""
MOST_VALUES = 256
"""Values that a filter may name."""

SPACES = " \t\n\r\f\v"

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>-?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![A-Za-z_0-9.]))
    | (?P<text>'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")+")
    | (?P<name>[A-Za-z_][A-Za-z0-9_.]*)
    | (?P<sign><=|>=|!=|=|<|>|\(|\)|,)
    | (?P<end>\Z)
    )""",
    re.VERBOSE | re.ASCII,
)


class FilterToken(NamedTuple):
    """A token, and its column from 1."""

    kind: str
    text: str
    column: int

    @property
    def word(self) -> str:
        """The sign or keyword; empty for other tokens."""
        if self.kind == "sign":
            return self.text
        return self.text.lower() if self.kind == "name" and self.text.lower() in KEYWORDS else ""

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else printable(self.text)


def printable(text: str) -> str:
    """Return a short printable form of a text."""
    short = text if len(text) <= 40 else f"{text[:40]}…"
    return short if short.isprintable() else short.encode("unicode_escape").decode()


def parse(text: str) -> Expression:
    """Return the expression of a text; raise BadFilter with the column of the mistake."""
    if len(text) > LONGEST:
        raise BadFilter(f"filter: {len(text)} characters; at most {LONGEST} are read")
    tokens = _tokens(text)
    reading = _Parser(tokens)
    expression = reading.filter(0)
    if reading.next.kind != "end":
        raise _wrong(reading.next, "expected 'and', 'or' or the end")
    return expression


def _wrong(token: FilterToken, what: str) -> BadFilter:
    return BadFilter(f"filter, column {token.column}: {what}, found {token}")


def _tokens(text: str) -> list[FilterToken]:
    tokens: list[FilterToken] = []
    place = 0
    while not tokens or tokens[-1].kind != "end":
        found = _TOKEN.match(text, place)
        if found is None:
            rest = text[place:].lstrip(SPACES)
            column = len(text) - len(rest) + 1
            what = "a quote is not closed" if rest[0] in "'\"" else f"'{printable(rest[0])}' is not understood"
            raise BadFilter(f"filter, column {column}: {what}")
        kind = str(found.lastgroup)
        tokens.append(FilterToken(kind, found[kind], found.start(kind) + 1))
        place = found.end()
    for token in tokens:
        if any("\ud800" <= letter <= "\udfff" for letter in token.text):
            raise BadFilter(f"filter, column {token.column}: half a character (a lone surrogate)")
    return tokens


class _Parser:
    """Recursive descent over the tokens."""

    def __init__(self, tokens: list[FilterToken]) -> None:
        self._tokens = tokens
        self._at = 0
        self._values = 0

    @property
    def next(self) -> FilterToken:
        return self._tokens[self._at]

    def _take(self) -> FilterToken:
        token = self.next
        self._at += token.kind != "end"
        return token

    def _takes(self, word: str) -> bool:
        if self.next.word != word:
            return False
        self._at += 1
        return True

    def _expect(self, word: str) -> None:
        if not self._takes(word):
            raise _wrong(self.next, f"expected '{word}'")

    def filter(self, depth: int) -> Expression:
        parts = [self._all(depth)]
        while self._takes("or"):
            parts.append(self._all(depth))
        return combine(Or, parts)

    def _all(self, depth: int) -> Expression:
        parts = [self._single(depth)]
        while self._takes("and"):
            parts.append(self._single(depth))
        return combine(And, parts)

    def _single(self, depth: int) -> Expression:
        if depth > DEEPEST:
            raise BadFilter(f"filter, column {self.next.column}: nested more than {DEEPEST} deep")
        if self._takes("not"):
            return Not(self._single(depth + 1))
        if self._takes("("):
            inner = self.filter(depth + 1)
            self._expect(")")
            return inner
        if self._takes("true"):
            return And(())
        return Or(()) if self._takes("false") else self._condition()

    def _condition(self) -> Condition:
        name = self._name()
        sign = self._take()
        if sign.word == "in":
            return OneOf(name, self._list())
        if sign.word == "prefix":
            return Prefix(name, self._text())
        if sign.word not in COMPARE:
            raise _wrong(sign, "expected a comparison, 'in' or 'prefix'")
        token = self.next
        value = self._value()
        if isinstance(value, bool) and sign.word not in ("=", "!="):
            raise _wrong(token, f"expected a number or a text after '{sign.word}'")
        return AttributeComparison(name, sign.word, value)

    def _name(self) -> str:
        token = self._take()
        if token.kind == "quoted":
            name = token.text[1:-1].replace('""', '"')
        elif token.kind == "name" and not token.word:
            name = token.text
        else:
            raise _wrong(token, f"expected an attribute, such as {TOPIC}")
        return name

    def _list(self) -> tuple[Value, ...]:
        self._expect("(")
        values = [self._value()]
        while self._takes(","):
            values.append(self._value())
        self._expect(")")
        return tuple(values)

    def _text(self) -> str:
        token = self.next
        value = self._value()
        if not isinstance(value, str):
            raise _wrong(token, "expected a text in single quotes")
        return value

    def _value(self) -> Value:
        token = self._take()
        self._values += 1
        if self._values > MOST_VALUES:
            raise BadFilter(f"filter, column {token.column}: more than {MOST_VALUES} values")
        if token.kind == "text":
            return token.text[1:-1].replace("''", "'")
        if token.kind == "number":
            return _number(token)
        if token.word in ("true", "false"):
            return token.word == "true"
        raise _wrong(token, "expected a value: a number, a text in single quotes, true or false")


def _number(token: FilterToken) -> int | float:
    if re.fullmatch(r"-?\d+", token.text):
        if len(token.text) <= 20 and -(2**63) <= (number := int(token.text)) < 2**63:
            return number
        raise _wrong(token, "expected a whole number of at most 64 bits")
    decimal = float(token.text)
    if not math.isfinite(decimal):
        raise _wrong(token, "expected a number that is not infinite")
    return decimal + 0.0
