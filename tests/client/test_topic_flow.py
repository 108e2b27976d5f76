"""Topics of the client with a broker that sends more than the caller reads."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any, Self, cast

import aiohttp
import msgspec

from newsstand.client import Message, Pace, Tokens, Topics
from newsstand.client.http import HttpCalls
from newsstand.client.session import BrokerLocator, Session

QUEUED = 50
PACE = Pace(first_s=0.01, queued_messages=QUEUED)


class Socket:
    """A WebSocket with many pending messages, then answers; it yields to other tasks when it sends."""

    def __init__(self, messages: int) -> None:
        self.frames: asyncio.Queue[aiohttp.WSMessage] = asyncio.Queue()
        self.said: list[dict[str, Any]] = []
        self._exchange({"ready": True})
        for number in range(messages):
            self._exchange({"message": Message(("b1", number), "storms", {}, 0, number), "for": [1]})

    def lose(self) -> None:
        """End the connection; the next one is ready at once."""
        self.frames.put_nowait(aiohttp.WSMessage(aiohttp.WSMsgType.CLOSED, None, None))
        self._exchange({"ready": True})

    def _exchange(self, response: object) -> None:
        text = msgspec.json.encode(response).decode()
        self.frames.put_nowait(aiohttp.WSMessage(aiohttp.WSMsgType.TEXT, text, None))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    async def receive(self) -> aiohttp.WSMessage:
        return await self.frames.get()

    async def send_frame(self, message: bytes, opcode: aiohttp.WSMsgType) -> None:
        said = msgspec.json.decode(message)
        self.said.append(said)
        await asyncio.sleep(0)
        self._exchange({"done": said["id"], "publication": ["b1", 10_000 + said["id"]]})


class Pool:
    """A pool of connections whose only WebSocket is the given one."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket

    async def ws_connect(self, url: str, **options: object) -> Socket:
        return self._socket


def listening(socket: Socket) -> Topics:
    calls = HttpCalls(cast(aiohttp.ClientSession, Pool(socket)), None, PACE, random.Random(1))
    locator = BrokerLocator(calls, None, "http://broker", None, None)
    tokens = Tokens("access", "refresh", 900, "ana", expires_at=time.time() + 900)
    session = Session(calls, locator, None, None, tokens, register=False, allow=None, on_tokens=None)
    return Topics(session, cast(Any, None))


def test_topics_answer_a_publisher_while_messages_are_unread() -> None:
    async def story() -> None:
        topics = listening(Socket(2 * QUEUED))
        taken = []
        async with asyncio.timeout(10):
            async for message in topics:
                taken.append(message.body)
                await topics.publish("storms", {}, message.body)
                if len(taken) == 2 * QUEUED:
                    break
        assert taken == list(range(2 * QUEUED))
        await topics.close()

    asyncio.run(story())


def test_topics_stop_reading_at_a_full_queue() -> None:
    async def story() -> None:
        socket = Socket(2 * QUEUED)
        async with listening(socket):
            for _ in range(100):
                await asyncio.sleep(0)
            assert socket.frames.qsize() == QUEUED

    asyncio.run(story())


def test_topic_subscription_added_while_earlier_ones_are_sent() -> None:
    async def story() -> None:
        socket = Socket(0)
        async with asyncio.timeout(10), listening(socket) as topics:
            await topics.subscribe("true")
            await topics.subscribe("false")
            socket.said.clear()
            socket.lose()
            while not socket.said:
                await asyncio.sleep(0)
            await topics.subscribe("severity > 3")
            assert [one["id"] for one in socket.said] == [1, 2, 3]

    asyncio.run(story())
