"""What a filter is made of: conditions on attributes, and `and`, `or` and `not` over them.

Each part knows its text, whether a message satisfies it, and, if it is a condition, the set of values that it
allows. A condition on an attribute that a message lacks, or has with a value of another kind, does not hold.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from newsstand.overlay import value_sets
from newsstand.overlay.value_sets import Value, ValueSet, kind_of

TOPIC = "topic"
"""The one attribute that every message has."""

WORDS = frozenset({"and", "or", "not", "in", "prefix", "true", "false"})
PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


class Message(Protocol):
    """What filters look at."""

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


def shown_name(name: str) -> str:
    """The name of an attribute as a filter writes it."""
    if PLAIN_NAME.fullmatch(name) and name.lower() not in WORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def shown_value(value: Value) -> str:
    """A value as a filter writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value)


def _value(message: Message, attribute: str) -> Value | None:
    return message.topic if attribute == TOPIC else message.attributes.get(attribute)


@dataclass(frozen=True, slots=True)
class Comparison:
    """`severity >= 3`."""

    attribute: str
    operator: str
    value: Value

    def __str__(self) -> str:
        return f"{shown_name(self.attribute)} {self.operator} {shown_value(self.value)}"

    def matches(self, message: Message) -> bool:
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
        return f"{shown_name(self.attribute)} in ({', '.join(map(shown_value, self.values))})"

    def matches(self, message: Message) -> bool:
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
        return f"{shown_name(self.attribute)} prefix {shown_value(self.text)}"

    def matches(self, message: Message) -> bool:
        found = _value(message, self.attribute)
        return isinstance(found, str) and found.startswith(self.text)

    @property
    def allowed(self) -> ValueSet:
        return value_sets.starting(self.text)


@dataclass(frozen=True, slots=True)
class And:
    """All of its parts hold; without any it is `true`."""

    parts: tuple[Expression, ...]

    def __str__(self) -> str:
        return " and ".join(f"({part})" if _is_wide(part) else str(part) for part in self.parts) or "true"

    def matches(self, message: Message) -> bool:
        return all(part.matches(message) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Or:
    """One of its parts holds at least; without any it is `false`."""

    parts: tuple[Expression, ...]

    def __str__(self) -> str:
        return " or ".join(map(str, self.parts)) or "false"

    def matches(self, message: Message) -> bool:
        return any(part.matches(message) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Not:
    """Its part does not hold."""

    part: Expression

    def __str__(self) -> str:
        compound = isinstance(self.part, And | Or) and self.part.parts
        return f"not ({self.part})" if compound else f"not {self.part}"

    def matches(self, message: Message) -> bool:
        return not self.part.matches(message)


Condition = Comparison | OneOf | Prefix
Expression = Condition | And | Or | Not


def _is_wide(part: Expression) -> bool:
    return isinstance(part, Or) and bool(part.parts)


def joined(kind: type[And] | type[Or], parts: Iterable[Expression]) -> Expression:
    """Parts under one `and` or `or`, those of the same kind taken apart."""
    flat: list[Expression] = []
    for part in parts:
        flat += part.parts if isinstance(part, kind) and part.parts else (part,)
    return flat[0] if len(flat) == 1 else kind(tuple(flat))
