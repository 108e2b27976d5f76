"""Redirects of page requests to push-caches, the decisions about pushes, and the leases of push-caches.

The redirector drives `newsstand.push_caching.origin` from several threads. It moves no pages and has no clock.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from random import Random

from newsstand.cluster.app_folder import PushCachingSettings
from newsstand.geo.location import LinkGraph, Location
from newsstand.push_caching.clusters import available_servers
from newsstand.push_caching.origin import PushCandidate, PushOrigin, PushOriginSettings
from newsstand.push_caching.sites import ORIGIN, SiteDirectory

UNKNOWN_CACHE = -1
"""The number of a push-cache that has never announced itself."""


@dataclass(frozen=True)
class RedirectorLimits:
    """Limits of a redirector."""

    lease_s: float = 30.0
    """How long the announcement of a push-cache is valid; push-caches repeat it three times in this time."""
    redirect_pages: int = 100
    """Pages that one redirect lists."""
    reports: int = 10_000
    """Failed redirects that are remembered."""


@dataclass(frozen=True)
class KnownCache:
    """A broker that keeps copies of pages that are pushed to it."""

    name: str
    url: str
    """Its base URL; its copies are under `/copies`."""
    push: str
    """The URL of pushes."""
    location: Location


@dataclass(frozen=True)
class CacheRedirect:
    """A redirect to a push-cache, and the pages that it has."""

    cache: KnownCache
    pages: tuple[str, ...]


@dataclass(frozen=True)
class PagePush:
    """Pages to push to a push-cache, the most popular first."""

    cache: KnownCache
    pages: tuple[PushCandidate[str], ...]


class PageRedirector:
    """The redirector of one cluster. Methods may be called from several threads; `now` is in monotonic seconds."""

    def __init__(
        self,
        options: PushCachingSettings,
        started: float,
        limits: RedirectorLimits = RedirectorLimits(),  # noqa: B008  it is frozen
    ) -> None:
        self._sites = SiteDirectory(options.location, LinkGraph(options.links))
        self._servers = options.servers
        rng = Random(options.seed)
        self._origin: PushOrigin[str] = PushOrigin(
            ORIGIN,
            PushOriginSettings(options.threshold, options.pages, options.decay, options.period_s),
            self._sites.nearness(options.caching, rng),
            self._sites.nearness(options.lookup, rng),
            started,
        )
        self._limits = limits
        self._caches: OrderedDict[str, tuple[KnownCache, float]] = OrderedDict()
        """Push-caches, and when their leases end; the next to end first."""
        self._missing: OrderedDict[tuple[str, str], float] = OrderedDict()
        """(push-cache, page) pairs of failed redirects, and until when they overrule announcements."""
        self._lock = threading.Lock()

    @property
    def decides_at(self) -> float:
        """The end of the present period, when `decide` is due."""
        with self._lock:
            return self._origin.decides_at

    def request(
        self, path: str, location: Location, now: float, invalid_at: str | None = None
    ) -> CacheRedirect | None:
        """Count a request for a page from a location; return its redirect, None if the origin answers it.

        `invalid_at` names the push-cache that did not have the page; such a request is not redirected again.
        """
        with self._lock:
            self._expire(now)
            invalid = None if invalid_at is None else self._number(invalid_at)
            if invalid_at is not None:
                self._report_missing(invalid_at, path, now)
            redirect = self._origin.request(path, self._sites.subnet(location), now, invalid)
            if redirect is None:
                return None
            cache, _ = self._caches[self._sites.name(redirect.server)]  # removed push-caches have no redirects
        pages = redirect.pages
        most = self._limits.redirect_pages
        if len(pages) > most:
            pages = (path, *islice((page for page in pages if page != path), most - 1))
        return CacheRedirect(cache, pages)

    def announce(self, cache: KnownCache, pages: Iterable[str], now: float) -> None:
        """Add a push-cache or renew its lease; replace the list of its pages."""
        with self._lock:
            self._expire(now)
            self._caches[cache.name] = cache, now + self._limits.lease_s
            self._caches.move_to_end(cache.name)
            number = self._sites.server(cache.name, cache.location)
            self._origin.redirects.remove_server(number)
            self._origin.add_copies(number, (page for page in pages if (cache.name, page) not in self._missing))

    def remove_cache(self, name: str) -> None:
        """Remove a push-cache until it announces itself again."""
        with self._lock:
            self._caches.pop(name, None)
            self._remove_redirects(name)

    def decide(self, now: float) -> PagePush | None:
        """Return the next push, if the load was above the threshold when a period ended."""
        with self._lock:
            self._expire(now)
            numbers = (self._number(name) for name in self._caches)
            push = self._origin.decide(now, available_servers(numbers, self._servers))
            found = None if push is None else self._caches.get(self._sites.name(push.server))
        return None if push is None or found is None else PagePush(found[0], push.pages)

    def record_push(self, name: str, stored: Iterable[str], dropped: Iterable[str]) -> None:
        """Record the pages that a push-cache has stored and dropped after a push."""
        with self._lock:
            if name in self._caches:
                self._origin.remove_copies(self._number(name), dropped)
                self._origin.add_copies(self._number(name), stored)

    def status(self, now: float) -> tuple[float, int]:
        """Return the load of the last period and the number of push-caches."""
        with self._lock:
            self._expire(now)
            return self._origin.load, len(self._caches)

    def _expire(self, now: float) -> None:
        while self._caches:
            name, (_, ends) = next(iter(self._caches.items()))
            if now < ends:
                break
            del self._caches[name]
            self._remove_redirects(name)
        while self._missing and next(iter(self._missing.values())) <= now:
            self._missing.popitem(last=False)

    def _report_missing(self, name: str, path: str, now: float) -> None:
        """Overrule the announcements of a page by a push-cache for the time of a lease."""
        self._missing[name, path] = now + self._limits.lease_s
        self._missing.move_to_end((name, path))
        if len(self._missing) > self._limits.reports:
            self._missing.popitem(last=False)

    def _remove_redirects(self, name: str) -> None:
        self._origin.redirects.remove_server(self._number(name))

    def _number(self, name: str) -> int:
        number = self._sites.number(name)
        return UNKNOWN_CACHE if number is None else number
