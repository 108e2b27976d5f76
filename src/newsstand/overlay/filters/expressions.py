"""Expressions of filters: conditions on attributes, combined by `and`, `or` and `not`.

Each expression has a text and matches messages; a condition also has the set of values that it allows. A condition
on an attribute that a message lacks, or has with a value of another kind, is false.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from newsstand.overlay.filters import value_sets
from newsstand.overlay.filters.value_sets import Value, ValueSet, kind_of

TOPIC = "topic"
"""The one attribute that every message has."""

KEYWORDS = frozenset({"and", "or", "not", "in", "prefix", "true", "false"})
PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


class Matchable(Protocol):
    """A message with a topic and attributes."""

    @property
    def topic(self) -> str: ...
    @property
    def attributes(self) -> Mapping[str, Value]: ...


COMPARE: Mapping[str, Callable[[Value, Value], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

ALLOWED: Mapping[str, Callable[..., ValueSet]] = {
    "=": value_sets.only,
    "!=": value_sets.other_than,
    "<": value_sets.below,
    "<=": value_sets.at_most,
    ">": value_sets.above,
    ">=": value_sets.at_least,
}


def format_name(name: str) -> str:
    """Return the name of an attribute as filters write it."""
    if PLAIN_NAME.fullmatch(name) and name.lower() not in KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def format_value(value: Value) -> str:
    """Return a value as filters write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value)


def _value(message: Matchable, attribute: str) -> Value | None:
    return message.topic if attribute == TOPIC else message.attributes.get(attribute)


@dataclass(frozen=True, slots=True)
class AttributeComparison:
    """`severity >= 3`."""

    attribute: str
    operator: str
    value: Value

    def __str__(self) -> str:
        return f"{format_name(self.attribute)} {self.operator} {format_value(self.value)}"

    def matches(self, message: Matchable) -> bool:
        found = _value(message, self.attribute)
        if found is None or kind_of(found) != kind_of(self.value):
            return False
        return COMPARE[self.operator](found, self.value)

    @property
    def allowed(self) -> ValueSet:
        return ALLOWED[self.operator](self.value)


@dataclass(frozen=True, slots=True)
class OneOf:
    """`area in ('NW', 'SW')`."""

    attribute: str
    values: tuple[Value, ...]

    def __str__(self) -> str:
        return f"{format_name(self.attribute)} in ({', '.join(map(format_value, self.values))})"

    def matches(self, message: Matchable) -> bool:
        found = _value(message, self.attribute)
        kind = kind_of(found)
        return any(found == value and kind == kind_of(value) for value in self.values)

    @property
    def allowed(self) -> ValueSet:
        return value_sets.only(*self.values)


@dataclass(frozen=True, slots=True)
class Prefix:
    """`title prefix 'Flood'`."""

    attribute: str
    text: str

    def __str__(self) -> str:
        return f"{format_name(self.attribute)} prefix {format_value(self.text)}"

    def matches(self, message: Matchable) -> bool:
        found = _value(message, self.attribute)
        return isinstance(found, str) and found.startswith(self.text)

    @property
    def allowed(self) -> ValueSet:
        return value_sets.starting(self.text)


@dataclass(frozen=True, slots=True)
class And:
    """A conjunction; without parts it is `true`."""

    parts: tuple[Expression, ...]

    def __str__(self) -> str:
        return " and ".join(f"({part})" if _is_wide(part) else str(part) for part in self.parts) or "true"

    def matches(self, message: Matchable) -> bool:
        return all(part.matches(message) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Or:
    """A disjunction; without parts it is `false`."""

    parts: tuple[Expression, ...]

    def __str__(self) -> str:
        return " or ".join(map(str, self.parts)) or "false"

    def matches(self, message: Matchable) -> bool:
        return any(part.matches(message) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Not:
    """A negation."""

    part: Expression

    def __str__(self) -> str:
        compound = isinstance(self.part, And | Or) and self.part.parts
        return f"not ({self.part})" if compound else f"not {self.part}"

    def matches(self, message: Matchable) -> bool:
        return not self.part.matches(message)


Condition = AttributeComparison | OneOf | Prefix
Expression = Condition | And | Or | Not


def _is_wide(part: Expression) -> bool:
    return isinstance(part, Or) and bool(part.parts)


def combine(kind: type[And] | type[Or], parts: Iterable[Expression]) -> Expression:
    """Return parts under one `and` or `or`, with nested ones of the same kind flattened."""
    flat: list[Expression] = []
    for part in parts:
        flat += part.parts if isinstance(part, kind) and part.parts else (part,)
    return flat[0] if len(flat) == 1 else kind(tuple(flat))
