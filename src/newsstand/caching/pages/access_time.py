"""Policies that use requests only: the classics, SIEVE, S3-FIFO, W-TinyLFU, and those that need the future.

All of them count bytes, where the papers may count pages.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from itertools import chain

from newsstand.caching.pages.cache import Page, PageCache
from newsstand.caching.pages.policy import POLICIES, Entry, Policy, policy, policy_class


class ByteQueue(OrderedDict[Page, int]):
    """The sizes of pages, oldest first. The owner enforces the capacity."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.used = 0

    def put(self, page: Page, size: int) -> None:
        """Append a page that is not in the queue."""
        self[page] = size
        self.used += size

    def take(self, page: Page) -> int:
        """Remove a page; return its size."""
        size = self.pop(page)
        self.used -= size
        return size

    def take_oldest(self) -> tuple[Page, int]:
        page = next(iter(self))
        return page, self.take(page)


@policy("lru")
def lru(_: Entry) -> float:
    """LRU: all scores are equal, so the entry scored earliest leaves first."""
    return 0.0


@policy("lfu-da", inflates=True)
def lfu_da(e: Entry) -> float:
    """LFU with dynamic ageing (Arlitt et al. 2000)."""
    return e.inflation + e.accesses


@policy("gds", inflates=True)
def gds(e: Entry) -> float:
    """GreedyDual-Size with unit cost (Cao & Irani 1997)."""
    return e.inflation + 1 / e.size


@policy("gdsf", inflates=True)
def gdsf(e: Entry) -> float:
    """GreedyDual-Size-Frequency with unit cost (Cherkasova 1998)."""
    return e.inflation + e.accesses / e.size


@policy_class("sieve")
class Sieve(PageCache):
    """SIEVE: a FIFO queue whose moving hand spares visited pages (Zhang et al. 2024).

    "SIEVE is Simpler than LRU", NSDI 2024.

    The hand moves from the oldest page to the newest and starts over, so the queue consists of the pages that it
    has passed in this round, then of those ahead of it.
    """

    def __init__(self, capacity: int, beta: float = 2.0, on_evict: Callable[[Page], None] | None = None) -> None:
        super().__init__(capacity, beta, on_evict)
        self._entries: dict[Page, int] = {}
        self._visited: set[Page] = set()
        self._passed: deque[Page] = deque()
        self._ahead: deque[Page] = deque()

    def request(self, page: Page, size: int, subscriptions: int = 0) -> bool:
        if page in self._entries:
            self._visited.add(page)
            return True
        if size <= self.capacity:
            while self.capacity - self.used < size:
                self._advance()
            self.used += size
            self._entries[page] = size
            self._ahead.append(page)
        return False

    def _advance(self) -> None:
        page = self._ahead.popleft()
        if page in self._visited:
            self._visited.remove(page)
            self._passed.append(page)
        else:
            self._release(page, self._entries.pop(page))
        if not self._ahead:
            self._ahead, self._passed = self._passed, self._ahead


