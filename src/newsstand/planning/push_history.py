"""What an origin remembers of its requests since it last pushed (Gwertzman and Seltzer 1995).

How many came from each subnet, and how many were for each page, but not which subnet wanted which page: the paper
finds that the pattern of all requests is that of the popular pages, too (correlation 0.98).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Generic, TypeVar

from newsstand.errors import BadOption

Page = TypeVar("Page", int, str)

REMEMBER_S = 86_400.0
MOST_ENTRIES = 10_000


class RecentCounts(Generic[Page]):
    """How often each name occurred; one that has not for long is forgotten, and so is the oldest of too many."""

    def __init__(self, remember_s: float, most: int) -> None:
        if not remember_s > 0:
            raise BadOption(f"remember_s is {remember_s}: it must be positive")
        if most < 1:
            raise BadOption(f"most_entries is {most}: there must be at least one")
        self._remember_s = remember_s
        self._most = most
        # In the order of their last occurrence, so that the oldest are found without a search.
        self._seen: OrderedDict[Page, tuple[int, float]] = OrderedDict()

    def record(self, name: Page, now: float) -> None:
        count, _ = self._seen.pop(name, (0, now))
        self._seen[name] = (count + 1, now)
        if len(self._seen) > self._most:
            self._seen.popitem(last=False)

    def expire(self, now: float) -> None:
        """Forget names that have not occurred for `remember_s`."""
        while self._seen and next(iter(self._seen.values()))[1] < now - self._remember_s:
            self._seen.popitem(last=False)

    def clear(self) -> None:
        self._seen.clear()

    def __len__(self) -> int:
        return len(self._seen)

    def counts(self) -> dict[Page, int]:
        """In the order of names."""
        return {name: self._seen[name][0] for name in sorted(self._seen)}

    def most_frequent(self, names: int) -> list[tuple[Page, int]]:
        """So many of the names with their counts, the most frequent first, equals in their order."""
        ranked = sorted((-count, name) for name, (count, _) in self._seen.items())
        return [(name, -count) for count, name in ranked[:names]]


class AccessHistory(Generic[Page]):
    """The list of subnets, and the counts of pages."""

    def __init__(self, remember_s: float = REMEMBER_S, most_entries: int = MOST_ENTRIES) -> None:
        self._subnets: RecentCounts[int] = RecentCounts(remember_s, most_entries)
        self._pages: RecentCounts[Page] = RecentCounts(remember_s, most_entries)

    def record(self, subnet: int, page: Page, now: float) -> None:
        """One request."""
        self._subnets.record(subnet, now)
        self._pages.record(page, now)

    def expire(self, now: float) -> None:
        """Forget what is stale: subnets and pages that have not occurred for long."""
        self._subnets.expire(now)
        self._pages.expire(now)

    def clear(self) -> None:
        """Begin anew, after a push."""
        self._subnets.clear()
        self._pages.clear()

    def subnets(self) -> Mapping[int, int]:
        """How many requests came from each subnet, in the order of their numbers."""
        return self._subnets.counts()

    def most_popular(self, pages: int) -> list[tuple[Page, int]]:
        """So many pages with their requests, the most popular first, of equals the lowest one."""
        return self._pages.most_frequent(pages)
