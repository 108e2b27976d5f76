"""Victims among all objects of the result caches, wherever they are.

Uddin & Venkatasubramanian (2018, section IV.A) drop the object of least value per byte, before they look at tails
alone to have fewer candidates. With a heap of all objects that is not needed: only what has changed is scored.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Mapping

from newsstand.caching.bad2018 import Tail, TailScore
from newsstand.caching.result_cache import CachedResult, ResultCache, Value
from newsstand.caching.tail_ranking import Key
from newsstand.caching.victims import Victims


class ScoredObjects(Victims[Key, Value]):
    """The object with the lowest score leaves first; among equals of one cache, the oldest.

    One that was put less than `grace_ms` ago does so last. A heap with stale nodes: a node whose score is no
    longer its object's is dropped when it surfaces, or when such nodes outnumber the others.
    """

    def __init__(
        self, caches: Mapping[Key, ResultCache[Value]], score: TailScore, grace_ms: int, now: int
    ) -> None:
        super().__init__(caches)
        self._score = score
        self._grace_ms = grace_ms
        self._in_grace: deque[tuple[int, Key, int]] = deque()
        """When the grace of an object ends, its cache and its position, in the order of time."""
        self._heap: list[tuple[float, Key, int]] = []
        self._unscored: set[tuple[Key, int]] = set()
        """Objects that may have other scores than before."""
        self._objects = 0
        found = []
        for key, cache in caches.items():
            for one, waiting in cache.each_waiting():
                one.waiting = waiting
                self._unscored.add((key, one.position))
                found.append((one.inserted_ms + grace_ms, key, one.position))
        self._objects = len(found)
        self._in_grace.extend(sorted(end for end in found if end[0] > now))

    def put(self, key: Key, one: CachedResult[Value], now: int) -> None:
        self._objects += 1
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
        self._objects -= 1
        self._unscored.discard((key, position))

    def lowest(self, now: int) -> tuple[Key, int] | None:
        self._end_grace(now)
        self._score_changed(now)
        while self._heap:
            score, key, position = self._heap[0]
            if self._is_score(score, key, position):
                return key, position
            heapq.heappop(self._heap)
        return None

    def _end_grace(self, now: int) -> None:
        while self._in_grace and self._in_grace[0][0] <= now:
            _, key, position = self._in_grace.popleft()
            if self._found(key, position) is not None:
                self._unscored.add((key, position))

    def _score_changed(self, now: int) -> None:
        spared_ms = now - self._grace_ms
        for key, position in self._unscored:
            one = self._caches[key].objects[position]
            inserted_ms = one.inserted_ms
            if inserted_ms > spared_ms:
                one.score = math.inf
            else:
                one.score = self._score(Tail(one.size, one.waiting, inserted_ms, inserted_ms, inserted_ms))
                if math.isnan(one.score):
                    raise ValueError("the score is NaN")
            heapq.heappush(self._heap, (one.score, key, position))
        self._unscored.clear()
        if len(self._heap) > 2 * self._objects + 64:
            self._heap = list({node for node in self._heap if self._is_score(*node)})
            heapq.heapify(self._heap)

    def _is_score(self, score: float, key: Key, position: int) -> bool:
        one = self._found(key, position)
        return one is not None and one.score == score

    def _found(self, key: Key, position: int) -> CachedResult[Value] | None:
        cache = self._caches.get(key)
        return None if cache is None else cache.objects.get(position)
