"""SIEVE, in bytes (Zhang et al., "SIEVE is Simpler than LRU", NSDI 2024)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from newsstand.caching.page_cache import PageCache
from newsstand.caching.policy import machine
from newsstand.caching.ranking import Page


@machine("sieve")
class Sieve(PageCache):
    """SIEVE: a FIFO queue whose moving hand spares what was visited (Zhang et al. 2024).

    The hand goes from the oldest page to the newest and starts over, so the queue is what it has passed
    in this round, then what is ahead of it.
    """

    def __init__(self, capacity: int, beta: float = 2.0, on_evict: Callable[[Page], None] | None = None) -> None:
        super().__init__(capacity, beta, on_evict)
        self._sizes: dict[Page, int] = {}
        self._visited: set[Page] = set()
        self._passed: deque[Page] = deque()
        self._ahead: deque[Page] = deque()

    def __contains__(self, page: Page) -> bool:
        return page in self._sizes

    def __len__(self) -> int:
        return len(self._sizes)

    def push(self, page: Page, size: int, subscriptions: int) -> bool:
        return False

    def request(self, page: Page, size: int, subscriptions: int = 0) -> bool:
        if page in self._sizes:
            self._visited.add(page)
            return True
        if size <= self.capacity:
            while self.capacity - self.used < size:
                self._advance()
            self.used += size
            self._sizes[page] = size
            self._ahead.append(page)
        return False

    def _advance(self) -> None:
        page = self._ahead.popleft()
        if page in self._visited:
            self._visited.remove(page)
            self._passed.append(page)
        else:
            self._left(page, self._sizes.pop(page))
        if not self._ahead:
            self._ahead, self._passed = self._passed, self._ahead
