"""One WebSocket of a subscriber, as a protocol of uvicorn's: `uvicorn.Config(ws=Connection)`.

While a connection opens, the ASGI app speaks for it (`socket_opening`): handshake, token. Then the app settles it
and returns, so that an idle connection holds no task, no scope and no headers, only what is in its slots.
`websockets` parses what comes in; what goes out are whole frames, many of them shared with other connections,
written to the transport as they are.

Nothing that a client does makes memory grow. Who does not read gets only the newest signal of each stream, later;
is not read from either, so that its pings and acknowledgements wait on its side; and is closed by the hub. A
message above the limit ends the connection at its header, and what comes after is thrown away unseen.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import uvicorn
from uvicorn.server import ServerState
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from newsstand.broker.socket_frames import BROKEN, GOING_DOWN, MALFORMED, Dismissed, text_frame
from newsstand.broker.socket_opening import Opening

logger = logging.getLogger(__name__)
_frames_log = logging.getLogger(f"{__name__}.frames")
_frames_log.setLevel(logging.WARNING)  # every opening and closing is information to websockets

LARGEST = 64 * 1024
"""Bytes of a message from a client."""
LINGER_S = 5.0
"""How long a client may take to answer the close frame before it is cut off."""
_PIECE = 4096
"""Bytes that are parsed at a time: messages behind them stay bytes until those before are answered."""

Talk = Callable[[bytes], Awaitable[bytes | None]]
"""What answers the messages of a settled connection, at once or by itself later."""


class Connection(asyncio.Protocol):
    """A client's WebSocket, from the handshake to the end; used from the thread of its event loop only."""

    __slots__ = (
        "_inbox",
        "_lost",
        "_opening",
        "_partial",
        "_reading",
        "_server",
        "_talk",
        "_task",
        "_timer",
        "_unread",
        "_waiting",
        "asked",
        "closing",
        "expires_ms",
        "frames",
        "heard",
        "held_bytes",
        "left",
        "paused",
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
        self.frames = ServerProtocol(max_size=LARGEST, logger=_frames_log)
        self._opening: Opening | None = Opening(self, config, server_state, app_state)
        self.transport: asyncio.Transport = asyncio.Transport()
        self.write: Callable[[bytes], None] = self.transport.write
        self._talk: Talk | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unread: memoryview | None = None
        self._partial: bytearray | None = None
        self._inbox: list[bytes] = []
        self._waiting: dict[str, bytes] = {}
        self.held_bytes = 0
        self._reading = True
        self._lost = False
        self.closing = False
        self.paused = False
        # What the hub notes about a connection that joined it.
        self.left: Callable[[Connection], None] | None = None
        self.release: Callable[[], None] | None = None
        self.subscriber = self.session = ""
        self.expires_ms = 0
        self.heard = True
        self.asked = False
        self.quiet_since = 0
        self.stuck_since = 0

    # What the hub and the app call.

    def settle(self, talk: Talk) -> None:
        """The app has let the client in: from now on `talk` answers its messages, in their order."""
        self._talk = talk
        if self._opening is not None:
            self._opening.settled = True
        self._attend()

    def limit(self, high_water: int) -> None:
        """Hold at most so many bytes that the client did not read yet, here and again in the kernel."""
        self.transport.set_write_buffer_limits(high=high_water)
        bound: socket.socket | None = self.transport.get_extra_info("socket")
        if bound is not None and bound.family != socket.AF_UNIX:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, high_water)

    def deliver(self, key: str, frame: bytes) -> None:
        """Write a frame, or keep it until the client reads again, instead of the one kept under the same key."""
        if self.closing:
            return
        if self.paused:
            self.held_bytes += len(frame) - len(self._waiting.get(key, b""))
            self._waiting[key] = frame
        else:
            self.write(frame)

    def close(self, code: int, reason: str) -> None:
        """Say goodbye; whoever does not answer it is cut off a little later."""
        if self.closing:
            return
        self._inbox.clear()
        if self.frames.state is State.OPEN:
            # A reason has room for 123 bytes.
            self.frames.send_close(code, reason.encode()[:123].decode(errors="ignore"))
            self.write(b"".join(self.frames.data_to_send()))
        self._end()

    @contextmanager
    def given_up(self) -> Iterator[ServerState]:
        """Let another protocol take the transport over: from then on this connection has nothing to do with it."""
        self._lost = True
        self._server.connections.discard(self)
        self._released()
        if self._opening is not None:
            self._opening.settled = True
        yield self._server
        self._forget()

    @property
    def busy(self) -> bool:
        """Is a message being answered? Until it is, the client is not read from."""
        return self._task is not None

    @property
    def held(self) -> int:
        """How many signals wait until the client reads again."""
        return len(self._waiting)

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.write = self.transport.write
        self._server.connections.add(self)  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._server.connections.discard(self)
        self._released()
        self._forget()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def pause_writing(self) -> None:
        self.paused = True
        self._listen()

    def resume_writing(self) -> None:
        self.paused = False
        self.heard = True
        self.stuck_since = 0
        while self._waiting and not self.paused:
            frame = self._waiting.pop(next(iter(self._waiting)))
            self.held_bytes -= len(frame)
            self.write(frame)
        self._go_on()

    def data_received(self, data: bytes) -> None:
        self.heard = True
        if self.closing:
            self._parse(data)
        elif self._unread is not None:
            self._unread = memoryview(bytes(self._unread) + data)
        else:
            self._unread = memoryview(data)
            self._go_on()

    def shutdown(self) -> None:
        """The server stops."""
        if self._opening is not None and not self._opening.accepted:
            self._opening.reject(503)
        else:
            self.close(GOING_DOWN, "the broker is going down; ask the coordinator for another")

    # What the ASGI side needs while the connection opens.

    def opened(self) -> None:
        """The app has returned: nothing of the opening is needed any longer."""
        if self._opening is None:
            return
        settled, accepted = self._opening.settled, self._opening.accepted
        self._opening = None
        if settled:
            self._attend()
        elif accepted:
            self.close(1000, "")
        else:
            self.transport.close()

    def next_message(self) -> bytes | None:
        """The oldest message that is not answered yet."""
        if not self._inbox:
            return None
        message = self._inbox.pop(0)
        self._go_on()
        return message

    # From bytes to messages to answers.

    def _go_on(self) -> None:
        """Parse what was received, as far as the messages before it are answered."""
        while (unread := self._unread) is not None and not (
            self._inbox or self._task or self.paused or self.closing
        ):
            self._unread = unread[_PIECE:] if len(unread) > _PIECE else None
            self._parse(bytes(unread[:_PIECE]))
        self._attend()

    def _parse(self, data: bytes) -> None:
        self.frames.receive_data(data)
        for event in self.frames.events_received():
            if isinstance(event, Frame):
                self._take(event)
            elif isinstance(event, Request) and self._opening is not None:
                self._opening.begin(event)
        out = b"".join(self.frames.data_to_send())
        if self.closing:
            return
        if out:
            self.write(out)
        if self.frames.close_expected():  # the client closed, or broke the protocol
            self._end()
            if self.frames.parser_exc is not None and self.transport.can_write_eof():
                self.transport.write_eof()  # to close at once, while it still sends, would hide the code from it
            else:
                self.transport.close()

    def _take(self, frame: Frame) -> None:
        if self.closing:
            if frame.opcode is Opcode.CLOSE:
                self.transport.close()
        elif frame.opcode is Opcode.BINARY:
            self.close(MALFORMED, "messages are text")
        elif frame.opcode is Opcode.TEXT and frame.fin:
            self._inbox.append(bytes(frame.data))
        elif frame.opcode is Opcode.TEXT:
            self._partial = bytearray(frame.data)
        elif frame.opcode is Opcode.CONT and self._partial is not None:
            self._partial += frame.data
            if frame.fin:
                self._inbox.append(bytes(self._partial))
                self._partial = None

    def _attend(self) -> None:
        """See that somebody answers what has come, and listen only if nothing waits."""
        if self._opening is not None:
            self._opening.wake()
        elif self._inbox and self._talk is not None and self._task is None and (self.closing or not self.paused):
            self._task = asyncio.get_running_loop().create_task(self._answer(self._talk))
            self._server.tasks.add(self._task)
            self._task.add_done_callback(self._server.tasks.discard)
        self._listen()

    async def _answer(self, talk: Talk) -> None:
        try:
            while self._inbox and (self.closing or not self.paused):
                answer = await talk(self._inbox.pop(0))
                if answer is not None:
                    self.deliver("", text_frame(answer))
        except Dismissed as dismissed:
            self.close(dismissed.code, dismissed.reason)
        except Exception:
            logger.exception("a message could not be answered")
            self.close(BROKEN, "something went wrong here")
        finally:
            self._task = None
            self._go_on()

    def _listen(self) -> None:
        """Read from the client unless it waits for us or we for it; who is to leave is read to its close frame."""
        wanted = self.closing or not (self._inbox or self._unread is not None or self._task or self.paused)
        if wanted != self._reading and not self._lost:
            self._reading = wanted
            if wanted:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def _end(self) -> None:
        """Nothing more is written; the client has a while to leave; what it said before is still attended to."""
        self._forget()
        if not self._lost and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LINGER_S, self.transport.abort)
        self._listen()

    def _released(self) -> None:
        if self.release is not None:
            self.release()
            self.release = None

    def _forget(self) -> None:
        self.closing = True
        self._waiting.clear()
        self.held_bytes = 0
        self._unread = self._partial = None
        if self.left is not None:
            self.left(self)
            self.left = None
        if self._opening is not None:
            self._opening.wake()
