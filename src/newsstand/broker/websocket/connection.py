"""One WebSocket of a subscriber, as a protocol of uvicorn: `uvicorn.Config(ws=Connection)`.

The ASGI app serves the handshake and the token (`handshake`). Then it hands the connection over and returns, so
that an idle connection holds no task, no scope and no headers, only its slots. `websockets` parses incoming bytes;
outgoing data are complete frames, many of them shared with other connections, written to the transport unchanged.

Memory per client is bounded. A client that does not read gets only the newest notification of each stream, later;
the broker does not read from it either, so that its pings and acknowledgements wait on its side; and the hub
closes it. A message above the limit ends the connection at its header, and the rest is discarded.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import msgspec
import uvicorn
from uvicorn.server import ServerState
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from newsstand.broker.websocket.handshake import Handshake
from newsstand.wire.notifications import CloseCode

logger = logging.getLogger(__name__)
_frames_log = logging.getLogger(f"{__name__}.frames")
_frames_log.setLevel(logging.WARNING)  # websockets logs every handshake and close

_PIECE = 4096
"""Bytes that are parsed at a time: later messages stay bytes until the earlier ones are answered."""

PING = Frame(Opcode.PING, b"").serialize(mask=False)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of a client's connection."""

    message_bytes: int = 64 * 1024
    token_s: float = 5.0
    """How long a client may take to send its token."""
    linger_s: float = 5.0
    """How long a client may take to answer the close frame before the connection is aborted."""


