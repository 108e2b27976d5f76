"""The people of the demo: subscribers, who come and go and read results with the SDK, and publishers."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import aiohttp
import msgspec

from newsstand.client import Client, ClientError, Publisher, Subscription, Tokens
from newsstand.scenarios.emergencies.city import City, Record, Wanted

WINDOW_S = 60.0
"""Latencies on the page are those of the last minute."""


@dataclass
class DemoStatistics:
    """Counts since the start. One event loop writes it."""

    publications: int = 0
    received: int = 0
    repeated: int = 0
    """Results that were delivered again after a connection was lost."""
    missed: int = 0
    """Results that retention removed unread."""
    troubles: int = 0
    """Calls that failed and were tried again."""
    last_trouble: str = ""
    latencies: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=100_000))
    """Receipt and latency in milliseconds of results whose subscriber was online when they were made."""

    def add_latency(self, milliseconds: float) -> None:
        """Add the latency of a result that a connected subscriber received."""
        self.latencies.append((time.monotonic(), milliseconds))

    def quantiles(self, window_s: float | None = None) -> dict[str, float | None]:
        """Return median and 99th percentile of the last `window_s` seconds, or of all."""
        after = 0.0 if window_s is None else time.monotonic() - window_s
        values = sorted(value for at, value in self.latencies if at >= after)
        return {name: quantile(values, share, 1) for name, share in (("p50", 0.5), ("p99", 0.99))}

    def add_trouble(self, error: BaseException) -> None:
        """Count a call that failed and is tried again."""
        self.troubles += 1
        self.last_trouble = str(error)


def quantile(ordered: Sequence[float], share: float, digits: int | None = None) -> float | None:
    """Return a quantile of ordered values, rounded if there are `digits`; None without values."""
    if not ordered:
        return None
    found = ordered[min(len(ordered) - 1, int(share * len(ordered)))]
    return found if digits is None else round(found, digits)


PASSWORD = "a password for the demo"
ONLINE_S, OFFLINE_S = (8.0, 40.0), (3.0, 15.0)
"""How long people are online, and offline, in seconds."""


@dataclass
class Person:
    """One subscriber."""

    name: str
    wanted: Sequence[Wanted]
    coordinator: str
    http: aiohttp.ClientSession
    statistics: DemoStatistics
    draw: random.Random
    lat: float
    lon: float
    online: bool = False
    tokens: Tokens | None = None
    subscriptions: list[Subscription] = field(default_factory=list)
    begun: dict[str, int] = field(default_factory=dict)
    """The first position of each subscription."""
    seen: dict[str, int] = field(default_factory=dict)
    """The last position read of each."""

    async def enrol(self) -> None:
        """Register and subscribe."""
        try:
            async with self._client() as client:
                await self._subscriptions(client)
        except ClientError as error:
            self.statistics.add_trouble(error)

    async def live(self, arrives_s: float, over: asyncio.Event) -> None:
        """Be online and offline in turns until `over` is set."""
        await _wait(over, arrives_s)
        while not over.is_set():
            try:
                async with self._client() as client:
                    subscriptions = await self._subscriptions(client)
                    await self._read(client, subscriptions, over)
            except ClientError as error:
                self.statistics.add_trouble(error)
            await _wait(over, self.draw.uniform(*OFFLINE_S))

    async def acknowledged(self) -> int:
        """Return how many results are acknowledged at the broker."""
        if self.tokens is None:
            return 0
        async with self._client() as client:
            return sum(one.position - self.begun.get(one.id, one.position) for one in await client.subscriptions())

    def _client(self) -> Client:
        return Client(
            self.coordinator,
            self.name,
            PASSWORD,
            tokens=self.tokens,
            register=self.tokens is None,
            on_tokens=self._keep,
            near=(self.lat, self.lon),
            http=self.http,
            rng=self.draw,
        )

    def _keep(self, tokens: Tokens) -> None:
        self.tokens = tokens

    async def _subscriptions(self, client: Client) -> list[Subscription]:
        if len(self.subscriptions) == len(self.wanted):
            return [
                msgspec.structs.replace(one, position=max(one.position, self.seen.get(one.id, 0)))
                for one in self.subscriptions
            ]
        found = []
        for channel, values in self.wanted:
            one = await client.subscribe(channel, **values)  # type: ignore[arg-type]  # none is called `since`
            self.begun.setdefault(one.id, one.position)
            found.append(one)
        self.subscriptions = found
        return found

    async def _read(self, client: Client, subscriptions: list[Subscription], over: asyncio.Event) -> None:
        since_ms = time.time() * 1000
        self.online = True
        reading = asyncio.create_task(self._take_all(client, subscriptions, since_ms))
        try:
            ending = asyncio.create_task(over.wait())
            await asyncio.wait(
                {reading, ending}, timeout=self.draw.uniform(*ONLINE_S), return_when=asyncio.FIRST_COMPLETED
            )
            ending.cancel()
        finally:
            self.online = False
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        if not reading.cancelled() and (error := reading.exception()) is not None:
            raise error

    async def _take_all(self, client: Client, subscriptions: list[Subscription], since_ms: float) -> None:
        """Count results; those of a subscription are in order, and may be delivered again."""
        async for result in client.results(*subscriptions, on_removed="skip"):
            if result.position <= self.seen.get(result.subscription, 0):
                self.statistics.repeated += 1
                continue
            self.seen[result.subscription] = result.position
            self.statistics.received += 1
            self.statistics.missed += result.missed
            if result.at_ms >= since_ms:
                self.statistics.add_latency(time.time() * 1000 - result.at_ms)


async def _wait(over: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(over.wait(), seconds)


MOVES_S = 5.0
"""Seconds between two rounds of locations."""

SHELTER_S = 2.0
"""Seconds between two news of shelters."""


@dataclass
class Publishers:
    """Publishes what happens in the city, and has what the map shows of it."""

    city: City
    publisher: Publisher
    statistics: DemoStatistics
    speed: float
    """How fast time passes in the city."""
    reports_per_s: float
    reports: deque[tuple[float, Record]] = field(default_factory=lambda: deque(maxlen=200))
    """The newest, and when each was published, by the monotonic clock."""

    def __post_init__(self) -> None:
        self._draw = random.Random(self.city.seed)
        self.shelters: dict[object, Record] = {str(one["id"]): one for one in self.city.shelters()}
        self.locations: dict[object, Record] = {str(one["user"]): one for one in self.city.locations(0.0)}

    async def open(self) -> None:
        """Publish all shelters and all locations."""
        await self._publish("shelters", list(self.shelters.values()))
        await self._publish("locations", list(self.locations.values()))

    async def drill(self) -> None:
        """Publish a report that nobody but the drill's subscriber receives."""
        drill = {"id": "drill", "kind": "drill", "lat": 0.0, "lon": 0.0, "severity": 5, "text": "Only a drill."}
        await self.publisher.publish("reports", drill)

    async def publish(self, over: asyncio.Event) -> None:
        """Publish as things happen, until it is over."""
        began = time.monotonic()
        next_report = next_shelter = next_move = 0.0
        while not over.is_set():
            now = time.monotonic() - began
            reports: list[Record] = []
            while now >= next_report:
                reports.append(self.city.report(now * self.speed))
                next_report += self._draw.uniform(0.5, 1.5) / self.reports_per_s
            if reports:
                await self._publish("reports", reports)
                self.reports.extend((time.monotonic(), report) for report in reports)
            if now >= next_shelter:
                news = self.city.shelter_news()
                self.shelters[str(news["id"])] = news
                await self._publish("shelters", [news])
                next_shelter = now + SHELTER_S
            if now >= next_move:
                places = self.city.locations(now * self.speed)
                moved = [one for one in places if self.locations[str(one["user"])] != one]
                self.locations.update({str(one["user"]): one for one in moved})
                if moved:
                    await self._publish("locations", moved)
                next_move = now + MOVES_S
            await asyncio.sleep(max(0.01, min(next_report, next_shelter, next_move) - (time.monotonic() - began)))

    async def _publish(self, dataset: str, records: list[Record]) -> None:
        receipt = await self.publisher.publish(dataset, records)
        self.statistics.publications += receipt.accepted
