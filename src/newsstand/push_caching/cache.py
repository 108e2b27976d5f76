"""A push-cache server: it keeps pages that origins push, popular ones longest (Gwertzman and Seltzer 1995).

>>> cache: PushCache[str] = PushCache(Capacity(slots=8))
>>> cache.push(1, [Offer("a"), Offer("b"), Offer("c")], now=0.0)
CacheChanges(cached=('a', 'b'), evicted=())
>>> cache.request(1, "b", now=5.0), cache.request(1, "c", now=5.0)
(<Verdict.CHECK: 'check'>, <Verdict.INVALID: 'invalid'>)

The popularity of a page is its number of requests here, each of which decays with a half-life. The expected
requests of a new page are a claim of its origin. A claim is believed up to the median popularity, above which
pages use at most half of the capacity, and in proportion to the truth of the origin's earlier claims. So a new
page never displaces a page of another origin above the median, and new pages never raise the median, whatever an
origin claims, how much it pushes, and under how many names. No origin uses more than its share of the capacity.
Against pages of its own origin a claim counts up to the median of that share.
"""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from collections.abc import Container, Iterable
from copy import copy as shallow
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from typing import Generic, TypeVar

from newsstand.errors import BadOption
from newsstand.push_caching.copies import (
    CHECK_SHARE,
    CacheChanges,
    Capacity,
    Copy,
    Offer,
    Usage,
    freed,
    median,
    must_check,
)

MOST_ORIGINS = 10_000
"""The number of origins with a record; the least recent one is forgotten."""


class TrackRecords:
    """The requests granted in advance to the pages of each origin, and those that were made.

    >>> records = TrackRecords()
    >>> records.trust(7, unit=1.0)
    1.0
    >>> records.grant(7, 9.0)
    >>> records.earn(7, 4.0)
    >>> records.trust(7, unit=1.0)
    0.5
    """

    def __init__(self, most: int = MOST_ORIGINS) -> None:
        self._most = most
        self._records: OrderedDict[int, tuple[float, float]] = OrderedDict()

    def trust(self, origin: int, unit: float) -> float:
        """Return the ratio of requests made to those granted, at most 1. Both start at one: so does the ratio."""
        granted, earned = self._records.get(origin, (0.0, 0.0))
        return min(1.0, (earned + unit) / (granted + unit))

    def grant(self, origin: int, requests: float) -> None:
        self._add(origin, requests, 0.0)

    def earn(self, origin: int, requests: float) -> None:
        self._add(origin, 0.0, requests)

    def scale(self, factor: float) -> None:
        """Scale all records to another unit of requests."""
        for origin, (granted, earned) in self._records.items():
            self._records[origin] = (granted * factor, earned * factor)

    def copy(self) -> TrackRecords:
        """Return an independent copy."""
        other = TrackRecords(self._most)
        other._records = OrderedDict(self._records)
        return other

    def _add(self, origin: int, granted: float, earned: float) -> None:
        before = self._records.pop(origin, (0.0, 0.0))
        self._records[origin] = (before[0] + granted, before[1] + earned)
        if len(self._records) > self._most:
            self._records.popitem(last=False)


Page = TypeVar("Page", int, str)

ORIGIN_SHARE = 0.25
HALF_LIFE_S = 86_400.0
MOST_DOUBLINGS = 500
"""The doublings of the unit of popularity after which it is reset to 1; a float overflows after 1023."""


class Verdict(Enum):
    """The answer of a push-cache to a request."""

    HIT = "hit"
    CHECK = "check"
    """The copy may be stale: ask the origin, then call `confirm` or `renew`."""
    INVALID = "invalid"
    """The page is not cached: the client goes to the origin."""


@dataclass(slots=True)
class CacheCounts:
    """The counters of a push-cache."""

    hits: int = 0
    """Requests answered from a copy without asking the origin."""
    stale_hits: int = 0
    """Hits with a copy that was older than the page, if that is known."""
    checks: int = 0
    invalid: int = 0
    rejected: int = 0
    """Rejected offers."""
    evicted: int = 0
    """Pages that made room for others or had become too large."""


