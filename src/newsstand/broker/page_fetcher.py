"""Fetches of pages that servers outside the platform hold, whose URLs publishers choose.

A request carries no token or cookie and uses no proxy. At each hop all addresses of the host are checked, and the
connection goes to one of them. A fetch has a deadline and a minimum rate, and an address has a few fetches at a
time: one slow server takes no slots of others, whatever names it has.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import ip_network

import httpx

from newsstand.broker.page_hosts import PORTS, Address, PageHosts
from newsstand.broker.upstream import IDENTITY, Away
from newsstand.errors import BadInput

REDIRECTS = 5
PER_SERVER, IN_ALL = 4, 64
"""Fetches at a time."""
HEAD_S = 15.0
"""How long a server may take until the head of its answer is there."""
PATIENCE_S, SLOWEST = 10.0, 10_000
"""Of a page so many bytes a second have to come, counted over so many seconds of waiting for its server."""
FETCH_S, STREAM_S = 60.0, 3600.0
"""How long a fetch may take: of a page that is kept, and of one that is passed on at the pace of its reader."""
TIMEOUT = httpx.Timeout(10.0, connect=5.0)
_SENT = ("if-none-match", "if-range", "range")
"""Headers of the broker's request that other servers see."""


class PageRefused(Away):
    """A page whose server must not be asked, or whose answer is not accepted."""


class ServerSlots:
    """Slots for fetches, a few for each server; used from the event loop's thread only."""

    def __init__(self, per_server: int = PER_SERVER, in_all: int = IN_ALL) -> None:
        self._per_server = per_server
        self._all = asyncio.Semaphore(in_all)
        self._servers: dict[str, tuple[asyncio.Semaphore, int]] = {}

    @asynccontextmanager
    async def hold(self, server: str) -> AsyncIterator[None]:
        """Hold a slot. Whoever waits for a server takes no slot of the others."""
        semaphore, users = self._servers.get(server) or (asyncio.Semaphore(self._per_server), 0)
        self._servers[server] = semaphore, users + 1
        try:
            async with semaphore, self._all:
                yield
        finally:
            semaphore, users = self._servers.pop(server)
            if users > 1:
                self._servers[server] = semaphore, users - 1


class PageFetcher:
    """Fetches pages from servers outside the platform."""

    def __init__(
        self,
        hosts: PageHosts,
        verify: ssl.SSLContext | bool = True,
        *,
        fetch_s: float = FETCH_S,
        head_s: float = HEAD_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._hosts = hosts
        self._fetch_s = fetch_s
        self._head_s = head_s
        self._patience_s = patience_s
        self._slots = ServerSlots()
        # The pool knows connections by address. One that was verified for a name must not serve another name.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        self._transport = httpx.AsyncHTTPTransport(verify=verify, trust_env=False, limits=limits)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._transport.aclose()
        self._hosts.close()

    @asynccontextmanager
    async def open(
        self, url: str, headers: Mapping[str, str], *, streamed: bool = False
    ) -> AsyncIterator[httpx.Response]:
        """Open a page, to be read piece by piece; raise Away, which reading may do, too.

        A page that is `streamed` goes at the pace of its reader, so it leaves its slot when its server answers.
        """
        begun = asyncio.get_running_loop().time()
        sent = {name: value for name, value in headers.items() if name.lower() in _SENT}
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout_at(begun + self._fetch_s):
                    response = await self._follow(url, sent, stack, streamed)
            except TimeoutError:
                raise Away(f"the page's server does not answer within {self._fetch_s:g} s") from None
            except (httpx.HTTPError, OSError) as error:
                raise Away(f"the page's server does not answer ({type(error).__name__})") from error
            except (BadInput, httpx.InvalidURL, ValueError) as error:  # httpx decodes hosts of redirects
                raise PageRefused(f"page: url: {error}") from error
            assert isinstance(response.stream, httpx.AsyncByteStream)
            until = begun + (STREAM_S if streamed else self._fetch_s)
            response.stream = _Body(response.stream, until, self._patience_s)
            yield response

    async def _follow(
        self, text: str, headers: Mapping[str, str], stack: AsyncExitStack, streamed: bool
    ) -> httpx.Response:
        url = httpx.URL(text)
        for _ in range(REDIRECTS + 1):
            async with AsyncExitStack() as hop:
                addresses = await self._addresses(url)
                slot = await hop.enter_async_context(AsyncExitStack())
                await slot.enter_async_context(self._slots.hold(_server(addresses)))
                try:
                    async with asyncio.timeout(self._head_s):
                        response = await self._send(url, addresses, headers)
                except TimeoutError:
                    raise Away(f"the page's server does not answer within {self._head_s:g} s") from None
                hop.push_async_callback(response.aclose)
                if not response.has_redirect_location:
                    if streamed:
                        await slot.aclose()
                    stack.push_async_exit(hop.pop_all())
                    return response
                url = url.join(response.headers["location"])
        raise BadInput(f"more than {REDIRECTS} redirects")

    async def _addresses(self, url: httpx.URL) -> list[Address]:
        if url.scheme not in PORTS or not url.raw_host or url.userinfo:
            raise BadInput("must be an http:// or https:// address without user and password")
        return await self._hosts.addresses(url.raw_host.decode(), url.port or PORTS[url.scheme])

    async def _send(
        self, url: httpx.URL, addresses: Sequence[Address], headers: Mapping[str, str]
    ) -> httpx.Response:
        fault: Exception = OSError("no address")
        for address in addresses:
            request = httpx.Request(
                "GET",
                url.copy_with(host=str(address)),
                headers={"Host": url.netloc.decode(), "Accept": "*/*", **IDENTITY, **headers},
                extensions={"sni_hostname": url.raw_host.decode(), "timeout": TIMEOUT.as_dict()},
            )
            try:
                response = await self._transport.handle_async_request(request)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                fault = error
                continue
            response.request = httpx.Request("GET", url)
            return response
        raise fault


class _Body(httpx.AsyncByteStream):
    """The body of an answer, until a deadline, and not too slow: the time that its reader takes does not count."""

    def __init__(self, stream: httpx.AsyncByteStream, until: float, patience_s: float) -> None:
        self._stream = stream
        self._until = until
        self._patience_s = patience_s

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces = aiter(self._stream)
        loop = asyncio.get_running_loop()
        left, size = self._patience_s, 0
        while True:
            asked = loop.time()
            try:
                # Not around the whole: whoever reads may be another task than the one that has opened the page.
                async with asyncio.timeout_at(min(self._until, asked + left)):
                    piece = await anext(pieces)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise Away("the page's server takes too long") from None
            except httpx.HTTPError as error:
                raise Away(f"the page's server stops answering ({type(error).__name__})") from error
            left, size = left - (loop.time() - asked), size + len(piece)
            if size >= SLOWEST * self._patience_s:
                left, size = self._patience_s, 0
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


def _server(addresses: Sequence[Address]) -> str:
    """Return what stands for a server, however many names it has, and for a whole site in IPv6.

    >>> from ipaddress import ip_address
    >>> _server([ip_address("2600:1:2:3::4"), ip_address("8.8.8.8")])
    '2600:1:2::/48'
    """
    first = addresses[0]
    return str(first if first.version == 4 else ip_network((first, 48), strict=False))


def refuse_encoded(response: httpx.Response) -> None:
    """Raise PageRefused if a page comes compressed: its size is not known before it is in memory."""
    encoding = response.headers.get("content-encoding", "identity")
    if response.status_code in (200, 206) and encoding.strip().lower() not in ("", "identity"):
        raise PageRefused(f"page: its server answers with Content-Encoding '{encoding[:40]}', asked for identity")
