"""The edge broker as pure logic (Uddin & Venkatasubramanian 2018, section III.C, Algorithm 1).

Equal subscriptions of a broker's subscribers are *merged* into one backend subscription, here its *stream*. The
data cluster tells the broker how far a stream has come; the broker *pulls* the new results into the result cache,
signals, and answers readers from the cache first. There is no clock, no socket and no randomness inside: the app
around it and the simulators call the same methods with their own `now`, in milliseconds.

>>> from newsstand.caching import ResultCaches
>>> broker = Broker(ResultCaches[str, bytes]("lsc", budget=1_000_000))
>>> broker.follow("ann", "floods", position=0, head=0, now=0)
True
>>> broker.told("floods", 2, now=10)
Span(after=0, until=2)
>>> broker.arrived("floods", [(1, 5, b"water"), (2, 4, b"rain")], now=20)
>>> broker.read("ann", "floods", limit=10, now=30).missing
()
>>> broker.acknowledge("ann", "floods", 2, now=40)
2
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from newsstand.caching import Hit, ResultCaches
from newsstand.caching.result_cache import Retrieval
from newsstand.caching.tail_ranking import Key

Value = TypeVar("Value")
Subscriber = Hashable


class Span(NamedTuple):
    """The positions with after < position <= until: open left, closed right."""

    after: int
    until: int

    def __len__(self) -> int:
        return max(0, self.until - self.after)


class Reading(NamedTuple, Generic[Value]):
    """What a reader gets: results at hand, and spans that have to be fetched from the cluster."""

    span: Span
    hits: list[Hit[Value]]
    hit_bytes: int
    missing: tuple[Span, ...]
    head: int


@dataclass(slots=True)
class Stream:
    """How far a backend subscription has come."""

    head: int
    """The newest position that the cluster told of."""
    pulled: int
    """Up to where results have been pulled."""


@dataclass(slots=True)
class Counts:
    """What readers got, and what it cost."""

    hits: int = 0
    misses: int = 0
    hit_bytes: int = 0
    miss_bytes: int = 0
    pulled: int = 0
    pulled_bytes: int = 0

    @property
    def fetched_bytes(self) -> int:
        """All bytes that came from the cluster: pulled into the caches, and again for misses."""
        return self.pulled_bytes + self.miss_bytes


def spans_of(positions: Iterable[int]) -> list[Span]:
    """Positions in increasing order, those that follow one another as one span."""
    spans: list[Span] = []
    for position in positions:
        if spans and spans[-1].until == position - 1:
            spans[-1] = Span(spans[-1].after, position)
        else:
            spans.append(Span(position - 1, position))
    return spans


class Broker(Generic[Key, Value]):
    """Streams, who follows them and how far each has read; results come from the caches, then from the cluster."""

    def __init__(self, results: ResultCaches[Key, Value]) -> None:
        self.results = results
        self.counts = Counts()
        self._streams: dict[Key, Stream] = {}

    def __contains__(self, stream: Key) -> bool:
        return stream in self._streams

    def __len__(self) -> int:
        """The number of streams."""
        return len(self._streams)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._streams)

    def head(self, stream: Key) -> int:
        """The newest position of a stream."""
        return self._streams[stream].head

    def pulled(self, stream: Key) -> int:
        """Up to where a stream has been pulled."""
        known = self._streams.get(stream)
        return 0 if known is None else known.pulled

    def followers(self, stream: Key) -> int:
        """How many subscribers share a stream."""
        return self.results.subscribers(stream)

    def position(self, subscriber: Subscriber, stream: Key) -> int | None:
        """Up to where a follower has acknowledged; None if it does not follow the stream."""
        return self.results.acked(stream, subscriber)

    def pending(self, subscriber: Subscriber, stream: Key) -> bool:
        """Whether a follower has results to read."""
        acked = self.position(subscriber, stream)
        return acked is not None and acked < self.head(stream)

    def follow(self, subscriber: Subscriber, stream: Key, *, position: int, head: int, now: int) -> bool:
        """Attach a subscriber that has everything up to `position`; True if the stream is new to the broker.

        `head` is where the stream stands at the cluster. What came before the broker followed it is not pulled.
        """
        known = self._streams.get(stream)
        if known is None:
            # What the cache has seen of it before, when others followed it, is not put again.
            start = max(head, self.results.newest(stream))
            self._streams[stream] = Stream(start, start)
        elif head > known.head:
            known.head = head
        self.results.attach(stream, subscriber, now, position)
        return known is None

    def unfollow(self, subscriber: Subscriber, stream: Key, now: int) -> bool:
        """Detach a subscriber; True if it was the last one, and the stream is gone."""
        self.results.detach(stream, subscriber, now)
        if self.results.subscribers(stream) or stream not in self._streams:
            return False
        del self._streams[stream]
        return True

    def told(self, stream: Key, position: int, now: int) -> Span | None:
        """The cluster says that a stream has come to a position: what to pull, if anything.

        Told twice, or out of order, it changes nothing. A broker without a cache pulls nothing.
        """
        known = self._streams.get(stream)
        if known is None:
            return None
        known.head = max(known.head, position)
        if not self.results.policy.keeps:
            known.pulled = known.head
        return Span(known.pulled, known.head) if known.pulled < known.head else None

    def arrived(
        self, stream: Key, results: Iterable[tuple[int, int, Value]], now: int, *, room: bool = True
    ) -> None:
        """Put pulled results (position, size, value), oldest first, into the cache, and make room if so asked."""
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
        """Results up to a position cannot be pulled any more: retention has removed them."""
        known = self._streams.get(stream)
        if known is not None:
            known.pulled = max(known.pulled, position)
            known.head = max(known.head, position)

    def read(
        self, subscriber: Subscriber, stream: Key, *, limit: int, now: int, after: int | None = None
    ) -> Reading[Value]:
        """The next results for a follower, oldest first: beyond `after`, or beyond what it acknowledged."""
        head = self.head(stream)
        start = self.position(subscriber, stream) if after is None else after
        assert start is not None
        span = Span(start, max(start, min(head, start + limit)))
        if not len(span):
            return Reading(span, [], 0, (), head)
        hits = self.results.get(stream, span.after, span.until)
        self.results.touch(stream, now)
        if not hits:
            return Reading(span, hits, 0, (span,), head)
        size = sum([hit.size for hit in hits])
        self.counts.hits += len(hits)
        self.counts.hit_bytes += size
        gaps = self.results.gaps(stream, hits[0].position, hits[-1].position)
        around = (
            Span(span.after, hits[0].position - 1),
            *spans_of(gaps),
            Span(hits[-1].position, span.until),
        )
        return Reading(span, hits, size, tuple([part for part in around if len(part)]), head)

    def missed(self, count: int, size: int) -> None:
        """So many results, of so many bytes in all, were fetched from the cluster for a reader."""
        self.counts.misses += count
        self.counts.miss_bytes += size

    def acknowledge(self, subscriber: Subscriber, stream: Key, position: int, now: int) -> int:
        """A follower has everything up to a position; where it stands now. Cumulative: it never goes back."""
        self.results.acknowledge(stream, subscriber, position, now)
        acked = self.position(subscriber, stream)
        assert acked is not None
        return acked

    # For simulators, in which readers take no time and a stream is pulled as soon as the broker was told.

    def login(self, subscriber: Subscriber, streams: Iterable[Key], now: int) -> list[tuple[Key, Retrieval]]:
        """Let a follower retrieve what is pending in these streams, and from now on what comes, as it comes."""
        retrieved = []
        for stream in streams:
            got = self.results.join_crowd(stream, subscriber, self._streams[stream].head, now)
            if got is not None:
                retrieved.append((stream, got))
        return retrieved

    def logout(self, subscriber: Subscriber, streams: Iterable[Key]) -> None:
        """Let what comes in these streams wait for a follower."""
        for stream in streams:
            self.results.leave_crowd(stream, subscriber)

    def push(self, stream: Key, now: int) -> tuple[int, Retrieval] | None:
        """Let all who are logged in retrieve: how many they are, and what each got; None for nobody or nothing."""
        return self.results.retrieve_crowd(stream, self._streams[stream].head, now)
