"""W-TinyLFU, in bytes (Einziger et al., "TinyLFU: A Highly Efficient Cache Admission Policy", ACM TOS 2017).

Where the paper leaves a choice, or counts entries and not bytes:

* Frequencies are exact counters up to 15, not a sketch, so there is no hashing and no chance. All are halved,
  and the count of additions with them, when the additions reach ten times the number of cached pages;
  counters that fall to 0 are dropped, so the memory is that of the sample.
* A candidate that takes the room of several victims must be requested more often than all of them together:
  the aggregated victims of Einziger, Eytan, Friedman & Manes, "Lightweight Robust Size Aware Cache
  Management", ACM TOS 2022.
* As in Caffeine, a page larger than the window is a candidate at once, and a page larger than the protected
  segment stays in probation. A page larger than the main cache is not cached.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

from newsstand.caching.byte_queue import ByteQueue
from newsstand.caching.page_cache import PageCache
from newsstand.caching.policy import machine
from newsstand.caching.ranking import Page


@machine("w-tinylfu")
class WindowTinyLFU(PageCache):
    """W-TinyLFU: an LRU window, then admission by frequency to a segmented LRU (Einziger et al. 2017)."""

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

    def push(self, page: Page, size: int, subscriptions: int) -> bool:
        return False

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
                self._left(candidate, its_size)
        self._window.put(page, size)
        self.used += size

    def _admit(self, candidate: Page, size: int) -> bool:
        """Move the candidate to the main cache, if the victims that make its room are requested less."""
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
            self._left(victim, segment.take(victim))
        self._probation.put(candidate, size)
        return True
