"""The HTTP API of the data cluster, as a broker calls it."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

import msgspec

from newsstand.broker.coordinator_client.client import ErrorResponse, IncarnationSuperseded
from newsstand.broker.pages.content import PageResponse, steady
from newsstand.broker.results.broker import PositionRange
from newsstand.broker.sessions.store import SubscriberStore
from newsstand.concurrency.coalescing import SingleFlight
from newsstand.errors import BadInput, BadValues, NewsstandError, NotFound, ResultsExpired
from newsstand.http.client import HttpClient, HttpResponse, RequestError, read_bounded
from newsstand.http.pages import REDIRECT
from newsstand.model import ChannelDefinition, Parameter, Scalar
from newsstand.wire.cluster import (
    MOST_RESULTS,
    AnnounceResponse,
    BackendSubscriptionList,
    ClusterBroker,
    FetchedResult,
    StreamPage,
    StreamPages,
    StreamRange,
    StreamStatus,
    SubscribeRequest,
    SubscribeResponse,
    fetched,
)

T = TypeVar("T")
logger = logging.getLogger(__name__)
MAX_AGE_S = 30.0
"""The age at which the list of channels is fetched again."""
PAGE_S = 5.0
"""How long the cluster may take to begin the response with a page, and between two chunks."""
LONGEST_PAGE_S = 24 * 3600.0
"""The time limit for a page that is streamed to a slow reader."""
MOST_REDIRECT_BYTES = 16 << 20
MOST_RESULT_BYTES = 1 << 30
_REDIRECTS = (301, 302, 303, 307, 308)


class ClusterUnavailable(NewsstandError):
    """The data cluster does not respond, or its response is unexpected."""

    http_status = 503


class BrokerTokenRejected(ClusterUnavailable):
    """The data cluster does not accept the broker's token."""


class ExternalPage(NewsstandError):
    """The cluster does not hold the page, but knows the URL of the server that does."""

    def __init__(self, url: str) -> None:
        super().__init__("the page is on a server outside the platform")
        self.url = url


class OriginRedirect(msgspec.Struct, frozen=True):
    """A redirect to a broker, with all pages of the origin that are there."""

    server: str
    url: str
    pages: list[str] = []


class RedirectedToPeer(NewsstandError):
    """A page that the origin redirects to another broker."""

    def __init__(self, redirect: OriginRedirect) -> None:
        super().__init__(f"the page is at broker '{redirect.server}'")
        self.redirect = redirect


class _ChannelEntry(msgspec.Struct):
    name: str
    query: str = ""
    new: str = ""
    parameters: dict[str, str] = {}
    period: str | float | None = None
    bind: dict[str, str] = {}


class _ChannelPage(msgspec.Struct):
    channels: list[_ChannelEntry]
    next: str | None = None


