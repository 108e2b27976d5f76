"""The dual strategies of Chen, LaPaugh & Singh (2003, section 3.3): GD* at access time, SUB at push time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from newsstand.caching.chen2003 import gdstar, sub
from newsstand.caching.page_cache import PageCache
from newsstand.caching.policy import Entry, machine
from newsstand.caching.ranking import Page, Ranking


@dataclass(slots=True)
class _Stored:
    size: int
    subscriptions: int
    accesses: int = 0
    last_access: int = -1


class _Dual(PageCache):
    """What DM and the dual caches share: entries that GD* and SUB can score, and GD*'s L."""

    def __init__(self, capacity: int, beta: float = 2.0, on_evict: Callable[[Page], None] | None = None) -> None:
        super().__init__(capacity, beta, on_evict)
        self._entries: dict[Page, _Stored] = {}
        self._inflation = 0.0

    def __contains__(self, page: Page) -> bool:
        return page in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def _size(self, page: Page) -> int:
        return self._entries[page].size

    def _scored(self, entry: _Stored) -> Entry:
        return Entry(entry.size, entry.subscriptions, entry.accesses, 0, self._inflation, self.beta)

    def _drop(self, page: Page) -> None:
        self._left(page, self._entries.pop(page).size)


@machine("dm", uses_beta=True, uses_push=True)
class DualMethods(_Dual):
    """DM: one cache, two values an entry, SUB's at push time and GD*'s at access time."""

    def __init__(self, capacity: int, beta: float = 2.0, on_evict: Callable[[Page], None] | None = None) -> None:
        super().__init__(capacity, beta, on_evict)
        self._by_subscription = Ranking()
        self._by_access = Ranking()

    def push(self, page: Page, size: int, subscriptions: int) -> bool:
        if page in self._entries or size > self.capacity:
            return False
        entry = _Stored(size, subscriptions)
        missing = size - (self.capacity - self.used)
        victims = self._by_subscription.lowest(missing, self._size, below=sub(self._scored(entry)))
        if victims is None:
            return False
        for victim in victims:
            self._evict(victim)
        self._store(page, entry, self._inflation)
        return True

    def request(self, page: Page, size: int, subscriptions: int = 0) -> bool:
        entry = self._entries.get(page)
        if entry is not None:
            entry.accesses += 1
            self._by_access.set(page, gdstar(self._scored(entry)))
            return True
        if size <= self.capacity:
            missing = size - (self.capacity - self.used)
            for victim in self._by_access.lowest(missing, self._size) or ():
                self._inflation = self._by_access.value(victim)
                self._evict(victim)
            entry = _Stored(size, subscriptions, accesses=1)
            self._store(page, entry, gdstar(self._scored(entry)))
        return False

    def _store(self, page: Page, entry: _Stored, access_value: float) -> None:
        self.used += entry.size
        self._entries[page] = entry
        self._by_subscription.set(page, sub(self._scored(entry)))
        self._by_access.set(page, access_value)

    def _evict(self, page: Page) -> None:
        self._by_subscription.remove(page)
        self._by_access.remove(page)
        self._drop(page)


class DualCaches(_Dual):
    """DC: a push cache (PC) under SUB and an access cache (AC) under GD*.

    `relabels`: a page requested in PC takes its room along to AC, and stale AC pages lend theirs to a push.
    `bounded`: the push cache stays between a quarter and three quarters of the whole.
    """

    relabels = False
    bounded = False

    def __init__(self, capacity: int, beta: float = 2.0, on_evict: Callable[[Page], None] | None = None) -> None:
        super().__init__(capacity, beta, on_evict)
        self._pushed = Ranking()
        self._accessed = Ranking()
        self._push_capacity = capacity // 2
        self._push_used = 0
        self._event = 0
        self._replaced = -1

    @property
    def _access_capacity(self) -> int:
        return self.capacity - self._push_capacity

    def request(self, page: Page, size: int, subscriptions: int = 0) -> bool:
        self._event += 1
        entry = self._entries.get(page)
        if entry is None:
            self._enter(page, _Stored(size, subscriptions))
            return False
        if page in self._accessed:
            self._access(page, entry)
        elif self.relabels and (not self.bounded or 4 * (self._push_capacity - entry.size) >= self.capacity):
            self._pushed.remove(page)
            self._push_used -= entry.size
            self._push_capacity -= entry.size
            self._access(page, entry)
        elif entry.size <= self._access_capacity:
            self._pushed.remove(page)
            self._push_used -= entry.size
            self.used -= entry.size
            del self._entries[page]
            self._enter(page, entry)
        return True

    def push(self, page: Page, size: int, subscriptions: int) -> bool:
        self._event += 1
        if page in self._entries:
            return False
        entry = _Stored(size, subscriptions)
        if not self._place(entry) and not (self.relabels and self._borrow(size)):
            return False
        self.used += size
        self._push_used += size
        self._entries[page] = entry
        self._pushed.set(page, sub(self._scored(entry)))
        return True

    def _place(self, entry: _Stored) -> bool:
        """Make room in PC by SUB."""
        if entry.size > self._push_capacity:
            return False
        missing = entry.size - (self._push_capacity - self._push_used)
        victims = self._pushed.lowest(missing, self._size, below=sub(self._scored(entry)))
        for victim in victims or ():
            self._pushed.remove(victim)
            self._push_used -= self._size(victim)
            self._drop(victim)
        return victims is not None

    def _borrow(self, size: int) -> bool:
        """Make room in PC out of AC pages not accessed since the last replacement there."""
        missing = size - (self._push_capacity - self._push_used)
        victims = self._accessed.lowest(missing, self._size, among=self._is_stale)
        if victims is None:
            return False
        lent = sum(map(self._size, victims))
        if self.bounded and 4 * (self._push_capacity + lent) > 3 * self.capacity:
            return False
        for victim in victims:
            self._accessed.remove(victim)
            self._drop(victim)
        self._push_capacity += lent
        return True

    def _is_stale(self, page: Page) -> bool:
        return self._entries[page].last_access < self._replaced

    def _enter(self, page: Page, entry: _Stored) -> None:
        """GD* entry into AC."""
        if entry.size > self._access_capacity:
            return
        missing = entry.size - (self._access_capacity - (self.used - self._push_used))
        for victim in self._accessed.lowest(missing, self._size) or ():
            self._replaced = self._event
            self._inflation = self._accessed.value(victim)
            self._accessed.remove(victim)
            self._drop(victim)
        self.used += entry.size
        self._entries[page] = entry
        self._access(page, entry)

    def _access(self, page: Page, entry: _Stored) -> None:
        entry.accesses += 1
        entry.last_access = self._event
        self._accessed.set(page, gdstar(self._scored(entry)))


@machine("dc-fp", uses_beta=True, uses_push=True)
class DualCachesFixed(DualCaches):
    """DC-FP: a push cache and an access cache, half the room each."""


@machine("dc-ap", uses_beta=True, uses_push=True)
class DualCachesAdaptive(DualCaches):
    """DC-AP: push and access cache lend each other room."""

    relabels = True


@machine("dc-lap", uses_beta=True, uses_push=True)
class DualCachesLimited(DualCaches):
    """DC-LAP: as DC-AP, but the push cache keeps between a quarter and three quarters."""

    relabels = True
    bounded = True
