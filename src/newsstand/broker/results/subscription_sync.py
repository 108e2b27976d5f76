"""Synchronization of the cluster's backend subscriptions with the streams that are followed here.

Every change marks a stream as dirty. One task sends all dirty streams to the cluster in a few large calls: new
streams at once, changed numbers of frontends after a delay. A stream stays dirty until its call succeeds: the
cluster may be unavailable or have lost the broker, or the broker has just started.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from newsstand.broker.cluster_client.client import ClusterClient, ClusterUnavailable
from newsstand.concurrency.pacing import Backoff
from newsstand.errors import BadInput, NewsstandError, NotFound
from newsstand.model import Scalar
from newsstand.wire.cluster import StreamStatus, SubscribeRequest

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SubscriptionSyncLimits:
    """Waits of the synchronization, and the size of its calls."""

    delay_s: float = 1.0
    """How long a changed number of frontends waits for others."""
    linger_s: float = 10.0
    """How long a stream without frontends stays subscribed to."""
    batch_s: float = 0.01
    """Changes within this time are sent together."""
    patience_s: float = 30.0
    """How long a subscriber waits for a new stream to be subscribed to."""
    batch: int = 50_000
    """Subscriptions in one call."""


@dataclass(slots=True)
class _FollowedStream:
    channel: str
    values: tuple[Scalar, ...]
    frontends: int = 0
    idle_since: float = 0.0


@dataclass(eq=False, repr=False)
class SubscriptionSync:
    """The backend subscriptions of a broker."""

    cluster: ClusterClient
    register: Callable[[], Awaitable[bool]]
    """Registers the broker at the cluster; returns whether it was new there."""
    on_extent: Callable[[str, StreamStatus], None]
    """Called with the extent of a stream each time it was sent."""
    clock: Callable[[], float] = time.monotonic
    limits: SubscriptionSyncLimits = SubscriptionSyncLimits()

    def __post_init__(self) -> None:
        self._streams: dict[str, _FollowedStream] = {}
        self._dirty: dict[str, None] = {}
        self._waiters: dict[str, list[asyncio.Future[StreamStatus]]] = defaultdict(list)
        self._wake = asyncio.Event()

    def __contains__(self, stream: str) -> bool:
        return stream in self._streams

    def add_ref(self, stream: str, channel: str, values: tuple[Scalar, ...]) -> None:
        backend = self._streams.get(stream)
        if backend is None or not backend.frontends:
            backend = self._streams[stream] = _FollowedStream(channel, values)
        backend.frontends += 1
        self._dirty[stream] = None
        self._wake_in(0 if backend.frontends == 1 else self.limits.delay_s)

    def release_ref(self, stream: str) -> None:
        """Remove a frontend from a stream. A stream without frontends lingers: another broker may take it over."""
        backend = self._streams.get(stream)
        if backend is None:
            return
        backend.frontends -= 1
        self._dirty[stream] = None
        if not backend.frontends:
            backend.idle_since = self.clock()
        self._wake_in(self.limits.delay_s if backend.frontends else self.limits.linger_s)

    def drop_unused(self, streams: Iterable[str]) -> None:
        """Drop streams of the cluster that have no frontends here, after the linger time."""
        for stream in streams:
            if stream not in self._streams:
                self.add_ref(stream, "", ())
                self.release_ref(stream)

    def restart_lingering(self) -> None:
        """Restart the linger time: brokers that take streams over cannot reach the cluster now, either."""
        now = self.clock()
        for stream, backend in self._streams.items():
            if not backend.frontends:
                backend.idle_since = now
                self._dirty[stream] = None
                self._wake_in(self.limits.linger_s)

    async def status(self, stream: str) -> StreamStatus:
        """Return the extent of a stream at the cluster; raise ClusterUnavailable."""
        waiting: asyncio.Future[StreamStatus] = asyncio.get_running_loop().create_future()
        self._waiters[stream].append(waiting)
        self._dirty[stream] = None
        self._wake.set()
        try:
            async with asyncio.timeout(self.limits.patience_s):
                return await waiting
        except TimeoutError:
            raise ClusterUnavailable("the data cluster does not respond in time") from None

    def mark_dirty(self, stream: str) -> None:
        """Send a stream to the cluster again."""
        if stream in self._streams:
            self._dirty[stream] = None
            self._wake.set()

    def mark_all_dirty(self) -> None:
        """Send all streams to the cluster again."""
        self._dirty.update(dict.fromkeys(self._streams))
        self._wake.set()

    async def run(self) -> None:
        """Send dirty streams until cancelled."""
        backoff, pause_s = Backoff(), 0.0
        while True:
            await self._wake.wait()
            await asyncio.sleep(max(pause_s, self.limits.batch_s))
            self._wake.clear()
            marked, self._dirty = list(self._dirty), {}
            try:
                await self._flush(marked)
                backoff.reset()
                pause_s = 0.0
            except Exception as error:
                self._dirty.update(dict.fromkeys(marked))
                self.restart_lingering()
                self._wake.set()
                pause_s = backoff.next_s()
                fault = (
                    error
                    if isinstance(error, NewsstandError)
                    else ClusterUnavailable("the data cluster's response is malformed")
                )
                if fault is not error:
                    logger.exception("backend subscriptions could not be sent")
                else:
                    logger.warning("backend subscriptions could not be sent: %s", error)
                self._fail(marked, fault)

    async def _flush(self, marked: list[str]) -> None:
        idle = [key for key in marked if not self.frontends(key)]
        over = self.clock() - self.limits.linger_s
        known = {key: self._streams[key] for key in idle if key in self._streams}
        expired = [key for key, backend in known.items() if backend.idle_since <= over]
        self._dirty.update(dict.fromkeys(known.keys() - set(expired)))
        wanted = [key for key in marked if self.frontends(key)]
        for first in range(0, len(wanted), self.limits.batch):
            await self._subscribe(wanted[first : first + self.limits.batch])
        await self._drop(expired)

    def _wake_in(self, seconds: float) -> None:
        if seconds:
            asyncio.get_running_loop().call_later(seconds, self._wake.set)
        else:
            self._wake.set()

    def channel_of(self, stream: str) -> str | None:
        backend = self._streams.get(stream)
        return None if backend is None else backend.channel

    def frontends(self, stream: str) -> int:
        backend = self._streams.get(stream)
        return 0 if backend is None else backend.frontends

    async def _subscribe(self, streams: list[str]) -> None:
        backends = [self._streams[key] for key in streams]
        wanted = [SubscribeRequest(one.channel, list(one.values), one.frontends) for one in backends]
        try:
            answers = await self.cluster.subscribe(wanted)
        except BadInput as error:
            if isinstance(error, NotFound) and await self.register():
                self.mark_all_dirty()  # the cluster had lost this broker
                return
            if len(streams) > 1:  # the cluster accepts all or none: find the rejected one
                half = len(streams) // 2
                await self._subscribe(streams[:half])
                await self._subscribe(streams[half:])
                return
            logger.warning("the cluster rejects %s %s: %s", backends[0].channel, backends[0].values, error)
            self._fail(streams, error)
            return
        for stream, status in answers:
            self.on_extent(stream, status)
            for waiting in self._waiters.pop(stream, ()):
                if not waiting.done():
                    waiting.set_result(status)
        self._fail(streams, ClusterUnavailable("the data cluster's response lacks the stream"))

    async def _drop(self, streams: list[str]) -> None:
        if streams:
            try:
                await self.cluster.drop(streams)
            except NotFound:  # the cluster has lost this broker, with all its subscriptions
                if await self.register():
                    self.mark_all_dirty()
            for stream in streams:
                if not self.frontends(stream):
                    self._streams.pop(stream, None)

    def _fail(self, streams: Iterable[str], error: NewsstandError) -> None:
        for stream in streams:
            for waiting in self._waiters.pop(stream, ()):
                if not waiting.done():
                    waiting.set_exception(error)
