"""Many subscribers at a time, created at the coordinator without hashing a password for each."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import httpx
import jwt

from newsstand.auth.credentials import broker_credential
from newsstand.auth.signing import key
from newsstand.client import Client, Pace, Subscription, Tokens
from newsstand.model import INSTANCE_HEADER
from support.broker.process import SECRET


def enrol(coordinator: str, data: Path, broker: str, names: Sequence[str]) -> list[Tokens]:
    """Register subscribers in the name of a broker, each with a session; `data` is the coordinator's folder."""
    now = int(time.time())
    headers = {
        "Authorization": f"Bearer {broker_credential(SECRET, broker)}",
        INSTANCE_HEADER: _instance(data, broker),
    }
    changes = []
    with httpx.Client(base_url=coordinator, headers=headers, timeout=30, verify=False) as http:
        for name in names:
            body = {"name": name, "hash": "$argon2id$none", "broker": broker}
            http.post("/subscribers", json=body).raise_for_status()
            session = {"sid": f"s-{name}", "generation": 1, "expires": (now + 86400) * 1000, "allow": None}
            changes.append({"op": "session", "name": name, **session})
        http.post(f"/brokers/{broker}/changes", json=changes).raise_for_status()
    return [_tokens(name, now) for name in names]


def _instance(data: Path, broker: str) -> str:
    """Read which process is a broker from a copy of the coordinator's store, which no other process may open."""
    with TemporaryDirectory() as folder:
        for file in data.glob("coordinator.sqlite*"):
            shutil.copy(file, folder)
        with closing(sqlite3.connect(Path(folder) / "coordinator.sqlite")) as store:
            (instance,) = store.execute("SELECT instance FROM brokers WHERE name = ?", (broker,)).fetchone()
    return str(instance)


def _tokens(name: str, now: int) -> Tokens:
    claims = {"sub": name, "sid": f"s-{name}", "iat": now, "iss": "newsstand"}
    signing = key(SECRET, "subscribers")
    access = jwt.encode({**claims, "exp": now + 900}, signing, "HS256")
    refresh = jwt.encode({**claims, "exp": now + 86400, "gen": 1, "use": "refresh"}, signing, "HS256")
    return Tokens(access, refresh, 900, name, now + 900)


@dataclass
class Reader:
    """A client that reads one subscription and records its results."""

    client: Client
    kind: str
    positions: list[int] = field(default_factory=list)
    at: float = 0.0
    subscription: Subscription | None = None

    async def enter(self) -> None:
        self.subscription = await self.client.subscribe("of_kind", self.kind)

    async def read(self) -> None:
        assert self.subscription is not None
        async for result in self.client.results(self.subscription):
            self.positions.append(result.position)
            self.at = time.monotonic()


def readers(
    coordinator: str, tokens: Sequence[Tokens], kinds: int, http: aiohttp.ClientSession, pace: Pace
) -> list[Reader]:
    return [
        Reader(
            Client(coordinator, tokens=one, http=http, pace=pace, rng=random.Random(number)), f"k{number % kinds}"
        )
        for number, one in enumerate(tokens)
    ]


async def until_all_have(some: Sequence[Reader], head: int, patience: float) -> float:
    """Wait until all readers have all results; return when the last one had."""
    async with asyncio.timeout(patience):
        while any(len(one.positions) < head for one in some):
            await asyncio.sleep(0.02)
    for one in some:
        assert one.positions == list(range(1, head + 1)), one.client.tokens
    return max(one.at for one in some)
