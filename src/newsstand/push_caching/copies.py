"""Copies in a push-cache, and the order in which they leave."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, TypeVar

from newsstand.errors import BadOption

Page = TypeVar("Page", int, str)


@dataclass(frozen=True, slots=True)
class Usage:
    """A number of slots and of bytes."""

    slots: int = 0
    size: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.slots + other.slots, self.size + other.size)

    def __sub__(self, other: Usage) -> Usage:
        return Usage(self.slots - other.slots, self.size - other.size)


@dataclass(frozen=True, slots=True)
class Capacity:
    """A limit of slots and of bytes; None is no limit."""

    slots: int | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("slots", self.slots), ("size", self.size)):
            if value is not None and value < 0:
                raise BadOption("must not be negative", **{name: value})

    def holds(self, used: Usage) -> bool:
        """Return whether a usage is within the limit."""
        return (self.slots is None or used.slots <= self.slots) and (self.size is None or used.size <= self.size)

    def part(self, share: float) -> Capacity:
        """Return a share of the capacity, rounded down, but at least one slot."""
        # By its decimal digits: 0.29 of 100 slots are 29, and as a product of floats they would be 28.
        exact = Fraction(str(share))
        return Capacity(
            None if self.slots is None else max(1, math.floor(self.slots * exact)),
            None if self.size is None else math.floor(self.size * exact),
        )


CHECK_SHARE = 0.1


def must_check(now: float, checked: float, modified: float, share: float = CHECK_SHARE) -> bool:
    """Return whether the time since a copy's last check is more than a share of its age.

    The rule of the Alex file system (Cate 1992): a page that has not changed for long will hardly change soon.

    >>> day = 86_400.0
    >>> must_check(now=30 * day, checked=28 * day, modified=0.0), must_check(30 * day, 26 * day, 0.0)
    (False, True)
    """
    return now - checked > share * max(0.0, now - modified)


@dataclass(frozen=True, slots=True)
class Offer(Generic[Page]):
    """A page that an origin pushes."""

    page: Page
    size: int = 0
    modified: float = 0.0
    requests: float = 0.0
    """The requests that the origin expects here: a claim."""

    def __post_init__(self) -> None:
        if self.size < 0:
            raise BadOption("must not be negative", page=self.page, size=self.size)


@dataclass(frozen=True, slots=True)
class CacheChanges(Generic[Page]):
    """The effect of a push: the pages that are now cached, and the (origin, page) pairs that were evicted."""

    cached: tuple[Page, ...] = ()
    evicted: tuple[tuple[int, Page], ...] = ()


@dataclass(slots=True, eq=False)
class Copy(Generic[Page]):
    """A cached page."""

    origin: int
    page: Page
    size: int
    modified: float
    checked: float
    popularity: float
    arrival: int

    @property
    def rank(self) -> tuple[float, int]:
        """The order of leaving: lowest popularity first, among equals the first to arrive."""
        return self.popularity, self.arrival

    @property
    def used(self) -> Usage:
        return Usage(1, self.size)


def median(ranked: Sequence[Copy[Page]], room: Capacity) -> float:
    """Return the least popularity above which pages use at most half of a capacity, of slots and of bytes.

    Free capacity counts as popularity 0. If this were the median of the pages, large new pages could raise it,
    because they leave fewer pages.
    """
    above = Usage()
    half = room.part(0.5)
    for copy in reversed(ranked):
        above += copy.used
        if not half.holds(above):
            return copy.popularity
    return 0.0


def freed(
    new: Copy[Page],
    worth: float,
    candidates: Iterable[Copy[Page]],
    room: Capacity,
    used: Usage,
    offered: Container[Page],
) -> list[Copy[Page]] | None:
    """Return the candidates that leave for a new copy; None if it does not fit or one has a higher worth.

    Among equals the newer one stays, but among those offered together the earlier.
    """
    leaving: list[Copy[Page]] = []
    used += new.used
    if room.holds(used):
        return leaving
    for copy in candidates:
        together = copy.origin == new.origin and copy.page in offered
        if copy.popularity > worth or (copy.popularity == worth and together):
            return None
        leaving.append(copy)
        used -= copy.used
        if room.holds(used):
            return leaving
    return None
