"""Replay of broker events: the core of the live broker under virtual time, and everything that is counted.

The rules are those of Uddin & Venkatasubramanian (2018, section III.C, Algorithm 1): results are pushed to whoever
is online, the others retrieve when they log in, from the cache what is cached and from the data cluster what is
not. The replay plays the cluster and the subscribers; `Broker` and its `ResultCaches` decide as they do live.

>>> from newsstand.lab.broker_events import events_of
>>> events = events_of([
...     (0, "login", 0, 0, 0), (0, "subscribe", 0, 7, 0), (0, "subscribe", 1, 7, 0),
...     (1000, "result", 0, 7, 400), (2000, "login", 1, 0, 0),
... ])
>>> measured = replay(events, ReplaySetting("lsc", cache_bytes=1000))
>>> measured["hits"], measured["misses"], measured["consumed_objects"]
(2, 0, 1)
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from typing import Literal, get_args

from newsstand.broker.broker import Broker
from newsstand.caching import RESULT_POLICIES, AdaptiveCaches, Removed, ResultCaches
from newsstand.caching.result_cache import Retrieval
from newsstand.caching.results import ExpiryOf
from newsstand.errors import BadOption
from newsstand.lab.broker_events import BrokerEvents
from newsstand.lab.result_counts import Measured, ResultCounts

Evict = Literal["put", "after"]
"""Whether room is made as soon as an object was put, or after those online have it."""


@dataclass(frozen=True)
class ReplaySetting:
    """What a table of events is replayed under; without an end, time ends with the last event."""

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
        for name, least in (("cache_bytes", 0), ("window_ms", 1), ("windows", 1), ("cap_ms", 0)):
            if getattr(self, name) < least:
                raise BadOption(f"{name} is {getattr(self, name)}: it has to be at least {least}")
        for name, known in (("evict", get_args(Evict)), ("expiry", get_args(ExpiryOf))):
            if getattr(self, name) not in known:
                raise BadOption(f"{name} is '{getattr(self, name)}', not one of {', '.join(known)}")

    def end_of(self, events: BrokerEvents) -> int:
        """When a replay of these events ends; BadOption if that is before the last of them."""
        if self.end_ms is None:
            return events.end_ms
        if self.end_ms < events.end_ms:
            raise BadOption(f"end_ms is {self.end_ms}: the last event is later, at {events.end_ms}")
        return self.end_ms


def replay(events: BrokerEvents, setting: ReplaySetting) -> dict[str, Measured]:
    """Replay a whole table under one setting: every measure by its name."""
    return ResultReplay(setting).run(events)


class ResultReplay:
    """One broker, the data cluster behind it and the subscribers before it, for one run."""

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
        self.broker = Broker(self.results)
        self._sum_rho_ttl: list[float] = []
        self._cold_integral: int | None = None
        """The integral of the size over the first window, once that is over."""
        self._now = 0
        self._online: set[int] = set()
        self._following: dict[int, list[int]] = {}
        """The subscriptions of each subscriber, in increasing order."""
        self._bytes_upto: dict[int, list[int]] = {}
        """For each subscription the bytes up to each position: the cluster counts from 1."""

    def run(self, events: BrokerEvents) -> dict[str, Measured]:
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

    def _measures(self, end_ms: int) -> dict[str, Measured]:
        counts = self.counts
        counts.left_objects, counts.left_bytes = self.results.objects, self.results.bytes
        counts.pending_end = sum(
            self._pending(subscriber, subscription)
            for subscriber, following in self._following.items()
            for subscription in following
        )
        # What was put entered the integrals with minus its time of entry, what left with plus its time of leaving.
        counts.size_integral += counts.left_bytes * end_ms
        if self._cold_integral is not None:
            counts.size_integral_warm = counts.size_integral - self._cold_integral
        return {
            "policy": self.setting.policy,
            "cache_bytes": self.setting.cache_bytes,
            "evict": self.setting.evict,
            "expiry": self.setting.expiry,
            **counts.measures(end_ms=end_ms, window_ms=self.setting.window_ms),
            "sum_rho_T": self._sum_rho_ttl,
        }

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
        if self.broker.told(subscription, position, now) is not None:
            self.broker.arrived(subscription, ((position, size, None),), now, room=False)
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
        """So many subscribers have got what was pending for each of them."""
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

    def _removed(self, gone: Removed[int]) -> None:
        _, _, size, inserted_ms, at_ms, reason = gone
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
