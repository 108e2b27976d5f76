"""Plays the scenario against a whole platform, for a while: the driver program of section VI.

People come one after the other in the first part of the time; publishers begin at once. At the end nothing more is
published, who is online reads what has come, and the books are compared with those of the brokers.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from newsstand.client import Client, ClientError, Publisher, new_http
from newsstand.scenarios.emergencies.city import City
from newsstand.scenarios.emergencies.people import PASSWORD, Person
from newsstand.scenarios.emergencies.publishers import Publishers
from newsstand.scenarios.emergencies.state import Platform, State
from newsstand.scenarios.emergencies.tally import Tally

EACH = 4.0
"""Subscriptions that a person has, on average."""

ARRIVALS = 0.3
"""The part of the time in which people come."""

LONGEST_ARRIVALS_S = 30.0
REHEARSAL_S = 120.0
"""How long to wait for the first result before the play begins all the same."""


@dataclass(frozen=True)
class Cast:
    """Who plays, and how fast."""

    subscribers: int = 300
    duration_s: float | None = 60.0
    """For ever if None."""
    speed: float = 2.0
    """How fast time passes in the city."""
    reports_per_s: float = 1.0
    seed: int = 2018


class Driver:
    """One performance."""

    def __init__(
        self, cast: Cast, people: list[Person], publishers: Publishers, state: State, tally: Tally
    ) -> None:
        self.state = state
        self._cast = cast
        self._people = people
        self.publishers = publishers
        self._tally = tally

    async def rehearse(self, stopping: asyncio.Event) -> None:
        """Wait until one result has come all the way: the first one takes Spark much longer than all others."""
        rehearsing = asyncio.create_task(self._rehearsal())
        ending = asyncio.create_task(stopping.wait())
        await asyncio.wait({rehearsing, ending}, timeout=REHEARSAL_S, return_when=asyncio.FIRST_COMPLETED)
        for task in (rehearsing, ending):
            task.cancel()
        await asyncio.gather(rehearsing, ending, return_exceptions=True)

    async def _rehearsal(self) -> None:
        somebody = self._people[0]
        async with Client(
            somebody.coordinator, "watchman", PASSWORD, register=True, near=(somebody.lat, somebody.lon)
        ) as client:
            subscription = await client.subscribe("alerts", kind="drill")
            await self.publishers.drill()
            async with aclosing(client.results(subscription)) as results:
                await anext(results)
            await client.unsubscribe(subscription)

    async def play(self, stopping: asyncio.Event) -> dict[str, Any]:
        """Play until the time is over or `stopping` is set; what came of it."""
        over = asyncio.Event()
        self.state.begin()
        draw = random.Random(self._cast.seed)
        arrivals = min(LONGEST_ARRIVALS_S, ARRIVALS * (self._cast.duration_s or 100.0))
        players = [asyncio.create_task(one.live(draw.uniform(0, arrivals), over)) for one in self._people]
        others = [
            asyncio.create_task(self.publishers.publish(over)),
            asyncio.create_task(self.state.watch(over)),
        ]
        try:
            ending = asyncio.create_task(stopping.wait())
            done, _ = await asyncio.wait(
                {ending, *others}, timeout=self._cast.duration_s, return_when=asyncio.FIRST_COMPLETED
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
        acknowledged = await asyncio.gather(*(self._books_of(one) for one in self._people))
        await self.state.look()
        tally = self._tally
        snapshot = self.state.snapshot()
        return {
            "seconds": lasted,
            "subscribers": sum(one.tokens is not None for one in self._people),
            "subscriptions": sum(len(one.begun) for one in self._people),
            "brokers": len(snapshot["brokers"]),
            "policy": snapshot["policy"],
            **snapshot["totals"],
            "pulled_bytes": self.state.pulled_bytes(),
            "acknowledged": sum(acknowledged),
            "repeated": tally.repeated,
            "missed": tally.missed,
            "troubles": tally.troubles,
            "last_trouble": tally.last_trouble or None,
            "latency_ms": {"notification": self.state.notification_ms(), "result": tally.quantiles()},
        }

    async def _books_of(self, person: Person) -> int:
        try:
            return await person.acknowledged()
        except ClientError as error:
            self._tally.troubles += 1
            self._tally.last_trouble = str(error)
            return 0


@asynccontextmanager
async def cast_for(platform: Platform, cast: Cast) -> AsyncIterator[Driver]:
    """Everybody who plays, ready to begin."""
    city = City(cast.seed, users=cast.subscribers)
    tally = Tally()
    async with new_http() as http, Publisher(platform.cluster, platform.cluster_token) as publisher:
        publishers = Publishers(city, publisher, tally, cast.speed, cast.reports_per_s)
        people = [
            Person(
                name,
                wanted,
                platform.coordinator,
                http,
                tally,
                random.Random(f"{cast.seed} {name}"),
                float(publishers.locations[name]["lat"]),
                float(publishers.locations[name]["lon"]),
            )
            for name, wanted in city.subscriptions(EACH).items()
        ]
        state = State(platform, publishers, people, tally, http, cast.duration_s)
        yield Driver(cast, people, publishers, state, tally)
