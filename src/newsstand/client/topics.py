"""Topics: publish, subscribe by filters, and query the history.

    async with client.topics() as topics:
        await topics.subscribe("topic = 'storms' and severity >= 3")
        await topics.publish("storms", {"severity": 4}, {"text": "Take shelter."})
        async for message in topics:
            print(message.body)

One WebSocket carries all subscriptions and is reopened whenever it closes. Messages published meanwhile are not
repeated; `interruptions` counts such gaps, and `history` returns the messages if the topic has a storage.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Self

import aiohttp
import msgspec

from newsstand.client.http import ApiResponse, decoded
from newsstand.client.models import ClientError, Message, PublishReceipt, RequestRejected, Unreachable, UsageError
from newsstand.client.session import BrokerSocket, Session
from newsstand.model import Scalar

Request = Callable[..., Awaitable[ApiResponse]]


class _HistoryPage(msgspec.Struct):
    messages: list[Message]
    next: str | None = None
    unavailable: list[str] = []
    from_cache: list[str] = []
    complete: bool = True


class MessageHistory(AsyncIterator[Message]):
    """Messages, oldest first, fetched page by page; `from_cache` and `complete` are known after the last one."""

    def __init__(self, ask: Request, filter: str, limit: int) -> None:
        self._messages = self._read(ask, filter, limit)
        self.from_cache: set[str] = set()
        """Topics without a storage: their messages come from the caches of brokers.

        A topic of the filter without messages is empty if it is not one of these. If it is, nothing of it is
        cached, or its name is mistyped.
        """
        self.complete = True
        """Whether all cached messages were returned; if not, a broker did not answer, or there were too many."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        return await anext(self._messages)

    async def _read(self, ask: Request, filter: str, limit: int) -> AsyncIterator[Message]:
        query: dict[str, object] = {"filter": filter, "limit": limit}
        while True:
            page = decoded(await ask("GET", "/topics", params=query), _HistoryPage)
            self.from_cache = self.from_cache.union(page.from_cache).difference(page.unavailable)
            self.complete = self.complete and page.complete
            for message in page.messages:
                yield message
            if page.unavailable:
                raise RequestRejected(
                    f"history incomplete: no storage answers for {', '.join(page.unavailable)}", 503
                )
            if page.next is None:
                return
            query["after"] = page.next


MAX_FRAME_BYTES = 64 * 1024
"""The largest frame that a broker accepts, in bytes of JSON; it closes the connection if one is larger."""


class _TopicFrame(msgspec.Struct):
    ready: bool = False
    done: int | None = None
    stored: bool = False
    publication: tuple[str, int] = ("", 0)
    error: int | None = None
    message: Message | str | None = None


_decode = msgspec.json.Decoder(_TopicFrame).decode


