"""The choice of the object that leaves the result caches first: among tails, or among all objects.

Uddin & Venkatasubramanian (2018, section IV.A) drop the object of least value per byte, and then consider tails
alone to have fewer candidates. With a heap of all objects that is not needed: only changed objects are scored.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Mapping
from typing import Generic

from newsstand.caching.results.cache import CachedResult, ExpiryOf, Key, ResultCache, Value
from newsstand.caching.results.policies import Tail, TailScore


class ScoreRanking(Generic[Key]):
    """Keys ordered by score, lowest first; among equal scores, the smallest key first.

    A heap with stale nodes: a node with an old score is dropped when it comes to the top, or when such nodes
    outnumber the others.
    """

    def __init__(self) -> None:
        self._scores: dict[Key, float] = {}
        self._heap: list[tuple[float, Key]] = []

    def set(self, key: Key, score: float) -> None:
        if math.isnan(score):
            raise ValueError("the score is NaN")
        if self._scores.get(key) == score:
            return
        self._scores[key] = score
        if len(self._heap) > 2 * len(self._scores) + 64:
            self._heap = [(score, key) for key, score in self._scores.items()]
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, (score, key))

    def discard(self, key: Key) -> None:
        self._scores.pop(key, None)

    def clear(self) -> None:
        self._scores.clear()
        self._heap.clear()

    def lowest(self) -> tuple[float, Key] | None:
        """Return the lowest score and its key; None if there are no keys."""
        while self._heap:
            score, key = self._heap[0]
            if self._scores.get(key) == score:
                return score, key
            heapq.heappop(self._heap)
        return None


class Victims(Generic[Key, Value]):
    """The choice of victims, given all events of the caches; among equals, the one in the smallest cache."""

    def __init__(self, caches: Mapping[Key, ResultCache[Value]]) -> None:
        self._caches = caches

    def put(self, key: Key, one: CachedResult[Value], now: int) -> None:
        """Note that an object was put at the head of a cache."""

    def accessed(self, key: Key) -> None:
        """Note that an object was retrieved from a cache."""

    def waited(self, key: Key, after: int, until: int | None, more: int) -> None:
        """Note that `more` subscribers wait for objects with after < position <= until, by default all."""

    def left(self, key: Key, position: int) -> None:
        """Note that an object has left its cache."""

    def tail_changed(self, key: Key, now: int) -> None:
        """Note that a cache has a new tail, or has become empty."""

    def renew(self, now: int) -> None:
        """Note that times to live have changed."""

    def lowest(self, now: int) -> tuple[Key, int] | None:
        """Return the cache and the position of the object that leaves first; None if none does."""
        return None

    def next_expiry(self) -> tuple[int, Key] | None:
        """Return when a tail expires next, and of which cache; None if none does."""
        return None


class RankedTails(Victims[Key, Value]):
    """Tails in a ranking: the lowest one leaves first."""

    def __init__(self, caches: Mapping[Key, ResultCache[Value]], expiry: ExpiryOf) -> None:
        super().__init__(caches)
        self._expiry: ExpiryOf = expiry
        self._ranking = ScoreRanking[Key]()

    def lowest(self, now: int) -> tuple[Key, int] | None:
        lowest = self._ranking.lowest()
        if lowest is None:
            return None
        tail = self._caches[lowest[1]].tail
        assert tail is not None
        return lowest[1], tail.position


class ScoredTails(RankedTails[Key, Value]):
    """The tail with the lowest score leaves first. Tails are scored when a victim is chosen."""

    def __init__(self, caches: Mapping[Key, ResultCache[Value]], score: TailScore, expiry: ExpiryOf) -> None:
        super().__init__(caches, expiry)
        self._score = score
        self._unranked: set[Key] = set()
        """Caches whose tails may have other scores than before."""
        self.renew(0)

    def put(self, key: Key, one: CachedResult[Value], now: int) -> None:
        self._unranked.add(key)

    def accessed(self, key: Key) -> None:
        self._unranked.add(key)

    def waited(self, key: Key, after: int, until: int | None, more: int) -> None:
        self._unranked.add(key)

    def tail_changed(self, key: Key, now: int) -> None:
        self._unranked.add(key)

    def renew(self, now: int) -> None:
        self._ranking.clear()
        self._unranked = {key for key, cache in self._caches.items() if cache.tail is not None}

    def lowest(self, now: int) -> tuple[Key, int] | None:
        for key in self._unranked:
            cache = self._caches.get(key)
            if cache is None or cache.tail is None:
                self._ranking.discard(key)
                continue
            tail, expires_ms = cache.tail, cache.expires_ms(cache.tail, self._expiry)
            scored = Tail(tail.size, cache.waiting, tail.inserted_ms, cache.accessed_ms, expires_ms)
            self._ranking.set(key, self._score(scored))
        self._unranked.clear()
        return super().lowest(now)


class ExpiringTails(RankedTails[Key, Value]):
    """The tail that expires next leaves first. A tail that became the tail after its expiry expires then."""

    def __init__(self, caches: Mapping[Key, ResultCache[Value]], expiry: ExpiryOf, now: int) -> None:
        super().__init__(caches, expiry)
        self.renew(now)

    def put(self, key: Key, one: CachedResult[Value], now: int) -> None:
        if self._caches[key].tail is one:
            self.tail_changed(key, now)

    def tail_changed(self, key: Key, now: int) -> None:
        cache = self._caches[key]
        if cache.tail is None:
            self._ranking.discard(key)
        else:
            self._ranking.set(key, max(now, cache.expires_ms(cache.tail, self._expiry)))

    def renew(self, now: int) -> None:
        self._ranking.clear()
        for key, cache in self._caches.items():
            if cache.tail is not None:
                self.tail_changed(key, now)

    def next_expiry(self) -> tuple[int, Key] | None:
        lowest = self._ranking.lowest()
        return None if lowest is None else (int(lowest[0]), lowest[1])


class ScoredObjects(Victims[Key, Value]):
    """The object with the lowest score leaves first; among equals of one cache, the oldest.

    An object that was put less than `grace_ms` ago leaves last.
    """

    def __init__(
        self, caches: Mapping[Key, ResultCache[Value]], score: TailScore, grace_ms: int, now: int
    ) -> None:
        super().__init__(caches)
        self._score = score
        self._grace_ms = grace_ms
        self._in_grace: deque[tuple[int, Key, int]] = deque()
        """The end of the grace of an object, its cache and its position, in the order of time."""
        self._ranking = ScoreRanking[tuple[Key, int]]()
        self._unscored: set[tuple[Key, int]] = set()
        """Objects whose scores may have changed."""
        found = []
        for key, cache in caches.items():
            for one, waiting in cache.each_waiting():
                one.waiting = waiting
                self._unscored.add((key, one.position))
                found.append((one.inserted_ms + grace_ms, key, one.position))
        self._in_grace.extend(sorted(end for end in found if end[0] > now))

    def put(self, key: Key, one: CachedResult[Value], now: int) -> None:
        self._unscored.add((key, one.position))
        if self._grace_ms:
            self._end_grace(now)
            self._in_grace.append((now + self._grace_ms, key, one.position))

    def waited(self, key: Key, after: int, until: int | None, more: int) -> None:
        cache = self._caches[key]
        for one in cache.between(after, cache.newest if until is None else until):
            one.waiting += more
            self._unscored.add((key, one.position))

    def left(self, key: Key, position: int) -> None:
        self._unscored.discard((key, position))
        self._ranking.discard((key, position))

    def lowest(self, now: int) -> tuple[Key, int] | None:
        self._end_grace(now)
        for key, position in self._unscored:
            one = self._caches[key].objects[position]
            inserted_ms = one.inserted_ms
            in_grace = inserted_ms > now - self._grace_ms
            tail = Tail(one.size, one.waiting, inserted_ms, inserted_ms, inserted_ms)
            self._ranking.set((key, position), math.inf if in_grace else self._score(tail))
        self._unscored.clear()
        lowest = self._ranking.lowest()
        return None if lowest is None else lowest[1]

    def _end_grace(self, now: int) -> None:
        while self._in_grace and self._in_grace[0][0] <= now:
            _, key, position = self._in_grace.popleft()
            cache = self._caches.get(key)
            if cache is not None and position in cache.objects:
                self._unscored.add((key, position))
