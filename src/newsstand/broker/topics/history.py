"""History of topics, page by page in order of time, from storages and from caches.

Answers of caches may be thousands of times as long as the request, so both sides are bounded. `CacheReader`
reads for clients of this broker: a few requests at a time, equal ones shared, and the rest of an answer retained
for the pages that follow. `PeerQueries` answers neighbours: requests wait while much waits on the link, and those
that wait too long, or are too many, get an incomplete answer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from newsstand.concurrency.coalescing import SingleFlight
from newsstand.concurrency.pacing import KeyedSlots
from newsstand.overlay.broker.caching import CachingBroker
from newsstand.overlay.broker.effects import Effect, RequestAnswer, Send
from newsstand.overlay.broker.message_cache import size_of
from newsstand.overlay.broker.requests import GatherKey
from newsstand.overlay.filters.filter import Filter
from newsstand.overlay.messages import CacheRequest, CacheResponse, MessagePosition, Path, Publication

HISTORY_CLIENT = "history"
"""The client of the overlay broker that requests history."""


@dataclass(frozen=True, slots=True)
class StorageReadLimits:
    """Waits of requests to storages."""

    answer_s: float = 10.0
    """How long a storage may take to answer, and how long requests are repeated while the tree changes."""
    retry_s: float = 0.25


@dataclass(frozen=True, slots=True)
class CacheReadLimits:
    """Limits of cache reads for clients."""

    per_client: int = 4
    """Open requests of one client, and answers retained for it."""
    open: int = 64
    """Open requests of all clients."""
    retained: int = 256
    retained_bytes: int = 16 * 1024 * 1024
    retention_s: float = 60.0


@dataclass(frozen=True, slots=True)
class PeerQueryLimits:
    """Limits of cache requests of one neighbour."""

    per_turn: int = 2
    """Requests that are answered in one turn of the event loop."""
    queued: int = 256
    open: int = 16
    """Requests that wait for other brokers."""
    unsent_bytes: int = 4 * 1024 * 1024
    """Bytes that may wait on a link when an answer is added."""
    timeout_s: float = 5.0
    """How long a request may wait, for its turn and for others: less than its sender waits."""
    pause_s: float = 0.05


class CachedHistory(NamedTuple):
    """Publications from caches in order of time, and whether they are all that caches have."""

    publications: Sequence[Publication]
    complete: bool


class _Remainder(NamedTuple):
    history: CachedHistory
    bytes: int
    until: float


Query = Callable[[Hashable, Filter, MessagePosition | None], Awaitable[CachedHistory]]
RemainderKey = tuple[Hashable, Filter, MessagePosition]


@dataclass(eq=False, repr=False)
class CacheReader:
    """Reads of caches by clients of this broker."""

    query: Query
    """Queries caches for a client, for a filter, after a position."""
    limits: CacheReadLimits = CacheReadLimits()

    def __post_init__(self) -> None:
        self._reads = SingleFlight[tuple[Filter, MessagePosition | None], CachedHistory](cancel_abandoned=True)
        self._slots = KeyedSlots[Hashable](self.limits.per_client, self.limits.open)
        self._retained: dict[RemainderKey, _Remainder] = {}

    async def read(self, client: Hashable, wanted: Filter, after: MessagePosition | None) -> CachedHistory:
        """Return what caches have after a position, or the remainder of the client's page that ended there."""
        if after is not None:
            remainder = self._retained.get((client, wanted, after))
            if remainder is not None and remainder.until > asyncio.get_running_loop().time():
                return remainder.history
        return await self._reads.run((wanted, after), lambda: self._limited(client, wanted, after))

    def retain(self, client: Hashable, wanted: Filter, end: MessagePosition, history: CachedHistory) -> None:
        """Retain for a while what follows the end of a page."""
        rest = [one for one in history.publications if one.position > end]
        until = asyncio.get_running_loop().time() + self.limits.retention_s
        key = client, wanted, end
        self._retained.pop(key, None)
        self._retained[key] = _Remainder(CachedHistory(rest, history.complete), sum(map(size_of, rest)), until)
        own = [one for one in self._retained if one[0] == client]
        for old in own[: -self.limits.per_client]:
            del self._retained[old]
        limits = self.limits
        while (
            len(self._retained) > limits.retained
            or sum(one.bytes for one in self._retained.values()) > limits.retained_bytes
        ):
            del self._retained[next(iter(self._retained))]

    def tick(self) -> None:
        """Drop expired remainders; to be called periodically."""
        now = asyncio.get_running_loop().time()
        self._retained = {key: one for key, one in self._retained.items() if one.until > now}

    async def _limited(self, client: Hashable, wanted: Filter, after: MessagePosition | None) -> CachedHistory:
        async with self._slots.hold(client):
            return await self.query(client, wanted, after)