class PushCache(Generic[Page]):
    """Copies of pages of many origins, within a number of slots, bytes or both.

    A page is cached if the pages that would have to leave for it, least popular first, are not more popular;
    otherwise nothing changes. An origin that uses its whole share makes room among its own pages. With an infinite
    half-life, popularity is a plain count.
    """

    def __init__(
        self,
        room: Capacity,
        origin_share: float = ORIGIN_SHARE,
        half_life_s: float = HALF_LIFE_S,
        check_share: float = CHECK_SHARE,
    ) -> None:
        if room.slots is None and room.size is None:
            raise BadOption("give slots, size or both: a push-cache needs a limit", room=None)
        if not 0 < origin_share <= 1:
            raise BadOption("must be above 0 and at most 1", origin_share=origin_share)
        if not half_life_s > 0:
            raise BadOption("must be above 0", half_life_s=half_life_s)
        if not check_share >= 0:
            raise BadOption("must not be negative", check_share=check_share)
        self.room = room
        self.origin_room = room.part(origin_share)
        self.counts = CacheCounts()
        self.used = Usage()
        self._half_life_s = half_life_s
        self._check_share = check_share
        self._copies: dict[tuple[int, Page], Copy[Page]] = {}
        self._used_by: dict[int, Usage] = {}
        self._records = TrackRecords()
        self._arrivals = 0
        self._unit_since: float | None = None

    def __len__(self) -> int:
        return len(self._copies)

    def __contains__(self, key: tuple[int, Page]) -> bool:
        return key in self._copies

    def pages(self) -> tuple[tuple[int, Page], ...]:
        """Return all pages with their origins."""
        return tuple(self._copies)

    def used_by(self, origin: int) -> Usage:
        """Return what an origin uses of the capacity."""
        return self._used_by.get(origin, Usage())

    def popularity(self, origin: int, page: Page, now: float) -> float:
        """Return the popularity of a cached page: the sum of its requests, halved in each half-life."""
        unit = self._unit(now)
        return self._copies[origin, page].popularity / unit

    def request(self, origin: int, page: Page, now: float, modified: float | None = None) -> Verdict:
        """Answer a client's request; count stale hits if `modified`, the page's last change, is given."""
        unit = self._unit(now)
        copy = self._copies.get((origin, page))
        if copy is None:
            self.counts.invalid += 1
            return Verdict.INVALID
        copy.popularity += unit
        self._records.earn(origin, unit)
        if must_check(now, copy.checked, copy.modified, self._check_share):
            self.counts.checks += 1
            return Verdict.CHECK
        self.counts.hits += 1
        self.counts.stale_hits += modified is not None and copy.modified < modified
        return Verdict.HIT

    def confirm(self, origin: int, page: Page, now: float) -> None:
        """Note that a copy is up to date."""
        copy = self._copies.get((origin, page))
        if copy is not None:
            copy.checked = now

    def renew(self, origin: int, offer: Offer[Page], now: float) -> CacheChanges[Page]:
        """Replace a copy by a newer version with the same popularity; drop it if that is too large."""
        if (origin, offer.page) not in self._copies:
            return CacheChanges()
        return self._placed(origin, [offer], now, believed=False)

    def push(self, origin: int, offers: Iterable[Offer[Page]], now: float) -> CacheChanges[Page]:
        """Accept or reject pages that an origin offers, the most important first; renew cached ones.

        Median and trust are those before the push.
        """
        return self._placed(origin, offers, now, believed=True)

    def would_keep(self, origin: int, offers: Iterable[Offer[Page]], now: float) -> tuple[Page, ...]:
        """Return the pages that would be cached after a push, without a change."""
        self._unit(now)
        trial = shallow(self)
        trial.counts = CacheCounts()
        trial._copies, trial._used_by = dict(self._copies), dict(self._used_by)
        trial._records = self._records.copy()
        return trial.push(origin, offers, now).cached

    def drop(self, origin: int, page: Page) -> None:
        """Drop a page."""
        if (origin, page) in self._copies:
            self._remove(self._copies[origin, page])

    def _placed(
        self, origin: int, offers: Iterable[Offer[Page]], now: float, believed: bool
    ) -> CacheChanges[Page]:
        unit = self._unit(now)
        ranked = sorted(self._copies.values(), key=attrgetter("rank"))
        trust = self._records.trust(origin, unit) if believed else 0.0
        most = median(ranked, self.room)  # the largest claim that is believed of a page
        most_own = median([copy for copy in ranked if copy.origin == origin], self.origin_room)
        before = tuple(self._copies)
        # A dictionary as a set that keeps an order.
        offered: dict[Page, None] = {}
        for offer in offers:
            old: Copy[Page] | None = self._copies.get((origin, offer.page))
            claim = max(0.0, offer.requests * unit)
            credit = trust * min(claim, most)
            new = Copy(origin, offer.page, offer.size, offer.modified, now, credit, self._arrivals)
            if old is not None:
                new.popularity, new.arrival = max(credit, old.popularity), old.arrival
            offered[offer.page] = None
            leaving: list[Copy[Page]] | None = self._leaving(
                new, old, ranked, offered, trust * min(claim, most_own)
            )
            for copy in (old, *(leaving or ())):
                if copy is not None:
                    ranked.remove(copy)
                    self._remove(copy)
            if leaving is None:
                self.counts.rejected += 1
                continue
            insort(ranked, new, key=attrgetter("rank"))
            self._add(new)
            self._records.grant(origin, new.popularity - (old.popularity if old else 0.0))
        left = [key for key in before if key not in self._copies]
        self.counts.evicted += len(left)
        return CacheChanges(tuple(page for page in offered if (origin, page) in self._copies), tuple(left))

    def _leaving(
        self,
        new: Copy[Page],
        old: Copy[Page] | None,
        ranked: list[Copy[Page]],
        offered: Container[Page],
        own_worth: float,
    ) -> list[Copy[Page]] | None:
        """Return the copies that leave for a new one; None if the new one is rejected.

        Against pages of its own origin, except those of the same push, it may have a higher worth.
        """
        replaced = old.used if old else Usage()
        own: list[Copy[Page]] | None = freed(
            new,
            max(new.popularity, own_worth),
            (copy for copy in ranked if copy.origin == new.origin and copy.page not in offered),
            self.origin_room,
            self.used_by(new.origin) - replaced,
            offered,
        )
        if own is None:
            return None
        gone = {id(old)} | {id(copy) for copy in own}
        used = self.used - replaced - sum((copy.used for copy in own), Usage())
        others = freed(
            new, new.popularity, (copy for copy in ranked if id(copy) not in gone), self.room, used, offered
        )
        return None if others is None else own + others

    def _add(self, copy: Copy[Page]) -> None:
        self._copies[copy.origin, copy.page] = copy
        self._arrivals += 1
        self.used += copy.used
        self._used_by[copy.origin] = self.used_by(copy.origin) + copy.used

    def _remove(self, copy: Copy[Page]) -> None:
        del self._copies[copy.origin, copy.page]
        self.used -= copy.used
        remaining = self.used_by(copy.origin) - copy.used
        if remaining.slots:
            self._used_by[copy.origin] = remaining
        else:
            del self._used_by[copy.origin]

    def _unit(self, now: float) -> float:
        """Return the popularity of one request now. Instead of a decay of all popularities, the unit grows.

        Call it before any popularity is read, because a reset of the unit scales all of them.
        """
        if self._unit_since is None:
            self._unit_since = now
        doublings = max(0.0, (now - self._unit_since) / self._half_life_s)
        if doublings > MOST_DOUBLINGS:
            for copy in self._copies.values():
                copy.popularity *= 2.0**-doublings
            self._records.scale(2.0**-doublings)
            self._unit_since, doublings = now, 0.0
        return float(2.0**doublings)
