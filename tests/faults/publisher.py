"""A publisher of batches, each with an idempotency key; it repeats a batch until it is answered."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import aiohttp

from faults.interests import KINDS, LONE_KINDS, PLACES, latitude
from faults.journal import Journal, now

TIMEOUT = aiohttp.ClientTimeout(total=15)


class Publisher:
    """A client of the cluster; the journal records each attempt with its answer."""

    def __init__(
        self,
        name: str,
        rng: random.Random,
        http: aiohttp.ClientSession,
        url: str,
        token: Callable[[], str],
        journal: Journal,
        every: float,
    ) -> None:
        self._name = name
        self._rng = rng
        self._http = http
        self._url = f"{url}/datasets/reports/publications"
        self._token = token
        self._journal = journal
        self._every = every
        self.done = asyncio.Event()

    async def run(self) -> None:
        number = 0
        while not self.done.is_set():
            batch = [self._record(f"{self._name}-{number}-{i}") for i in range(self._rng.randint(1, 8))]
            key = f"{self._name}-{number}"
            while not await self._attempt(key, batch):
                await asyncio.sleep(0.3)
            if self._rng.random() < 0.1:  # as a client that has lost the answer
                await self._attempt(key, batch)
            number += 1
            await asyncio.sleep(self._rng.uniform(0, 2 * self._every))

    def _record(self, id: str) -> dict[str, object]:
        kind = self._rng.choice(KINDS if self._rng.random() < 0.6 else LONE_KINDS)
        return {"id": id, "kind": kind, "lat": latitude(self._rng.choice(PLACES)), "lon": 0.5}

    async def _attempt(self, key: str, batch: list[dict[str, object]]) -> bool:
        sent, status, data = now(), None, {}
        headers = {"Authorization": f"Bearer {self._token()}", "Idempotency-Key": key}
        try:
            async with self._http.post(self._url, json=batch, headers=headers, timeout=TIMEOUT) as answer:
                status, data = answer.status, await answer.json()
        except (aiohttp.ClientError, OSError, TimeoutError):
            pass
        self._journal.write(
            op="publish",
            key=key,
            sent=sent,
            got=now(),
            ids=[one["id"] for one in batch],
            status=status,
            answer=data,
        )
        return status == 200
