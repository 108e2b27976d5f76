"""All that a broker has for pages, put together: the shelf, the copies, the ways to others, and the announcer."""

from __future__ import annotations

import ssl
import time

import httpx

from newsstand.broker.announcing import Announcer
from newsstand.broker.copies import Copies
from newsstand.broker.metrics import Metrics
from newsstand.broker.page_content import Content
from newsstand.broker.page_fetcher import PageFetcher
from newsstand.broker.page_hosts import PageHosts
from newsstand.broker.page_metrics import PageMetrics
from newsstand.broker.pages import Pages
from newsstand.broker.settings import BrokerSettings
from newsstand.broker.shelf import Shelf
from newsstand.broker.tickets import Tickets
from newsstand.broker.upstream import LIMITS, Upstream


class PageParts:
    """The parts, made and tied together."""

    def __init__(
        self,
        settings: BrokerSettings,
        upstream: Upstream,
        key: str | None,
        url: str,
        verify: ssl.SSLContext | bool,
        metrics: Metrics,
    ) -> None:
        """`key` signs tickets; None if the coordinator gives it later."""
        self.tickets = Tickets(key)
        self.http = httpx.AsyncClient(verify=verify, trust_env=False, limits=LIMITS)
        """For other brokers."""
        self.fetcher = PageFetcher(_page_hosts(settings, url), _trusted(settings))
        self.shelf = Shelf(
            settings.pages_policy,
            settings.pages_capacity,
            self._announced_by_match,
            push=settings.pages_push,
            largest=settings.largest_page,
        )
        self.copies = Copies(settings.push_cache_bytes, settings.largest_page, self._origin_has, time.time)
        self.pages = Pages(
            settings.name,
            self.shelf,
            self.copies,
            upstream,
            self.fetcher,
            self.http,
            self.tickets,
            PageMetrics(metrics.registry),
            largest=settings.largest_page,
        )
        self.announcer = Announcer(upstream, self.copies, _whereabouts(settings, url))
        for name, words, value in (
            ("page_bytes", "Bytes of cached pages.", lambda: self.shelf.bytes),
            ("push_cache_bytes", "Bytes of copies that the origin has pushed.", lambda: self.copies.bytes),
            ("push_cache_pages", "Copies that the origin has pushed.", lambda: len(self.copies)),
        ):
            metrics.gauge(name, words, value)

    async def _announced_by_match(self, page: str) -> Content:
        content = await self.pages.origin_has(f"pages/{page}", "")
        assert content is not None  # without a version to compare with there is always an answer
        return content

    async def _origin_has(self, path: str, version: str) -> Content | None:
        return await self.pages.origin_has(path, version)


def _page_hosts(settings: BrokerSettings, url: str) -> PageHosts:
    own = (settings.cluster, settings.coordinator, settings.url, settings.callback, url)
    return PageHosts(settings.pages_allow, [one for one in own if one])


def _trusted(settings: BrokerSettings) -> ssl.SSLContext:
    """Trust the system's certificates, and those of the platform's own authority."""
    context = httpx.create_ssl_context()
    if settings.authority is not None:
        context.load_verify_locations(settings.authority)
    return context


def _whereabouts(settings: BrokerSettings, url: str) -> dict[str, object]:
    """What the origin is told of a broker that keeps copies: how it is reached, and where it is."""
    told = {
        "url": settings.url or url,
        "push": f"{(settings.callback or url).rstrip('/')}/pushed",
        "lat": settings.lat,
        "lon": settings.lon,
        "node": settings.node,
    }
    return {name: value for name, value in told.items() if value is not None}
