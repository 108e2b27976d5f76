"""One result cache: objects of one backend subscription, and how far each subscriber has come.

Uddin & Venkatasubramanian (2018, section III.C, Algorithm 1). Retrieval is cumulative: a subscriber waits for what
lies beyond the position it acknowledged last. So an object needs no set of subscribers, their number will do; it
never grows towards the tail. It is kept for the tail alone; how many subscribers have come to each position tells
it for the next one. An acknowledgement costs the same however much is cached.

Those who get every result as it comes are all at one position. They can form a *crowd*, which acknowledges as one.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar

from newsstand.caching.lifetimes import Lifetime
from newsstand.caching.tail_ranking import Key

Subscriber = Hashable
Value = TypeVar("Value")

Reason = Literal["dropped", "consumed", "abandoned"]
"""Dropped by the policy, retrieved by everybody, or left behind by the last who waited and unsubscribed."""

ExpiryOf = Literal["cache", "object"]
"""Whether an object expires by the present time to live of its cache, or by that of its insertion."""

NOWHERE = -1
"""Before every position."""
IN_THE_CROWD = -2


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
    """f: who had to retrieve it when it was put or, where objects are ranked that are no tails, still has to."""
    score: float = math.nan
    """Where objects are ranked that are no tails, the one that it has in the ranking."""


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


class Retrieval(NamedTuple):
    """All that was pending for a subscriber: until `missed_until` it was not in the cache, beyond it was.

    Of what lies beyond, `gaps` was not, either: objects that left while older ones stayed.
    """

    after: int
    missed_until: int
    until: int
    gaps: tuple[int, ...] = ()


class ResultCache(Generic[Value]):
    """Objects from the tail, which is the oldest, to the head, and the position each subscriber acknowledged."""

    __slots__ = (
        "_acked",
        "_foremost",
        "_numbers",
        "accessed_ms",
        "crowd",
        "crowd_at",
        "gaps",
        "lifetime",
        "newest",
        "objects",
        "tail",
        "waiting",
    )

    def __init__(self, lifetime: Lifetime) -> None:
        self.lifetime = lifetime
        self.objects: OrderedDict[int, CachedResult[Value]] = OrderedDict()
        """By position, the oldest first."""
        self.tail: CachedResult[Value] | None = None
        """The oldest."""
        self.waiting = 0
        """f: the subscribers that still have to retrieve the tail."""
        self.crowd = 0
        """How many have joined the crowd, and where they are:"""
        self.crowd_at = NOWHERE
        self.newest = NOWHERE
        self.accessed_ms = 0
        self.gaps: list[int] = []
        """The positions of objects that left while older ones stayed, oldest first."""
        self._acked: dict[Subscriber, int] = {}
        """Where each subscriber is, or that it is where the crowd is."""
        self._numbers: dict[int, int] = {}
        """How many are at a position, wherever somebody is."""
        self._foremost = NOWHERE

    @property
    def subscribers(self) -> int:
        """n: how many are attached."""
        return len(self._acked)

    def acked(self, subscriber: Subscriber) -> int | None:
        """The position that a subscriber acknowledged; None if it is not attached."""
        acked = self._acked.get(subscriber)
        return self.crowd_at if acked == IN_THE_CROWD else acked

    def standings(self) -> Iterator[tuple[Subscriber, int, bool]]:
        """Every subscriber, where it is, and whether it is in the crowd."""
        for subscriber, acked in self._acked.items():
            in_the_crowd = acked == IN_THE_CROWD
            yield subscriber, self.crowd_at if in_the_crowd else acked, in_the_crowd

    def attach(self, subscriber: Subscriber, acked: int) -> None:
        """Let it wait for all that lies beyond `acked`."""
        self._acked[subscriber] = acked
        self.lifetime.subscribers += 1
        self._numbers[acked] = self._numbers.get(acked, 0) + 1
        self._foremost = max(self._foremost, acked)
        if self.tail is not None and acked < self.tail.position:
            self.waiting += 1

    def detach(self, subscriber: Subscriber) -> None:
        """Let it wait for nothing any more."""
        self.leave_crowd(subscriber)
        acked = self._acked.pop(subscriber)
        self.lifetime.subscribers -= 1
        self._depart(1, acked)
        if self.tail is not None and acked < self.tail.position:
            self.waiting -= 1

    def acknowledge(self, subscriber: Subscriber, upto: int) -> bool:
        """Let it wait only for what lies beyond `upto`; False if it is not attached or waited for no more."""
        acked = self.acked(subscriber)
        if acked is None or acked >= upto:
            return False
        self.leave_crowd(subscriber)
        self._acked[subscriber] = upto
        self._move(1, acked, upto)
        return True

    def acknowledge_crowd(self, upto: int) -> None:
        """Let all of the crowd wait only for what lies beyond `upto`."""
        self._move(self.crowd, self.crowd_at, upto)
        self.crowd_at = upto

    def join_crowd(self, subscriber: Subscriber, upto: int) -> int:
        """Let a subscriber acknowledge up to where the crowd is, and then move with it; where it was before."""
        acked = self._acked[subscriber]
        if acked == IN_THE_CROWD:
            return self.crowd_at
        if (self.crowd and upto != self.crowd_at) or acked > upto:
            raise ValueError(f"from {acked} to {upto}, where the crowd of {self.crowd} is at {self.crowd_at}")
        self._acked[subscriber] = IN_THE_CROWD
        self.crowd += 1
        self.crowd_at = upto
        if acked < upto:
            self._move(1, acked, upto)
        return acked

    def leave_crowd(self, subscriber: Subscriber) -> None:
        """Let a subscriber stay where it is when the crowd moves on."""
        if self._acked[subscriber] == IN_THE_CROWD:
            self._acked[subscriber] = self.crowd_at
            self.crowd -= 1

    def waiting_for(self, position: int) -> int:
        """How many have not acknowledged that position."""
        if position > self._foremost:
            return len(self._acked)
        return sum(number for at, number in self._numbers.items() if at < position)

    def append(self, added: CachedResult[Value]) -> None:
        """Put an object at the head."""
        if self.tail is None:
            self.tail = added
            self.waiting = added.waiting
        self.objects[added.position] = added

    def pop_tail(self) -> CachedResult[Value]:
        """Take the oldest object out."""
        _, gone = self.objects.popitem(last=False)
        if not self.objects:
            self.tail = None
            self.waiting = 0
            self.gaps.clear()
            return gone
        self.tail = self.objects[next(iter(self.objects))]
        following = self.tail.position
        self.waiting += self._standing(gone.position, following)
        if self.gaps:
            del self.gaps[: bisect_right(self.gaps, following)]
        return gone

    def pop(self, position: int) -> CachedResult[Value]:
        """Take an object out; where it is not the oldest, it leaves a gap."""
        if self.tail is None or position == self.tail.position:
            return self.pop_tail()
        insort(self.gaps, position)
        return self.objects.pop(position)

    def each_waiting(self) -> Iterator[tuple[CachedResult[Value], int]]:
        """Every object from the tail to the head, and how many wait for it."""
        standing = sorted(self._numbers.items(), reverse=True)
        waiting = 0
        for one in self.objects.values():
            while standing and standing[-1][0] < one.position:
                waiting += standing.pop()[1]
            yield one, waiting

    def between(self, after: int, until: int) -> list[CachedResult[Value]]:
        """The objects with after < position <= until, oldest first."""
        if self.tail is None:
            return []
        first, last = max(after + 1, self.tail.position), min(until, self.newest)
        if last - first < len(self.objects):
            found = map(self.objects.get, range(first, last + 1))
            return [one for one in found if one is not None]
        return [one for one in self.objects.values() if first <= one.position <= last]

    def expires_ms(self, one: CachedResult[Value], expiry: ExpiryOf) -> int:
        """When an object expires; that may be in the past."""
        return one.stamp_ms if expiry == "object" else one.inserted_ms + self.lifetime.ttl_ms

    def gaps_between(self, after: int, until: int) -> tuple[int, ...]:
        """The gaps with after < position <= until."""
        return tuple(self.gaps[bisect_right(self.gaps, after) : bisect_right(self.gaps, until)])

    def missed_until(self, after: int, until: int) -> int:
        """Up to where the cache cannot serve after < position <= until, if it lacks only what is older."""
        if self.tail is None or self.tail.position > until:
            return until
        return max(after, self.tail.position - 1)

    def _move(self, number: int, acked: int, upto: int) -> None:
        self._depart(number, acked)
        self._numbers[upto] = self._numbers.get(upto, 0) + number
        self._foremost = max(self._foremost, upto)
        if self.tail is not None and acked < self.tail.position <= upto:
            self.waiting -= number

    def _standing(self, position: int, following: int) -> int:
        """How many are at a position or beyond it, but before the following."""
        if following == position + 1:
            return self._numbers.get(position, 0)
        if following - position < len(self._numbers):
            return sum(self._numbers.get(at, 0) for at in range(position, following))
        return sum(number for at, number in self._numbers.items() if position <= at < following)

    def _depart(self, number: int, position: int) -> None:
        left = self._numbers[position] - number
        if left:
            self._numbers[position] = left
        else:
            del self._numbers[position]