@dataclass(eq=False, repr=False)
class PeerQueries:
    """Cache requests of neighbours."""

    node: CachingBroker
    perform: Callable[[Sequence[Effect]], None]
    unsent_bytes: Callable[[str], int]
    """The bytes that wait on the link to a neighbour."""
    limits: PeerQueryLimits = PeerQueryLimits()

    def __post_init__(self) -> None:
        self._queues: dict[str, deque[tuple[CacheRequest, float]]] = {}
        self._open: dict[str, dict[GatherKey, float]] = {}
        """Requests that wait for other brokers, and until when."""
        self._next: asyncio.Handle | None = None

    def add(self, neighbour: str, request: CacheRequest) -> None:
        queue = self._queues.setdefault(neighbour, deque())
        if len(queue) >= self.limits.queued:
            self._reject(neighbour, request)
            return
        queue.append((request, asyncio.get_running_loop().time() + self.limits.timeout_s))
        self._schedule(0.0)

    def remove_neighbour(self, neighbour: str) -> None:
        """Drop the requests of a neighbour whose link has ended."""
        self._queues.pop(neighbour, None)
        self._open.pop(neighbour, None)

    def tick(self) -> None:
        """End what has waited too long; to be called periodically."""
        now = asyncio.get_running_loop().time()
        for neighbour, queue in list(self._queues.items()):
            while queue and queue[0][1] <= now:
                self._reject(neighbour, queue.popleft()[0])
        for waiting in list(self._open.values()):
            for key in [key for key, until in waiting.items() if until <= now]:
                del waiting[key]
                self.perform(self.node.stop_gather(key))

    def close(self) -> None:
        self._queues.clear()
        if self._next is not None:
            self._next.cancel()

    def _schedule(self, pause_s: float) -> None:
        if self._next is None:
            self._next = asyncio.get_running_loop().call_later(pause_s, self.turn)

    def turn(self) -> None:
        self._next = None
        served = sum([self._serve(neighbour) for neighbour in list(self._queues)])
        self._queues = {neighbour: queue for neighbour, queue in self._queues.items() if queue}
        if self._queues:
            self._schedule(0.0 if served else self.limits.pause_s)

    def _serve(self, neighbour: str) -> int:
        """Answer some requests of a neighbour; return how many."""
        queue, gathers, limits = self._queues[neighbour], self.node.gathers, self.limits
        waiting = {key: until for key, until in self._open.get(neighbour, {}).items() if key in gathers}
        served = 0
        while (
            queue
            and served < limits.per_turn
            and len(waiting) < limits.open
            and self.unsent_bytes(neighbour) < limits.unsent_bytes
        ):
            request, until = queue.popleft()
            key = request.path[0], request.number
            is_new = key not in gathers
            self.perform(self.node.receive(neighbour, request))
            if is_new and key in gathers:
                waiting[key] = until
            served += 1
        self._open[neighbour] = waiting
        return served

    def _reject(self, neighbour: str, request: CacheRequest) -> None:
        self.perform([Send(neighbour, CacheResponse(request.path[0], request.number, complete=False))])


class HistoryPage(NamedTuple):
    """Publications in order; `next` is the position to continue from, None at the end."""

    publications: list[Publication]
    next: MessagePosition | None
    unavailable: tuple[str, ...]
    """Topics whose history is incomplete, or that have neither a storage nor caches."""
    from_cache: tuple[str, ...] = ()
    """Topics without a storage, whose messages come from caches. None of them is unavailable."""
    complete: bool = True
    """Whether all caches have answered, and nothing was cut off their answers."""


@dataclass(slots=True)
class _PendingRequest:
    last: asyncio.Future[RequestAnswer]
    publications: list[Publication] = field(default_factory=list)


