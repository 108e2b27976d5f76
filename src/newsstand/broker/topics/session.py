"""Sessions of clients at the WebSocket `/topics`: subscribe, unsubscribe, publish, request."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Annotated

import msgspec
from starlette.websockets import WebSocket

from newsstand.broker.sessions.rules import TopicRules
from newsstand.broker.sessions.subscribers import AuthenticatedSubscriber
from newsstand.broker.topics.service import TopicService, message_json
from newsstand.broker.websocket.connection import READY, CloseConnection, Connection, text_frame
from newsstand.broker.websocket.hub import Hub
from newsstand.broker.websocket.protocol import Authenticate, SocketIdentity, accept_client, decode_message
from newsstand.config.settings import SubscriberLimits
from newsstand.errors import NewsstandError
from newsstand.overlay.filters.filter import Filter
from newsstand.overlay.filters.value_sets import Value
from newsstand.overlay.messages import MessagePosition, Publication
from newsstand.wire.notifications import CloseCode

Id = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


@dataclass(frozen=True, slots=True)
class TopicSessionLimits:
    """Limits of one connection."""

    unanswered: int = 256
    """Publications and requests without an answer; the next one waits."""
    reads: int = 4
    """Requests that are answered at a time: each has pages in memory until the client has read them."""
    unread: int = 10_000
    """Messages that the client has not read; one more closes the connection."""
    unread_bytes: int = 4 * 1024 * 1024
    page: int = 200
    poll_s: float = 0.05


class NewPublication(msgspec.Struct, forbid_unknown_fields=True):
    """A publication of a client; `body` is any JSON."""

    topic: str
    attributes: dict[str, Value] = {}
    body: msgspec.Raw = msgspec.Raw(b"")


class _TopicRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A message of a client: one of these, with its number."""

    subscribe: str | None = None
    unsubscribe: Id | None = None
    publish: NewPublication | None = None
    request: str | None = None
    ping: msgspec.Raw | None = None
    id: Id = 0


