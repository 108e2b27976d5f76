"""The components of a broker for pages, connected."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable

from newsstand.auth.signing import SignedUrls
from newsstand.broker.cluster_client.client import ClusterClient
from newsstand.broker.metrics import Metrics, PageMetrics
from newsstand.broker.pages.content import PageContent
from newsstand.broker.pages.fetcher import PageFetcher
from newsstand.broker.pages.hosts import PageHosts
from newsstand.broker.pages.match_cache import MatchCache
from newsstand.broker.pages.push_cache import PushCacheLease, PushCacheService
from newsstand.broker.pages.resolver import PageResolver
from newsstand.broker.settings import BrokerSettings
from newsstand.http.client import HttpClient


class PageComponents:
    """Caches, clients and the resolver."""

    def __init__(
        self,
        settings: BrokerSettings,
        cluster: ClusterClient,
        key: str | None,
        url: str,
        tls: ssl.SSLContext | None,
        metrics: Metrics,
        on_push: Callable[[str, int, int, bool], None],
    ) -> None:
        """`key` signs URLs of pages; None if the coordinator sends it later. `on_push`: see MatchCache."""
        self.signed_urls = SignedUrls(key)
        self._peers = HttpClient(tls=tls)
        self._fetcher = PageFetcher(_page_hosts(settings, url), _trusted(settings))
        self.match_cache = MatchCache(
            settings.pages_policy,
            settings.pages_capacity,
            self._fetch_matched,
            push=settings.pages_push,
            largest=settings.largest_page,
            on_push=on_push,
        )
        self.push_cache = PushCacheService(
            settings.push_cache_bytes, settings.largest_page, self._fetch_current, time.time
        )
        self.resolver = PageResolver(
            settings.name,
            self.match_cache,
            self.push_cache,
            cluster,
            self._fetcher,
            self._peers,
            self.signed_urls,
            PageMetrics(metrics.registry),
            largest=settings.largest_page,
        )
        self.lease = PushCacheLease(cluster, self.push_cache, _address(settings, url))
        for name, text, value in (
            ("page_bytes", "Bytes of cached pages.", lambda: self.match_cache.bytes),
            ("push_cache_bytes", "Bytes of pages pushed by the origin.", lambda: self.push_cache.bytes),
            ("push_cache_pages", "Pages pushed by the origin.", lambda: len(self.push_cache)),
        ):
            metrics.gauge(name, text, value)

    async def close(self) -> None:
        await self._peers.close()
        await self._fetcher.close()

    async def _fetch_matched(self, page: str) -> PageContent:
        content = await self.resolver.fetch_current(f"pages/{page}", "")
        assert content is not None  # without a version to compare with there is always an answer
        return content

    async def _fetch_current(self, path: str, version: str) -> PageContent | None:
        return await self.resolver.fetch_current(path, version)


def _page_hosts(settings: BrokerSettings, url: str) -> PageHosts:
    own = (settings.cluster, settings.coordinator, settings.url, settings.callback, url)
    return PageHosts(settings.pages_allow, [one for one in own if one])


def _trusted(settings: BrokerSettings) -> ssl.SSLContext:
    """Trust the system's certificates, and those of the platform's own authority."""
    context = ssl.create_default_context()
    if settings.authority is not None:
        context.load_verify_locations(settings.authority)
    return context


def _address(settings: BrokerSettings, url: str) -> dict[str, object]:
    """Return the URLs and the location that this broker announces with its push-cache."""
    address = {
        "url": settings.url or url,
        "push": f"{(settings.callback or url).rstrip('/')}/pushes",
        "lat": settings.lat,
        "lon": settings.lon,
        "node": settings.node,
    }
    return {name: value for name, value in address.items() if value is not None}
