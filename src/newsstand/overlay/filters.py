"""Filters: which messages somebody wants, and which filter covers which other.

>>> severe = Filter.parse("topic = 'storms' and severity >= 3 and (area in ('NW', 'SW') or title prefix 'Flood')")
>>> severe.topics
frozenset({'storms'})
>>> storms = Filter.parse("topic='storms'")
>>> print(storms, covers(storms, severe), covers(severe, storms))
topic = 'storms' True False

`covers` is never wrong when it says yes. It says no to some pairs that a theorem prover would find: where several
alternatives cover a filter only together, and where a filter has more than `MOST_BOXES` alternatives. It is
transitive, which the subscription tables rely on. `overlaps` is never wrong when it says no.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache, reduce
from itertools import product

from newsstand.errors import BadFilter
from newsstand.overlay.filter_expressions import (
    TOPIC,
    And,
    Expression,
    Not,
    Or,
    shown_value,
)
from newsstand.overlay.filter_syntax import LONGEST, parse
from newsstand.overlay.value_sets import ANY_TEXT, NOTHING, ValueSet, union

MOST_BOXES = 128
"""How many alternatives of a filter `covers` looks at."""
MOST_PAIRS = 1024
"""How many pairs of alternatives `overlaps` looks at."""
MOST_COMPARED = 4096
"""How many filters and pairs of alternatives one `Overlapping` looks at."""

Box = Mapping[str, ValueSet]
"""One alternative: what it allows each attribute that it speaks of to be."""


class Filter:
    """A filter, equal to every other that is written the same way but for spaces and parentheses."""

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
        """The filter that a text writes; BadFilter names the column where it goes wrong."""
        return Filter(parse(text))

    @staticmethod
    def of_topic(topic: str) -> Filter:
        """All messages of a topic."""
        return Filter.parse(f"{TOPIC} = {shown_value(topic)}")

    @cached_property
    def _clauses(self) -> Clauses:
        return Clauses.of(self._expression, holds=True)

    @cached_property
    def _boxes(self) -> tuple[Box, ...] | None:
        """Its alternatives, those left out that nothing can satisfy; None if they are too many."""
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
        """The topics of messages that may match, if the filter names them; None if it does not."""
        return frozenset() if self._boxes == () else self._allowed_topics.listed()

    def may_match(self, topic: str) -> bool:
        """Whether messages of a topic may match."""
        return topic in self._allowed_topics

    def covers(self, other: Filter) -> bool:
        """See `covers`."""
        boxes = other._boxes
        if boxes is None:
            return self == other
        contain = self._clauses.contain
        for box in boxes:
            if not contain(box):
                return self == other
        return True

    def overlaps(self, other: Filter) -> bool:
        """Whether a message may match both: never wrong when it says no."""
        return Overlapping(self).overlaps(other)

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


class Overlapping:
    """One filter that is compared with many, as long as that costs little: whether messages may match both.

    >>> severe = Overlapping(Filter.parse("topic = 'storms' and severity > 3"))
    >>> severe.overlaps(Filter.parse("severity = 2")), severe.overlaps(Filter.parse("topic != 'fires'"))
    (False, True)
    """

    def __init__(self, wanted: Filter, most: int = MOST_COMPARED) -> None:
        self._wanted = wanted
        self._left = most

    def overlaps(self, other: Filter) -> bool:
        """Never wrong when it says no; it says yes to all when it has compared too much."""
        self._left -= 1
        if self._left < 0:
            return True
        # What all alternatives of each filter allow tells most of them apart at once.
        if not _meet(self._wanted._hull, other._hull):
            return False
        mine, others = self._wanted._boxes, other._boxes
        if mine is None or others is None:
            return True
        pairs = len(mine) * len(others)
        if pairs > min(MOST_PAIRS, self._left):
            return True
        self._left -= pairs
        return any(_meet(one, another) for one, another in product(mine, others))


def covers(wide: Filter, narrow: Filter) -> bool:
    """Whether every message that matches `narrow` is known to match `wide`."""
    return wide.covers(narrow)


class Clauses:
    """A filter for comparing: `not` pushed down to the conditions, at each level one condition an attribute."""

    __slots__ = ("alternatives", "every", "inner", "values")

    def __init__(self, every: bool, values: dict[str, ValueSet], inner: tuple[Clauses, ...]) -> None:
        self.every = every
        """Whether all must hold (and), or one (or)."""
        self.values = dict(sorted(values.items(), key=lambda value: value[0] == TOPIC))
        """The topic comes last: filters that are compared mostly share it, and differ in something else."""
        self.inner = inner
        counts = [clause.alternatives for clause in inner]
        self.alternatives: int = (
            reduce(lambda so_far, one: min(so_far * one, MOST_BOXES + 1), counts, 1)
            if every
            else min(sum(counts) + len(values), MOST_BOXES + 1)
        )
        """How many boxes it has, counted as far as one too many."""

    @staticmethod
    def of(expression: Expression, holds: bool) -> Clauses:
        """An expression, or with `holds` false its opposite."""
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
        """Its alternatives."""
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
        """Whether whatever is in a box satisfies this."""
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
        """A box around all its alternatives."""
        if self.every:
            return reduce(
                _narrowed, (clause.hull() for clause in self.inner), _narrowed({TOPIC: ANY_TEXT}, self.values)
            )
        hulls = [_narrowed({TOPIC: ANY_TEXT}, {name: allowed}) for name, allowed in self.values.items()]
        hulls += [clause.hull() for clause in self.inner]
        common = set.intersection(*map(set, hulls)) if hulls else set()
        return {name: union(one[name] for one in hulls) for name in common}

    def allowed_topics(self) -> ValueSet:
        """A set that has the topics of all messages that match."""
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


def _meet(one: Box, other: Box) -> bool:
    """Whether boxes have something in common."""
    return not any((allowed & other[name]).is_empty for name, allowed in one.items() if name in other)
