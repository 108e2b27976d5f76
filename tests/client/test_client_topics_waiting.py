"""Topics of the SDK with a broker that says more than the caller takes."""

from __future__ import annotations

import asyncio
import random
from typing import Any, cast

import aiohttp
import msgspec

from newsstand.client import Message, Pace, Topics
from newsstand.client.topics import WAITING


class Socket:
    """Has many messages ready, answers behind them, and lets others speak whenever it sends."""

    def __init__(self, messages: int) -> None:
        self.frames: asyncio.Queue[aiohttp.WSMessage] = asyncio.Queue()
        self.said: list[dict[str, Any]] = []
        self._say({"ready": True})
        for number in range(messages):
            self._say({"message": Message(("b1", number), "storms", {}, 0, number), "for": [1]})

    def _say(self, told: object) -> None:
        text = msgspec.json.encode(told).decode()
        self.frames.put_nowait(aiohttp.WSMessage(aiohttp.WSMsgType.TEXT, text, None))

    async def receive(self) -> aiohttp.WSMessage:
        return await self.frames.get()

    async def send_frame(self, message: bytes, opcode: aiohttp.WSMsgType) -> None:
        said = msgspec.json.decode(message)
        self.said.append(said)
        await asyncio.sleep(0)
        self._say({"done": said["id"], "publication": ["b1", 10_000 + said["id"]]})


def listening(socket: Socket) -> Topics:
    nobody = cast(Any, None)
    topics = Topics(nobody, nobody, nobody, Pace(), random.Random(1), None, nobody)
    topics._running = asyncio.create_task(cast(Any, topics._listen(cast(aiohttp.ClientWebSocketResponse, socket))))
    return topics


def test_whoever_publishes_while_it_takes_messages_gets_its_answer() -> None:
    async def story() -> None:
        topics = listening(Socket(2 * WAITING))
        taken = []
        async with asyncio.timeout(10):
            async for message in topics:
                taken.append(message.body)
                await topics.publish("storms", {}, message.body)
                if len(taken) == 2 * WAITING:
                    break
        assert taken == list(range(2 * WAITING))
        await topics.close()

    asyncio.run(story())


def test_no_more_is_read_than_may_wait() -> None:
    async def story() -> None:
        socket = Socket(2 * WAITING)
        topics = listening(socket)
        for _ in range(100):
            await asyncio.sleep(0)
        assert socket.frames.qsize() == WAITING
        await topics.close()

    asyncio.run(story())


def test_a_subscription_may_come_while_those_before_are_told_to_a_broker() -> None:
    async def story() -> None:
        socket = Socket(0)
        topics = listening(socket)
        topics._filters = {1: "true", 2: "false"}
        while not socket.said:
            await asyncio.sleep(0)
        topics._filters[3] = "severity > 3"
        async with asyncio.timeout(10):
            await topics._ready.wait()
        assert [one["id"] for one in socket.said] == [1, 2]
        await topics.close()

    asyncio.run(story())
