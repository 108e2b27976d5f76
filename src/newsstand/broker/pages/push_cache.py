"""The push-cache: popular pages that the origin pushes to this broker (Gwertzman and Seltzer 1995), live.

`push_caching.cache.PushCache` decides which pages stay and when one must be checked. `PushCacheService` holds
their bytes, fetched from the origin when an offer is accepted, and when a check finds a newer version.
`PushCacheLease` announces the push-cache to the origin.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from newsstand.broker.cluster_client.client import ClusterClient
from newsstand.broker.pages.content import PageContent, PageTooLarge, is_fixed
from newsstand.concurrency.coalescing import SingleFlight
from newsstand.concurrency.pacing import LogOnce
from newsstand.errors import NewsstandError, NotFound
from newsstand.push_caching.cache import CacheCounts, PushCache, Verdict
from newsstand.push_caching.copies import CacheChanges, Capacity, Offer
from newsstand.wire.cluster import MAX_ANNOUNCED_PAGES
from newsstand.wire.notifications import PushedPage, PushResult

logger = logging.getLogger(__name__)
CLUSTER = 1
"""The number of the only origin of a broker: its data cluster, which may use all of the capacity."""
Fetch = Callable[[str, str], Awaitable[PageContent | None]]
"""Fetch the page of a path from the origin; None if it still has this version."""


@dataclass(frozen=True, slots=True)
class PushCacheLimits:
    """Waits of a push-cache, and the size of its announcements."""

    recheck_s: float = 5.0
    """How long a copy is served without a new check, after one that failed."""
    push_s: float = 40.0
    """How long the pages of one push may take: the origin waits for the response no longer than a minute."""
    retry_s: float = 1.0
    """The wait after an announcement that failed."""
    idle_s: float = 30.0
    """The wait between announcements to an origin that does not push."""
    announced: int = MAX_ANNOUNCED_PAGES
    """Pages that an announcement lists, the newest."""


class PushCacheService:
    """The pages that were pushed to this broker; used from the event loop's thread only."""

    def __init__(
        self,
        capacity: int,
        largest: int,
        fetch: Fetch,
        now_s: Callable[[], float],
        limits: PushCacheLimits = PushCacheLimits(),  # noqa: B008  it is frozen
    ) -> None:
        """Create a push-cache for pages of up to `largest` bytes, which `fetch` accepts."""
        self._largest = largest
        self._cache: PushCache[str] = PushCache(Capacity(size=capacity), origin_share=1.0)
        self._fetch = fetch
        self._now_s = now_s
        self._limits = limits
        self._contents: dict[str, PageContent] = {}
        self._checks = SingleFlight[str, PageContent | None]()
        self._failed_checks: dict[str, float] = {}
        """When the check of a copy has failed last."""
        self._pushing = asyncio.Lock()
        self.changed = asyncio.Event()
        """Set when a push has changed the stored pages."""

    @property
    def counts(self) -> CacheCounts:
        return self._cache.counts

    @property
    def bytes(self) -> int:
        """Bytes of the stored pages."""
        return self._cache.used.size

    def __len__(self) -> int:
        return len(self._contents)

    def __contains__(self, path: object) -> bool:
        return path in self._contents

    @property
    def paths(self) -> list[str]:
        """All stored pages."""
        return list(self._contents)

    async def push(self, pages: Sequence[PushedPage]) -> PushResult:
        """Fetch the offered pages that are worth it, then store them.

        No page is evicted for one that has not been fetched yet.
        """
        async with self._pushing:
            offers = [
                Offer(one.path, one.size, one.modified_ms / 1000, one.requests)
                for one in pages
                if one.size <= self._largest
            ]
            before, begun = set(self._contents), self._now_s()
            wanted = set(self._cache.would_keep(CLUSTER, offers, begun))
            self.counts.rejected += len(pages) - len(wanted)
            fetches = await self._fetch_all([one for one in offers if one.page in wanted])
            fetched = {offer.page: (offer, content) for offer, content in fetches}
            changes = self._cache.push(CLUSTER, [offer for offer, _ in fetched.values()], begun)
            self._contents |= {path: fetched[path][1] for path in changes.cached}
            self._evict(changes)
            if before != self._contents.keys():
                self.changed.set()
            return PushResult(list(changes.cached), sorted(before - self._contents.keys()))

    async def get(self, path: str) -> PageContent | None:
        """Return a copy for a reader, checked if it may be stale; None if there is none."""
        if path not in self._contents:
            return None
        verdict = self._cache.request(CLUSTER, path, self._now_s())
        if verdict is Verdict.CHECK:
            if is_fixed(path):
                self._cache.confirm(CLUSTER, path, self._now_s())
            else:
                return await self._checks.run(path, lambda: self._check(path))
        return self._contents.get(path)

    async def _check(self, path: str) -> PageContent | None:
        """Return the current page of the origin, or the copy if that is valid or the origin does not answer."""
        copy = self._contents[path]
        requested = self._now_s()
        if requested < self._failed_checks.get(path, -math.inf) + self._limits.recheck_s:
            return copy
        try:
            newer = await self._fetch(path, copy.version)
        except (NotFound, PageTooLarge):
            self._drop(path)
            return None
        except NewsstandError as error:
            logger.warning("page %s: check failed, serving the copy: %s", path, error)
            self._failed_checks[path] = self._now_s()
            return copy
        self._failed_checks.pop(path, None)
        if newer is None:
            # As of the request: the next check finds what changed meanwhile.
            self._cache.confirm(CLUSTER, path, requested)
            return copy
        current = self._contents.get(path)
        if current is not None and current.modified_ms > newer.modified_ms:  # a push was faster
            return current
        changes = self._cache.renew(CLUSTER, _offer(path, newer, requested), requested)
        if changes.cached:
            self._contents[path] = newer
        else:
            self._contents.pop(path, None)
        self._evict(changes)
        return newer

    async def _fetch_all(self, offers: Sequence[Offer[str]]) -> list[tuple[Offer[str], PageContent]]:
        """Fetch pages; those that take too long are left out, so that a slow server delays no others."""
        tasks = [asyncio.create_task(self._fetch_one(one)) for one in offers]
        if not tasks:
            return []
        try:
            _, late = await asyncio.wait(tasks, timeout=self._limits.push_s)
        finally:
            for task in tasks:
                task.cancel()
        if late:
            logger.warning(
                "%d of %d pages of a push were not fetched within %g s", len(late), len(tasks), self._limits.push_s
            )
        return [done for task in tasks if task not in late and (done := task.result()) is not None]

    async def _fetch_one(self, offer: Offer[str]) -> tuple[Offer[str], PageContent] | None:
        """Fetch a page, or check it if it is stored already; return None on failure."""
        current = self._contents.get(offer.page)
        if current is not None and is_fixed(offer.page):
            return offer, current
        requested = self._now_s()
        try:
            content = await self._fetch(offer.page, "" if current is None else current.version) or current
        except NewsstandError as error:
            logger.warning("page %s: fetch after a push failed: %s", offer.page, error)
            return None
        assert content is not None  # without a version to compare with there is always an answer
        return _offer(offer.page, content, requested, offer.requests), content

    def _drop(self, path: str) -> None:
        self._cache.drop(CLUSTER, path)
        self._contents.pop(path, None)
        self._failed_checks.pop(path, None)

    def _evict(self, changes: CacheChanges[str]) -> None:
        for _, path in changes.evicted:
            if (CLUSTER, path) not in self._cache:
                self._contents.pop(path, None)
                self._failed_checks.pop(path, None)


