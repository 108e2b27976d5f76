"""Plays an activity trace against live brokers, all at the same time: the driver program of section VI.

Every broker has subscribers of its own who do the same things at the same moments, and all brokers have the same
data cluster: so every caching scheme sees the same publications, results and load.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import aiohttp
import msgspec

from newsstand.client import Client, ClientError, Pace, Publisher, Result, Subscription, Tokens, new_http
from newsstand.errors import NewsstandError
from newsstand.scenarios.emergencies.activity import Activity, ActivityTrace
from newsstand.scenarios.emergencies.city import Merged, Wanted, merged
from newsstand.scenarios.emergencies.people import quantile


@dataclass
class ReadStatistics:
    """What the subscribers of one broker measured since `counting` was set; times in milliseconds."""

    counting: bool = False
    online: list[float] = field(default_factory=list)
    """For each result made while its reader was online: the duration of the read."""
    late: list[float] = field(default_factory=list)
    """The same for each result made before its reader logged in."""
    waits: float = 0.0
    """The total time that reads waited in the broker for the cluster."""
    hits_online: int = 0
    hits_late: int = 0
    delivered: list[float] = field(default_factory=list)
    """For readers who were online: from the creation of a result to its receipt."""
    troubles: int = 0
    last_trouble: str = ""

    def add(self, result: Result, since_ms: float) -> None:
        """Count a result of a reader who is online since `since_ms`."""
        if not self.counting:
            return
        hit = result.origin == "cache"
        self.waits += result.latency_ms
        if result.at_ms < since_ms:
            self.late.append(result.read_ms)
            self.hits_late += hit
        else:
            self.online.append(result.read_ms)
            self.hits_online += hit
            self.delivered.append(time.time() * 1000 - result.at_ms)

    def add_trouble(self, error: BaseException) -> None:
        """Count an error after which the subscriber continues."""
        self.troubles += 1
        self.last_trouble = f"{type(error).__name__}: {error}"


class Reader:
    """One subscriber at one broker."""

    def __init__(self, connect: Callable[[], Client], statistics: ReadStatistics) -> None:
        self._connect = connect
        self._statistics = statistics
        self._subscriptions: dict[Merged, Subscription] = {}
        self._reading: dict[Merged, asyncio.Task[None]] = {}
        self._client: Client | None = None
        """The client of the session, while the subscriber is online."""
        self._since_ms = 0.0
        self._leaving = asyncio.Event()
        self._session: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """Ask the broker for the subscriptions."""
        async with self._connect() as client:
            for one in await client.subscriptions():
                self._subscriptions[one.channel, tuple(one.values.items())] = one

    def login(self) -> None:
        """Be online from now on."""
        if self._session is None:
            self._leaving.clear()
            self._session = asyncio.create_task(self._be_online())

    async def logout(self) -> None:
        """Acknowledge what was read and disconnect."""
        if self._session is not None:
            self._leaving.set()
            await asyncio.gather(self._session, return_exceptions=True)
            self._session = None

    async def subscribe(self, wanted: Wanted) -> None:
        """Subscribe, from now on."""
        channel, values = wanted
        key = merged(wanted)
        async with self._any_client() as client:
            self._subscriptions[key] = await client.subscribe(channel, **values)  # type: ignore[arg-type]
            if client is self._client:
                self._read(client, key)

    async def unsubscribe(self, wanted: Wanted) -> None:
        """Delete a subscription."""
        key = merged(wanted)
        reading, subscription = self._reading.pop(key, None), self._subscriptions.pop(key, None)
        if reading is not None:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        if subscription is not None:
            async with self._any_client() as client:
                await client.unsubscribe(subscription)

    def abandon(self) -> None:
        """End at once."""
        for task in (*self._reading.values(), *([self._session] if self._session is not None else [])):
            task.cancel()

    @asynccontextmanager
    async def _any_client(self) -> AsyncIterator[Client]:
        """Yield the client of the session, or another one while the subscriber is offline."""
        if self._client is not None:
            yield self._client
            return
        async with self._connect() as client:
            yield client

    async def _be_online(self) -> None:
        async with self._connect() as client:
            self._client, self._since_ms = client, time.time() * 1000
            try:
                for key in self._subscriptions:
                    self._read(client, key)
                await self._leaving.wait()
            finally:
                self._client = None
                reading, self._reading = list(self._reading.values()), {}
                for task in reading:
                    task.cancel()
                await asyncio.gather(*reading, return_exceptions=True)

    def _read(self, client: Client, key: Merged) -> None:
        self._reading[key] = asyncio.create_task(self._read_all(client, key))

    async def _read_all(self, client: Client, key: Merged) -> None:
        try:
            async for result in client.results(self._subscriptions[key], on_removed="skip"):
                self._statistics.add(result, self._since_ms)
                subscription = self._subscriptions[key]
                self._subscriptions[key] = msgspec.structs.replace(subscription, position=result.position)
        except ClientError as error:
            self._statistics.add_trouble(error)


Row = dict[str, object]
COUNTED = ("hits", "misses", "hit_bytes", "miss_bytes", "pulled_bytes", "fetched_bytes", "dropped", "consumed")
"""What is taken from a broker's statistics, without what it had counted when the warm-up ended."""

