"""One result cache: objects of one backend subscription, and how far each subscriber has come.

Uddin & Venkatasubramanian (2018, section III.C, Algorithm 1). Retrieval is cumulative: a subscriber waits for what
lies beyond the position it acknowledged last. So an object needs no set of subscribers, their number will do;
it never grows towards the tail, and only tails leave.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Generic, Literal, NamedTuple, TypeVar

from newsstand.caching.lifetimes import Lifetime
from newsstand.caching.tail_ranking import Key

Subscriber = Hashable
Value = TypeVar("Value")

Reason = Literal["dropped", "consumed", "abandoned"]
"""Dropped by the policy, retrieved by everybody, or left behind by the last who waited and unsubscribed."""

NOWHERE = -1
"""Before every position."""
_position = attrgetter("position")


@dataclass(slots=True)
class CachedResult(Generic[Value]):
    """An object in a result cache."""

    position: int
    size: int
    value: Value
    inserted_ms: int
    stamp_ms: int
    """When it expires by the time to live at its insertion."""
    waiting: int
    """f: the subscribers that still have to retrieve it."""


class Hit(NamedTuple, Generic[Value]):
    """An object that can be had from the cache."""

    position: int
    size: int
    value: Value


class Removed(NamedTuple, Generic[Key]):
    """An object that has left its cache."""

    cache: Key
    position: int
    size: int
    inserted_ms: int
    at_ms: int
    reason: Reason


class ResultCache(Generic[Value]):
    """Objects from the tail, which is the oldest, to the head, and the position each subscriber acknowledged."""

    __slots__ = ("_foremost", "accessed_ms", "acked", "lifetime", "newest", "objects")

    def __init__(self, lifetime: Lifetime) -> None:
        self.lifetime = lifetime
        self.objects: deque[CachedResult[Value]] = deque()
        self.acked: dict[Subscriber, int] = {}
        self.newest = NOWHERE
        self.accessed_ms = 0
        self._foremost = NOWHERE

    def attach(self, subscriber: Subscriber, acked: int) -> None:
        """Let it wait for all that lies beyond `acked`."""
        self.acked[subscriber] = acked
        self.lifetime.subscribers += 1
        self._foremost = max(self._foremost, acked)
        self._count(acked, self.newest, +1)

    def detach(self, subscriber: Subscriber) -> None:
        """Let it wait for nothing any more."""
        self._count(self.acked.pop(subscriber), self.newest, -1)
        self.lifetime.subscribers -= 1

    def acknowledge(self, subscribers: Iterable[Subscriber], upto: int) -> bool:
        """Let those who are attached wait only for what lies beyond `upto`; False if none waited for less."""
        moved: dict[int, int] = {}
        for subscriber in subscribers:
            acked = self.acked.get(subscriber, upto)
            if acked < upto:
                self.acked[subscriber] = upto
                moved[acked] = moved.get(acked, 0) + 1
        for acked, number in moved.items():
            self._count(acked, upto, -number)
        if moved and upto > self._foremost:
            self._foremost = upto
        return bool(moved)

    def waiting_for(self, position: int) -> int:
        """How many have not acknowledged that position."""
        if position > self._foremost:
            return len(self.acked)
        return sum(acked < position for acked in self.acked.values())

    def between(self, after: int, until: int) -> range:
        """The indices of the objects with after < position <= until."""
        first = bisect_right(self.objects, after, key=_position)
        return range(first, bisect_right(self.objects, until, lo=first, key=_position))

    def _count(self, after: int, until: int, change: int) -> None:
        for index in self.between(after, until):
            self.objects[index].waiting += change
