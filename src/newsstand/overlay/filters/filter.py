"""Filters of messages, and which filter covers which other.

>>> severe = Filter.parse("topic = 'storms' and severity >= 3 and (area in ('NW', 'SW') or title prefix 'Flood')")
>>> severe.topics
frozenset({'storms'})
>>> storms = Filter.parse("topic='storms'")
>>> print(storms, storms.covers(severe), severe.covers(storms))
topic = 'storms' True False

`covers` is sound but incomplete: it misses pairs where several alternatives cover a filter only together, and
filters of more than `MOST_BOXES` alternatives. It is transitive, which the subscription tables rely on.
`OverlapCheck` may be wrong when it returns True, never when it returns False.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache, reduce
from itertools import product

from newsstand.errors import BadFilter
from newsstand.overlay.filters.expressions import (
    TOPIC,
    And,
    Expression,
    Not,
    Or,
    format_value,
)
from newsstand.overlay.filters.syntax import LONGEST, parse
from newsstand.overlay.filters.value_sets import ANY_TEXT, NOTHING, ValueSet, union

MOST_BOXES = 128
"""Alternatives of a filter that `covers` examines."""
MOST_PAIRS = 1024
"""Pairs of alternatives that `overlaps` examines."""
MOST_COMPARED = 4096
"""Filters and pairs of alternatives that one `OverlapCheck` examines."""

Box = Mapping[str, ValueSet]
"""One alternative: the values that it allows for each attribute that it names."""


class Filter:
    """A filter, equal to others with the same canonical text."""

    def __init__(self, expression: Expression) -> None:
        self._expression = expression
        self.text = str(expression)
        self._hash = hash(self.text)
        self.matches = expression.matches
        if len(self.text) > LONGEST:
            raise BadFilter(f"filter: {len(self.text)} characters when written out; at most {LONGEST} are read")

    @staticmethod
    @lru_cache(4096)
    def parse(text: str) -> Filter:
        """Return the filter of a text; raise BadFilter with the column of the mistake."""
        return Filter(parse(text))

    @staticmethod
    def of_topic(topic: str) -> Filter:
        """Return the filter of all messages of a topic."""
        return Filter.parse(f"{TOPIC} = {format_value(topic)}")

    @cached_property
    def _clauses(self) -> Clauses:
        return Clauses.of(self._expression, holds=True)

    @cached_property
    def _boxes(self) -> tuple[Box, ...] | None:
        """The alternatives that can be satisfied; None if they are too many."""
        if self._clauses.alternatives > MOST_BOXES:
            return None
        return tuple(box for box in self._clauses.boxes() if not any(allowed.is_empty for allowed in box.values()))

    @cached_property
    def _allowed_topics(self) -> ValueSet:
        return self._clauses.allowed_topics()

    @cached_property
    def _hull(self) -> Box:
        return self._clauses.hull()

    @cached_property
    def topics(self) -> frozenset[str] | None:
        """The topics that the filter names; None if it does not limit the topic."""
        return frozenset() if self._boxes == () else self._allowed_topics.listed()

    def may_match(self, topic: str) -> bool:
        return topic in self._allowed_topics

    def covers(self, other: Filter) -> bool:
        """Return whether every message that matches another filter is known to match this one."""
        boxes = other._boxes
        if boxes is None:
            return self == other
        contain = self._clauses.contain
        for box in boxes:
            if not contain(box):
                return self == other
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Filter) and self.text == other.text

    def __hash__(self) -> int:
        return self._hash

    def __lt__(self, other: Filter) -> bool:
        return self.text < other.text

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Filter({self.text!r})"


class OverlapCheck:
    """A comparison of one filter with many, at bounded cost: whether a message may match both.

    >>> severe = OverlapCheck(Filter.parse("topic = 'storms' and severity > 3"))
    >>> severe.overlaps(Filter.parse("severity = 2")), severe.overlaps(Filter.parse("topic != 'fires'"))
    (False, True)
    """

    def __init__(self, wanted: Filter) -> None:
        self._wanted = wanted
        self._left = MOST_COMPARED

    def overlaps(self, other: Filter) -> bool:
        """Return whether a message may match both; True for all once the bound is exceeded."""
        self._left -= 1
        if self._left < 0:
            return True
        # The hulls of all alternatives separate most pairs at once.
        if not meet(self._wanted._hull, other._hull):
            return False
        mine, others = self._wanted._boxes, other._boxes
        if mine is None or others is None:
            return True
        pairs = len(mine) * len(others)
        if pairs > min(MOST_PAIRS, self._left):
            return True
        self._left -= pairs
        return any(meet(one, another) for one, another in product(mine, others))


class Clauses:
    """A filter in normal form: negations at the conditions, one condition an attribute at each level."""

    __slots__ = ("alternatives", "every", "inner", "values")

    def __init__(self, every: bool, values: dict[str, ValueSet], inner: tuple[Clauses, ...]) -> None:
        self.every = every
        """Whether it is a conjunction; else a disjunction."""
        self.values = dict(sorted(values.items(), key=lambda value: value[0] == TOPIC))
        """The topic is last: compared filters mostly share it, and differ elsewhere."""
        self.inner = inner
        counts = [clause.alternatives for clause in inner]
        self.alternatives: int = (
            reduce(lambda so_far, one: min(so_far * one, MOST_BOXES + 1), counts, 1)
            if every
            else min(sum(counts) + len(values), MOST_BOXES + 1)
        )
        """The number of boxes, counted up to one too many."""

    @staticmethod
    def of(expression: Expression, holds: bool) -> Clauses:
        """Return an expression in normal form, or with `holds` false its negation."""
        if isinstance(expression, Not):
            return Clauses.of(expression.part, not holds)
        if not isinstance(expression, And | Or):
            allowed = expression.allowed
            return Clauses(True, {expression.attribute: allowed if holds else ~allowed}, ())
        every = isinstance(expression, And) == holds
        values: dict[str, ValueSet] = {}
        inner: list[Clauses] = []
        for part in expression.parts:
            clause = Clauses.of(part, holds)
            if clause.every != every and len(clause.values) + len(clause.inner) != 1:
                inner.append(clause)
                continue
            inner += clause.inner
            for name, allowed in clause.values.items():
                before = values.get(name, allowed)
                values[name] = before & allowed if every else before | allowed
        return Clauses(every, values, tuple(inner))

    def boxes(self) -> Iterator[Box]:
        if not self.every:
            for name, allowed in self.values.items():
                yield _narrowed({TOPIC: ANY_TEXT}, {name: allowed})
            for clause in self.inner:
                yield from clause.boxes()
            return
        own = _narrowed({TOPIC: ANY_TEXT}, self.values)
        for chosen in product(*(list(clause.boxes()) for clause in self.inner)):
            yield reduce(_narrowed, chosen, own)

    def contain(self, box: Box) -> bool:
        """Return whether everything in a box matches."""
        every = self.every
        if every and not self.values.keys() <= box.keys():
            return False
        for name, allowed in self.values.items():
            if (name in box and box[name] <= allowed) != every:
                return not every
        for clause in self.inner:
            if clause.contain(box) != every:
                return not every
        return every

    def hull(self) -> Box:
        """Return a box around all alternatives."""
        if self.every:
            return reduce(
                _narrowed, (clause.hull() for clause in self.inner), _narrowed({TOPIC: ANY_TEXT}, self.values)
            )
        hulls = [_narrowed({TOPIC: ANY_TEXT}, {name: allowed}) for name, allowed in self.values.items()]
        hulls += [clause.hull() for clause in self.inner]
        common = set.intersection(*map(set, hulls)) if hulls else set()
        return {name: union(one[name] for one in hulls) for name in common}

    def allowed_topics(self) -> ValueSet:
        """Return a set with the topics of all messages that match."""
        own = self.values.get(TOPIC)
        if self.every:
            parts = [clause.allowed_topics() for clause in self.inner]
            return reduce(ValueSet.__and__, parts, ANY_TEXT if own is None else ANY_TEXT & own)
        if any(name != TOPIC for name in self.values):
            return ANY_TEXT
        return union([NOTHING if own is None else ANY_TEXT & own, *(one.allowed_topics() for one in self.inner)])


def _narrowed(box: Box, by: Box) -> Box:
    met = dict(box)
    for name, allowed in by.items():
        before = met.get(name)
        met[name] = allowed if before is None else before & allowed
    return met


def meet(one: Box, other: Box) -> bool:
    """Return whether boxes intersect."""
    return not any((allowed & other[name]).is_empty for name, allowed in one.items() if name in other)
