"""The session of one client at `/topics`."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest

from newsstand.broker.sessions.rules import TopicRule, TopicRules
from newsstand.broker.topics.history import HistoryPage
from newsstand.broker.topics.service import TopicListener, TopicService
from newsstand.broker.topics.session import TopicSession, TopicSessionLimits
from newsstand.broker.websocket.connection import Connection
from newsstand.overlay.filters.filter import Filter
from newsstand.overlay.messages import MessagePosition, Publication
from newsstand.wire.notifications import CloseCode

LIMITS = TopicSessionLimits()


class Receiver:
    """A connection whose client reads everything at once."""

    queued = queued_bytes = 0
    closing = False

    def __init__(self) -> None:
        self._frames: list[bytes] = []

    def deliver(self, key: str, frame: bytes) -> None:
        self._frames.append(frame)

    async def received(self, count: int) -> list[bytes]:
        """Wait for a number of messages; return their JSON."""
        async with asyncio.timeout(10):
            while len(self._frames) < count:
                await asyncio.sleep(0)
        return [frame[frame.index(b"{") :] for frame in self._frames]


class Subscriptions:
    """Topics that record subscriptions."""

    def __init__(self) -> None:
        self.wanted: list[tuple[TopicListener, Filter]] = []

    def subscribe(self, listener: TopicListener, wanted: Filter) -> None:
        self.wanted.append((listener, wanted))

    def remove_listener(self, listener: TopicListener) -> None:
        self.wanted = [(other, wanted) for other, wanted in self.wanted if other is not listener]


def test_session_ignores_messages_after_close() -> None:
    async def story() -> None:
        topics = Subscriptions()
        session = TopicSession(cast(Connection, None), cast(TopicService, topics))
        assert await session(b'{"subscribe":"true","id":1}') == b'{"done":1}'
        session.close()
        assert await session(b'{"subscribe":"true","id":2}') is None
        assert topics.wanted == []

    asyncio.run(story())


def test_session_closed_when_client_stops_reading() -> None:
    config = SimpleNamespace(root_path="", loaded_app=None)
    state = SimpleNamespace(connections=set(), tasks=set())
    connection = Connection(cast(Any, config), cast(Any, state), {})
    connection.paused = True
    session = TopicSession(connection, cast(TopicService, Subscriptions()))
    closed: list[int] = []
    body = bytes(LIMITS.unread_bytes // 4)
    with patch.object(Connection, "close", lambda _, code, reason: closed.append(code)):
        for number in range(5):
            session.deliver(Publication("b1", number, "storms"), body)
        assert closed == [CloseCode.TOO_SLOW]
    assert connection.queued == 4


class SlowPast(Subscriptions):
    """Topics whose history is returned when a test releases it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.come = asyncio.Event()

    async def history(self, wanted: Filter, after: MessagePosition | None, limit: int, by: str) -> HistoryPage:
        self.asked.append(by)
        await self.come.wait()
        return HistoryPage([], None, (), ("storms",), complete=len(self.asked) <= LIMITS.reads)


def test_session_answers_a_few_requests_at_a_time() -> None:
    async def story() -> None:
        topics = SlowPast()
        client = Receiver()
        session = TopicSession(cast(Connection, client), cast(TopicService, topics), "eve")
        for number in range(20):
            await session(b'{"request":"true","id":%d}' % number)
        for _ in range(50):
            await asyncio.sleep(0)
        assert topics.asked == ["eve"] * LIMITS.reads
        topics.come.set()
        frames = await client.received(20)
        assert frames[0] == b'{"end":0,"count":0,"unavailable":[],"from_cache":["storms"],"complete":true}'
        assert frames[-1] == b'{"end":19,"count":0,"unavailable":[],"from_cache":["storms"],"complete":false}'

    asyncio.run(story())


class TwoPages(Subscriptions):
    """Topics whose history has two pages, one of them incomplete."""

    async def history(self, wanted: Filter, after: MessagePosition | None, limit: int, by: str) -> HistoryPage:
        one = Publication("b1", 1 if after is None else 2, "storms", body=b"{}")
        return HistoryPage([one], one.position if after is None else None, ("staff",))


@pytest.mark.parametrize(("reader", "count", "missing"), [("eve", 2, []), ("ann", 1, ["staff"])])
def test_session_ignores_unavailable_topics_of_others(reader: str, count: int, missing: list[str]) -> None:
    async def story() -> list[dict[str, Any]]:
        rules = TopicRules({"storms": TopicRule([], ["*"]), "staff": TopicRule([], ["ann"])})
        client = Receiver()
        session = TopicSession(cast(Connection, client), cast(TopicService, TwoPages()), reader, reader, rules)
        await session(b'{"request":"topic IN (\'storms\', \'staff\')","id":1}')
        return [json.loads(one) for one in await client.received(count + 1)]

    *messages, end = asyncio.run(story())
    assert (len(messages), end["count"], end["unavailable"]) == (count, count, missing)
