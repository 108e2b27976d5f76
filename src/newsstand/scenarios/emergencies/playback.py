"""Plays an activity trace against live brokers, all at the same time: the driver program of section VI.

Every broker has subscribers of its own who do the same things at the same moments, and all brokers have the same
data cluster: so every caching scheme sees the same publications, results and load.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from newsstand.client import ClientError, Publisher
from newsstand.errors import NewsstandError
from newsstand.scenarios.emergencies.activity import Activity, ActivityTrace
from newsstand.scenarios.emergencies.lean_http import Lines
from newsstand.scenarios.emergencies.reader import Noted, Reader

Row = dict[str, object]
COUNTED = ("hits", "misses", "hit_bytes", "miss_bytes", "pulled_bytes", "fetched_bytes", "dropped", "consumed")
"""What is taken from a broker's statistics, without what it had counted when the warm-up ended."""

SETTLE_S = 2.0
"""After the last activity, so that what is on its way arrives."""


@dataclass(frozen=True)
class Pace:
    """How fast the trace is played."""

    factor: float = 10.0
    """Seconds of the trace in a second."""
    warm_up_s: float = 300.0
    """Seconds of the trace that are played and not counted."""
    hurry_s: float = 3.0
    """Seconds of the trace within which somebody who is online reads what was told of."""


@dataclass(frozen=True)
class Watched:
    """A broker, and the access tokens of its subscribers by their names in the trace."""

    name: str
    url: str
    tokens: Mapping[str, str]


