"""Pages in the order in which they would leave."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable

Page = Hashable


class Ranking:
    """Pages ordered by value, lowest first; among equal values, the one set earlier first.

    A heap with stale nodes: setting a value adds a node, and nodes whose stamp is no longer the page's
    are dropped when they surface or when they outnumber the live ones.
    """

    def __init__(self) -> None:
        self._keys: dict[Page, tuple[float, int]] = {}
        self._heap: list[tuple[float, int, Page]] = []
        self._stamp = 0

    def __contains__(self, page: Page) -> bool:
        return page in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def value(self, page: Page) -> float:
        return self._keys[page][0]

    def set(self, page: Page, value: float) -> None:
        if math.isnan(value):
            raise ValueError("the score is NaN")
        self._stamp += 1
        self._keys[page] = value, self._stamp
        if len(self._heap) > 2 * len(self._keys) + 64:
            self._heap = [(value, stamp, page) for page, (value, stamp) in self._keys.items()]
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, (value, self._stamp, page))

    def remove(self, page: Page) -> None:
        del self._keys[page]

    def lowest(
        self,
        needed: int,
        size: Callable[[Page], int],
        below: float | None = None,
        among: Callable[[Page], bool] | None = None,
    ) -> list[Page] | None:
        """The lowest pages that free at least `needed` bytes, or None if there are not enough.

        Only pages with a value under `below` and accepted by `among` are taken, where these are given.
        """
        chosen: list[Page] = []
        surfaced: list[tuple[float, int, Page]] = []
        while needed > 0 and self._heap:
            value, stamp, page = node = self._heap[0]
            if self._keys.get(page) == (value, stamp):
                if below is not None and value >= below:
                    break
                surfaced.append(node)
                if among is None or among(page):
                    chosen.append(page)
                    needed -= size(page)
            heapq.heappop(self._heap)
        for node in surfaced:
            heapq.heappush(self._heap, node)
        return chosen if needed <= 0 else None
