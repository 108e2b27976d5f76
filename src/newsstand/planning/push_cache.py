"""A push-cache server: keeps what origins have pushed, popular pages longest (Gwertzman and Seltzer 1995).

>>> cache: PushCache[str] = PushCache(Room(slots=8))
>>> cache.push(1, [Offer("a"), Offer("b"), Offer("c")], now=0.0)
Taken(kept=('a', 'b'), left=())
>>> cache.request(1, "b", now=5.0), cache.request(1, "c", now=5.0)
(<Verdict.CHECK: 'check'>, <Verdict.INVALID: 'invalid'>)

Popularity is counted here: requests, of which each fades with a half-life. What an origin says of a page is a
claim, believed up to the median, above which pages have at most half of the room, and only as far as its earlier
claims came true. So a page that is new here never displaces one of another origin above the median, and new pages
never raise the median, whatever an origin claims, how much it pushes and under how many names; and no origin has
more than its share of the room. Against its own pages a claim counts up to the median of that share.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Container, Iterable, Sequence
from copy import copy as shallow
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from typing import Generic, TypeVar

from newsstand.errors import BadOption
from newsstand.planning.push_consistency import CHECK_SHARE, must_check
from newsstand.planning.push_copies import Copy, freed, median
from newsstand.planning.push_offers import Offer, Taken
from newsstand.planning.push_room import Room, Used
from newsstand.planning.push_trust import TrackRecords

Page = TypeVar("Page", int, str)

ORIGIN_SHARE = 0.25
HALF_LIFE_S = 86_400.0
MOST_DOUBLINGS = 500
"""Of the unit of popularity, before it is taken back to 1: a float has room for 1023."""


class Verdict(Enum):
    """What a push-cache does with a request."""

    HIT = "hit"
    CHECK = "check"
    """It has a copy that may be stale: ask the origin, then tell the cache by `confirm` or `renew`."""
    INVALID = "invalid"
    """It does not have the page: the client goes to the origin."""


@dataclass(slots=True)
class CacheCounts:
    """What a push-cache has done."""

    hits: int = 0
    """Requests answered from a copy without asking the origin."""
    stale_hits: int = 0
    """Those for which the copy was older than the page, as far as somebody knew."""
    checks: int = 0
    invalid: int = 0
    refused: int = 0
    """Offers that were not taken."""
    left: int = 0
    """Pages that made room for others or fitted no more."""


class PushCache(Generic[Page]):
    """Copies of pages of many origins, in so many slots, bytes or both.

    A page comes in if those that would have to leave for it, least popular first, are not more popular than it;
    otherwise nothing changes. An origin that has its share already makes room among its own pages. With an
    infinite half-life popularity is a plain count.
    """

    def __init__(
        self,
        room: Room,
        origin_share: float = ORIGIN_SHARE,
        half_life_s: float = HALF_LIFE_S,
        check_share: float = CHECK_SHARE,
    ) -> None:
        if room.slots is None and room.size is None:
            raise BadOption("the room of a push-cache needs a limit: slots, size or both")
        if not 0 < origin_share <= 1:
            raise BadOption(f"origin_share is {origin_share}: it must be above 0 and at most 1")
        if not half_life_s > 0:
            raise BadOption(f"half_life_s is {half_life_s}: it must be positive")
        if not check_share >= 0:
            raise BadOption(f"check_share is {check_share}: it cannot be negative")
        self.room = room
        self.origin_room = room.part(origin_share)
        self.counts = CacheCounts()
        self.used = Used()
        self._half_life_s = half_life_s
        self._check_share = check_share
        self._copies: dict[tuple[int, Page], Copy[Page]] = {}
        self._used_by: dict[int, Used] = {}
        self._records = TrackRecords()
        self._arrivals = 0
        self._unit_since: float | None = None

    def __len__(self) -> int:
        return len(self._copies)

    def __contains__(self, key: tuple[int, Page]) -> bool:
        return key in self._copies

    def pages(self) -> tuple[tuple[int, Page], ...]:
        """All that is here, with its origin."""
        return tuple(self._copies)

    def used_by(self, origin: int) -> Used:
        """What an origin has of the room."""
        return self._used_by.get(origin, Used())

    def popularity(self, origin: int, page: Page, now: float) -> float:
        """Of a page that is here: its requests, each halved for every half-life since."""
        unit = self._unit(now)
        return self._copies[origin, page].popularity / unit

    def request(self, origin: int, page: Page, now: float, modified: float | None = None) -> Verdict:
        """A client wants a page. Stale hits are counted if it is told when the page really was modified last."""
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
        """The origin says that the copy is as new as the page."""
        copy = self._copies.get((origin, page))
        if copy is not None:
            copy.checked = now

    def renew(self, origin: int, offer: Offer[Page], now: float) -> Taken[Page]:
        """The origin gives a newer page for a copy, whose popularity it inherits; one too large is not kept."""
        if (origin, offer.page) not in self._copies:
            return Taken()
        return self._placed(origin, [offer], now, believed=False)

    def push(self, origin: int, offers: Iterable[Offer[Page]], now: float) -> Taken[Page]:
        """An origin offers pages, those that matter most first. One that is here already is renewed.

        Median and trust are those of before the first of the pages.
        """
        return self._placed(origin, offers, now, believed=True)

    def would_keep(self, origin: int, offers: Iterable[Offer[Page]], now: float) -> tuple[Page, ...]:
        """Which of the pages would be here after a push, for those who fetch before they push. Nothing changes."""
        self._unit(now)
        trial = shallow(self)
        trial.counts = CacheCounts()
        trial._copies, trial._used_by = dict(self._copies), dict(self._used_by)
        trial._records = self._records.copy()
        return trial.push(origin, offers, now).kept

    def drop(self, origin: int, page: Page) -> None:
        """The page shall not be here any more."""
        if (origin, page) in self._copies:
            self._remove(self._copies[origin, page])

    def _placed(self, origin: int, offers: Iterable[Offer[Page]], now: float, believed: bool) -> Taken[Page]:
        unit = self._unit(now)
        ranked = sorted(self._copies.values(), key=attrgetter("rank"))
        trust = self._records.trust(origin, unit) if believed else 0.0
        most = self._believable(ranked, self.room)
        most_own = self._believable([copy for copy in ranked if copy.origin == origin], self.origin_room)
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
                self.counts.refused += 1
                continue
            insort(ranked, new, key=attrgetter("rank"))
            self._add(new)
            self._records.grant(origin, new.popularity - (old.popularity if old else 0.0))
        left = [key for key in before if key not in self._copies]
        self.counts.left += len(left)
        return Taken(tuple(page for page in offered if (origin, page) in self._copies), tuple(left))

    def _believable(self, ranked: Sequence[Copy[Page]], room: Room) -> float:
        """The largest claim that is believed of a page that is to have a part of this room."""
        return median(ranked, room)

    def _leaving(
        self,
        new: Copy[Page],
        old: Copy[Page] | None,
        ranked: list[Copy[Page]],
        offered: Container[Page],
        own_worth: float,
    ) -> list[Copy[Page]] | None:
        """The copies that leave for a new one; None if it does not come in.

        Among pages of its own origin, but for those of the same push, it may be worth more than to all.
        """
        replaced = old.used if old else Used()
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
        used = self.used - replaced - sum((copy.used for copy in own), Used())
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
        """What one request now adds. All popularities fade alike: instead it is the unit that grows.

        To be asked before any popularity is looked at, as a unit that is taken back to 1 takes them with it.
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