class ClusterClient:
    """One call per method; ClusterUnavailable means that a later call may succeed."""

    def __init__(self, http: HttpClient, broker: str) -> None:
        """`http` has the cluster's address as its base and the broker's token among its headers."""
        self._http = http
        self._broker = broker
        self.is_up = False

    async def register(self, callback: str) -> str | None:
        """Register the broker's webhook; return the secret of a broker that is new to the cluster."""
        return _decoded(await self._request("PUT", "", {"callback": callback}), ClusterBroker).secret

    async def check_in(self) -> None:
        """Check that this process still is the broker; raise IncarnationSuperseded if another one is."""
        await self._request("GET", "")

    async def leave(self) -> None:
        """Drop this broker with its subscriptions."""
        await self._request("DELETE", "")

    async def channels(self) -> dict[str, ChannelDefinition]:
        """Return all channels by name."""
        listed: list[_ChannelEntry] = []
        query = ""
        while True:
            page = _decoded(await self._send("GET", f"/channels{query}"), _ChannelPage)
            listed += page.channels
            if not page.next:
                break
            query = f"?after={page.next}"
        return {
            one.name: ChannelDefinition(
                one.name,
                one.query,
                one.new,
                tuple(Parameter(name, kind) for name, kind in one.parameters.items()),
                one.period if isinstance(one.period, float) else None,
                bind=tuple(one.bind.items()),
            )
            for one in listed
        }

    async def subscribe(self, wanted: Sequence[SubscribeRequest]) -> list[tuple[str, StreamStatus]]:
        """Create or update backend subscriptions, all or none; return their ids and their streams' extents."""
        response = await self._request("POST", "/subscriptions", wanted, timeout_s=60)
        ids = _decoded(response, SubscribeResponse).ids
        pages = await self._read_all([StreamRange(one, limit=0) for one in ids])
        return [(one.subscription, StreamStatus(one.head, one.earliest, one.suspended)) for one in pages]

    async def drop(self, ids: Sequence[str]) -> None:
        await self._request("DELETE", "/subscriptions", list(ids), timeout_s=60)

    async def subscriptions(self) -> AsyncIterator[str]:
        """Yield the ids of all backend subscriptions of this broker at the cluster."""
        query = "?limit=10000"
        while True:
            page = _decoded(await self._request("GET", f"/subscriptions{query}"), BackendSubscriptionList)
            for one in page.subscriptions:
                yield one.id
            if not page.next:
                return
            query = f"?limit=10000&after={page.next}"

    async def read(self, spans: Mapping[str, PositionRange]) -> dict[str, list[FetchedResult] | Exception]:
        """Return the results of a range of each stream, oldest first, with as few calls as possible."""
        read: dict[str, list[FetchedResult]] = {stream: [] for stream in spans}
        failed: dict[str, Exception] = {}
        left = dict(spans)
        progress = True
        while left and progress:
            pages = await self._read_all(
                [
                    StreamRange(stream, span.after, span.until, min(MOST_RESULTS, len(span)))
                    for stream, span in left.items()
                ]
            )
            unknown = left.keys() - {one.subscription for one in pages}
            progress = bool(unknown)
            for stream in unknown:
                del left[stream]
                failed[stream] = ClusterUnavailable("the data cluster does not know the stream")
            for one in pages:
                span, results = left[one.subscription], [fetched(raw) for raw in one.results]
                read[one.subscription] += results
                last = results[-1].position if results else span.after
                is_removed = one.earliest > span.after + 1
                if is_removed and not read[one.subscription]:
                    failed[one.subscription] = ResultsExpired(one.earliest)
                if is_removed or last >= min(span.until, one.head):
                    del left[one.subscription]
                    progress = True
                elif results:
                    left[one.subscription] = PositionRange(last, span.until)
                    progress = True
        return {**read, **failed}

    async def _read_all(self, ranges: Sequence[StreamRange]) -> list[StreamPage[msgspec.Raw]]:
        response = await self._request("POST", "/results", list(ranges), timeout_s=60)
        return _decoded(response, StreamPages[msgspec.Raw]).streams

    @asynccontextmanager
    async def page(self, path: str, headers: Mapping[str, str]) -> AsyncIterator[PageResponse]:
        """Open a page of the cluster for reading in chunks.

        Raise RedirectedToPeer if the cluster names another broker, ExternalPage if it names another server.
        """
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(PAGE_S):
                    opening = self._http.stream("GET", f"/{path}", headers=headers, timeout_s=LONGEST_PAGE_S)
                    response = await stack.enter_async_context(opening)
                if response.status == 307 and REDIRECT in response.headers:
                    body = await read_bounded(response, MOST_REDIRECT_BYTES)
                    raise RedirectedToPeer(msgspec.json.decode(body, type=OriginRedirect))
                if response.status in _REDIRECTS and "location" in response.headers:
                    raise ExternalPage(response.headers["location"])
                chunks = steady(response.content.iter_any(), PAGE_S)
                yield PageResponse(path, response.status, response.headers, chunks)
            except TimeoutError:
                raise ClusterUnavailable(f"the data cluster does not respond within {PAGE_S:g} s") from None
            except msgspec.DecodeError as error:
                raise ClusterUnavailable(f"the data cluster's response is malformed: {error}") from error
            except RequestError as error:
                raise ClusterUnavailable(f"the data cluster does not respond: {error.reason}") from error

    async def announce(self, announcement: Mapping[str, object]) -> AnnounceResponse:
        """Announce the push-cache of this broker: its location and its pages."""
        return _decoded(await self._request("PUT", "/push-cache", announcement), AnnounceResponse)

    async def withdraw(self) -> None:
        await self._request("DELETE", "/push-cache")

    async def _request(self, method: str, path: str, body: object = None, timeout_s: float = 10.0) -> HttpResponse:
        """Call a route of this broker."""
        return await self._send(method, f"/brokers/{self._broker}{path}", body, timeout_s)

    async def _send(self, method: str, path: str, body: object = None, timeout_s: float = 10.0) -> HttpResponse:
        try:
            response = await self._http.request(
                method, path, json=body, timeout_s=timeout_s, most_bytes=MOST_RESULT_BYTES
            )
        except RequestError as error:
            self.is_up = False
            raise ClusterUnavailable(f"the data cluster does not respond: {error.reason}") from error
        self.is_up = response.status < 500
        if response.is_success:
            return response
        raise _fault(response)


