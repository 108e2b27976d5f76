"""Pulls of new results from the cluster into the caches, and notifications to subscribers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter

from newsstand.broker.cluster_client.client import ClusterClient, ClusterUnavailable
from newsstand.broker.event_log import EventLog
from newsstand.broker.metrics import Metrics
from newsstand.broker.results.broker import PositionRange, ResultBroker
from newsstand.broker.results.deliveries import DeliveryHistory
from newsstand.broker.results.subscription_sync import SubscriptionSync
from newsstand.broker.websocket.hub import Hub
from newsstand.concurrency.coalescing import Batcher, SingleFlight
from newsstand.concurrency.pacing import Backoff
from newsstand.errors import NewsstandError, NotFound, ResultsExpired
from newsstand.wire.cluster import FetchedResult

logger = logging.getLogger(__name__)
FROM_CACHE = b',"origin":"cache","latency_ms":0}'
"""The end of the JSON of a cached result, after `FetchedResult.json_prefix`."""

Read = Callable[[Mapping[str, PositionRange]], Awaitable[Mapping[str, list[FetchedResult] | Exception]]]


class RangeFetcher:
    """Reads ranges of streams from the cluster; no position is read twice at a time.

    Reads of many streams that are requested at the same moment are one call.
    """

    def __init__(self, read: Read, most: int = 2000) -> None:
        """`most` is the number of streams in one call of `read`."""
        self._read = read
        self._calls = Batcher[tuple[str, PositionRange], list[FetchedResult]](
            self._read_all, most=most, key=itemgetter(0)
        )
        self._reads: dict[str, SingleFlight[PositionRange, list[FetchedResult]]] = {}

    async def _read_all(self, requests: list[tuple[str, PositionRange]]) -> list[list[FetchedResult] | Exception]:
        found = await self._read(dict(requests))
        return [found[stream] for stream, _ in requests]

    async def get(self, stream: str, span: PositionRange) -> list[FetchedResult]:
        """Return the results of a span, oldest first; fewer where the cluster has fewer."""
        reads = self._reads.setdefault(stream, SingleFlight())
        shared = [(common, other) for other in reads if len(common := _common(span, other))]
        rest = _rest(span, [part for part, _ in shared])
        parts = [*shared, *((one, one) for one in rest)]
        found = await asyncio.gather(*(self._start(reads, stream, span) for _, span in parts))
        results = [
            one
            for (part, _), fetched in zip(parts, found, strict=True)
            for one in fetched
            if part.after < one.position <= part.until
        ]
        results.sort(key=lambda one: one.position)
        return results

    def _start(
        self, reads: SingleFlight[PositionRange, list[FetchedResult]], stream: str, span: PositionRange
    ) -> Awaitable[list[FetchedResult]]:
        """Start a read at once, before another reader looks for reads that are under way."""

        def done(_: object) -> None:
            if not reads and self._reads.get(stream) is reads:
                del self._reads[stream]

        task = reads.start(span, lambda: self._calls.submit((stream, span)))
        task.add_done_callback(done)
        return asyncio.shield(task)  # a reader that is cancelled leaves the results to the others


def _common(one: PositionRange, other: PositionRange) -> PositionRange:
    return PositionRange(max(one.after, other.after), min(one.until, other.until))


def _rest(span: PositionRange, taken: list[PositionRange]) -> list[PositionRange]:
    """Return the rest of a range without these parts."""
    rest, at = [], span.after
    for part in sorted(taken):
        if part.after > at:
            rest.append(PositionRange(at, part.after))
        at = max(at, part.until)
    if at < span.until:
        rest.append(PositionRange(at, span.until))
    return rest


def _continuing(after: int, results: Iterable[FetchedResult]) -> list[FetchedResult]:
    """Return the results after a position, up to the first missing one."""
    rest = [one for one in results if one.position > after]
    return [one for wanted, one in enumerate(rest, after + 1) if one.position == wanted]


@dataclass(frozen=True, slots=True)
class PullerLimits:
    """Limits of pulls."""

    streams: int = 64
    """Streams that are pulled at a time."""
    results: int = 1000
    """Results in one pull."""
    inline_bytes: int = 16 * 1024
    """Bytes of all results in one frame; more are left out together."""


@dataclass(eq=False, repr=False)
class Puller:
    """Pulls new results of each stream in their order, and notifies followers when they are cached."""

    core: ResultBroker[str, bytes]
    cluster: ClusterClient
    sync: SubscriptionSync
    hub: Hub
    metrics: Metrics
    log: EventLog
    now_ms: Callable[[], int]
    limits: PullerLimits = PullerLimits()
    deliveries: DeliveryHistory = field(default_factory=DeliveryHistory)

    def __post_init__(self) -> None:
        self.pulling: dict[str, asyncio.Task[None]] = {}
        """The streams that are being pulled."""
        self._early: dict[str, list[FetchedResult]] = {}
        """The first results of each of these streams that were pushed meanwhile, until they are pulled."""
        self._turn = asyncio.Semaphore(self.limits.streams)
        self.fetcher = RangeFetcher(self._read)

    def on_progress(self, stream: str, position: int, results: list[FetchedResult], at_ms: int | None) -> None:
        """Handle the new position of a stream, with its results if the cluster has pushed them."""
        now, after = self.now_ms(), self.core.pulled(stream)
        span = self.core.advance(stream, position, now)
        if span is not None and results:
            if results[0].position <= span.after + 1:
                self._put(stream, _continuing(span.after, results), now)
                span = self.core.advance(stream, position, now)
            elif stream in self.pulling:
                early = self._early.get(stream)
                if early is None or early[-1].position <= span.after:
                    self._early[stream] = results
        if span is not None:
            self._pull(stream)
        else:
            self._notify(stream, at_ms or now, after)

    def on_extent(self, stream: str, head: int) -> None:
        """Handle the position of a stream after a start, or of a new subscription."""
        grown = stream in self.core and head > self.core.head(stream)
        if self.core.advance(stream, head, self.now_ms()) is not None:
            self._pull(stream)
        elif grown:
            self._notify(stream, self.now_ms())

    def close(self) -> None:
        for task in list(self.pulling.values()):
            task.cancel()

    def _pull(self, stream: str) -> None:
        if stream not in self.pulling:
            self.pulling[stream] = asyncio.create_task(self._pull_all(stream))

    async def _pull_all(self, stream: str) -> None:
        """Pull until nothing is left; retry while the cluster is unavailable."""
        backoff, notified = Backoff(), 0
        try:
            while (span := self.core.advance(stream, 0, self.now_ms())) is not None:
                part = PositionRange(span.after, min(span.until, span.after + self.limits.results))
                try:
                    async with self._turn:
                        fetched = await self.fetcher.get(stream, part)
                except ResultsExpired as error:
                    self.core.skip(stream, max(error.earliest - 1, span.after + 1))
                except NewsstandError as error:
                    logger.warning("results of %s could not be pulled: %s", stream, error)
                    await backoff.wait()
                else:
                    backoff.reset()
                    if not fetched:
                        self.core.skip(stream, part.until)
                    after = self.core.pulled(stream)  # a notification may have brought results meanwhile
                    self._put(stream, fetched, self.now_ms())
                    if early := _continuing(self.core.pulled(stream), self._early.get(stream, ())):
                        del self._early[stream]
                        self._put(stream, early, self.now_ms())
                    produced_ms = fetched[-1].at_ms if fetched else self.now_ms()
                    notified = self._notify(stream, produced_ms, after)
        except Exception:  # followers are notified all the same
            logger.exception("results of %s could not be pulled", stream)
        finally:
            self.pulling.pop(stream, None)  # not later: a new position from now on needs another pull
            self._early.pop(stream, None)
            if stream in self.core and notified < self.core.head(stream):  # retention has removed the rest
                self._notify(stream, self.now_ms())

    async def _read(self, spans: Mapping[str, PositionRange]) -> Mapping[str, list[FetchedResult] | Exception]:
        """Read from the cluster; register this broker or a stream again if the cluster has lost it."""
        try:
            found = await self.cluster.read(spans)
        except NotFound as error:
            self.sync.mark_all_dirty()
            raise ClusterUnavailable(
                f"the data cluster does not know this broker; it is being registered again: {error}"
            ) from error
        for stream, results in found.items():
            if isinstance(results, ClusterUnavailable):
                self.sync.mark_dirty(stream)
        return found

    def _put(self, stream: str, fetched: list[FetchedResult], now: int) -> None:
        self.core.results.advance(now)
        pulled = self.core.pulled(stream)
        values = [(one.position, one.json_prefix + FROM_CACHE) for one in fetched if one.position > pulled]
        self.core.put(stream, ((position, len(value), value) for position, value in values), now)
        self.log.results_pulled(now, stream, [len(value) for _, value in values])
        self.deliveries.pulled(stream, self.core.pulled(stream), now)

    def _notify(self, stream: str, produced_ms: int, after: int | None = None) -> int:
        """Send the position of a stream to its followers, and small results after `after`; return the position.

        A result in a frame counts as one that its receiver has read from the cache.
        """
        if stream not in self.core:
            return 0
        now, head = self.now_ms(), self.core.head(stream)

        def results() -> list[bytes]:
            found = () if after is None else self.core.cached_after(stream, after, self.limits.inline_bytes)
            return [one.value for one in found]

        reached = self.hub.notify(stream, head, now, results)
        self.deliveries.signalled(stream, head, reached.all, now)
        if reached.inline:
            hits, size = reached.inline * len(reached.results), reached.inline * sum(map(len, reached.results))
            self.core.count_inline(stream, hits, size, now)
            self.metrics.count_inline(hits)
            self.log.results_read(now, stream, hits, size, 0, 0.0)
            self.deliveries.read(stream, head - len(reached.results), head, now)
        self.metrics.count_notifications(reached.all, max(0, now - produced_ms) / 1000)
        return head
