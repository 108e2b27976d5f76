"""What a broker did with the recent positions of its streams, for traces of publications and for metrics.

A notification of the cluster adds one entry for each stream that it advances. The number of entries and their age
are bounded; subscribers are counted and not listed. Stages between processes are the differences of their
wall clocks; those within the broker are measured by the monotonic clock.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from newsstand.http.app import StageHistogram
from newsstand.wire.notifications import DeliveryReport, Notification, StreamDelivery, StreamPosition


class _Delivery:
    """The positions after < position <= until of a stream, which one notification has announced.

    Times are Unix milliseconds, `last` is the end of the last stage in seconds of the monotonic clock.
    """

    __slots__ = (
        "acknowledged",
        "after",
        "channel",
        "connections",
        "first_acknowledged_ms",
        "last",
        "last_acknowledged_ms",
        "notified_ms",
        "pulled_ms",
        "read_ms",
        "signalled_ms",
        "stream",
        "until",
    )

    def __init__(
        self, stream: str, channel: str | None, after: int, until: int, notified_ms: int, last: float
    ) -> None:
        self.stream = stream
        self.channel = channel
        self.after = after
        self.until = until
        self.notified_ms = notified_ms
        self.last = last
        self.pulled_ms: int | None = None
        self.signalled_ms: int | None = None
        self.connections = 0
        self.read_ms: int | None = None
        self.acknowledged = 0
        self.first_acknowledged_ms: int | None = None
        self.last_acknowledged_ms: int | None = None


class DeliveryHistory:
    """The recent deliveries of one broker; used from the event loop's thread.

    A call touches at most `per_stream` entries, whatever the number of subscribers is.
    """

    def __init__(
        self,
        histogram: StageHistogram | None = None,
        *,
        entries: int = 10_000,
        age_ms: int = 600_000,
        per_stream: int = 64,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep at most `entries` entries, `per_stream` of one stream, and none that is older than `age_ms`."""
        self._histogram = histogram
        self._most = entries
        self._most_per_stream = per_stream
        self._age_ms = age_ms
        self._clock = clock
        self._entries: deque[_Delivery] = deque()
        """All entries, the oldest first; those that a full stream has removed stay until their turn."""
        self._streams: dict[str, deque[_Delivery]] = {}

    def notified(self, notification: Notification[Any], heads: Callable[[str], int | None], now: int) -> None:
        """Add the streams that a notification advances; `heads` returns their positions before it.

        Streams beyond the number of entries are left out.
        """
        streams, last = notification.streams, self._clock()
        channel = None if notification.summary else notification.channel
        added = 0
        for progress in islice(streams, max(0, len(streams) - self._most), None):
            head = heads(progress.subscription)
            if head is not None and progress.position > head:
                self._add(_Delivery(progress.subscription, channel, head, progress.position, now, last))
                added += 1
        if added and channel is not None and notification.at_ms is not None:
            self._observe("notified", channel, (now - notification.at_ms) / 1000, added)
        self.expire(now)

    def pulled(self, stream: str, position: int, now: int) -> None:
        """Record that the results of a stream up to a position are here."""
        for one in self._newest(stream):
            if one.pulled_ms is not None:
                break
            if one.until <= position:
                one.pulled_ms = now
                self._end("pulled", one)

    def signalled(self, stream: str, position: int, connections: int, now: int) -> None:
        """Record that the position of a stream was written to a number of connections."""
        for one in self._newest(stream):
            if one.signalled_ms is not None:
                break
            if one.until <= position:
                one.signalled_ms, one.connections = now, connections
                if connections:
                    self._end("signalled", one)

    def read(self, stream: str, after: int, until: int, now: int) -> None:
        """Record that a subscriber got the results with after < position <= until."""
        for one in self._newest(stream):
            if one.until <= after:
                break
            if one.until <= until and one.read_ms is None:
                one.read_ms = now
                self._end("read", one)

    def acknowledged(self, stream: str, after: int, until: int, now: int) -> None:
        """Record that one subscriber, whose position was `after`, has acknowledged up to `until`."""
        for one in self._newest(stream):
            if one.until <= after:
                break
            if one.until <= until:
                one.acknowledged += 1
                one.last_acknowledged_ms = now
                if one.first_acknowledged_ms is None:
                    one.first_acknowledged_ms = now
                    self._end("acknowledged", one)

    def report(self, asked: Iterable[StreamPosition], now: int) -> DeliveryReport:
        """Return what became of positions, without those that are not known any more."""
        self.expire(now)
        return DeliveryReport([found for one in asked if (found := self._find(one)) is not None])

    def forget_channel(self, channel: str) -> None:
        """Remove a channel from the metrics; what its deliveries still do is not observed."""
        for one in self._entries:
            if one.channel == channel:
                one.channel = None
        if self._histogram is not None:
            self._histogram.forget(channel)

    def expire(self, now: int) -> None:
        """Remove entries that are too old or too many."""
        entries = self._entries
        while entries and (len(entries) > self._most or entries[0].notified_ms < now - self._age_ms):
            oldest = entries.popleft()
            of_stream = self._streams.get(oldest.stream)
            if of_stream and of_stream[0] is oldest:
                of_stream.popleft()
                if not of_stream:
                    del self._streams[oldest.stream]

    def _add(self, one: _Delivery) -> None:
        of_stream = self._streams.get(one.stream)
        if of_stream is None:
            of_stream = self._streams[one.stream] = deque(maxlen=self._most_per_stream)
        of_stream.append(one)
        self._entries.append(one)

    def _newest(self, stream: str) -> Iterator[_Delivery]:
        """Yield the entries of a stream, the newest first."""
        return reversed(self._streams.get(stream, ()))

    def _find(self, asked: StreamPosition) -> StreamDelivery | None:
        for one in self._newest(asked.subscription):
            if one.after < asked.position <= one.until:
                return StreamDelivery(
                    asked.subscription,
                    asked.position,
                    one.notified_ms,
                    one.pulled_ms,
                    one.signalled_ms,
                    one.connections,
                    one.read_ms,
                    one.acknowledged,
                    one.first_acknowledged_ms,
                    one.last_acknowledged_ms,
                )
        return None

    def _end(self, stage: str, one: _Delivery) -> None:
        """Observe a stage that has ended now."""
        earlier, one.last = one.last, self._clock()
        if one.channel is not None:
            self._observe(stage, one.channel, one.last - earlier, 1)

    def _observe(self, stage: str, channel: str, seconds: float, weight: int) -> None:
        if self._histogram is not None:
            self._histogram.observe(stage, channel, seconds, weight)
