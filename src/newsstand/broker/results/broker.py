"""The edge broker as pure logic (Uddin & Venkatasubramanian 2018, section III.C, Algorithm 1).

Equal subscriptions of a broker's subscribers are *merged* into one backend subscription, here its *stream*. The
data cluster notifies the broker of the position of a stream; the broker *pulls* the new results into the result
cache, notifies its subscribers, and serves reads from the cache first. There is no clock, no socket and no
randomness inside: the server and the simulators call the same methods with their own `now`, in milliseconds.

>>> from newsstand.caching import ResultCaches
>>> broker = ResultBroker(ResultCaches[str, bytes]("lsc", budget=1_000_000))
>>> broker.follow("ann", "floods", position=0, head=0, now=0)
True
>>> broker.advance("floods", 2, now=10)
PositionRange(after=0, until=2)
>>> broker.put("floods", [(1, 5, b"water"), (2, 4, b"rain")], now=20)
>>> broker.read("ann", "floods", limit=10, now=30).missing
()
>>> broker.acknowledge("ann", "floods", 2, now=40)
2
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from newsstand.caching import CachedResult, ResultCaches
from newsstand.caching.results.cache import Key, Retrieval

Value = TypeVar("Value")
Subscriber = Hashable


class PositionRange(NamedTuple):
    """The positions with after < position <= until: open left, closed right."""

    after: int
    until: int

    def __len__(self) -> int:
        return max(0, self.until - self.after)


class CacheRead(NamedTuple, Generic[Value]):
    """A read: cached results, and ranges that have to be fetched from the cluster."""

    span: PositionRange
    hits: list[CachedResult[Value]]
    hit_bytes: int
    missing: tuple[PositionRange, ...]
    head: int


@dataclass(slots=True)
class BackendStream:
    """The position of a backend subscription."""

    head: int
    """The newest position at the cluster."""
    pulled: int
    """The position up to which results have been pulled."""


@dataclass(slots=True)
class Counts:
    """Counters of reads and pulls."""

    hits: int = 0
    misses: int = 0
    hit_bytes: int = 0
    miss_bytes: int = 0
    pulled: int = 0
    pulled_bytes: int = 0

    @property
    def fetched_bytes(self) -> int:
        """All bytes from the cluster: pulled into the caches, and fetched again for misses."""
        return self.pulled_bytes + self.miss_bytes


def ranges_of(positions: Iterable[int]) -> list[PositionRange]:
    """Return ranges of consecutive positions; `positions` are in increasing order."""
    spans: list[PositionRange] = []
    for position in positions:
        if spans and spans[-1].until == position - 1:
            spans[-1] = PositionRange(spans[-1].after, position)
        else:
            spans.append(PositionRange(position - 1, position))
    return spans


class ResultBroker(Generic[Key, Value]):
    """Streams, their followers and the position of each; results come from the caches, then from the cluster."""

    def __init__(self, results: ResultCaches[Key, Value]) -> None:
        self.results = results
        self.counts = Counts()
        self._streams: dict[Key, BackendStream] = {}

    def __contains__(self, stream: Key) -> bool:
        return stream in self._streams

    def __len__(self) -> int:
        return len(self._streams)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._streams)

    def head(self, stream: Key) -> int:
        """Return the newest position of a stream."""
        return self._streams[stream].head

    def pulled(self, stream: Key) -> int:
        """Return the position up to which a stream has been pulled."""
        known = self._streams.get(stream)
        return 0 if known is None else known.pulled

    def position(self, subscriber: Subscriber, stream: Key) -> int | None:
        """Return the acknowledged position of a follower; None if it does not follow the stream."""
        return self.results.acked(stream, subscriber)

    def pending(self, subscriber: Subscriber, stream: Key) -> bool:
        """Return whether a follower has results to read."""
        acked = self.position(subscriber, stream)
        return acked is not None and acked < self.head(stream)

    def follow(self, subscriber: Subscriber, stream: Key, *, position: int, head: int, now: int) -> bool:
        """Attach a subscriber that has everything up to `position`; return whether the stream is new.

        `head` is the position of the stream at the cluster. Results before a new stream's head are not pulled.
        """
        known = self._streams.get(stream)
        if known is None:
            # The cache may have results of earlier followers: they are not put again.
            start = max(head, self.results.newest(stream))
            self._streams[stream] = BackendStream(start, start)
        elif head > known.head:
            known.head = head
        self.results.attach(stream, subscriber, now, position)
        return known is None

    def unfollow(self, subscriber: Subscriber, stream: Key, now: int) -> bool:
        """Detach a subscriber; return whether it was the last one, so that the stream is removed."""
        self.results.detach(stream, subscriber, now)
        if self.results.subscribers(stream) or stream not in self._streams:
            return False
        del self._streams[stream]
        return True

    def advance(self, stream: Key, position: int, now: int) -> PositionRange | None:
        """Record the position of a stream at the cluster; return the range to pull, if any.

        Repeated and reordered calls change nothing. A broker without a cache pulls nothing.
        """
        known = self._streams.get(stream)
        if known is None:
            return None
        known.head = max(known.head, position)
        if not self.results.policy.keeps:
            known.pulled = known.head
        return PositionRange(known.pulled, known.head) if known.pulled < known.head else None

    def put(self, stream: Key, results: Iterable[tuple[int, int, Value]], now: int, *, room: bool = True) -> None:
        """Cache pulled results (position, size, value), oldest first; with `room`, evict down to the budget."""
        known = self._streams.get(stream)
        if known is None:
            return
        for position, size, value in results:
            if position > known.pulled:
                known.pulled = position
                known.head = max(known.head, position)
                self.counts.pulled += 1
                self.counts.pulled_bytes += size
                self.results.put(stream, position, size, value, now)
        if room:
            self.results.make_room(now)

    def skip(self, stream: Key, position: int) -> None:
        """Skip results up to a position, which retention has removed."""
        known = self._streams.get(stream)
        if known is not None:
            known.pulled = max(known.pulled, position)
            known.head = max(known.head, position)

    def read(
        self, subscriber: Subscriber, stream: Key, *, limit: int, now: int, after: int | None = None
    ) -> CacheRead[Value]:
        """Return the next results for a follower, oldest first, after `after` or its acknowledged position."""
        head = self.head(stream)
        start = self.position(subscriber, stream) if after is None else after
        assert start is not None
        span = PositionRange(start, max(start, min(head, start + limit)))
        wanted = len(span)
        if not wanted:
            return CacheRead(span, [], 0, (), head)
        hits = self.results.get(stream, span.after, span.until)
        self.results.touch(stream, now)
        if not hits:
            return CacheRead(span, hits, 0, (span,), head)
        size = sum([hit.size for hit in hits])
        self.counts.hits += len(hits)
        self.counts.hit_bytes += size
        if len(hits) == wanted:
            return CacheRead(span, hits, size, (), head)
        gaps = self.results.gaps(stream, hits[0].position, hits[-1].position)
        around = (
            PositionRange(span.after, hits[0].position - 1),
            *ranges_of(gaps),
            PositionRange(hits[-1].position, span.until),
        )
        return CacheRead(span, hits, size, tuple([part for part in around if len(part)]), head)

    def cached_after(self, stream: Key, after: int, most_bytes: int) -> list[CachedResult[Value]]:
        """Return all results after a position; none unless all are cached and have at most this size together."""
        head = self.head(stream)
        hits = self.results.get(stream, after, head)
        is_complete = len(hits) == head - after and sum([hit.size for hit in hits]) <= most_bytes
        return hits if is_complete else []

    def count_inline(self, stream: Key, count: int, size: int, now: int) -> None:
        """Count cached results that readers got without a request, and their bytes, once for each reader."""
        self.counts.hits += count
        self.counts.hit_bytes += size
        self.results.touch(stream, now)

    def count_misses(self, count: int, size: int) -> None:
        """Count results that were fetched from the cluster for a reader, and their bytes."""
        self.counts.misses += count
        self.counts.miss_bytes += size

    def acknowledge(self, subscriber: Subscriber, stream: Key, position: int, now: int) -> int:
        """Acknowledge results up to a position; return the acknowledged position, which never decreases."""
        self.results.acknowledge(stream, subscriber, position, now)
        acked = self.position(subscriber, stream)
        assert acked is not None
        return acked

    # For simulators, in which readers take no time and a stream is pulled as soon as it advances.

    def login(self, subscriber: Subscriber, streams: Iterable[Key], now: int) -> list[tuple[Key, Retrieval]]:
        """Let a follower retrieve what is pending in these streams, and from now on each new result at once."""
        retrieved = []
        for stream in streams:
            got = self.results.join_cohort(stream, subscriber, self._streams[stream].head, now)
            if got is not None:
                retrieved.append((stream, got))
        return retrieved

    def logout(self, subscriber: Subscriber, streams: Iterable[Key]) -> None:
        """Let new results of these streams wait for a follower."""
        for stream in streams:
            self.results.leave_cohort(stream, subscriber)

    def push(self, stream: Key, now: int) -> tuple[int, Retrieval] | None:
        """Let all followers that are logged in retrieve; return their number and what each got, or None."""
        return self.results.retrieve_cohort(stream, self._streams[stream].head, now)
