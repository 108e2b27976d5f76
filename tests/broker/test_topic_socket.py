"""A client of topics over one connection, by itself."""

from __future__ import annotations

import asyncio
from typing import cast

from newsstand.broker.socket_connection import Connection
from newsstand.broker.topic_messages import Listener
from newsstand.broker.topic_socket import Visitor
from newsstand.broker.topics import Topics
from newsstand.overlay.filters import Filter


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
