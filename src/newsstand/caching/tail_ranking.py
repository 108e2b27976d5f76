"""Result caches in the order in which they would lose their tails."""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class TailRanking(Generic[Key]):
    """Caches ordered by the scores of their tails, lowest first; among equal scores, the smallest key first.

    A heap with stale nodes: a node whose score is no longer its cache's is dropped when it surfaces, or when such
    nodes outnumber the others.
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
        """The lowest score and its cache; None if no cache has a tail."""
        while self._heap:
            score, key = self._heap[0]
            if self._scores.get(key) == score:
                return score, key
            heapq.heappop(self._heap)
        return None
