"""The page cache of a live proxy: its contract, and the implementation for scoring functions."""

from __future__ import annotations

import heapq
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass

from newsstand.caching.pages.policy import Entry, Policy

Page = Hashable


class PageRanking:
    """Pages ordered by value, lowest first; among equal values, the one set earlier first.

    A heap with stale nodes: setting a value adds a node, and nodes with an old stamp are dropped when they come to
    the top or when they outnumber the others.
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
        """Return the lowest pages that free at least `needed` bytes, or None if there are not enough.

        If given, `below` is an upper limit of values and `among` selects pages.
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


class PageCache(ABC):
    """A cache of whole pages: it gets pushes and requests, and decides which pages it stores.

    `on_evict` is called with each page that leaves. The cached bytes never exceed the capacity.
    """

    _entries: Collection[Page]
    """The cached pages, with what the policy stores for each."""

    def __init__(self, capacity: int, beta: float = 2.0, on_evict: Callable[[Page], None] | None = None) -> None:
        self.capacity = capacity
        self.beta = beta
        self.used = 0
        self._on_evict = on_evict

    def push(self, page: Page, size: int, subscriptions: int) -> bool:
        """Offer a newly published page; return whether this push stores it.

        Policies that use requests only ignore it.
        """
        return False

    @abstractmethod
    def request(self, page: Page, size: int, subscriptions: int = 0) -> bool:
        """Serve a request; return whether it is a hit. After a miss the policy may cache the page."""

    def __contains__(self, page: Page) -> bool:
        return page in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def forget(self, page: Page) -> None:  # noqa: B027  most caches store nothing but their entries
        """Drop the data of a page that is not cached and will not be requested again."""

    def _release(self, page: Page, size: int) -> None:
        """Free the bytes of an evicted page, and report it. A subclass calls this once the page is not in it."""
        self.used -= size
        if self._on_evict is not None:
            self._on_evict(page)


@dataclass(slots=True)
class PageEntry:
    """What the scores of a cached page depend on."""

    size: int
    subscriptions: int
    accesses: int = 0
    last_access: int = -1


class EntryCache(PageCache):
    """A cache of entries that scoring functions rank, with the inflation value L."""

    def __init__(self, capacity: int, beta: float = 2.0, on_evict: Callable[[Page], None] | None = None) -> None:
        super().__init__(capacity, beta, on_evict)
        self._entries: dict[Page, PageEntry] = {}
        self._inflation = 0.0

    def _size(self, page: Page) -> int:
        return self._entries[page].size

    def _score_input(self, entry: PageEntry, requests: int = 0) -> Entry:
        """Return what a scoring function gets of an entry."""
        return Entry(entry.size, entry.subscriptions, entry.accesses, requests, self._inflation, self.beta)

    def _drop(self, page: Page) -> None:
        self._release(page, self._entries.pop(page).size)


class ScoredCache(EntryCache):
    """A cache with one scoring function."""

    def __init__(
        self, policy: Policy, capacity: int, beta: float = 2.0, on_evict: Callable[[Page], None] | None = None
    ) -> None:
        super().__init__(capacity, beta, on_evict)
        assert policy.score is not None
        self.policy = policy
        self._score = policy.score
        self._ranking = PageRanking()
        self._requests: dict[Page, int] = {}

    def push(self, page: Page, size: int, subscriptions: int) -> bool:
        if page in self._entries or self.policy.push == "ignore":
            return False
        return self._admit(page, PageEntry(size, subscriptions), by_value=True)

    def request(self, page: Page, size: int, subscriptions: int = 0) -> bool:
        if self.policy.uses_requests:
            self._requests[page] = self._requests.get(page, 0) + 1
        entry = self._entries.get(page)
        if entry is not None:
            if self.policy.rescores:
                entry.accesses += 1
                self._ranking.set(page, self._value(page, entry))
            return True
        if self.policy.miss != "ignore":
            self._admit(page, PageEntry(size, subscriptions, 1), by_value=self.policy.miss == "by-value")
        return False

    def forget(self, page: Page) -> None:
        if page not in self._entries:
            self._requests.pop(page, None)

    def _value(self, page: Page, entry: PageEntry) -> float:
        return self._score(self._score_input(entry, self._requests.get(page, 0)))

    def _admit(self, page: Page, entry: PageEntry, *, by_value: bool) -> bool:
        if entry.size > self.capacity:
            return False
        missing = entry.size - (self.capacity - self.used)
        if missing > 0:
            below = self._value(page, entry) if by_value else None
            victims = self._ranking.lowest(missing, self._size, below)
            if victims is None:
                return False
            for victim in victims:
                self._evict(victim)
        self.used += entry.size
        self._entries[page] = entry
        self._ranking.set(page, self._value(page, entry))
        return True

    def _evict(self, page: Page) -> None:
        if self.policy.inflates:
            self._inflation = self._ranking.value(page)
        self._ranking.remove(page)
        self._drop(page)
