"""One result cache: the objects of one backend subscription, and the position of each subscriber.

Uddin & Venkatasubramanian (2018, section III.C, Algorithm 1). Retrieval is cumulative: a subscriber waits for all
objects beyond the position that it acknowledged last. An object therefore needs no set of subscribers but only
their number, which never grows towards the tail. The number is stored for the tail alone; that of the next object
follows from the number of subscribers at each position. The cost of an acknowledgement does not depend on the
number of cached objects.

Subscribers that get every result as it arrives are at one position. They can form a *cohort*, which acknowledges
as one.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar

from newsstand.caching.results.lifetimes import Lifetime

Key = TypeVar("Key", bound=Hashable)
Subscriber = Hashable
Value = TypeVar("Value")

Reason = Literal["dropped", "consumed", "abandoned"]
"""Dropped by the policy, retrieved by all subscribers, or abandoned when the last waiting one unsubscribed."""

ExpiryOf = Literal["cache", "object"]
"""Whether an object expires by the present time to live of its cache, or by that at its insertion."""

NOWHERE = -1
"""Before every position."""
IN_COHORT = -2


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
    """f: the subscribers to retrieve it when it was put or, where all objects are ranked, at present."""


class RemovedObject(NamedTuple, Generic[Key]):
    """An object that has left its cache."""

    cache: Key
    position: int
    size: int
    inserted_ms: int
    at_ms: int
    reason: Reason


class Retrieval(NamedTuple):
    """The objects that were pending for a subscriber: misses up to `missed_until`, then hits except for `gaps`.

    Gaps are objects that left the cache while older ones stayed.
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
        "cohort",
        "cohort_at",
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
        self.cohort = 0
        """The number of subscribers in the cohort, which are all at:"""
        self.cohort_at = NOWHERE
        self.newest = NOWHERE
        self.accessed_ms = 0
        self.gaps: list[int] = []
        """The positions of objects that left while older ones stayed, oldest first."""
        self._acked: dict[Subscriber, int] = {}
        """The position of each subscriber, or IN_COHORT."""
        self._numbers: dict[int, int] = {}
        """The number of subscribers at each position that has any."""
        self._foremost = NOWHERE

    @property
    def subscribers(self) -> int:
        """n: the number of attached subscribers."""
        return len(self._acked)

    def acked(self, subscriber: Subscriber) -> int | None:
        """Return the position that a subscriber acknowledged; None if it is not attached."""
        acked = self._acked.get(subscriber)
        return self.cohort_at if acked == IN_COHORT else acked

    def standings(self) -> Iterator[tuple[Subscriber, int, bool]]:
        """Yield every subscriber with its position and whether it is in the cohort."""
        for subscriber, acked in self._acked.items():
            in_cohort = acked == IN_COHORT
            yield subscriber, self.cohort_at if in_cohort else acked, in_cohort

    def attach(self, subscriber: Subscriber, acked: int) -> None:
        """Let a subscriber wait for all objects beyond `acked`."""
        self._acked[subscriber] = acked
        self.lifetime.subscribers += 1
        self._numbers[acked] = self._numbers.get(acked, 0) + 1
        self._foremost = max(self._foremost, acked)
        if self.tail is not None and acked < self.tail.position:
            self.waiting += 1

    def detach(self, subscriber: Subscriber) -> None:
        """Remove a subscriber."""
        self.leave_cohort(subscriber)
        acked = self._acked.pop(subscriber)
        self.lifetime.subscribers -= 1
        self._depart(1, acked)
        if self.tail is not None and acked < self.tail.position:
            self.waiting -= 1

    def acknowledge(self, subscriber: Subscriber, upto: int) -> bool:
        """Move a subscriber to `upto`; return False if it is not attached, or at `upto` or beyond already."""
        acked = self.acked(subscriber)
        if acked is None or acked >= upto:
            return False
        self.leave_cohort(subscriber)
        self._acked[subscriber] = upto
        self._move(1, acked, upto)
        return True

    def acknowledge_cohort(self, upto: int) -> None:
        """Move the cohort to `upto`."""
        self._move(self.cohort, self.cohort_at, upto)
        self.cohort_at = upto

    def join_cohort(self, subscriber: Subscriber, upto: int) -> int:
        """Move a subscriber to the cohort, which is at `upto`; return its position before."""
        acked = self._acked[subscriber]
        if acked == IN_COHORT:
            return self.cohort_at
        if (self.cohort and upto != self.cohort_at) or acked > upto:
            raise ValueError(f"from {acked} to {upto}, where the cohort of {self.cohort} is at {self.cohort_at}")
        self._acked[subscriber] = IN_COHORT
        self.cohort += 1
        self.cohort_at = upto
        if acked < upto:
            self._move(1, acked, upto)
        return acked

    def leave_cohort(self, subscriber: Subscriber) -> None:
        """Let a subscriber keep its position when the cohort moves on."""
        if self._acked[subscriber] == IN_COHORT:
            self._acked[subscriber] = self.cohort_at
            self.cohort -= 1

    def waiting_for(self, position: int) -> int:
        """Return the number of subscribers that have not acknowledged a position."""
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
        """Remove the oldest object."""
        _, removed = self.objects.popitem(last=False)
        if not self.objects:
            self.tail = None
            self.waiting = 0
            self.gaps.clear()
            return removed
        self.tail = self.objects[next(iter(self.objects))]
        following = self.tail.position
        self.waiting += self._standing(removed.position, following)
        if self.gaps:
            del self.gaps[: bisect_right(self.gaps, following)]
        return removed

    def pop(self, position: int) -> CachedResult[Value]:
        """Remove an object; unless it is the oldest, it leaves a gap."""
        if self.tail is None or position == self.tail.position:
            return self.pop_tail()
        insort(self.gaps, position)
        return self.objects.pop(position)

    def each_waiting(self) -> Iterator[tuple[CachedResult[Value], int]]:
        """Yield every object from the tail to the head with the number of subscribers that wait for it."""
        standing = sorted(self._numbers.items(), reverse=True)
        waiting = 0
        for one in self.objects.values():
            while standing and standing[-1][0] < one.position:
                waiting += standing.pop()[1]
            yield one, waiting

    def between(self, after: int, until: int) -> list[CachedResult[Value]]:
        """Return the objects with after < position <= until, oldest first."""
        if self.tail is None:
            return []
        first, last = max(after + 1, self.tail.position), min(until, self.newest)
        if last - first < len(self.objects):
            found = map(self.objects.get, range(first, last + 1))
            return [one for one in found if one is not None]
        return [one for one in self.objects.values() if first <= one.position <= last]

    def expires_ms(self, one: CachedResult[Value], expiry: ExpiryOf) -> int:
        """Return when an object expires; that may be in the past."""
        return one.stamp_ms if expiry == "object" else one.inserted_ms + self.lifetime.ttl_ms

    def gaps_between(self, after: int, until: int) -> tuple[int, ...]:
        """Return the gaps with after < position <= until."""
        return tuple(self.gaps[bisect_right(self.gaps, after) : bisect_right(self.gaps, until)])

    def missed_until(self, after: int, until: int) -> int:
        """Return the last position in (after, until] that is older than the tail; `after` if there is none."""
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
        """Return the number of subscribers with position <= their position < following."""
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
