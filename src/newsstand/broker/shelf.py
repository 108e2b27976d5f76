"""Pages close to their readers: the page cache of Chen, LaPaugh and Singh (2003), live.

The cluster says of each page that was matched how large it is and how many frontends of the broker's want it.
Pushed *when needed*, the cache is asked with these two numbers first, and the page is fetched only if it would be
stored. Pushed *always*, the page is fetched in any case and then offered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from newsstand.broker.page_content import Content
from newsstand.caching import page_cache
from newsstand.errors import BadOption, NewsstandError

logger = logging.getLogger(__name__)
Push = Literal["needed", "always"]
MOST_WANTED = 100_000
"""Pages of which is known how many want them."""


@dataclass(slots=True)
class ShelfCounts:
    """What became of pages."""

    hits: int = 0
    misses: int = 0
    hit_bytes: int = 0
    miss_bytes: int = 0
    pushed: int = 0
    pushed_bytes: int = 0
    push_refused: int = 0


class Shelf:
    """A page cache and the pages in it; used from the event loop's thread only."""

    def __init__(
        self,
        policy: str,
        capacity: int,
        fetch: Callable[[str], Awaitable[Content]],
        *,
        push: Push = "needed",
        beta: float = 2.0,
        largest: int | None = None,
    ) -> None:
        """A page of more than `largest` bytes is not taken: `fetch` would refuse it."""
        self._largest = largest
        self._fetch = fetch
        self._beta = beta
        self._contents: dict[str, Content] = {}
        self._wanted: dict[str, int] = {}
        self._coming: dict[str, asyncio.Task[Content]] = {}
        self.counts = ShelfCounts()
        self.on_push: Callable[[str, int, int, bool], None] | None = None
        """Told of each page that is offered: its id, size, how many want it, and whether it was taken."""
        self.arrange(policy, capacity, push)

    def arrange(self, policy: str, capacity: int, push: Push) -> None:
        """Keep pages by this policy from now on; pages that are here are offered to it again."""
        if capacity < 0:
            raise BadOption(f"a capacity of {capacity} bytes: it has to be at least 0")
        if push not in ("needed", "always"):
            raise BadOption(f"push is '{push}', not 'needed' or 'always'")
        cache = page_cache(policy, capacity, self._beta, self._evicted)
        self.policy, self.push = policy, push
        self._cache = cache
        kept, self._contents = self._contents, {}
        for page, content in kept.items():
            size, wanted = len(content.data), self._wanted.get(page, 0)
            self._contents[page] = content
            if not cache.push(page, size, wanted):
                cache.request(page, size, wanted)
            if page not in cache:
                self._contents.pop(page, None)

    @property
    def capacity(self) -> int:
        return self._cache.capacity

    @property
    def bytes(self) -> int:
        """Bytes of the pages that are here."""
        return self._cache.used

    def __len__(self) -> int:
        return len(self._contents)

    def offered(self, page: str, size: int, subscriptions: int) -> None:
        """The cluster has a page that so many frontends want: take it, if the policy does."""
        if page in self._contents or page in self._coming or size < 1:
            return
        self._want(page, subscriptions)
        too_large = self._largest is not None and size > self._largest
        if too_large or (self.push == "needed" and not self._cache.push(page, size, subscriptions)):
            self._refused(page, size, subscriptions)
            return
        self._start(page).add_done_callback(lambda task: self._pushed(page, size, subscriptions, task))

    def __contains__(self, page: object) -> bool:
        return page in self._contents

    def is_coming(self, page: str) -> bool:
        """Whether a page is on its way here."""
        return page in self._coming

    async def get(self, page: str) -> tuple[Content, bool]:
        """A page for a reader, and whether it was here."""
        content = self._contents.get(page)
        if content is not None:
            self._cache.request(page, len(content.data), self._wanted.get(page, 0))
            self.counts.hits += 1
            self.counts.hit_bytes += len(content.data)
            return content, True
        content = await asyncio.shield(self._coming.get(page) or self._start(page))
        self.missed(page, content)
        return content, False

    def missed(self, page: str, content: Content) -> None:
        """A page that a reader wanted was not here and has been fetched: keep it, if the policy does."""
        self.counts.misses += 1
        self.counts.miss_bytes += len(content.data)
        self._cache.request(page, len(content.data), self._wanted.get(page, 0))
        if page in self._cache:
            self._contents[page] = content

    def _start(self, page: str) -> asyncio.Task[Content]:
        async def fetch() -> Content:
            return await self._fetch(page)

        self._coming[page] = task = asyncio.create_task(fetch())
        task.add_done_callback(lambda _: self._coming.pop(page, None))
        return task

    def _pushed(self, page: str, size: int, subscriptions: int, task: asyncio.Task[Content]) -> None:
        """A page that was offered has come, or has not."""
        fault = None if task.cancelled() else task.exception()
        if task.cancelled() or fault is not None:
            if fault is not None and not isinstance(fault, NewsstandError):
                logger.error("page %s could not be fetched", page, exc_info=fault)
            return  # if the policy has made room for it, the first reader brings it
        content = task.result()
        self.counts.pushed += 1
        self.counts.pushed_bytes += len(content.data)
        if page not in self._cache and self.push == "always":
            self._cache.push(page, len(content.data), subscriptions)
        if page in self._cache:
            self._contents[page] = content
            self._tell(page, size, subscriptions, True)
        else:
            self._refused(page, size, subscriptions)

    def _refused(self, page: str, size: int, subscriptions: int) -> None:
        self.counts.push_refused += 1
        self._tell(page, size, subscriptions, False)

    def _tell(self, page: str, size: int, subscriptions: int, taken: bool) -> None:
        if self.on_push is not None:
            self.on_push(page, size, subscriptions, taken)

    def _want(self, page: str, subscriptions: int) -> None:
        """Remember how many want a page, also while it is not here, but not for ever."""
        self._wanted[page] = subscriptions
        if len(self._wanted) > MOST_WANTED:
            oldest = next(iter(self._wanted))
            del self._wanted[oldest]
            self._cache.forget(oldest)

    def _evicted(self, page: object) -> None:
        assert isinstance(page, str)
        self._contents.pop(page, None)