SESSION_S = 86_400
SETTLE_S = 2.0
"""After the last activity, so that what is on its way arrives."""


@dataclass(frozen=True)
class PlaybackSpeed:
    """How fast the trace is played."""

    factor: float = 10.0
    """Seconds of the trace in a second."""
    warm_up_s: float = 300.0
    """Seconds of the trace that are played and not counted."""
    hurry_s: float = 3.0
    """Seconds of the trace within which an online subscriber reads results after their notification."""


@dataclass(frozen=True)
class PlaybackBroker:
    """A broker, and the access tokens of its subscribers by their names in the trace."""

    name: str
    url: str
    tokens: Mapping[str, str]


class Playback:
    """One run of a trace."""

    def __init__(
        self,
        trace: ActivityTrace,
        speed: PlaybackSpeed,
        brokers: Sequence[PlaybackBroker],
        admin: str,
        tell: Callable[[str], None],
    ) -> None:
        """`admin` is the token for brokers' statistics."""
        self._trace = trace
        self._speed = speed
        self._brokers = brokers
        self._admin = admin
        self._tell = tell
        self._http = {one.name: new_http() for one in brokers}
        self.statistics = {one.name: ReadStatistics() for one in brokers}
        self._readers = {
            one.name: {
                name: Reader(partial(self._client, one, name), self.statistics[one.name]) for name in one.tokens
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
            await asyncio.gather(*(reader.load() for reader in self._everybody))
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
            await self._until(self._speed.warm_up_s)
            before = await self._stats()
            for statistics in self.statistics.values():
                statistics.counting = True
            for quarter in range(1, 5):
                counted_s = self._trace.duration_s - self._speed.warm_up_s
                await self._until(self._speed.warm_up_s + counted_s * quarter / 4)
                self._tell(f"  {quarter} of 4 parts played")
            await asyncio.gather(*acting)
            await asyncio.sleep(SETTLE_S)
            after = await self._stats()
        finally:
            for task in acting:
                task.cancel()
            await asyncio.gather(*acting, return_exceptions=True)
        return [self._row(one.name, before[one.name], after[one.name]) for one in self._brokers]

    @property
    def _everybody(self) -> Iterator[Reader]:
        return (reader for readers in self._readers.values() for reader in readers.values())

    async def _until(self, time_s: float) -> None:
        """Wait for a moment of the trace."""
        await asyncio.sleep(max(0.0, self._began + time_s / self._speed.factor - time.monotonic()))

    async def _publish(self, publisher: Publisher) -> None:
        for one in self._trace.publishing:
            await self._until(one.time_s)
            await publisher.publish(one.dataset, one.records)

    async def _act(self) -> None:
        for one in self._trace.activities:
            if one.time_s == 0 and one.action == "subscribe":
                continue  # subscribed before the trace begins
            await self._until(one.time_s)
            self._lags.append(time.monotonic() - self._began - one.time_s / self._speed.factor)
            for broker in self._brokers:
                who = broker.name, one.subscriber
                task = asyncio.create_task(self._do(one, broker.name, self._queues.get(who)))
                self._queues[who] = task
                self._doing.add(task)
                task.add_done_callback(self._doing.discard)

    async def _do(self, one: Activity, broker: str, before: asyncio.Task[None] | None) -> None:
        """Do a subscriber's activity at one broker, after its activity before."""
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
            self.statistics[broker].add_trouble(error)

    def _client(self, broker: PlaybackBroker, name: str) -> Client:
        """Return a client for one session of a subscriber."""
        tokens = Tokens(broker.tokens[name], "", SESSION_S, name, time.time() + SESSION_S)
        # Subscribers retrieve results, as in the paper: the time of a read is what is measured.
        hurry_s = self._speed.hurry_s / self._speed.factor
        pace = Pace(ack_within_s=0.05, read_delay_s=hurry_s, inline_results=0)
        rng = random.Random(f"{self._trace.seed} {broker.name} {name}")
        return Client(broker=broker.url, tokens=tokens, http=self._http[broker.name], pace=pace, rng=rng)

    async def _stats(self) -> dict[str, dict[str, object]]:
        stats = await asyncio.gather(*(self._stats_of(one) for one in self._brokers))
        return {one.name: each for one, each in zip(self._brokers, stats, strict=True)}

    async def _stats_of(self, broker: PlaybackBroker) -> dict[str, object]:
        headers = {"Authorization": f"Bearer {self._admin}"}
        try:
            async with self._http[broker.name].get(f"{broker.url}/stats", headers=headers) as response:
                return msgspec.json.decode(await response.read(), type=dict[str, object])
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as error:
            raise NewsstandError(f"{broker.url}/stats: no statistics ({type(error).__name__})") from error

    async def _end(self) -> None:
        for task in list(self._doing):
            task.cancel()
        for reader in self._everybody:
            reader.abandon()
        await asyncio.gather(*self._doing, return_exceptions=True)
        await asyncio.sleep(0)
        for http in self._http.values():
            await http.close()

    def _row(self, name: str, before: Mapping[str, object], after: Mapping[str, object]) -> Row:
        statistics = self.statistics[name]
        was, now = before["results"], after["results"]
        assert isinstance(was, dict)
        assert isinstance(now, dict)
        row: Row = {"broker": name, **{count: now[count] - was[count] for count in COUNTED}}
        latencies = sorted(statistics.online + statistics.late)
        return row | {
            "hit_ratio": _ratio(now["hits"] - was["hits"], now["misses"] - was["misses"]),
            "online": len(statistics.online),
            "late": len(statistics.late),
            "hit_ratio_online": _ratio(statistics.hits_online, len(statistics.online) - statistics.hits_online),
            "hit_ratio_late": _ratio(statistics.hits_late, len(statistics.late) - statistics.hits_late),
            "latency_ms": _mean(latencies),
            "latency_p50_ms": quantile(latencies, 0.5),
            "latency_p99_ms": quantile(latencies, 0.99),
            "latency_online_ms": _mean(statistics.online),
            "latency_late_ms": _mean(statistics.late),
            "cluster_wait_ms": statistics.waits / len(latencies) if latencies else None,
            "delivered_p50_ms": quantile(sorted(statistics.delivered), 0.5),
            "delivered_p99_ms": quantile(sorted(statistics.delivered), 0.99),
            "cached_bytes": now["bytes"],
            "frontends": after["frontends"],
            "backends": after["backends"],
            "lag_p99_ms": quantile(sorted(lag * 1000 for lag in self._lags), 0.99),
            "troubles": statistics.troubles,
            "last_trouble": statistics.last_trouble or None,
        }


async def play(
    trace: ActivityTrace,
    speed: PlaybackSpeed,
    brokers: Sequence[PlaybackBroker],
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
            return await Playback(trace, speed, brokers, admin, tell).play(publisher, stopping)
        except ClientError as error:
            raise NewsstandError(f"the play broke off: {error}") from error


def _ratio(some: int, others: int) -> float | None:
    return some / (some + others) if some + others else None


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None
