"""S3-FIFO, in bytes (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023).

The parameters and the open choices are those of libCacheSim's S3FIFO: a small queue of a tenth of the bytes,
a ghost of nine tenths, two hits to move to the main queue; until the first eviction a full small queue
lets new pages into the main one; pages leave the main queue while it is over its share, else the small one.
One thing differs: libCacheSim never caches a page that would fill the small queue, whereas here, as in the
paper, only the whole cache is too small for a page. Where every page is smaller than the small queue, the
hits are the same.
"""

from __future__ import annotations

from collections.abc import Callable

from newsstand.caching.byte_queue import ByteQueue
from newsstand.caching.page_cache import PageCache
from newsstand.caching.policy import machine
from newsstand.caching.ranking import Page


@machine("s3-fifo")
class S3FIFO(PageCache):
    """S3-FIFO: a small, a main and a ghost FIFO queue (Yang et al. 2023)."""

    def __init__(self, capacity: int, beta: float = 2.0, on_evict: Callable[[Page], None] | None = None) -> None:
        super().__init__(capacity, beta, on_evict)
        self._small = ByteQueue(capacity // 10)
        self._main = ByteQueue(capacity - capacity // 10)
        self._ghost = ByteQueue(capacity * 9 // 10)
        self._hits: dict[Page, int] = {}
        self._has_evicted = False

    def __contains__(self, page: Page) -> bool:
        return page in self._hits

    def __len__(self) -> int:
        return len(self._hits)

    def push(self, page: Page, size: int, subscriptions: int) -> bool:
        return False

    def request(self, page: Page, size: int, subscriptions: int = 0) -> bool:
        if page in self._hits:
            self._hits[page] = min(self._hits[page] + 1, 3)
            return True
        if size > self.capacity:
            return False
        returns = page in self._ghost
        if returns:
            self._ghost.take(page)
        while self.capacity - self.used < size:
            self._has_evicted = True
            if self._main.used > self._main.capacity or not self._small:
                self._evict_from_main()
            else:
                self._evict_from_small()
        small_is_full = self._small.used >= self._small.capacity
        to_main = returns or (small_is_full and not self._has_evicted)
        (self._main if to_main else self._small).put(page, size)
        self.used += size
        self._hits[page] = 0
        return False

    def _evict_from_small(self) -> None:
        """Evict the oldest page that is not worth the main queue; perhaps there is none."""
        while self._small:
            page, size = self._small.take_oldest()
            if self._hits[page] < 2:
                self._remember(page, size)
                self._leave(page, size)
                return
            self._hits[page] = 0
            self._main.put(page, size)

    def _evict_from_main(self) -> None:
        while True:
            page, size = self._main.take_oldest()
            if self._hits[page] == 0:
                self._leave(page, size)
                return
            self._hits[page] -= 1
            self._main.put(page, size)

    def _leave(self, page: Page, size: int) -> None:
        del self._hits[page]
        self._left(page, size)

    def _remember(self, page: Page, size: int) -> None:
        if size > self._ghost.capacity:
            return
        while self._ghost.capacity - self._ghost.used < size:
            self._ghost.take_oldest()
        self._ghost.put(page, size)
