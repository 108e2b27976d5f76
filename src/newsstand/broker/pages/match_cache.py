"""The match cache: pages that match subscriptions (Chen, LaPaugh and Singh 2003), live.

The cluster says of each matched page how large it is and how many subscriptions of this broker it matches. With
push *needed*, the policy is asked with these two numbers first, and the page is fetched only if it would be
stored. With push *always*, the page is fetched in any case and then offered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from newsstand.broker.pages.content import PageContent
from newsstand.caching import page_cache
from newsstand.concurrency.coalescing import SingleFlight
from newsstand.errors import BadOption, NewsstandError

logger = logging.getLogger(__name__)
PushMode = Literal["needed", "always"]
MAX_COUNTED_PAGES = 100_000
"""Pages whose number of subscriptions is remembered."""


@dataclass(slots=True)
class MatchCacheCounts:
    """Hits, misses and pushes."""

    hits: int = 0
    misses: int = 0
    hit_bytes: int = 0
    miss_bytes: int = 0
    pushed: int = 0
    pushed_bytes: int = 0
    push_rejected: int = 0


class MatchCache:
    """A page cache and the pages in it; used from the event loop's thread only."""

    def __init__(
        self,
        policy: str,
        capacity: int,
        fetch: Callable[[str], Awaitable[PageContent]],
        *,
        push: PushMode = "needed",
        largest: int | None = None,
        on_push: Callable[[str, int, int, bool], None] = lambda page, size, subscriptions, stored: None,
    ) -> None:
        """Create a cache for pages of up to `largest` bytes, which `fetch` accepts.

        `on_push` gets each page that is offered: its id, size, number of subscriptions, and whether it was stored.
        """
        self._largest = largest
        self._fetch = fetch
        self._contents: dict[str, PageContent] = {}
        self._subscriptions: dict[str, int] = {}
        self._fetches = SingleFlight[str, PageContent]()
        self.counts = MatchCacheCounts()
        self._on_push = on_push
        self.reconfigure(policy, capacity, push)

    def reconfigure(self, policy: str, capacity: int, push: PushMode) -> None:
        """Apply another policy; offer it the pages that are cached."""
        if capacity < 0:
            raise BadOption("must not be negative", capacity=capacity)
        if push not in ("needed", "always"):
            raise BadOption("must be needed or always", push=push)
        cache = page_cache(policy, capacity, on_evict=self._evicted)
        self.policy, self.push = policy, push
        self._cache = cache
        cached, self._contents = self._contents, {}
        for page, content in cached.items():
            size, subscriptions = len(content.data), self._subscriptions.get(page, 0)
            self._contents[page] = content
            if not cache.push(page, size, subscriptions):
                cache.request(page, size, subscriptions)
            if page not in cache:
                self._contents.pop(page, None)

    @property
    def capacity(self) -> int:
        return self._cache.capacity

    @property
    def bytes(self) -> int:
        """Bytes of the cached pages."""
        return self._cache.used

    def __len__(self) -> int:
        return len(self._contents)

    def __contains__(self, page: object) -> bool:
        return page in self._contents

    def offer(self, page: str, size: int, subscriptions: int) -> None:
        """Fetch a page that the cluster has matched, if the policy accepts it."""
        if page in self._contents or page in self._fetches or size < 1:
            return
        self._count(page, subscriptions)
        too_large = self._largest is not None and size > self._largest
        if too_large or (self.push == "needed" and not self._cache.push(page, size, subscriptions)):
            self._reject(page, size, subscriptions)
            return
        task = self._fetches.start(page, lambda: self._fetch(page))
        task.add_done_callback(lambda done: self._fetched(page, size, subscriptions, done))

    def is_fetching(self, page: str) -> bool:
        return page in self._fetches

    async def get(self, page: str) -> tuple[PageContent, bool]:
        """Return a page for a reader, and whether it was cached."""
        content = self._contents.get(page)
        if content is not None:
            self._cache.request(page, len(content.data), self._subscriptions.get(page, 0))
            self.counts.hits += 1
            self.counts.hit_bytes += len(content.data)
            return content, True
        content = await self._fetches.run(page, lambda: self._fetch(page))
        self.add_missed(page, content)
        return content, False

    def add_missed(self, page: str, content: PageContent) -> None:
        """Store a page that a reader has missed and that was fetched, if the policy accepts it."""
        self.counts.misses += 1
        self.counts.miss_bytes += len(content.data)
        self._cache.request(page, len(content.data), self._subscriptions.get(page, 0))
        if page in self._cache:
            self._contents[page] = content

    def _fetched(self, page: str, size: int, subscriptions: int, task: asyncio.Task[PageContent]) -> None:
        """Store a page that was offered, unless its fetch has failed."""
        fault = None if task.cancelled() else task.exception()
        if task.cancelled() or fault is not None:
            if fault is not None and not isinstance(fault, NewsstandError):
                logger.error("page %s: fetch failed", page, exc_info=fault)
            return  # if the policy has made room for it, its first reader fetches it
        content = task.result()
        self.counts.pushed += 1
        self.counts.pushed_bytes += len(content.data)
        if page not in self._cache and self.push == "always":
            self._cache.push(page, len(content.data), subscriptions)
        if page in self._cache:
            self._contents[page] = content
            self._on_push(page, size, subscriptions, True)
        else:
            self._reject(page, size, subscriptions)

    def _reject(self, page: str, size: int, subscriptions: int) -> None:
        self.counts.push_rejected += 1
        self._on_push(page, size, subscriptions, False)

    def _count(self, page: str, subscriptions: int) -> None:
        """Remember the subscriptions of a page, also while it is not cached, up to a limit."""
        self._subscriptions[page] = subscriptions
        if len(self._subscriptions) > MAX_COUNTED_PAGES:
            oldest = next(iter(self._subscriptions))
            del self._subscriptions[oldest]
            self._cache.forget(oldest)

    def _evicted(self, page: object) -> None:
        assert isinstance(page, str)
        self._contents.pop(page, None)