@policy_class("s3-fifo")
class S3FIFO(PageCache):
    """S3-FIFO: a small, a main and a ghost FIFO queue (Yang et al. 2023).

    "FIFO queues are all you need for cache eviction", SOSP 2023. The parameters and the open choices are those of
    libCacheSim's S3FIFO: a small queue of a tenth of the bytes, a ghost of nine tenths, two hits to move to the
    main queue; until the first eviction, new pages go to the main queue if the small one is full; pages leave the
    main queue while it exceeds its share, else the small one. One difference: libCacheSim never caches a page that
    would fill the small queue, whereas here, as in the paper, a page may fill the whole cache. If every page is
    smaller than the small queue, the hits are equal.
    """

    def __init__(self, capacity: int, beta: float = 2.0, on_evict: Callable[[Page], None] | None = None) -> None:
        super().__init__(capacity, beta, on_evict)
        self._small = ByteQueue(capacity // 10)
        self._main = ByteQueue(capacity - capacity // 10)
        self._ghost = ByteQueue(capacity * 9 // 10)
        self._entries: dict[Page, int] = {}  # the hits of each page, up to 3
        self._has_evicted = False

    def request(self, page: Page, size: int, subscriptions: int = 0) -> bool:
        if page in self._entries:
            self._entries[page] = min(self._entries[page] + 1, 3)
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
        self._entries[page] = 0
        return False

    def _evict_from_small(self) -> None:
        """Evict the oldest page with less than two hits, if any; move those before it to the main queue."""
        while self._small:
            page, size = self._small.take_oldest()
            if self._entries[page] < 2:
                self._remember(page, size)
                self._evict(page, size)
                return
            self._entries[page] = 0
            self._main.put(page, size)

    def _evict_from_main(self) -> None:
        while True:
            page, size = self._main.take_oldest()
            if self._entries[page] == 0:
                self._evict(page, size)
                return
            self._entries[page] -= 1
            self._main.put(page, size)

    def _evict(self, page: Page, size: int) -> None:
        del self._entries[page]
        self._release(page, size)

    def _remember(self, page: Page, size: int) -> None:
        if size > self._ghost.capacity:
            return
        while self._ghost.capacity - self._ghost.used < size:
            self._ghost.take_oldest()
        self._ghost.put(page, size)


@policy_class("w-tinylfu")
class WindowTinyLFU(PageCache):
    """W-TinyLFU: an LRU window, then admission by frequency to a segmented LRU (Einziger et al. 2017).

    "TinyLFU: A Highly Efficient Cache Admission Policy", ACM TOS 2017. Where the paper leaves a choice, or counts
    entries instead of bytes:

    * Frequencies are exact counters up to 15, not a sketch, so there is no hashing and no randomness. All of them
      and the count of additions are halved when the additions reach ten times the number of cached pages; counters
      that fall to 0 are dropped, so the memory is that of the sample.
    * A candidate that replaces several victims must be requested more often than all of them together:
      the aggregated victims of Einziger, Eytan, Friedman & Manes, "Lightweight Robust Size Aware Cache
      Management", ACM TOS 2022.
    * As in Caffeine, a page larger than the window is a candidate at once, and a page larger than the protected
      segment stays in probation. A page larger than the main cache is not cached.
    """

    def __init__(self, capacity: int, beta: float = 2.0, on_evict: Callable[[Page], None] | None = None) -> None:
        super().__init__(capacity, beta, on_evict)
        self._window = ByteQueue(capacity // 100)
        self._main_capacity = capacity - capacity // 100
        self._probation = ByteQueue(self._main_capacity)
        self._protected = ByteQueue(self._main_capacity * 4 // 5)
        self._frequency: dict[Page, int] = {}
        self._additions = 0

    def __contains__(self, page: Page) -> bool:
        return page in self._window or page in self._probation or page in self._protected

    def __len__(self) -> int:
        return len(self._window) + len(self._probation) + len(self._protected)

    def request(self, page: Page, size: int, subscriptions: int = 0) -> bool:
        self._count(page)
        if page in self._window:
            self._window.move_to_end(page)
        elif page in self._protected:
            self._protected.move_to_end(page)
        elif page in self._probation:
            self._promote(page)
        else:
            self._enter(page, size)
            return False
        return True

    def _count(self, page: Page) -> None:
        self._frequency[page] = min(self._frequency.get(page, 0) + 1, 15)
        self._additions += 1
        if self._additions >= 10 * max(len(self), 1):
            self._additions //= 2
            self._frequency = {page: count // 2 for page, count in self._frequency.items() if count > 1}

    def _promote(self, page: Page) -> None:
        if self._probation[page] > self._protected.capacity:
            self._probation.move_to_end(page)
            return
        self._protected.put(page, self._probation.take(page))
        while self._protected.used > self._protected.capacity:
            self._probation.put(*self._protected.take_oldest())

    def _enter(self, page: Page, size: int) -> None:
        if size > self._main_capacity:
            return
        if size > self._window.capacity:
            if self._admit(page, size):
                self.used += size
            return
        while self._window.capacity - self._window.used < size:
            candidate, its_size = self._window.take_oldest()
            if not self._admit(candidate, its_size):
                self._release(candidate, its_size)
        self._window.put(page, size)
        self.used += size

    def _admit(self, candidate: Page, size: int) -> bool:
        """Move the candidate to the main cache if its victims together are requested less often."""
        missing = size - (self._main_capacity - self._probation.used - self._protected.used)
        frequency = self._frequency.get(candidate, 0)
        victims: list[Page] = []
        for victim, its_size in chain(self._probation.items(), self._protected.items()):
            if missing <= 0:
                break
            victims.append(victim)
            missing -= its_size
            frequency -= self._frequency.get(victim, 0)
            if frequency <= 0:
                return False
        for victim in victims:
            segment = self._probation if victim in self._probation else self._protected
            self._release(victim, segment.take(victim))
        self._probation.put(candidate, size)
        return True


# Policies that need the future: their replays are in `newsstand.caching.kernels.pages.offline`.
POLICIES.add(
    Policy("belady-size", "Belady-Size: the largest size x distance to the next request leaves.", offline=True)
)
POLICIES.add(
    Policy("pfoo-l", "PFOO-L: a bound on the hits of access-time caching (Berger et al. 2018).", offline=True)
)
POLICIES.add(
    Policy("pfoo-l-push", "PFOO-L with pushes: a bound on the hits of any policy.", uses_push=True, offline=True)
)
