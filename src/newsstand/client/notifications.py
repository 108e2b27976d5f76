"""The WebSocket of a client: one for all its subscriptions, opened again whenever it is closed.

Signals come in and wake those who iterate; acknowledgements go out, many in one message.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress

import aiohttp
import msgspec

from newsstand.client.calls import Calls
from newsstand.client.cursor import Cursor
from newsstand.client.errors import ClientError
from newsstand.client.home import Home
from newsstand.client.nouns import Subscription, Suspension
from newsstand.client.pace import Pace, full_jitter
from newsstand.client.proxies import proxy_for
from newsstand.client.session import Session

logger = logging.getLogger("newsstand.client")
NO_TOKEN, MOVED, GOING_DOWN = 4001, 4003, 1012
SENT_AWAY = (NO_TOKEN, MOVED, GOING_DOWN)
"""A broker that closes so is not the one to come back to. Any other, whose line was cut, is tried once more."""
SILENT_S = 20.0
"""A connection over which nothing came for so long is tried with a ping; it is lost after half of that again."""
_TELLING = (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY)
_CLOSING = aiohttp.ClientWSTimeout(ws_close=1.0)


class _Told(msgspec.Struct):
    stream: str | None = None
    position: int = 0
    ready: bool = False
    acked: dict[str, int] | None = None
    suspended: Suspension | msgspec.UnsetType | None = msgspec.UNSET


_told = msgspec.json.Decoder(_Told)


class _Closed(Exception):
    """A connection has ended; `code` is that of the broker, if it took its leave."""

    def __init__(self, end: aiohttp.WSMessage) -> None:
        super().__init__(f"{end.type.name} {end.data}")
        self.code = end.data if end.type is aiohttp.WSMsgType.CLOSE else None


class Notifications:
    """Keeps a WebSocket open as long as it runs; `failure` is why it does not any more."""

    def __init__(
        self,
        calls: Calls,
        home: Home,
        session: Session,
        pace: Pace,
        rng: random.Random,
        tls: ssl.SSLContext | None,
        learn: Callable[[], Awaitable[list[Subscription]]],
    ) -> None:
        """`learn` asks the broker for all subscriptions: they have other streams at another broker."""
        self._calls = calls
        self._home = home
        self._session = session
        self._pace = pace
        self._rng = rng
        self._tls = tls
        self._learn = learn
        self.cursors: dict[str, Cursor] = {}
        self.failure: ClientError | None = None
        self.connected = False
        """Whether the broker has said that it is ready."""
        self._running: asyncio.Task[None] | None = None
        self._learning: asyncio.Task[None] | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._url = ""
        self._streams: dict[str, Cursor] = {}
        self._early: dict[str, int] = {}
        """Signals of streams that are not known."""
        self._waits = full_jitter(pace, rng)
        self._unsent = 0
        self._timer: asyncio.TimerHandle | None = None
        self._sending: asyncio.Task[None] | None = None

    def follow(self, cursor: Cursor) -> None:
        """Begin to follow a subscription; what failed before is tried again."""
        self.cursors[cursor.subscription.id] = cursor
        if self._running is None or self._running.done():
            self.failure = None
            self._running = asyncio.create_task(self._run())
        elif self._url:
            self._place()

    def unfollow(self, cursor: Cursor) -> None:
        """Follow it no more."""
        for followed, key in ((self.cursors, cursor.subscription.id), (self._streams, cursor.subscription.stream)):
            if followed.get(key) is cursor:  # and not that of a newer iteration
                del followed[key]

    async def close(self) -> None:
        """Close the connection for good, and let all who iterate know."""
        if self._timer is not None:
            self._timer.cancel()
        tasks = [task for task in (self._running, self._learning, self._sending) if task is not None]
        for task in tasks:
            task.cancel()
        for cursor in self.cursors.values():
            cursor.wake.set()
        await asyncio.gather(*tasks, return_exceptions=True)

    def acknowledge_soon(self) -> None:
        """The caller is done with a result: send it with others, in a moment."""
        self._unsent += 1
        if self._unsent >= self._pace.acks:
            self._send()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._pace.ack_within_s, self._send)

    async def _run(self) -> None:
        try:
            await self._stay_connected()
        except Exception as error:  # whoever iterates must hear of it
            self.failure = error if isinstance(error, ClientError) else ClientError(f"notifications: {error!r}")
            for cursor in self.cursors.values():
                cursor.wake.set()

    async def _stay_connected(self) -> None:
        while True:
            url, token = await self._calls.patiently(self._session.broker_and_token, None)
            try:
                async with await self._opening(url, token) as socket:
                    self._connected(socket, url)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(max(1.0, self._session.seconds_left)):
                            await self._listen(socket)
                continue  # with a new token
            except _Closed as end:
                logger.info("the connection to %s was closed: %s", url, end)
                if end.code == NO_TOKEN:
                    self._session.refused(token)
                if end.code in SENT_AWAY or not self.connected:
                    self._home.lost(url)
            except (aiohttp.ClientError, OSError, TimeoutError, msgspec.DecodeError) as error:
                logger.info("no connection to %s: %s", url, error)
                self._home.lost(url, gone=isinstance(error, aiohttp.ClientConnectorError))
            finally:
                self._disconnected()
            await asyncio.sleep(next(self._waits))

    async def _opening(self, url: str, token: str) -> aiohttp.ClientWebSocketResponse:
        async with asyncio.timeout(self._pace.answer_s):
            return await self._calls.http.ws_connect(
                f"{url}/notifications",
                headers={"Authorization": f"Bearer {token}"},
                ssl=self._tls or True,
                proxy=proxy_for(url),
                timeout=_CLOSING,
                heartbeat=SILENT_S,
                max_msg_size=1 << 20,
            )

    def _connected(self, socket: aiohttp.ClientWebSocketResponse, url: str) -> None:
        self._socket, self._url = socket, url
        for cursor in self.cursors.values():
            cursor.connected(url)

    def _disconnected(self) -> None:
        self._socket, self._url, self.connected = None, "", False
        self._streams.clear()
        self._early.clear()
        if self._learning is not None:
            self._learning.cancel()
            self._learning = None

    async def _listen(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        while True:
            message = await socket.receive()
            if message.type not in _TELLING:
                raise _Closed(message)
            told = _told.decode(message.data)
            if told.stream is not None and told.suspended is not msgspec.UNSET:
                self._suspended(told.stream, told.suspended)
            elif told.stream is not None:
                self._signalled(told.stream, told.position)
            elif told.acked is not None:
                self._acknowledged(told.acked)
            elif told.ready:
                self._waits = full_jitter(self._pace, self._rng)
                self.connected = True
                self._place()

    def _signalled(self, stream: str, position: int) -> None:
        cursor = self._streams.get(stream)
        if cursor is None:
            self._early[stream] = position
            return
        cursor.told(position)
        if cursor.to_acknowledge() is not None:
            self.acknowledge_soon()

    def _suspended(self, stream: str, suspended: Suspension | None) -> None:
        """The broker tells of a suspension; before the stream is known here, `learn` tells of it."""
        cursor = self._streams.get(stream)
        if cursor is not None:
            cursor.subscription = msgspec.structs.replace(cursor.subscription, suspended=suspended)
            if suspended is not None:
                logger.warning("subscription %s is suspended: %s", cursor.subscription.id, suspended.error)

    def _acknowledged(self, positions: dict[str, int]) -> None:
        for key, position in positions.items():
            cursor = self.cursors.get(key)
            if cursor is not None:
                cursor.acked = max(cursor.acked, position)

    def _place(self) -> None:
        """Find the stream of each cursor at this broker; what the broker has not told, it is asked."""
        for cursor in self.cursors.values():
            if cursor.subscription.broker == self._url:
                stream = cursor.subscription.stream
                self._streams[stream] = cursor
                cursor.told(self._early.pop(stream, 0))
            elif self._learning is None:
                self._learning = asyncio.create_task(self._ask_all())
        self.acknowledge_soon()

    async def _ask_all(self) -> None:
        """Once in a connection: where the broker has the subscriptions. One that it lacks is mended by reading."""
        try:
            told = {one.id: one for one in await self._learn()}
        except ClientError as error:
            logger.warning("%s", error)
            told = {}
        for key, cursor in self.cursors.items():
            if key in told:
                cursor.placed(told[key])
            if cursor.subscription.broker != self._url:
                cursor.moved = cursor.due = True
                cursor.wake.set()
        self._place()

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._unsent = 0
        if self._socket is None:
            return
        positions: dict[str, int] = {}
        for key, cursor in self.cursors.items():
            position = cursor.to_acknowledge()
            if position is not None:
                positions[key] = cursor.sent = position
        if positions:
            self._sending = asyncio.create_task(self._write(self._socket, positions))

    async def _write(self, socket: aiohttp.ClientWebSocketResponse, positions: dict[str, int]) -> None:
        with suppress(aiohttp.ClientError, OSError):  # they are sent again over the next connection
            await socket.send_frame(msgspec.json.encode({"ack": positions}), aiohttp.WSMsgType.TEXT)
