"""Resolution of pages for subscribers: caches of this broker, other brokers, the origin.

A page that a match announced is in the match cache; one that is popular near here may be in the push-cache. For
others the broker asks the origin, which may redirect to a broker that is nearer to the client. A client that
follows redirects goes there itself; for the others this broker does. If that fails, because the page was evicted
or the broker has died, the origin answers: one more round trip, and no error.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

import msgspec

from newsstand.auth.signing import SignedUrls
from newsstand.broker.cluster_client.client import (
    ClusterClient,
    ClusterUnavailable,
    ExternalPage,
    OriginRedirect,
    RedirectedToPeer,
)
from newsstand.broker.metrics import PageMetrics, Source
from newsstand.broker.pages.content import (
    PageContent,
    PageResponse,
    PageTooLarge,
    is_fixed,
    read_content,
    steady,
)
from newsstand.broker.pages.fetcher import PageFetcher, PageRejected, require_identity
from newsstand.broker.pages.match_cache import MatchCache
from newsstand.broker.pages.push_cache import CLUSTER, PushCacheService
from newsstand.concurrency.coalescing import SingleFlight
from newsstand.errors import NewsstandError, NotFound
from newsstand.geo.location import Location
from newsstand.http.client import HttpClient, RequestError
from newsstand.http.pages import INVALID_AT, ClientLocation
from newsstand.model import page_id
from newsstand.push_caching.redirects import MOST_REDIRECTS, Redirect, RedirectCache

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PageResolverLimits:
    """Limits of requests to other brokers and to the cluster."""

    unavailable_s: float = 30.0
    """How long a broker that did not answer is avoided. By then the origin has noticed, too."""
    peer_s: float = 3.0
    """How long another broker may take to begin its response, and between two chunks."""
    slowest: int = 1 << 16
    """Bytes per second of a slow line between brokers."""
    cluster_fetches: int = 16
    """Pages that are fetched from the cluster at a time, so that results get through, too."""
    redirects: int = MOST_REDIRECTS
    """Redirects that are remembered."""


class Peer(msgspec.Struct, frozen=True):
    """Another broker that has pages of the origin."""

    server: str
    url: str


class RedirectTable:
    """The newest redirects by the origin to other brokers (push1995), and the brokers that are unavailable.

    A broker is the proxy of its subscribers, so it remembers redirects for them. A redirect is valid for clients
    at the same place only, since from elsewhere the origin may be nearer.
    """

    def __init__(self, limits: PageResolverLimits = PageResolverLimits()) -> None:  # noqa: B008  it is frozen
        self._unavailable_s = limits.unavailable_s
        self._redirects: RedirectCache[tuple[Location, str]] = RedirectCache(limits.redirects)
        """For a place and a page, the number of a broker."""
        self._peers: list[Peer | None] = []
        """Brokers by number; None for one that was unavailable, which gets another number afterwards."""
        self._numbers: dict[str, int] = {}
        self._unavailable_until: dict[str, float] = {}

    def learn(self, place: Location, redirect: OriginRedirect) -> Peer:
        """Remember a redirect of a client at a place."""
        peer = Peer(redirect.server, redirect.url)
        number = self._numbers.setdefault(redirect.server, len(self._peers))
        self._peers[number : number + 1] = [peer]
        self._redirects.learn(Redirect(CLUSTER, number, tuple((place, page) for page in redirect.pages)))
        return peer

    def peer(self, place: Location, path: str) -> Peer | None:
        """Return the broker that has a page for a client at a place; None for the origin."""
        number = self._redirects.server(CLUSTER, (place, path))
        return None if number is None else self._peers[number]

    def invalid(self, place: Location, path: str, server: str) -> None:
        """Forget that a broker has a page."""
        if server in self._numbers:
            self._redirects.invalid(CLUSTER, (place, path), self._numbers[server])

    def mark_unavailable(self, server: str, now: float) -> None:
        """Avoid a broker for a while, and forget all redirects to it."""
        number = self._numbers.pop(server, None)
        if number is not None:
            self._peers[number] = None
        self._unavailable_until[server] = now + self._unavailable_s

    def is_unavailable(self, server: str, now: float) -> bool:
        """Return whether a broker did not answer recently."""
        until = self._unavailable_until.get(server)
        if until is not None and now >= until:
            del self._unavailable_until[server]
        return until is not None and now < until


class PeerMiss(NewsstandError):
    """Another broker that does not have the page."""


class PeerUnavailable(PeerMiss):
    """Another broker that does not answer, or not with the page."""


class NotModified(NewsstandError):
    """A page that still has the version of its reader."""


@dataclass(frozen=True)
class PageRequest:
    """A request of a client for a page."""

    place: Location
    follows_redirects: bool = False
    """Whether the client goes to other brokers itself."""
    invalid_at: str | None = None
    """The broker that did not have the page."""
    version: str = ""
    """The version that the client has."""
    is_demand: bool = True
    """Whether the client wants the page itself, and not only its headers."""


@dataclass(frozen=True)
class ResolvedPage:
    """A page, its source, and the server that had it."""

    content: PageContent
    source: Source
    by: str


@dataclass(frozen=True)
class RedirectTo:
    """Another broker that has a page, with a signed URL."""

    peer: Peer
    location: str


@dataclass(eq=False, repr=False)
class PageResolver:
    """Finds pages; used from the event loop's thread only."""

    name: str
    match_cache: MatchCache
    push_cache: PushCacheService
    cluster: ClusterClient
    fetcher: PageFetcher
    peers: HttpClient
    signed_urls: SignedUrls
    metrics: PageMetrics
    largest: int
    """Bytes of a page that is held in memory."""
    now_s: Callable[[], float] = time.time
    limits: PageResolverLimits = PageResolverLimits()

    def __post_init__(self) -> None:
        self.redirects = RedirectTable(self.limits)
        self._cluster_slots = asyncio.Semaphore(self.limits.cluster_fetches)
        self._fetches = SingleFlight[tuple[str, Hashable], PageContent]()

    async def get(self, path: str, request: PageRequest) -> ResolvedPage | RedirectTo:
        """Return a page for a client, or the broker to which it is redirected."""
        if request.invalid_at is not None:
            self._record_miss(path, request.place, request.invalid_at)
        own = await self.here(path)
        if own is not None:
            return own
        peer = None if request.invalid_at is not None else self.redirects.peer(request.place, path)
        if peer is None:
            try:
                return await self._from_origin(path, request, request.invalid_at)
            except RedirectedToPeer as redirected:
                peer = self.redirects.learn(request.place, redirected.redirect)
        now = self.now_s()
        if peer.server == self.name or self.redirects.is_unavailable(peer.server, now):
            self._record_miss(path, request.place, peer.server)
            return await self._from_origin(path, request, peer.server)
        if request.follows_redirects:
            self.metrics.redirects.labels("sent").inc()
            return RedirectTo(peer, self.location(peer, path))
        try:
            content = await self._fetch(path, peer, lambda: self._request_peer(path, peer))
        except PeerMiss as error:
            logger.info("%s; trying the origin", error)
            self._record_miss(path, request.place, peer.server)
            if isinstance(error, PeerUnavailable):
                self.redirects.mark_unavailable(peer.server, self.now_s())
            return await self._from_origin(path, request, peer.server)
        return self._count(content, "peer", peer.server)

    async def here(self, path: str) -> ResolvedPage | None:
        """Return a page that this broker has in a cache."""
        page = path.removeprefix("pages/")
        if is_fixed(path) and page in self.match_cache:
            content, _ = await self.match_cache.get(page)
            return self._count(content, "hit", self.name)
        copy = await self.push_cache.get(path)
        return None if copy is None else self._count(copy, "pushed", self.name)

    def location(self, peer: Peer, path: str) -> str:
        """Return the signed URL of a copy at another broker."""
        return f"{peer.url.rstrip('/')}/copies/{path}?signature={self.signed_urls.sign(path, self.now_s())}"

    @asynccontextmanager
    async def at_origin(
        self,
        path: str,
        headers: Mapping[str, str],
        *,
        slots: AbstractAsyncContextManager[object] | None = None,
        streamed: bool = False,
    ) -> AsyncIterator[PageResponse]:
        """Open a page at the cluster, or at the server that holds it; `slots` are for the cluster alone."""
        async with AsyncExitStack() as stack:
            if slots is not None:
                await stack.enter_async_context(slots)
            try:
                response = await stack.enter_async_context(self.cluster.page(path, headers))
            except ExternalPage as page:
                await stack.aclose()
                response = await stack.enter_async_context(self.fetcher.open(page.url, headers, streamed=streamed))
            require_identity(response)
            yield response

    async def fetch_current(self, path: str, version: str) -> PageContent | None:
        """Return the current page of the origin, None if it still has this version; not counted as demand."""
        headers = {"If-None-Match": f'"{version}"'} if version else {}
        async with self.at_origin(path, headers, slots=self._cluster_slots) as response:
            if response.status == 304:
                return None
            return await self._read(path, response)

    async def _from_origin(self, path: str, request: PageRequest, invalid_at: str | None) -> ResolvedPage:
        key = ("origin", request, invalid_at)
        content = await self._fetch(path, key, lambda: self._request_origin(path, request, invalid_at))
        return self._count(content, "miss", "origin")

    async def _fetch(self, path: str, key: Hashable, fetch: Callable[[], Awaitable[PageContent]]) -> PageContent:
        """Fetch a page, once for all requests of a key; a page that never changes may enter the match cache."""
        page = path.removeprefix("pages/")
        if is_fixed(path) and self.match_cache.is_fetching(page):
            content, _ = await self.match_cache.get(page)
            return content
        content = await self._fetches.run((path, key), fetch)
        if is_fixed(path):
            self.match_cache.add_missed(page, content)
        return content

    async def _request_origin(self, path: str, request: PageRequest, invalid_at: str | None) -> PageContent:
        place = request.place
        headers = ClientLocation(place.lat, place.lon, place.node).headers() if request.is_demand else {}
        if invalid_at is not None:
            headers[INVALID_AT] = invalid_at
        if request.version and not is_fixed(path):
            headers["If-None-Match"] = f'"{request.version}"'
        async with self.at_origin(path, headers, slots=self._cluster_slots) as response:
            if response.status == 304:
                raise NotModified(path)
            return await self._read(path, response)

    async def _read(self, path: str, response: PageResponse) -> PageContent:
        if response.status == 404:
            raise NotFound(f"there is no page '{path.partition('/')[2]}'")
        if response.status != 200:
            raise ClusterUnavailable(f"the origin of the page answers {response.status}")
        return await read_content(response, self.largest)

    async def _request_peer(self, path: str, peer: Peer) -> PageContent:
        """Return the page of another broker, whose bytes must match its id or its version."""
        peer_s = self.limits.peer_s
        try:
            async with asyncio.timeout(peer_s) as limit:
                longest_s = peer_s + self.largest / self.limits.slowest
                async with self.peers.stream("GET", self.location(peer, path), timeout_s=2 * longest_s) as opened:
                    response = PageResponse.of(opened)
                    if response.status != 200:
                        raise PeerMiss(f"broker '{peer.server}' answers {response.status}")
                    require_identity(response)
                    limit.reschedule(asyncio.get_running_loop().time() + longest_s)
                    response = replace(response, chunks=steady(response.chunks, peer_s))
                    content = await read_content(response, self.largest)
        except (RequestError, TimeoutError) as error:
            raise PeerUnavailable(f"broker '{peer.server}' does not answer ({type(error).__name__})") from error
        except (PageTooLarge, PageRejected) as error:
            raise PeerMiss(f"broker '{peer.server}': {error}") from error
        if page_id(content.data) != (path.removeprefix("pages/") if is_fixed(path) else content.version):
            raise PeerUnavailable(f"broker '{peer.server}' answers with something else than the page")
        return content

    def _record_miss(self, path: str, place: Location, server: str) -> None:
        """Record that another broker did not have a page."""
        self.metrics.redirects.labels("missed").inc()
        self.redirects.invalid(place, path, server)

    def _count(self, content: PageContent, source: Source, by: str) -> ResolvedPage:
        self.metrics.served(source, len(content.data))
        return ResolvedPage(content, source, by)
