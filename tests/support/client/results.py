"""Results published by a stand-in of the cluster, and clients that read them."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator

from newsstand.client import Client, Pace, Result, Subscription
from support.broker.press import Press

PASSWORD = "correct horse battery"
QUICK = Pace(first_s=0.1, longest_s=1.0, ack_within_s=0.02)


def a_name() -> str:
    return f"ana-{uuid.uuid4().hex[:12]}"


def a_client(broker: str, name: str | None = None, pace: Pace = QUICK, **more: object) -> Client:
    return Client(
        broker=broker,
        name=name or a_name(),
        password=PASSWORD,
        register=True,
        pace=pace,
        rng=random.Random(7),
        **more,  # type: ignore[arg-type]
    )


def print_numbers(press: Press, kind: str, first: int, last: int) -> None:
    for number in range(first, last + 1):
        press.print([{"channel": "of_kind", "values": [kind], "payload": {"id": f"r{number}"}}])


async def take(results: AsyncIterator[Result], count: int, patience: float = 20) -> list[Result]:
    """Return the next results; all but the last are acknowledged."""
    taken: list[Result] = []
    async with asyncio.timeout(patience):
        while len(taken) < count:
            taken.append(await anext(results))
    return taken


async def standing(client: Client, subscription: Subscription) -> Subscription:
    return {one.id: one for one in await client.subscriptions()}[subscription.id]


async def until_acknowledged(client: Client, subscription: Subscription, position: int) -> None:
    async with asyncio.timeout(10):
        while (await standing(client, subscription)).position != position:
            await asyncio.sleep(0.02)