@dataclass(eq=False, repr=False)
class HistoryReader:
    """Requests history from storages and caches, and assembles the answers."""

    node: CachingBroker
    perform: Callable[[Sequence[Effect]], None]
    has_storage: Callable[[str], bool]
    """Whether a topic has a storage, reachable or not."""
    find_unreachable: Callable[[Iterable[str]], Awaitable[set[str]]]
    """The topics among some that have storages of which none is reachable."""
    limits: StorageReadLimits = StorageReadLimits()
    cache_limits: CacheReadLimits = CacheReadLimits()

    def __post_init__(self) -> None:
        self.caches = CacheReader(self._request_cached, self.cache_limits)
        self._pending: dict[int, _PendingRequest] = {}

    async def page(
        self, wanted: Filter, after: MessagePosition | None, limit: int, client: Hashable = HISTORY_CLIENT
    ) -> HistoryPage:
        """Return up to `limit` matching publications of all topics, from nearest storages, else from caches."""
        found, last, unavailable = await self._request_stored(wanted, after, limit)
        if not self.node.cache.slots:
            return _page(found, last, limit)
        unstored = {topic for topic in last.unavailable if topic not in unavailable}
        if not unstored and wanted.topics is not None:
            return _page(found, last, limit)
        cached = await self.caches.read(client, wanted, after)
        if wanted.topics is None:
            topics = {one.topic for one in cached.publications}
            unreachable = await self.find_unreachable(topics)
            unstored.update(topic for topic in topics - unreachable if not self.has_storage(topic))
        found += [one for one in cached.publications if one.topic in unstored]
        page = _page(found, last, limit)
        if page.next is not None:
            self.caches.retain(client, wanted, page.next, cached)
        return page._replace(
            unavailable=tuple(sorted(unavailable)), from_cache=tuple(sorted(unstored)), complete=cached.complete
        )

    async def page_of(self, route: Path, topic: str, after: MessagePosition | None, limit: int) -> HistoryPage:
        """Return a page of one topic from one storage."""
        found, last = await self._request(
            lambda: self.node.request_from(route, HISTORY_CLIENT, topic, after=after, limit=limit)
        )
        return _page(found, last, limit)

    def receive(self, answer: RequestAnswer) -> None:
        pending = self._pending.get(answer.number)
        if pending is None:
            return
        pending.publications += answer.publications
        if answer.finished and not pending.last.done():
            pending.last.set_result(answer)

    async def _request_stored(
        self, wanted: Filter, after: MessagePosition | None, limit: int
    ) -> tuple[list[Publication], RequestAnswer, set[str]]:
        """Request stored publications, again while storages do not answer; also return unavailable topics."""
        until = asyncio.get_running_loop().time() + self.limits.answer_s
        while True:
            found, last = await self._request(
                lambda: self.node.request(HISTORY_CLIENT, wanted, after=after, limit=limit)
            )
            reachable = {topic for topic in last.unavailable if topic in self.node.advertisements}
            unavailable = reachable | await self.find_unreachable(set(last.unavailable) - reachable)
            if not unavailable or asyncio.get_running_loop().time() > until:
                return found, last, unavailable
            await asyncio.sleep(self.limits.retry_s)

    async def _request_cached(
        self, client: Hashable, wanted: Filter, after: MessagePosition | None
    ) -> CachedHistory:
        found, last = await self._request(lambda: self.node.request_cached(client, wanted, after=after))
        return CachedHistory(found, last.complete)

    async def _request(
        self, start: Callable[[], tuple[int, list[Effect]]]
    ) -> tuple[list[Publication], RequestAnswer]:
        """Return all publications of a request, and its last answer."""
        number, effects = start()
        pending = self._pending[number] = _PendingRequest(asyncio.get_running_loop().create_future())
        try:
            self.perform(effects)
            try:
                async with asyncio.timeout(self.limits.answer_s):
                    last = await asyncio.shield(pending.last)
            except TimeoutError:
                self.perform(self.node.give_up(number))
                last = await pending.last
        finally:
            del self._pending[number]
            if not pending.last.done():
                self.perform(self.node.give_up(number))
        return pending.publications, last


def _page(found: Sequence[Publication], last: RequestAnswer, limit: int) -> HistoryPage:
    """Return the first publications; a storage that has more has sent as many as a page holds."""
    found = sorted(found, key=attrgetter("position"))
    has_more = bool(last.more) or len(found) > limit
    found = found[:limit]
    return HistoryPage(found, found[-1].position if has_more and found else None, last.unavailable)