class CloseConnection(Exception):
    """Closes the connection of a client with a code and a reason."""

    def __init__(self, code: CloseCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def text_frame(payload: bytes) -> bytes:
    """Return the frame of a text message."""
    return Frame(Opcode.TEXT, payload).serialize(mask=False)


def notification_frame(stream: str, position: int) -> bytes:
    """Return the frame of the position of a stream."""
    return text_frame(msgspec.json.encode({"stream": stream, "position": position}))


def inline_frame(stream: str, position: int, results: Iterable[bytes]) -> bytes:
    """Return the frame of the position of a stream with the results up to it, given as JSON, oldest first."""
    name = msgspec.json.encode(stream)
    return text_frame(b'{"stream":%b,"position":%d,"results":[%b]}' % (name, position, b",".join(results)))


def suspension_frame(stream: str, position: int, suspended: object) -> bytes:
    """Return the frame for a stream that was suspended at a position, or resumed if `suspended` is null."""
    return text_frame(msgspec.json.encode({"stream": stream, "position": position, "suspended": suspended}))


READY = text_frame(b'{"ready":true}')
MessageHandler = Callable[[bytes], Awaitable[bytes | None]]
"""Answers a message of a client that was admitted."""


class Connection(asyncio.Protocol):
    """A client's WebSocket, from the handshake to the end; used from the thread of its event loop only."""

    limits: ClassVar[ConnectionLimits] = ConnectionLimits()

    __slots__ = (
        "_handler",
        "_handshake",
        "_inbox",
        "_lost",
        "_partial",
        "_queue",
        "_reading",
        "_server",
        "_task",
        "_timer",
        "_unread",
        "closing",
        "expires_ms",
        "frames",
        "heard",
        "inline",
        "lease",
        "on_close",
        "paused",
        "pinged",
        "queued_bytes",
        "quiet_since",
        "release",
        "session",
        "stuck_since",
        "subscriber",
        "transport",
        "write",
    )

    def __init__(
        self, config: uvicorn.Config, server_state: ServerState, app_state: dict[str, Any], **_: object
    ) -> None:
        self._server = server_state
        self.frames = ServerProtocol(max_size=self.limits.message_bytes, logger=_frames_log)
        self._handshake: Handshake | None = Handshake(self, config, server_state, app_state)
        self.transport: asyncio.Transport = asyncio.Transport()
        self.write: Callable[[bytes], None] = self.transport.write
        self._handler: MessageHandler | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unread: memoryview | None = None
        self._partial: bytearray | None = None
        self._inbox: list[bytes] = []
        self._queue: dict[str, bytes] = {}
        self.queued_bytes = 0
        self._reading = True
        self._lost = False
        self.closing = False
        self.paused = False
        # Set by the hub that the connection has joined.
        self.on_close: Callable[[Connection], None] | None = None
        self.release: Callable[[], None] | None = None
        self.subscriber = self.session = ""
        self.expires_ms = 0
        self.inline = False
        """Whether the client wants results in notifications."""
        self.lease: int | None = None
        self.heard = True
        self.pinged = False
        self.quiet_since = 0
        self.stuck_since = 0

    # Called by the hub and the app.

    def hand_over(self, handler: MessageHandler) -> None:
        """End the handshake: from now on `handler` answers messages, in their order."""
        self._handler = handler
        if self._handshake is not None:
            self._handshake.handed_over = True
        self._schedule()

    def set_limits(self, high_water: int) -> None:
        """Limit the unread bytes of the client, here and again in the kernel."""
        self.transport.set_write_buffer_limits(high=high_water)
        bound: socket.socket | None = self.transport.get_extra_info("socket")
        if bound is not None and bound.family != socket.AF_UNIX:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, high_water)

    def deliver(self, key: str, frame: bytes) -> None:
        """Write a frame, or queue it until the client reads; it replaces a queued frame of the same key."""
        if self.closing:
            return
        if self.paused:
            self.queued_bytes += len(frame) - len(self._queue.get(key, b""))
            self._queue[key] = frame
        else:
            self.write(frame)

    def close(self, code: int, reason: str) -> None:
        """Send a close frame; abort the connection if the client does not answer in time."""
        if self.closing:
            return
        self._inbox.clear()
        if self.frames.state is State.OPEN:
            # A reason has room for 123 bytes.
            self.frames.send_close(code, reason.encode()[:123].decode(errors="ignore"))
            self.write(b"".join(self.frames.data_to_send()))
        self._end()

    @contextmanager
    def detach(self) -> Iterator[ServerState]:
        """Yield the server state to another protocol that takes the transport over."""
        self._lost = True
        self._server.connections.discard(self)
        self._release()
        if self._handshake is not None:
            self._handshake.handed_over = True
        yield self._server
        self._shut()

    @property
    def busy(self) -> bool:
        """Whether a message is being answered; meanwhile nothing is read from the client."""
        return self._task is not None

    @property
    def queued(self) -> int:
        """The number of notifications that wait until the client reads."""
        return len(self._queue)

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.write = self.transport.write
        self._server.connections.add(self)  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._server.connections.discard(self)
        self._release()
        self._shut()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def pause_writing(self) -> None:
        self.paused = True
        self._update_reading()

    def resume_writing(self) -> None:
        self.paused = False
        self.heard = True
        self.stuck_since = 0
        while self._queue and not self.paused:
            frame = self._queue.pop(next(iter(self._queue)))
            self.queued_bytes -= len(frame)
            self.write(frame)
        self._resume()

    def data_received(self, data: bytes) -> None:
        self.heard = True
        if self.closing:
            self._parse(data)
        elif self._unread is not None:
            self._unread = memoryview(bytes(self._unread) + data)
        else:
            self._unread = memoryview(data)
            self._resume()

    def shutdown(self) -> None:
        if self._handshake is not None and not self._handshake.accepted:
            self._handshake.reject(503)
        else:
            self.close(CloseCode.SERVICE_RESTART, "the broker is shutting down; ask the coordinator for another")

    # Called during the handshake.

    def handshake_done(self) -> None:
        """Drop the state of the handshake, after the app has returned."""
        if self._handshake is None:
            return
        settled, accepted = self._handshake.handed_over, self._handshake.accepted
        self._handshake = None
        if settled:
            self._schedule()
        elif accepted:
            self.close(1000, "")
        else:
            self.transport.close()

    def next_message(self) -> bytes | None:
        """Return the oldest message that is not answered yet, if any."""
        if not self._inbox:
            return None
        message = self._inbox.pop(0)
        self._resume()
        return message

    # From bytes to messages to answers.

    def _resume(self) -> None:
        """Parse received bytes, as far as the messages before them are answered."""
        while (unread := self._unread) is not None and not (
            self._inbox or self._task or self.paused or self.closing
        ):
            self._unread = unread[_PIECE:] if len(unread) > _PIECE else None
            self._parse(bytes(unread[:_PIECE]))
        self._schedule()

    def _parse(self, data: bytes) -> None:
        self.frames.receive_data(data)
        for event in self.frames.events_received():
            if isinstance(event, Frame):
                self._handle_frame(event)
            elif isinstance(event, Request) and self._handshake is not None:
                self._handshake.begin(event)
        out = b"".join(self.frames.data_to_send())
        if self.closing:
            return
        if out:
            self.write(out)
        if self.frames.close_expected():  # the client closed, or broke the protocol
            self._end()
            if self.frames.parser_exc is not None and self.transport.can_write_eof():
                self.transport.write_eof()  # closing at once, while it still sends, would hide the code from it
            else:
                self.transport.close()

    def _handle_frame(self, frame: Frame) -> None:
        if self.closing:
            if frame.opcode is Opcode.CLOSE:
                self.transport.close()
        elif frame.opcode is Opcode.BINARY:
            self.close(CloseCode.MALFORMED, "messages are text")
        elif frame.opcode is Opcode.TEXT and frame.fin:
            self._inbox.append(bytes(frame.data))
        elif frame.opcode is Opcode.TEXT:
            self._partial = bytearray(frame.data)
        elif frame.opcode is Opcode.CONT and self._partial is not None:
            self._partial += frame.data
            if frame.fin:
                self._inbox.append(bytes(self._partial))
                self._partial = None

    def _schedule(self) -> None:
        """Have waiting messages answered; read from the client only if nothing waits."""
        if self._handshake is not None:
            self._handshake.wake()
        elif (
            self._inbox and self._handler is not None and self._task is None and (self.closing or not self.paused)
        ):
            self._task = asyncio.get_running_loop().create_task(self._answer(self._handler))
            self._server.tasks.add(self._task)
            self._task.add_done_callback(self._server.tasks.discard)
        self._update_reading()

    async def _answer(self, handler: MessageHandler) -> None:
        try:
            while self._inbox and (self.closing or not self.paused):
                answer = await handler(self._inbox.pop(0))
                if answer is not None:
                    self.deliver("", text_frame(answer))
        except CloseConnection as dismissed:
            self.close(dismissed.code, dismissed.reason)
        except Exception:
            logger.exception("WebSocket message failed")
            self.close(CloseCode.INTERNAL_ERROR, "internal error")
        finally:
            self._task = None
            self._resume()

    def _update_reading(self) -> None:
        """Start or stop reading from the client; a closing connection is read up to its close frame."""
        wanted = self.closing or not (self._inbox or self._unread is not None or self._task or self.paused)
        if wanted != self._reading and not self._lost:
            self._reading = wanted
            if wanted:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def _end(self) -> None:
        """Stop writing and give the client time to close; earlier messages are still answered."""
        self._shut()
        if not self._lost and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self.limits.linger_s, self.transport.abort)
        self._update_reading()

    def _release(self) -> None:
        if self.release is not None:
            self.release()
            self.release = None

    def _shut(self) -> None:
        self.closing = True
        self._queue.clear()
        self.queued_bytes = 0
        self._unread = self._partial = None
        if self.on_close is not None:
            self.on_close(self)
            self.on_close = None
        if self._handshake is not None:
            self._handshake.wake()