def _decoded(response: HttpResponse, shape: type[T]) -> T:
    try:
        return response.decode(shape)
    except RequestError as error:
        raise ClusterUnavailable(f"the data cluster's response is malformed: {error.reason}") from error


def _fault(response: HttpResponse) -> NewsstandError:
    problem = ErrorResponse.of(response)
    match response.status:
        case 404:
            return NotFound(problem.error)
        case 409 if problem.reason == "duplicate":
            return IncarnationSuperseded(problem.error)
        case 410:
            return ResultsExpired(problem.earliest)
        case 422:
            return BadValues(problem.error)
        case 401 | 403:
            return BrokerTokenRejected(f"the data cluster does not accept the broker's token: {problem.error}")
        case 400 | 413:
            return BadInput(f"the data cluster rejects the request ({response.status}): {problem.error}")
        case status:
            return ClusterUnavailable(f"the data cluster responds {status}: {problem.error}")


class ChannelDirectory:
    """A cached list of channels, refreshed when it is old; without the cluster the old list is used."""

    def __init__(
        self,
        fetch: Callable[[], Awaitable[dict[str, ChannelDefinition]]],
        store: SubscriberStore | None = None,
        clock: Callable[[], float] = time.monotonic,
        on_change: Callable[[Mapping[str, ChannelDefinition] | None], None] = lambda previous: None,
    ) -> None:
        """Load the list that `store` has, and save later lists there.

        `on_change` is called after each change with the previous list, None after the first load.
        """
        self._clock = clock
        self._on_change = on_change
        self._fetch = fetch
        self._store = store
        self._loaded_at = -math.inf
        self._requests = SingleFlight[None, dict[str, ChannelDefinition]]()
        self._saved = store.get_meta("channels") if store is not None else None
        self.known: dict[str, ChannelDefinition] = {}
        self.is_loaded = False
        """Whether the list was loaded, now or before a restart; without it the rules of channels are unknown."""
        if self._saved is not None:
            try:
                self.known = msgspec.json.decode(self._saved, type=dict[str, ChannelDefinition])
                self.is_loaded = True
            except msgspec.DecodeError:
                logger.warning("the saved list of channels has another format; it is fetched from the cluster")

    async def get(self, max_age_s: float = MAX_AGE_S) -> dict[str, ChannelDefinition]:
        """Return all channels by name; fetch the list if it is older than `max_age_s`."""
        if self._clock() - self._loaded_at >= max_age_s:
            try:
                found = await self._requests.run(None, self._load)
            except NewsstandError:
                if not self.is_loaded:
                    raise
                found = self.known
            previous = self.known if self.is_loaded else None
            self.known, self.is_loaded = found, True
            if found != previous:
                self._on_change(previous)
            self._loaded_at = self._clock()
        return self.known

    async def ensure_loaded(self) -> None:
        """Wait until the channels are known; raise the error of the request if it fails."""
        if not self.is_loaded:
            await self.get(math.inf)

    async def find(self, name: str) -> ChannelDefinition:
        """Return one channel; raise NotFound."""
        channels = await self.get()
        if name not in channels:
            channels = await self.get(max_age_s=1.0)  # it may be new
        if name not in channels:
            raise NotFound(f"there is no channel '{name}'")
        return channels[name]

    def values_by_name(self, channel: str, values: Sequence[Scalar]) -> dict[str, Scalar]:
        """Return the values of a channel's parameters by name; empty if the channel is not known."""
        known = self.known.get(channel)
        names = [one.name for one in known.parameters] if known is not None else []
        return dict(zip(names, values, strict=False))

    async def _load(self) -> dict[str, ChannelDefinition]:
        channels = await self._fetch()
        text = msgspec.json.encode(channels).decode()
        if self._store is not None and text != self._saved:
            try:
                await asyncio.to_thread(self._store.set_meta, "channels", text)
                self._saved = text
            except Exception:  # the list is usable all the same
                logger.exception("the list of channels could not be saved")
        return channels
