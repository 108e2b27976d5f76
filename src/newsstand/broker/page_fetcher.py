"""Fetches of pages that servers outside the platform hold, whose URLs publishers choose.

A request carries no token or cookie and uses no proxy. At each hop all addresses of the host are checked, and the
connection goes to one of them. A fetch has a deadline, and a host has a few fetches at a time.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import httpx

from newsstand.broker.page_hosts import PORTS, PageHosts
from newsstand.broker.upstream import IDENTITY, Away
from newsstand.errors import BadInput

REDIRECTS = 5
PER_HOST, IN_ALL = 4, 32
"""Fetches at a time."""
FETCH_S, STREAM_S = 60.0, 3600.0
"""How long a fetch may take: of a page that is kept, and of one that is passed on at the pace of its reader."""
TIMEOUT = httpx.Timeout(10.0, connect=5.0)
_SENT = ("if-none-match", "if-range", "range")
"""Headers of the broker's request that other servers see."""


class PageRefused(Away):
    """A page whose server must not be asked, or whose answer is not accepted."""


class HostSlots:
    """Slots for fetches, a few for each host; used from the event loop's thread only."""

    def __init__(self, per_host: int = PER_HOST, in_all: int = IN_ALL) -> None:
        self._per_host = per_host
        self._all = asyncio.Semaphore(in_all)
        self._hosts: dict[str, tuple[asyncio.Semaphore, int]] = {}

    @asynccontextmanager
    async def hold(self, host: str) -> AsyncIterator[None]:
        """Hold a slot. Whoever waits for a host takes no slot of the others."""
        semaphore, users = self._hosts.get(host) or (asyncio.Semaphore(self._per_host), 0)
        self._hosts[host] = semaphore, users + 1
        try:
            async with semaphore, self._all:
                yield
        finally:
            semaphore, users = self._hosts.pop(host)
            if users > 1:
                self._hosts[host] = semaphore, users - 1


class PageFetcher:
    """Fetches pages from servers outside the platform."""

    def __init__(
        self, hosts: PageHosts, verify: ssl.SSLContext | bool = True, *, fetch_s: float = FETCH_S
    ) -> None:
        self._hosts = hosts
        self._fetch_s = fetch_s
        self._slots = HostSlots()
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
            except (BadInput, httpx.InvalidURL) as error:
                raise PageRefused(f"page: url: {error}") from error
            assert isinstance(response.stream, httpx.AsyncByteStream)
            response.stream = _Body(response.stream, begun + (STREAM_S if streamed else self._fetch_s))
            yield response

    async def _follow(
        self, text: str, headers: Mapping[str, str], stack: AsyncExitStack, streamed: bool
    ) -> httpx.Response:
        url = httpx.URL(text)
        for _ in range(REDIRECTS + 1):
            async with AsyncExitStack() as hop:
                slot = await hop.enter_async_context(AsyncExitStack())
                await slot.enter_async_context(self._slots.hold(url.raw_host.decode()))
                response = await self._send(url, headers)
                hop.push_async_callback(response.aclose)
                if not response.has_redirect_location:
                    if streamed:
                        await slot.aclose()
                    stack.push_async_exit(hop.pop_all())
                    return response
                url = url.join(response.headers["location"])
        raise BadInput(f"more than {REDIRECTS} redirects")

    async def _send(self, url: httpx.URL, headers: Mapping[str, str]) -> httpx.Response:
        if url.scheme not in PORTS or not url.raw_host or url.userinfo:
            raise BadInput("must be an http:// or https:// address without user and password")
        host = url.raw_host.decode()
        addresses = await self._hosts.addresses(host, url.port or PORTS[url.scheme])
        fault: Exception = OSError("no address")
        for address in addresses:
            request = httpx.Request(
                "GET",
                url.copy_with(host=str(address)),
                headers={"Host": url.netloc.decode(), "Accept": "*/*", **IDENTITY, **headers},
                extensions={"sni_hostname": host, "timeout": TIMEOUT.as_dict()},
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
    """The body of an answer, until a deadline."""

    def __init__(self, stream: httpx.AsyncByteStream, until: float) -> None:
        self._stream = stream
        self._until = until

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces = aiter(self._stream)
        while True:
            try:
                # Not around the whole: whoever reads may be another task than the one that has opened the page.
                async with asyncio.timeout_at(self._until):
                    piece = await anext(pieces)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise Away("the page's server takes too long") from None
            except httpx.HTTPError as error:
                raise Away(f"the page's server stops answering ({type(error).__name__})") from error
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


def refuse_encoded(response: httpx.Response) -> None:
    """Raise PageRefused if a page comes compressed: its size is not known before it is in memory."""
    encoding = response.headers.get("content-encoding", "identity")
    if response.status_code in (200, 206) and encoding.strip().lower() not in ("", "identity"):
        raise PageRefused(f"page: its server answers with Content-Encoding '{encoding[:40]}', asked for identity")
