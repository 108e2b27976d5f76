"""Sets of values that conditions of filters allow for an attribute.

An attribute is missing, a boolean, a number or a text. Sets of numbers and texts are unions of intervals, so every
condition of the filter language is a set, closed under intersection, union and complement, and comparable.

>>> severe, moderate = at_least(3), at_least(2)
>>> severe <= moderate, moderate <= severe
(True, False)
>>> (severe & ~moderate).is_empty
True
>>> starting("Fl") >= only("Flood")
True
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Value = bool | int | float | str
Kind = Literal["boolean", "number", "text"]
Cut = tuple[float | str, int]
"""A boundary between values: just before one (0) or just after it (1)."""

BEFORE, AFTER = 0, 1
LAST_LETTER = chr(0x10FFFF)


def kind_of(value: object) -> Kind | None:
    """Return the kind of a value; None if it cannot be the value of an attribute."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else None


@dataclass(frozen=True, slots=True)
class Intervals:
    """A union of intervals: whether the lower end belongs to it, and the cuts at which that changes."""

    begins_inside: bool = False
    cuts: tuple[Cut, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.begins_inside and not self.cuts

    def __contains__(self, value: float | str) -> bool:
        return self.begins_inside ^ (bisect_right(self.cuts, (value, BEFORE)) % 2 == 1)

    def __invert__(self) -> Intervals:
        return Intervals(not self.begins_inside, self.cuts)

    def __and__(self, other: Intervals) -> Intervals:
        mine, others = set(self.cuts), set(other.cuts)
        inside, inside_other = self.begins_inside, other.begins_inside
        begins_inside = was = inside and inside_other
        cuts: list[Cut] = []
        for cut in sorted(mine | others):
            inside ^= cut in mine
            inside_other ^= cut in others
            if (inside and inside_other) != was:
                was = not was
                cuts.append(cut)
        return Intervals(begins_inside, tuple(cuts))

    def __le__(self, other: Intervals) -> bool:
        if not self.cuts and not self.begins_inside:
            return True
        if not other.cuts or self.begins_inside > other.begins_inside:
            return other.begins_inside
        inside, passed = self.begins_inside, 0
        for cut in self.cuts:
            if inside:
                if passed < len(other.cuts) and other.cuts[passed] < cut:
                    return False
            else:
                passed = bisect_right(other.cuts, cut)
                if other.begins_inside == (passed % 2 == 1):
                    return False
            inside = not inside
        return not inside or passed == len(other.cuts)


NO_VALUES, ALL_VALUES = Intervals(), Intervals(begins_inside=True)


@dataclass(frozen=True, slots=True)
class ValueSet:
    """A set of values: missing, booleans, numbers, texts."""

    missing: bool = False
    booleans: frozenset[bool] = frozenset()
    numbers: Intervals = NO_VALUES
    texts: Intervals = NO_VALUES

    @property
    def is_empty(self) -> bool:
        return not (self.missing or self.booleans) and self.numbers.is_empty and self.texts.is_empty

    def __contains__(self, value: Value | None) -> bool:
        if value is None:
            return self.missing
        if isinstance(value, bool):
            return value in self.booleans
        return value in (self.texts if isinstance(value, str) else self.numbers)

    def __invert__(self) -> ValueSet:
        return ValueSet(not self.missing, frozenset((True, False)) - self.booleans, ~self.numbers, ~self.texts)

    def __and__(self, other: ValueSet) -> ValueSet:
        return ValueSet(
            self.missing and other.missing,
            self.booleans & other.booleans,
            self.numbers & other.numbers,
            self.texts & other.texts,
        )

    def __or__(self, other: ValueSet) -> ValueSet:
        return ~(~self & ~other)

    def __le__(self, other: ValueSet) -> bool:
        return (
            self.missing <= other.missing
            and self.numbers <= other.numbers
            and self.texts <= other.texts
            and self.booleans <= other.booleans
        )

    def __ge__(self, other: ValueSet) -> bool:
        return other <= self

    def listed(self) -> frozenset[str] | None:
        """Return the texts of a finite set; None otherwise."""
        if self.texts.begins_inside or len(self.texts.cuts) % 2:
            return None
        pairs = list(zip(self.texts.cuts[::2], self.texts.cuts[1::2], strict=True))
        if any(low != (high[0], BEFORE) or high[1] != AFTER for low, high in pairs):
            return None
        return frozenset(str(low[0]) for low, _ in pairs)


NOTHING = ValueSet()
ANY_TEXT = ValueSet(texts=ALL_VALUES)


def _between(value: float | str, *cuts: Cut, begins_inside: bool = False) -> ValueSet:
    if isinstance(value, str):
        if cuts and cuts[0] == ("", BEFORE):
            begins_inside, cuts = not begins_inside, cuts[1:]
        return ValueSet(texts=Intervals(begins_inside, cuts))
    return ValueSet(numbers=Intervals(begins_inside, cuts))


def only(*values: Value) -> ValueSet:
    """Return the set of these values."""
    return union(_only(value) for value in values)


def _only(value: Value) -> ValueSet:
    if isinstance(value, bool):
        return ValueSet(booleans=frozenset((value,)))
    return _between(value, (value, BEFORE), (value, AFTER))


def other_than(value: Value) -> ValueSet:
    """Return all values of the same kind but one."""
    if isinstance(value, bool):
        return ValueSet(booleans=frozenset((not value,)))
    return _between(value, (value, BEFORE), (value, AFTER), begins_inside=True)


def below(value: float | str) -> ValueSet:
    """Return smaller values of the same kind."""
    return _between(value, (value, BEFORE), begins_inside=True)


def at_most(value: float | str) -> ValueSet:
    """Return smaller or equal values of the same kind."""
    return _between(value, (value, AFTER), begins_inside=True)


def above(value: float | str) -> ValueSet:
    """Return larger values of the same kind."""
    return _between(value, (value, AFTER))


def at_least(value: float | str) -> ValueSet:
    """Return larger or equal values of the same kind."""
    return _between(value, (value, BEFORE))


def starting(prefix: str) -> ValueSet:
    """Return texts with a prefix."""
    stem = prefix.rstrip(LAST_LETTER)
    if not stem:
        return at_least(prefix)
    return _between(prefix, (prefix, BEFORE), (stem[:-1] + chr(ord(stem[-1]) + 1), BEFORE))


def union(sets: Iterable[ValueSet]) -> ValueSet:
    """Return the union of sets."""
    all_of_them = list(sets)
    return ValueSet(
        any(one.missing for one in all_of_them),
        frozenset[bool]().union(*(one.booleans for one in all_of_them)),
        _joined([one.numbers for one in all_of_them]),
        _joined([one.texts for one in all_of_them]),
    )


def _joined(lines: Sequence[Intervals]) -> Intervals:
    """Return the union of intervals in one pass along all cuts."""
    depth = sum(line.begins_inside for line in lines)
    begins_inside = depth > 0
    changes: Counter[Cut] = Counter()
    for line in lines:
        for place, cut in enumerate(line.cuts):
            changes[cut] += 1 if line.begins_inside == place % 2 else -1
    cuts: list[Cut] = []
    for cut in sorted(changes):
        was, depth = depth > 0, depth + changes[cut]
        if (depth > 0) != was:
            cuts.append(cut)
    return Intervals(begins_inside, tuple(cuts))
