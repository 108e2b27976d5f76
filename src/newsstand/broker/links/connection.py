"""One WebSocket between two brokers: greetings from both sides, then batches of messages in both directions.

The dialling broker opens it at `/overlay` of its neighbour. After the greetings both sides do the same. Messages
are collected during one turn of the event loop and sent as one binary frame. If too much waits for a neighbour
that does not read, the connection ends; a new link exchanges the tables again.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.connection import Connection as WebSocketConnection
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.protocol import Protocol, Side, State

from newsstand.errors import BadMessage, NewsstandError
from newsstand.overlay.messages import Message, batch_of, decode_batch, encode
from newsstand.wire.notifications import CloseCode

logger = logging.getLogger(__name__)
MAX_FRAME = 16 * 1024 * 1024
"""Bytes of a batch that is accepted."""


@dataclass(frozen=True, slots=True)
class PeerConnectionLimits:
    """Limits of a connection to a neighbour."""

    greeting_s: float = 5.0
    """How long connecting and the greetings may take."""
    batch: int = 512
    """Messages of a batch."""
    batch_bytes: int = 1024 * 1024
    """A batch that would be larger is sent first."""
    unsent_bytes: int = 64 * 1024 * 1024
    """Bytes that may wait for a neighbour that does not read."""
    linger_s: float = 2.0
    """How long the neighbour may take to answer the close frame."""
    ping_s: float = 5.0
    """The interval of pings."""
    silence_s: float = 15.0
    """How long the neighbour may send nothing before the connection ends."""


class TimedConnection(WebSocketConnection):
    """A WebSocket that records when its peer has last sent bytes."""

    heard_at: float | None = None
    """The time of the event loop."""

    def data_received(self, data: bytes) -> None:
        self.heard_at = self.loop.time()
        super().data_received(data)


class TimedClientConnection(TimedConnection, ClientConnection):
    """The same, at the side that connects."""


@dataclass(eq=False, repr=False)
class PeerConnection:
    """A connection to a neighbour; `received` gets batches, `lost` is called once, at the end."""

    socket: TimedConnection
    received: Callable[[list[Message]], None]
    lost: Callable[[PeerConnection, str], None]
    limits: PeerConnectionLimits = PeerConnectionLimits()
    on_close: Callable[[PeerConnection], None] = lambda _: None
    """Called when the transport is closed, whichever side has ended the connection."""

    def __post_init__(self) -> None:
        self._unsent: deque[bytes] = deque()
        self.unsent_bytes = 0
        """Bytes that wait for the neighbour to read."""
        self._wake = asyncio.Event()
        self._is_over = False
        self._sending = [asyncio.create_task(work) for work in (self._send_batches(), self._ping())]
        self._ending = [asyncio.create_task(self._receive())]

    def send(self, message: Message) -> None:
        """Send a message in the next batch."""
        if self._is_over:
            return
        encoded = encode(message)
        self._unsent.append(encoded)
        self.unsent_bytes += len(encoded)
        self._wake.set()
        if self.unsent_bytes > self.limits.unsent_bytes:
            self.close(CloseCode.TOO_SLOW, "stopped reading")

    def close(self, code: int, reason: str) -> None:
        """End the connection with a close code."""
        if not self._is_over:
            self._end(reason)
            self._ending.append(asyncio.create_task(self._close(code, reason)))

    def shutdown(self) -> None:
        """End the connection because the server stops; called by uvicorn."""
        self.close(CloseCode.SERVICE_RESTART, "the broker is stopping")

    async def closed(self) -> None:
        """Wait until the transport is closed."""
        await asyncio.wait(self._ending)

    async def _receive(self) -> None:
        try:
            while not self._is_over:
                data = await self.socket.recv()
                if isinstance(data, str):
                    raise BadMessage("a batch of messages is one binary frame")
                if not self._is_over:
                    self.received(decode_batch(data))
        except BadMessage as error:
            self.close(CloseCode.MALFORMED, str(error))
        except ConnectionClosed as end:
            self._end(str(end))
        except Exception:
            logger.exception("batch of a neighbour failed")
            self.close(CloseCode.INTERNAL_ERROR, "a batch failed")
        await self.socket.wait_closed()
        self.on_close(self)

    async def _send_batches(self) -> None:
        with suppress(ConnectionClosed):
            while await self._wake.wait():
                self._wake.clear()
                while self._unsent:
                    batch = self._next_batch()
                    await self.socket.send(batch_of(batch))
                    self.unsent_bytes -= sum(map(len, batch))

    def _next_batch(self) -> list[bytes]:
        batch = [self._unsent.popleft()]
        left = self.limits.batch_bytes - len(batch[0])
        while self._unsent and len(batch) < self.limits.batch and len(self._unsent[0]) <= left:
            left -= len(self._unsent[0])
            batch.append(self._unsent.popleft())
        return batch

    async def _ping(self) -> None:
        """Ping the neighbour, and end the connection when it is silent.

        Pings are sent although messages arrive, and any received byte counts: a pong waits behind a large batch on
        a slow link, and the pings of the neighbour do not.
        """
        limits, begun = self.limits, self.socket.loop.time()
        with suppress(ConnectionClosed):
            while True:
                await asyncio.sleep(limits.ping_s)
                with suppress(TimeoutError):  # the neighbour does not read
                    async with asyncio.timeout(limits.ping_s):
                        await self.socket.ping()
                if self.socket.loop.time() - max(begun, self.socket.heard_at or begun) > limits.silence_s:
                    self.close(CloseCode.TOO_SLOW, f"sent nothing for {limits.silence_s:g} s")

    async def _close(self, code: int, reason: str) -> None:
        try:
            async with asyncio.timeout(self.limits.linger_s):
                await self.socket.close(code, reason.encode()[:123].decode(errors="ignore"))
        except TimeoutError:
            self.socket.transport.abort()

    def _end(self, reason: str) -> None:
        if not self._is_over:
            self._is_over = True
            for task in self._sending:
                task.cancel()
            self.lost(self, reason)


class LinkError(NewsstandError):
    """A neighbour that does not answer, or rejects the link."""


class Hello(msgspec.Struct, frozen=True):
    """The name of a broker, and the version of the tree that it knows."""

    name: str
    version: int = 0


class Greeting(msgspec.Struct, frozen=True):
    """The first message of each side."""

    hello: Hello


def accepted_socket(transport: asyncio.Transport) -> TimedConnection:
    """Return a WebSocket that takes over the transport of a neighbour after its handshake."""
    socket = TimedConnection(Protocol(Side.SERVER, state=State.OPEN, max_size=MAX_FRAME), ping_interval=None)
    socket.connection_made(transport)
    transport.set_protocol(socket)
    return socket


async def dial(
    url: str,
    key: str,
    hello: Hello,
    tls: ssl.SSLContext | None,
    limits: PeerConnectionLimits = PeerConnectionLimits(),  # noqa: B008  it is frozen
) -> tuple[TimedConnection, Hello]:
    """Connect to a neighbour and exchange greetings; return the WebSocket and its greeting. Raise LinkError."""
    try:
        async with asyncio.timeout(limits.greeting_s):
            socket = await connect(
                "ws" + url.removeprefix("http").rstrip("/") + "/overlay",
                create_connection=TimedClientConnection,
                additional_headers={"Authorization": f"Bearer {key}"},
                compression=None,
                max_size=MAX_FRAME,
                open_timeout=None,
                ping_interval=None,
                proxy=None,
                ssl=(tls or True) if url.startswith("https:") else None,
            )
            assert isinstance(socket, TimedClientConnection)
            try:
                await socket.send(msgspec.json.encode(Greeting(hello)), text=True)
                return socket, msgspec.json.decode(await socket.recv(), type=Greeting).hello
            except BaseException:
                socket.transport.abort()
                raise
    except TimeoutError:
        raise LinkError(f"{url}: no answer within {limits.greeting_s:g} s") from None
    except (OSError, ValueError, msgspec.DecodeError, WebSocketException) as error:
        raise LinkError(f"{url}: cannot connect ({getattr(error, 'strerror', None) or error})") from error