@dataclass(eq=False, repr=False)
class TopicSession:
    """A client over one connection: answers its requests, and delivers what it subscribes to."""

    connection: Connection
    topics: TopicService
    client: str = ""
    """Has its requests counted."""
    subscriber: str = ""
    rules: TopicRules = field(default_factory=lambda: TopicRules({}))
    quotas: SubscriberLimits = field(default_factory=SubscriberLimits)
    subscriptions: Counter[str] = field(default_factory=Counter)
    """The subscriptions of each subscriber, over all its connections."""
    limits: TopicSessionLimits = TopicSessionLimits()

    def __post_init__(self) -> None:
        self._filters: dict[int, Filter] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._unanswered = asyncio.Semaphore(self.limits.unanswered)
        self._reads = asyncio.Semaphore(self.limits.reads)
        self._number = 0
        self._is_closed = False

    async def __call__(self, message: bytes) -> bytes | None:
        """Return the answer to a message, unless it is sent later."""
        if self._is_closed:
            return None
        request = decode_message(message, _TopicRequest)
        fields = [request.subscribe, request.unsubscribe, request.publish, request.request, request.ping]
        if sum(field is not None for field in fields) != 1:
            raise CloseConnection(
                CloseCode.MALFORMED, "a message has one of subscribe, unsubscribe, publish, request, ping"
            )
        if request.ping is not None:
            return msgspec.json.encode({"pong": request.ping})
        try:
            if request.subscribe is not None:
                return self._subscribe(request.id, request.subscribe)
            if request.unsubscribe is not None:
                return self._unsubscribe(request.unsubscribe)
            if request.publish is not None:
                await self._start(request.id, self._publish(request.id, request.publish))
            elif request.request is not None:
                await self._start(request.id, self._request(request.id, Filter.parse(request.request)))
        except NewsstandError as error:
            return _error(request.id, error)
        return None

    def deliver(self, publication: Publication, encoded: bytes) -> None:
        if not self.rules.may_read(self.subscriber, publication.topic):
            return
        numbers = [number for number, wanted in self._filters.items() if wanted.matches(publication)]
        self._write(b'{"message":%b,"for":%b}' % (encoded, msgspec.json.encode(numbers)))

    def close(self) -> None:
        """End the session after its connection."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        self.topics.remove_listener(self)
        self._count(-len(self._filters))
        self._filters.clear()

    def _subscribe(self, number: int, text: str) -> bytes:
        wanted = Filter.parse(text)
        self.rules.require_read(self.subscriber, wanted)
        self._unsubscribe(number)
        held = self.subscriptions[self.subscriber]
        self.quotas.require("filters", held, "subscriptions to topics of one subscriber")
        self._filters[number] = wanted
        self._count(1)
        self.topics.subscribe(self, wanted)
        return msgspec.json.encode({"done": number})

    def _unsubscribe(self, number: int) -> bytes:
        wanted = self._filters.pop(number, None)
        self._count(0 if wanted is None else -1)
        if wanted is not None and wanted not in self._filters.values():
            self.topics.unsubscribe(self, wanted)
        return msgspec.json.encode({"done": number})

    def _count(self, change: int) -> None:
        self.subscriptions[self.subscriber] += change
        if not self.subscriptions[self.subscriber]:
            del self.subscriptions[self.subscriber]

    async def _publish(self, number: int, new: NewPublication) -> None:
        self.rules.require_publish(self.subscriber, new.topic)
        result = await self.topics.publish(new.topic, new.attributes, bytes(new.body), self.subscriber)
        self._write(msgspec.json.encode({"done": number, "stored": result.stored, "publication": result.id}))

    async def _request(self, number: int, wanted: Filter) -> None:
        self.rules.require_read(self.subscriber, wanted)
        async with self._reads:
            await self._read(number, wanted)

    async def _read(self, number: int, wanted: Filter) -> None:
        after: MessagePosition | None = None
        count = 0
        from_cache: set[str] = set()
        complete = True
        while True:
            page = await self.topics.history(wanted, after, self.limits.page, self.client)
            from_cache.update(page.from_cache)
            complete = complete and page.complete
            readable = [one for one in page.publications if self.rules.may_read(self.subscriber, one.topic)]
            for one in readable:
                if self.connection.queued_bytes >= self.limits.unread_bytes // 2:
                    await self._wait_until_read()
                self._write(b'{"response":%d,"message":%b}' % (number, message_json(one)))
            count += len(readable)
            after = page.next
            unavailable = self.rules.readable(self.subscriber, page.unavailable)
            if after is None or unavailable:  # unavailable topics that the subscriber may not read end nothing
                break
            await self._wait_until_read()
        from_cache.difference_update(page.unavailable)
        end = {
            "end": number,
            "count": count,
            "unavailable": unavailable,
            "from_cache": self.rules.readable(self.subscriber, sorted(from_cache)),
            "complete": complete,
        }
        self._write(msgspec.json.encode(end))

    async def _wait_until_read(self) -> None:
        while self.connection.queued and not self.connection.closing:
            await asyncio.sleep(self.limits.poll_s)

    async def _start(self, number: int, work: Coroutine[None, None, None]) -> None:
        """Start work as a task, as soon as there are few others."""
        await self._unanswered.acquire()
        if self._is_closed:
            work.close()
            return
        task = asyncio.create_task(self._answer(number, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, number: int, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except NewsstandError as error:
            self._write(_error(number, error))
        finally:
            self._unanswered.release()

    def _write(self, payload: bytes) -> None:
        """Send a frame; frames for a client that does not read wait, up to a limit."""
        unread, size = self.connection.queued, self.connection.queued_bytes
        if unread >= self.limits.unread or size >= self.limits.unread_bytes:
            self.connection.close(CloseCode.TOO_SLOW, "stopped reading")
            return
        self._number += 1
        self.connection.deliver(str(self._number), text_frame(payload))


def _error(number: int, error: NewsstandError) -> bytes:
    return msgspec.json.encode({"error": number, "message": str(error)})


@dataclass(frozen=True, slots=True)
class TopicClient(SocketIdentity):
    """An authenticated subscriber at the other end of a WebSocket."""

    member: AuthenticatedSubscriber


async def serve_topics(
    websocket: WebSocket,
    hub: Hub,
    topics: TopicService,
    admit: Authenticate[TopicClient],
    rules: TopicRules,
    quotas: SubscriberLimits,
    subscriptions: Counter[str],
) -> None:
    """Authenticate a client and start its session; return when the connection is handed over."""
    accepted = await accept_client(websocket, hub, admit)
    if accepted is None:
        return
    connection, client = accepted
    name = client.member.name
    session = TopicSession(connection, topics, client.subscriber, name, rules, quotas, subscriptions)
    leave = connection.on_close

    def left(closed: Connection) -> None:
        if leave is not None:
            leave(closed)
        session.close()

    connection.on_close = left
    connection.deliver("", READY)
    connection.hand_over(session)
