"""Replay of broker events: the core of the live broker under virtual time, and all measures.

The rules are those of Uddin & Venkatasubramanian (2018, section III.C, Algorithm 1): results are pushed to
subscribers that are online, the others retrieve when they log in, from the cache what is cached and from the data
cluster what is not. The replay plays the cluster and the subscribers; `ResultBroker` and its `ResultCaches` decide
as they do live.

>>> from newsstand.lab.results.events import events_of
>>> events = events_of([
...     (0, "login", 0, 0, 0), (0, "subscribe", 0, 7, 0), (0, "subscribe", 1, 7, 0),
...     (1000, "result", 0, 7, 400), (2000, "login", 1, 0, 0),
... ])
>>> measures = replay(events, ReplaySetting("lsc", cache_bytes=1000))
>>> measures["hits"], measures["misses"], measures["consumed_objects"]
(2, 0, 1)
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, get_args

from newsstand.broker.results.broker import ResultBroker
from newsstand.caching import RESULT_POLICIES, AdaptiveCaches, RemovedObject, ResultCaches
from newsstand.caching.results.cache import Retrieval
from newsstand.caching.results.caches import ExpiryOf, check_options
from newsstand.errors import BadOption
from newsstand.lab.results.events import BrokerEvents

Measure = int | float | str | list[float] | None


@dataclass(slots=True)
class ResultCounts:
    """The counts of a replay; times in milliseconds, sizes in bytes."""

    results: int = 0
    orphans: int = 0
    """Results of subscriptions without subscribers."""
    ignored_events: int = 0
    """Rows that change nothing, such as a login of an online subscriber."""
    vol_bytes: int = 0
    hits: int = 0
    hit_bytes: int = 0
    misses: int = 0
    miss_bytes: int = 0
    hits_push: int = 0
    misses_push: int = 0
    dropped_objects: int = 0
    dropped_bytes: int = 0
    hold_dropped_ms: int = 0
    consumed_objects: int = 0
    consumed_bytes: int = 0
    hold_consumed_ms: int = 0
    abandoned_objects: int = 0
    abandoned_bytes: int = 0
    hold_abandoned_ms: int = 0
    left_objects: int = 0
    left_bytes: int = 0
    undelivered: int = 0
    pending_end: int = 0
    ttl_insert_ms: int = 0
    max_bytes: int = 0
    max_bytes_warm: int = 0
    size_integral: int = 0
    size_integral_warm: int = 0

    def measures(self, setting: ReplaySetting, end_ms: int, sum_rho_ttl: list[float]) -> dict[str, Measure]:
        """Return the setting, the counts and what follows from them, by name; a ratio of nothing is None."""
        retrieved = self.hits + self.misses
        removed = self.dropped_objects + self.consumed_objects + self.abandoned_objects
        held_ms = self.hold_dropped_ms + self.hold_consumed_ms + self.hold_abandoned_ms
        # In units of 0.1 us: 0.25 s and 1 MB/s from the broker, for a miss 0.5 s and 10 MB/s on top.
        latency = 2_500_000 * retrieved + 10 * (self.hit_bytes + self.miss_bytes)
        latency += 5_000_000 * self.misses + self.miss_bytes
        warm_ms = max(0, end_ms - setting.window_ms)
        return {
            "policy": setting.policy,
            "cache_bytes": setting.cache_bytes,
            "evict": setting.evict,
            "expiry": setting.expiry,
            **asdict(self),
            "fetch_bytes": self.vol_bytes + self.miss_bytes,
            "lat_e7": latency,
            "avg_bytes": _ratio(self.size_integral, end_ms),
            "avg_bytes_warm": _ratio(self.size_integral_warm, warm_ms),
            "hit_ratio": _ratio(self.hits, retrieved),
            "mean_hold_dropped_s": _ratio(self.hold_dropped_ms, 1000 * self.dropped_objects),
            "mean_hold_s": _ratio(held_ms, 1000 * removed),
            "mean_latency_s": _ratio(latency, 10_000_000 * retrieved),
            "mean_ttl_insert_s": _ratio(self.ttl_insert_ms, 1000 * (removed + self.left_objects)),
            "sum_rho_T": sum_rho_ttl,
        }


def _ratio(part: int, total: int) -> float | None:
    return part / total if total else None


Evict = Literal["put", "after"]
"""Whether room is made as soon as an object is put, or after online subscribers have received it."""


@dataclass(frozen=True)
class ReplaySetting:
    """The setting of a replay; without an end, time ends with the last event."""

    policy: str
    cache_bytes: int
    evict: Evict = "put"
    expiry: ExpiryOf = "cache"
    end_ms: int | None = None
    window_ms: int = 300_000
    windows: int = 1
    cap_ms: int = 3_600_000

    def __post_init__(self) -> None:
        RESULT_POLICIES[self.policy]  # raises UnknownPolicy
        check_options(
            cache_bytes=self.cache_bytes,
            window_ms=self.window_ms,
            windows=self.windows,
            cap_ms=self.cap_ms,
            expiry=self.expiry,
        )
        if self.evict not in get_args(Evict):
            raise BadOption(f"must be one of {', '.join(get_args(Evict))}", evict=self.evict)

    def end_of(self, events: BrokerEvents) -> int:
        """Return when a replay of these events ends; BadOption if that is before the last of them."""
        if self.end_ms is None:
            return events.end_ms
        if self.end_ms < events.end_ms:
            raise BadOption(f"the last event is later, at {events.end_ms}", end_ms=self.end_ms)
        return self.end_ms


def replay(events: BrokerEvents, setting: ReplaySetting) -> dict[str, Measure]:
    """Replay a whole table under one setting: every measure by its name."""
    return ResultReplay(setting).run(events)


class ResultReplay:
    """A replay of one broker with its data cluster and subscribers."""

    def __init__(self, setting: ReplaySetting) -> None:
        self.setting = setting
        self.counts = ResultCounts()
        made = AdaptiveCaches[int, None] if RESULT_POLICIES[setting.policy].follows else ResultCaches[int, None]
        self.results = made(
            setting.policy,
            setting.cache_bytes,
            window_ms=setting.window_ms,
            windows=setting.windows,
            cap_ms=setting.cap_ms,
            expiry=setting.expiry,
            on_removed=self._removed,
            on_recompute=self._recomputed,
        )
        self.broker = ResultBroker(self.results)
        self._sum_rho_ttl: list[float] = []
        self._cold_integral: int | None = None
        """The integral of the size over the first window, once that is over."""
        self._now = 0
        self._online: set[int] = set()
        self._following: dict[int, list[int]] = {}
        """The subscriptions of each subscriber, in increasing order."""
        self._bytes_upto: dict[int, list[int]] = {}
        """The bytes up to each position of each subscription; positions start at 1."""

    def run(self, events: BrokerEvents) -> dict[str, Measure]:
        """Replay a whole table."""
        end_ms = self.setting.end_of(events)
        handlers = (self._login, self._logout, self._subscribe, self._unsubscribe, self._result)
        advance = self.results.advance
        columns = (events.time_ms, events.kind, events.subscriber, events.subscription, events.size)
        for time_ms, kind, subscriber, subscription, size in zip(
            *[column.tolist() for column in columns], strict=True
        ):
            self._now = time_ms
            advance(time_ms)
            handlers[kind](subscriber, subscription, size)
        self._now = end_ms
        advance(end_ms)
        return self._measures(end_ms)

    def _measures(self, end_ms: int) -> dict[str, Measure]:
        counts = self.counts
        counts.left_objects, counts.left_bytes = self.results.objects, self.results.bytes
        counts.pending_end = sum(
            self._pending(subscriber, subscription)
            for subscriber, following in self._following.items()
            for subscription in following
        )
        # An object enters the integrals with minus its time of entry, and leaves with plus its time of leaving.
        counts.size_integral += counts.left_bytes * end_ms
        if self._cold_integral is not None:
            counts.size_integral_warm = counts.size_integral - self._cold_integral
        return counts.measures(self.setting, end_ms, self._sum_rho_ttl)

    def _login(self, subscriber: int, _subscription: int, _size: int) -> None:
        if subscriber in self._online:
            self.counts.ignored_events += 1
            return
        self._online.add(subscriber)
        following = self._following.get(subscriber, ())
        for subscription, retrieved in self.broker.login(subscriber, following, self._now):
            self._delivered(subscription, 1, retrieved)

    def _logout(self, subscriber: int, _subscription: int, _size: int) -> None:
        if subscriber not in self._online:
            self.counts.ignored_events += 1
            return
        self._online.remove(subscriber)
        self.broker.logout(subscriber, self._following.get(subscriber, ()))

    def _subscribe(self, subscriber: int, subscription: int, _size: int) -> None:
        if self.broker.position(subscriber, subscription) is not None:
            self.counts.ignored_events += 1
            return
        newest = len(self._bytes_upto.setdefault(subscription, [0])) - 1
        self.broker.follow(subscriber, subscription, position=newest, head=newest, now=self._now)
        insort(self._following.setdefault(subscriber, []), subscription)
        if subscriber in self._online:
            self.broker.login(subscriber, (subscription,), self._now)

    def _unsubscribe(self, subscriber: int, subscription: int, _size: int) -> None:
        if self.broker.position(subscriber, subscription) is None:
            self.counts.ignored_events += 1
            return
        self.counts.undelivered += self._pending(subscriber, subscription)
        self.broker.unfollow(subscriber, subscription, self._now)
        self._following[subscriber].remove(subscription)

    def _result(self, _subscriber: int, subscription: int, size: int) -> None:
        counts, now = self.counts, self._now
        counts.results += 1
        if subscription not in self.broker:
            counts.orphans += 1
            return
        counts.vol_bytes += size
        bytes_upto = self._bytes_upto[subscription]
        position = len(bytes_upto)
        bytes_upto.append(bytes_upto[-1] + size)
        if self.broker.advance(subscription, position, now) is not None:
            self.broker.put(subscription, ((position, size, None),), now, room=False)
            counts.ttl_insert_ms += self.results.ttl(subscription)
            counts.size_integral -= size * now
        if self.setting.evict == "put":
            self._make_room()
        pushed = self.broker.push(subscription, now)
        if pushed is not None:
            hits, misses = counts.hits, counts.misses
            self._delivered(subscription, *pushed)
            counts.hits_push += counts.hits - hits
            counts.misses_push += counts.misses - misses
        if self.setting.evict == "after":
            self._make_room()

    def _make_room(self) -> None:
        self.results.make_room(self._now)
        held, counts = self.results.bytes, self.counts
        counts.max_bytes = max(counts.max_bytes, held)
        if held > counts.max_bytes_warm and self._now >= self.setting.window_ms:
            counts.max_bytes_warm = held

    def _delivered(self, subscription: int, number: int, retrieved: Retrieval) -> None:
        """Count what was pending for each of `number` subscribers and is delivered."""
        after, missed_until, until, gaps = retrieved
        counts, bytes_upto = self.counts, self._bytes_upto[subscription]
        counts.hits += number * (until - missed_until)
        counts.hit_bytes += number * (bytes_upto[until] - bytes_upto[missed_until])
        if missed_until > after:
            counts.misses += number * (missed_until - after)
            counts.miss_bytes += number * (bytes_upto[missed_until] - bytes_upto[after])
        if gaps:
            missed_bytes = sum(bytes_upto[position] - bytes_upto[position - 1] for position in gaps)
            counts.hits -= number * len(gaps)
            counts.hit_bytes -= number * missed_bytes
            counts.misses += number * len(gaps)
            counts.miss_bytes += number * missed_bytes

    def _pending(self, subscriber: int, subscription: int) -> int:
        position = self.broker.position(subscriber, subscription)
        assert position is not None
        return self.broker.head(subscription) - position

    def _removed(self, removed: RemovedObject[int]) -> None:
        _, _, size, inserted_ms, at_ms, reason = removed
        counts, held_ms = self.counts, at_ms - inserted_ms
        match reason:
            case "dropped":
                counts.dropped_objects += 1
                counts.dropped_bytes += size
                counts.hold_dropped_ms += held_ms
            case "consumed":
                counts.consumed_objects += 1
                counts.consumed_bytes += size
                counts.hold_consumed_ms += held_ms
            case "abandoned":
                counts.abandoned_objects += 1
                counts.abandoned_bytes += size
                counts.hold_abandoned_ms += held_ms
        counts.size_integral += size * at_ms

    def _recomputed(self, at_ms: int, expected: float) -> None:
        self._sum_rho_ttl.append(expected)
        if self._cold_integral is None:
            self._cold_integral = self.counts.size_integral + self.results.bytes * at_ms


Implementation = Literal["core", "compiled"]
"""The core of the live broker, or its compiled equivalent, with equal results."""

WORTH_COMPILING = 200_000
"""Events times settings; below, loading the compiler takes longer than the core."""


def choose_implementation(events: BrokerEvents, settings: Sequence[ReplaySetting]) -> Implementation:
    """Return the faster implementation."""
    return "compiled" if len(events) * len(settings) >= WORTH_COMPILING else "core"


def replay_all(
    events: BrokerEvents, settings: Sequence[ReplaySetting], implementation: Implementation
) -> Iterator[dict[str, Measure]]:
    """Yield the measures under each setting, in their order; the compiled replays run on all cores."""
    for setting in settings:
        setting.end_of(events)  # rejected before the first replay
    if implementation == "core":
        yield from (replay(events, setting) for setting in settings)
        return
    from newsstand.lab.cores import on_all_cores
    from newsstand.lab.results.compiled import compiled_replay

    yield from on_all_cores(compiled_replay(events), settings)
