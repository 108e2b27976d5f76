"""Topics: publish to them, subscribe to them by filters, and ask for their past.

    async with client.topics() as topics:
        await topics.subscribe("topic = 'storms' and severity >= 3")
        await topics.publish("storms", {"severity": 4}, {"text": "Take shelter."})
        async for message in topics:
            print(message.body)

One WebSocket, opened again whenever it is closed, with all subscriptions. Messages of the meantime are not
repeated; `interruptions` counts how often that has happened, and `past` has them if the topic has a storage.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec

from newsstand.client.calls import Calls
from newsstand.client.errors import ClientError, Misused, Refused, Unreachable
from newsstand.client.home import Home
from newsstand.client.notifications import NO_TOKEN, SENT_AWAY, SILENT_S
from newsstand.client.nouns import Message, Published
from newsstand.client.pace import Pace, full_jitter
from newsstand.client.past import Ask, Past
from newsstand.client.proxies import proxy_for
from newsstand.client.session import Session
from newsstand.model import Scalar

logger = logging.getLogger("newsstand.client")
WAITING = 1000
"""Messages that wait for the caller; while they do, no more are read, unless the caller waits for an answer."""
MOST_SAID = 64 * 1024
"""Bytes of one message to a broker, as JSON; it ends the connection if there are more."""
REMEMBERED = 4096
"""Ids of messages that are known, so that none comes twice."""


class _Told(msgspec.Struct):
    ready: bool = False
    done: int | None = None
    stored: bool = False
    publication: tuple[str, int] = ("", 0)
    error: int | None = None
    message: Message | str | None = None


_told = msgspec.json.Decoder(_Told)


class Topics:
    """The topics of a platform, for one subscriber."""

    def __init__(
        self,
        calls: Calls,
        home: Home,
        session: Session,
        pace: Pace,
        rng: random.Random,
        tls: ssl.SSLContext | None,
        ask: Ask,
    ) -> None:
        self._calls = calls
        self._home = home
        self._session = session
        self._pace = pace
        self._tls = tls
        self._ask = ask
        self._rng = rng
        self._waits = full_jitter(pace, rng)
        self._number = 0
        self._filters: dict[int, str] = {}
        self._waiting: dict[int, asyncio.Future[_Told]] = {}
        self._messages: asyncio.Queue[Message | None] = asyncio.Queue()
        self._room = asyncio.Event()
        self._room.set()
        self._seen: dict[tuple[str, int], None] = {}
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._ready = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._failure: ClientError | None = None
        self.interruptions = 0
        """How often the connection was lost, and with it perhaps messages."""

    async def __aenter__(self) -> Self:
        try:
            await self._connected()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End all subscriptions and the connection."""
        self._failure = self._failure or Misused("the topics are closed")
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        self._end()

    async def subscribe(self, wanted: str) -> int:
        """Get all messages that match a filter, from now on: the number of the subscription."""
        self._number += 1
        number = self._number
        self._filters[number] = wanted
        try:
            await self._say(number, {"subscribe": wanted, "id": number})
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
                await self._say(number, {"unsubscribe": number})

    async def publish(
        self, topic: str, attributes: Mapping[str, Scalar] | None = None, body: Any = None
    ) -> Published:
        """Publish a message; durable when it returns, if `stored`.

        Unreachable is raised if the connection is lost before the answer: the message may be published or not.
        """
        self._number += 1
        said = {"topic": topic, "attributes": attributes or {}, "body": body}
        told = await self._say(self._number, {"publish": said, "id": self._number})
        return Published(told.publication, told.stored)

    def past(self, wanted: str) -> Past:
        """What storages have that matches a filter, oldest first; of topics without, what brokers have cached.

        Refused is raised at the end if a topic that the filter names has no storage that answers; and if it has
        none at all where nothing is cached.
        """
        return Past(self._ask, wanted)

    async def __aiter__(self) -> AsyncIterator[Message]:
        """All messages that match a subscription, as they come, each once."""
        self._begin()
        while True:
            message = await self._messages.get()
            self._make_room()
            if message is None:
                raise self._failure or Misused("the topics are closed")
            yield message

    # The connection.

    async def _connected(self) -> None:
        self._begin()
        assert self._running is not None
        waiting = asyncio.create_task(self._ready.wait())
        try:
            await asyncio.wait(
                {waiting, self._running}, timeout=self._pace.deadline_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            waiting.cancel()
        if self._failure is not None:
            raise self._failure
        if not self._ready.is_set():
            raise Unreachable(f"no broker answers; given up after {self._pace.deadline_s:g} s")

    def _begin(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._running is None:
            self._running = asyncio.create_task(self._run())

    async def _say(self, number: int, said: object) -> _Told:
        """Send a message, and wait for its answer."""
        frame = msgspec.json.encode(said)
        if len(frame) > MOST_SAID:
            raise Misused(f"{len(frame):,} bytes as JSON: a broker takes at most {MOST_SAID:,} at once")
        await self._connected()
        assert self._socket is not None
        answer: asyncio.Future[_Told] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        self._make_room()
        try:
            async with asyncio.timeout(self._pace.deadline_s):
                await self._socket.send_frame(frame, aiohttp.WSMsgType.TEXT)
                return await answer
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Unreachable(f"the broker has not answered ({type(error).__name__})") from error
        finally:
            self._waiting.pop(number, None)

    async def _run(self) -> None:
        try:
            await self._stay_connected()
        except Exception as error:  # whoever waits must hear of it
            self._failure = error if isinstance(error, ClientError) else ClientError(f"topics: {error!r}")
        finally:
            self._end()

    def _end(self) -> None:
        self._lost()
        self._messages.put_nowait(None)

    async def _stay_connected(self) -> None:
        while True:
            url, token = await self._calls.patiently(self._session.broker_and_token, None)
            code = None
            try:
                async with asyncio.timeout(self._pace.answer_s):
                    socket = await self._open(url, token)
                async with socket:
                    code = await self._listen(socket)
            except (aiohttp.ClientError, OSError, TimeoutError, msgspec.DecodeError) as error:
                logger.info("no connection to the topics of %s: %s", url, error)
                self._home.lost(url, gone=isinstance(error, aiohttp.ClientConnectorError))
            finally:
                self._lost()
            if code == NO_TOKEN:
                self._session.refused(token)
            if code in SENT_AWAY:
                self._home.lost(url)
            await asyncio.sleep(next(self._waits))

    async def _open(self, url: str, token: str) -> aiohttp.ClientWebSocketResponse:
        return await self._calls.http.ws_connect(
            f"{url}/topics",
            headers={"Authorization": f"Bearer {token}"},
            ssl=self._tls or True,
            proxy=proxy_for(url),
            timeout=aiohttp.ClientWSTimeout(ws_close=1.0),
            heartbeat=SILENT_S,
            max_msg_size=1 << 20,
        )

    async def _listen(self, socket: aiohttp.ClientWebSocketResponse) -> int | None:
        """Take what comes until the connection ends: the code of its end."""
        while True:
            frame = await socket.receive()
            if frame.type is not aiohttp.WSMsgType.TEXT:
                logger.info("the connection to topics was closed: %s %s", frame.type.name, frame.data)
                return frame.data if frame.type is aiohttp.WSMsgType.CLOSE else None
            told = _told.decode(frame.data)
            if told.ready:
                await self._subscribe_all(socket)
            elif isinstance(told.message, Message):
                await self._take(told.message)
            else:
                self._answered(told)

    async def _subscribe_all(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        for number, wanted in list(self._filters.items()):
            said = {"subscribe": wanted, "id": number}
            await socket.send_frame(msgspec.json.encode(said), aiohttp.WSMsgType.TEXT)
        self._waits = full_jitter(self._pace, self._rng)
        self._socket = socket
        self._ready.set()

    async def _take(self, message: Message) -> None:
        if message.id in self._seen:
            return
        self._seen[message.id] = None
        if len(self._seen) > REMEMBERED:
            del self._seen[next(iter(self._seen))]
        self._messages.put_nowait(message)
        self._make_room()
        await self._room.wait()

    def _make_room(self) -> None:
        """Read on if few messages wait, or if an answer may be behind those that are not read yet."""
        if self._waiting or self._messages.qsize() < WAITING:
            self._room.set()
        else:
            self._room.clear()

    def _answered(self, told: _Told) -> None:
        number = told.done if told.error is None else told.error
        waiting = None if number is None else self._waiting.get(number)
        if waiting is None or waiting.done():
            return
        if told.error is None:
            waiting.set_result(told)
        else:
            waiting.set_exception(Refused(str(told.message), 422))

    def _lost(self) -> None:
        if self._socket is not None and self._failure is None:
            self.interruptions += 1
        self._socket = None
        self._ready.clear()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(Unreachable("the connection was lost before the broker answered"))