class Topics(BrokerSocket):
    """The topics of a platform, for one subscriber."""

    path = "topics"
    renews = False

    def __init__(self, session: Session, ask: Request) -> None:
        super().__init__(session)
        self._request = ask
        self._number = 0
        self._filters: dict[int, str] = {}
        self._waiting: dict[int, asyncio.Future[_TopicFrame]] = {}
        self._messages: asyncio.Queue[Message | None] = asyncio.Queue()
        self._can_read = asyncio.Event()
        self._can_read.set()
        self._seen: dict[tuple[str, int], None] = {}
        self.interruptions = 0
        """How often the connection was lost, and perhaps messages with it."""

    async def __aenter__(self) -> Self:
        try:
            await self._connected()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End all subscriptions and the connection."""
        self.failure = self.failure or UsageError("the topics are closed")
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        self._on_end()

    async def subscribe(self, filter: str) -> int:
        """Receive all messages that match a filter from now on; return the number of the subscription."""
        self._number += 1
        number = self._number
        self._filters[number] = filter
        try:
            await self._exchange(number, {"subscribe": filter, "id": number})
        except Unreachable:
            await self._connected()  # with all subscriptions
        except ClientError:
            del self._filters[number]
            raise
        return number

    async def unsubscribe(self, number: int) -> None:
        """End a subscription."""
        if self._filters.pop(number, None) is not None:
            with suppress(Unreachable):  # another connection does not have it
                await self._exchange(number, {"unsubscribe": number})

    async def publish(
        self, topic: str, attributes: Mapping[str, Scalar] | None = None, body: Any = None
    ) -> PublishReceipt:
        """Publish a message; durable when it returns, if `stored`.

        Unreachable is raised if the connection is lost before the answer; the message may have been published.
        """
        self._number += 1
        request = {"topic": topic, "attributes": attributes or {}, "body": body}
        answer = await self._exchange(self._number, {"publish": request, "id": self._number})
        return PublishReceipt(answer.publication, answer.stored)

    def history(self, filter: str) -> MessageHistory:
        """Return the stored messages that match a filter, oldest first; of topics without a storage, cached ones.

        RequestRejected is raised at the end if no storage of a topic in the filter answers, or if the topic has no
        storage and brokers do not cache.
        """
        return MessageHistory(self._request, filter, self._pace.limit)

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Iterate over the messages of all subscriptions as they arrive, each once."""
        self._begin()
        while True:
            message = await self._messages.get()
            self._update_flow()
            if message is None:
                raise self.failure or UsageError("the topics are closed")
            yield message

    async def _connected(self) -> None:
        self._begin()
        assert self._running is not None
        waiting = asyncio.create_task(self.ready.wait())
        try:
            await asyncio.wait(
                {waiting, self._running}, timeout=self._pace.deadline_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            waiting.cancel()
        if self.failure is not None:
            raise self.failure
        if not self.ready.is_set():
            raise Unreachable(f"no broker answers; given up after {self._pace.deadline_s:g} s")

    def _begin(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self._running is None:
            self._start()

    async def _exchange(self, number: int, request: object) -> _TopicFrame:
        """Send a request and return its answer."""
        frame = msgspec.json.encode(request)
        if len(frame) > MAX_FRAME_BYTES:
            raise UsageError(f"{len(frame):,} bytes of JSON: a broker accepts at most {MAX_FRAME_BYTES:,} at once")
        await self._connected()
        assert self._socket is not None
        answered: asyncio.Future[_TopicFrame] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answered
        self._update_flow()
        try:
            async with asyncio.timeout(self._pace.deadline_s):
                await self._socket.send_frame(frame, aiohttp.WSMsgType.TEXT)
                return await answered
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Unreachable(f"the broker has not answered ({type(error).__name__})") from error
        finally:
            self._waiting.pop(number, None)

    def _on_end(self) -> None:
        self._on_lost()
        self._messages.put_nowait(None)

    async def _on_frame(self, socket: aiohttp.ClientWebSocketResponse, frame: str | bytes) -> None:
        answer = _decode(frame)
        if answer.ready:
            await self._subscribe_all(socket)
        elif isinstance(answer.message, Message):
            await self._receive(answer.message)
        else:
            self._on_answer(answer)

    async def _subscribe_all(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        for number, filter in list(self._filters.items()):
            request = {"subscribe": filter, "id": number}
            await socket.send_frame(msgspec.json.encode(request), aiohttp.WSMsgType.TEXT)
        self._backoff.reset()
        self.ready.set()

    async def _receive(self, message: Message) -> None:
        if message.id in self._seen:
            return
        self._seen[message.id] = None
        if len(self._seen) > self._pace.known_messages:
            del self._seen[next(iter(self._seen))]
        self._messages.put_nowait(message)
        self._update_flow()
        await self._can_read.wait()

    def _update_flow(self) -> None:
        """Read on if the queue is short, or if an answer may follow unread messages."""
        if self._waiting or self._messages.qsize() < self._pace.queued_messages:
            self._can_read.set()
        else:
            self._can_read.clear()

    def _on_answer(self, answer: _TopicFrame) -> None:
        number = answer.done if answer.error is None else answer.error
        waiting = None if number is None else self._waiting.get(number)
        if waiting is None or waiting.done():
            return
        if answer.error is None:
            waiting.set_result(answer)
        else:
            waiting.set_exception(RequestRejected(str(answer.message), 422))

    def _on_lost(self) -> None:
        if self.ready.is_set() and self.failure is None:
            self.interruptions += 1
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(Unreachable("the connection was lost before the broker answered"))
