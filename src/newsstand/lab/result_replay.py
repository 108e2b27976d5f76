"""Replay of a table of events through the result caches of one broker, and everything that is counted.

The rules are those of Uddin & Venkatasubramanian (2018, Algorithm 1): results are pushed to whoever is online, the
others retrieve when they log in, from the cache what is cached and from the data cluster what is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from newsstand.caching import RESULT_POLICIES, Removed, ResultCaches
from newsstand.caching.results import ExpiryOf
from newsstand.errors import BadOption, BadTrace
from newsstand.lab.broker_events import KINDS, BrokerEvents

Evict = Literal["put", "after"]
Measured = int | float | str | list[float] | None

COUNTS = (
    "abandoned_bytes",
    "abandoned_objects",
    "consumed_bytes",
    "consumed_objects",
    "dropped_bytes",
    "dropped_objects",
    "hit_bytes",
    "hits",
    "hits_push",
    "hold_abandoned_ms",
    "hold_consumed_ms",
    "hold_dropped_ms",
    "ignored_events",
    "max_bytes",
    "max_bytes_warm",
    "miss_bytes",
    "misses",
    "misses_push",
    "orphans",
    "pending_end",
    "results",
    "size_integral",
    "size_integral_warm",
    "ttl_insert_ms",
    "undelivered",
    "vol_bytes",
)
"""What is counted as rows pass; the rest follows from these at the end."""


@dataclass(frozen=True)
class ReplaySetting:
    """What a table of events is replayed under; without an end, time ends with the last row."""

    policy: str
    cache_bytes: int
    evict: Evict = "put"
    expiry: ExpiryOf = "cache"
    end_ms: int | None = None
    window_ms: int = 300_000
    windows: int = 1
    cap_ms: int = 3_600_000

    def __post_init__(self) -> None:
        RESULT_POLICIES[self.policy]
        for name, least in (("cache_bytes", 0), ("window_ms", 1), ("windows", 1), ("cap_ms", 0)):
            if getattr(self, name) < least:
                raise BadOption(f"{name} is {getattr(self, name)}: it has to be at least {least}")
        for name, known in (("evict", get_args(Evict)), ("expiry", get_args(ExpiryOf))):
            if getattr(self, name) not in known:
                raise BadOption(f"{name} is '{getattr(self, name)}', not one of {', '.join(known)}")

    def end_of(self, events: BrokerEvents) -> int:
        """When a replay of these events ends, which is not before the last of them."""
        if self.end_ms is None:
            return events.end_ms
        if self.end_ms < events.end_ms:
            raise BadOption(f"end_ms is {self.end_ms}: the last event is at {events.end_ms}")
        return self.end_ms


def replay(events: BrokerEvents, setting: ReplaySetting) -> dict[str, Measured]:
    """Every measure by its name, after a replay of the whole table."""
    run = ResultReplay(
        setting.policy,
        setting.cache_bytes,
        end_ms=setting.end_of(events),
        window_ms=setting.window_ms,
        windows=setting.windows,
        cap_ms=setting.cap_ms,
        evict=setting.evict,
        expiry=setting.expiry,
    )
    columns = (events.subscriber, events.subscription, events.size)
    kinds = map(KINDS.__getitem__, events.kind.tolist())
    return run.run(map(Row, events.time_ms.tolist(), kinds, *(column.tolist() for column in columns)))


class Row(NamedTuple):
    """One event; a field that its kind does not use is 0."""

    time_ms: int
    kind: str
    subscriber: int = 0
    subscription: int = 0
    size: int = 0


class Produced:
    """What one subscription ever produced for somebody, at positions from 1, and who retrieved how much of it."""

    def __init__(self) -> None:
        self.bytes_upto = [0]
        self.retrieved: dict[int, int] = {}
        """The position up to which each attached subscriber has everything."""

    @property
    def newest(self) -> int:
        return len(self.bytes_upto) - 1

    def add(self, size: int) -> int:
        self.bytes_upto.append(self.bytes_upto[-1] + size)
        return self.newest

    def bytes_between(self, after: int, until: int) -> int:
        return self.bytes_upto[until] - self.bytes_upto[after]


class ResultReplay:
    """Feed it rows in order, then ask for the measures at `end_ms`, which no row may exceed.

    `evict` says whether room is made as soon as an object was put, or after those online have it.
    """

    def __init__(
        self,
        policy: str,
        cache_bytes: int,
        *,
        end_ms: int,
        window_ms: int = 300_000,
        windows: int = 1,
        cap_ms: int = 3_600_000,
        evict: Evict = "put",
        expiry: ExpiryOf = "cache",
    ) -> None:
        self.caches = ResultCaches[int, None](
            policy,
            cache_bytes,
            window_ms=window_ms,
            windows=windows,
            cap_ms=cap_ms,
            expiry=expiry,
            on_removed=self._removed,
            on_recompute=lambda _, expected: self._sum_rho_ttl.append(expected),
        )
        self.evict = evict
        self.end_ms = end_ms
        self.window_ms = window_ms
        self._counts = Counter(dict.fromkeys(COUNTS, 0))
        self._sum_rho_ttl: list[float] = []
        self._put = 0
        self._clock = 0
        self._online: set[int] = set()
        self._subscriptions: dict[int, set[int]] = {}
        self._produced: dict[int, Produced] = {}

    def run(self, rows: Iterable[Row]) -> dict[str, Measured]:
        """Replay a whole table."""
        for row in rows:
            self.feed(row)
        return self.finish()

    def feed(self, row: Row) -> None:
        """Replay one row."""
        if not self._clock <= row.time_ms <= self.end_ms:
            raise BadTrace(f"a row at {row.time_ms} ms after {self._clock} ms, with the end at {self.end_ms} ms")
        self._clock = row.time_ms
        self.caches.advance(row.time_ms)
        match row.kind:
            case "result":
                self._result(row.subscription, row.size)
            case "login":
                self._login(row.subscriber)
            case "logout":
                self._logout(row.subscriber)
            case "subscribe":
                self._subscribe(row.subscriber, row.subscription)
            case "unsubscribe":
                self._unsubscribe(row.subscriber, row.subscription)
            case kind:
                raise BadTrace(f"a row of kind '{kind}' at {row.time_ms} ms")

    def finish(self) -> dict[str, Measured]:
        """Let the time until the end pass; every measure by its name."""
        self._clock = self.end_ms
        self.caches.advance(self.end_ms)
        counts = self._counts
        counts["pending_end"] = sum(
            produced.newest - position
            for produced in self._produced.values()
            for position in produced.retrieved.values()
        )
        # What was put entered the integrals with minus its time of entry, what left with plus its time of leaving.
        counts["size_integral"] += self.caches.bytes * self.end_ms
        counts["size_integral_warm"] += self.caches.bytes * self._warm(self.end_ms)
        return {
            "policy": self.caches.policy.name,
            "cache_bytes": self.caches.budget,
            "evict": self.evict,
            "expiry": self.caches.expiry,
            **counts,
            **self._derived(counts),
        }

    def _derived(self, counts: Counter[str]) -> dict[str, Measured]:
        retrieved = counts["hits"] + counts["misses"]
        # In units of 0.1 us: 0.25 s and 1 MB/s from the broker, for a miss 0.5 s and 10 MB/s on top.
        latency = 2_500_000 * retrieved + 10 * (counts["hit_bytes"] + counts["miss_bytes"])
        latency += 5_000_000 * counts["misses"] + counts["miss_bytes"]
        reasons = ("dropped", "consumed", "abandoned")
        held_ms = sum(counts[f"hold_{reason}_ms"] for reason in reasons)
        removed = sum(counts[f"{reason}_objects"] for reason in reasons)
        return {
            "fetch_bytes": counts["vol_bytes"] + counts["miss_bytes"],
            "lat_e7": latency,
            "left_bytes": self.caches.bytes,
            "left_objects": self.caches.objects,
            "avg_bytes": _ratio(counts["size_integral"], self.end_ms),
            "avg_bytes_warm": _ratio(counts["size_integral_warm"], max(0, self.end_ms - self.window_ms)),
            "hit_ratio": _ratio(counts["hits"], retrieved),
            "mean_hold_dropped_s": _ratio(counts["hold_dropped_ms"], 1000 * counts["dropped_objects"]),
            "mean_hold_s": _ratio(held_ms, 1000 * removed),
            "mean_latency_s": _ratio(latency, 10_000_000 * retrieved),
            "mean_ttl_insert_s": _ratio(counts["ttl_insert_ms"], 1000 * self._put),
            "sum_rho_T": self._sum_rho_ttl,
        }

    def _result(self, subscription: int, size: int) -> None:
        self._counts["results"] += 1
        produced = self._produced.get(subscription)
        if produced is None or not produced.retrieved:
            self._counts["orphans"] += 1
            return
        self._counts["vol_bytes"] += size
        self._cache(subscription, size)
        if self.evict == "put":
            self._make_room()
        hits, misses = self._counts["hits"], self._counts["misses"]
        self._retrieve(subscription, produced.retrieved.keys() & self._online)
        self._counts["hits_push"] += self._counts["hits"] - hits
        self._counts["misses_push"] += self._counts["misses"] - misses
        if self.evict == "after":
            self._make_room()

    def _cache(self, subscription: int, size: int) -> None:
        position = self._produced[subscription].add(size)
        if self.caches.put(subscription, position, size, None, self._clock):
            self._put += 1
            self._counts["ttl_insert_ms"] += self.caches.ttl(subscription)
            self._counts["size_integral"] -= size * self._clock
            self._counts["size_integral_warm"] -= size * self._warm(self._clock)

    def _make_room(self) -> None:
        self.caches.make_room(self._clock)
        self._counts["max_bytes"] = max(self._counts["max_bytes"], self.caches.bytes)
        if self._clock >= self.window_ms:
            self._counts["max_bytes_warm"] = max(self._counts["max_bytes_warm"], self.caches.bytes)

    def _retrieve(self, subscription: int, subscribers: Collection[int]) -> None:
        """Deliver all that is pending; none takes from the cache what another still has to get."""
        produced = self._produced[subscription]
        newest = produced.newest
        starts = Counter(map(produced.retrieved.__getitem__, subscribers))
        if all(after == newest for after in starts):
            return
        held = self.caches.held(subscription)
        for after, number in starts.items():
            cached_after = newest if held is None else max(after, held[0] - 1)
            self._counts["hits"] += number * (newest - cached_after)
            self._counts["hit_bytes"] += number * produced.bytes_between(cached_after, newest)
            self._counts["misses"] += number * (cached_after - after)
            self._counts["miss_bytes"] += number * produced.bytes_between(after, cached_after)
        produced.retrieved.update(dict.fromkeys(subscribers, newest))
        self.caches.touch(subscription, self._clock)
        self.caches.acknowledge_all(subscription, subscribers, newest, self._clock)

    def _login(self, subscriber: int) -> None:
        if subscriber in self._online:
            self._counts["ignored_events"] += 1
            return
        self._online.add(subscriber)
        for subscription in sorted(self._subscriptions.get(subscriber, ())):
            self._retrieve(subscription, (subscriber,))

    def _logout(self, subscriber: int) -> None:
        if subscriber in self._online:
            self._online.remove(subscriber)
        else:
            self._counts["ignored_events"] += 1

    def _subscribe(self, subscriber: int, subscription: int) -> None:
        if not self.caches.attach(subscription, subscriber, self._clock):
            self._counts["ignored_events"] += 1
            return
        produced = self._produced.setdefault(subscription, Produced())
        produced.retrieved[subscriber] = produced.newest
        self._subscriptions.setdefault(subscriber, set()).add(subscription)

    def _unsubscribe(self, subscriber: int, subscription: int) -> None:
        if not self.caches.detach(subscription, subscriber, self._clock):
            self._counts["ignored_events"] += 1
            return
        produced = self._produced[subscription]
        self._counts["undelivered"] += produced.newest - produced.retrieved.pop(subscriber)
        self._subscriptions[subscriber].remove(subscription)

    def _removed(self, gone: Removed[int]) -> None:
        self._counts[f"{gone.reason}_objects"] += 1
        self._counts[f"{gone.reason}_bytes"] += gone.size
        self._counts[f"hold_{gone.reason}_ms"] += gone.at_ms - gone.inserted_ms
        self._counts["size_integral"] += gone.size * gone.at_ms
        self._counts["size_integral_warm"] += gone.size * self._warm(gone.at_ms)

    def _warm(self, time_ms: int) -> int:
        """How much of the time up to a moment lies behind the first window."""
        return max(0, time_ms - self.window_ms)


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