def _offer(path: str, content: PageContent, requested: float, requests: float = 0.0) -> Offer[str]:
    """Return the offer of a page as it was fetched; a page of unknown age counts as new, to be checked often."""
    return Offer(path, len(content.data), content.modified_ms / 1000 or requested, requests)


@dataclass(eq=False, repr=False)
class PushCacheLease:
    """Announces the push-cache of a broker to its origin, periodically and after each push.

    An announcement lists all pages, so that either side may restart.
    """

    cluster: ClusterClient
    push_cache: PushCacheService
    address: Mapping[str, object]
    """The URLs and the location of the broker."""
    limits: PushCacheLimits = PushCacheLimits()

    def __post_init__(self) -> None:
        self._is_announced = False
        self._is_withdrawn = False
        self._lock = asyncio.Lock()
        """Serializes announcements, so that the withdrawal is sent last."""

    async def run(self) -> None:
        log = LogOnce(logger, logging.INFO)
        while True:
            try:
                async with self._lock:
                    if self._is_withdrawn:
                        return
                    pages = self.push_cache.paths[-self.limits.announced :]
                    terms = await self.cluster.announce({**self.address, "pages": pages})
                self._is_announced = terms.enabled
                pause_s = terms.lease_s / 3 if terms.enabled else self.limits.idle_s
                log.succeeded()
            except NewsstandError as error:
                pause_s = self.limits.retry_s
                log.failed("announcement of the push-cache failed: %s", error)
            except Exception:
                pause_s = self.limits.retry_s
                logger.exception("announcement of the push-cache failed")
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self.push_cache.changed.wait()
            self.push_cache.changed.clear()

    async def withdraw(self) -> None:
        """Withdraw the announcement, so that the origin redirects no client to this broker."""
        self._is_withdrawn = True
        async with self._lock:
            if self._is_announced:
                await self.cluster.withdraw()
