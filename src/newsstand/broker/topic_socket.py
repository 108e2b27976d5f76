"""What is said over a client's WebSocket `/topics`: subscribe, unsubscribe, publish, request."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated

import msgspec
from starlette.websockets import WebSocket

from newsstand.broker.members import Member
from newsstand.broker.socket_connection import Connection
from newsstand.broker.socket_frames import MALFORMED, READY, TOO_SLOW, Dismissed, text_frame
from newsstand.broker.socket_talk import Admits, Admitted, decoded, let_into
from newsstand.broker.sockets import Hub
from newsstand.broker.topic_messages import written
from newsstand.broker.topic_rules import TopicRules
from newsstand.broker.topics import Topics
from newsstand.errors import NewsstandError
from newsstand.overlay.filters import Filter
from newsstand.overlay.messages import Position, Publication
from newsstand.overlay.value_sets import Value
from newsstand.serving.limits import Limits

MOST_AT_ONCE = 256
"""Publications and requests of one connection that are not answered yet; the next waits."""
MOST_READS = 4
"""Requests of one connection that are being answered: each has pages in memory until the client has read them."""
MOST_WAITING = 10_000
"""Messages for a client that does not read; one more, and it is closed."""
MOST_BYTES = 4 * 1024 * 1024
"""Bytes of these messages."""
PAGE = 200

Id = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class NewPublication(msgspec.Struct, forbid_unknown_fields=True):
    """What a client publishes; `body` is any JSON."""

    topic: str
    attributes: dict[str, Value] = {}
    body: msgspec.Raw = msgspec.Raw(b"")


class _Said(msgspec.Struct, forbid_unknown_fields=True):
    """A message of a client: one of these, with its number."""

    subscribe: str | None = None
    unsubscribe: Id | None = None
    publish: NewPublication | None = None
    request: str | None = None
    ping: msgspec.Raw | None = None
    id: Id = 0


class Visitor:
    """A client over one connection: answers what it says, and gets what it subscribes to."""

    def __init__(
        self,
        connection: Connection,
        topics: Topics,
        name: str = "",
        subscriber: str = "",
        rules: TopicRules = TopicRules({}),  # noqa: B008  it does not change
        limits: Limits = Limits(),  # noqa: B008  it is frozen
        interests: Counter[str] | None = None,
    ) -> None:
        """`name` is the client's, for its requests to be counted by; the rules hold for the subscriber.

        `interests` are the subscriptions of each subscriber, over all its connections.
        """
        self._name = name
        self._subscriber = subscriber
        self._rules = rules
        self._limits = limits
        self._interests: Counter[str] = Counter() if interests is None else interests
        self._connection = connection
        self._topics = topics
        self._filters: dict[int, Filter] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(MOST_AT_ONCE)
        self._reads = asyncio.Semaphore(MOST_READS)
        self._number = 0
        self._gone = False

    async def __call__(self, message: bytes) -> bytes | None:
        """The answer to a message, unless it comes later; what is said before a goodbye may come after it."""
        if self._gone:
            return None
        said = decoded(message, _Said)
        given = [said.subscribe, said.unsubscribe, said.publish, said.request, said.ping]
        if sum(one is not None for one in given) != 1:
            raise Dismissed(MALFORMED, "a message has one of subscribe, unsubscribe, publish, request, ping")
        if said.ping is not None:
            return msgspec.json.encode({"pong": said.ping})
        try:
            if said.subscribe is not None:
                return self._subscribe(said.id, said.subscribe)
            if said.unsubscribe is not None:
                return self._unsubscribe(said.unsubscribe)
            if said.publish is not None:
                await self._soon(said.id, self._publish(said.id, said.publish))
            elif said.request is not None:
                await self._soon(said.id, self._request(said.id, Filter.parse(said.request)))
        except NewsstandError as error:
            return _error(said.id, error)
        return None

    def deliver(self, publication: Publication, written: bytes) -> None:
        """Something that the client has subscribed to."""
        if not self._rules.may_read(self._subscriber, publication.topic):
            return
        numbers = [number for number, wanted in self._filters.items() if wanted.matches(publication)]
        self._write(b'{"message":%b,"for":%b}' % (written, msgspec.json.encode(numbers)))

    def leave(self) -> None:
        """The client has gone."""
        self._gone = True
        for task in self._tasks:
            task.cancel()
        self._topics.gone(self)
        self._count(-len(self._filters))
        self._filters.clear()

    def _subscribe(self, number: int, text: str) -> bytes:
        wanted = Filter.parse(text)
        self._rules.require_read(self._subscriber, wanted)
        self._unsubscribe(number)
        held = self._interests[self._subscriber]
        self._limits.require("filters", held, "subscriptions to topics of one subscriber")
        self._filters[number] = wanted
        self._count(1)
        self._topics.subscribe(self, wanted)
        return msgspec.json.encode({"done": number})

    def _unsubscribe(self, number: int) -> bytes:
        wanted = self._filters.pop(number, None)
        self._count(0 if wanted is None else -1)
        if wanted is not None and wanted not in self._filters.values():
            self._topics.unsubscribe(self, wanted)
        return msgspec.json.encode({"done": number})

    def _count(self, more: int) -> None:
        self._interests[self._subscriber] += more
        if not self._interests[self._subscriber]:
            del self._interests[self._subscriber]

    async def _publish(self, number: int, given: NewPublication) -> None:
        self._rules.require_publish(self._subscriber, given.topic)
        published = await self._topics.publish(given.topic, given.attributes, bytes(given.body), self._subscriber)
        self._write(msgspec.json.encode({"done": number, "stored": published.stored, "publication": published.id}))

    async def _request(self, number: int, wanted: Filter) -> None:
        self._rules.require_read(self._subscriber, wanted)
        async with self._reads:
            await self._read(number, wanted)

    async def _read(self, number: int, wanted: Filter) -> None:
        after: Position | None = None
        count = 0
        cached: set[str] = set()
        whole = True
        while True:
            page = await self._topics.past(wanted, after, PAGE, self._name)
            cached.update(page.cached)
            whole = whole and page.whole
            readable = [one for one in page.publications if self._rules.may_read(self._subscriber, one.topic)]
            for one in readable:
                if self._connection.held_bytes >= MOST_BYTES // 2:
                    await self._read_up()
                self._write(b'{"response":%d,"message":%b}' % (number, written(one)))
            count += len(readable)
            after = page.next
            if after is None or page.missing:
                break
            await self._read_up()
        cached.difference_update(page.missing)
        end = {"end": number, "count": count, "missing": page.missing, "cached": sorted(cached), "whole": whole}
        self._write(msgspec.json.encode(end))

    async def _read_up(self) -> None:
        """Wait until the client has read what there is for it."""
        while self._connection.held and not self._connection.closing:
            await asyncio.sleep(0.05)

    async def _soon(self, number: int, work: Coroutine[None, None, None]) -> None:
        """Have work done beside others', if there is room."""
        await self._room.acquire()
        if self._gone:
            work.close()
            return
        task = asyncio.create_task(self._answered(number, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answered(self, number: int, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except NewsstandError as error:
            self._write(_error(number, error))
        finally:
            self._room.release()

    def _write(self, payload: bytes) -> None:
        """Every frame counts: those for a client that does not read wait, as long as they are not too many."""
        if self._connection.held >= MOST_WAITING or self._connection.held_bytes >= MOST_BYTES:
            self._connection.close(TOO_SLOW, "stopped reading")
            return
        self._number += 1
        self._connection.deliver(str(self._number), text_frame(payload))


def _error(number: int, error: NewsstandError) -> bytes:
    return msgspec.json.encode({"error": number, "message": str(error)})


@dataclass(frozen=True, slots=True)
class Guest(Admitted):
    """A member at the other end of a WebSocket."""

    member: Member


async def serve_topics(
    websocket: WebSocket,
    hub: Hub,
    topics: Topics,
    admit: Admits[Guest],
    rules: TopicRules,
    limits: Limits,
    interests: Counter[str],
    require_room: Callable[[Guest], None],
) -> None:
    """Let a client in; returns as soon as it is settled."""
    let_in = await let_into(websocket, hub, admit, require_room=require_room)
    if let_in is None:
        return
    connection, admitted = let_in
    visitor = Visitor(connection, topics, admitted.subscriber, admitted.member.name, rules, limits, interests)
    leave = connection.left

    def left(gone: Connection) -> None:
        if leave is not None:
            leave(gone)
        visitor.leave()

    connection.left = left
    connection.deliver("", READY)
    connection.settle(visitor)
