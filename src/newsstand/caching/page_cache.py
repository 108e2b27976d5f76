"""The page cache of a live proxy: its contract, and the cache that any scoring function drives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from newsstand.caching.policy import Entry, Policy
from newsstand.caching.ranking import Page, Ranking


class PageCache(ABC):
    """A cache of whole pages that learns of pushes and requests and decides what to keep.

    `on_evict` is called with each page that leaves. The bytes held never exceed the capacity.
    """

    def __init__(self, capacity: int, beta: float = 2.0, on_evict: Callable[[Page], None] | None = None) -> None:
        self.capacity = capacity
        self.beta = beta
        self.used = 0
        self._on_evict = on_evict

    @abstractmethod
    def push(self, page: Page, size: int, subscriptions: int) -> bool:
        """Offer a newly published page; True if it is now stored because of this push."""

    @abstractmethod
    def request(self, page: Page, size: int, subscriptions: int = 0) -> bool:
        """Serve a request; True for a hit. After a miss the page may or may not be cached."""

    @abstractmethod
    def __contains__(self, page: Page) -> bool: ...

    @abstractmethod
    def __len__(self) -> int: ...

    def forget(self, page: Page) -> None:  # noqa: B027  most caches remember nothing but their entries
        """Drop what is remembered of a page that is not cached and will not be asked for again."""

    def _left(self, page: Page, size: int) -> None:
        self.used -= size
        if self._on_evict is not None:
            self._on_evict(page)


@dataclass(slots=True)
class _Stored:
    size: int
    subscriptions: int
    accesses: int


class ScoredCache(PageCache):
    """One cache, one scoring function."""

    def __init__(
        self,
        policy: Policy,
        capacity: int,
        beta: float = 2.0,
        on_evict: Callable[[Page], None] | None = None,
    ) -> None:
        super().__init__(capacity, beta, on_evict)
        assert policy.score is not None
        self.policy = policy
        self._score = policy.score
        self._entries: dict[Page, _Stored] = {}
        self._ranking = Ranking()
        self._requests: dict[Page, int] = {}
        self._inflation = 0.0

    def __contains__(self, page: Page) -> bool:
        return page in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def push(self, page: Page, size: int, subscriptions: int) -> bool:
        if page in self._entries or self.policy.push == "ignore":
            return False
        return self._admit(page, _Stored(size, subscriptions, 0), by_value=True)

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
            self._admit(page, _Stored(size, subscriptions, 1), by_value=self.policy.miss == "by-value")
        return False

    def forget(self, page: Page) -> None:
        if page not in self._entries:
            self._requests.pop(page, None)

    def _value(self, page: Page, entry: _Stored) -> float:
        requests = self._requests.get(page, 0)
        return self._score(
            Entry(entry.size, entry.subscriptions, entry.accesses, requests, self._inflation, self.beta)
        )

    def _admit(self, page: Page, entry: _Stored, *, by_value: bool) -> bool:
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

    def _size(self, page: Page) -> int:
        return self._entries[page].size

    def _evict(self, page: Page) -> None:
        if self.policy.inflates:
            self._inflation = self._ranking.value(page)
        self._ranking.remove(page)
        self._left(page, self._entries.pop(page).size)
