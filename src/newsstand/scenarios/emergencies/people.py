"""The people of the city: each has an account, subscribes, comes and goes, and reads what is new.

They know a platform by the client SDK alone.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import aiohttp
import msgspec

from newsstand.client import Client, ClientError, Result, Subscription, Tokens
from newsstand.scenarios.emergencies.city import Wanted
from newsstand.scenarios.emergencies.tally import Tally

PASSWORD = "a password for the demo"
ONLINE_S, OFFLINE_S = (8.0, 40.0), (3.0, 15.0)
"""How long people stay, and stay away."""


@dataclass
class Person:
    """One subscriber."""

    name: str
    wanted: Sequence[Wanted]
    coordinator: str
    http: aiohttp.ClientSession
    tally: Tally
    draw: random.Random
    lat: float
    lon: float
    online: bool = False
    tokens: Tokens | None = None
    subscriptions: list[Subscription] = field(default_factory=list)
    begun: dict[str, int] = field(default_factory=dict)
    """Where each subscription began."""
    seen: dict[str, int] = field(default_factory=dict)
    """How far each was read."""

    async def enrol(self) -> None:
        """Get an account, and subscribe."""
        try:
            async with self._client() as client:
                await self._subscriptions(client)
        except ClientError as error:
            self._tried_in_vain(error)

    async def live(self, arrives_s: float, over: asyncio.Event) -> None:
        """Be online and offline in turns, until it is over."""
        await _wait(over, arrives_s)
        while not over.is_set():
            try:
                async with self._client() as client:
                    subscriptions = await self._subscriptions(client)
                    await self._read(client, subscriptions, over)
            except ClientError as error:
                self._tried_in_vain(error)
            await _wait(over, self.draw.uniform(*OFFLINE_S))

    async def acknowledged(self) -> int:
        """How many results the broker knows to be acknowledged."""
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

    def _tried_in_vain(self, error: ClientError) -> None:
        self.tally.troubles += 1
        self.tally.last_trouble = str(error)

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
        async for result in client.results(*subscriptions, gone="skip"):
            self._take(result, since_ms)

    def _take(self, result: Result, since_ms: float) -> None:
        """In order for each subscription; what came before may come again."""
        if result.position <= self.seen.get(result.subscription, 0):
            self.tally.repeated += 1
            return
        self.seen[result.subscription] = result.position
        self.tally.received += 1
        self.tally.missed += result.missed
        if result.at_ms >= since_ms:
            self.tally.came(time.time() * 1000 - result.at_ms)


async def _wait(over: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(over.wait(), seconds)
    except TimeoutError:
        return