class Playback:
    """One performance of a trace."""

    def __init__(
        self, trace: ActivityTrace, pace: Pace, brokers: Sequence[Watched], admin: str, tell: Callable[[str], None]
    ) -> None:
        """`admin` is the token for brokers' statistics."""
        self._trace = trace
        self._pace = pace
        self._brokers = brokers
        self._admin = admin
        self._tell = tell
        self._lines = {one.name: Lines(one.url) for one in brokers}
        self.noted = {one.name: Noted() for one in brokers}
        self._readers = {
            one.name: {
                name: Reader(
                    name,
                    one.url,
                    token,
                    self._lines[one.name],
                    self.noted[one.name],
                    random.Random(f"{trace.seed} {one.name} {name}"),
                    pace.hurry_s / pace.factor,
                )
                for name, token in one.tokens.items()
            }
            for one in brokers
        }
        self._began = 0.0
        self._lags: list[float] = []
        self._doing: set[asyncio.Task[None]] = set()
        self._queues: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def play(self, publisher: Publisher, stopping: asyncio.Event) -> list[Row] | None:
        """Play it all; a row of measurements for each broker, or None if it was stopped."""
        try:
            await self._everybody_learns()
            performing = asyncio.create_task(self._perform(publisher))
            stopped = asyncio.create_task(stopping.wait())
            await asyncio.wait({performing, stopped}, return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            if not performing.done():
                performing.cancel()
                await asyncio.gather(performing, return_exceptions=True)
                return None
            return performing.result()
        finally:
            await self._end()

    async def _perform(self, publisher: Publisher) -> list[Row]:
        self._began = time.monotonic()
        acting = [asyncio.create_task(self._publish(publisher)), asyncio.create_task(self._act())]
        try:
            await self._until(self._pace.warm_up_s)
            before = await self._stats()
            for noted in self.noted.values():
                noted.counting = True
            for quarter in range(1, 5):
                counted_s = self._trace.duration_s - self._pace.warm_up_s
                await self._until(self._pace.warm_up_s + counted_s * quarter / 4)
                self._tell(f"  {quarter} of 4 parts played")
            await asyncio.gather(*acting)
            await asyncio.sleep(SETTLE_S)
            after = await self._stats()
        finally:
            for task in acting:
                task.cancel()
            await asyncio.gather(*acting, return_exceptions=True)
        return [self._row(one.name, before[one.name], after[one.name]) for one in self._brokers]

    async def _until(self, time_s: float) -> None:
        """Wait for a moment of the trace."""
        await asyncio.sleep(max(0.0, self._began + time_s / self._pace.factor - time.monotonic()))

    async def _publish(self, publisher: Publisher) -> None:
        for one in self._trace.publishing:
            await self._until(one.time_s)
            await publisher.publish(one.dataset, one.records)

    async def _act(self) -> None:
        for one in self._trace.activities:
            if one.time_s == 0 and one.action == "subscribe":
                continue  # that is how things stood before
            await self._until(one.time_s)
            self._lags.append(time.monotonic() - self._began - one.time_s / self._pace.factor)
            for broker in self._brokers:
                who = broker.name, one.subscriber
                task = asyncio.create_task(self._do(one, broker.name, self._queues.get(who)))
                self._queues[who] = task
                self._doing.add(task)
                task.add_done_callback(self._doing.discard)

    async def _do(self, one: Activity, broker: str, before: asyncio.Task[None] | None) -> None:
        """One subscriber's activity at one broker, after what it does already."""
        if before is not None:
            await asyncio.wait({before})
        reader = self._readers[broker][one.subscriber]
        try:
            if one.action == "login":
                reader.login()
            elif one.action == "logout":
                await reader.logout()
            elif one.wanted is not None:
                await (reader.subscribe if one.action == "subscribe" else reader.unsubscribe)(one.wanted)
        except NewsstandError as error:
            self.noted[broker].trouble(error)

    async def _everybody_learns(self) -> None:
        """Where all subscriptions are; brokers fetch their subscribers when they are asked."""
        everybody = [reader for readers in self._readers.values() for reader in readers.values()]
        await asyncio.gather(*(reader.learn() for reader in everybody))

    async def _stats(self) -> dict[str, dict[str, object]]:
        asked = (self._lines[one.name].ask("GET", "/stats", self._admin) for one in self._brokers)
        answers = await asyncio.gather(*asked)
        return {
            one.name: msgspec.json.decode(answer.body, type=dict[str, object])
            for one, answer in zip(self._brokers, answers, strict=True)
        }

    async def _end(self) -> None:
        for task in list(self._doing):
            task.cancel()
        for readers in self._readers.values():
            for reader in readers.values():
                reader.abandon()
        await asyncio.gather(*self._doing, return_exceptions=True)
        await asyncio.sleep(0)
        for lines in self._lines.values():
            lines.close()

    def _row(self, name: str, before: Mapping[str, object], after: Mapping[str, object]) -> Row:
        noted = self.noted[name]
        was, now = before["results"], after["results"]
        assert isinstance(was, dict)
        assert isinstance(now, dict)
        row: Row = {"broker": name, **{count: now[count] - was[count] for count in COUNTED}}
        latencies = sorted(noted.online + noted.late)
        return row | {
            "hit_ratio": _ratio(now["hits"] - was["hits"], now["misses"] - was["misses"]),
            "online": len(noted.online),
            "late": len(noted.late),
            "hit_ratio_online": _ratio(noted.hits_online, len(noted.online) - noted.hits_online),
            "hit_ratio_late": _ratio(noted.hits_late, len(noted.late) - noted.hits_late),
            "latency_ms": _mean(latencies),
            "latency_p50_ms": _quantile(latencies, 0.5),
            "latency_p99_ms": _quantile(latencies, 0.99),
            "latency_online_ms": _mean(noted.online),
            "latency_late_ms": _mean(noted.late),
            "cluster_wait_ms": noted.waits / len(latencies) if latencies else None,
            "delivered_p50_ms": _quantile(sorted(noted.delivered), 0.5),
            "delivered_p99_ms": _quantile(sorted(noted.delivered), 0.99),
            "cached_bytes": now["bytes"],
            "frontends": after["frontends"],
            "backends": after["backends"],
            "lag_p99_ms": _quantile(sorted(lag * 1000 for lag in self._lags), 0.99),
            "troubles": noted.troubles,
            "last_trouble": noted.last_trouble or None,
        }


async def play(
    trace: ActivityTrace,
    pace: Pace,
    brokers: Sequence[Watched],
    *,
    cluster: str,
    cluster_token: str,
    admin: str,
    stopping: asyncio.Event,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Row] | None:
    """Play a trace; a row of measurements for each broker, or None if it was stopped."""
    async with Publisher(cluster, cluster_token) as publisher:
        try:
            return await Playback(trace, pace, brokers, admin, tell).play(publisher, stopping)
        except ClientError as error:
            raise NewsstandError(f"the play broke off: {error}") from error


def _ratio(some: int, others: int) -> float | None:
    return some / (some + others) if some + others else None


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _quantile(values: Sequence[float], share: float) -> float | None:
    return values[min(len(values) - 1, int(share * len(values)))] if values else None
