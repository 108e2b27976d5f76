"""The replay of a running broker's event log has the hits that the broker had."""

from __future__ import annotations

import asyncio
import csv
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from support.broker.press import Press
from support.broker.process import start_broker, wait_ready

from newsstand.cli.main import run
from newsstand.client import Client, Pace, Tokens

KINDS = [f"kind-{number}" for number in range(8)]
BUDGET = 12_000


class Reader:
    """A subscriber of four kinds who comes and goes, and acknowledges at once."""

    def __init__(self, url: str, number: int) -> None:
        self.url = url
        self.name = f"reader-{number}"
        self.kinds = random.Random(number).sample(KINDS, 4)
        self.tokens: Tokens | None = None
        self._client: Client | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def is_online(self) -> bool:
        return self._client is not None

    async def come(self) -> None:
        self._client = client = self._made()
        subscriptions = await client.subscriptions()
        if not subscriptions:
            subscriptions = [await client.subscribe("of_kind", kind) for kind in self.kinds]
        self.tokens = client.tokens

        async def read() -> None:
            async for _ in client.results(*subscriptions):
                pass

        self._reading = asyncio.create_task(read())
        await self.has_everything()

    async def has_everything(self) -> None:
        assert self._client is not None
        async with asyncio.timeout(30):
            while any(one.position < one.head for one in await self._client.subscriptions()):
                await asyncio.sleep(0.005)

    async def go(self) -> None:
        assert self._client is not None
        assert self._reading is not None
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        await self._client.close()
        self._client = None

    def _made(self) -> Client:
        pace = Pace(acks=1, ack_within_s=0.0)
        if self.tokens is not None:
            return Client(broker=self.url, tokens=self.tokens, pace=pace)
        return Client(broker=self.url, name=self.name, password="correct horse", register=True, pace=pace)


@asynccontextmanager
async def readers_at(url: str, number: int) -> AsyncIterator[list[Reader]]:
    readers = [Reader(url, each) for each in range(number)]
    try:
        yield readers
    finally:
        for reader in readers:
            if reader.is_online:
                await reader.go()


async def a_busy_time(press: Press, url: str, steps: int) -> dict[str, int]:
    """Results come, readers come and go, and each step is over before the next; what the broker counted."""
    rng = random.Random(5)
    async with httpx.AsyncClient(base_url=url, verify=False) as http, readers_at(url, 10) as readers:

        async def until(name: str, holds: Callable[[int], bool]) -> int:
            async with asyncio.timeout(30):
                while True:
                    stats = (await http.get("/stats")).json()
                    found: int = (stats | stats["results"])[name]
                    if holds(found):
                        return found
                    await asyncio.sleep(0.005)

        pulled = 0
        for reader in readers:
            await reader.come()
        for _ in range(steps):
            who, kind = rng.choice(readers), rng.choice(KINDS)
            if rng.random() < 0.3:
                await (who.go() if who.is_online else who.come())
                await until("connections", sum(reader.is_online for reader in readers).__eq__)
            else:
                item = {"channel": "of_kind", "values": [kind], "payload": {"id": "x" * rng.randrange(100, 1500)}}
                assert press.print([item]) == 1
                pulled = await until("pulled_bytes", pulled.__lt__)
                await asyncio.gather(*(reader.has_everything() for reader in readers if reader.is_online))
        counted: dict[str, int] = (await http.get("/stats")).json()["results"]
        return counted


def hits_logged(folder: Path) -> int:
    with (folder / "accesses.csv").open(newline="") as lines:
        return sum(int(row["hit"]) for row in csv.DictReader(lines) if row["kind"] == "result")


def test_replay_of_the_log_has_the_hits_of_the_broker(
    press: Press, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NEWSSTAND_BROKER_OPEN_STATS", "true")
    more = ("--results-policy", "lsc", "--results-budget", BUDGET)
    broker = start_broker(tmp_path, press.url, "replayed", 0, *more)
    try:
        wait_ready(broker.url)
        live = asyncio.run(a_busy_time(press, broker.url, steps=150))
    finally:
        assert broker.stop() == 0
    assert live["hits"] == hits_logged(tmp_path / "access")
    hit_ratio = live["hits"] / (live["hits"] + live["misses"])
    assert live["dropped"] > 20, "the cache is under pressure"
    assert (
        run(["replay", str(tmp_path / "access"), "--policy", "lsc", "--cache-bytes", str(BUDGET), "--json"]) == 0
    )
    (measured,) = json.loads(capsys.readouterr().out)
    assert measured["hit_ratio"] == pytest.approx(hit_ratio, abs=0.01)
    assert measured["hits"] > measured["hits_push"] > 0 < measured["misses"]
