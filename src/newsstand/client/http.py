"""HTTP calls: one attempt, and attempts until one succeeds."""

from __future__ import annotations

import asyncio
import errno
import io
import random
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, TypeVar
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass
from weakref import WeakKeyDictionary

import aiohttp
import msgspec

from newsstand.client.models import RequestRejected, ResourceNotFound, ResultsRemoved, Unreachable, UsageError
from newsstand.concurrency.pacing import Backoff

T = TypeVar("T")
_turns: WeakKeyDictionary[aiohttp.ClientSession, asyncio.Semaphore] = WeakKeyDictionary()
SMALL = 1 << 16
"""Bytes that fit into socket buffers."""


class TransientError(Exception):
    """A failed attempt that may succeed later, not before `after_s`."""

    def __init__(self, reason: str, after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.after_s = after_s


class ServerUnavailable(TransientError):
    """A server that does not answer or is the wrong one; `is_down` if it refused the connection."""

    def __init__(self, reason: str, *, is_down: bool = False) -> None:
        super().__init__(reason)
        self.is_down = is_down


class ApiResponse(NamedTuple):
    """A response with its body; `url` is that of the request, without the query."""

    url: str
    status: int
    headers: Mapping[str, str]
    content: bytes
    seconds: float = 0.0
    """The time from sending the request to the end of the response."""


def new_http(tls: ssl.SSLContext | None = None, concurrent: int = 16) -> aiohttp.ClientSession:
    """Return a pool of connections for clients in the running event loop; they may share it.

    It makes as many requests at a time as `concurrent` says, and so has as many connections besides WebSockets.
    """
    # uvicorn closes idle connections after 5 s; expire ours earlier to avoid a failed request. No limit, because
    # WebSockets would count; a semaphore limits requests.
    connector = aiohttp.TCPConnector(ssl=tls or True, limit=0, keepalive_timeout=3.0)
    cookies = aiohttp.DummyCookieJar()
    http = aiohttp.ClientSession(connector=connector, cookie_jar=cookies, timeout=aiohttp.ClientTimeout())
    _turns[http] = asyncio.Semaphore(concurrent)
    return http


class HttpCalls:
    """HTTP requests through a shared pool of connections, or through one of its own."""

    def __init__(
        self, http: aiohttp.ClientSession | None, tls: ssl.SSLContext | None, pace: Pace, rng: random.Random
    ) -> None:
        self._http = http
        self._own = http is None
        self.tls = tls
        self.pace = pace
        self.rng = rng
        self._timeout = aiohttp.ClientTimeout(connect=pace.answer_s, sock_read=pace.answer_s)

    @property
    def http(self) -> aiohttp.ClientSession:
        """The pool; one of its own is created at its first use, for the event loop that runs then."""
        if self._http is None:
            self._http = new_http(self.tls)
        return self._http

    async def close(self) -> None:
        """Close the pool unless it is shared."""
        if self._own and self._http is not None:
            await self._http.close()

    async def once(
        self,
        method: str,
        url: str,
        *,
        token: str | None = None,
        body: object = None,
        content: bytes | None = None,
        params: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> ApiResponse:
        """Make one attempt; raise TransientError, or ServerUnavailable, if another may succeed."""
        all_headers = dict(headers or {})
        if token is not None:
            all_headers["Authorization"] = f"Bearer {token}"
        if body is not None:
            content = msgspec.json.encode(body)
        if content is not None:
            all_headers.setdefault("Content-Type", "application/json")
        http = self.http
        if http.closed:
            raise UsageError("the client is closed")
        try:
            async with _turns.get(http) or nullcontext():  # a session of the caller has limits of its own
                began = time.perf_counter()
                async with http.request(
                    method,
                    f"{url}?{urlencode(params)}" if params else url,
                    data=io.BytesIO(content) if content is not None and len(content) > SMALL else content,
                    headers=all_headers,
                    allow_redirects=False,
                    proxy=proxy_for(url),
                    timeout=self._timeout_for(content, timeout_s),
                ) as received:
                    body = await received.read()
                seconds = time.perf_counter() - began
                response = ApiResponse(url, received.status, received.headers, body, seconds)
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
            raise UsageError(f"{url}: not a URL such as http://127.0.0.1:8770") from error
        except (aiohttp.ClientError, TimeoutError) as error:
            is_down = isinstance(error, aiohttp.ClientConnectorError)
            raise ServerUnavailable(_reason_of_failure(url, error), is_down=is_down) from error
        if response.status == 421:
            raise ServerUnavailable(f"{url} is not the subscriber's broker")
        if response.status == 429 or response.status >= 500:
            raise TransientError(reason_of(response), _retry_after(response))
        return response

    def _timeout_for(self, content: bytes | None, timeout_s: float | None) -> aiohttp.ClientTimeout:
        """Return the timeout of a request. aiohttp has none for sending a large body."""
        if timeout_s is not None:
            return aiohttp.ClientTimeout(connect=timeout_s, sock_read=timeout_s)
        if content is None or len(content) <= SMALL:
            return self._timeout
        answer_s = self.pace.answer_s
        return aiohttp.ClientTimeout(
            total=answer_s + len(content) / self.pace.slowest, connect=answer_s, sock_read=answer_s
        )

    def backoff(self) -> Backoff:
        """Return the waits between repetitions of one call."""
        return Backoff(self.pace.first_s, self.pace.longest_s, self.rng.random)

    async def with_retries(self, attempt: Callable[[], Awaitable[T]], deadline_s: float | None) -> T:
        """Return the first success; raise Unreachable if there is none before the deadline."""
        until = None if deadline_s is None else time.monotonic() + deadline_s
        backoff = self.backoff()
        while True:
            try:
                return await attempt()
            except TransientError as error:
                wait = error.after_s + backoff.next_s()
                if until is not None and time.monotonic() + wait > until:
                    raise Unreachable(f"{error}; given up after {deadline_s:g} s") from error
            await asyncio.sleep(wait)


def accepted(response: ApiResponse) -> ApiResponse:
    """Return a successful response; raise the error that another one reports."""
    if 200 <= response.status < 300 or response.status == 304:
        return response
    reason = reason_of(response)
    if response.status == 404:
        raise ResourceNotFound(reason, 404)
    if response.status == 410:
        raise ResultsRemoved(reason, decoded(response, _Earliest).earliest)
    raise RequestRejected(reason, response.status)


def decoded(response: ApiResponse, shape: type[T]) -> T:
    """Return the decoded JSON of a response; raise RequestRejected if it has another shape."""
    try:
        return msgspec.json.decode(response.content, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestRejected(f"{response.url} returned an unexpected body: {error}", response.status) from error


def _reason_of_failure(url: str, error: Exception) -> str:
    """Return why there is no response, and what to do if the connection was refused."""
    if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno == errno.ECONNREFUSED:
        return f"{url}: nothing listens at {urlsplit(url).netloc}; start the server, or correct the address"
    return f"{url} does not answer ({type(error).__name__})"


class _ErrorBody(msgspec.Struct):
    error: str


class _Earliest(msgspec.Struct):
    earliest: int


def reason_of(response: ApiResponse) -> str:
    """Return the error message of a response, in one line."""
    try:
        return " ".join(msgspec.json.decode(response.content, type=_ErrorBody).error.split())
    except (msgspec.DecodeError, UnicodeDecodeError):
        return f"{response.url} returned status {response.status}"


def _retry_after(response: ApiResponse) -> float:
    try:
        return min(60.0, max(0.0, float(response.headers.get("Retry-After", 0))))
    except ValueError:
        return 0.0


def proxy_for(url: str) -> str | None:
    """Return the proxy for an address, if any: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY."""
    return _proxy_of("/".join(url.split("/", 3)[:3]))


@cache
def _proxy_of(origin: str) -> str | None:
    """Look up the proxy of a server, once: the lookup takes longer than building a request."""
    scheme, netloc = urlsplit(origin)[:2]
    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    if proxy is None or proxy_bypass(netloc):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


@dataclass(frozen=True)
class Pace:
    """Timeouts, delays and batch sizes of a client."""

    deadline_s: float = 30.0
    """How long a call is retried before it raises Unreachable. Iterating over results never gives up."""
    first_s: float = 0.5
    longest_s: float = 5.0
    """A retry waits a random time of at most `first_s`, then twice that … up to `longest_s`."""
    answer_s: float = 15.0
    """How long one response may take."""
    slowest: int = 1 << 16
    """Bytes per second at which a large body may be sent."""
    acks: int = 100
    ack_within_s: float = 0.2
    """Acknowledgements are sent together: after this number of results, or these seconds."""
    read_delay_s: float = 0.0
    """After a notification, a read waits a random time of at most this, so that results are read together."""
    poll_s: float = 30.0
    """After this time without a notification, a client reads all the same."""
    flush_s: float = 5.0
    """How long `close` sends the last acknowledgements, and again, waits for a pending renewal of tokens."""
    heartbeat_s: float = 20.0
    """Silence after which a ping is sent; without a pong the connection is lost after half of that time."""
    limit: int = 100
    """Results or messages in one response, at most 1000."""
    inline_results: int = 100
    """Results of a subscription that may come with notifications and wait to be iterated over; 0: none come."""
    redirect_s: float = 3.0
    """How long another broker may take to send a page; then the subscriber's broker sends it."""
    failover_s: float = 1.5
    """How long a broker that refuses connections is avoided while the coordinator still names it."""
    queued_messages: int = 1000
    """Queued messages of topics above which no more are read, unless the caller waits for an answer."""
    known_messages: int = 4096
    """Ids of messages that are remembered to drop duplicates."""
