"""The cluster as an origin that pushes: which requests for pages it redirects, and what it pushes where.

It drives `newsstand.planning.push_origin` with what comes in from several threads: paths of pages, places of those
who want them, and push-caches by name. It moves no pages and has no clock.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from random import Random

from newsstand.cluster.push_caches import LEASE_S, KnownCache, PushCaches
from newsstand.cluster.push_settings import PushOptions
from newsstand.planning.places import Network, Place
from newsstand.planning.push_clusters import available_servers
from newsstand.planning.push_origin import PopularPage, PushOrigin, PushSettings
from newsstand.planning.push_places import ORIGIN, Whereabouts

MOST_REDIRECTED = 100
"""How many pages a redirect tells of."""
MOST_REPORTS = 10_000
NOBODY = -1
"""The number of a push-cache that was never heard of."""


@dataclass(frozen=True)
class SentTo:
    """A request is sent to a push-cache, which has these pages, too."""

    cache: KnownCache
    pages: tuple[str, ...]


@dataclass(frozen=True)
class PagePush:
    """These pages, the most popular first, go to that push-cache."""

    cache: KnownCache
    pages: tuple[PopularPage[str], ...]


class PageOrigin:
    """The origin of one cluster. Methods may be called from several threads; `now`, in seconds, only rises."""

    def __init__(self, options: PushOptions, started: float, lease_s: float = LEASE_S) -> None:
        self._where = Whereabouts(options.place, Network(options.links))
        self._servers = options.servers
        rng = Random(options.seed)
        self._origin: PushOrigin[str] = PushOrigin(
            ORIGIN,
            PushSettings(options.threshold, options.pages, options.decay, options.period_s),
            self._where.nearness(options.caching, rng),
            self._where.nearness(options.lookup, rng),
            started,
        )
        self._caches = PushCaches(lease_s)
        self._reports: OrderedDict[tuple[str, str], float] = OrderedDict()
        """Pages that were not where they should have been, and until when that is believed."""
        self._lock = threading.Lock()

    @property
    def decides_at(self) -> float:
        """When the present period ends, and `decide` should be called."""
        with self._lock:
            return self._origin.decides_at

    def request(self, path: str, place: Place, now: float, invalid_at: str | None = None) -> SentTo | None:
        """Where to send a request for a page that comes from a place; None if it is to be answered here.

        Who was sent to a push-cache in vain says to which, and is not sent anywhere again.
        """
        with self._lock:
            self._expire(now)
            invalid = None if invalid_at is None else self._number(invalid_at)
            if invalid_at is not None:
                self._reported(invalid_at, path, now)
            redirect = self._origin.request(path, self._where.subnet(place), now, invalid)
            if redirect is None:
                return None
            cache = self._caches.find(self._where.name(redirect.server))
        assert cache is not None, "what is gone has no redirects"
        pages = redirect.pages
        if len(pages) > MOST_REDIRECTED:
            pages = (path, *islice((page for page in pages if page != path), MOST_REDIRECTED - 1))
        return SentTo(cache, pages)

    def announce(self, cache: KnownCache, pages: Iterable[str], now: float) -> None:
        """A push-cache is there and has these pages, and no others."""
        with self._lock:
            self._expire(now)
            self._caches.announce(cache, now)
            number = self._where.server(cache.name, cache.place)
            self._origin.redirects.remove_server(number)
            self._origin.taken(number, (page for page in pages if (cache.name, page) not in self._reports))

    def gone(self, name: str) -> None:
        """A push-cache has left or does not answer: nobody is sent there until it announces itself again."""
        with self._lock:
            self._caches.remove(name)
            self._forget(name)

    def decide(self, now: float) -> PagePush | None:
        """What to push and where to, if the load was above the threshold when a period ended."""
        with self._lock:
            self._expire(now)
            numbers = (self._number(name) for name in self._caches.names())
            push = self._origin.decide(now, available_servers(numbers, self._servers))
            cache = None if push is None else self._caches.find(self._where.name(push.server))
        return None if push is None or cache is None else PagePush(cache, push.pages)

    def taken(self, name: str, kept: Iterable[str], left: Iterable[str]) -> None:
        """What a push-cache says of a push: pages that it has now, and pages that it has no more."""
        with self._lock:
            if self._caches.find(name) is not None:
                self._origin.left(self._number(name), left)
                self._origin.taken(self._number(name), kept)

    def stands(self, now: float) -> tuple[float, int]:
        """The load of the last period, and how many push-caches there are."""
        with self._lock:
            self._expire(now)
            return self._origin.load, len(self._caches)

    def _expire(self, now: float) -> None:
        for name in self._caches.expire(now):
            self._forget(name)
        while self._reports and next(iter(self._reports.values())) <= now:
            self._reports.popitem(last=False)

    def _reported(self, name: str, path: str, now: float) -> None:
        """Somebody was at a push-cache in vain: for a lease its own word for the page counts for nothing."""
        self._reports[name, path] = now + self._caches.lease_s
        self._reports.move_to_end((name, path))
        if len(self._reports) > MOST_REPORTS:
            self._reports.popitem(last=False)

    def _forget(self, name: str) -> None:
        self._origin.redirects.remove_server(self._number(name))

    def _number(self, name: str) -> int:
        number = self._where.number(name)
        return NOBODY if number is None else number
