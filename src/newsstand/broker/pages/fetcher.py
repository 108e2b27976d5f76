"""Fetches of pages from servers outside the platform, whose URLs publishers choose.

A request carries no token or cookie and uses no proxy. At each hop all addresses of the host are checked, and the
connection goes to one of them. A fetch has a deadline and a minimum rate, and each address has a few fetches at a
time: a slow server takes no slots of others, whatever names it has. Likewise a domain has a few lookups at a time,
so that a slow name server does not take all resolver threads.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from ipaddress import ip_network

import aiohttp
from yarl import URL

from newsstand.broker.cluster_client.client import ClusterUnavailable
from newsstand.broker.pages.content import PageResponse
from newsstand.broker.pages.hosts import PORTS, RESOLVERS, Address, PageHosts
from newsstand.concurrency.pacing import KeyedSlots
from newsstand.errors import BadInput
from newsstand.http.client import RequestError, parse_url

_FORWARDED = ("if-none-match", "if-range", "range")
"""Headers of the broker's request that other servers see."""
_NOT_A_PAGE_URL = "must be an http:// or https:// address without user and password"
_REDIRECTS = (301, 302, 303, 307, 308)


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Limits of fetches from servers outside the platform."""

    redirects: int = 5
    per_server: int = 4
    """Fetches of one server at a time."""
    fetches: int = 64
    """Fetches of all servers at a time."""
    connect_s: float = 5.0
    head_s: float = 15.0
    """How long a server may take to send the head of its response."""
    fetch_s: float = 60.0
    """How long a fetch may take in all, if the page is held in memory."""
    stream_s: float = 3600.0
    """The same, if the page is streamed at the pace of its reader."""
    slowest: int = 10_000
    """Bytes that must arrive per second, counted over …"""
    patience_s: float = 10.0
    """… this time of waiting for the server."""


class PageRejected(ClusterUnavailable):
    """A page whose server must not be asked, or whose response is not accepted."""


@dataclass(eq=False, repr=False)
class PageFetcher:
    """Fetches pages from servers outside the platform."""

    hosts: PageHosts
    verify: ssl.SSLContext | bool = True
    limits: FetchLimits = FetchLimits()

    def __post_init__(self) -> None:
        self._slots = KeyedSlots[str](self.limits.per_server, self.limits.fetches)
        self._lookups = KeyedSlots[str](self.limits.per_server, RESOLVERS)
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
        self.hosts.close()

    @asynccontextmanager
    async def open(
        self, url: str, headers: Mapping[str, str], *, streamed: bool = False
    ) -> AsyncIterator[PageResponse]:
        """Open a page, to be read piece by piece; raise ClusterUnavailable, also while it is read.

        A page that is `streamed` goes at the pace of its reader, so it leaves its slot when its server responds.
        """
        begun = asyncio.get_running_loop().time()
        forwarded = {name: value for name, value in headers.items() if name.lower() in _FORWARDED}
        limits = self.limits
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout_at(begun + limits.fetch_s):
                    response = await self._follow(url, forwarded, stack, streamed)
            except TimeoutError:
                raise ClusterUnavailable(
                    f"the page's server does not answer within {limits.fetch_s:g} s"
                ) from None
            except (BadInput, ValueError) as error:  # ValueError: hosts of redirects are decoded
                raise PageRejected(f"page: url: {error}") from error
            except (aiohttp.ClientError, OSError) as error:
                raise ClusterUnavailable(f"the page's server does not answer ({type(error).__name__})") from error
            until = begun + (limits.stream_s if streamed else limits.fetch_s)
            page = PageResponse.of(response)
            yield replace(page, chunks=self._limited(page.chunks, until))

    async def _follow(
        self, text: str, headers: Mapping[str, str], stack: AsyncExitStack, streamed: bool
    ) -> aiohttp.ClientResponse:
        url = _parse(text)
        for _ in range(self.limits.redirects + 1):
            async with AsyncExitStack() as hop:
                addresses = await self._addresses(url)
                slot = await hop.enter_async_context(AsyncExitStack())
                await slot.enter_async_context(self._slots.hold(_server(addresses)))
                try:
                    async with asyncio.timeout(self.limits.head_s):
                        response = await self._send(url, addresses, headers)
                except TimeoutError:
                    raise ClusterUnavailable(
                        f"the page's server does not answer within {self.limits.head_s:g} s"
                    ) from None
                hop.callback(response.close)
                location = response.headers.get("location") if response.status in _REDIRECTS else None
                if location is None:
                    if streamed:
                        await slot.aclose()
                    stack.push_async_exit(hop.pop_all())
                    return response
                url = _parse(str(url.join(URL(location, encoded=location.isascii()))))
        raise BadInput(f"more than {self.limits.redirects} redirects")

    async def _addresses(self, url: URL) -> list[Address]:
        host, port = url.raw_host, url.explicit_port or PORTS.get(url.scheme)
        if port is None or not host or url.raw_user is not None or url.raw_password is not None:
            raise BadInput(_NOT_A_PAGE_URL)
        async with self._lookups.hold(_domain(host)):
            return await self.hosts.addresses(host, port)

    async def _send(
        self, url: URL, addresses: Sequence[Address], headers: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        """Send a request to the first address that can be connected to."""
        if self._session is None:
            self._session = self._open_session()
        fault: Exception = OSError("no address")
        for address in addresses:
            try:
                return await self._session.get(
                    url.with_host(str(address)),
                    headers={"Host": url.raw_authority, **headers},
                    allow_redirects=False,
                    server_hostname=url.raw_host,
                )
            except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                fault = error
        raise fault

    def _open_session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            # The pool knows connections by address. One that was verified for a name must not serve another name.
            connector=aiohttp.TCPConnector(ssl=self.verify, limit=0, force_close=True),
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=self.limits.connect_s, sock_read=self.limits.patience_s
            ),
            headers={"Accept": "*/*", "Accept-Encoding": "identity"},
            skip_auto_headers=["User-Agent"],
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        )

    async def _limited(self, chunks: AsyncIterator[bytes], until: float) -> AsyncIterator[bytes]:
        """Yield a body until a deadline, unless it is too slow; the time that its reader takes does not count."""
        loop = asyncio.get_running_loop()
        patience_s = self.limits.patience_s
        left, size = patience_s, 0
        while True:
            begun = loop.time()
            try:
                # Not around the loop: another task than the one that has opened the page may read it.
                async with asyncio.timeout_at(min(until, begun + left)):
                    chunk = await anext(chunks)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise ClusterUnavailable("the page's server takes too long") from None
            except aiohttp.ClientError as error:
                raise ClusterUnavailable(f"the page's server stops answering ({type(error).__name__})") from error
            left, size = left - (loop.time() - begun), size + len(chunk)
            if size >= self.limits.slowest * patience_s:
                left, size = patience_s, 0
            yield chunk


def _parse(text: str) -> URL:
    try:
        return parse_url(text)
    except RequestError:
        raise BadInput(_NOT_A_PAGE_URL) from None


def _server(addresses: Sequence[Address]) -> str:
    """Return the key of a server, equal for all its names, and for a whole site in IPv6.

    >>> from ipaddress import ip_address
    >>> _server([ip_address("2600:1:2:3::4"), ip_address("8.8.8.8")])
    '2600:1:2::/48'
    """
    address = addresses[0]
    return str(address if address.version == 4 else ip_network((address, 48), strict=False))


def _domain(host: str) -> str:
    """Return the key of the name servers of a host.

    >>> _domain("1.pages.Example.org.")
    'example.org'
    """
    return ".".join(host.lower().rstrip(".").split(".")[-2:])


def require_identity(response: PageResponse) -> None:
    """Raise PageRejected if a page is compressed: its size is not known before it is in memory."""
    encoding = response.headers.get("content-encoding", "identity")
    if response.status in (200, 206) and encoding.strip().lower() not in ("", "identity"):
        raise PageRejected(f"page: its server sends Content-Encoding '{encoding[:40]}' instead of identity")
