"""The policies of Chen, LaPaugh & Singh, "Content Distribution for Publish/Subscribe Services" (2003).

The fetching cost c is 1 everywhere: with one publisher it scales every score of a proxy alike. The dual strategies
(section 3.3) combine GD* at access time with SUB at push time.
"""

from __future__ import annotations

from collections.abc import Callable

from newsstand.caching.pages.cache import EntryCache, Page, PageEntry, PageRanking
from newsstand.caching.pages.policy import Entry, balance, policy, policy_class


@policy("gdstar", inflates=True)
def gdstar(e: Entry) -> float:
    """GD*: access-time caching by frequency, size and recency (section 3.1, equation 1)."""
    return e.inflation + balance(e.accesses / e.size, e.beta)


@policy("sub", push="by-value", miss="ignore", rescores=False)
def sub(e: Entry) -> float:
    """SUB: push-time placement by matching subscriptions per byte (section 3.2, equation 2)."""
    return e.subscriptions / e.size


@policy("sg1", push="by-value", miss="by-value", inflates=True)
def sg1(e: Entry) -> float:
    """SG1: GD* over subscriptions plus requests (section 3.3, equation 3)."""
    return e.inflation + balance((e.subscriptions + e.requests) / e.size, e.beta)


@policy("sg2", push="by-value", miss="by-value", inflates=True)
def sg2(e: Entry) -> float:
    """SG2: GD* over the requests still to come, subscriptions less requests (section 3.3, equation 4)."""
    return e.inflation + balance(max(0, e.subscriptions - e.requests) / e.size, e.beta)


@policy("sr", push="by-value", miss="by-value")
def sr(e: Entry) -> float:
    """SR: the requests still to come per byte, without recency (section 3.3, equation 5)."""
    return max(0, e.subscriptions - e.requests) / e.size


@policy_class("dm", uses_beta=True, uses_push=True)
class DualMethods(EntryCache):
    """DM: one cache, two values an entry, SUB's at push time and GD*'s at access time."""

    def __init__(self, capacity: int, beta: float = 2.0, on_evict: Callable[[Page], None] | None = None) -> None:
        super().__init__(capacity, beta, on_evict)
        self._by_subscription = PageRanking()
        self._by_access = PageRanking()

    def push(self, page: Page, size: int, subscriptions: int) -> bool:
        if page in self._entries or size > self.capacity:
            return False
        entry = PageEntry(size, subscriptions)
        missing = size - (self.capacity - self.used)
        victims = self._by_subscription.lowest(missing, self._size, below=sub(self._score_input(entry)))
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
            self._by_access.set(page, gdstar(self._score_input(entry)))
            return True
        if size <= self.capacity:
            missing = size - (self.capacity - self.used)
            for victim in self._by_access.lowest(missing, self._size) or ():
                self._inflation = self._by_access.value(victim)
                self._evict(victim)
            entry = PageEntry(size, subscriptions, accesses=1)
            self._store(page, entry, gdstar(self._score_input(entry)))
        return False

    def _store(self, page: Page, entry: PageEntry, access_value: float) -> None:
        self.used += entry.size
        self._entries[page] = entry
        self._by_subscription.set(page, sub(self._score_input(entry)))
        self._by_access.set(page, access_value)

    def _evict(self, page: Page) -> None:
        self._by_subscription.remove(page)
        self._by_access.remove(page)
        self._drop(page)


class DualCaches(EntryCache):
    """DC: a push cache (PC) under SUB and an access cache (AC) under GD*.

    `relabels`: a page requested in PC moves to AC with its bytes of capacity, and stale AC pages lend theirs to a
    push. `bounded`: the push cache stays between a quarter and three quarters of the whole.
    """

    relabels = False
    bounded = False

    def __init__(self, capacity: int, beta: float = 2.0, on_evict: Callable[[Page], None] | None = None) -> None:
        super().__init__(capacity, beta, on_evict)
        self._pushed = PageRanking()
        self._accessed = PageRanking()
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
            self._enter(page, PageEntry(size, subscriptions))
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
        entry = PageEntry(size, subscriptions)
        if not self._place(entry) and not (self.relabels and self._borrow(size)):
            return False
        self.used += size
        self._push_used += size
        self._entries[page] = entry
        self._pushed.set(page, sub(self._score_input(entry)))
        return True

    def _place(self, entry: PageEntry) -> bool:
        """Make room in PC by SUB."""
        if entry.size > self._push_capacity:
            return False
        missing = entry.size - (self._push_capacity - self._push_used)
        victims = self._pushed.lowest(missing, self._size, below=sub(self._score_input(entry)))
        for victim in victims or ():
            self._pushed.remove(victim)
            self._push_used -= self._size(victim)
            self._drop(victim)
        return victims is not None

    def _borrow(self, size: int) -> bool:
        """Make room in PC by AC pages without an access since the last replacement there."""
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

    def _enter(self, page: Page, entry: PageEntry) -> None:
        """Admit a page to AC by GD*."""
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

    def _access(self, page: Page, entry: PageEntry) -> None:
        entry.accesses += 1
        entry.last_access = self._event
        self._accessed.set(page, gdstar(self._score_input(entry)))


@policy_class("dc-fp", uses_beta=True, uses_push=True)
class DualCachesFixed(DualCaches):
    """DC-FP: a push cache and an access cache of half the capacity each."""


@policy_class("dc-ap", uses_beta=True, uses_push=True)
class DualCachesAdaptive(DualCaches):
    """DC-AP: push and access cache lend each other capacity."""

    relabels = True


@policy_class("dc-lap", uses_beta=True, uses_push=True)
class DualCachesLimited(DualCaches):
    """DC-LAP: as DC-AP, but the push cache keeps between a quarter and three quarters."""

    relabels = True
    bounded = True
