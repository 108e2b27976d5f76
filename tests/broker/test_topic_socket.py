"""A client of topics over one connection, by itself."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

from newsstand.broker.socket_connection import Connection
from newsstand.broker.socket_frames import TOO_SLOW
from newsstand.broker.topic_messages import Listener
from newsstand.broker.topic_past import Page
from newsstand.broker.topic_socket import MOST_BYTES, MOST_READS, Visitor
from newsstand.broker.topics import Topics
from newsstand.overlay.filters import Filter
from newsstand.overlay.messages import Position, Publication


class Subscriptions:
    """Topics that note who has subscribed."""

    def __init__(self) -> None:
        self.wanted: list[tuple[Listener, Filter]] = []

    def subscribe(self, listener: Listener, wanted: Filter) -> None:
        self.wanted.append((listener, wanted))

    def gone(self, listener: Listener) -> None:
        self.wanted = [(other, wanted) for other, wanted in self.wanted if other is not listener]


def test_what_was_said_before_a_goodbye_and_is_read_after_it_leaves_no_subscription() -> None:
    async def story() -> None:
        topics = Subscriptions()
        visitor = Visitor(cast(Connection, None), cast(Topics, topics))
        assert await visitor(b'{"subscribe":"true","id":1}') == b'{"done":1}'
        visitor.leave()
        assert await visitor(b'{"subscribe":"true","id":2}') is None
        assert topics.wanted == []

    asyncio.run(story())


def test_a_client_that_does_not_read_is_closed_when_too_many_bytes_wait() -> None:
    config = SimpleNamespace(root_path="", loaded_app=None)
    state = SimpleNamespace(connections=set(), tasks=set())
    connection = Connection(cast(Any, config), cast(Any, state), {})
    connection.paused = True
    visitor = Visitor(connection, cast(Topics, Subscriptions()))
    closed: list[int] = []
    body = bytes(MOST_BYTES // 4)
    with patch.object(Connection, "close", lambda _, code, reason: closed.append(code)):
        for number in range(5):
            visitor.deliver(Publication("b1", number, "storms"), body)
        assert closed == [TOO_SLOW]
    assert connection.held == 4


class SlowPast(Subscriptions):
    """Topics whose past comes when it is let come."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.come = asyncio.Event()

    async def past(self, wanted: Filter, after: Position | None, limit: int, by: str) -> Page:
        self.asked.append(by)
        await self.come.wait()
        return Page([], None, (), ("storms",), whole=len(self.asked) <= MOST_READS)


def test_a_client_that_asks_for_much_at_once_is_answered_a_few_at_a_time() -> None:
    async def story() -> None:
        topics = SlowPast()
        visitor = Visitor(cast(Connection, None), cast(Topics, topics), "eve")
        told: list[bytes] = []
        with patch.object(Visitor, "_write", lambda _, payload: told.append(payload)):
            for number in range(20):
                await visitor(b'{"request":"true","id":%d}' % number)
            for _ in range(50):
                await asyncio.sleep(0)
            assert topics.asked == ["eve"] * MOST_READS
            topics.come.set()
            async with asyncio.timeout(10):
                while len(told) < 20:
                    await asyncio.sleep(0)
        assert told[0] == b'{"end":0,"count":0,"missing":[],"cached":["storms"],"whole":true}'
        assert told[-1] == b'{"end":19,"count":0,"missing":[],"cached":["storms"],"whole":false}'

    asyncio.run(story())
