"""Plays the scenario against a whole platform, for a while: the driver program of section VI.

First everybody gets an account and subscribes, and one result goes all the way; then time begins. At the end the
books of the players are compared with those of the brokers.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from newsstand.client import Client, ClientError, Publisher, new_http
from newsstand.scenarios.emergencies.city import City
from newsstand.scenarios.emergencies.people import PASSWORD, DemoStatistics, Person, Publishers
from newsstand.scenarios.emergencies.state import PlatformAddresses, State

EACH = 3.0
"""Subscriptions that a person has, on average."""

ARRIVALS_S = 15.0
"""In how many seconds people come online for the first time."""

AT_ONCE = 16
"""How many get their accounts at the same time: passwords are hashed slowly, on purpose."""

PREPARATION_S = 240.0
"""How long to prepare before the play begins all the same."""


@dataclass(frozen=True)
class Cast:
    """Who plays, and how fast."""

    subscribers: int = 300
    duration_s: float | None = 60.0
    """None: until the demo is stopped."""
    speed: float = 1.0
    """How fast time passes in the city."""
    reports_per_s: float = 1.0
    seed: int = 2018


@dataclass
class Driver:
    """One performance."""

    cast: Cast
    people: list[Person]
    publishers: Publishers
    state: State
    statistics: DemoStatistics

    async def prepare(self, stopping: asyncio.Event) -> None:
        """Make accounts and subscriptions, and wait for a first result, which takes Spark longest."""
        await self.publishers.open()
        over = asyncio.Event()
        watching = asyncio.create_task(self.state.watch(over))
        preparing = asyncio.create_task(self._preparation())
        ending = asyncio.create_task(stopping.wait())
        await asyncio.wait({preparing, ending}, timeout=PREPARATION_S, return_when=asyncio.FIRST_COMPLETED)
        over.set()
        preparing.cancel()
        ending.cancel()
        await asyncio.gather(preparing, ending, watching, return_exceptions=True)
        if not preparing.cancelled() and (error := preparing.exception()) is not None:
            raise error

    async def _preparation(self) -> None:
        await asyncio.gather(self._enrolment(), self._rehearsal())

    async def _enrolment(self) -> None:
        turn = asyncio.Semaphore(AT_ONCE)

        async def enrol(person: Person) -> None:
            async with turn:
                await person.enrol()

        await asyncio.gather(*(enrol(person) for person in self.people))

    async def _rehearsal(self) -> None:
        somebody = self.people[0]
        near = (somebody.lat, somebody.lon)
        with suppress(ClientError):
            async with Client(somebody.coordinator, "watchman", PASSWORD, register=True, near=near) as client:
                subscription = await client.subscribe("alerts", kind="drill")
                await self.publishers.drill()
                async with aclosing(client.results(subscription)) as results:
                    await anext(results)
                await client.unsubscribe(subscription)

    async def play(self, stopping: asyncio.Event) -> dict[str, Any]:
        """Play until the time is over or `stopping` is set; return the summary."""
        over = asyncio.Event()
        self.state.begin()
        draw = random.Random(self.cast.seed)
        players = [asyncio.create_task(one.live(draw.uniform(0, ARRIVALS_S), over)) for one in self.people]
        others = [
            asyncio.create_task(self.publishers.publish(over)),
            asyncio.create_task(self.state.watch(over)),
        ]
        try:
            ending = asyncio.create_task(stopping.wait())
            done, _ = await asyncio.wait(
                {ending, *others}, timeout=self.cast.duration_s, return_when=asyncio.FIRST_COMPLETED
            )
            ending.cancel()
            for task in done & set(others):
                task.result()  # a publisher that cannot go on ends the play
            over.set()
            lasted = self.state.elapsed_s
            await asyncio.gather(*players, *others)
        finally:
            for task in (*players, *others):
                task.cancel()
            await asyncio.gather(*players, *others, return_exceptions=True)
        return await self._summary(lasted)

    async def _summary(self, lasted: float) -> dict[str, Any]:
        acknowledged = await asyncio.gather(*(self._acknowledged_by(one) for one in self.people))
        await self.state.look()
        snapshot = self.state.snapshot()
        return {
            "seconds": lasted,
            "subscribers": sum(one.tokens is not None for one in self.people),
            "subscriptions": sum(len(one.begun) for one in self.people),
            "brokers": len(snapshot["brokers"]),
            "policy": snapshot["policy"],
            **snapshot["totals"],
            "pulled_bytes": self.state.pulled_bytes(),
            "acknowledged": sum(acknowledged),
            "repeated": self.statistics.repeated,
            "missed": self.statistics.missed,
            "troubles": self.statistics.troubles,
            "last_trouble": self.statistics.last_trouble or None,
            "latency_ms": {"notification": self.state.notification_ms(), "result": self.statistics.quantiles()},
        }

    async def _acknowledged_by(self, person: Person) -> int:
        try:
            return await person.acknowledged()
        except ClientError as error:
            self.statistics.add_trouble(error)
            return 0


@asynccontextmanager
async def cast_for(platform: PlatformAddresses, cast: Cast) -> AsyncIterator[Driver]:
    """Everybody who plays, ready to begin."""
    city = City(cast.seed, users=cast.subscribers)
    statistics = DemoStatistics()
    async with (
        new_http() as http,
        Publisher(platform.cluster, platform.cluster_token) as publisher,
    ):
        publishers = Publishers(city, publisher, statistics, cast.speed, cast.reports_per_s)
        people = [
            Person(
                name,
                wanted,
                platform.coordinator,
                http,
                statistics,
                random.Random(f"{cast.seed} {name}"),
                float(publishers.locations[name]["lat"]),
                float(publishers.locations[name]["lon"]),
            )
            for name, wanted in city.subscriptions(EACH).items()
        ]
        state = State(platform, publishers, people, statistics, http, cast.duration_s)
        yield Driver(cast, people, publishers, state, statistics)
