"""The origin of pages: named pages, redirects to push-caches and pushes.

The path of a page is its key: `pages/ID` for a page of a publication, `named/NAME` for one that may be replaced.

At the end of each period the origin decides what to push. No request for a page waits for a push. A push-cache
that fails is removed until it announces itself again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from newsstand.cluster.app_folder import App
from newsstand.cluster.metrics import Metrics
from newsstand.cluster.notifier import signature_headers
from newsstand.cluster.pages.redirector import (
    CacheRedirect,
    KnownCache,
    PagePush,
    PageRedirector,
    RedirectorLimits,
)
from newsstand.cluster.pages.store import NamedPages, PageStore
from newsstand.concurrency.background_loop import BackgroundTask
from newsstand.errors import BadApp, NotFound
from newsstand.geo.location import Location
from newsstand.http.client import HttpClient, RequestError, trust
from newsstand.model import Broker, is_page_path
from newsstand.wire.notifications import PushedPage, PushRequest, PushResult

logger = logging.getLogger(__name__)


class PushError(Exception):
    """A push-cache did not answer as it should; the message is the reason."""


@dataclass(frozen=True)
class OriginLimits:
    """Limits of an origin."""

    push_timeout_s: float = 60.0
    """How long a push may take; meanwhile the push-cache fetches the pages that it stores."""
    response_bytes: int = 16 << 20
    """The longest response to a push."""
    redirector: RedirectorLimits = RedirectorLimits()  # noqa: RUF009


@dataclass(frozen=True)
class Demand:
    """The location of a request for a page, and the push-cache that did not have it."""

    location: Location
    invalid_at: str | None = None


class Origin(BackgroundTask):
    """The service for pages, and the thread that sends pushes, one at a time.

    Methods block and may be called from several threads. `stop` cancels a push that is being sent.
    """

    def __init__(
        self,
        app: App,
        data: Path,
        pages: PageStore,
        broker: Callable[[str], Broker | None],
        metrics: Metrics,
        now_ms: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
        limits: OriginLimits = OriginLimits(),  # noqa: B008  it is frozen
    ) -> None:
        """`clock` is in monotonic seconds."""
        super().__init__("page-pusher", self._run)
        self.named = NamedPages(data / "named")
        self.now_ms = now_ms
        self.pages = pages
        self.metrics = metrics
        self.pushes_pages = app.push.enabled
        """Whether the cluster pushes pages and redirects requests."""
        self.redirector = PageRedirector(app.push, clock(), limits.redirector)
        self._broker = broker
        self._clock = clock
        self._limits = limits
        self._tls = trust(app.cluster.authority)
        self._last_id = 0
        if self.pushes_pages:
            metrics.before_scrape(self._measure)

    def start(self) -> None:
        """Start pushing, if the app enables it."""
        if self.pushes_pages:
            super().start()

    def redirect(self, path: str, demand: Demand | None) -> CacheRedirect | None:
        """Return the redirect of a request for a page; None if the cluster answers it."""
        if not self.pushes_pages or demand is None:
            return None
        found = self.redirector.request(path, demand.location, self._clock(), demand.invalid_at)
        if found is not None:
            self.metrics.origin_redirects.inc()
        return found

    def count_response(self, size: int) -> None:
        """Count a response to demand, with `size` bytes of a page."""
        if self.pushes_pages:
            self.metrics.origin_requests.inc()
            self.metrics.origin_bytes.inc(size)

    def announce(self, cache: KnownCache, pages: Sequence[str]) -> float:
        """Add a push-cache with these pages, or renew it; return its lease in seconds.

        Raise NotFound for an unknown broker, BadApp for a malformed path or a foreign URL of pushes.
        """
        broker = self._require_broker(cache.name)
        if urlsplit(cache.push)[:2] != urlsplit(broker.callback)[:2]:
            raise BadApp("push: must have the scheme, host and port of the broker's callback")
        for path in pages:
            if not is_page_path(path):
                raise BadApp(f"pages: '{path[:50]}' is neither pages/ID nor named/NAME")
        if self.pushes_pages:
            self.redirector.announce(cache, pages, self._clock())
        return self._limits.redirector.lease_s

    def withdraw(self, broker: str) -> None:
        """Remove a broker's push-cache; raise NotFound for an unknown broker."""
        self._require_broker(broker)
        self.remove_cache(broker)

    def remove_cache(self, broker: str) -> None:
        """Remove a broker's push-cache, if it has one."""
        self.redirector.remove_cache(broker)

    def size_and_time(self, path: str) -> tuple[int, int] | None:
        """Return the bytes of a page and when it was modified, in Unix milliseconds; None for an unknown page."""
        kind, _, name = path.partition("/")
        if kind == "named":
            try:
                page = self.named.find(name)
            except NotFound:
                return None
            return page.size, page.modified_ms
        stored = self.pages.find(name)
        if stored is None or stored.url is not None:
            return None
        try:
            return stored.size, self.pages.file(name).stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return None

    # Pushes, in the thread

    async def _run(self) -> None:
        while True:
            try:
                if not await self.push_if_due():
                    await asyncio.sleep(max(0.0, self.redirector.decides_at - self._clock()))
            except Exception as error:
                logger.error("cannot decide what to push: %s: %s", type(error).__name__, error)
                await asyncio.sleep(1.0)

    async def push_if_due(self) -> bool:
        """Send the next push if one is due; return whether one was."""
        push = self.redirector.decide(self._clock())
        if push is None:
            return False
        name = push.cache.name
        try:
            stored = await self._push(push)
        except PushError as error:
            logger.warning("push-cache '%s' removed: %s", name, " ".join(str(error).split()))
            self.redirector.remove_cache(name)
        else:
            logger.info("push-cache '%s' stored %d of %d pages", name, stored, len(push.pages))
        return True

    async def _push(self, push: PagePush) -> int:
        """Post the pages that still exist; return how many the push-cache has stored."""
        broker = self._broker(push.cache.name)
        if broker is None:
            raise PushError("the broker was removed")
        offers = {
            one.page: PushedPage(one.page, *known, one.expected)
            for one in push.pages
            if (known := self.size_and_time(one.page)) is not None
        }
        if not offers:
            return 0
        answer = await self._post(push.cache.push, msgspec.json.encode(PushRequest(list(offers.values()))), broker)
        stored = [path for path in answer.stored if path in offers]
        self.redirector.record_push(push.cache.name, stored, answer.evicted)
        self.metrics.pushed(len(stored))
        return len(stored)

    async def _post(self, url: str, body: bytes, broker: Broker) -> PushResult:
        now_ms = self.now_ms()
        self._last_id = max(now_ms, self._last_id + 1)
        try:
            headers = signature_headers(broker, url, body, now_ms // 1000, self._last_id)
            async with HttpClient(tls=self._tls, timeout_s=self._limits.push_timeout_s) as http:
                response = await http.request(
                    "POST", url, content=body, headers=headers, most_bytes=self._limits.response_bytes
                )
            if response.status != 200:
                raise PushError(f"status {response.status}")
            return response.decode(PushResult)
        except RequestError as error:
            raise PushError(error.reason) from error

    def _require_broker(self, name: str) -> Broker:
        broker = self._broker(name)
        if broker is None:
            raise NotFound(f"no broker '{name}'")
        return broker

    def _measure(self) -> None:
        load, push_caches = self.redirector.status(self._clock())
        self.metrics.origin_load.set(load)
        self.metrics.push_caches.set(push_caches)
