"""Pages for subscribers: from the shelf, from what the origin has pushed here, from another broker or the origin.

A page that a match announced is on the shelf (`shelf`), one that many wanted near here may have been pushed
(`copies`). For others the origin is asked, which may name a broker that is nearer to who asks (`redirects`).
Whoever can goes there itself; for the others this broker does. If that was in vain, as the page has left or the
broker has just died, the origin answers: one trip more, and no error.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import httpx

from newsstand.broker.copies import Copies
from newsstand.broker.page_content import Content, TooLarge, content_of, is_fixed
from newsstand.broker.page_fetcher import PageFetcher, PageRefused, refuse_encoded
from newsstand.broker.page_metrics import PageMetrics, Source
from newsstand.broker.redirects import Peer, Redirected, RedirectMemory
from newsstand.broker.shelf import Shelf
from newsstand.broker.tickets import Tickets
from newsstand.broker.upstream import IDENTITY, Away, ExternalPage, Upstream
from newsstand.errors import NewsstandError, NotFound
from newsstand.model import page_id
from newsstand.planning.places import Place
from newsstand.serving.near import INVALID_AT, near_headers

logger = logging.getLogger(__name__)
PEER_S = 3.0
"""How long another broker may take to begin its answer, and between its pieces."""
SLOW = 1 << 16
"""Bytes a second of a slow line."""
AT_ONCE = 16
"""Pages that are fetched from the cluster at the same time; results have to get through, too."""


class InVain(NewsstandError):
    """Another broker does not have the page."""


class NotThere(InVain):
    """Another broker does not answer."""


class Unchanged(NewsstandError):
    """The page is still of the version that its reader has."""


@dataclass(frozen=True)
class Asker:
    """Who wants a page."""

    place: Place
    goes: bool = False
    """Whether it goes to other brokers itself."""
    invalid_at: str | None = None
    """The broker where it was in vain."""
    has: str = ""
    """The version that it has already."""
    wants: bool = True
    """Whether it wants the page itself, so that it counts as demand."""


@dataclass(frozen=True)
class Served:
    """A page, where it came from, and who had it."""

    content: Content
    source: Source
    by: str


@dataclass(frozen=True)
class SentTo:
    """Not a page, but another broker that has it, and a ticket for it."""

    peer: Peer
    location: str


class Pages:
    """All ways to a page; used from the event loop's thread only."""

    def __init__(
        self,
        name: str,
        shelf: Shelf,
        copies: Copies,
        upstream: Upstream,
        fetcher: PageFetcher,
        peers: httpx.AsyncClient,
        tickets: Tickets,
        metrics: PageMetrics,
        *,
        largest: int,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self.shelf = shelf
        self.copies = copies
        self.tickets = tickets
        self.memory = RedirectMemory()
        self.metrics = metrics
        self._upstream = upstream
        self._fetcher = fetcher
        self._peers = peers
        self._largest = largest
        self._now_s = now_s
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._coming: dict[tuple[str, object], asyncio.Task[Content]] = {}

    async def get(self, path: str, asker: Asker) -> Served | SentTo:
        """A page for a reader, or where it is to go for it."""
        if asker.invalid_at is not None:
            self._was_in_vain(path, asker.place, asker.invalid_at)
        own = await self.here(path)
        if own is not None:
            return own
        peer = None if asker.invalid_at is not None else self.memory.peer(asker.place, path)
        if peer is None:
            try:
                return await self._from_origin(path, asker, asker.invalid_at)
            except Redirected as redirected:
                peer = self.memory.learn(asker.place, redirected.told)
        now = self._now_s()
        if peer.server == self.name or self.memory.rests(peer.server, now):  # it was here until just now, or died
            self._was_in_vain(path, asker.place, peer.server)
            return await self._from_origin(path, asker, peer.server)
        if asker.goes:
            self.metrics.sent()
            return SentTo(peer, self.location(peer, path))
        try:
            content = await self._fetched(path, peer, lambda: self._ask_peer(path, peer))
        except InVain as error:
            logger.info("%s; the origin is asked", error)
            self._was_in_vain(path, asker.place, peer.server)
            if isinstance(error, NotThere):
                self.memory.lost(peer.server, self._now_s())
            return await self._from_origin(path, asker, peer.server)
        return self._count(content, "peer", peer.server)

    async def here(self, path: str) -> Served | None:
        """A page that this broker has."""
        page = path.removeprefix("pages/")
        if is_fixed(path) and page in self.shelf:
            content, _ = await self.shelf.get(page)
            return self._count(content, "hit", self.name)
        content_pushed = await self.copies.get(path)
        return None if content_pushed is None else self._count(content_pushed, "pushed", self.name)

    def location(self, peer: Peer, path: str) -> str:
        """The address of a copy at another broker, with a ticket for it."""
        return f"{peer.url.rstrip('/')}/copies/{path}?ticket={self.tickets.ticket(path, self._now_s())}"

    @asynccontextmanager
    async def at_origin(
        self,
        path: str,
        headers: Mapping[str, str],
        *,
        turns: AbstractAsyncContextManager[object] | None = None,
        streamed: bool = False,
    ) -> AsyncIterator[httpx.Response]:
        """Open a page at the cluster, or at the other server that holds it; `turns` are for the cluster alone."""
        async with AsyncExitStack() as stack:
            if turns is not None:
                await stack.enter_async_context(turns)
            try:
                response = await stack.enter_async_context(self._upstream.page(path, headers))
            except ExternalPage as page:
                await stack.aclose()
                response = await stack.enter_async_context(
                    self._fetcher.open(page.url, headers, streamed=streamed)
                )
            refuse_encoded(response)
            yield response

    async def origin_has(self, path: str, version: str) -> Content | None:
        """The page as the origin has it now, None if that is still this version; it counts as nobody's demand."""
        headers = {"If-None-Match": f'"{version}"'} if version else {}
        async with self.at_origin(path, headers, turns=self._turns) as response:
            if response.status_code == 304:
                return None
            return await self._content(path, response)

    async def _from_origin(self, path: str, asker: Asker, invalid_at: str | None) -> Served:
        way = ("origin", asker, invalid_at)
        content = await self._fetched(path, way, lambda: self._ask_origin(path, asker, invalid_at))
        return self._count(content, "miss", "origin")

    async def _fetched(
        self, path: str, way: object, fetch: Callable[[], Coroutine[None, None, Content]]
    ) -> Content:
        """Fetch a page, once for all who want it in the same way meanwhile; one that never changes may stay."""
        page = path.removeprefix("pages/")
        if is_fixed(path) and self.shelf.is_coming(page):
            content, _ = await self.shelf.get(page)
            return content
        task = self._coming.get((path, way))
        if task is None:
            self._coming[path, way] = task = asyncio.create_task(fetch())
            task.add_done_callback(lambda _: self._coming.pop((path, way), None))
        content = await asyncio.shield(task)
        if is_fixed(path):
            self.shelf.missed(page, content)
        return content

    async def _ask_origin(self, path: str, asker: Asker, invalid_at: str | None) -> Content:
        place = asker.place
        headers = near_headers(place.lat, place.lon, place.node) if asker.wants else {}
        if invalid_at is not None:
            headers[INVALID_AT] = invalid_at
        if asker.has and not is_fixed(path):
            headers["If-None-Match"] = f'"{asker.has}"'
        async with self.at_origin(path, headers, turns=self._turns) as response:
            if response.status_code == 304:
                raise Unchanged(path)
            return await self._content(path, response)

    async def _content(self, path: str, response: httpx.Response) -> Content:
        if response.status_code == 404:
            raise NotFound(f"there is no page '{path.partition('/')[2]}'")
        if response.status_code != 200:
            raise Away(f"the origin of the page answers {response.status_code}")
        return await content_of(response, self._largest)

    async def _ask_peer(self, path: str, peer: Peer) -> Content:
        """The page as another broker has it: its bytes have to be those that its id or its version stands for."""
        try:
            async with asyncio.timeout(PEER_S) as limit:
                asked = self._peers.stream("GET", self.location(peer, path), headers=IDENTITY, timeout=PEER_S)
                async with asked as response:
                    if response.status_code != 200:
                        raise InVain(f"broker '{peer.server}' answers {response.status_code}")
                    refuse_encoded(response)
                    limit.reschedule(asyncio.get_running_loop().time() + PEER_S + self._largest / SLOW)
                    content = await content_of(response, self._largest)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise NotThere(f"broker '{peer.server}' does not answer ({type(error).__name__})") from error
        except (TooLarge, PageRefused) as error:
            raise InVain(f"broker '{peer.server}': {error}") from error
        if page_id(content.data) != (path.removeprefix("pages/") if is_fixed(path) else content.version):
            raise NotThere(f"broker '{peer.server}' answers something else than the page")
        return content

    def _was_in_vain(self, path: str, place: Place, server: str) -> None:
        self.metrics.in_vain()
        self.memory.invalid(place, path, server)

    def _count(self, content: Content, source: Source, by: str) -> Served:
        self.metrics.served(source, len(content.data))
        return Served(content, source, by)
